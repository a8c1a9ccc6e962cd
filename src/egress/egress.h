/* egress.h - the only way out of sandboxes: takes what they dial, decides, dials itself and relays.
 *
 * One process for all sandboxes of a service, in the host's network namespace. Control streams to it which
 * sandboxes there are and what each may reach; the engine gives it the sockets at which a sandbox's connections end
 * (engine/steer.h). Nothing else leads out of a sandbox: without this process everything is refused.
 */
#pragma once

#include <uv.h>

#include "base/err.h"
#include "egress/address.h"
#include "egress/proxy.h"
#include "net/counters.h"

struct egress;

#define EGRESS_ALLOW_MAX 64
#define EGRESS_SERVERS_MAX 4

struct egress_opts {
    uv_loop_t *loop;
    const char *table_path;               /* SEQPACKET to control */
    const char *engine_path;              /* SEQPACKET to the engine; both are borrowed */
    struct range allow[EGRESS_ALLOW_MAX]; /* reserved ranges that may be reached all the same */
    size_t n_allow;
    const char
        *resolv_path; /* resolv.conf, read again when it changes; NULL: `servers` are asked */
    struct address servers[EGRESS_SERVERS_MAX];
    size_t n_servers;
    struct proxy proxy; /* through which everything goes; kind NONE without */
    struct address proxy_at;
    int roots_fd;   /* a file with the certificates that the host trusts, borrowed; -1 without */
    size_t max_fds; /* that this process may have: what connections take is kept below */
    size_t max_sandbox_connections;   /* of each */
    struct egress_counters *counters; /* borrowed */
};

/* Reads the host's addresses and begins to connect. */
int egress_new(const struct egress_opts *opts, struct egress **ret, struct abx_err *err);
/* Breaks everything off. After the loop has run dry egress_free frees the memory. */
void egress_close(struct egress *e);
void egress_free(struct egress *e);
