/* Paths that a guest can influence, and removal of trees that a hostile tenant wrote. */
#include "test_dir.h"

#include <dirent.h>

#include "base/fd.h"
#include "base/path.h"

static void open_stays_beneath(void **state)
{
    static const struct {
        const char *path;
        int want; /* errno, 0 = opens */
    } rows[] = {
        { "file", 0 },
        { "a/file", 0 },
        { "a/../file", 0 },
        { "./a/./file", 0 },
        { "../file", EXDEV },
        { "a/../../etc/passwd", EXDEV },
        { "/etc/passwd", EXDEV },
        { "link", ELOOP },
        { "dirlink/file", ELOOP },
        { "abslink", ELOOP },
        { "a/uplink/file", ELOOP },
        { "missing", ENOENT },
        { "file/x", ENOTDIR },
        { "", ENOENT },
    };
    struct test_dir *d = *state;

    assert_int_equal(mkdirat(d->fd, "a", 0755), 0);
    dir_write(d, "file", "x");
    dir_write(d, "a/file", "x");
    assert_int_equal(symlinkat("file", d->fd, "link"), 0);
    assert_int_equal(symlinkat("a", d->fd, "dirlink"), 0);
    assert_int_equal(symlinkat("/etc/passwd", d->fd, "abslink"), 0);
    assert_int_equal(symlinkat("..", d->fd, "a/uplink"), 0);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        int fd = path_open_beneath(d->fd, rows[i].path, O_RDONLY, 0);

        if ((fd < 0 ? errno : 0) != rows[i].want)
            fail_msg("%s: errno %d", rows[i].path, fd < 0 ? errno : 0);
        if (fd >= 0)
            assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
        fd_close(fd);
    }
}

static void open_creates_with_mode(void **state)
{
    struct test_dir *d = *state;
    struct stat st;
    int fd = path_open_beneath(d->fd, "new", O_WRONLY | O_CREAT | O_EXCL, 0640);

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    fd_close(fd);
    /* A mode that creates nothing is ignored, O_DIRECTORY is not O_TMPFILE. */
    fd = path_open_beneath(d->fd, ".", O_RDONLY | O_DIRECTORY, 0755);
    assert_true(fd >= 0);
    fd_close(fd);
    fd = path_open_beneath(d->fd, "link", O_WRONLY | O_CREAT, 0644);
    fd_close(fd);
    assert_int_equal(symlinkat("elsewhere", d->fd, "dangling"), 0);
    assert_int_equal(path_open_beneath(d->fd, "dangling", O_WRONLY | O_CREAT, 0644), -1);
    assert_false(dir_has(d, "elsewhere"));
}

static void mkdirs_makes_what_is_missing(void **state)
{
    static const char *const fine[] = { "a", "a/b/c", "a//b///d/", "./e/./f", "a" };
    struct test_dir *d = *state;
    struct abx_err err;
    struct stat st;

    for (size_t i = 0; i < ARRAY_SIZE(fine); i++) {
        assert_int_equal(path_mkdirs(d->fd, fine[i], 0750, &err), 0);
        assert_int_equal(fstatat(d->fd, fine[i], &st, 0), 0);
        assert_true(S_ISDIR(st.st_mode));
        assert_int_equal(st.st_mode & 0777, 0750);
    }
    assert_int_equal(path_mkdirs(d->fd, "", 0755, &err), 0);
    assert_int_equal(path_mkdirs(d->fd, ".", 0755, &err), 0);
}

static void mkdirs_does_not_leave(void **state)
{
    static const struct {
        const char *path, *made;
        int want;
    } rows[] = {
        { "../x", "../x", EXDEV },
        { "a/../../x", "../x", EXDEV },
        { "/tmp/abx-unit-x", "/tmp/abx-unit-x", EXDEV },
        { "link/x", "a/x", ELOOP },
        { "link", NULL, ELOOP },
        { "abslink/x", "/tmp/x", ELOOP },
        { "dangling/x", "nowhere", ELOOP },
        { "dangling", "nowhere", ELOOP },
        { "file", NULL, ENOTDIR },
        { "file/x", NULL, ENOTDIR },
    };
    struct test_dir *d = *state;

    assert_int_equal(mkdirat(d->fd, "a", 0755), 0);
    assert_int_equal(symlinkat("a", d->fd, "link"), 0);
    assert_int_equal(symlinkat("/tmp", d->fd, "abslink"), 0);
    assert_int_equal(symlinkat("nowhere", d->fd, "dangling"), 0);
    dir_write(d, "file", "x");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct abx_err err = { 0 };

        assert_true(path_mkdirs(d->fd, rows[i].path, 0755, &err) < 0);
        if (err.sys != rows[i].want)
            fail_msg("%s: %s", rows[i].path, err.msg);
        if (rows[i].made)
            assert_false(dir_has(d, rows[i].made));
    }
}

