/* relay.h - joins a server exchange to a client connection: request body one way, response the
 * other, back pressure both ways, one copy.
 */
#pragma once

#include "net/http_client.h"
#include "net/http_server.h"

struct relay_result {
    struct abx_err err;    /* code 0: complete */
    bool is_response_sent; /* a response head has gone to the client */
    bool is_safe_to_retry; /* nothing reached the server and no request body byte was consumed */
    bool is_reusable;      /* the connection may carry another request */
    int status;            /* of the response, 0 = none came */
    int64_t head_ns;       /* when its head came (time_mono_ns), 0 = never */
};

struct relay_opts {
    struct http_exchange *ex;
    struct http_conn *conn;           /* stays the caller's: free or pool it in on_done */
    struct slice target;              /* as sent upstream */
    const struct http1_field *fields; /* request fields as sent upstream (already filtered); an
                                         Upgrade among them lets the server switch protocols */
    size_t n_fields;
    /* Extra response fields (CORS, ...), may be NULL. Borrowed until on_done. */
    const struct http1_field *response_fields;
    size_t n_response_fields;
    uint64_t *bytes_in, *bytes_out; /* counters.h: bytes from and to the client; may be NULL */
    /* May be NULL. Set to true when an answer of unknown length, or an upgrade, has begun. Borrowed until
     * on_done. */
    bool *ret_is_stream;
    /* Exactly once. When the client went away, err is CANCELED and the exchange is gone (NULL).
     * When the upstream broke after the response head, the exchange was aborted without a last
     * chunk. Before it, the exchange is the caller's again: retry or answer. */
    void (*on_done)(void *user, struct http_exchange *ex, struct http_conn *conn,
                    const struct relay_result *result);
    void *user;
};

/* Handles Upgrade (WebSocket) too: after 101 raw bytes flow both ways. */
int relay_start(const struct relay_opts *opts, struct abx_err *err);
