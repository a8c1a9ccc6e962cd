/* http_server.h - the one HTTP server: gateway, control, guest ports (HTTP/1.1 now; the exchange
 * does not show the version, so that HTTP/2 plugs in beside it).
 *
 * A server owns a listening fd and its connections on one libuv loop. Each request is one
 * struct http_exchange. Bodies are pulled: nothing is read from the peer while the handler wants
 * nothing, and writes are accepted only while the output queue has room, so that back pressure goes
 * through. All callbacks run on the loop; a callback may call any exchange function; the exchange is
 * valid until its on_close returns. on_close comes exactly once, also after an abort by either side.
 */
#pragma once

#include <uv.h>

#include "base/err.h"
#include "wire/http1.h"

struct http_server;
struct http_exchange;
struct session_protocol;
struct sock_layer;

#define HTTP_OUT_MAX (256u << 10) /* bytes queued per exchange before write says no more */

struct http_exchange_events {
    /* Body bytes, borrowed for the call; is_end with the last ones (n may be 0). Only while reading
     * is on (http_exchange_read). */
    void (*on_body)(void *user, struct http_exchange *ex, struct slice data, bool is_end);
    /* After a write that was short or left the queue more than half full: there is room again (at
     * least half of HTTP_OUT_MAX). */
    void (*on_writable)(void *user, struct http_exchange *ex);
    /* The exchange is over. why->code 0: response fully handed to the kernel; else the peer went away
     * or the server is stopping. Free what belongs to it here. */
    void (*on_close)(void *user, struct http_exchange *ex, const struct abx_err *why);
};

struct http_server_opts {
    uv_loop_t *loop;
    int listen_fd; /* owned by the server from http_server_new on; TCP or unix stream */
    /* A second listener, whose connections get a layer (tls.h: tls_server_open and its server); both
     * share the limits below. Used when open_layer is set; owned too. */
    int tls_listen_fd;
    struct sock_layer *(*open_layer)(void *user, int fd); /* NULL from it: out of memory */
    void *layer_user;
    size_t max_connections; /* 0 = 10000; over it new ones wait in the backlog */
    /* 0 = no limit of this kind. Over it a connection of that client (peers.h) is answered with 429 and closed, and
     * on_refused (may be NULL) told its address. */
    size_t max_peer_connections;
    void (*on_refused)(void *user, const char *peer);
    /* Kept up to date (counters.h), may be NULL: connections at present, and all that were ever accepted. */
    uint64_t *n_connections, *n_accepted;
    /* 0 = 10 s: from the first byte of a head to its end, and for the handshake of a layer */
    uint32_t header_timeout_ms;
    uint32_t idle_timeout_ms;  /* 0 = 620 s between requests, and without a byte after an upgrade */
    uint32_t body_timeout_ms;  /* 0 = 60 s without a byte while the handler is reading */
    uint32_t write_timeout_ms; /* 0 = 60 s without progress while output waits */
    /* 0 = 500 ms: how long a response may go on after the client closed its side of a connection
     * whose request is complete. A client that closed for good and one that only shut down its
     * write side look the same until a write fails: short answers reach the second kind, streams
     * are canceled for the first kind without waiting for a write. */
    uint32_t fin_grace_ms;
    /* Another protocol than HTTP/1.1 for connections that begin with it (http2.h), NULL = none. */
    const struct session_protocol *protocol;
    /* May be NULL. Before bytes of a connection are taken in; may call http_server_drop_closed. */
    void (*before_read)(void *user);
    /* Head complete. Set events with http_exchange_begin, or answer at once. */
    void (*on_request)(void *user, struct http_exchange *ex);
    void *user;
};

int http_server_new(const struct http_server_opts *opts, struct http_server **ret,
                    struct abx_err *err);
/* Stops accepting; keep-alive connections close when idle. */
void http_server_stop(struct http_server *s);
/* Closes every connection at once and frees the server; on_close callbacks run inside. */
void http_server_free(struct http_server *s);
/* Ends every connection whose client has closed its side by now, without looking at what it sent before,
 * and those that wait to be accepted too. For a process that was frozen: what such clients wanted they want
 * no more. on_close callbacks run inside. */
void http_server_drop_closed(struct http_server *s);
size_t http_server_connections(const struct http_server *s);

/* The request, borrowed until on_close returns. */
const struct http1_head *http_exchange_head(const struct http_exchange *ex);
/* Did the request come through a layer, that is TLS? */
bool http_exchange_is_secure(const struct http_exchange *ex);
/* Peer address as text ("127.0.0.1", "unix"), borrowed. */
const char *http_exchange_peer(const struct http_exchange *ex);

/* Attaches the handler's callbacks and state. `events` is borrowed (static). */
void http_exchange_begin(struct http_exchange *ex, const struct http_exchange_events *events,
                         void *user);
/* Turns delivery of the request body on or off. The first "on" answers Expect: 100-continue. Body
 * bytes never come from inside this call. */
void http_exchange_read(struct http_exchange *ex, bool on);
/* Has the handler had the end of the request's body? It is told once, whoever's events there are. */
bool http_exchange_is_read(const struct http_exchange *ex);

#define HTTP_LENGTH_UNKNOWN UINT64_MAX /* chunked, or until close for an HTTP/1.0 client */

/* Sends the head. `length` bytes of body must follow (0 for none). Date, Content-Length or
 * Transfer-Encoding and Connection are added here; hop-by-hop fields are refused. A second head aborts the
 * exchange, and so do bytes or an end without one, and bytes after the end: a fault of the handler's,
 * which is not to cost others their connections. */
int http_exchange_respond(struct http_exchange *ex, int status, const struct http1_field *fields,
                          size_t n_fields, uint64_t length, struct abx_err *err);
/* Queues body bytes (copied or written at once); returns how many were taken, less than s.n when
 * the queue is full: then on_writable follows. */
size_t http_exchange_write(struct http_exchange *ex, struct slice s);
/* Bytes that http_exchange_write would take now. */
size_t http_exchange_room(const struct http_exchange *ex);
/* Ends the response; unread request body is drained (up to 256 KiB) or the connection closes. */
void http_exchange_end(struct http_exchange *ex);
/* Breaks the connection at once, with a reset and without the last chunk. on_close follows from the
 * loop. Before the response began and with status > 0, answers that status first. */
void http_exchange_abort(struct http_exchange *ex);
/* Whole response in one call: respond, write all (the queue takes any size here), end. */
void http_exchange_send(struct http_exchange *ex, int status, const struct http1_field *fields,
                        size_t n_fields, struct slice body);
/* After a request with is_upgrade: sends 101 with `fields` and hands over the raw connection: from
 * then on on_body carries raw bytes, write sends raw bytes, end half-closes. */
int http_exchange_upgrade(struct http_exchange *ex, const struct http1_field *fields,
                          size_t n_fields, struct abx_err *err);

/* Collects a whole request body of at most `limit` bytes and calls `done` once: err->code 0 and
 * the body (borrowed for the call), or an error (ABX_REASON_TOO_LARGE). The exchange's events are this
 * function's until then; afterwards call http_exchange_begin again or answer. When the exchange ends
 * first (the client went away, was too slow, or sent what is no HTTP), `done` gets CANCELED and the
 * exchange must not be used any more, not even in `done`. */
void http_exchange_collect(struct http_exchange *ex, size_t limit,
                           void (*done)(void *user, struct http_exchange *ex, struct slice body,
                                        const struct abx_err *err),
                           void *user);
