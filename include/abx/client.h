/* client.h - the client: one pollable loop with its connections, and the calls that run in it.
 *
 * A client owns sockets, timers and connection pools; it holds no address and no key (those are in
 * abx_config), so one client serves any number of services. Nothing blocks unless its name ends in
 * `_wait`. A program with a loop of its own watches abx_client_fd for reading and runs
 * abx_client_process when it is readable; a program without one uses abx_call_wait.
 *
 * Threads: a client and its calls are used by one thread at a time (the caller serializes); only
 * abx_client_wake may be called at any time. After fork() the child may only abx_client_free what it inherited.
 *
 * A call is one operation. Every starting function returns one (NULL only when out of memory, or without a client):
 * wrong arguments too are told by the finished call, a missing config, sandbox, server or array (NULL) among them. A
 * NULL call is one that ran out of memory: functions of calls take it and say so (RESOURCE_EXHAUSTED). Timeouts are
 * ABX_UNSET, 0 (none) or up to 9,999,999,999 ms, else INVALID_ARGUMENT. It completes exactly once, never inside the starting
 * function, latest at its deadline. Arguments are copied unless their header says otherwise.
 */
#ifndef ABX_CLIENT_H
#define ABX_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "abx/config.h"
#include "abx/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct abx_client abx_client;
typedef struct abx_call abx_call;

struct abx_client_opts {
    size_t size;
    int max_connections;      /* over all hosts; 0 = the config's, without one 100 */
    int max_idle_connections; /* kept open; 0 = the config's, without one 20 */
    int idle_timeout_ms; /* an idle connection is closed after; 0 = the config's, without one 30,000 */
    /* Whose max_connections, max_keepalive_connections and keepalive_expiry are the limits, NULL = none; borrowed during
     * the call. It does not say whom the client's calls go to. */
    const abx_config *config;
};
#define ABX_CLIENT_OPTS_INIT { sizeof(struct abx_client_opts), 0, 0, 0, NULL }

/* `opts` may be NULL. `*ret` is owned: abx_client_free. Errors: RESOURCE_EXHAUSTED. Since 0.1. */
ABX_EXPORT int abx_client_new(const struct abx_client_opts *opts, abx_client **ret,
                              struct abx_error *err);
/* Unfinished calls complete as CANCELED (their callbacks run) and stay to be freed by their owner, before or after. Inside
 * a callback: at the end of the turn. A callback that it runs may not drive the client, and a call that one starts fails
 * as CANCELED: do not start one for each that fails. */
ABX_EXPORT void abx_client_free(abx_client *client);

/* Readable when abx_client_process has something to do (timers too). Never closed or replaced before
 * abx_client_free. */
ABX_EXPORT int abx_client_fd(const abx_client *client);
/* Does what is due, runs callbacks, returns how many calls completed; never blocks. May be called at any time, not from
 * inside a callback (FAILED_PRECONDITION). */
ABX_EXPORT int abx_client_process(abx_client *client);
/* Waits until something is due, at most `timeout_ms` (-1 = for ever), then processes. Returns as
 * abx_client_process; ABX_CANCELED when a signal handler ran or another thread woke it. */
ABX_EXPORT int abx_client_wait(abx_client *client, int64_t timeout_ms);
/* Ends a running or the next abx_client_wait. From any thread and from signal handlers. */
ABX_EXPORT void abx_client_wake(abx_client *client);

/* ---- calls ---- */

/* `fn` runs once, from abx_client_process, when the call is done (also when it already is). It may
 * free the call. */
typedef void (*abx_call_fn)(void *user, abx_call *call);
ABX_EXPORT void abx_call_on_done(abx_call *call, abx_call_fn fn, void *user);
/* `fn` runs from abx_client_process when events came for abx_call_next, and again as long as it takes some and others
 * wait. One that takes none hears of them again with the next event. */
ABX_EXPORT void abx_call_on_event(abx_call *call, abx_call_fn fn, void *user);

ABX_EXPORT int abx_call_is_done(const abx_call *call);
/* Drives the client until the call is done, at most `timeout_ms` (-1 = until its own deadline).
 * 0, the call's error, or DEADLINE_EXCEEDED (the call goes on), CANCELED (as abx_client_wait: call again),
 * FAILED_PRECONDITION (events wait for abx_call_next; inside a callback). A callback may free the call meanwhile. */
