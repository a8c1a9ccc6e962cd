/* internal.h - what the parts of the gateway share.
 *
 *     gateway.c   life of the whole, links to control (table) and engine, rows coming and going
 *     request.c   one request from its head to its end: routing, waiting, relaying, giving up
 *     upstream.c  connections into sandboxes: idle ones, sockets from the engine, who waits for them
 *     pause.c     sandboxes that are about to be frozen, and those that traffic wakes
 *     health.c    control's questions whether a sandbox's daemon answers
 *     answer.c    answers of the gateway's own
 *     request_count.c  what the log and the counters hear of a request
 */
#pragma once

#include "gateway/fields.h"
#include "gateway/gateway.h"
#include "gateway/idle.h"
#include "gateway/route.h"
#include "gateway/table.h"
#include "gateway/wait.h"
#include "net/counters.h"
#include "net/http_server.h"
#include "net/ipc.h"
#include "net/relay.h"

#define STREAM_TIMEOUT_MS 620000u /* a sandbox may be slow for longer than any other server */

struct port;
struct check; /* health.c */

enum request_state {
    REQUEST_NEW,
    REQUEST_WAIT,   /* for a link, the table or a row to change: in g->waiting */
    REQUEST_ASK,    /* control has been asked about the sandbox */
    REQUEST_SOCKET, /* the engine has been asked for sockets: in port->waiting */
    REQUEST_PAUSE,  /* until the next try */
    REQUEST_RELAY,
};

#define ANSWER_FIELDS 3

struct request {
    struct gateway *g;
    struct http_exchange *ex; /* NULL once it is gone */
    struct request *prev, *next;
    char request_id[REQUEST_ID_SIZE];
    struct route route;
    enum request_state state;
    unsigned n_refs; /* itself and the question to control that is under way */
    struct wait wait;
    uint64_t began_at;   /* loop time */
    uint64_t give_up_at; /* loop time */
    int64_t began_ns;
    int64_t answered_ns; /* head of the answer; 0 = none */
    int status;          /* 0 = no whole answer */
    enum count_route count_route;
    bool has_trouble;
    enum count_upstream trouble; /* counted at the end */

    unsigned n_tries;
    bool is_second_address; /* ::1 after 127.0.0.1 was refused */
    bool is_failure;        /* of ours: to be logged */
    bool is_broken;         /* it may have reached the sandbox: only the verdict is open */
    bool is_doubted;        /* the table has the sandbox, engine or kernel speak against it */
    bool has_asked;         /* control, after a connection failed */
    bool is_stream;         /* relayed: its answer has no end of its own */
    bool has_searched;      /* the table for the sandbox of a token, in vain */

    struct row *row; /* while it is in the row's `active` */
    struct request *row_prev, *row_next;
    struct port *port; /* while it is in the port's `waiting` */
    struct http_conn *conn;
    struct http1_field answer_fields[ANSWER_FIELDS];
};

struct gateway {
    struct gateway_opts opts;
    struct http_server *server;
    struct ipc_client *control, *engine;
    struct table table;
    struct wait_list waits;
    struct idle_limit idle_limit; /* of all pools */
    struct idle_pool control_idle;
    struct id_source ids;
    struct request *requests; /* all */
    struct check *checks;     /* all */
    size_t n_refused;         /* connections, since the log said so */
    uint64_t refused_told_at; /* loop time; 0 = never */
    bool is_closing;
};

/* answer.c. `should_retry`: -1 = not said. All end the exchange's response. */
void answer_fields_set(struct request *r);
void answer(struct request *r, int status, int should_retry, struct slice json);
void answer_error(struct request *r, int status, int should_retry, const char *message);
/* With "sandboxId". */
void answer_sandbox_error(struct request *r, int status, int should_retry, const char *message);
void answer_gone(struct request *r);
void answer_port_closed(struct request *r, bool should_retry);
void answer_options(struct request *r);

/* request_count.c: the log's line and the counters of a request that is over. */
void request_tell(struct request *r, const struct http1_head *head);
/* What is to be counted as its upstream error; the last one counts. */
void request_trouble(struct request *r, enum count_upstream what);
/* Where its bytes and its end are counted, by its route. */
void request_set_route(struct request *r);

/* request.c */
void request_begin(void *user, struct http_exchange *ex);
void request_step(struct request *r);
/* Gives up one of n_refs; the last one frees it. */
void request_unref(struct request *r);
void request_wait(struct request *r);
/* Looks again after `ms`. */
void request_pause(struct request *r, uint64_t ms);
/* Milliseconds until it gives up waiting, 0 = its time is over. */
uint64_t request_time_left(const struct request *r);
/* It is in a port's queue: gives up when its time is over before the engine answers. */
void request_wait_socket(struct request *r);
/* The engine answered; `code` 0 or its error's. */
void request_sockets_came(struct request *r, int code);
/* Something changed: all that are in REQUEST_WAIT look again. */
void requests_wake(struct gateway *g);
/* Something of one sandbox changed: those of them that are for it. Its id may lie in its row, not in a request. */
void requests_wake_sandbox(struct gateway *g, const char *id);

/* upstream.c */
/* Connects `fd`, a socket of the engine's (owned), to the port on the sandbox's loopback: 127.0.0.1, or ::1 when
 * `is_second`. NULL: it cannot be made. Owned by the caller. */
struct http_conn *upstream_connect(struct gateway *g, int fd, uint16_t port, bool is_second,
                                   bool is_tls);
enum upstream { UPSTREAM_READY, UPSTREAM_LATER, UPSTREAM_NO_ENGINE, UPSTREAM_FAILED };
/* A connection, or the request is queued for one (LATER: request_sockets_came follows). */
enum upstream upstream_open(struct request *r, struct row *row, struct http_conn **ret);
void upstream_put_back(struct request *r, struct row *row, struct http_conn *conn);
/* Leaves the port's queue. */
void upstream_leave(struct request *r);
/* Closes idle connections and sockets; requests that wait for one get `code` as the engine's answer. */
void upstream_clear(struct row *row, int code);

/* pause.c */
/* Breaks off what reaches into the sandbox: a client that has not got all of an answer sees that. */
void gateway_break_off(struct row *row, bool streams_only);
/* Requests wait from now on; answers HoldDone when no connection into the sandbox is left. */
void gateway_hold(struct gateway *g, const char *id, uint32_t drain_ms, uint64_t seq);
/* The row has changed or lost a connection: the hold may be done with. Before it is freed, in any case. */
void gateway_hold_check(struct gateway *g, struct row *row);
/* A request for a paused sandbox: answered, or it waits until that runs. */
void request_wake(struct request *r, struct row *row);
/* A request for a sandbox between two states, of which one may be paused: it waits, and if it may wake the sandbox as long as
 * those that asked for that. */
void request_wait_wake(struct request *r, struct row *row);

/* health.c */
/* Asks the sandbox's daemon for its health and answers control's question `seq`. */
void gateway_check_health(struct gateway *g, const char *id, uint32_t timeout_ms, uint64_t seq);
/* Gives all up without an answer: the gateway ends. Before its links are closed. */
void gateway_checks_close(struct gateway *g);

/* gateway.c */
bool gateway_has_control(const struct gateway *g);
/* Out of the table; running exchanges are broken off, and the row is freed with the last one. */
void gateway_drop_row(struct gateway *g, struct row *row);
void gateway_enter_row(struct row *row, struct request *r);
void gateway_leave_row(struct request *r);
/* Asks control; `done` as in ipc.h. */
int gateway_lookup(struct gateway *g, const char *id, const char *request_id, int timeout_ms,
                   ipc_done_fn done, void *user);
