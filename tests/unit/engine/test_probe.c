/* test_probe.c - what is printed of a result. The checks themselves are for the system tests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/probe.h"

static struct probe_check check(const char *name, enum probe_status status, const char *value)
{
    struct probe_check c = { .status = status };

    (void)snprintf(c.name, sizeof c.name, "%s", name);
    (void)snprintf(c.value, sizeof c.value, "%s", value);
    return c;
}

static void one_missing_check_is_enough(void **state)
{
    struct probe p = { .n_checks = 3 };

    p.checks[0] = check("a", PROBE_OK, "");
    p.checks[1] = check("b", PROBE_DEGRADED, "");
    p.checks[2] = check("c", PROBE_INFO, "");
    assert_true(probe_can_run(&p));
    p.checks[1].status = PROBE_MISSING;
    assert_false(probe_can_run(&p));
    p.checks[1].status = PROBE_OK;
    p.checks[3].status = PROBE_MISSING; /* behind the end */
    assert_true(probe_can_run(&p));
}

static void json_is_exact(void **state)
{
    struct probe p = { .n_checks = 2 };
    struct buf b = BUF_INIT(4096);

    p.checks[0] = check("a", PROBE_OK, "say \"x\"\\\n\x01");
    p.checks[1] = check("b", PROBE_MISSING, "\xff\xc3");
    (void)snprintf(p.checks[1].fix, sizeof p.checks[1].fix, "\xc3\xa9");
    assert_int_equal(probe_format_json(&p, &b), BUF_OK);
    assert_string_equal(buf_cstr(&b),
                        "{\"can_run\": false, \"checks\": [\n"
                        "  {\"name\": \"a\", \"status\": \"ok\", \"value\": "
                        "\"say \\\"x\\\"\\\\\\u000a\\u0001\", \"meaning\": \"\", \"fix\": \"\"},\n"
                        "  {\"name\": \"b\", \"status\": \"missing\", \"value\": \"?\?\", "
                        "\"meaning\": \"\", \"fix\": \"\xc3\xa9\"}\n]}\n");
    buf_done(&b);
}

static void text_explains_only_what_needs_it(void **state)
{
    struct probe p = { .n_checks = 2 };
    struct buf b = BUF_INIT(4096);

    p.checks[0] = check("a", PROBE_OK, "fine");
    p.checks[1] = check("b", PROBE_DEGRADED, "less");
    (void)snprintf(p.checks[1].meaning, sizeof p.checks[1].meaning, "so");
    assert_int_equal(probe_format_text(&p, &b), BUF_OK);
    assert_non_null(strstr(buf_cstr(&b), "ok        a                    fine\ndegraded"));
    assert_non_null(strstr(buf_cstr(&b), "  so\n"));
    assert_null(strstr(buf_cstr(&b), "to get it"));
    buf_done(&b);
}

static void a_full_buffer_is_said(void **state)
{
    struct probe p = { .n_checks = 1 };
    struct buf b = BUF_INIT(40);

    p.checks[0] = check("a", PROBE_OK, "fine");
    assert_int_equal(probe_format_json(&p, &b), BUF_LIMIT);
    buf_done(&b);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_missing_check_is_enough),
        cmocka_unit_test(json_is_exact),
        cmocka_unit_test(text_explains_only_what_needs_it),
        cmocka_unit_test(a_full_buffer_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
