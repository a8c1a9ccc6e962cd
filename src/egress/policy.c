/* policy.c - see policy.h. */
#include "egress/policy.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

struct rules {
    struct range *ranges;
    char **texts; /* of the same number, as they came */
    size_t n;
};

struct policy {
    bool no_internet;
    bool denies_all; /* deny_out leaves no IPv4 address that is not reserved anyway */
    struct rules allow, deny;
    char **domains; /* of allow_out, lower case: "name", ".name" for all below it, "" for all */
    size_t n_domains;
    struct in6_addr *dns;
    size_t n_dns;
    struct proxy *proxy;
    struct tls_trust *trust;
    bool has_trust;
};

static void rules_done(struct rules *r)
{
    for (size_t i = 0; i < r->n; i++)
        free(r->texts[i]);
    free(r->texts);
    free(r->ranges);
}

void policy_free(struct policy *p)
{
    if (!p)
        return;
    rules_done(&p->allow);
    rules_done(&p->deny);
    for (size_t i = 0; i < p->n_domains; i++)
        free(p->domains[i]);
    free(p->domains);
    free(p->dns);
    if (p->proxy)
        explicit_bzero(p->proxy, sizeof *p->proxy);
    free(p->proxy);
    tls_trust_unref(p->trust);
    free(p);
}

static int rules_init(struct rules *r, size_t max, struct abx_err *err)
{
    if (max == 0)
        return 0;
    r->ranges = calloc(max, sizeof *r->ranges);
    r->texts = calloc(max, sizeof(char *));
    return r->ranges && r->texts ? 0 : err_oom(err);
}

/* 1: added, 0: is no range. */
static int rules_add(struct rules *r, const char *text, struct abx_err *err)
{
    if (!range_parse(text, &r->ranges[r->n]))
        return 0;
    r->texts[r->n] = strdup(text);
    if (!r->texts[r->n])
        return err_oom(err);
    r->n++;
    return 1;
}

