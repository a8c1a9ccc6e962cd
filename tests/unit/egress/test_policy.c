/* test_policy.c - which rule decides about an address, and which names may be asked for. */
#include "test.h"

#include "egress/policy.h"

#define LIST_MAX 32

static bool is_host(void *user, const struct in6_addr *ip)
{
    struct in6_addr own;

    (void)user;
    return ip_parse("203.0.113.1", &own) && ip_equal(ip, &own);
}

/* The operator's, of each policy here. */
static struct range allowed;
static const struct operator_policy operators = { &allowed, 1, is_host, NULL };

static int set_up(void **state)
{
    (void)state;
    assert_true(range_parse("192.168.3.0/24", &allowed));
    return 0;
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
    assert_int_equal(policy_new(&n, &operators, &p, NULL), 0);
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
        { false,
          { 0 },
          { "0.0.0.0/1", "128.0.0.0/1" },
          "8.8.8.8",
          VERDICT_DENY,
          "denyOut 0.0.0.0/1" },
        { false,
          { 0 },
          { "0.0.0.0/1", "128.0.0.0/1" },
          "2606:4700::1",
          VERDICT_DENY,
          "denyOut leaves no IPv4" },
        { false,
          { "::/0" },
          { "0.0.0.0/1", "128.0.0.0/1" },
          "2606:4700::1",
          VERDICT_ALLOW,
          "allowOut ::/0" },
        { false, { 0 }, { "0.0.0.0/1", "128.0.0.0/2" }, "2606:4700::1", VERDICT_ALLOW, "default" },
        { false, { "::/0" }, { "0.0.0.0/0" }, "8.8.8.8", VERDICT_DENY, "denyOut 0.0.0.0/0" },
        { false, { "a.org" }, { "0.0.0.0/0" }, "8.8.8.8", VERDICT_NAME, "denyOut 0.0.0.0/0" },
        { true, { "*.a.org" }, { 0 }, "8.8.8.8", VERDICT_NAME, "allow_internet_access=false" },
        { true, { "*.a.org" }, { 0 }, "10.0.0.1", VERDICT_DENY, "reserved: private" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct policy *p = make(rows[i].no_internet, rows[i].allow, rows[i].deny);
        char rule[POLICY_RULE_SIZE] = "";
        struct in6_addr ip;

        assert_true(ip_parse(rows[i].ip, &ip));
        if (policy_decide(p, &operators, &ip, rule) != rows[i].verdict)
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
    assert_int_equal(policy_new(NULL, &operators, &p, NULL), 0);
    assert_true(policy_allows_all_names(p));
    policy_free(p);
    p = make(false, none, some);
    assert_true(policy_allows_all_names(p));
    policy_free(p);
    p = make(true, none, none);
    assert_false(policy_allows_all_names(p));
    policy_free(p);
}

/* All of IPv4 but the three private ranges and multicast, as lists for other programs have it. */
#define PUBLIC                                                                                     \
    "0.0.0.0/5", "8.0.0.0/7", "11.0.0.0/8", "12.0.0.0/6", "16.0.0.0/4", "32.0.0.0/3",              \
        "64.0.0.0/2", "128.0.0.0/3", "160.0.0.0/5", "168.0.0.0/6", "172.0.0.0/12",                 \
        "172.32.0.0/11", "172.64.0.0/10", "172.128.0.0/9", "173.0.0.0/8", "174.0.0.0/7",           \
        "176.0.0.0/4", "192.0.0.0/9", "192.128.0.0/11", "192.160.0.0/13", "192.169.0.0/16",        \
        "192.170.0.0/15", "192.172.0.0/14", "192.176.0.0/12", "192.192.0.0/10", "193.0.0.0/8",     \
        "194.0.0.0/7", "196.0.0.0/6", "200.0.0.0/5", "208.0.0.0/4"

static void a_list_that_leaves_nothing_denies_all(void **state)
{
    static const struct {
        const char *deny[LIST_MAX];
        bool is_all;
    } rows[] = {
        { { "0.0.0.0/0" }, true },
        { { "0.0.0.0/0", "::/0" }, true },
        { { "7.7.7.7/0" }, true },
        { { "0.0.0.0/1", "128.0.0.0/1" }, true },
        { { "128.0.0.0/1", "1.2.3.4", "0.0.0.0/1", "0.0.0.0/2" }, true },
        { { "200.0.0.0/1", "100.0.0.0/1" }, true }, /* bits behind the prefix */
        { { "::ffff:0:0/96" }, true },
        { { "::ffff:0.0.0.0/97", "128.0.0.0/1" }, true },
        { { "0.0.0.0/2", "64.0.0.0/2", "128.0.0.0/2", "192.0.0.0/2" }, true },
        { { "0.0.0.0/1", "128.0.0.0/2", "192.0.0.0/3" }, true }, /* multicast and reserved left */
        { { "0.0.0.0/1", "128.0.0.0/2" }, false },
        { { "0.0.0.0/1", "128.0.0.0/1", "::/0" }, true },
        { { "0.0.0.0/1" }, false },
        { { "128.0.0.0/1" }, false },
        { { "0.0.0.0/1", "128.0.0.0/2", "208.0.0.0/4" }, false },
        { { "0.0.0.0/1", "129.0.0.0/8" }, false },
        { { "::/0" }, false },
        { { "::/1", "8000::/1" }, false },
        { { "::/95" }, false },
        { { "2000::/3" }, false },
        { { "0.0.0.0" }, false },
        { { "255.255.255.255" }, false },
        /* What the operator opens is left, until it is denied, too. */
        { { PUBLIC }, false },
        { { PUBLIC, "192.168.3.0/24" }, true },
        { { PUBLIC, "192.168.3.0/25" }, false },
        { { PUBLIC, "192.168.3.0/25", "192.168.3.128/25" }, true },
    };
    const char *domain[LIST_MAX] = { "a.org" };
    char rule[POLICY_RULE_SIZE];
    struct in6_addr v6;

    (void)state;
    assert_true(ip_parse("2606:4700::1", &v6));
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct policy *p = make(false, domain, rows[i].deny);
        enum verdict wanted = rows[i].is_all ? VERDICT_NAME : VERDICT_ALLOW;

        if (policy_allows_all_names(p) == rows[i].is_all)
            fail_msg("row %zu, %s: all names %d", i, rows[i].deny[0], !rows[i].is_all);
        if (policy_decide(p, &operators, &v6, rule) != wanted && !strchr(rows[i].deny[0], ':'))
            fail_msg("row %zu, %s: IPv6 by '%s'", i, rows[i].deny[0], rule);
        policy_free(p);
    }
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
    assert_int_equal(policy_new(&n, &operators, &p, &err), ABX_INVALID_ARGUMENT);
    assert_non_null(strstr(err.msg, "1.2.3.4/99"));
    n.n_deny_out = 0;
    n.n_dns_servers = 1;
    n.dns_servers = bad;
    assert_int_equal(policy_new(&n, &operators, &p, &err), ABX_INVALID_ARGUMENT);
    assert_null(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_decide_in_order),
        cmocka_unit_test(names_match_as_said),
        cmocka_unit_test(without_rules_all_names_may_be_asked_for),
        cmocka_unit_test(a_list_that_leaves_nothing_denies_all),
        cmocka_unit_test(what_cannot_be_read_is_refused),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}
