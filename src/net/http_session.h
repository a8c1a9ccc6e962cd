/* http_session.h - inside of the HTTP server: one client connection and its exchange.
 *
 * http_server.c owns the listener, http_session.c the connection's pump (input, deadlines, end of
 * exchanges), http_exchange.c what handlers call. An exchange is heap memory of its own from the
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

struct collect {
    struct buf body;
    void (*done)(void *user, struct http_exchange *ex, struct slice body,
                 const struct abx_err *err);
    void *user;
    bool is_too_large; /* known from the head alone */
};

struct http_exchange {
    struct session *session;
    const struct http_exchange_events *events;
    void *user;
    struct collect collect; /* while is_collecting */
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

enum session_state { SESSION_OPEN, SESSION_DRAIN, SESSION_LINGER };

struct session {
    struct sock sock;
    struct http_server *server;
    struct session *prev, *next;
    struct http1_parser *parser; /* NULL between requests */
    struct http_exchange *ex;
    struct buf in;        /* read, not yet parsed */
    uint64_t progress_at; /* loop time of the last byte either way or change of state */
    uint64_t sent_seen;   /* sock.sent at progress_at */
    uint64_t head_at;     /* 0, or when the first byte of an unfinished head came */
    uint64_t fin_at;      /* 0, or when the client was seen to have closed its side */
    size_t drain_left;
    enum session_state state;
    bool is_eof; /* read() has returned 0 */
    bool was_blocked;
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
    size_t n_refs; /* sessions whose handles are open, listener handles, the owner */
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

/* http_session.c */
void session_on_event(struct sock *sock, unsigned what);
/* Ends it at once: on_close with `why`, then the socket. */
void session_fail(struct session *s, const struct abx_err *why, bool reset);
