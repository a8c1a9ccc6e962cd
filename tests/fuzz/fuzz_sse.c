/* fuzz_sse.c - Server-Sent Events whole and in pieces. */
#include "fuzz.h"
#include "wire/sse.h"

static void run(unsigned mode, struct slice in, struct buf *log)
{
    enum sse_status status = SSE_NEED_MORE;
    struct sse_decoder d;

    sse_decoder_init(&d, 3000);
    for (size_t i = 0; status == SSE_NEED_MORE && in.n > 0; i++) {
        size_t n = fuzz_piece(mode, i, in.n);
        uint8_t *copy = fuzz_exact(slice_of(in.p, n));
        struct slice piece = slice_of(copy, n);
        struct sse_event e;

        while ((status = sse_decoder_next(&d, &piece, &e)) == SSE_EVENT) {
            FUZZ_CHECK(e.data.n <= 3000 && e.name.n > 0);
            FUZZ_CHECK(buf_append_slice(log, e.name) == BUF_OK);
            FUZZ_CHECK(buf_append_slice(log, e.data) == BUF_OK);
            FUZZ_CHECK(buf_append_slice(log, e.id) == BUF_OK);
        }
        FUZZ_CHECK(status != SSE_NEED_MORE || piece.n == 0);
        free(copy);
        in = slice_of(in.p + n, in.n - n);
    }
    FUZZ_CHECK(buf_printf(log, " %d", (int)status) == BUF_OK);
    sse_decoder_done(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice in = slice_of(data, size);
    struct buf whole = BUF_INIT(SIZE_MAX);

    run(0, in, &whole);
    for (unsigned mode = 1; mode < 3; mode++) {
        struct buf pieces = BUF_INIT(SIZE_MAX);

        run(mode, in, &pieces);
        FUZZ_CHECK(slice_eq(buf_slice(&whole), buf_slice(&pieces)));
        buf_done(&pieces);
    }
    buf_done(&whole);
    return 0;
}