static void mkdirs_refuses_long_names(void **state)
{
    struct test_dir *d = *state;
    char name[300];
    struct abx_err err;

    memset(name, 'a', sizeof name);
    name[255] = '\0';
    assert_int_equal(path_mkdirs(d->fd, name, 0755, &err), 0);
    name[255] = 'a';
    name[256] = '\0';
    assert_int_equal(path_mkdirs(d->fd, name, 0755, &err), ABX_INVALID_ARGUMENT);
    assert_int_equal(err.sys, ENAMETOOLONG);
}

/* An operator's own path may lead over symlinks: /var is one on many machines. */
static void mkdirs_follows_the_operators_symlinks(void **state)
{
    struct test_dir *d = *state;
    char path[128];
    struct abx_err err;

    assert_int_equal(mkdirat(d->fd, "real", 0755), 0);
    assert_int_equal(symlinkat("real", d->fd, "link"), 0);
    (void)snprintf(path, sizeof path, "%s/link/a/b", d->path);
    assert_int_equal(path_mkdirs(AT_FDCWD, path, 0755, &err), 0);
    assert_true(dir_has(d, "real/a/b"));
    assert_int_equal(path_mkdirs(AT_FDCWD, path, 0755, &err), 0);
    assert_int_equal(symlinkat("nowhere", d->fd, "dangling"), 0);
    (void)snprintf(path, sizeof path, "%s/dangling/a", d->path);
    assert_true(path_mkdirs(AT_FDCWD, path, 0755, &err) < 0);
}

static void remove_takes_everything_but_what_links_lead_to(void **state)
{
    struct test_dir *d = *state;
    struct abx_err err;

    assert_int_equal(path_mkdirs(d->fd, "t/a/b/c", 0755, &err), 0);
    assert_int_equal(path_mkdirs(d->fd, "t/empty", 0755, &err), 0);
    assert_int_equal(path_mkdirs(d->fd, "keep/x", 0755, &err), 0);
    dir_write(d, "keep/file", "x");
    dir_write(d, "t/file", "x");
    dir_write(d, "t/a/b/file", "x");
    dir_write(d, "t/a/b/\n \xff", "x");
    assert_int_equal(linkat(d->fd, "keep/file", d->fd, "t/a/hard", 0), 0);
    assert_int_equal(symlinkat("../keep", d->fd, "t/link"), 0);
    assert_int_equal(symlinkat("../../../keep", d->fd, "t/a/b/link"), 0);
    assert_int_equal(symlinkat(".", d->fd, "t/a/loop"), 0);
    assert_int_equal(mkfifoat(d->fd, "t/a/fifo", 0600), 0);
    assert_int_equal(path_remove_tree(d->fd, "t", &err), 0);
    assert_false(dir_has(d, "t"));
    assert_true(dir_has(d, "keep/file"));
    assert_true(dir_has(d, "keep/x"));
    assert_int_equal(path_remove_tree(d->fd, "t", &err), 0); /* missing is fine */
}

static void remove_of_files_and_links(void **state)
{
    struct test_dir *d = *state;
    struct abx_err err;

    assert_int_equal(path_mkdirs(d->fd, "keep/x", 0755, &err), 0);
    assert_int_equal(symlinkat("keep", d->fd, "link"), 0);
    dir_write(d, "file", "x");
    assert_int_equal(path_remove_tree(d->fd, "link", &err), 0);
    assert_int_equal(path_remove_tree(d->fd, "file", &err), 0);
    assert_false(dir_has(d, "link") || dir_has(d, "file"));
    assert_true(dir_has(d, "keep/x"));
}

/* Deeper than PATH_MAX and than any stack: a tenant can make such a tree in a loop. */
static void remove_of_deep_trees(void **state)
{
    struct test_dir *d = *state;
    struct abx_err err;
    int at;

    assert_int_equal(mkdirat(d->fd, "t", 0755), 0);
    at = openat(d->fd, "t", O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < 1200; i++) {
        int next;

        assert_int_equal(mkdirat(at, "deeper", 0755), 0);
        assert_int_equal(mkdirat(at, "side", 0755), 0);
        next = openat(at, "deeper", O_RDONLY | O_DIRECTORY);
        assert_true(next >= 0);
        (void)close(at);
        at = next;
    }
    (void)close(at);
    assert_int_equal(path_remove_tree(d->fd, "t", &err), 0);
    assert_false(dir_has(d, "t"));
}

