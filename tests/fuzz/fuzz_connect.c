/* fuzz_connect.c - envelopes whole and in pieces; the values of Connect's header fields. */
#include "fuzz.h"
#include "wire/connect.h"

static void run(unsigned mode, struct slice in, struct buf *log)
{
    enum connect_event ev = CONNECT_NEED_MORE;
    struct connect_decoder d;

    connect_decoder_init(&d);
    for (size_t i = 0; ev == CONNECT_NEED_MORE && in.n > 0; i++) {
        size_t n = fuzz_piece(mode, i, in.n);
        uint8_t *copy = fuzz_exact(slice_of(in.p, n));
        struct slice piece = slice_of(copy, n);

        do {
            struct slice message = { 0 };
            uint8_t flags = 0;

            ev = connect_decoder_next(&d, &piece, &flags, &message);
            if (ev == CONNECT_MESSAGE) {
                FUZZ_CHECK((flags & ~CONNECT_FLAG_END) == 0 && message.n <= CONNECT_MESSAGE_MAX);
                FUZZ_CHECK(buf_printf(log, "%d %zu:", flags, message.n) == BUF_OK);
                FUZZ_CHECK(buf_append_slice(log, message) == BUF_OK);
            } else if (ev != CONNECT_NEED_MORE) {
                FUZZ_CHECK(buf_printf(log, "error %d", (int)ev) == BUF_OK);
            }
        } while (ev == CONNECT_MESSAGE);
        FUZZ_CHECK(ev != CONNECT_NEED_MORE || piece.n == 0);
        free(copy);
        in = slice_of(in.p + n, in.n - n);
    }
    FUZZ_CHECK(buf_printf(log, " %d", connect_decoder_is_partial(&d)) == BUF_OK);
    connect_decoder_done(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice in = slice_of(data, size);
    struct buf whole = BUF_INIT(SIZE_MAX);
    enum connect_codec codec;
    bool is_stream;
    uint64_t ms;

    (void)connect_timeout_parse(in, &ms);
    if (connect_content_type(in, &codec, &is_stream))
        FUZZ_CHECK(connect_content_type(slice_str(connect_content_type_name(codec, is_stream)),
                                        &codec, &is_stream));
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
