/* test_cgroup_place.c - where the tree goes and which hierarchy limits what. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "engine/cgroup_place.h"

#define M CGROUP_BIT(CGROUP_MEMORY)
#define C CGROUP_BIT(CGROUP_CPU)
#define P CGROUP_BIT(CGROUP_PIDS)
#define F CGROUP_BIT(CGROUP_FREEZER)
#define A CGROUP_BIT(CGROUP_CPUACCT)

static const char hybrid[] = "9:name=systemd:/\n"
                             "4:memory:/job/1\n"
                             "2:cpu,cpuacct:/a:b\n"
                             "0::/user.slice\n";

static void finds_the_own_group_per_hierarchy(void **state)
{
    char path[64];

    assert_true(cgroup_self_path(slice_str(hybrid), NULL, path, sizeof path));
    assert_string_equal(path, "/user.slice");
    assert_true(cgroup_self_path(slice_str(hybrid), "memory", path, sizeof path));
    assert_string_equal(path, "/job/1");
    assert_true(cgroup_self_path(slice_str(hybrid), "cpuacct", path, sizeof path));
    assert_string_equal(path, "/a:b");
    assert_false(cgroup_self_path(slice_str(hybrid), "pids", path, sizeof path));
    assert_false(cgroup_self_path(slice_str("0:\n0"), NULL, path, sizeof path));
    assert_false(cgroup_self_path(slice_str(hybrid), NULL, path, 5));
}

static void a_restarted_role_finds_its_old_tree(void **state)
{
    static const char *const rows[][2] = {
        { "/abx-i1/host", "/" },
        { "/system.slice/abx.service/abx-i1/host", "/system.slice/abx.service" },
        { "/a/host", "/a/host" },
        { "/abx-i1/sandboxes/x/user", "/abx-i1/sandboxes/x/user" },
        { "/host", "/host" },
        { "/", "/" },
    };
    char path[64];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        (void)strncpy(path, rows[i][0], sizeof path - 1);
        path[sizeof path - 1] = '\0';
        cgroup_base_path(path);
        assert_string_equal(path, rows[i][1]);
    }
}

static void maps_a_group_to_the_mount_that_shows_it(void **state)
{
    static const char *const rows[][4] = {
        /* root, target, path, where */
        { "/", "/sys/fs/cgroup", "/", "/sys/fs/cgroup" },
        { "/", "/sys/fs/cgroup", "/a/b", "/sys/fs/cgroup/a/b" },
        { "/docker/x", "/c", "/docker/x", "/c" },
        { "/docker/x", "/c", "/docker/x/y", "/c/y" },
        { "/docker/x", "/c", "/docker/xy", "/c" },
        { "/docker/x", "/c", "/", "/c" },
        { "/", "/c", "/../other", "/c" },
    };
    char at[64];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_true(cgroup_visible_path(rows[i][0], rows[i][1], rows[i][2], at, sizeof at));
        assert_string_equal(at, rows[i][3]);
    }
    assert_false(cgroup_visible_path("/", "/sys/fs/cgroup", "/a", at, 16));
}

static void parses_controller_lists(void **state)
{
    assert_int_equal(cgroup_parse_controllers(slice_str("cpuset cpu io memory pids\n")), M | C | P);
    assert_int_equal(cgroup_parse_controllers(slice_str("")), 0);
    assert_int_equal(cgroup_parse_controllers(slice_str("hugetlb")), 0);
}

static void chooses_per_controller(void **state)
{
    struct cgroup_choice c = cgroup_choose(true, M | C | P, F | A);

    assert_int_equal(c.v2, M | C | P);
    assert_int_equal(c.v1, 0);
    assert_int_equal(c.missing, 0);
    /* hybrid: the tree freezes, v1 limits */
    c = cgroup_choose(true, 0, M | C | P | F | A);
    assert_int_equal(c.v2, 0);
    assert_int_equal(c.v1, M | C | P);
    c = cgroup_choose(true, P, M | C | F);
    assert_int_equal(c.v2, P);
    assert_int_equal(c.v1, M | C);
    /* no tree at all */
    c = cgroup_choose(false, M, M | C | P | F);
    assert_int_equal(c.v2, 0);
    assert_int_equal(c.v1, M | C | P | F);
    assert_int_equal(c.missing, A);
    c = cgroup_choose(false, 0, M);
    assert_true(c.missing & F);
}

static void the_host_keeps_its_share(void **state)
{
    const uint64_t gib = (uint64_t)1 << 30;

    assert_int_equal(cgroup_memory_cap(4 * gib), 3 * gib);
    assert_int_equal(cgroup_memory_cap(100 * gib), 90 * gib);
    assert_int_equal(cgroup_memory_cap(gib), gib / 2);
    assert_int_equal(cgroup_pids_cap(32768), 28672);
    assert_int_equal(cgroup_pids_cap(4096), 2048);
}

static void finds_values_by_whole_key(void **state)
{
    uint64_t n = 0;

    assert_true(cgroup_find_value(slice_str("oom 1\noom_kill 7\n"), "oom_kill", &n));
    assert_int_equal(n, 7);
    assert_true(cgroup_find_value(slice_str("oom_kill 3"), "oom_kill", &n));
    assert_int_equal(n, 3);
    assert_false(cgroup_find_value(slice_str("oom_kill 3"), "oom", &n));
    assert_false(cgroup_find_value(slice_str("oom x"), "oom", &n));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_own_group_per_hierarchy),
        cmocka_unit_test(a_restarted_role_finds_its_old_tree),
        cmocka_unit_test(maps_a_group_to_the_mount_that_shows_it),
        cmocka_unit_test(parses_controller_lists),
        cmocka_unit_test(chooses_per_controller),
        cmocka_unit_test(the_host_keeps_its_share),
        cmocka_unit_test(finds_values_by_whole_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
