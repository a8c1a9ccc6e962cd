/* hosts.h - host names of sandboxes and of the service (e2b.md 2.1, 2.4).
 *
 * A sandbox's port is served under `<port>-<id>.<domain>`. The domain may carry a port of its own
 * ("localhost:8490"); it is not compared, since proxies and clients drop or add it.
 */
#pragma once

#include "e2b/ids.h"

#define ENVD_PORT 49983 /* of every sandbox: its daemon */

enum host_kind {
    HOST_OTHER,   /* no host of a sandbox */
    HOST_SANDBOX, /* port and id are set */
    HOST_INVALID, /* below the domain and begins like one, but port or id is not valid: 400 */
};

/* Judges a Host header. `domain` is the service's, with or without port. */
enum host_kind host_parse_sandbox(struct slice host, const char *domain, uint16_t *ret_port,
                                  char ret_id[SANDBOX_ID_SIZE]);

/* The host without its port; brackets of an IPv6 literal stay. */
struct slice host_name(struct slice host);
/* localhost, *.localhost, 127/8 or ::1, with or without port? */
bool host_is_loopback(struct slice host);
/* Is it `domain` itself or a name below it (ports ignored)? */
bool host_is_in_domain(struct slice host, const char *domain);
/* Only characters that a host with port may have, 1..255 of them? */
bool host_is_valid(struct slice host);
