/* test_output.c - text of others, sizes, times and bytes as commands print them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cli/client/output.h"

static void control_characters_and_broken_text_are_escaped(void **state)
{
    static const struct {
        const char *text, *want;
    } rows[] = {
        { "", "" },
        { "plain \xc3\xbc \xe2\x98\x83", "plain \xc3\xbc \xe2\x98\x83" },
        { "\x1b[2J", "\\x1b[2J" },
        { "a\nb\tc\r", "a\\x0ab\\x09c\\x0d" },
        { "\x7f", "\\x7f" },
        { "\xc2\x9b"
          "31m",
          "\\xc2\\x9b31m" }, /* CSI as one character */
        { "\xc2\xa0", "\xc2\xa0" },
        { "\xff\xfe", "\\xff\\xfe" },
        { "\xe2\x98", "\\xe2\\x98" },
        { "\xed\xa0\x80", "\\xed\\xa0\\x80" }, /* a surrogate */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char *made = output_clean(rows[i].text);

        assert_string_equal(made, rows[i].want);
        free(made);
    }
}

static void sizes_have_units(void **state)
{
    char to[SIZE_TEXT_SIZE];

    (void)state;
    assert_string_equal(size_text(0, to), "0 B");
    assert_string_equal(size_text(1023, to), "1023 B");
    assert_string_equal(size_text(1024, to), "1.0 KiB");
    assert_string_equal(size_text(1536, to), "1.5 KiB");
    assert_string_equal(size_text(INT64_C(10) << 30, to), "10.0 GiB");
    assert_string_equal(size_text(INT64_MAX, to), "8192.0 PiB");
}

static void bytes_in_json_are_not_lost(void **state)
{
    json_t *j = json_object();

    (void)state;
    json_add_bytes(j, "text", "a\0b", 3);
    json_add_bytes(j, "none", NULL, 0);
    json_add_bytes(j, "bytes", "a\xff", 2);
    assert_int_equal(json_string_length(json_object_get(j, "text")), 3);
    assert_null(json_object_get(j, "text_base64"));
    assert_string_equal(json_string_value(json_object_get(j, "none")), "");
    assert_string_equal(json_string_value(json_object_get(j, "bytes")), "a\xef\xbf\xbd");
    assert_string_equal(json_string_value(json_object_get(j, "bytes_base64")), "Yf8=");
    json_decref(j);
}

static void no_time_is_a_dash_and_null(void **state)
{
    char to[TIME_TEXT_SIZE];
    json_t *j = time_json(1767323045678901);

    (void)state;
    assert_string_equal(time_text(0, to), "-");
    assert_string_equal(json_string_value(j), "2026-01-02T03:04:05.678Z");
    json_decref(j);
    assert_true(json_is_null(time_json(0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_characters_and_broken_text_are_escaped),
        cmocka_unit_test(sizes_have_units),
        cmocka_unit_test(bytes_in_json_are_not_lost),
        cmocka_unit_test(no_time_is_a_dash_and_null),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
