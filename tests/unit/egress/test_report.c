/* test_report.c - lines made of what a sandbox says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/macro.h"
#include "egress/report.h"

static const char *value_of(const struct report_text *t, const char *name)
{
    for (size_t i = 0; t->pairs[i]; i += 2)
        if (strcmp(t->pairs[i], name) == 0)
            return t->pairs[i + 1];
    return NULL;
}

static void a_start_has_command_arguments_and_user(void **state)
{
    char cmd[] = "/bin/bash", c[] = "-c", text[] = "echo \"a b\"", user[] = "root";
    char *args[] = { c, text };
    Abx__Ipc__ProcessLine line = ABX__IPC__PROCESS_LINE__INIT;
    struct report_text t;

    (void)state;
    line.pid = 42;
    line.cmd = cmd;
    line.args = args;
    line.n_args = 2;
    line.user = user;
    report_line(&line, &t);
    assert_string_equal(t.message, "Process 42 started: /bin/bash -c echo \"a b\"");
    assert_string_equal(value_of(&t, "origin"), "sandbox");
    assert_string_equal(value_of(&t, "event"), "process.start");
    assert_string_equal(value_of(&t, "pid"), "42");
    assert_string_equal(value_of(&t, "cmd"), "/bin/bash");
    assert_string_equal(value_of(&t, "args"), "[\"-c\",\"echo \\\"a b\\\"\"]");
    assert_string_equal(value_of(&t, "user"), "root");
    assert_null(value_of(&t, "exit_code"));
}

static void an_end_has_its_status_and_what_is_known(void **state)
{
    char status[] = "signal: killed";
    Abx__Ipc__ProcessLine line = ABX__IPC__PROCESS_LINE__INIT;
    struct report_text t;

    (void)state;
    line.is_end = true;
    line.pid = 7;
    line.exit_code = -1;
    line.status = status;
    line.duration_ms = -1;
    line.timed_out = true;
    report_line(&line, &t);
    assert_string_equal(t.message, "Process 7 ended: signal: killed, its time was over");
    assert_string_equal(value_of(&t, "event"), "process.end");
    assert_string_equal(value_of(&t, "exit_code"), "-1");
    assert_string_equal(value_of(&t, "timed_out"), "true");
    assert_null(value_of(&t, "duration_ms"));
    assert_null(value_of(&t, "cmd"));
    assert_null(value_of(&t, "args"));
}

/* Whatever it says, texts stay within their places and arguments a list. */
static void long_texts_are_cut(void **state)
{
    static char big[20000], quotes[400];
    char *args[2000];
    Abx__Ipc__ProcessLine line = ABX__IPC__PROCESS_LINE__INIT;
    struct report_text t;

    (void)state;
    memset(big, 'x', sizeof big - 1);
    memset(quotes, '\x01', sizeof quotes - 1);
    for (size_t i = 0; i < ARRAY_SIZE(args); i++)
        args[i] = i % 2 ? quotes : big;
    line.cmd = line.user = line.status = big;
    line.args = args;
    for (size_t n = 0; n < ARRAY_SIZE(args); n = n * 2 + 1) {
        line.n_args = n;
        line.is_end = false;
        report_line(&line, &t);
        assert_in_range(strlen(t.message), 400, REPORT_MESSAGE_MAX - 1);
        assert_string_equal(value_of(&t, "args"), "[]");
        line.is_end = true;
        report_line(&line, &t);
        assert_in_range(strlen(t.message), 10, 120);
    }
    args[0] = quotes + sizeof quotes - 3;
    args[1] = big;
    line.n_args = 2;
    line.is_end = false;
    report_line(&line, &t);
    assert_string_equal(value_of(&t, "args"), "[\"\\u0001\\u0001\"]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_has_command_arguments_and_user),
        cmocka_unit_test(an_end_has_its_status_and_what_is_known),
        cmocka_unit_test(long_texts_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
