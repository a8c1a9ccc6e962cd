/* Whole reads and writes, small files. */
#include "test_dir.h"

#include <poll.h>
#include <sys/wait.h>

#include "base/fd.h"

static void close_keeps_errno(void **state)
{
    errno = EDOM;
    fd_close(-1);
    fd_close(-EBADF);
    fd_close(100000);
    assert_int_equal(errno, EDOM);
}

/* 1 MiB through a pipe whose reader takes small pieces. */
static void write_all_and_read_all(void **state)
{
    enum { SIZE = 1 << 20 };
    uint8_t *in = malloc(SIZE), *out = malloc(SIZE + 1);
    int fds[2], status;
    pid_t pid;

    assert_non_null(in);
    assert_non_null(out);
    for (size_t i = 0; i < SIZE; i++)
        in[i] = (uint8_t)(i * 7);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)close(fds[0]);
        _exit(fd_write_all(fds[1], in, SIZE) == 0 ? 0 : 1);
    }
    (void)close(fds[1]);
    assert_int_equal(fd_read_all(fds[0], out, 10), 10);
    assert_int_equal(fd_read_all(fds[0], out + 10, SIZE + 1 - 10), SIZE - 10); /* up to EOF */
    assert_memory_equal(in, out, SIZE);
    assert_int_equal(fd_read_all(fds[0], out, 1), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    (void)close(fds[0]);
    assert_int_equal(fd_read_all(fds[0], out, 1), -1);
    assert_int_equal(errno, EBADF);
    assert_int_equal(fd_write_all(fds[0], in, 1), -1);
    free(in);
    free(out);
}

static void flags(void **state)
{
    int fds[2];

    assert_int_equal(pipe2(fds, 0), 0);
    assert_int_equal(fd_set_nonblock(fds[0], true), 0);
    assert_true(fcntl(fds[0], F_GETFL) & O_NONBLOCK);
    assert_int_equal(fd_set_nonblock(fds[0], false), 0);
    assert_false(fcntl(fds[0], F_GETFL) & O_NONBLOCK);
    assert_int_equal(fd_set_cloexec(fds[0], true), 0);
    assert_int_equal(fcntl(fds[0], F_GETFD), FD_CLOEXEC);
    assert_int_equal(fd_set_cloexec(fds[0], false), 0);
    assert_int_equal(fcntl(fds[0], F_GETFD), 0);
    (void)close(fds[0]);
    (void)close(fds[1]);
    assert_int_equal(fd_set_nonblock(fds[0], true), -1);
    assert_int_equal(fd_set_cloexec(fds[0], true), -1);
}

static void file_read_is_limited(void **state)
{
    struct test_dir *d = *state;
    struct abx_err err;

    dir_write(d, "five", "12345");
    dir_write(d, "empty", "");
    for (size_t limit = 0; limit < 8; limit++) {
        _cleanup_(buf_done) struct buf b = BUF_INIT(limit);

        assert_int_equal(file_read(d->fd, "empty", &b, &err), 0);
        assert_int_equal(b.len, 0);
        if (limit < 5) {
            assert_int_equal(file_read(d->fd, "five", &b, &err), ABX_RESOURCE_EXHAUSTED);
            assert_int_equal(err.reason, ABX_REASON_TOO_LARGE);
        } else {
            assert_int_equal(file_read(d->fd, "five", &b, &err), 0);
            assert_string_equal(buf_cstr(&b), "12345");
        }
    }
}

static void file_read_appends_any_size(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
    struct test_dir *d = *state;
    char text[200001];
    struct abx_err err;

    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    dir_write(d, "big", text);
    assert_int_equal(buf_append_str(&b, "before"), BUF_OK);
    assert_int_equal(file_read(d->fd, "big", &b, &err), 0);
    assert_int_equal(b.len, 6 + sizeof text - 1);
    assert_memory_equal(buf_data(&b) + 6, text, sizeof text - 1);
    assert_int_equal(file_read(d->fd, "missing", &b, &err), ABX_NOT_FOUND);
    assert_non_null(strstr(err.msg, "missing"));
    assert_true(file_read(d->fd, ".", &b, &err) < 0);
    /* Files of /proc have size 0. */
    assert_int_equal(file_read(AT_FDCWD, "/proc/self/status", &b, &err), 0);
}

