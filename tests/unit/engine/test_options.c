/* test_options.c - the engine's command line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/options.h"

#define NEEDED                                                                                     \
    "abx-engine", "--data-dir", "/d", "--run-dir", "/r", "--instance", "i1", "--guest", "/g",      \
        "--templates", "/t:/u"

/* Parses the needed options and up to two more. */
static int parse(const char *a, const char *b, struct options *o, struct abx_err *e)
{
    const char *argv[] = { NEEDED, a, b, NULL };
    int argc = (int)ARRAY_SIZE(argv) - 1 - (a ? 0 : 1) - (b ? 0 : 1);
    bool is_help;

    return options_parse(argc, (char *const *)(uintptr_t)argv, o, &is_help, e);
}

static void defaults_are_filled_in(void **state)
{
    struct options o;

    (void)state;
    assert_int_equal(parse(NULL, NULL, &o, NULL), 0);
    assert_string_equal(o.data_dir, "/d");
    assert_string_equal(o.templates, "/t:/u");
    assert_int_equal(o.defaults.cpu_count, 2);
    assert_int_equal(o.defaults.memory_mb, 1024);
    assert_int_equal(o.control_fd, -1);
    assert_int_equal(o.on_exit, ON_EXIT_BY_SIGNAL);
    assert_false(o.is_worker);
}

static void values_are_parsed(void **state)
{
    struct options o;

    (void)state;
    assert_int_equal(parse("--pool", "base=12", &o, NULL), 0);
    assert_int_equal(o.n_pools, 1);
    assert_string_equal(o.pools[0].template, "base");
    assert_int_equal(o.pools[0].n, 12);
    assert_int_equal(parse("--disk", "3G", &o, NULL), 0);
    assert_true(o.disk_bytes == UINT64_C(3) << 30);
    assert_int_equal(parse("--on-exit", "kill", &o, NULL), 0);
    assert_int_equal(o.on_exit, ON_EXIT_KILL);
    assert_int_equal(parse("--worker", "remove", &o, NULL), 0);
    assert_true(o.is_worker);
    assert_int_equal(o.worker, WORKER_REMOVE);
    assert_int_equal(parse("--mount-path", "string", &o, NULL), 0);
    assert_int_equal(o.mount_path, MOUNT_BY_STRING);
    assert_int_equal(parse("--control-uid", "4294967294", &o, NULL), 0);
}

static void bad_values_name_their_option(void **state)
{
    static const char *const cases[][2] = {
        { "--pool", "base" },
        { "--pool", "=3" },
        { "--pool", "base=1001" },
        { "--disk", "0" },
        { "--disk", "3Q" },
        { "--disk", "99999999999T" },
        { "--instance", "a/b" },
        { "--instance", "" },
        { "--data-dir", "relative" },
        { "--workers", "0" },
        { "--on-exit", "" },
        { "--on-exit", "maybe" },
        { "--control-fd", "-1" },
        { "--worker", "x" },
        { "--mount-path", "y" },
        { "--sandbox-memory-mb", "1" },
        { "--max-cpu", "1" },
        { "--frobnicate", NULL },
        { "word", NULL },
        { "--sandbox-cpu", NULL },
        { "--control-uid", "4294967295" },
    };
    struct options o;
    struct abx_err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        if (parse(cases[i][0], cases[i][1], &o, &e) != ABX_INVALID_ARGUMENT)
            fail_msg("accepted %s %s", cases[i][0], cases[i][1] ? cases[i][1] : "");
        assert_non_null(strstr(e.msg, i == 16 ? "--max-" : cases[i][0]));
    }
}

static void missing_options_are_named(void **state)
{
    const char *argv[] = { "abx-engine", "--data-dir", "/d", NULL };
    struct options o;
    struct abx_err e;
    bool is_help;

    (void)state;
    assert_int_equal(options_parse(3, (char *const *)(uintptr_t)argv, &o, &is_help, &e),
                     ABX_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "--run-dir"));
    argv[1] = "--help";
    assert_int_equal(options_parse(2, (char *const *)(uintptr_t)argv, &o, &is_help, &e), 0);
    assert_true(is_help);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_filled_in),
        cmocka_unit_test(values_are_parsed),
        cmocka_unit_test(bad_values_name_their_option),
        cmocka_unit_test(missing_options_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
