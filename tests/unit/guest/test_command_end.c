/* How commands end, in the words of envd's clients. */
#include "test.h"

#include <sys/wait.h>

#include "guest/daemon/command.h"

static void statuses_read_as_gos(void **state)
{
    static const struct {
        int status; /* as waitpid gives it: exit code << 8, or signal, 0x80 for a core */
        int code;
        bool exited;
        const char *text;
    } rows[] = {
        { 0, 0, true, "exit status 0" },
        { 1 << 8, 1, true, "exit status 1" },
        { 255 << 8, 255, true, "exit status 255" },
        { 9, -1, false, "signal: killed" },
        { 15, -1, false, "signal: terminated" },
        { 11 | 0x80, -1, false, "signal: segmentation fault (core dumped)" },
        { 24, -1, false, "signal: signal 24" },
        { 64, -1, false, "signal: signal 64" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct command_end end;
        command_end_of(rows[i].status, &end);
        assert_int_equal(end.exit_code, rows[i].code);
        assert_int_equal(end.is_exited, rows[i].exited);
        assert_string_equal(end.status, rows[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(statuses_read_as_gos) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
