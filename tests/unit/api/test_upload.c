/* Bodies of uploads: multipart as its parser reads it, packed bytes as zlib reads them, sources that wait, end early or
 * give up. Each body is read in one go and byte by byte. */
#include "test.h"

#include <zlib.h>

#include "api/upload.h"
#include "base/str.h"
#include "wire/multipart.h"

static const size_t steps[] = { 1, 7, 4096, 1 << 20 };

/* Gives `left` bytes, "none yet" before each, then `last`. */
struct source {
    size_t left;
    int64_t last;
    bool waited;
};

static int64_t source_read(void *user, void *buffer, size_t size)
{
    struct source *s = user;
    size_t n = MIN(s->left, (size_t)3);

    if (!s->waited) {
        s->waited = true;
        return ABX_UNAVAILABLE;
    }
    n = MIN(n, size);
    s->waited = false;
    if (s->left == 0)
        return s->last;
    memset(buffer, 's', n);
    s->left -= n;
    return (int64_t)n;
}

/* The whole body, or the code that ended it. */
static int64_t read_all(struct upload *u, size_t step, struct buf *b)
{
    for (unsigned waits = 0;;) {
        uint8_t *to = buf_reserve(b, step, NULL);
        int64_t n = upload_read(u, to, step);

        if (n == ABX_UNAVAILABLE && u->err.code == 0) {
            assert_true(++waits < 100000);
            continue;
        }
        if (n <= 0)
            return n;
        assert_true((size_t)n <= step);
        buf_commit(b, (size_t)n);
    }
}

static void one_file_is_its_bytes(void **state)
{
    const struct abx_write_item item = { .path = "x", .data = "a\0b", .size = 3 };

    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        struct upload u = { 0 };
        _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 22);

        assert_int_equal(upload_init(&u, &item, 1, true, false, false, NULL), 0);
        assert_int_equal(upload_size(&u), 3);
        assert_int_equal(read_all(&u, steps[i], &b), 0);
        assert_true(slice_eq(buf_slice(&b), slice_of("a\0b", 3)));
        assert_int_equal(upload_read(&u, &b, 1), 0);
        upload_done(&u);
    }
}

/* What a part has to be. */
static void check_parts(struct upload *u, struct slice body, const struct abx_write_item *items,
                        const char *const *contents, size_t n)
{
    struct multipart_parser *p = multipart_parser_new(slice_str(u->boundary));
    _cleanup_(buf_done) struct buf got = BUF_INIT(1 << 22);
    struct slice data;
    size_t i = 0;

    assert_non_null(p);
    for (;;) {
        enum multipart_event e = multipart_parser_next(p, &body, &data);

        if (e == MULTIPART_END)
            break;
        switch (e) {
        case MULTIPART_PART:
            assert_true(i < n);
            assert_string_equal(multipart_part_name(p), "file");
            assert_string_equal(multipart_part_filename(p), items[i].path);
            buf_reset(&got);
            break;
        case MULTIPART_DATA:
            assert_int_equal(buf_append_slice(&got, data), BUF_OK);
            break;
        case MULTIPART_PART_END:
            assert_true(slice_eq_str(buf_slice(&got), contents[i]));
            i++;
            break;
        default:
            fail_msg("event %d: %s", (int)e, multipart_error(p));
        }
    }
    assert_int_equal(i, n);
    multipart_parser_free(p);
}

static void several_files_are_multipart(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        struct source source = { .left = 10 };
        const struct abx_write_item items[] = {
            { .path = "/tmp/a b", .data = "one", .size = 3 },
            { .path = "/tmp/empty" },
            { .path = "\xc3\xbc",
              .source = source_read,
              .source_user = &source,
              .source_size = 10 },
            { .path = "z", .data = "\r\n--abx", .size = 7 },
        };
        const char *const contents[] = { "one", "", "ssssssssss", "\r\n--abx" };
        struct upload u = { 0 };
        _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 22);

        assert_int_equal(upload_init(&u, items, 4, false, true, false, NULL), 0);
        assert_int_equal(read_all(&u, steps[i], &b), 0);
        assert_int_equal(upload_size(&u), b.len);
        check_parts(&u, buf_slice(&b), items, contents, 4);
        upload_done(&u);
    }
}

