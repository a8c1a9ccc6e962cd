/* http_client.h - client side of HTTP/1.1 over a socket that the caller made (gateway to guest,
 * gateway to control, CLI to control).
 * A layer makes it TLS: the handshake is part of connecting, and one that fails is an error with EPROTO
 * as its `sys`.
 *
 * One connection carries one request at a time; after a complete exchange that keeps alive it is
 * idle again and may carry the next. A server that sends over 32 heads of 1xx, or bytes while nothing was asked,
 * is given up. Connecting (with a deadline) is part of it, so that a
 * non-blocking, unconnected socket from the engine can be given. Same pull rules as http_server.h.
 */
#pragma once

#include <sys/socket.h>
#include <uv.h>

#include "base/err.h"
#include "net/http_server.h"
#include "wire/http1.h"

struct http_conn;

struct http_conn_events {
    /* Response head: 1xx except 100, then the final one; after a 101 that the request asked for on_body
     * carries raw bytes, write sends raw bytes and end half-closes, whether or not the request had been
     * ended before. */
    void (*on_head)(void *user, struct http_conn *c, const struct http1_head *head);
    /* Only while reading is on, the end of an empty body too. Reading is off when a request starts. */
    void (*on_body)(void *user, struct http_conn *c, struct slice data, bool is_end);
    /* As on the server; also once when the connection has been made, and after a 101. */
    void (*on_writable)(void *user, struct http_conn *c);
    /* Exchange over: err->code 0 and reusable (idle) or not; else what failed. is_safe_to_retry: no
     * byte of the request can have reached the server (connect failed, or an idle connection was
     * already closed by the peer before anything came back and nothing but a resendable head was
     * sent; also GET, HEAD and OPTIONS on such a connection when the order cannot be told). Free or
     * reuse the connection here. */
    void (*on_done)(void *user, struct http_conn *c, const struct abx_err *err, bool is_reusable,
                    bool is_safe_to_retry);
};

struct http_conn_opts {
    uv_loop_t *loop;
    int fd;                         /* owned from here on */
    const struct sockaddr *address; /* NULL: already connected */
    socklen_t address_len;
    uint32_t connect_timeout_ms; /* 0 = 5 s, with the layer's handshake */
    uint32_t head_timeout_ms;    /* 0 = none: from request sent to response head */
    uint32_t write_timeout_ms; /* 0 = none: without progress while the server takes nothing of what
                                    there is to write */
    struct sock_layer *layer;  /* of that descriptor (tls_client_open), owned too; NULL = none */
};

int http_conn_new(const struct http_conn_opts *opts, struct http_conn **ret, struct abx_err *err);
/* Breaks it at once; no callback follows. */
void http_conn_free(struct http_conn *c);
DEFINE_CLEANUP(struct http_conn *, http_conn_free)
bool http_conn_is_idle(const struct http_conn *c);
bool http_conn_is_connected(const struct http_conn *c);

/* Starts a request on a new or idle connection. `length`: body bytes, HTTP_LENGTH_UNKNOWN =
 * chunked. Fields are copied; Content-Length, Transfer-Encoding and Connection are added here, so
 * hop-by-hop fields but Upgrade are refused. UNAVAILABLE: the server has closed the idle connection
 * meanwhile, nothing was sent, free it and take another (bodiless GET, HEAD and OPTIONS: not looked
 * for, on_done says that they are safe to retry). */
int http_conn_request(struct http_conn *c, struct slice method, struct slice target,
                      const struct http1_field *fields, size_t n_fields, uint64_t length,
                      const struct http_conn_events *events, void *user, struct abx_err *err);
size_t http_conn_write(struct http_conn *c, struct slice s);
size_t http_conn_room(const struct http_conn *c);
void http_conn_end(struct http_conn *c);
void http_conn_read(struct http_conn *c, bool on);
/* Gives a running exchange up: on_done with ABX_ABORTED follows from the loop. */
void http_conn_abort(struct http_conn *c);
/* While idle: called once when the peer closes it (may be NULL). */
void http_conn_set_idle_close(struct http_conn *c, void (*fn)(void *user, struct http_conn *c),
                              void *user);
