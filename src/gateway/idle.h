/* idle.h - keep-alive connections that carry no request at the moment.
 *
 * A pool belongs to one destination. The newest connection is taken first; each is closed when it
 * has been idle for ttl_ms, when the peer closes it, or when there are more than `max` in the pool
 * or more than the limit of all pools together.
 */
#pragma once

#include "gateway/wait.h"
#include "net/http_client.h"

struct idle;

struct idle_limit {
    size_t n, max;
};

struct idle_pool {
    struct idle *first;
    size_t n, max;
    uint32_t ttl_ms;
    struct wait_list *waits;
    struct idle_limit *limit;
};

void idle_pool_init(struct idle_pool *p, struct wait_list *waits, struct idle_limit *limit,
                    size_t max, uint32_t ttl_ms);
/* Closes them all; the pool can be used again. */
void idle_pool_clear(struct idle_pool *p);
/* Takes over an idle connection. */
void idle_pool_put(struct idle_pool *p, struct http_conn *conn);
/* A connection for the caller, NULL if none. It may turn out to be stale (http_conn_request). */
struct http_conn *idle_pool_take(struct idle_pool *p);
