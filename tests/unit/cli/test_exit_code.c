/* test_exit_code.c - what envd says of an end, as an exit status. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/macro.h"
#include "cli/client/exit_code.h"

static void ends_become_exit_statuses(void **state)
{
    static const struct {
        int code, exited;
        const char *status;
        int want;
    } rows[] = {
        { 0, 1, "exit status 0", 0 },
        { 255, 1, "exit status 255", 255 },
        { 256, 1, "exit status 256", 0 },
        { 3, 1, NULL, 3 },
        { -1, 0, "signal: killed", 137 },
        { -1, 0, "signal: terminated", 143 },
        { -1, 0, "signal: interrupt", 130 },
        { -1, 0, "signal: segmentation fault (core dumped)", 139 },
        { -1, 0, "signal: user defined signal 1", 138 },
        { -1, 0, "signal: signal 34", 162 },
        { -1, 0, "signal: signal 64 (core dumped)", 192 },
        { -1, 0, "signal: signal 65", 255 },
        { -1, 0, "signal: signal ", 255 },
        { -1, 0, "signal: kill", 255 },
        { -1, 0, "signal: ", 255 },
        { -1, 0, "killed", 255 },
        { -1, 0, "", 255 },
        { -1, 0, NULL, 255 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        assert_int_equal(exit_code_of(rows[i].code, rows[i].exited, rows[i].status), rows[i].want);
}

static void what_did_not_start_has_the_shells_status(void **state)
{
    static const struct {
        const char *message;
        int want;
    } rows[] = {
        { "start 'nosuch': No such file or directory", 127 },
        { "start '/etc/passwd': Permission denied", 126 },
        { "start 'x': Exec format error", 126 },
        { "start '/etc/passwd/x': Not a directory", 126 },
        { "start 'x': Cannot allocate memory", 0 },
        { "start '': Permission denied: and more", 0 },
        { "cwd '/nowhere' does not exist", 0 },
        { "open 'x': No such file or directory", 0 },
        { "start '", 0 },
        { "", 0 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        assert_int_equal(exit_code_of_start(rows[i].message), rows[i].want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_become_exit_statuses),
        cmocka_unit_test(what_did_not_start_has_the_shells_status),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