static void file_write_once_writes_an_existing_file(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(100);
    struct test_dir *d = *state;
    struct abx_err err;
    char text[257];

    assert_int_equal(file_write_once(d->fd, "new", "x", 1, &err), ABX_NOT_FOUND);
    assert_false(dir_has(d, "new"));
    dir_write(d, "file", "abc");
    assert_int_equal(file_printf(d->fd, "file", &err, "%d", 42), 0);
    assert_int_equal(file_read(d->fd, "file", &b, &err), 0);
    assert_string_equal(buf_cstr(&b), "42c"); /* kernel files know no truncation */
    memset(text, 'x', sizeof text);
    text[256] = '\0';
    assert_int_equal(file_printf(d->fd, "file", &err, "%s", text), ABX_INVALID_ARGUMENT);
    assert_int_equal(file_printf(d->fd, "file", &err, "%s", text + 1), 0);
}

static void file_replace_is_whole(void **state)
{
    struct test_dir *d = *state;
    struct abx_err err;
    struct stat st;

    assert_int_equal(mkdirat(d->fd, "dir", 0755), 0);
    dir_write(d, "target", "old");
    assert_int_equal(symlinkat("target", d->fd, "link"), 0);
    for (int sync = 0; sync < 2; sync++) {
        static const char *const names[] = { "file", "dir/file", "link" };

        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
            _cleanup_(buf_done) struct buf b = BUF_INIT(100);

            assert_int_equal(file_replace(d->fd, names[i], "text", 4, 0604, sync, &err), 0);
            assert_int_equal(file_read(d->fd, names[i], &b, &err), 0);
            assert_string_equal(buf_cstr(&b), "text");
            assert_int_equal(fstatat(d->fd, names[i], &st, AT_SYMLINK_NOFOLLOW), 0);
            assert_true(S_ISREG(st.st_mode)); /* a symlink is replaced, not followed */
            assert_int_equal(st.st_mode & 0777, 0604);
        }
    }
    assert_int_equal(fstatat(d->fd, "target", &st, 0), 0);
    assert_int_equal(st.st_size, 3);
}

static void what_a_killed_writer_left_is_swept(void **state)
{
    static const char *const left[] = { "format.0123456789ab.tmp", "a.b.ffffffffffff.tmp" };
    static const char *const others[] = { "format",
                                          ".0123456789ab.tmp",
                                          "format.0123456789a.tmp",
                                          "format.0123456789ag.tmp",
                                          "format_0123456789ab.tmp",
                                          "format.0123456789ab.tmpx",
                                          "tmp" };
    struct test_dir *d = *state;

    for (size_t i = 0; i < ARRAY_SIZE(left); i++)
        dir_write(d, left[i], "half");
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        dir_write(d, others[i], "text");
    file_replace_sweep(d->fd);
    for (size_t i = 0; i < ARRAY_SIZE(left); i++)
        assert_false(dir_has(d, left[i]));
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        assert_true(dir_has(d, others[i]));
        assert_int_equal(unlinkat(d->fd, others[i], 0), 0);
    }
}

static void failed_replace_leaves_nothing(void **state)
{
    struct test_dir *d = *state;
    struct abx_err err;

    assert_int_equal(mkdirat(d->fd, "full", 0755), 0);
    assert_int_equal(mkdirat(d->fd, "full/x", 0755), 0);
    assert_true(file_replace(d->fd, "full", "text", 4, 0600, true, &err) < 0);
    assert_true(file_replace(d->fd, "missing/file", "text", 4, 0600, false, &err) < 0);
    assert_int_equal(unlinkat(d->fd, "full/x", AT_REMOVEDIR), 0);
    assert_int_equal(unlinkat(d->fd, "full", AT_REMOVEDIR), 0);
    /* Nothing else is left: the folder can be removed and made again. */
    assert_int_equal(rmdir(d->path), 0);
    assert_int_equal(mkdir(d->path, 0700), 0);
}

static void random_bytes_differ(void **state)
{
    uint8_t a[300] = { 0 }, b[300] = { 0 };

    random_bytes(a, sizeof a);
    random_bytes(b, sizeof b);
    assert_memory_not_equal(a, b, 32);
    assert_memory_not_equal(a + 268, b + 268, 32);
    random_bytes(a, 0);
}

#define DIR_TEST(t) cmocka_unit_test_setup_teardown(t, dir_setup, dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close_keeps_errno),
        cmocka_unit_test(write_all_and_read_all),
        cmocka_unit_test(flags),
        DIR_TEST(file_read_is_limited),
        DIR_TEST(file_read_appends_any_size),
        DIR_TEST(file_write_once_writes_an_existing_file),
        DIR_TEST(file_replace_is_whole),
        DIR_TEST(what_a_killed_writer_left_is_swept),
        DIR_TEST(failed_replace_leaves_nothing),
        cmocka_unit_test(random_bytes_differ),
    };

    return cmocka_run_group_tests_name("fd", tests, NULL, NULL);
}
