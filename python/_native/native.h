/* native.h - agent_sandbox._native: libabx for Python, in the limited API (one binary for 3.10 and later).
 *
 * Objects: Client (an abx_client and who may use it), Config, Sandbox (an address), Call (one operation).
 * A client is used by one thread at a time. `client_enter` makes the calling thread its only user and
 * never blocks with the GIL held; a thread that sits in abx_client_wait for a call of its own gives way
 * to whoever wants to enter. Callbacks of libabx touch no Python but operation_room: they set flags in struct operation.
 * Python objects let go of their operation at any time; when another thread is using the client just
 * then, the operation is buried: put on a list that the user of the client clears when it leaves.
 */
#pragma once

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030a0000
#endif
#include <Python.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "abx/abx.h"

struct call;

/* Bytes on their way into an upload: what Python fed and the source did not take yet. */
struct feed {
    PyObject *bytes; /* NULL = nothing is there */
    const char *p;
    size_t size, taken;
    bool is_ended; /* nothing more will come */
};

/* The C side of a Call: lives until abx_call_free, which may be later than the Call. */
struct operation {
    abx_call *abx;
    struct call *call; /* the Python object, NULL when it is gone; of the thread with the GIL */
    atomic_bool has_event, is_done, wants_data;
    atomic_bool has_waiter;        /* call->waiter is set: Client.process is to hand it out */
    bool is_listed;                /* in client->ready; of the user of the client */
    struct operation *ready_next;  /* client->ready */
    struct operation *buried_next; /* client->buried */
    struct client *client;         /* borrowed: calls hold it */
    struct feed feed;
    PyObject *room;  /* bytearray that a read fills, NULL = none */
    PyObject **kept; /* the bytes that libabx borrows */
    size_t kept_count;
};

struct client {
    PyObject_HEAD abx_client *abx;
    pid_t pid; /* of the process that made it: the only one that may use it */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* under mutex: */
    bool is_busy, is_polling;
    unsigned users; /* threads that wait to become the user */
    struct operation *buried;
    /* of the user: */
    struct operation *ready;
};

struct config {
    PyObject_HEAD abx_config *abx;
};

struct sandbox {
    PyObject_HEAD abx_sandbox *abx;
};

struct call {
    PyObject_HEAD struct client *client; /* strong */
    struct operation *op;
    PyObject *waiter; /* what Client.process hands out once something happened, or NULL */
};

extern PyTypeObject *client_type, *config_type, *sandbox_type, *call_type;
extern PyType_Spec client_spec, config_spec, sandbox_spec, call_spec;

/* ---- client.c ---- */

/* Makes this thread the client's only user. -1 with an exception set in a forked child. */
int client_enter(struct client *c);
/* Ends it, and frees what was buried meanwhile. */
void client_leave(struct client *c);
/* Waits (GIL released) until something happened to `op` or `timeout_ms` passed (-1 = for ever). 1 = it did,
 * 0 = time passed, -1 = exception (a signal handler's, or one of ours). */
int client_wait_for(struct client *c, struct operation *op, int64_t timeout_ms);
/* Takes `op`, whose Call is gone: freed now or when the user of the client leaves. */
void client_bury(struct client *c, struct operation *op);
bool client_is_foreign(const struct client *c); /* made by the process that forked us */

/* ---- call.c ---- */

/* Wraps a call that was just started (NULL = out of memory). Takes `views`. The client is entered. */
PyObject *call_wrap(struct client *c, abx_call *abx, struct operation *op);
struct operation *operation_new(struct client *c);
void operation_free(struct operation *op); /* GIL held, client entered or unreachable */
/* For abx_write_item.source: gives what Call.feed brought. */
int64_t operation_source(void *user, void *buffer, size_t size);
/* abx_read_opts.room: a bytearray of that length. The one callback that takes the GIL, once a read. */
void *operation_room(void *user, size_t length);

/* ---- result.c: plain Python objects of what libabx tells ---- */

PyObject *result_of(abx_call *call);
PyObject *command_of(const abx_call *call);
PyObject *event_of(const struct abx_event *event);
PyObject *text_or_none(const char *text);
PyObject *sandbox_wrap(abx_sandbox *abx); /* takes the reference */

/* ---- module.c ---- */

/* Sets the exception that the Python side makes of an error. Always returns NULL. */
PyObject *raise_error(const struct abx_error *err);
/* The same for INVALID_ARGUMENT, with a message as printf makes it. */
PyObject *raise_invalid(const char *format, ...) __attribute__((__format__(__printf__, 1, 2)));

/* ---- trace.c ---- */

/* Has `function` (None = nothing) told of a config's requests: (kind, method, url, status, ms, is_stream, code, error). -1 with an
 * exception set when it is none. */
int trace_set(struct abx_config_opts *opts, PyObject *function);
/* The config could not be made. */
void trace_unset(struct abx_config_opts *opts);
/* Hands out what waits. The GIL is held, no client entered. -1: the function raised what is no Exception. */
int trace_flush(void);

/* ---- ops.c ---- */

/* Adds one function per operation. */
int ops_add(PyObject *module);

/* ---- git.c ---- */

int git_add(PyObject *module);