static int add_domain(struct policy *p, const char *text, struct abx_err *err)
{
    char *copy = strdup(text[0] == '*' ? text + 1 : text);

    if (!copy)
        return err_oom(err);
    for (char *c = copy; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    p->domains[p->n_domains++] = copy;
    return 0;
}

static int fill_allow(struct policy *p, const Abx__Ipc__Network *n, struct abx_err *err)
{
    int r = rules_init(&p->allow, n->n_allow_out, err);

    p->domains = calloc(n->n_allow_out + 1, sizeof(char *));
    if (!p->domains)
        return err_oom(err);
    for (size_t i = 0; r >= 0 && i < n->n_allow_out; i++) {
        r = rules_add(&p->allow, n->allow_out[i], err);
        if (r == 0)
            r = add_domain(p, n->allow_out[i], err);
    }
    return r < 0 ? r : 0;
}

static int fill_deny(struct policy *p, const Abx__Ipc__Network *n, struct abx_err *err)
{
    int r = rules_init(&p->deny, n->n_deny_out, err);

    for (size_t i = 0; r >= 0 && i < n->n_deny_out; i++) {
        r = rules_add(&p->deny, n->deny_out[i], err);
        if (r == 0)
            r = err_set(err, ABX_INVALID_ARGUMENT, "deny_out: '%.64s' is no range", n->deny_out[i]);
    }
    return r < 0 ? r : 0;
}

static int fill_dns(struct policy *p, const Abx__Ipc__Network *n, struct abx_err *err)
{
    if (n->n_dns_servers == 0)
        return 0;
    p->dns = calloc(n->n_dns_servers, sizeof *p->dns);
    if (!p->dns)
        return err_oom(err);
    for (size_t i = 0; i < n->n_dns_servers; i++)
        if (!ip_parse(n->dns_servers[i], &p->dns[p->n_dns++]))
            return err_set(err, ABX_INVALID_ARGUMENT, "dns_servers: '%.64s' is no address",
                           n->dns_servers[i]);
    return 0;
}

/* A certificate that cannot be read makes the proxy useless, and no more than that. */
static int fill_tls(struct policy *p, const Abx__Ipc__EgressProxyTls *tls, struct abx_err *err)
{
    if (!tls)
        return 0;
    if (!*tls->server_name || strlen(tls->server_name) >= sizeof p->proxy->tls_name)
        return err_set(err, ABX_INVALID_ARGUMENT, "egress_proxy: '%.64s' is no name of a server",
                       tls->server_name);
    (void)snprintf(p->proxy->tls_name, sizeof p->proxy->tls_name, "%s", tls->server_name);
    p->has_trust = *tls->ca_cert != '\0';
    if (p->has_trust)
        (void)tls_trust_new(slice_str(tls->ca_cert), &p->trust, NULL);
    return 0;
}

static int fill_proxy(struct policy *p, const Abx__Ipc__EgressProxy *proxy, struct abx_err *err)
{
    if (!proxy)
        return 0;
    p->proxy = calloc(1, sizeof *p->proxy);
    if (!p->proxy)
        return err_oom(err);
    if (!proxy_parse(proxy->address, PROXY_SOCKS5, p->proxy) ||
        strlen(proxy->username) >= sizeof p->proxy->user ||
        strlen(proxy->password) >= sizeof p->proxy->password)
        return err_set(err, ABX_INVALID_ARGUMENT, "egress_proxy: '%.64s' is not HOST:PORT",
                       proxy->address);
    (void)snprintf(p->proxy->user, sizeof p->proxy->user, "%s", proxy->username);
    (void)snprintf(p->proxy->password, sizeof p->proxy->password, "%s", proxy->password);
    return fill_tls(p, proxy->tls, err);
}

/* --- what deny_out leaves ----------------------------------------------------------------------- */

/* Addresses of IPv4, as numbers; both ends belong to it. */
struct span {
    uint32_t first, last;
};

struct spans {
    struct span *list;
    size_t n;
};

/* The IPv4 addresses of a range; false: it has none. */
static bool span_of(const struct range *r, struct span *ret)
{
    const uint8_t *at = &r->prefix.s6_addr[12];
    uint32_t own = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    uint32_t rest = r->bits <= 96 ? UINT32_MAX : (uint32_t)(UINT64_C(0xffffffff) >> (r->bits - 96));

    if (r->bits < 96) {
        *ret = (struct span){ 0, UINT32_MAX }; /* "0.0.0.0/0": every address there is */
        return !r->is_v6_only;
    }
    *ret = (struct span){ own & ~rest, own | rest };
    return ip_is_v4(&r->prefix);
}

/* `s` without what the operator allows: up to o->n_allow + 1 pieces. */
static void add_reserved(struct spans *to, struct span s, const struct operator_policy *o, size_t i)
{
    struct span open = { 0 };

    while (i < o->n_allow &&
           (!span_of(&o->allow[i], &open) || open.last < s.first || open.first > s.last))
        i++;
    if (i == o->n_allow) {
        to->list[to->n++] = s;
        return;
    }
    if (open.first > s.first)
        add_reserved(to, (struct span){ s.first, open.first - 1 }, o, i + 1);
    if (open.last < s.last)
        add_reserved(to, (struct span){ open.last + 1, s.last }, o, i + 1);
}

static int compare_spans(const void *a, const void *b)
{
    const struct span *x = a, *y = b;

    return x->first < y->first ? -1 : x->first > y->first;
}

static bool is_whole(struct spans *s)
{
    uint64_t next = 0;

    qsort(s->list, s->n, sizeof *s->list, compare_spans);
    for (size_t i = 0; i < s->n && s->list[i].first <= next; i++)
        next = MAX(next, (uint64_t)s->list[i].last + 1);
    return next > UINT32_MAX;
}

/* A list may say "everything" in parts. */
static int find_denies_all(struct policy *p, const struct operator_policy *o, struct abx_err *err)
{
    _cleanup_(freep) struct span *list = NULL;
    struct spans all = { 0 };
    struct range r;

    if (p->deny.n == 0)
        return 0;
    list = calloc(p->deny.n + IP_RESERVED_MAX * (o->n_allow + 1), sizeof *list);
    if (!list)
        return err_oom(err);
    all.list = list;
    for (size_t i = 0; i < p->deny.n; i++)
        all.n += span_of(&p->deny.ranges[i], &list[all.n]);
    for (size_t i = 0; ip_reserved_range(i, &r); i++) {
        struct span s;

        if (span_of(&r, &s))
            add_reserved(&all, s, o, 0);
    }
    p->denies_all = is_whole(&all);
    return 0;
}

/* --- life --------------------------------------------------------------------------------------- */

int policy_new(const Abx__Ipc__Network *network, const struct operator_policy *o,
               struct policy **ret, struct abx_err *err)
{
    _cleanup_(policy_freep) struct policy *p = calloc(1, sizeof *p);
    int r = 0;

    if (!p)
        return err_oom(err);
    if (network) {
        p->no_internet = network->no_internet;
        r = fill_allow(p, network, err);
        if (r == 0)
            r = fill_deny(p, network, err);
        if (r == 0)
            r = fill_dns(p, network, err);
        if (r == 0)
            r = fill_proxy(p, network->egress_proxy, err);
        if (r == 0)
            r = find_denies_all(p, o, err);
    }
    if (r < 0)
        return r;
    *ret = TAKE_PTR(p);
    return 0;
}

static const char *rules_find(const struct rules *r, const struct in6_addr *ip)
{
    for (size_t i = 0; i < r->n; i++)
        if (range_contains(&r->ranges[i], ip))
            return r->texts[i];
    return NULL;
}

static bool operator_allows(const struct operator_policy *o, const struct in6_addr *ip)
{
    for (size_t i = 0; i < o->n_allow; i++)
        if (range_contains(&o->allow[i], ip))
            return true;
    return false;
}

const char *policy_reserved(const struct operator_policy *o, const struct in6_addr *ip)
{
    const char *kind = operator_allows(o, ip) ? NULL : ip_reserved(ip);

    if (kind || operator_allows(o, ip))
        return kind;
    return o->is_host(o->user, ip) ? "the host's own" : NULL;
}

enum verdict policy_decide(const struct policy *p, const struct operator_policy *o,
                           const struct in6_addr *ip, char ret_rule[POLICY_RULE_SIZE])
{
    const char *text = policy_reserved(o, ip);

    if (text) {
        (void)snprintf(ret_rule, POLICY_RULE_SIZE, "reserved: %s", text);
        return VERDICT_DENY;
    }
    text = rules_find(&p->allow, ip);
    if (text) {
        (void)snprintf(ret_rule, POLICY_RULE_SIZE, "allowOut %.128s", text);
        return VERDICT_ALLOW;
    }
    text = rules_find(&p->deny, ip);
    if (!text && !p->no_internet && !p->denies_all) {
        (void)snprintf(ret_rule, POLICY_RULE_SIZE, "default");
        return VERDICT_ALLOW;
    }
    if (text)
        (void)snprintf(ret_rule, POLICY_RULE_SIZE, "denyOut %.128s", text);
    else
        (void)snprintf(ret_rule, POLICY_RULE_SIZE,
                       p->no_internet ? "allow_internet_access=false" : "denyOut leaves no IPv4");
    return p->n_domains > 0 ? VERDICT_NAME : VERDICT_DENY;
}

bool policy_has_name(const struct policy *p, const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < p->n_domains; i++) {
        const char *domain = p->domains[i];
        size_t m = strlen(domain);

        if (m == 0)
            return true;
        if (domain[0] == '.' ? n > m && strcmp(name + n - m, domain) == 0
                             : strcmp(name, domain) == 0)
            return true;
    }
    return false;
}

bool policy_allows_all_names(const struct policy *p)
{
    return !p->no_internet && !p->denies_all;
}

const struct proxy *policy_proxy(const struct policy *p)
{
    return p->proxy;
}

bool policy_proxy_trust(const struct policy *p, struct tls_trust **ret)
{
    *ret = p->trust;
    return p->has_trust;
}

size_t policy_dns_servers(const struct policy *p, const struct in6_addr **ret)
{
    *ret = p->dns;
    return p->n_dns;
}
