/* Host names of sandboxes and of the service. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "e2b/hosts.h"

static void sandbox_hosts_are_told_from_others(void **state)
{
    static const struct {
        const char *host, *domain;
        enum host_kind kind;
        uint16_t port;
        const char *id;
    } rows[] = {
        { "3000-iabc.sbx.test", "sbx.test", HOST_SANDBOX, 3000, "iabc" },
        { "3000-iabc.sbx.test:8443", "sbx.test", HOST_SANDBOX, 3000, "iabc" },
        { "3000-iabc.sbx.test:8443", "sbx.test:8443", HOST_SANDBOX, 3000, "iabc" },
        { "3000-iabc.SBX.test", "sbx.test:8443", HOST_SANDBOX, 3000, "iabc" },
        { "49983-iabc.localhost:8490", "localhost:8490", HOST_SANDBOX, 49983, "iabc" },
        { "65535-i.x", "x", HOST_SANDBOX, 65535, "i" },
        { "65536-i.x", "x", HOST_INVALID, 0, NULL },
        { "0-i.x", "x", HOST_INVALID, 0, NULL },
        { "80-.x", "x", HOST_INVALID, 0, NULL },
        { "80-I.x", "x", HOST_INVALID, 0, NULL },
        { "80-i-c.x", "x", HOST_INVALID, 0, NULL },
        { "80-i.b.x", "x", HOST_INVALID, 0, NULL },
        { "x", "x", HOST_OTHER, 0, NULL },
        { ".x", "x", HOST_OTHER, 0, NULL },
        { "api.x", "x", HOST_OTHER, 0, NULL },
        { "80.x", "x", HOST_OTHER, 0, NULL },
        { "80-i.y", "x", HOST_OTHER, 0, NULL },
        { "80-i.xx", "x", HOST_OTHER, 0, NULL },
        { "80-ix", "x", HOST_OTHER, 0, NULL },
        { "", "x", HOST_OTHER, 0, NULL },
        { "127.0.0.1:80", "localhost:80", HOST_OTHER, 0, NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint16_t port = 0;
        char id[SANDBOX_ID_SIZE] = "";

        assert_int_equal(host_parse_sandbox(slice_str(rows[i].host), rows[i].domain, &port, id),
                         rows[i].kind);
        assert_int_equal(port, rows[i].port);
        if (rows[i].id)
            assert_string_equal(id, rows[i].id);
    }
}

static void loopback_is_recognised_in_every_spelling(void **state)
{
    static const char *const good[] = { "localhost",   "LOCALHOST:80",     "127.0.0.1",
                                        "127.9.9.9:1", "a.localhost:8490", "[::1]:80",
                                        "[::1]" };
    static const char *const bad[] = { "",           "localhost.x", "128.0.0.1",
                                       "127.0.0",    "127.0.0.1.x", "127.0.0.256",
                                       "xlocalhost", "[::2]:80",    "127.0.0.1.2" };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        assert_true(host_is_loopback(slice_str(good[i])));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_false(host_is_loopback(slice_str(bad[i])));
}

static void names_below_the_domain_are_in_it(void **state)
{
    (void)state;
    assert_true(host_is_in_domain(slice_str("sbx.test:1"), "sbx.test:2"));
    assert_true(host_is_in_domain(slice_str("api.sbx.test"), "sbx.test"));
    assert_false(host_is_in_domain(slice_str("asbx.test"), "sbx.test"));
    assert_false(host_is_in_domain(slice_str("sbx.test.evil"), "sbx.test"));
    assert_false(host_is_in_domain(slice_str("x"), ""));
}

static void odd_bytes_make_a_host_invalid(void **state)
{
    (void)state;
    assert_true(host_is_valid(slice_str("a-b.c_d:80")));
    assert_true(host_is_valid(slice_str("[::1]:80")));
    assert_false(host_is_valid(slice_str("")));
    assert_false(host_is_valid(slice_str("a\"b")));
    assert_false(host_is_valid(slice_str("a/b")));
    assert_false(host_is_valid(slice_str("a@b")));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sandbox_hosts_are_told_from_others),
        cmocka_unit_test(loopback_is_recognised_in_every_spelling),
        cmocka_unit_test(names_below_the_domain_are_in_it),
        cmocka_unit_test(odd_bytes_make_a_host_invalid),
    };

    return cmocka_run_group_tests_name("e2b_hosts", tests, NULL, NULL);
}