ABX_EXPORT int abx_call_wait(abx_call *call, int64_t timeout_ms, struct abx_error *err);
/* Completes it as CANCELED at the next process unless it is done; the connection of a stream is cut. */
ABX_EXPORT void abx_call_cancel(abx_call *call);
/* Cancels when it runs; no callback is called any more. NULL allowed. */
ABX_EXPORT void abx_call_free(abx_call *call);
/* How it ended: code 0 = success or not done. Borrowed. */
ABX_EXPORT const struct abx_error *abx_call_error(const abx_call *call);
/* Free for the caller. */
ABX_EXPORT void abx_call_set_user(abx_call *call, void *user);
ABX_EXPORT void *abx_call_user(const abx_call *call);

/* ---- results ---- */

/* What a finished, successful call carries. */
enum abx_result {
    ABX_RESULT_NONE,
    ABX_RESULT_BOOL,          /* abx_call_bool */
    ABX_RESULT_BYTES,         /* abx_call_bytes */
    ABX_RESULT_JSON,          /* abx_call_bytes: one JSON text, already checked */
    ABX_RESULT_SANDBOX,       /* abx_call_take_sandbox */
    ABX_RESULT_SANDBOX_INFOS, /* abx_call_sandbox_infos: one for get, a page for list */
    ABX_RESULT_METRICS,       /* abx_call_metrics */
    ABX_RESULT_LOGS,          /* abx_call_logs */
    ABX_RESULT_SNAPSHOTS,     /* abx_call_snapshots */
    ABX_RESULT_ENTRIES,       /* abx_call_entries */
    ABX_RESULT_COMMAND,       /* abx_call_command */
    ABX_RESULT_PROCESSES,     /* abx_call_processes */
    ABX_RESULT_FS_EVENTS,     /* abx_call_fs_events */
    ABX_RESULT_HTTP           /* abx_call_http */
};
ABX_EXPORT enum abx_result abx_call_result(const abx_call *call);
ABX_EXPORT int abx_call_bool(const abx_call *call);
/* Borrowed until the call is freed; a NUL stands behind the last byte, unless the caller gave the memory (abx/files.h). */
ABX_EXPORT const void *abx_call_bytes(const abx_call *call, size_t *ret_size);
/* Like abx_call_bytes, and the memory becomes yours: free(). NULL when out of memory. */
ABX_EXPORT void *abx_call_take_bytes(abx_call *call, size_t *ret_size);
/* Token of the page behind this one, NULL = this was the last. Borrowed. */
ABX_EXPORT const char *abx_call_next_token(const abx_call *call);

/* ---- events of streaming calls ---- */

enum abx_event_kind {
    ABX_EVENT_START,  /* the stream is open; pid of a process */
    ABX_EVENT_OUTPUT, /* data of `stream` */
    ABX_EVENT_END,    /* the process ended: exit_code, text */
    ABX_EVENT_FILE,   /* one change of a watched folder: fs */
    ABX_EVENT_DATA    /* bytes of a body or of a terminal */
};
enum abx_stream { ABX_STDOUT = 1, ABX_STDERR = 2, ABX_PTY = 3 };

struct abx_fs_event;
struct abx_event {
    enum abx_event_kind kind;
    enum abx_stream stream;
    uint32_t pid;
    int exit_code;
    int exited;       /* 0: ended by a signal */
    const char *text; /* of END: "exit status 2"; NULL = none */
    const void *data; /* not terminated */
    size_t size;
    const struct abx_fs_event *fs; /* abx/files.h */
};
/* Takes the next event: 1 and `*ret` (its pointers borrowed until the next abx_call_next, free or
 * process), 0 when none waits. What is not taken is bounded (ABX_EVENT_QUEUE_BYTES): beyond it the
 * sender is made to wait. A call is done only after its last event was taken. */
#define ABX_EVENT_QUEUE_BYTES (1u << 20)
ABX_EXPORT int abx_call_next(abx_call *call, struct abx_event *ret);

/* Version of the library, "0.1.0". Static. */
ABX_EXPORT const char *abx_version(void);

#ifdef __cplusplus
}
#endif
#endif
