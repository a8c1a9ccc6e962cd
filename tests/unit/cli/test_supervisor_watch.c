/* test_supervisor_watch.c - whose silence counts, and for how long. Time is what the test says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "cli/supervisor_watch.h"

#define SECOND NSEC_PER_SEC

#define THREAD "abx-test"

static void *thread_main(void *user)
{
    (void)pthread_setname_np(pthread_self(), THREAD);
    for (;;)
        if (!user)
            (void)pause();
    return NULL;
}

static bool has_thread_named(pid_t pid)
{
    char path[64], name[32];
    struct dirent *entry;
    bool has = false;
    DIR *dir;

    (void)snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
    dir = opendir(path);
    while (dir && (entry = readdir(dir)) != NULL) {
        _cleanup_(closep) int task = openat(dirfd(dir), entry->d_name, O_PATH | O_CLOEXEC);
        _cleanup_(closep) int fd = openat(task, "comm", O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, name, sizeof name);

        has = has || (n == sizeof THREAD && memcmp(name, THREAD "\n", sizeof THREAD) == 0);
    }
    if (dir)
        (void)closedir(dir);
    return has;
}

/* A role whose process is a child of the test: it sleeps, or runs in a circle; with `has_thread` a thread of it does, and the
 * main one sleeps. */
static pid_t child_start(bool is_looping, bool has_thread)
{
    pid_t pid = fork();
    char path[64], stat[64] = "";
    const char *state = NULL;
    pthread_t thread;

    assert_true(pid >= 0);
    if (pid == 0)
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (pid == 0 && has_thread)
        (void)pthread_create(&thread, NULL, thread_main, is_looping ? &thread : NULL);
    while (pid == 0)
        if (!is_looping || has_thread)
            (void)pause();
    (void)snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    do { /* until it is at it; the runner has a time limit */
        int fd = open(path, O_RDONLY | O_CLOEXEC);

        assert_true(fd >= 0 && read(fd, stat, sizeof stat - 1) > 0);
        fd_close(fd);
        state = strrchr(stat, ')');
    } while (!state || state[2] != (is_looping && !has_thread ? 'R' : 'S'));
    while (has_thread && !has_thread_named(pid)) {
    }
    return pid;
}

static void child_end(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void role_begin_with(struct role *role, bool is_looping, bool has_thread)
{
    *role = (struct role){ .name = "test" };
    buf_init(&role->args, 4096);
    assert_int_equal(watch_add(role, NULL, "--heartbeat-fd", false, NULL), 0);
    if (has_thread)
        assert_int_equal(watch_add(role, THREAD, "--thread-heartbeat-fd", false, NULL), 0);
    watch_reset(role);
    role->pid = child_start(is_looping, has_thread);
}

static void role_begin(struct role *role, bool is_looping)
{
    role_begin_with(role, is_looping, false);
}

static void role_finish_test(struct role *role)
{
    child_end(role->pid);
    watch_done(role);
    buf_done(&role->args);
}

static void beat_of(const struct role *role, size_t which)
{
    const uint64_t one = 1;

    assert_int_equal(write(role->beats[which].fd, &one, sizeof one), sizeof one);
}

static void beat(const struct role *role)
{
    for (size_t i = 0; i < role->n_beats; i++)
        beat_of(role, i);
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

/* The main loop comes round all the while. */
static void a_thread_that_is_silent_is_its_role(void **state)
{
    struct role role;
    char why[96] = "";
    int i;

    (void)state;
    for (int looping = 0; looping < 2; looping++) {
        int limit = looping ? WATCH_STARVED_S : WATCH_HUNG_S;

        role_begin_with(&role, looping, true);
        beat(&role);
        assert_false(watch_look(&role, SECOND, why));
        for (i = 1; i < limit; i++) {
            beat_of(&role, 0);
            assert_false(watch_look(&role, SECOND, why));
        }
        beat_of(&role, 0);
        assert_true(watch_look(&role, SECOND, why));
        assert_non_null(strstr(why, looping ? "no heartbeat of abx-test for 60 s, state R"
                                            : "no heartbeat of abx-test for 10 s, state S"));
        role_finish_test(&role);
    }
    /* And the other way round. */
    role_begin_with(&role, false, true);
    beat(&role);
    assert_false(watch_look(&role, SECOND, why));
    for (i = 1; i < WATCH_HUNG_S; i++) {
        beat_of(&role, 1);
        assert_false(watch_look(&role, SECOND, why));
    }
    beat_of(&role, 1);
    assert_true(watch_look(&role, SECOND, why));
    assert_non_null(strstr(why, "no heartbeat for 10 s"));
    role_finish_test(&role);
}

/* Waits in the kernel as for a disk: for a child of vfork, which sleeps until the child of the test is killed. */
static void *wait_in_kernel(void *user)
{
    pid_t pid;

    (void)user;
    (void)pthread_setname_np(pthread_self(), THREAD);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    pid = vfork();
#pragma GCC diagnostic pop
    if (pid == 0)
        for (;;)
            (void)pause();
    return NULL;
}

static bool waits(pid_t pid)
{
    char path[64], stat[256];
    struct dirent *entry;
    bool does = false;
    DIR *dir;

    (void)snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
    dir = opendir(path);
    while (dir && (entry = readdir(dir)) != NULL) {
        _cleanup_(closep) int task = openat(dirfd(dir), entry->d_name, O_PATH | O_CLOEXEC);
        _cleanup_(closep) int fd = openat(task, "stat", O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, stat, sizeof stat - 1);

        stat[MAX(n, (ssize_t)0)] = '\0';
        does = does || strstr(stat, "(" THREAD ") D") != NULL;
    }
    if (dir)
        (void)closedir(dir);
    return does;
}

static void who_waits_for_the_disk_has_longer(void **state)
{
    char why[96] = "";

    (void)state;
    for (int may_wait = 0; may_wait < 2; may_wait++) {
        struct role role = { .name = "test" };
        pthread_t thread;

        buf_init(&role.args, 4096);
        assert_int_equal(watch_add(&role, THREAD, "--thread-heartbeat-fd", may_wait, NULL), 0);
        watch_reset(&role);
        role.pid = fork();
        assert_true(role.pid >= 0);
        if (role.pid == 0) {
            (void)setpgid(0, 0);
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            (void)pthread_create(&thread, NULL, wait_in_kernel, NULL);
            for (;;)
                (void)pause();
        }
        while (!waits(role.pid)) { /* the runner has a time limit */
        }
        beat(&role);
        assert_false(watch_look(&role, SECOND, why));
        assert_int_equal(seconds_until_hung(&role, 1000, why), may_wait ? 1000 : WATCH_STARVED_S);
        (void)kill(-role.pid, SIGKILL); /* the child of vfork, too */
        role_finish_test(&role);
    }
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
        cmocka_unit_test(a_thread_that_is_silent_is_its_role),
        cmocka_unit_test(who_waits_for_the_disk_has_longer),
        cmocka_unit_test(time_that_the_supervisor_missed_does_not_count),
        cmocka_unit_test(one_that_does_not_run_is_not_looked_at),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
