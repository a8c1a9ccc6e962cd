/* test_escape.c - "~." and its neighbours, in one piece and byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/macro.h"
#include "cli/client/escape.h"

static const struct {
    const char *typed, *sent;
    bool is_asked;
} rows[] = {
    { "", "", false },
    { "abc", "abc", false },
    { "~.", "", true },
    { "~", "", false },
    { "~~", "~", false },
    { "~~.", "~.", false },
    { "~a", "~a", false },
    { "~\r~.", "~\r", true },
    { "a~.", "a~.", false },
    { "a\r~.b", "a\r", true },
    { "a\n~.b", "a\n", true },
    { "\r~~x\r~y", "\r~x\r~y", false },
    { "x\r~/bin\r", "x\r~/bin\r", false },
    { "~~~.", "~~.", false },
};

static void the_escape_is_found_at_the_beginning_of_a_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct escape e = ESCAPE_INIT;
        uint8_t to[64];
        size_t n = strlen(rows[i].typed);
        size_t k = escape_filter(&e, (const uint8_t *)rows[i].typed, n, to);

        assert_int_equal(k, strlen(rows[i].sent));
        assert_memory_equal(to, rows[i].sent, k);
        assert_int_equal(e.is_asked, rows[i].is_asked);
    }
}

static void byte_by_byte_it_is_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct escape e = ESCAPE_INIT;
        uint8_t to[64];
        size_t k = 0;

        for (const char *c = rows[i].typed; *c; c++)
            k += escape_filter(&e, (const uint8_t *)c, 1, to + k);
        assert_int_equal(k, strlen(rows[i].sent));
        assert_memory_equal(to, rows[i].sent, k);
        assert_int_equal(e.is_asked, rows[i].is_asked);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_escape_is_found_at_the_beginning_of_a_line),
        cmocka_unit_test(byte_by_byte_it_is_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
