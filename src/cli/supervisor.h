/* supervisor.h - starts the roles of a service, keeps their listeners, restarts what dies.
 *
 * Holds no state but the listeners and the roles' pids. It is child subreaper, so sandboxes whose
 * engine died are reaped here. A role that dies is started again after 50 ms, doubling up to 5 s
 * and back to 50 ms once it has run for 1 s; before the service is ready a death ends the start.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "cli/local_dir.h"
#include "cli/supervisor_listen.h"
#include "cli/supervisor_tls.h"

#define SUPERVISOR_POOLS_MAX 32
#define SUPERVISOR_EGRESS_ALLOW_MAX 32 /* egress takes as many */
#define SUPERVISOR_EGRESS_DNS_MAX 4    /* the same */

enum exit_policy { EXIT_BY_SIGNAL, EXIT_KILL, EXIT_KEEP };

struct supervisor_opts {
    const char *data_dir; /* absolute */
    struct listen_address listen;
    struct tls_opts tls;
    const char *domain;                      /* NULL = localhost:PORT */
    const char *pools[SUPERVISOR_POOLS_MAX]; /* "TEMPLATE=N", NULL-terminated */
    uint64_t disk_bytes;                     /* of the image that is made; 0 = by the free space */
    enum exit_policy on_exit;
    uid_t role_uid;    /* 0 = by instance */
    size_t n_gateways; /* 1..LISTEN_GATEWAYS_MAX */
    uint64_t max_timeout_s;
    uint64_t cpu, memory_mb, disk_mb; /* defaults of a sandbox */
    uint64_t max_cpu, max_memory_mb, max_disk_mb;
    uint64_t max_sandboxes;           /* 0 = no limit */
    uint64_t max_snapshots;           /* 0 = no limit */
    uint64_t max_client_connections;  /* of one address, for each gateway; 0 = its default */
    uint64_t max_sandbox_connections; /* into one sandbox, for each gateway; 0 = its default */
    uint64_t
        max_key_connections; /* of one API key, for each gateway and for control; 0 = their default */
    uint64_t metrics_keep_s;                               /* 0 = control's default */
    uint64_t max_log_lines, max_idempotency_keys;          /* the same */
    const char *egress_allow[SUPERVISOR_EGRESS_ALLOW_MAX]; /* reserved CIDRs that sandboxes reach */
    size_t n_egress_allow;
    const char *egress_dns[SUPERVISOR_EGRESS_DNS_MAX]; /* instead of the host's */
    size_t n_egress_dns;
    const char *egress_proxy;                       /* URL; NULL = none */
    bool has_access_log;                            /* a line for each request */
    struct local_user local_users[LOCAL_USERS_MAX]; /* whose clients find the service */
    size_t n_local_users;
};

/* Runs the service until a signal ends it. Prints the export lines and `ready URL` to stdout. */
int supervisor_run(const struct supervisor_opts *opts, struct abx_err *err);
