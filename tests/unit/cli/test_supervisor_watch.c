/* test_supervisor_watch.c - whose silence counts, and for how long. Time is what the test says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "cli/supervisor_watch.h"

#define SECOND NSEC_PER_SEC

/* A role whose process is a child of the test: it sleeps, or runs in a circle. */
static pid_t child_start(bool is_looping)
{
    pid_t pid = fork();
    char path[64], stat[64] = "";
    const char *state = NULL;

    assert_true(pid >= 0);
    if (pid == 0)
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (pid == 0)
        if (!is_looping)
            (void)pause();
    (void)snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    do { /* until it is at it; the runner has a time limit */
        int fd = open(path, O_RDONLY | O_CLOEXEC);

        assert_true(fd >= 0 && read(fd, stat, sizeof stat - 1) > 0);
        fd_close(fd);
        state = strrchr(stat, ')');
    } while (!state || state[2] != (is_looping ? 'R' : 'S'));
    return pid;
}

static void child_end(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void role_begin(struct role *role, bool is_looping)
{
    *role = (struct role){ .name = "test", .beat_fd = -EBADF };
    buf_init(&role->args, 4096);
    assert_int_equal(watch_init(role, NULL), 0);
    watch_reset(role);
    role->pid = child_start(is_looping);
}

static void role_finish_test(struct role *role)
{
    child_end(role->pid);
    watch_done(role);
    buf_done(&role->args);
}

static void beat(const struct role *role)
{
    const uint64_t one = 1;

    assert_int_equal(write(role->beat_fd, &one, sizeof one), sizeof one);
}

/* Seconds of silence, looked at each second, until it hangs; `most` when it does not. */
static int seconds_until_hung(struct role *role, int most, char why[96])
{
    for (int i = 1; i < most; i++)
        if (watch_look(role, SECOND, why))
            return i;
    return most;
}

static void silence_counts_from_the_last_beat(void **state)
{
    struct role role;
    char why[96] = "";

    (void)state;
    role_begin(&role, false);
    beat(&role);
    assert_false(watch_look(&role, SECOND, why));
    assert_int_equal(seconds_until_hung(&role, WATCH_HUNG_S, why), WATCH_HUNG_S);
    beat(&role);
    assert_false(watch_look(&role, SECOND, why));
    assert_int_equal(seconds_until_hung(&role, 1000, why), WATCH_HUNG_S);
    assert_non_null(strstr(why, "no heartbeat for 10 s, state S"));
    /* Once for each process. */
    assert_int_equal(seconds_until_hung(&role, 1000, why), 1000);
    role_finish_test(&role);
}

static void a_stopped_one_hangs(void **state)
{
    struct role role;
    char why[96] = "";
    int status;

    (void)state;
    role_begin(&role, false);
    assert_int_equal(kill(role.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(role.pid, &status, WUNTRACED), role.pid);
    beat(&role);
    assert_false(watch_look(&role, SECOND, why));
    assert_int_equal(seconds_until_hung(&role, 1000, why), WATCH_HUNG_S);
    assert_non_null(strstr(why, "state T"));
    role_finish_test(&role);
}

/* It wants to run and gets next to no time (the test's seconds pass faster than any processor's). */
static void a_starved_one_has_longer(void **state)
{
    struct role role;
    char why[96] = "";

    (void)state;
    role_begin(&role, true);
    beat(&role);
    assert_false(watch_look(&role, SECOND, why));
    assert_int_equal(seconds_until_hung(&role, 1000, why), WATCH_STARVED_S);
    role_finish_test(&role);
}

static void a_start_has_longer(void **state)
{
    struct role role;
    char why[96] = "";

    (void)state;
    role_begin(&role, false);
    assert_int_equal(seconds_until_hung(&role, 1000, why), WATCH_START_S);
    /* Its successor begins anew. */
    watch_reset(&role);
    assert_int_equal(seconds_until_hung(&role, 1000, why), WATCH_START_S);
    role_finish_test(&role);
}

/* The supervisor did not run for an hour, so nobody else did for all it knows. */
static void time_that_the_supervisor_missed_does_not_count(void **state)
{
    struct role role;
    char why[96] = "";

    (void)state;
    role_begin(&role, false);
    beat(&role);
    assert_false(watch_look(&role, SECOND, why));
    for (int i = 0; i < 6; i++)
        assert_false(watch_look(&role, 3600 * SECOND, why));
    assert_true(watch_look(&role, 3600 * SECOND, why));
    role_finish_test(&role);
}

static void one_that_does_not_run_is_not_looked_at(void **state)
{
    struct role role;
    char why[96] = "";
    pid_t pid;

    (void)state;
    role_begin(&role, false);
    pid = role.pid;
    role.pid = 0;
    assert_int_equal(seconds_until_hung(&role, 1000, why), 1000);
    role.pid = pid;
    role_finish_test(&role);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silence_counts_from_the_last_beat),
        cmocka_unit_test(a_stopped_one_hangs),
        cmocka_unit_test(a_starved_one_has_longer),
        cmocka_unit_test(a_start_has_longer),
        cmocka_unit_test(time_that_the_supervisor_missed_does_not_count),
        cmocka_unit_test(one_that_does_not_run_is_not_looked_at),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
