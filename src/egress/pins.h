/* pins.h - which names a sandbox's addresses came from: what was answered to its own questions, and nothing else.
 *
 * Rules by domain hold for an address only under a name that this sandbox asked for and got the address as the answer
 * to. So a name that resolves elsewhere, or that is only claimed, opens nothing. Bounded: the oldest go first.
 */
#pragma once

#include "egress/address.h"

#define PINS_MAX 1024u
#define PIN_LEAST_MS (60u * 60u * 1000u) /* programs keep addresses longer than they may */

struct pin;

struct pins {
    struct pin *list;
    size_t n, cap;
};

void pins_done(struct pins *p);
/* `ip` was the answer to `name`, until `until_ms` (loop time). Out of memory forgets it. */
void pins_put(struct pins *p, const struct in6_addr *ip, const char *name, uint64_t until_ms);
/* Was it the answer to just that name? */
bool pins_has(const struct pins *p, const struct in6_addr *ip, const char *name, uint64_t now_ms);
/* A name that it was the answer to and `fits` likes; NULL. Borrowed until pins_put. */
const char *pins_find(const struct pins *p, const struct in6_addr *ip, uint64_t now_ms,
                      bool (*fits)(void *user, const char *name), void *user);
