/* test_datadir.c - format file, lock, refusal of newer formats. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/process.h"
#include "cli/datadir.h"
#include "log_pipe.h"

static char top[] = "/tmp/abx-datadir-XXXXXX";
static char path[64];

static int set_up(void **state)
{
    (void)state;
    (void)memcpy(top + strlen(top) - 6, "XXXXXX", 6);
    if (!mkdtemp(top))
        return -1;
    (void)snprintf(path, sizeof path, "%s/a/data", top);
    return 0;
}

static int tear_down(void **state)
{
    int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = path_remove_tree(tmp, top + strlen("/tmp/"), NULL);

    (void)state;
    fd_close(tmp);
    return r;
}

static void instance_stays_the_same(void **state)
{
    char instance[DATADIR_INSTANCE_SIZE];
    struct datadir a, b;
    struct stat st;

    (void)state;
    assert_int_equal(datadir_open(path, NULL, &a, NULL), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0711);
    assert_int_equal(datadir_instance(path, instance, NULL), 0);
    assert_string_equal(instance, a.instance);
    datadir_done(&a);
    assert_int_equal(datadir_open(path, NULL, &b, NULL), 0);
    assert_string_equal(b.instance, instance);
    datadir_done(&b);
}

static void second_supervisor_is_refused_with_the_pid(void **state)
{
    struct datadir a, b;
    struct abx_err err;
    char pid[32];

    (void)state;
    assert_int_equal(datadir_open(path, NULL, &a, NULL), 0);
    (void)snprintf(pid, sizeof pid, "process %ld", (long)getpid());
    assert_int_equal(datadir_open(path, NULL, &b, &err), ABX_FAILED_PRECONDITION);
    assert_non_null(strstr(err.msg, pid));
    datadir_done(&a);
    assert_int_equal(datadir_open(path, NULL, &b, &err), 0);
    datadir_done(&b);
}

static void bad_formats_are_refused(void **state)
{
    static const struct {
        const char *text;
        int code;
    } rows[] = {
        { "version 999\ninstance 0123456789ab\n", ABX_FAILED_PRECONDITION },
        { "", ABX_DATA_LOSS },
        { "version 1\n", ABX_DATA_LOSS },
        { "version 1\ninstance ../../../etc\n", ABX_DATA_LOSS },
        { "version one\ninstance 0123456789ab\n", ABX_DATA_LOSS },
    };
    struct datadir a;
    char file[80];

    (void)state;
    assert_int_equal(datadir_open(path, NULL, &a, NULL), 0);
    datadir_done(&a);
    (void)snprintf(file, sizeof file, "%s/format", path);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_int_equal(
            file_replace(AT_FDCWD, file, rows[i].text, strlen(rows[i].text), 0644, false, NULL), 0);
        assert_int_equal(datadir_open(path, NULL, &a, NULL), rows[i].code);
    }
}

/* A run folder as the supervisor makes it; fd owned by the caller. */
static int run_folder(const char *name)
{
    char folder[96];
    int fd;

    (void)snprintf(folder, sizeof folder, "%s/run/%s", top, name);
    assert_int_equal(path_mkdirs(AT_FDCWD, folder, 0755, NULL), 0);
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void remove_format(void)
{
    char file[80];

    (void)snprintf(file, sizeof file, "%s/format", path);
    assert_int_equal(unlink(file), 0);
}

static void an_emptied_folder_gets_its_instance_again(void **state)
{
    char run_top[64], first[DATADIR_INSTANCE_SIZE];
    struct datadir a, b;
    int fd;

    (void)state;
    (void)snprintf(run_top, sizeof run_top, "%s/run", top);
    assert_int_equal(datadir_open(path, run_top, &a, NULL), 0); /* there is no such folder yet */
    assert_false(a.was_emptied);
    memcpy(first, a.instance, sizeof first);
    fd = run_folder(first);
    assert_int_equal(datadir_claim(&a, fd, NULL), 0);
    datadir_done(&a);
    fd_close(run_folder("0123456789ab")); /* of a service from before there was such a file */
    fd_close(run_folder("local"));
    remove_format();
    assert_int_equal(datadir_open(path, run_top, &b, NULL), 0);
    assert_true(b.was_emptied);
    assert_string_equal(b.instance, first);
    assert_int_equal(datadir_claim(&b, fd, NULL), 0);
    datadir_done(&b);
    assert_int_equal(datadir_open(path, run_top, &b, NULL), 0); /* `format` says so by now */
    assert_false(b.was_emptied);
    assert_string_equal(b.instance, first);
    datadir_done(&b);
    /* Another folder is another service. */
    (void)snprintf(path, sizeof path, "%s/b", top);
    assert_int_equal(datadir_open(path, run_top, &b, NULL), 0);
    assert_false(b.was_emptied);
    assert_string_not_equal(b.instance, first);
    datadir_done(&b);
    fd_close(fd);
}

static void a_folder_in_the_place_of_a_deleted_one_gets_its_instance(void **state)
{
    _cleanup_(closep) int top_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char run_top[64], moved[64], first[DATADIR_INSTANCE_SIZE];
    struct datadir a;
    int fd;

    (void)state;
    (void)snprintf(run_top, sizeof run_top, "%s/run", top);
    (void)snprintf(moved, sizeof moved, "%s/moved", top);
    assert_int_equal(datadir_open(path, run_top, &a, NULL), 0);
    if (geteuid() != 0 || strcmp(a.handle, "-") == 0) {
        datadir_done(&a);
        /* Nobody but root may open handles, and not every file system has some. (cmocka's skip is a failure in TAP.) */
        print_message("not looked at: no handles of folders here\n");
        return;
    }
    memcpy(first, a.instance, sizeof first);
    fd = run_folder(first);
    assert_int_equal(datadir_claim(&a, fd, NULL), 0);
    fd_close(fd);
    datadir_done(&a);
    /* It was moved: what is in its place now is another service's. */
    assert_int_equal(rename(path, moved), 0);
    assert_int_equal(datadir_open(path, run_top, &a, NULL), 0);
    assert_false(a.was_emptied);
    assert_string_not_equal(a.instance, first);
    datadir_done(&a);
    /* It is deleted, while what is in its place has another number. */
    remove_format();
    assert_int_equal(path_remove_tree(top_fd, "moved", NULL), 0);
    assert_int_equal(datadir_open(path, run_top, &a, NULL), 0);
    assert_true(a.was_emptied);
    assert_string_equal(a.instance, first);
    datadir_done(&a);
}

static void of_two_run_folders_the_later_one_counts(void **state)
{
    static const char *const names[] = { "00000000000a", "00000000000c", "00000000000b" };
    const struct timespec times[] = { { 1000, 5 }, { 1000, 7 }, { 1000, 6 } };
    struct datadir a;
    char run_top[64];

    (void)state;
    (void)snprintf(run_top, sizeof run_top, "%s/run", top);
    assert_int_equal(datadir_open(path, run_top, &a, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        int fd = run_folder(names[i]);

        assert_int_equal(datadir_claim(&a, fd, NULL), 0);
        assert_int_equal(utimensat(fd, "data-dir", (struct timespec[]){ times[i], times[i] }, 0),
                         0);
        fd_close(a.claim_fd);
        fd_close(fd);
    }
    a.claim_fd = -EBADF;
    datadir_done(&a);
    remove_format();
    assert_int_equal(datadir_open(path, run_top, &a, NULL), 0);
    assert_string_equal(a.instance, names[1]);
    datadir_done(&a);
}

static void a_held_run_folder_is_refused_with_the_pid(void **state)
{
    struct datadir a, b;
    struct abx_err err;
    char pid[32];
    int fd;

    (void)state;
    assert_int_equal(datadir_open(path, NULL, &a, NULL), 0);
    fd = run_folder(a.instance);
    assert_int_equal(datadir_claim(&a, fd, NULL), 0);
    b = a; /* a copy of the data dir, say */
    b.lock_fd = b.claim_fd = -EBADF;
    (void)snprintf(pid, sizeof pid, "process %ld", (long)getpid());
    assert_int_equal(datadir_claim(&b, fd, &err), ABX_FAILED_PRECONDITION);
    assert_non_null(strstr(err.msg, pid));
    assert_non_null(strstr(err.msg, a.instance));
    datadir_done(&a);
    assert_int_equal(datadir_claim(&b, fd, &err), 0);
    datadir_done(&b);
    fd_close(fd);
}

/* A supervisor that has the data dir and its run folder and is killed while it starts a role: the child that is
 * neither has both open, too, and ends when it is waited for. */
static void kill_a_supervisor(const struct log_pipe *log, char ret_instance[DATADIR_INSTANCE_SIZE])
{
    int pipes[2];
    pid_t child;

    assert_int_equal(pipe(pipes), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct datadir d;

        if (datadir_open(path, NULL, &d, NULL) < 0 ||
            datadir_claim(&d, run_folder(d.instance), NULL) < 0)
            _exit(1);
        if (fork() == 0) {
            (void)fd_write_all(pipes[1], d.instance, sizeof d.instance);
            log_pipe_await(log, "waiting for what");
            _exit(0);
        }
        (void)pause();
    }
    fd_close(pipes[1]);
    assert_int_equal(fd_read_all(pipes[0], ret_instance, DATADIR_INSTANCE_SIZE),
                     DATADIR_INSTANCE_SIZE);
    fd_close(pipes[0]);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void the_locks_of_a_killed_supervisor_are_waited_for(void **state)
{
    char instance[DATADIR_INSTANCE_SIZE];
    struct log_pipe log;
    struct datadir d;
    int fd, r;

    (void)state;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    log_pipe_open(&log);
    kill_a_supervisor(&log, instance);
    log_pipe_begin(&log);
    r = datadir_open(path, NULL, &d, NULL);
    log_pipe_end(&log);
    assert_int_equal(r, 0);
    assert_true(d.predecessor.was_killed);
    assert_string_equal(d.predecessor.told, "the data dir");
    datadir_done(&d);
    assert_true(wait(NULL) > 0);
    /* Its lock is lost with the rest of the data dir, that of the run folder is not. */
    log_pipe_open(&log);
    kill_a_supervisor(&log, instance);
    (void)snprintf(path + strlen(path), sizeof path - strlen(path), "/lock");
    assert_int_equal(unlink(path), 0);
    path[strlen(path) - strlen("/lock")] = '\0';
    assert_int_equal(datadir_open(path, NULL, &d, NULL), 0);
    assert_false(d.predecessor.was_killed);
    fd = run_folder(instance);
    log_pipe_begin(&log);
    r = datadir_claim(&d, fd, NULL);
    log_pipe_end(&log);
    assert_int_equal(r, 0);
    assert_true(d.predecessor.was_killed);
    datadir_done(&d);
    fd_close(fd);
    assert_true(wait(NULL) > 0);
}

static void a_supervisor_that_signed_off_was_not_killed(void **state)
{
    struct datadir d;

    (void)state;
    assert_int_equal(datadir_open(path, NULL, &d, NULL), 0);
    assert_false(d.predecessor.was_killed);
    datadir_sign_off(&d);
    datadir_done(&d);
    assert_int_equal(datadir_open(path, NULL, &d, NULL), 0);
    assert_false(d.predecessor.was_killed);
    datadir_done(&d);
    assert_int_equal(datadir_open(path, NULL, &d, NULL), 0);
    assert_true(d.predecessor.was_killed);
    datadir_done(&d);
}

/* A child that has the lock, without a word in it at first. Then it ends, or says who it is. */
static pid_t start_silent(bool ends)
{
    int pipes[2];
    pid_t child;
    char word;

    assert_int_equal(pipe(pipes), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char text[32];
        struct datadir d;
        int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());

        if (datadir_open(path, NULL, &d, NULL) < 0)
            _exit(1);
        datadir_sign_off(&d);
        (void)fd_write_all(pipes[1], "", 1);
        (void)nanosleep(&(struct timespec){ .tv_nsec = 300 * NSEC_PER_MSEC }, NULL);
        if (!ends && pwrite(d.lock_fd, text, (size_t)n, 0) == n)
            (void)pause();
        _exit(0);
    }
    fd_close(pipes[1]);
    assert_int_equal(fd_read_all(pipes[0], &word, 1), 1);
    fd_close(pipes[0]);
    return child;
}

static void an_empty_lock_is_one_of_a_start_or_of_an_end(void **state)
{
    struct datadir d;
    struct abx_err err;
    char named[32];
    pid_t child;

    (void)state;
    child = start_silent(true);
    assert_int_equal(datadir_open(path, NULL, &d, NULL), 0);
    datadir_done(&d);
    assert_int_equal(waitpid(child, NULL, 0), child);
    child = start_silent(false);
    assert_int_equal(datadir_open(path, NULL, &d, &err), ABX_FAILED_PRECONDITION);
    (void)snprintf(named, sizeof named, "process %ld:", (long)child);
    assert_non_null(strstr(err.msg, named));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* Releases before wrote the pid alone; one in use is no killed one's, whatever it says. */
static void an_older_lock_is_understood(void **state)
{
    static const struct {
        const char *text, *named;
    } rows[] = { { "1\n", "process 1:" }, { "77\nmark 77:1:1\n", "process 77:" } };
    char file[80];
    struct datadir d;
    struct abx_err err;

    (void)state;
    assert_int_equal(datadir_open(path, NULL, &d, NULL), 0);
    (void)snprintf(file, sizeof file, "%s/lock", path);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct datadir other;
        int fd = open(file, O_WRONLY | O_TRUNC | O_CLOEXEC);

        assert_true(fd >= 0 && fd_write_all(fd, rows[i].text, strlen(rows[i].text)) == 0);
        fd_close(fd);
        assert_int_equal(datadir_open(path, NULL, &other, &err), ABX_FAILED_PRECONDITION);
        assert_non_null(strstr(err.msg, rows[i].named));
    }
    datadir_done(&d);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_locks_of_a_killed_supervisor_are_waited_for, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(an_empty_lock_is_one_of_a_start_or_of_an_end, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(an_older_lock_is_understood, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_supervisor_that_signed_off_was_not_killed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(instance_stays_the_same, set_up, tear_down),
        cmocka_unit_test_setup_teardown(second_supervisor_is_refused_with_the_pid, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(bad_formats_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_emptied_folder_gets_its_instance_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_folder_in_the_place_of_a_deleted_one_gets_its_instance,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(of_two_run_folders_the_later_one_counts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_held_run_folder_is_refused_with_the_pid, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