static void packed_bodies_unpack(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        struct source source = { .left = 300000 };
        const struct abx_write_item item = {
            .path = "x", .source = source_read, .source_user = &source, .source_size = ABX_UNSET
        };
        struct upload u = { 0 };
        _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 22);
        _cleanup_(freep) uint8_t *plain = malloc(300001);
        z_stream z = { 0 };

        assert_non_null(plain);
        assert_int_equal(upload_init(&u, &item, 1, true, false, true, NULL), 0);
        assert_int_equal(upload_size(&u), ABX_UNSET);
        assert_int_equal(read_all(&u, steps[i], &b), 0);
        assert_int_equal(inflateInit2(&z, 31), Z_OK);
        z.next_in = buf_data(&b);
        z.avail_in = (uInt)b.len;
        z.next_out = plain;
        z.avail_out = 300001;
        assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
        assert_int_equal(z.total_out, 300000);
        for (size_t k = 0; k < 300000; k++)
            assert_int_equal(plain[k], 's');
        (void)inflateEnd(&z);
        upload_done(&u);
    }
}

static void sources_that_end_early_or_give_up(void **state)
{
    static const struct {
        int64_t last;
        int64_t size;
        int64_t code;
        const char *text;
    } rows[] = {
        { 0, 11, ABX_INVALID_ARGUMENT, "'x': the source ended after 10 of 11 bytes" },
        { ABX_PERMISSION_DENIED, ABX_UNSET, ABX_PERMISSION_DENIED,
          "'x': the source gave up (permission_denied)" },
        { -5, ABX_UNSET, ABX_UNKNOWN, "'x': the source gave up (unknown)" },
        { INT64_MAX, ABX_UNSET, ABX_INVALID_ARGUMENT, "'x': the source gave more than asked for" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows) * 2; i++) {
        struct source source = { .left = 10, .last = rows[i / 2].last };
        const struct abx_write_item item = { .path = "x",
                                             .source = source_read,
                                             .source_user = &source,
                                             .source_size = rows[i / 2].size };
        struct upload u = { 0 };
        _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 22);

        assert_int_equal(upload_init(&u, &item, 1, true, false, i % 2, NULL), 0);
        assert_int_equal(read_all(&u, 4096, &b), rows[i / 2].code);
        assert_int_equal(u.err.code, rows[i / 2].code);
        assert_string_equal(u.err.msg, rows[i / 2].text);
        assert_int_equal(upload_read(&u, buf_reserve(&b, 1, NULL), 1), rows[i / 2].code);
        upload_done(&u);
    }
}

static void sources_with_a_size_are_not_read_further(void **state)
{
    struct source source = { .left = 10 };
    const struct abx_write_item item = {
        .path = "x", .source = source_read, .source_user = &source, .source_size = 4
    };
    struct upload u = { 0 };
    _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 22);

    assert_int_equal(upload_init(&u, &item, 1, true, false, false, NULL), 0);
    assert_int_equal(read_all(&u, 4096, &b), 0);
    assert_int_equal(b.len, 4);
    assert_int_equal(source.left, 6);
    upload_done(&u);
}

static void names_that_a_head_cannot_carry(void **state)
{
    static const char *const plain[] = { "/tmp/x y", "\xc3\xbc", "a'b", "", "a;b" };
    static const char *const odd[] = { "a\"b", "a\\b", "a\nb", "a\rb", "a%22b", "\x7f", "\t" };

    for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
        assert_true(upload_name_is_plain(plain[i]));
    for (size_t i = 0; i < ARRAY_SIZE(odd); i++)
        assert_false(upload_name_is_plain(odd[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_file_is_its_bytes),
        cmocka_unit_test(several_files_are_multipart),
        cmocka_unit_test(packed_bodies_unpack),
        cmocka_unit_test(sources_that_end_early_or_give_up),
        cmocka_unit_test(sources_with_a_size_are_not_read_further),
        cmocka_unit_test(names_that_a_head_cannot_carry),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
