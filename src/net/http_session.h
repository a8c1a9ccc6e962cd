/* http_session.h - inside of the HTTP server: one client connection and its exchanges.
 *
 * http_server.c owns the listeners, http_session.c the connection's pump (input, deadlines, end of
 * exchanges) for HTTP/1.1, http_exchange.c what handlers call, http1_exchange.c what of it HTTP/1.1
 * does in its own way, http2.c (a library of its own) both for HTTP/2. An exchange is heap memory of its own from the
 * head of a request until on_close returns; a connection between requests owns no parser and no
 * buffer. All decisions about the connection's life are made in session_pump, never inside a call
 * of a handler.
 */
#pragma once

#include <netinet/in.h>

#include "net/http_server.h"
#include "net/peers.h"
#include "net/sock.h"
#include "wire/http_date.h"

#define SESSION_IN_MAX (64u << 10)     /* bytes read ahead of the parser (pipelined requests) */
#define SESSION_DRAIN_MAX (256u << 10) /* unread request body that is read to keep a connection */
#define SESSION_LINGER_MS 2000u        /* how long a closing connection is read from */
#define SESSION_DRAIN_MS 5000u
#define PARSERS_KEPT 32

struct session;

struct collect {
    struct buf body;
    void (*done)(void *user, struct http_exchange *ex, struct slice body,
                 const struct abx_err *err);
    void *user;
    bool is_too_large; /* known from the head alone */
};

struct http_exchange;

/* What differs between the versions of HTTP; the rest of an exchange is common. */
struct exchange_ops {
    const struct http1_head *(*head)(const struct http_exchange *ex);
    /* Sends 100 Continue. */
    void (*go_on)(struct http_exchange *ex);
    int (*respond)(struct http_exchange *ex, int status, const struct http1_field *fields,
                   size_t n_fields, uint64_t length, struct abx_err *err);
    /* Bytes of the response that wait. */
    size_t (*queued)(const struct http_exchange *ex);
    /* Sends `s`, whatever the room. */
    void (*write)(struct http_exchange *ex, struct slice s);
    /* The response is whole. */
    void (*end)(struct http_exchange *ex);
    int (*upgrade)(struct http_exchange *ex, const struct http1_field *fields, size_t n_fields,
                   struct abx_err *err);
};

struct http_exchange {
    const struct exchange_ops *ops;
    struct session *session;
    const struct http_exchange_events *events;
    void *user;
    struct collect collect; /* while is_collecting */
    uint64_t moved_at;      /* loop time of the last byte either way (HTTP/2) */
    uint64_t left;          /* response body bytes still to be written, or HTTP_LENGTH_UNKNOWN */

    bool is_collecting;
    bool is_reading;
    bool is_request_done;  /* the parser has seen its end */
    bool is_end_delivered; /* and the handler too */
    bool wants_continue;

    bool is_responding;
    bool is_ended;
    bool is_chunked;
    bool is_bodyless; /* HEAD, 204, 304: body bytes are dropped */
    bool is_close;    /* the connection ends with this exchange */
    bool is_aborted;
    bool is_raw; /* after 101 */
    bool is_raw_eof;
    bool is_shut; /* raw: our side is shut down */
    bool wants_writable;
};

/* Another protocol on a connection: HTTP/2 (http2.h). */
struct session_protocol {
    /* Its first bytes, of which all are looked for; then what to do with a connection that has them. */
    struct slice preface;
    /* Takes the connection over: s->protocol_state. False when out of memory. */
    bool (*start)(struct session *s);
    /* Takes all bytes that were read. */
    void (*feed)(struct session *s, struct slice in);
    /* As session_step, session_timeout and session_arm. */
    void (*step)(struct session *s);
    void (*timeout)(struct session *s);
    void (*arm)(struct session *s);
    /* The socket is closed: ends the exchanges. */
    void (*close)(struct session *s, const struct abx_err *why);
    void (*free)(struct session *s);
};

enum session_state { SESSION_OPEN, SESSION_DRAIN, SESSION_LINGER };

struct session {
    struct sock sock;
    struct http_server *server;
    struct session *prev, *next;
    struct http1_parser *parser; /* NULL between requests */
    struct http_exchange *ex;
    const struct session_protocol *protocol; /* NULL: HTTP/1.1, by `parser` and `ex` */
    void *protocol_state;
    struct buf in;        /* read, not yet parsed */
    uint64_t progress_at; /* loop time of the last byte either way or change of state */
    uint64_t sent_seen;   /* sock.sent at progress_at */
    uint64_t head_at;     /* 0, or when the first byte of an unfinished head came */
    uint64_t fin_at;      /* 0, or when the client was seen to have closed its side */
    size_t drain_left;
    enum session_state state;
    bool is_eof; /* read() has returned 0 */
    bool was_blocked;
    bool has_begun; /* a request has come: what follows is the same protocol */
    bool is_secure; /* came through a layer */
    char peer[INET6_ADDRSTRLEN];
    struct peer *counted; /* in server->peers; NULL when not */
};

struct listener {
    struct http_server *server;
    uv_poll_t poll;
    int fd;
    bool is_secure;
};

#define LISTENERS_MAX 2

struct http_server {
    struct http_server_opts opts;
    struct listener listeners[LISTENERS_MAX];
    size_t n_listeners;
    uv_timer_t retry;
    struct session *sessions;
    size_t n_sessions;
    struct peers *peers; /* NULL without max_peer_connections */
    struct http1_parser *parsers[PARSERS_KEPT];
    size_t n_parsers;
    size_t n_streams; /* exchanges of other protocols than HTTP/1.1 */
    size_t n_refs;    /* sessions whose handles are open, listener handles, the owner */
    bool is_stopping;
    bool is_accepting;
    time_t date_at;
    char date[HTTP_DATE_SIZE];
};

/* http_server.c */
/* The Date field of now, made once a second; borrowed. */
const char *server_date(struct http_server *server);
struct http1_parser *server_take_parser(struct http_server *server);
void server_give_parser(struct http_server *server, struct http1_parser *parser);
void server_forget(struct session *s);
void server_unref(struct http_server *server);

/* http_exchange.c: what the pump of each protocol does with an exchange. Each may end it through the
 * handler's calls, but frees nothing, exchange_over apart. */
/* Hands a new one to the server's handler, with 500 when that does not take it. */
void exchange_begin(struct http_server *server, struct http_exchange *ex);
void exchange_deliver(struct http_exchange *ex, struct slice data, bool is_end);
void exchange_call_writable(struct http_exchange *ex);
/* Ends a collection whose body is known to be too large. */
void exchange_check_collect(struct http_exchange *ex);
/* Tells the handler that it is over; what is still to be said is the pump's. */
void exchange_detach(struct http_exchange *ex, const struct abx_err *why);
/* Tells the handler and frees it. */
void exchange_over(struct http_exchange *ex, const struct abx_err *why);
/* An error of the server's own as JSON. */
void exchange_refuse(struct http_exchange *ex, int status, const char *text);

/* Is it a field that only the server may set? */
bool exchange_owns_field(struct slice name);

/* http1_exchange.c */
extern const struct exchange_ops http1_exchange_ops;

/* http_session.c */
void session_on_event(struct sock *sock, unsigned what);
/* The client went away (`sys`: errno or 0). */
void session_gone(struct session *s, int sys);
void session_close(struct session *s);
/* Everything is queued: sends that, closes our side and reads on for a while, because closing with
 * unread input would reset the connection and may destroy the end on its way. */
void session_linger(struct session *s);
/* Ends it at once: on_close with `why`, then the socket. */
void session_fail(struct session *s, const struct abx_err *why, bool reset);
