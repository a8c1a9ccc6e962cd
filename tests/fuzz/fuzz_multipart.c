/* fuzz_multipart.c - first line a Content-Type value, the rest a body; without a boundary in that
 * line the boundary is "b". Same events whole and in pieces. */
#include "base/str.h"
#include "fuzz.h"
#include "wire/multipart.h"

static void event_put(const struct multipart_parser *p, enum multipart_event ev, struct buf *log)
{
    FUZZ_CHECK(buf_printf(log, "<%d>", (int)ev) == BUF_OK);
    if (ev == MULTIPART_ERROR)
        FUZZ_CHECK(buf_append_str(log, multipart_error(p)) == BUF_OK);
    if (ev != MULTIPART_PART)
        return;
    FUZZ_CHECK(utf8_is_valid(slice_str(multipart_part_name(p))));
    FUZZ_CHECK(buf_append_str(log, multipart_part_name(p)) == BUF_OK);
    if (multipart_part_filename(p))
        FUZZ_CHECK(buf_printf(log, "/%s", multipart_part_filename(p)) == BUF_OK);
}

static void run(struct slice boundary, unsigned mode, struct slice in, struct buf *log)
{
    struct multipart_parser *p = multipart_parser_new(boundary);
    enum multipart_event ev = MULTIPART_NEED_MORE;
    size_t in_size = in.n, data_size = 0;
    uint8_t last = 0;

    FUZZ_CHECK(p);
    for (size_t i = 0; ev != MULTIPART_ERROR && in.n > 0; i++) {
        size_t n = fuzz_piece(mode, i, in.n);
        uint8_t *copy = fuzz_exact(slice_of(in.p, n));
        struct slice piece = slice_of(copy, n);

        do {
            struct slice data = { 0 };

            ev = multipart_parser_next(p, &piece, &data);
            if (ev == MULTIPART_DATA) {
                fuzz_log_data(log, &last, 'D', data);
                data_size += data.n;
            } else if (ev != MULTIPART_NEED_MORE) {
                last = 0;
                event_put(p, ev, log);
            }
        } while (ev != MULTIPART_NEED_MORE && ev != MULTIPART_ERROR);
        FUZZ_CHECK(ev == MULTIPART_ERROR || piece.n == 0);
        free(copy);
        in = slice_of(in.p + n, in.n - n);
    }
    FUZZ_CHECK(data_size <= in_size);
    multipart_parser_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *lf = size > 0 ? memchr(data, '\n', size) : NULL;
    size_t n = lf ? (size_t)(lf - data) : 0;
    struct slice boundary = SLICE_LIT("b"), in = slice_of(data, size);
    struct buf whole = BUF_INIT(SIZE_MAX);

    if (multipart_boundary(slice_of(data, n), &boundary))
        in = slice_of(lf + 1, size - n - 1);
    run(boundary, 0, in, &whole);
    for (unsigned mode = 1; mode < 3; mode++) {
        struct buf pieces = BUF_INIT(SIZE_MAX);

        run(boundary, mode, in, &pieces);
        FUZZ_CHECK(slice_eq(buf_slice(&whole), buf_slice(&pieces)));
        buf_done(&pieces);
    }
    buf_done(&whole);
    return 0;
}
