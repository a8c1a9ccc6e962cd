/* fuzz_ws.c - WebSocket frames whole and in pieces, as a client and as a server read them. */
#include "fuzz.h"
#include "wire/ws.h"

static void run(enum ws_role role, unsigned mode, struct slice in, struct buf *log)
{
    enum ws_event ev = WS_NEED_MORE;
    struct ws_decoder d;

    ws_decoder_init(&d, role, 5000);
    for (size_t i = 0; ev != WS_ERROR && in.n > 0; i++) {
        size_t n = fuzz_piece(mode, i, in.n);
        uint8_t *copy = fuzz_exact(slice_of(in.p, n));
        struct slice piece = slice_of(copy, n);
        struct ws_message m;

        while ((ev = ws_decoder_next(&d, &piece, &m)) == WS_MESSAGE || ev == WS_CONTROL) {
            FUZZ_CHECK(m.data.n <= (ev == WS_MESSAGE ? 5000u : WS_CONTROL_MAX));
            FUZZ_CHECK(buf_printf(log, "%d %d:", m.opcode, m.close_code) == BUF_OK);
            FUZZ_CHECK(buf_append_slice(log, m.data) == BUF_OK);
        }
        if (ev == WS_ERROR)
            FUZZ_CHECK(buf_printf(log, "error %d %s", m.close_code, m.reason) == BUF_OK);
        else
            FUZZ_CHECK(piece.n == 0);
        free(copy);
        in = slice_of(in.p + n, in.n - n);
    }
    ws_decoder_done(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice in = slice_of(data, size);

    for (int server = 0; server < 2; server++) {
        enum ws_role role = server ? WS_SERVER : WS_CLIENT;
        struct buf whole = BUF_INIT(SIZE_MAX);

        run(role, 0, in, &whole);
        for (unsigned mode = 1; mode < 3; mode++) {
            struct buf pieces = BUF_INIT(SIZE_MAX);

            run(role, mode, in, &pieces);
            FUZZ_CHECK(slice_eq(buf_slice(&whole), buf_slice(&pieces)));
            buf_done(&pieces);
        }
        buf_done(&whole);
    }
    return 0;
}
