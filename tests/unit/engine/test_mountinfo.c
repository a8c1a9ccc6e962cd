/* test_mountinfo.c - lines of /proc/self/mountinfo. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "engine/mountinfo.h"

static const char text[] =
    "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
    "garbage\n"
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "35 31 0:32 /docker/x /sys/fs/cgroup/memory rw,relatime shared:5 master:1 - cgroup cgroup "
    "rw,memory\n"
    "40 27 7:0 / /data\\040dir/pool rw,nosuid - btrfs /dev/loop0 rw,subvolid=5\n"
    "41 40 7:1 / /data\\040dir/pool rw - xfs /dev/loop1 rw\n"
    "42 27 7:1 / /no-separator rw xfs /dev/loop1 rw\n";

static void reads_fields_and_optional_tags(void **state)
{
    struct slice rest = slice_str(text);
    struct mountinfo m;

    for (int i = 0; i < 3; i++)
        assert_true(mountinfo_next(&rest, &m));
    assert_string_equal(m.root, "/docker/x");
    assert_string_equal(m.target, "/sys/fs/cgroup/memory");
    assert_string_equal(m.fstype, "cgroup");
    assert_true(mountinfo_has_word(m.super_options, "memory"));
    assert_false(mountinfo_has_word(m.super_options, "mem"));
}

static void skips_malformed_lines(void **state)
{
    struct slice rest = slice_str(text);
    struct mountinfo m;
    int n = 0;

    while (mountinfo_next(&rest, &m))
        n++;
    assert_int_equal(n, 5);
}

static void finds_the_mount_on_top(void **state)
{
    struct mountinfo m;

    assert_true(mountinfo_find(slice_str(text), "/data dir/pool", &m));
    assert_string_equal(m.fstype, "xfs");
    assert_string_equal(m.source, "/dev/loop1");
    assert_true(mountinfo_find(slice_str(text), "/sys/fs/cgroup", &m));
    assert_string_equal(m.fstype, "tmpfs");
    assert_false(mountinfo_find(slice_str(text), "/data", &m));
    assert_false(mountinfo_find(slice_str(text), "/no-separator", &m));
}

static void leaves_out_paths_that_are_too_long(void **state)
{
    char line[PATH_MAX + 64] = "1 2 0:1 / /";
    struct slice rest;
    struct mountinfo m;
    size_t n = strlen(line);

    memset(line + n, 'a', PATH_MAX);
    memcpy(line + n + PATH_MAX, " rw - x y z", 12);
    rest = slice_str(line);
    assert_false(mountinfo_next(&rest, &m));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_fields_and_optional_tags),
        cmocka_unit_test(skips_malformed_lines),
        cmocka_unit_test(finds_the_mount_on_top),
        cmocka_unit_test(leaves_out_paths_that_are_too_long),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
