/* test_process.c - marks of processes that live, that have ended, and of others with the same pid. */
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/process.h"

static void start_times_tell_processes_apart(void **state)
{
    uint64_t own = process_start_ticks(getpid());
    pid_t child = fork();

    (void)state;
    if (child == 0)
        _exit(0);
    assert_true(child > 0);
    assert_true(own > 0);
    assert_int_equal(waitid(P_PID, (id_t)child, &(siginfo_t){ 0 }, WEXITED | WNOWAIT), 0);
    assert_true(process_start_ticks(child) >= own); /* a zombie still has one */
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(process_start_ticks(child) == 0);
}

static void who_lives_is_not_gone(void **state)
{
    char mark[PROCESS_MARK_SIZE];

    (void)state;
    process_mark(mark);
    assert_string_not_equal(mark, "");
    assert_false(process_mark_is_gone(mark));
}

/* The mark of a child that has ended; as a zombie when `stays`. */
static pid_t end_child(char mark[PROCESS_MARK_SIZE], bool stays)
{
    int fds[2];
    pid_t pid;

    memset(mark, 0, PROCESS_MARK_SIZE);
    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        char text[PROCESS_MARK_SIZE] = "";

        process_mark(text);
        _exit(write(fds[1], text, sizeof text) == sizeof text ? 0 : 1);
    }
    assert_int_equal(read(fds[0], mark, PROCESS_MARK_SIZE), PROCESS_MARK_SIZE);
    (void)close(fds[0]);
    (void)close(fds[1]);
    assert_int_equal(
        waitid(P_PID, (id_t)pid, &(siginfo_t){ 0 }, stays ? WEXITED | WNOWAIT : WEXITED), 0);
    return pid;
}

static void who_has_ended_is_gone(void **state)
{
    char mark[PROCESS_MARK_SIZE];
    pid_t zombie;

    (void)state;
    (void)end_child(mark, false);
    assert_true(process_mark_is_gone(mark));
    zombie = end_child(mark, true);
    assert_true(process_mark_is_gone(mark));
    assert_int_equal(waitpid(zombie, NULL, 0), zombie);
}

static void another_with_the_same_pid_is_not_it(void **state)
{
    char mark[PROCESS_MARK_SIZE], *name_space;

    (void)state;
    process_mark(mark);
    name_space = strrchr(mark, ':');
    assert_non_null(name_space);
    {
        char other[2 * PROCESS_MARK_SIZE];

        (void)snprintf(other, sizeof other, "%d:%" PRIu64 "%s", (int)getpid(),
                       process_start_ticks(getpid()) - 1, name_space);
        assert_true(process_mark_is_gone(other));
    }
}

static void what_cannot_be_told_is_not_gone(void **state)
{
    static const char *const marks[] = {
        "",
        "1",
        "1:2",
        ":::",
        "999999999:1:1" /* another name space */,
        "a:b:c",
        "0:0:0",
        "1:2:3:4",
        "-1:1:1",
        "99999999999999999999999:1:1",
        "1:2:",
        "12345:1",
        "1 : 2 : 3",
        "111111111111111111111111111111111111111111111111111111111111111111111111111111:1:1",
    };

    (void)state;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        assert_false(process_mark_is_gone(marks[i]) || process_mark_is_ending(marks[i]));
}

static void expect_ending(void)
{
    char mark[PROCESS_MARK_SIZE];
    int fds[2], status;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        process_mark(mark);
        (void)!write(fds[1], mark, sizeof mark);
        (void)pause();
    }
    assert_int_equal(read(fds[0], mark, sizeof mark), sizeof mark);
    assert_false(process_mark_is_ending(mark));
    assert_int_equal(kill(pid, SIGKILL), 0);
    for (int i = 0; i < 10; i++)
        assert_true(process_is_ending(pid));
    assert_true(process_mark_is_ending(mark));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(process_is_ending(pid));
    assert_true(process_mark_is_ending(mark));
    (void)close(fds[0]);
    (void)close(fds[1]);
}

/* At any moment of its end: several times, since each takes it otherwise. */
static void who_is_killed_is_ending_before_it_is_gone(void **state)
{
    char mark[PROCESS_MARK_SIZE];

    (void)state;
    process_mark(mark);
    assert_false(process_mark_is_ending(mark));
    assert_false(process_is_ending(getpid()));
    for (int i = 0; i < 300; i++)
        expect_ending();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(start_times_tell_processes_apart),
        cmocka_unit_test(who_lives_is_not_gone),
        cmocka_unit_test(who_has_ended_is_gone),
        cmocka_unit_test(who_is_killed_is_ending_before_it_is_gone),
        cmocka_unit_test(another_with_the_same_pid_is_not_it),
        cmocka_unit_test(what_cannot_be_told_is_not_gone),
    };

    return cmocka_run_group_tests_name("base_process", tests, NULL, NULL);
}
