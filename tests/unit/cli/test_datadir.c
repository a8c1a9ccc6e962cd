/* test_datadir.c - format file, lock, refusal of newer formats. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/path.h"
#include "cli/datadir.h"

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
    assert_int_equal(datadir_open(path, &a, NULL), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0711);
    assert_int_equal(datadir_instance(path, instance, NULL), 0);
    assert_string_equal(instance, a.instance);
    datadir_done(&a);
    assert_int_equal(datadir_open(path, &b, NULL), 0);
    assert_string_equal(b.instance, instance);
    datadir_done(&b);
}

static void second_supervisor_is_refused_with_the_pid(void **state)
{
    struct datadir a, b;
    struct abx_err err;
    char pid[32];

    (void)state;
    assert_int_equal(datadir_open(path, &a, NULL), 0);
    (void)snprintf(pid, sizeof pid, "process %ld", (long)getpid());
    assert_int_equal(datadir_open(path, &b, &err), ABX_FAILED_PRECONDITION);
    assert_non_null(strstr(err.msg, pid));
    datadir_done(&a);
    assert_int_equal(datadir_open(path, &b, &err), 0);
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
    assert_int_equal(datadir_open(path, &a, NULL), 0);
    datadir_done(&a);
    (void)snprintf(file, sizeof file, "%s/format", path);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_int_equal(
            file_replace(AT_FDCWD, file, rows[i].text, strlen(rows[i].text), 0644, false, NULL), 0);
        assert_int_equal(datadir_open(path, &a, NULL), rows[i].code);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(instance_stays_the_same, set_up, tear_down),
        cmocka_unit_test_setup_teardown(second_supervisor_is_refused_with_the_pid, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(bad_formats_are_refused, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
