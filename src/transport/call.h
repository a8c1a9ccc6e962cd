/* call.h - abx_call: one operation with its result, its events and its owner's callbacks.
 *
 * A module starts an operation with call_new, keeps its own state in call->state, and ends it with
 * call_finish or call_fail exactly once, at any time (also inside the starting function: the owner hears of it at the next
 * process). Results live in the call's arena and go with it.
 */
#pragma once

#include "abx/client.h"
#include "base/buf.h"
#include "base/err.h"
#include "transport/client.h"

struct call_ops {
    /* Stops the operation's transport at once; no more call_* from it. Called at most once, only while
     * the call is not finished. */
    void (*cancel)(abx_call *call);
    /* The event queue has room again after call_events_full was true. NULL for calls without events. */
    void (*resume)(abx_call *call);
    /* abx_call_resume: the owner's source has bytes again. NULL for calls without a source. */
    void (*resume_source)(abx_call *call);
    /* Frees what `state` owns (not `state`), after the end or the cancel. NULL = nothing. */
    void (*done)(abx_call *call);
    /* Frees a result that is no memory of the call's (a sandbox that nobody took); from abx_call_free. NULL = nothing. */
    void (*release)(abx_call *call);
};

struct call_block; /* arena */
struct call_event; /* one queued event with its bytes behind it */

struct abx_call {
    struct call_link link; /* first */
    abx_client *client;    /* NULL after abx_client_free */
    const struct call_ops *ops;
    void *state; /* zeroed, of the size given to call_new */
    void *user;

    enum abx_result result;
    int bool_result;
    struct buf bytes; /* BYTES, JSON, HTTP's body, COMMAND's standard output */
    struct buf more;  /* COMMAND's standard error */
    uint8_t *room;    /* BYTES in memory of the owner's instead of `bytes`, NULL = none */
    size_t room_used;
    const char *next_token; /* arena */
    const void *items;      /* array of the result's kind, arena */
    size_t item_count;
    struct abx_error error;

    /* of call.c */
    bool is_finished; /* the operation has ended */
    bool is_done;     /* and the owner may know: its events are taken */
    bool is_told;     /* on_done ran */
    bool was_full;
    abx_call_fn on_done, on_event;
    void *on_done_user, *on_event_user;
    struct client_task task;
    int waiting;                     /* abx_call_wait is driving the client for it */
    int inside;                      /* call_enter */
    bool is_freed, is_cancel_wanted; /* meanwhile */
    struct call_block *blocks;
    struct call_event *first, *last, *taken;
    size_t queued_bytes;
};

/* NULL when out of memory, and without a client. */
abx_call *call_new(abx_client *client, const struct call_ops *ops, size_t state_size);

/* The operation ended. */
void call_finish(abx_call *call, enum abx_result result);
void call_fail(abx_call *call, const struct abx_err *err);
/* Like call_fail, with the status of the answer that said so. */
void call_fail_http(abx_call *call, const struct abx_err *err, int http_status);
/* And with the server's own word for it: abx_error's error_code. NULL = none. */
void call_fail_said(abx_call *call, const struct abx_err *err, int http_status, const char *word);
/* For starting functions: a new call that fails with `err` (NULL when out of memory). */
abx_call *call_new_failed(abx_client *client, const struct abx_err *err);

/* Around a callback of the owner's that runs in the middle of the operation (sources, memory for results): when it cancels
 * or frees the call, that is done by a task after it. */
void call_enter(abx_call *call);
void call_leave(abx_call *call);

/* Copies an event with its bytes and texts (data, text, and for FILE fs with its entry) into the queue. False = out of
 * memory: fail the call. */
bool call_event_push(abx_call *call, const struct abx_event *event);
/* Over ABX_EVENT_QUEUE_BYTES: stop reading until ops->resume. */
bool call_events_full(abx_call *call);

/* The result's array when it is of this kind, else NULL; `call` and `ret_count` may be NULL. */
const void *call_items(const abx_call *call, enum abx_result kind, size_t *ret_count);

/* Zeroed memory that lives as long as the call; NULL when out of memory. */
void *call_alloc(abx_call *call, size_t size);
/* Array of `n` zeroed elements, overflow-checked. */
void *call_alloc_array(abx_call *call, size_t n, size_t size);
char *call_dup(abx_call *call, struct slice text);   /* NUL-terminated */
char *call_strdup(abx_call *call, const char *text); /* NULL gives NULL */

/* For abx_client_free: ends the call, tells its owner and takes it out of the client. The call stays
 * to be freed by its owner (who may do so in the callback). */
void call_detach(abx_call *call);

/* struct abx_error from the internal one, and back. */
void error_export(const struct abx_err *err, int http_status, struct abx_error *to);
int error_import(const struct abx_error *error, struct abx_err *err);
