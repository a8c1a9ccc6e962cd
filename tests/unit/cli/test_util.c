/* test_util.c - option values of the commands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cli/cli.h"

static const struct cli_size any_bytes = { 1, 0, UINT64_MAX };

static void size_accepts_units(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        { "0", 0 },
        { "4096", 4096 },
        { "1K", 1024 },
        { "2m", 2u << 20 },
        { "10G", UINT64_C(10) << 30 },
        { "3T", UINT64_C(3) << 40 },
        { "1Ki", 1024 },
        { "2Mi", 2u << 20 },
        { "10gi", UINT64_C(10) << 30 },
        { "3TiB", UINT64_C(3) << 40 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        uint64_t v = 7;

        assert_int_equal(cli_parse_size("--x", good[i].text, &any_bytes, &v, NULL), 0);
        assert_int_equal(v, good[i].bytes);
    }
}

static void size_refuses_what_is_none(void **state)
{
    static const char *const bad[] = {
        "",     "K",   "-1",  "1.5G", "1GB", "1 G", "99999999999999T",
        "0x10", "1Gb", "1GI", "i",    "1i",  "1 ",  "1+"
    };
    struct abx_err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        uint64_t v = 7;

        assert_int_equal(cli_parse_size("--disk", bad[i], &any_bytes, &v, &err),
                         ABX_INVALID_ARGUMENT);
        assert_non_null(strstr(err.msg, "--disk"));
        assert_int_equal(v, 7);
    }
}

static void size_counts_its_unit_and_names_its_limits(void **state)
{
    static const struct cli_size mib = { 1 << 20, 16 << 20, UINT64_C(2) << 40 };
    static const char *const outside[] = { "15", "15M", "0", "2097153", "3T", "99999999999999T" };
    struct abx_err err;
    uint64_t v = 7;

    (void)state;
    assert_int_equal(cli_parse_size("--memory", "16", &mib, &v, &err), 0);
    assert_int_equal(v, 16 << 20);
    assert_int_equal(cli_parse_size("--memory", "16384K", &mib, &v, &err), 0);
    assert_int_equal(v, 16 << 20);
    assert_int_equal(cli_parse_size("--memory", "2T", &mib, &v, &err), 0);
    for (size_t i = 0; i < ARRAY_SIZE(outside); i++) {
        assert_int_equal(cli_parse_size("--memory", outside[i], &mib, &v, &err),
                         ABX_INVALID_ARGUMENT);
        assert_non_null(strstr(err.msg, "--memory '"));
        assert_non_null(strstr(err.msg, "' is not within 16M to 2T"));
    }
    assert_int_equal(cli_parse_size("--memory", "1GB", &mib, &v, &err), ABX_INVALID_ARGUMENT);
    assert_non_null(strstr(err.msg, "or a number of MiB"));
}

static void number_names_option_and_limits(void **state)
{
    struct abx_err err;
    uint64_t v = 7;

    (void)state;
    assert_int_equal(cli_parse_number("--gateways", "64", 1, 64, &v, &err), 0);
    assert_int_equal(v, 64);
    assert_int_equal(cli_parse_number("--gateways", "65", 1, 64, &v, &err), ABX_INVALID_ARGUMENT);
    assert_non_null(strstr(err.msg, "--gateways"));
    assert_non_null(strstr(err.msg, "1 to 64"));
    assert_int_equal(cli_parse_number("--gateways", "0", 1, 64, &v, &err), ABX_INVALID_ARGUMENT);
    assert_int_equal(cli_parse_number("--gateways", "1x", 1, 64, &v, &err), ABX_INVALID_ARGUMENT);
}

static void duration_has_units_and_no_zero(void **state)
{
    static const struct {
        const char *text;
        uint64_t s;
    } good[] = { { "90", 90 }, { "90s", 90 }, { "15m", 900 }, { "24h", 86400 }, { "7d", 604800 } };
    static const char *const bad[] = { "", "0", "h", "1w", "-5", "1.5h", "99999999999d" };
    uint64_t v = 7;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        assert_int_equal(cli_parse_duration("--x", good[i].text, &v, NULL), 0);
        assert_int_equal(v, good[i].s);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(cli_parse_duration("--x", bad[i], &v, NULL), ABX_INVALID_ARGUMENT);
}

static void absolute_path_keeps_and_completes(void **state)
{
    char to[4096], small[4];
    struct abx_err err;

    (void)state;
    assert_int_equal(cli_absolute("--d", "/var/lib/abx/", to, sizeof to, NULL), 0);
    assert_string_equal(to, "/var/lib/abx");
    assert_int_equal(cli_absolute("--d", "x/y", to, sizeof to, NULL), 0);
    assert_true(to[0] == '/' && strcmp(to + strlen(to) - 4, "/x/y") == 0);
    assert_int_equal(cli_absolute("--d", "/var", small, sizeof small, NULL), ABX_INVALID_ARGUMENT);
    /* What a script with an unset variable gives is not the working folder. */
    assert_int_equal(cli_absolute("--d", "", to, sizeof to, &err), ABX_INVALID_ARGUMENT);
    assert_string_equal(err.msg, "--d is empty");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(size_accepts_units),
        cmocka_unit_test(size_refuses_what_is_none),
        cmocka_unit_test(size_counts_its_unit_and_names_its_limits),
        cmocka_unit_test(number_names_option_and_limits),
        cmocka_unit_test(duration_has_units_and_no_zero),
        cmocka_unit_test(absolute_path_keeps_and_completes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
