/* test_local_dir.c - who has the folder, what lies in it. The folder has to be root's: for another user every
 * function refuses, and that is what is checked then. */
#include "cli/local_key.h"
#include "test_dir.h"

static const struct local_service_info info = { .instance = "0123456789ab",
                                                .data_dir = "/nonexistent/a",
                                                .base_url = "http://127.0.0.1:1",
                                                .domain = "localhost:1",
                                                .process = "1:2:3" };

static void folder(struct test_dir *d, char to[128])
{
    (void)snprintf(to, 128, "%s/local", d->path);
    (void)setenv("ABX_LOCAL_DIR", to, 1);
}

static bool exists(struct test_dir *d, const char *name)
{
    return faccessat(d->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void one_service_has_it(void **state)
{
    struct local_service_info other = info, found;
    struct local_dir a = LOCAL_DIR_INIT, b = LOCAL_DIR_INIT;
    struct test_dir *d = *state;
    struct abx_err err = { 0 };
    struct stat st;
    char path[128];

    folder(d, path);
    if (geteuid() != 0) {
        assert_int_equal(local_dir_take(&info, &a, &err), ABX_FAILED_PRECONDITION);
        return;
    }
    assert_int_equal(local_dir_open(&b, &found, &err), ABX_NOT_FOUND);
    assert_int_equal(local_dir_take(&info, &a, &err), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0711);
    (void)snprintf(other.data_dir, sizeof other.data_dir, "/nonexistent/b");
    assert_int_equal(local_dir_take(&other, &b, &err), ABX_FAILED_PRECONDITION);
    assert_non_null(strstr(err.msg, "'/nonexistent/a'"));
    assert_int_equal(local_dir_open(&b, &found, &err), 0);
    assert_string_equal(found.instance, info.instance);
    assert_string_equal(found.domain, info.domain);
    assert_string_equal(found.process, info.process);
    assert_true(local_dir_is_live(&b));
    assert_int_equal(local_dir_write(&b, &info, 12345, "e2b_key", &err), 0);
    assert_int_equal(fstatat(d->fd, "local/12345.env", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(st.st_uid, 12345);
    assert_int_equal(st.st_mode & 07777, 0600);
    local_dir_give_up(&a);
    local_dir_give_up(&a);
    assert_false(local_dir_is_live(&b));
    assert_false(exists(d, "local/12345.env"));
    local_dir_close(&b);
    assert_int_equal(local_dir_open(&b, &found, &err), ABX_NOT_FOUND);
    assert_non_null(strstr(err.msg, "does not run"));
    assert_int_equal(local_dir_take(&other, &b, &err), 0);
    local_dir_give_up(&b);
}

static void what_is_not_ours_is_refused(void **state)
{
    struct local_dir a = LOCAL_DIR_INIT;
    struct test_dir *d = *state;
    struct abx_err err = { 0 };
    char path[128];

    folder(d, path);
    assert_int_equal(mkdirat(d->fd, "local", 0777), 0);
    assert_int_equal(fchmodat(d->fd, "local", 0773, 0), 0);
    assert_int_equal(local_dir_take(&info, &a, &err), ABX_FAILED_PRECONDITION);
    assert_non_null(strstr(err.msg, "is not root's alone"));
    (void)setenv("ABX_LOCAL_DIR", "relative", 1);
    assert_int_equal(local_dir_take(&info, &a, &err), ABX_INVALID_ARGUMENT);
}

static void a_control_that_is_away_leaves_nothing(void **state)
{
    struct local_user root = { .uid = 0, .name = "root" };
    struct local_service_info here = info;
    struct local_dir a = LOCAL_DIR_INIT;
    struct test_dir *d = *state;
    struct abx_err err = { 0 };
    char path[128];
    int fd;

    folder(d, path);
    if (geteuid() != 0)
        return; /* refused before control is asked */
    (void)snprintf(here.data_dir, sizeof here.data_dir, "%s", d->path);
    /* A socket that nobody serves any more. */
    (void)snprintf(path, sizeof path, "%s/admin.sock", d->path);
    fd = openat(d->fd, "admin.sock", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(local_publish(&here, path, &root, 1, &a, &err), ABX_UNAVAILABLE);
    assert_false(exists(d, "local/0.env"));
    assert_false(exists(d, "local/0.key"));
    assert_int_equal(local_dir_take(&here, &a, &err), 0); /* free again */
    local_dir_give_up(&a);
}

static void users_have_names_or_numbers(void **state)
{
    struct local_user u;
    struct abx_err err = { 0 };

    assert_int_equal(local_user_find("--user", "root", &u, &err), 0);
    assert_int_equal(u.uid, 0);
    assert_int_equal(local_user_find("--user", "12345678", &u, &err), 0);
    assert_int_equal(u.uid, 12345678);
    assert_string_equal(u.name, "12345678");
    assert_int_equal(local_user_find("--user", "4294967295", &u, &err), ABX_NOT_FOUND);
    assert_int_equal(local_user_find("--user", "no such", &u, &err), ABX_NOT_FOUND);
    assert_non_null(strstr(err.msg, "--user: there is no user 'no such'"));
}

#define T(f) cmocka_unit_test_setup_teardown(f, dir_setup, dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(one_service_has_it),
        T(what_is_not_ours_is_refused),
        T(a_control_that_is_away_leaves_nothing),
        T(users_have_names_or_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
