/* idle.c - see idle.h. */
#include "gateway/idle.h"

struct idle {
    struct wait wait;
    struct http_conn *conn;
    struct idle_pool *pool;
    struct idle *prev, *next;
};

void idle_pool_init(struct idle_pool *p, struct wait_list *waits, struct idle_limit *limit,
                    size_t max, uint32_t ttl_ms)
{
    *p = (struct idle_pool){ .max = max, .ttl_ms = ttl_ms, .waits = waits, .limit = limit };
}

/* Out of the pool; the connection is the caller's. */
static struct http_conn *idle_remove(struct idle *i)
{
    struct http_conn *conn = i->conn;

    wait_stop(&i->wait);
    if (i->prev)
        i->prev->next = i->next;
    else
        i->pool->first = i->next;
    if (i->next)
        i->next->prev = i->prev;
    i->pool->n--;
    i->pool->limit->n--;
    http_conn_set_idle_close(conn, NULL, NULL);
    free(i);
    return conn;
}

static void on_peer_close(void *user, struct http_conn *conn)
{
    (void)conn;
    http_conn_free(idle_remove(user));
}

static void on_expired(struct wait *w)
{
    http_conn_free(idle_remove(container_of(w, struct idle, wait)));
}

void idle_pool_clear(struct idle_pool *p)
{
    while (p->first)
        http_conn_free(idle_remove(p->first));
}

void idle_pool_put(struct idle_pool *p, struct http_conn *conn)
{
    bool has_place = p->n < p->max && p->limit->n < p->limit->max;
    struct idle *i = has_place ? calloc(1, sizeof(*i)) : NULL;

    if (!i) {
        http_conn_free(conn);
        return;
    }
    i->conn = conn;
    i->pool = p;
    i->next = p->first;
    if (i->next)
        i->next->prev = i;
    p->first = i;
    p->n++;
    p->limit->n++;
    wait_start(p->waits, &i->wait, p->ttl_ms, on_expired);
    http_conn_set_idle_close(conn, on_peer_close, i);
}

struct http_conn *idle_pool_take(struct idle_pool *p)
{
    return p->first ? idle_remove(p->first) : NULL;
}
