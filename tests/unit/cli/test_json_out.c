/* test_json_out.c - JSON for a terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/json_out.h"

static char *put(const json_t *document, size_t flags)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    assert_non_null(f);
    assert_int_equal(json_put(document, f, flags), 0);
    assert_int_equal(fclose(f), 0);
    return text;
}

static void what_commands_a_terminal_is_escaped(void **state)
{
    static const struct {
        const char *text, *json;
    } rows[] = {
        { "\xc2\x9b"
          "31m",
          "\"\\u009b31m\"" },
        { "\xc2\x80\xc2\x9f\x7f\x1b", "\"\\u0080\\u009f\\u007f\\u001B\"" },
        { "\xc2\xa0\xc3\x9b\xe0\xa4\x80\xf0\x9f\x98\x80",
          "\"\xc2\xa0\xc3\x9b\xe0\xa4\x80\xf0\x9f\x98\x80\"" },
        { "\\\xc2\x9b", "\"\\\\\\u009b\"" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_t *value = json_string(rows[i].text);
        char *text = put(value, JSON_ENCODE_ANY);
        json_t *again = json_loads(text, JSON_DECODE_ANY, NULL);

        assert_string_equal(text, rows[i].json);
        assert_true(json_equal(again, value));
        json_decref(again);
        json_decref(value);
        free(text);
    }
}

static void keys_too_and_the_flags_count(void **state)
{
    json_t *object = json_pack("{s:i}", "a\xc2\x85", 1);
    char *text = put(object, JSON_COMPACT);

    (void)state;
    assert_string_equal(text, "{\"a\\u0085\":1}");
    json_decref(object);
    free(text);
    assert_int_equal(json_put(NULL, stdout, 0), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_commands_a_terminal_is_escaped),
        cmocka_unit_test(keys_too_and_the_flags_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
