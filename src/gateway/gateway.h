/* gateway.h - the gateway of one process: public HTTP on one side, sandboxes and control plane on the
 * other (architecture.md 2).
 *
 * Lifetime: gateway_new starts serving. gateway_stop lets running requests end, gateway_end_streams those of them that would not
 * by themselves; gateway_close breaks what is left. After the loop has run dry gateway_free frees the memory.
 */
#pragma once

#include <uv.h>

#include "base/err.h"

struct gateway;
struct tls_server;
struct gateway_counters;

struct gateway_opts {
    uv_loop_t *loop;
    int listen_fd;            /* owned by the gateway from gateway_new on */
    int tls_listen_fd;        /* the same, with `tls`; else not looked at */
    struct tls_server *tls;   /* has certificates; borrowed until gateway_free; NULL = no TLS */
    const char *control_path; /* HTTP/1.1 over a unix stream socket */
    const char *table_path;   /* SEQPACKET to control */
    const char *engine_path;  /* SEQPACKET to the engine */
    const char *domain;       /* below which sandboxes have host names; all strings are borrowed */
    size_t max_connections;   /* of clients; 0 = 10000 */
    size_t max_client_connections;  /* of one address, see peers.h; 0 = half of max_connections */
    size_t max_sandbox_connections; /* into one sandbox; 0 = 1000 */
    size_t
        max_key_connections; /* into all sandboxes that one API key made; 0 = half of max_connections */
    struct gateway_counters *counters; /* borrowed until gateway_free */
    uint32_t wait_ms; /* how long a request waits for a restarting role; 0 = 5000 */
    bool has_access_log;
};

int gateway_new(const struct gateway_opts *opts, struct gateway **ret, struct abx_err *err);
/* Accepts no more. */
void gateway_stop(struct gateway *g);
/* Breaks off what is a stream by now, out of whichever sandbox, without a last chunk (as a pause does). */
void gateway_end_streams(struct gateway *g);
/* Clients that are connected. */
size_t gateway_connections(const struct gateway *g);
void gateway_close(struct gateway *g);
void gateway_free(struct gateway *g);
