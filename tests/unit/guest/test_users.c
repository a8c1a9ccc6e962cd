/* Accounts from passwd and group files, good and bad ones. */
#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "guest/daemon/users.h"

static char dir[] = "/tmp/abx-users-XXXXXX";

static void put(const char *name, const char *text)
{
    int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

    assert_int_equal(file_replace(fd, name, text, strlen(text), 0644, false, NULL), 0);
    fd_close(fd);
}

static int make_dir(void **state)
{
    assert_non_null(mkdtemp(dir));
    users_set_dir(dir);
    return 0;
}

static int remove_dir(void **state)
{
    int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

    (void)unlinkat(fd, "passwd", 0);
    (void)unlinkat(fd, "group", 0);
    fd_close(fd);
    return rmdir(dir);
}

static void user_has_home_and_groups(void **state)
{
    struct user u;

    put("passwd", "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:100::/home/user:/bin/bash");
    put("group", "a:x:7:user\nusers:x:100:user\nb:x:8:other,user,\nc:x:9:users,xuser\nd:x:10:\n");
    assert_int_equal(user_find("user", &u, NULL), 0);
    assert_string_equal(u.name, "user");
    assert_string_equal(u.home, "/home/user");
    assert_int_equal(u.uid, 1000);
    assert_int_equal(u.gid, 100);
    assert_int_equal(u.n_groups, 3);
    assert_int_equal(u.groups[0], 100);
    assert_int_equal(u.groups[1], 7);
    assert_int_equal(u.groups[2], 8);
    assert_int_equal(user_find("users", &u, NULL), ABX_NOT_FOUND);
    assert_int_equal(user_find("", &u, NULL), ABX_NOT_FOUND);
}

static void malformed_lines_are_skipped(void **state)
{
    struct user u;

    put("passwd", "\n\n:x:1:1::/x:/y\na\na:b\na:x:1:1:/only-six:/bin\na:x:-1:1:::\na:x:1:x:::\n"
                  "a:x:4294967295:1:::\na:x:12:13::relative:\n");
    put("group", "\nx\nx:y:z\n:x:5:a\nx:x:999999999999:a\ny:x:14:a\n");
    assert_int_equal(user_find("a", &u, NULL), 0);
    assert_int_equal(u.uid, 12);
    assert_int_equal(u.gid, 13);
    assert_string_equal(u.home, "/");
    assert_int_equal(u.n_groups, 2);
    assert_int_equal(u.groups[1], 14);
}

static void default_user_is_user_or_root(void **state)
{
    struct user u;

    put("passwd", "root:x:0:0::/root:\nuser:x:1000:1000::/home/user:\nme:x:5:5::/me:\n");
    put("group", "");
    assert_int_equal(user_default(NULL, &u, NULL), 0);
    assert_int_equal(u.uid, 1000);
    assert_int_equal(user_default("me", &u, NULL), 0);
    assert_int_equal(u.uid, 5);
    assert_int_equal(user_default("gone", &u, NULL), ABX_NOT_FOUND);
    put("passwd", "root:x:0:0::/root:\n");
    assert_int_equal(user_default("", &u, NULL), 0);
    assert_int_equal(u.uid, 0);
}

static void root_needs_no_file(void **state)
{
    struct user u;

    put("passwd", "");
    assert_int_equal(user_find("root", &u, NULL), 0);
    assert_int_equal(u.uid, 0);
    assert_string_equal(u.home, "/root");
}

static void special_files_count_as_empty(void **state)
{
    int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct user u;

    assert_int_equal(unlinkat(fd, "passwd", 0), 0);
    assert_int_equal(mkfifoat(fd, "passwd", 0644), 0); /* must not block */
    assert_int_equal(user_find("user", &u, NULL), ABX_NOT_FOUND);
    assert_int_equal(unlinkat(fd, "passwd", 0), 0);
    assert_int_equal(symlinkat("/dev/zero", fd, "passwd"), 0);
    assert_int_equal(user_find("user", &u, NULL), ABX_NOT_FOUND);
    fd_close(fd);
}

static void too_many_groups_are_an_error(void **state)
{
    struct buf b = BUF_INIT(65536);
    struct user u;

    put("passwd", "user:x:1000:1000::/home/user:\n");
    for (int i = 0; i < USER_GROUPS_MAX - 1; i++)
        assert_int_equal(buf_printf(&b, "g%d:x:%d:user\n", i, 2000 + i), BUF_OK);
    put("group", buf_cstr(&b));
    assert_int_equal(user_find("user", &u, NULL), 0);
    assert_int_equal(u.n_groups, USER_GROUPS_MAX);
    assert_int_equal(buf_append_str(&b, "more:x:1:user\n"), BUF_OK);
    put("group", buf_cstr(&b));
    assert_int_equal(user_find("user", &u, NULL), ABX_RESOURCE_EXHAUSTED);
    buf_done(&b);
}

static void names_of_ids(void **state)
{
    struct user_names n;
    char got[USER_NAME_MAX];

    put("passwd", "root:x:0:0::/root:\nuser:x:1000:1000::/home/user:\n");
    put("group", "wheel:x:0:\nstaff:x:50:user\n");
    user_names_init(&n);
    user_names_owner(&n, 1000, got, sizeof(got));
    assert_string_equal(got, "user");
    user_names_owner(&n, 1001, got, sizeof(got));
    assert_string_equal(got, "1001");
    user_names_group(&n, 50, got, sizeof(got));
    assert_string_equal(got, "staff");
    user_names_group(&n, 4294967294u, got, sizeof(got));
    assert_string_equal(got, "4294967294");
    user_names_done(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(user_has_home_and_groups),
        cmocka_unit_test(malformed_lines_are_skipped),
        cmocka_unit_test(default_user_is_user_or_root),
        cmocka_unit_test(root_needs_no_file),
        cmocka_unit_test(special_files_count_as_empty),
        cmocka_unit_test(too_many_groups_are_an_error),
        cmocka_unit_test(names_of_ids),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
