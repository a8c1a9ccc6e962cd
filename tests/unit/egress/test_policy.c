/* test_policy.c - which rule decides about an address, and which names may be asked for. */
#include "test.h"

#include "egress/policy.h"

#define LIST_MAX 4

static bool is_host(void *user, const struct in6_addr *ip)
{
    struct in6_addr own;

    (void)user;
    return ip_parse("203.0.113.1", &own) && ip_equal(ip, &own);
}

static struct policy *make(bool no_internet, const char *const *allow, const char *const *deny)
{
    Abx__Ipc__Network n = ABX__IPC__NETWORK__INIT;
    struct policy *p = NULL;

    n.no_internet = no_internet;
    n.allow_out = (char **)(uintptr_t)allow;
    n.deny_out = (char **)(uintptr_t)deny;
    while (n.n_allow_out < LIST_MAX && allow[n.n_allow_out])
        n.n_allow_out++;
    while (n.n_deny_out < LIST_MAX && deny[n.n_deny_out])
        n.n_deny_out++;
    assert_int_equal(policy_new(&n, &p, NULL), 0);
    return p;
}

static void rules_decide_in_order(void **state)
{
    static const struct {
        bool no_internet;
        const char *allow[LIST_MAX], *deny[LIST_MAX];
        const char *ip;
        enum verdict verdict;
        const char *rule;
    } rows[] = {
        { false, { 0 }, { 0 }, "8.8.8.8", VERDICT_ALLOW, "default" },
        { false, { 0 }, { 0 }, "10.0.0.1", VERDICT_DENY, "reserved: private" },
        { false, { "10.0.0.1" }, { 0 }, "10.0.0.1", VERDICT_DENY, "reserved: private" },
        { false, { "0.0.0.0/0" }, { 0 }, "203.0.113.1", VERDICT_DENY, "reserved: the host's own" },
        { false, { 0 }, { 0 }, "192.168.3.4", VERDICT_ALLOW, "default" }, /* by the operator */
        { true, { 0 }, { 0 }, "192.168.3.4", VERDICT_DENY, "allow_internet_access=false" },
        { true, { 0 }, { 0 }, "8.8.8.8", VERDICT_DENY, "allow_internet_access=false" },
        { true, { "8.8.8.0/24" }, { 0 }, "8.8.8.8", VERDICT_ALLOW, "allowOut 8.8.8.0/24" },
        { false, { 0 }, { "8.8.8.8" }, "8.8.8.8", VERDICT_DENY, "denyOut 8.8.8.8" },
        { false, { 0 }, { "8.8.8.8" }, "8.8.4.4", VERDICT_ALLOW, "default" },
        { false, { "8.8.8.8" }, { "0.0.0.0/0" }, "8.8.8.8", VERDICT_ALLOW, "allowOut 8.8.8.8" },
        { false, { 0 }, { "0.0.0.0/0" }, "2606:4700::1", VERDICT_DENY, "denyOut 0.0.0.0/0" },
        { false, { 0 }, { "::/0" }, "2606:4700::1", VERDICT_DENY, "denyOut ::/0" },
        { false, { 0 }, { "::/0" }, "8.8.8.8", VERDICT_ALLOW, "default" },
        { false, { "::/0" }, { "0.0.0.0/0" }, "8.8.8.8", VERDICT_DENY, "denyOut 0.0.0.0/0" },
        { false, { "a.org" }, { "0.0.0.0/0" }, "8.8.8.8", VERDICT_NAME, "denyOut 0.0.0.0/0" },
        { true, { "*.a.org" }, { 0 }, "8.8.8.8", VERDICT_NAME, "allow_internet_access=false" },
        { true, { "*.a.org" }, { 0 }, "10.0.0.1", VERDICT_DENY, "reserved: private" },
    };
    struct range allowed;
    struct operator_policy o = { &allowed, 1, is_host, NULL };

    (void)state;
    assert_true(range_parse("192.168.3.0/24", &allowed));
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct policy *p = make(rows[i].no_internet, rows[i].allow, rows[i].deny);
        char rule[POLICY_RULE_SIZE] = "";
        struct in6_addr ip;

        assert_true(ip_parse(rows[i].ip, &ip));
        if (policy_decide(p, &o, &ip, rule) != rows[i].verdict)
            fail_msg("row %zu: %s: verdict by '%s'", i, rows[i].ip, rule);
        test_text(rows[i].ip, rule, rows[i].rule);
        policy_free(p);
    }
}

static void names_match_as_said(void **state)
{
    static const struct {
        const char *domain, *name;
        bool is_allowed;
    } rows[] = {
        { "a.org", "a.org", true },
        { "A.Org", "a.org", true },
        { "a.org", "b.a.org", false },
        { "a.org", "ba.org", false },
        { "*.a.org", "b.a.org", true },
        { "*.a.org", "c.b.a.org", true },
        { "*.a.org", "a.org", false },
        { "*.a.org", "xa.org", false },
        { "*", "anything.example", true },
        { "a.org", "a.org.evil.example", false },
        { "a.org", "", false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *allow[LIST_MAX] = { rows[i].domain }, *deny[LIST_MAX] = { "0.0.0.0/0" };
        struct policy *p = make(false, allow, deny);

        if (policy_has_name(p, rows[i].name) != rows[i].is_allowed)
            fail_msg("'%s' by '%s'", rows[i].name, rows[i].domain);
        assert_false(policy_allows_all_names(p));
        policy_free(p);
    }
}

static void without_rules_all_names_may_be_asked_for(void **state)
{
    const char *none[LIST_MAX] = { 0 }, *some[LIST_MAX] = { "8.8.8.8" };
    struct policy *p = NULL;

    (void)state;
    assert_int_equal(policy_new(NULL, &p, NULL), 0);
    assert_true(policy_allows_all_names(p));
    policy_free(p);
    p = make(false, none, some);
    assert_true(policy_allows_all_names(p));
    policy_free(p);
    p = make(true, none, none);
    assert_false(policy_allows_all_names(p));
    policy_free(p);
}

static void what_cannot_be_read_is_refused(void **state)
{
    Abx__Ipc__Network n = ABX__IPC__NETWORK__INIT;
    char *bad[] = { (char[]){ "1.2.3.4/99" } };
    struct policy *p = NULL;
    struct abx_err err = { 0 };

    (void)state;
    n.n_deny_out = 1;
    n.deny_out = bad;
    assert_int_equal(policy_new(&n, &p, &err), ABX_INVALID_ARGUMENT);
    assert_non_null(strstr(err.msg, "1.2.3.4/99"));
    n.n_deny_out = 0;
    n.n_dns_servers = 1;
    n.dns_servers = bad;
    assert_int_equal(policy_new(&n, &p, &err), ABX_INVALID_ARGUMENT);
    assert_null(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_decide_in_order),
        cmocka_unit_test(names_match_as_said),
        cmocka_unit_test(without_rules_all_names_may_be_asked_for),
        cmocka_unit_test(what_cannot_be_read_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
