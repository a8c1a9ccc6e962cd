/* JSON strings out. */
#include "test.h"

#include "wire/json.h"

static void strings_are_escaped(void **state)
{
    static const struct {
        struct slice in;
        const char *want;
    } rows[] = {
        { { NULL, 0 }, "\"\"" },
        { SLICE_LIT("abc"), "\"abc\"" },
        { SLICE_LIT("0123456789abcdef01234\"6789\\bcdef/"),
          "\"0123456789abcdef01234\\\"6789\\\\bcdef/\"" },
        { SLICE_LIT("\b\f\n\r\t"), "\"\\b\\f\\n\\r\\t\"" },
        { SLICE_LIT("a\0b\x01\x1f\x7f"), "\"a\\u0000b\\u0001\\u001f\x7f\"" },
        { SLICE_LIT("01234567\x1f"), "\"01234567\\u001f\"" },
        { SLICE_LIT("0123456\n"), "\"0123456\\n\"" },
        { SLICE_LIT("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"),
          "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"" },
        { SLICE_LIT("a\xff"
                    "b"),
          "\"a\xef\xbf\xbd"
          "b\"" },
        { SLICE_LIT("\xc3"), "\"\xef\xbf\xbd\"" },
        { SLICE_LIT("\xed\xa0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
        { SLICE_LIT("\xc0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\"" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_(buf_done) struct buf b = BUF_INIT(1024);
        uint8_t *copy = test_exact(rows[i].in);

        assert_int_equal(json_string_put(&b, slice_of(copy, rows[i].in.n)), BUF_OK);
        test_text(rows[i].want, buf_cstr(&b), rows[i].want);
        free(copy);
    }
}

/* Each byte at each place of a word is seen. */
static void no_byte_is_missed(void **state)
{
    for (unsigned c = 0; c < 256; c++)
        for (size_t at = 0; at < 17; at++) {
            _cleanup_(buf_done) struct buf b = BUF_INIT(1024);
            bool is_plain = c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
            uint8_t in[17];

            memset(in, 'a', sizeof in);
            in[at] = (uint8_t)c;
            assert_int_equal(json_string_put(&b, slice_of(in, sizeof in)), BUF_OK);
            assert_int_equal(b.len == sizeof in + 2, is_plain);
        }
}

static void too_long_leaves_nothing(void **state)
{
    for (size_t limit = 0; limit < 12; limit++) {
        _cleanup_(buf_done) struct buf b = BUF_INIT(limit + 1);

        assert_int_equal(buf_append_byte(&b, 'x'), BUF_OK);
        assert_int_equal(json_string_put(&b, SLICE_LIT("ab\nc\xff"
                                                       "d")),
                         limit < 11 ? BUF_LIMIT : BUF_OK);
        assert_int_equal(b.len, limit < 11 ? 1 : 12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_are_escaped),
        cmocka_unit_test(no_byte_is_missed),
        cmocka_unit_test(too_long_leaves_nothing),
    };

    return cmocka_run_group_tests_name("json_string", tests, NULL, NULL);
}
