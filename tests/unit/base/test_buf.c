/* Slices and the growable buffer. */
#include "test.h"

static void slices(void **state)
{
    assert_true(slice_eq(SLICE_LIT("ab"), slice_str("ab")));
    assert_true(slice_eq(slice_of(NULL, 0), slice_str(NULL)));
    assert_false(slice_eq(SLICE_LIT("ab"), SLICE_LIT("aB")));
    assert_false(slice_eq(SLICE_LIT("ab"), SLICE_LIT("abc")));
    assert_true(slice_ieq(SLICE_LIT("aZ-1"), SLICE_LIT("Az-1")));
    assert_false(slice_ieq(SLICE_LIT("@["), SLICE_LIT("`{"))); /* 0x20 apart, but no letters */
    assert_false(slice_ieq(SLICE_LIT("\xc4"), SLICE_LIT("\xe4")));
    assert_true(slice_starts_with(SLICE_LIT("abc"), "ab"));
    assert_true(slice_starts_with(SLICE_LIT("abc"), ""));
    assert_true(slice_starts_with(slice_of(NULL, 0), ""));
    assert_false(slice_starts_with(SLICE_LIT("a"), "ab"));
    assert_true(slice_eq_str(slice_trim(SLICE_LIT(" \t a b\t ")), "a b"));
    assert_int_equal(slice_trim(SLICE_LIT(" \t ")).n, 0);
    assert_int_equal(slice_trim(slice_of(NULL, 0)).n, 0);
    assert_true(slice_eq_str(slice_trim(SLICE_LIT("\n a\r")), "\n a\r")); /* spaces and tabs only */
}

static void slice_dup_ends_with_nul(void **state)
{
    char *s = slice_dup(SLICE_LIT("abc"));
    char *empty = slice_dup(slice_of(NULL, 0));

    assert_string_equal(s, "abc");
    assert_string_equal(empty, "");
    assert_null(slice_dup(slice_of("", SIZE_MAX)));
    free(s);
    free(empty);
}

static void limit_is_exact(void **state)
{
    for (size_t limit = 0; limit < 600; limit += 37) {
        _cleanup_(buf_done) struct buf b = BUF_INIT(limit);
        enum buf_status st;

        for (size_t i = 0; i < limit; i++)
            assert_int_equal(buf_append_byte(&b, (uint8_t)i), BUF_OK);
        assert_int_equal(buf_room(&b), 0);
        assert_int_equal(buf_append_byte(&b, 0), BUF_LIMIT);
        assert_null(buf_reserve(&b, 1, &st));
        assert_int_equal(st, BUF_LIMIT);
        assert_int_equal(buf_append(&b, NULL, 0), BUF_OK);
        assert_int_equal(b.len, limit);
        for (size_t i = 0; i < limit; i++)
            assert_int_equal(buf_data(&b)[i], (uint8_t)i);
        assert_non_null(buf_cstr(&b)); /* the NUL is not counted */
        assert_int_equal(b.limit, limit);
        assert_int_equal(b.len, limit);
    }
}

static void sizes_that_overflow_are_refused(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(SIZE_MAX);
    enum buf_status st = BUF_OK;

    assert_int_equal(buf_append_str(&b, "x"), BUF_OK);
    assert_null(buf_reserve(&b, SIZE_MAX - 1, &st));
    assert_int_not_equal(st, BUF_OK);
    assert_null(buf_reserve(&b, SIZE_MAX, NULL));
    assert_int_equal(buf_printf(&b, "%d", 5), BUF_OK);
    assert_string_equal(buf_cstr(&b), "x5");
}

static void unlimited_buffer_formats_from_empty(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(SIZE_MAX);

    assert_int_equal(buf_printf(&b, "%s", ""), BUF_OK);
    assert_int_equal(buf_printf(&b, "%s-%d", "a", 1), BUF_OK);
    assert_string_equal(buf_cstr(&b), "a-1");
    assert_int_equal(b.limit, SIZE_MAX);
}

static void printf_fits_or_leaves_nothing(void **state)
{
    for (size_t limit = 0; limit < 8; limit++) {
        _cleanup_(buf_done) struct buf b = BUF_INIT(limit);

        assert_int_equal(buf_printf(&b, "%05d", 42), limit < 5 ? BUF_LIMIT : BUF_OK);
        assert_int_equal(b.len, limit < 5 ? 0 : 5);
        assert_string_equal(buf_cstr(&b), limit < 5 ? "" : "00042");
    }
}

/* A long stream through a small buffer, against a plain counter. */
static void consume_and_append_keep_order(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(1000);
    uint8_t in = 0, out = 0;
    unsigned step = 1;

    for (unsigned i = 0; i < 20000; i++) {
        size_t n = MIN((size_t)(step = step * 1103515245 + 12345) % 97, buf_room(&b));
        size_t k;

        for (size_t j = 0; j < n; j++)
            assert_int_equal(buf_append_byte(&b, in++), BUF_OK);
        k = MIN((size_t)(step >> 8) % 101, b.len);
        for (size_t j = 0; j < k; j++)
            assert_int_equal(buf_data(&b)[j], out++);
        buf_consume(&b, k);
        assert_true(b.cap <= 8192); /* consumed bytes do not pile up in front */
    }
}

static void truncate_and_reset(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(100);

    assert_null(buf_data(&b));
    assert_int_equal(buf_slice(&b).n, 0);
    assert_int_equal(buf_append_str(&b, "hello"), BUF_OK);
    buf_consume(&b, 1);
    buf_truncate(&b, 3);
    assert_string_equal(buf_cstr(&b), "ell");
    buf_reset(&b);
    assert_string_equal(buf_cstr(&b), "");
    buf_done(&b);
    assert_int_equal(b.limit, 100);
    assert_int_equal(buf_append_str(&b, "again"), BUF_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices),
        cmocka_unit_test(slice_dup_ends_with_nul),
        cmocka_unit_test(limit_is_exact),
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(unlimited_buffer_formats_from_empty),
        cmocka_unit_test(printf_fits_or_leaves_nothing),
        cmocka_unit_test(consume_and_append_keep_order),
        cmocka_unit_test(truncate_and_reset),
    };

    return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}
