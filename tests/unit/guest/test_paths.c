/* Paths of requests and Go's way to print a mode. */
#include "test.h"

#include <string.h>
#include <sys/stat.h>

#include "guest/daemon/paths.h"

static const struct user someone = { .name = "user", .home = "/home/user", .uid = 1000 };

static void path_follows_the_rules(void **state)
{
    static const struct {
        const char *workdir, *path, *want; /* want NULL: refused */
    } rows[] = {
        { NULL, "", "/home/user" },
        { "", "", "/home/user" },
        { "/code", "", "/code" },
        { "work", "", "/home/user/work" },
        { "/code", "x", "/home/user/x" },
        { "/code", "/", "/" },
        { NULL, "~", "/home/user" },
        { NULL, "~/", "/home/user" },
        { NULL, "~/a//b/", "/home/user/a/b" },
        { NULL, "~root", NULL },
        { NULL, "~root/x", NULL },
        { NULL, "a/~/b", "/home/user/a/~/b" },
        { NULL, "../../../etc", "/etc" },
        { NULL, "/a/./b/../c", "/a/c" },
        { NULL, "/..", "/" },
        { NULL, "/../..//", "/" },
        { NULL, "/a/...", "/a/..." },
        { NULL, "/a/..b/.c", "/a/..b/.c" },
    };
    char got[PATH_MAX];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct abx_err err = { 0 };
        int r = guest_path(&someone, rows[i].workdir, rows[i].path, got, &err);
        if (!rows[i].want) {
            assert_int_equal(r, ABX_INVALID_ARGUMENT);
            continue;
        }
        assert_int_equal(r, 0);
        assert_string_equal(got, rows[i].want);
    }
}

static void path_longer_than_the_kernels_limit_is_refused(void **state)
{
    char path[PATH_MAX + 1], got[PATH_MAX];

    memset(path, 'x', PATH_MAX);
    path[PATH_MAX] = '\0';
    path[0] = '/';
    assert_int_equal(guest_path(&someone, NULL, path, got, NULL), ABX_INVALID_ARGUMENT);
    path[PATH_MAX - 1] = '\0';
    assert_int_equal(guest_path(&someone, NULL, path, got, NULL), 0);
    path[0] = 'x'; /* relative: the home comes in front */
    assert_int_equal(guest_path(&someone, NULL, path, got, NULL), ABX_INVALID_ARGUMENT);
}

static void name_is_the_last_part(void **state)
{
    assert_string_equal(guest_path_name("/"), "/");
    assert_string_equal(guest_path_name("/a"), "a");
    assert_string_equal(guest_path_name("/a/b.c"), "b.c");
}

static void modes_are_printed_as_go_does(void **state)
{
    static const struct {
        unsigned mode;
        const char *want;
    } rows[] = {
        { S_IFREG | 0644, "-rw-r--r--" },      { S_IFREG | 0, "----------" },
        { S_IFDIR | 0755, "drwxr-xr-x" },      { S_IFLNK | 0777, "Lrwxrwxrwx" },
        { S_IFIFO | 0600, "prw-------" },      { S_IFSOCK | 0700, "Srwx------" },
        { S_IFBLK | 0660, "Drw-rw----" },      { S_IFCHR | 0666, "Dcrw-rw-rw-" },
        { S_IFDIR | 01777, "dtrwxrwxrwx" },    { S_IFREG | 04755, "urwxr-xr-x" },
        { S_IFREG | 02755, "grwxr-xr-x" },     { S_IFDIR | 07777, "dugtrwxrwxrwx" },
        { S_IFCHR | 07777, "Dugctrwxrwxrwx" },
    };
    char got[GUEST_MODE_SIZE];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        guest_mode_text(rows[i].mode, got);
        assert_string_equal(got, rows[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(path_follows_the_rules),
        cmocka_unit_test(path_longer_than_the_kernels_limit_is_refused),
        cmocka_unit_test(name_is_the_last_part),
        cmocka_unit_test(modes_are_printed_as_go_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
