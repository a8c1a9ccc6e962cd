/* client.h - the loop behind abx_client: one epoll fd that also holds a timerfd and an eventfd.
 *
 * Everything here runs in the thread that is inside abx_client_process. Timers and deferred work are
 * embedded in their owners, so that arming never allocates.
 */
#pragma once

#include "abx/client.h"
#include "base/err.h"
#include "base/macro.h"

struct http_pool;

/* A deadline. Zero-initialized = not armed. */
struct client_timer {
    void (*fn)(void *user);
    void *user;
    int64_t due_ns; /* time_mono_ns(); 0 = not armed */
    /* Pairing heap: first child, siblings; prev of a first child is its parent. */
    struct client_timer *child, *prev, *next;
};
/* Arms (or moves) a timer; `fn` runs once from process, not before `due_ns`. It may free its owner. */
void client_timer_set(abx_client *c, struct client_timer *t, int64_t due_ns);
void client_timer_clear(abx_client *c, struct client_timer *t); /* not armed: nothing */

/* Work for the next abx_client_process, in order of scheduling. */
struct client_task {
    void (*fn)(void *user);
    void *user;
    bool is_queued;
    struct client_task *prev, *next;
};
void client_task_add(abx_client *c, struct client_task *t); /* queued already: nothing */
void client_task_remove(abx_client *c, struct client_task *t);

/* A descriptor of somebody else (libcurl's sockets, a WebSocket's): `fn` runs when it is readable or
 * writable (bits CLIENT_IN, CLIENT_OUT; errors and hang-up set both). Level triggered. */
#define CLIENT_IN 1u
#define CLIENT_OUT 2u
struct client_watch {
    int fd;
    unsigned events; /* asked for, 0 = not in the set */
    void (*fn)(void *user, unsigned events);
    void *user;
};
int client_watch_set(abx_client *c, struct client_watch *w, unsigned events, struct abx_err *err);
void client_watch_clear(abx_client *c, struct client_watch *w); /* before its fd is closed */

/* The connection pool (transport/http_pool.c), made with the client. */
struct http_pool *client_http_pool(abx_client *c);

/* In a child made by fork(): what the kernel shares with the parent (epoll set, timerfd, connections)
 * must not be touched any more, only closed. */
bool client_is_forked(const abx_client *c);
/* Inside abx_client_free: nothing new may start. */
bool client_is_closing(const abx_client *c);

/* Calls know each other, so that abx_client_free can finish them; call.c is the only user. */
struct call_link {
    struct call_link *prev, *next;
};
void client_call_add(abx_client *c, struct call_link *link);
void client_call_remove(abx_client *c, struct call_link *link);
/* Counts one completion for the return value of abx_client_process. */
void client_call_completed(abx_client *c);