/* Names that an earlier version of the remover used for itself, some in the way. */
static void remove_is_not_stopped_by_chosen_names(void **state)
{
    struct test_dir *d = *state;
    struct abx_err err;

    for (unsigned i = 0; i < 50; i++) {
        char path[128];

        (void)snprintf(path, sizeof path, "t/.rm-%ld-%u/x/y", (long)getpid(), i);
        assert_int_equal(path_mkdirs(d->fd, path, 0755, &err), 0);
        (void)snprintf(path, sizeof path, "t/%u/x/y/z", i);
        assert_int_equal(path_mkdirs(d->fd, path, 0755, &err), 0);
    }
    assert_int_equal(path_remove_tree(d->fd, "t", &err), 0);
    assert_false(dir_has(d, "t"));
}

static size_t open_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    size_t n = 0;

    assert_non_null(dir);
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    return n;
}

static void remove_leaks_no_fd(void **state)
{
    struct test_dir *d = *state;
    struct abx_err err;
    size_t before = open_fds();

    for (int i = 0; i < 20; i++) {
        assert_int_equal(path_mkdirs(d->fd, "t/a/b/c/d", 0755, &err), 0);
        (void)path_mkdirs(d->fd, "t/../x", 0755, &err);
        assert_int_equal(path_remove_tree(d->fd, "t", &err), 0);
        (void)path_remove_tree(d->fd, "../x", &err);
    }
    assert_int_equal(open_fds(), before);
}

struct names {
    unsigned n, most;
    bool has_dots, seen[2];
};

static int note_name(void *user, const char *name)
{
    struct names *names = user;

    names->n++;
    names->has_dots |= name[0] == '.';
    names->seen[0] |= strcmp(name, "a") == 0;
    names->seen[1] |= strcmp(name, "b") == 0;
    return names->n == names->most ? 7 : 0;
}

static void each_entry_is_named_until_it_is_enough(void **state)
{
    struct names all = { 0 }, one = { .most = 1 };
    struct test_dir *d = *state;
    size_t before = open_fds();
    struct abx_err err;
    int fd;

    assert_int_equal(path_mkdirs(d->fd, "t/a/below", 0755, &err), 0);
    assert_int_equal(path_mkdirs(d->fd, "t/b", 0755, &err), 0);
    fd = path_open_beneath(d->fd, "t", O_RDONLY | O_DIRECTORY, 0);
    assert_true(fd >= 0);
    for (int i = 0; i < 2; i++) { /* it begins anew */
        all = (struct names){ 0 };
        assert_int_equal(path_each(fd, "t", note_name, &all, &err), 0);
        assert_true(all.n == 2 && all.seen[0] && all.seen[1] && !all.has_dots);
    }
    assert_int_equal(path_each(fd, "t", note_name, &one, &err), 7);
    assert_int_equal(one.n, 1);
    fd_close(fd);
    fd = path_open_beneath(d->fd, "t/f", O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_true(path_each(fd, "the list", note_name, &all, &err) < 0);
    assert_non_null(strstr(err.msg, "open the list"));
    fd_close(fd);
    assert_int_equal(open_fds(), before);
    assert_int_equal(path_remove_tree(d->fd, "t", &err), 0);
}

static void join(void **state)
{
    char to[8];

    assert_true(path_join(to, sizeof to, "a", "b"));
    assert_string_equal(to, "a/b");
    assert_true(path_join(to, sizeof to, "a/", "b"));
    assert_string_equal(to, "a/b");
    assert_true(path_join(to, sizeof to, "/", "b"));
    assert_string_equal(to, "/b");
    assert_true(path_join(to, sizeof to, "abc", "def"));
    assert_false(path_join(to, sizeof to, "abcd", "def"));
}

#define DIR_TEST(t) cmocka_unit_test_setup_teardown(t, dir_setup, dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DIR_TEST(open_stays_beneath),
        DIR_TEST(open_creates_with_mode),
        DIR_TEST(mkdirs_makes_what_is_missing),
        DIR_TEST(mkdirs_does_not_leave),
        DIR_TEST(mkdirs_refuses_long_names),
        DIR_TEST(mkdirs_follows_the_operators_symlinks),
        DIR_TEST(remove_takes_everything_but_what_links_lead_to),
        DIR_TEST(remove_of_files_and_links),
        DIR_TEST(remove_of_deep_trees),
        DIR_TEST(remove_is_not_stopped_by_chosen_names),
        DIR_TEST(remove_leaks_no_fd),
        DIR_TEST(each_entry_is_named_until_it_is_enough),
        cmocka_unit_test(join),
    };

    (void)umask(0);
    return cmocka_run_group_tests_name("path", tests, NULL, NULL);
}
