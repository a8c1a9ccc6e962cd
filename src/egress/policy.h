/* policy.h - what one sandbox may reach, compiled from what control sends; and what the operator says for all.
 *
 * Order: (1) reserved ranges and the host's own addresses are refused unless the operator allows them, whatever the
 * sandbox's rules say; (2) allow_out; (3) deny_out, no_internet; (4) everything else is allowed. So allow beats deny.
 * A deny_out that leaves no IPv4 address but reserved ones is everything, IPv6 too, in however many parts it says so:
 * as "0.0.0.0/0" is.
 * A domain in allow_out is matched against the name that a connection gives and the sandbox asked for (flow.h).
 */
#pragma once

#include "base/err.h"
#include "egress/address.h"
#include "egress/proxy.h"
#include "net/tls.h"
#include "schema/ipc.pb-c.h"

#define POLICY_RULE_SIZE 160

/* For all sandboxes. */
struct operator_policy {
    const struct range *allow; /* although reserved */
    size_t n_allow;
    bool (*is_host)(void *user, const struct in6_addr *ip); /* an address of the machine itself */
    void *user;
};

struct policy;

/* `network` may be NULL: everything is allowed. `o` is borrowed for the call; what it allows stays the same for the
 * life of the process. INVALID_ARGUMENT for an entry that cannot be read. */
int policy_new(const Abx__Ipc__Network *network, const struct operator_policy *o,
               struct policy **ret, struct abx_err *err);
void policy_free(struct policy *p);
DEFINE_CLEANUP(struct policy *, policy_free)

enum verdict {
    VERDICT_ALLOW,
    VERDICT_DENY,
    VERDICT_NAME, /* only under a name that allow_out has */
};

/* May `ip` be reached? `ret_rule` says which rule decided, for the log. */
enum verdict policy_decide(const struct policy *p, const struct operator_policy *o,
                           const struct in6_addr *ip, char ret_rule[POLICY_RULE_SIZE]);
/* Why nobody reaches `ip` whom the operator does not let; NULL when it is an address like any other. */
const char *policy_reserved(const struct operator_policy *o, const struct in6_addr *ip);
/* Is the host name, lower case and without a dot at its end, one that allow_out has? */
bool policy_has_name(const struct policy *p, const char *name);
/* May any name be asked for? Else those alone that allow_out has: questions lead out, too. */
bool policy_allows_all_names(const struct policy *p);
/* The sandbox's own proxy; NULL without. Borrowed. */
const struct proxy *policy_proxy(const struct policy *p);
/* Who has to have signed its certificate: false, whoever the host trusts. *ret is NULL when what the rules say of it
 * cannot be read; borrowed. */
bool policy_proxy_trust(const struct policy *p, struct tls_trust **ret);
/* The sandbox's own servers of names; how many. */
size_t policy_dns_servers(const struct policy *p, const struct in6_addr **ret);
