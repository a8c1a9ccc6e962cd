/* hostnet.h - the host's own addresses, and whether it has a way to the IPv6 internet: read over netlink and followed.
 *
 * An address is the host's own when its kernel takes packets for it (table `local`: addresses of interfaces, their
 * broadcasts, and whole ranges routed to it). After a change the list is read again as a whole, at most ten times a
 * second; until that is done the old one holds. What a router learns of other networks wakes nobody.
 */
#pragma once

#include <uv.h>

#include "base/err.h"
#include "egress/address.h"

struct hostnet;

/* Opens its sockets and reads everything once, before it returns. `on_change` is called from the loop after each
 * change. */
int hostnet_open(uv_loop_t *loop, void (*on_change)(void *user), void *user, struct hostnet **ret,
                 struct abx_err *err);
bool hostnet_has(const struct hostnet *h, const struct in6_addr *ip);
/* A default route, and an address of 2000::/3 to go by it. */
bool hostnet_has_ipv6(const struct hostnet *h);
/* Frees itself from the loop. NULL is fine. */
void hostnet_close(struct hostnet *h);
