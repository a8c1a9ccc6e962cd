/* Pushing memory out, at groups that are plain folders: who stops it, when it ends, what it asks for. With a kernel:
 * tests/system/test_swap.py. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "engine/cgroup_internal.h"

#define FOREVER_MS 60000

static char dir[64];
static int group = -EBADF;

static int setup(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/abx-swap-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    group = cgroup_open_dir(AT_FDCWD, dir);
    return group < 0 ? -1 : 0;
}

static int teardown(void **state)
{
    _cleanup_(closep) int tmp = open("/tmp", O_DIRECTORY | O_CLOEXEC);

    (void)state;
    fd_close(TAKE_FD(group));
    return path_remove_tree(tmp, dir + strlen("/tmp/"), NULL);
}

static void put(const char *name, const char *text)
{
    _cleanup_(closep) int fd = openat(group, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

static bool never(void)
{
    return false;
}

static bool always(void)
{
    return true;
}

static int push(enum cgroup_push kind, int stop_fd, int timeout_ms, bool (*is_short)(void),
                struct abx_err *err)
{
    uint64_t bytes = 7;
    int r = cgroup_push_in(group, kind, stop_fd, timeout_ms, is_short, &bytes, err);

    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
    assert_int_equal(errno, ECHILD);
    if (r == 0)
        assert_int_equal(bytes, 0);
    return r;
}

/* A FIFO that nobody reads: the write hangs, as one to slow swap does. */
static void one_that_hangs_ends(enum cgroup_push kind, const char *usage, const char *order)
{
    _cleanup_(closep) int stop = eventfd(1, EFD_CLOEXEC), quiet = eventfd(0, EFD_CLOEXEC);
    struct abx_err err;

    put(usage, "100000000\n");
    assert_int_equal(mkfifoat(group, order, 0600), 0);
    assert_int_equal(push(kind, stop, FOREVER_MS, never, &err), ABX_ABORTED);
    assert_int_equal(push(kind, quiet, 50, never, &err), 0); /* its time is over: no failure */
    assert_int_equal(push(kind, -EBADF, 50, never, &err), 0);
    assert_int_equal(push(kind, quiet, FOREVER_MS, always, &err), 0); /* swap is full */
}

static void a_reclaim_that_hangs_ends(void **state)
{
    (void)state;
    one_that_hangs_ends(CGROUP_PUSH_RECLAIM, "memory.current", "memory.reclaim");
}

static void a_force_empty_that_hangs_ends(void **state)
{
    (void)state;
    one_that_hangs_ends(CGROUP_PUSH_FORCE_EMPTY, "memory.usage_in_bytes", "memory.force_empty");
}

static void what_does_not_move_is_given_up(void **state)
{
    char text[64];
    struct abx_err err;

    (void)state;
    put("memory.current", "100000000\n");
    put("memory.reclaim", "");
    assert_int_equal(push(CGROUP_PUSH_RECLAIM, -EBADF, FOREVER_MS, never, &err), 0);
    assert_int_equal(cgroup_read_text(group, "memory.reclaim", text, sizeof text, NULL), 0);
    assert_string_equal(text, "16777216 swappiness=max");
    put("memory.current", "1000\n"); /* nothing to gain */
    put("memory.reclaim", "");
    assert_int_equal(push(CGROUP_PUSH_RECLAIM, -EBADF, FOREVER_MS, never, &err), 0);
    assert_int_equal(cgroup_read_text(group, "memory.reclaim", text, sizeof text, NULL), 0);
    assert_string_equal(text, "");
    put("memory.usage_in_bytes", "100000000\n");
    put("memory.force_empty", "");
    assert_int_equal(push(CGROUP_PUSH_FORCE_EMPTY, -EBADF, FOREVER_MS, never, &err), 0);
    assert_int_equal(cgroup_read_text(group, "memory.force_empty", text, sizeof text, NULL), 0);
    assert_string_equal(text, "0");
}

static void what_is_not_there_is_an_error(void **state)
{
    struct abx_err err;

    (void)state;
    assert_int_equal(push(CGROUP_PUSH_RECLAIM, -EBADF, FOREVER_MS, never, &err), ABX_NOT_FOUND);
    put("memory.current", "100000000\n");
    assert_int_equal(push(CGROUP_PUSH_RECLAIM, -EBADF, FOREVER_MS, never, &err), ABX_NOT_FOUND);
    assert_non_null(strstr(err.msg, "push memory out"));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        T(a_reclaim_that_hangs_ends),
        T(a_force_empty_that_hangs_ends),
        T(what_does_not_move_is_given_up),
        T(what_is_not_there_is_an_error),
    };

    return cmocka_run_group_tests_name("engine_cgroup_swap", tests, NULL, NULL);
}
