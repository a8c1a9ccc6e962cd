/* http_tunnel.c - a connection without a request (libcurl's CONNECT_ONLY), for WebSockets.
 *
 * The easy handle stays in the multi handle: taken out of it, libcurl closes the connection. Its socket
 * is watched by the tunnel's owner from then on.
 */
#include <string.h>

#include "transport/http_internal.h"

void tunnel_opened(struct http_exchange *x)
{
    static const struct abx_err ok = { 0 };
    struct http_pool *pool = x->pool;
    curl_socket_t fd = CURL_SOCKET_BAD;

    client_timer_clear(pool->client, &x->timer);
    (void)curl_easy_getinfo(x->easy, CURLINFO_ACTIVESOCKET, &fd);
    pool_forget_socket(pool, fd);
    x->tunnel_watch.fd = fd;
    x->state = EXCHANGE_TUNNEL;
    x->sink.done(x->user, &ok);
}

int http_tunnel_watch(struct http_exchange *x, unsigned events,
                      void (*fn)(void *user, unsigned events), void *user, struct abx_err *err)
{
    x->tunnel_watch.fn = fn;
    x->tunnel_watch.user = user;
    return client_watch_set(x->pool->client, &x->tunnel_watch, events, err);
}

static int64_t tunnel_result(struct http_exchange *x, CURLcode r, size_t n, struct abx_err *err)
{
    if (r == CURLE_OK)
        return (int64_t)n;
    if (r == CURLE_AGAIN)
        return err_set(err, ABX_UNAVAILABLE, "not now");
    return err_reason(err, ABX_REASON_DISCONNECTED, "%s: connection lost: %s", x->host,
                      curl_easy_strerror(r));
}

int64_t http_tunnel_recv(struct http_exchange *x, void *to, size_t size, struct abx_err *err)
{
    size_t n = 0;
    CURLcode r = curl_easy_recv(x->easy, to, size, &n);

    return tunnel_result(x, r, n, err);
}

int64_t http_tunnel_send(struct http_exchange *x, struct slice data, struct abx_err *err)
{
    size_t n = 0;
    CURLcode r = curl_easy_send(x->easy, data.p, data.n, &n);

    return tunnel_result(x, r, n, err);
}
