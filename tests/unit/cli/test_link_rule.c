/* test_link_rule.c - which links out of a sandbox are made, and how. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/macro.h"
#include "cli/client/link_rule.h"

static void links_stay_within_the_tree(void **state)
{
    static const struct {
        const char *target, *root;
        size_t depth;
        const char *want; /* NULL = none */
    } rows[] = {
        /* relative */
        { "a", "/t", 0, "a" },
        { "a/b/../c", "/t", 5, NULL },
        { "../a", "/t", 0, NULL },
        { "../a", "/t", 1, "../a" },
        { "../../a", "/t", 1, NULL },
        { "../../a", "/t", 2, "../../a" },
        { ".././../a", "/t", 1, NULL },
        { "./..", "/t", 0, NULL },
        { "..", "/t", 1, ".." },
        { "a/..", "/t", 1, NULL },
        { "..a/...", "/t", 0, "..a/..." },
        { ".", "/t", 0, "." },
        { "", "/t", 3, NULL },
        { "..//../a", "/t", 1, NULL },
        /* absolute: as resolved in the sandbox */
        { "/t/a", "/t", 0, "a" },
        { "/t/a", "/t/", 0, "a" },
        { "/t/a/b", "/t", 2, "../../a/b" },
        { "/t", "/t", 0, "." },
        { "/t", "/t", 1, "../." },
        { "/tree", "/t", 0, NULL },
        { "/etc/passwd", "/t", 3, NULL },
        { "/t/../etc/passwd", "/t", 3, NULL },
        { "/t/a/../../etc", "/t", 0, NULL },
        { "/etc/passwd", "/", 0, "etc/passwd" },
        { "/etc/passwd", "/", 2, "../../etc/passwd" },
        { "/t//../x", "/t", 0, NULL },
        { "/", "/t", 0, NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char to[64] = "";
        bool is_made = link_rule(rows[i].target, rows[i].root, rows[i].depth, to, sizeof to);

        if (is_made != (rows[i].want != NULL))
            fail_msg("row %zu: %s", i, rows[i].target);
        if (is_made)
            assert_string_equal(to, rows[i].want);
    }
}

static void what_does_not_fit_is_not_made(void **state)
{
    char to[8];

    (void)state;
    assert_true(link_rule("1234567", "/t", 0, to, sizeof to));
    assert_false(link_rule("12345678", "/t", 0, to, sizeof to));
    assert_true(link_rule("/t/1", "/t", 2, to, sizeof to));
    assert_false(link_rule("/t/12", "/t", 2, to, sizeof to));
    assert_false(link_rule("/t/1", "/t", 3, to, sizeof to));
    assert_false(link_rule("/t/1", "/t", SIZE_MAX, to, sizeof to));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_stay_within_the_tree),
        cmocka_unit_test(what_does_not_fit_is_not_made),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
