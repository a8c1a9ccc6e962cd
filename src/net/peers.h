/* peers.h - how many connections each client address has, so that one client cannot take them all.
 *
 * An address is an IPv4 address (mapped ones too) or the /64 of an IPv6 address, which one client has as a whole.
 * Loopback and unix peers are not counted: they are of this machine, where a proxy may stand for many clients.
 */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

#include "base/macro.h"

struct peer; /* one address with connections */

#define PEERS_BUCKETS 1024

struct peers {
    struct peer *buckets[PEERS_BUCKETS];
    uint64_t seed;
    size_t max_each;
};

/* At most `max_each` (> 0) connections of one address. NULL when out of memory. */
struct peers *peers_new(size_t max_each);
/* After every connection has left. */
void peers_free(struct peers *p);
/* Counts one more connection of that address; *ret, for peers_leave, is NULL when it is not counted. False when the
 * address has as many as it may, or memory is short. */
bool peers_enter(struct peers *p, const struct sockaddr_storage *address, struct peer **ret);
/* `peer` may be NULL. */
void peers_leave(struct peers *p, struct peer *peer);
