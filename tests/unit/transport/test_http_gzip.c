/* Packed bodies on their way to a sink that takes them or not. */
#include "test.h"

#include <string.h>

#include "transport/http_internal.h"

#define TEXT_BYTES 300000u

struct taker {
    struct buf got;
    unsigned refusals; /* every second piece is refused once when not 0 */
    bool refuses_next;
};

static bool take(void *user, struct slice data)
{
    struct taker *t = user;

    if (t->refuses_next) {
        t->refuses_next = false;
        t->refusals++;
        return false;
    }
    t->refuses_next = true;
    assert_int_equal(buf_append_slice(&t->got, data), BUF_OK);
    return true;
}

static size_t pack(const uint8_t *text, size_t n, uint8_t *to, size_t size)
{
    z_stream z = { 0 };

    assert_int_equal(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)text;
    z.avail_in = (uInt)n;
    z.next_out = to;
    z.avail_out = (uInt)size;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    n = size - z.avail_out;
    (void)deflateEnd(&z);
    return n;
}

/* Bytes that were refused come again: as one piece, or in pieces of at most `again` bytes. */
static void feed(struct http_exchange *x, struct slice all, size_t piece, size_t again)
{
    while (all.n > 0) {
        size_t n = MIN(piece, all.n);
        enum gzip_result r = gzip_body(x, slice_of(all.p, n));

        assert_int_not_equal(r, GZIP_BAD);
        if (r == GZIP_TAKEN) {
            all = slice_of(all.p + n, all.n - n);
            continue;
        }
        for (size_t at = 0; at < n;) {
            size_t part = MIN(again, n - at);

            r = gzip_body(x, slice_of(all.p + at, part));
            assert_int_not_equal(r, GZIP_BAD);
            if (r == GZIP_TAKEN)
                at += part;
        }
        all = slice_of(all.p + n, all.n - n);
    }
}

static void refused_bytes_come_again_in_pieces_of_any_size(void **state)
{
    static uint8_t text[TEXT_BYTES], packed[TEXT_BYTES];
    static const size_t sizes[][2] = {
        { 1, 1 }, { 16384, 16384 }, { 16384, 4000 }, { 16384, 1 }, { TEXT_BYTES, 777 }
    };
    size_t n;

    for (size_t i = 0; i < TEXT_BYTES; i++)
        text[i] = (uint8_t)(i * i >> (i >> 12 & 7));
    n = pack(text, sizeof text, packed, sizeof packed);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct taker t = { .got = BUF_INIT(2 * TEXT_BYTES), .refuses_next = true };
        struct http_exchange x = { .sink = { .body = take }, .user = &t };

        assert_true(gzip_start(&x));
        feed(&x, slice_of(packed, n), sizes[i][0], sizes[i][1]);
        assert_true(gzip_is_complete(x.gzip));
        assert_true(t.refusals > 0);
        assert_int_equal(t.got.len, TEXT_BYTES);
        assert_memory_equal(buf_data(&t.got), text, TEXT_BYTES);
        gzip_stop(&x);
        buf_done(&t.got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_bytes_come_again_in_pieces_of_any_size),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
