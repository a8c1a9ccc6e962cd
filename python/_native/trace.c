/* trace.c - what libabx tells of requests, handed to a Python function later: libabx tells in the middle of its work, without the
 * GIL and where nothing of the client may be called, and a logger may do anything.
 *
 * Steps wait in a list that any thread adds to (lock-free: a fork may come at any time) and whoever has driven a client hands out,
 * oldest first. Over TRACES_MAX steps that nobody hands out are dropped.
 */
#include "native.h"

#include <stdlib.h>
#include <string.h>

#define TRACES_MAX 10000
#define ERROR_MAX 512

struct tracer {
    atomic_int refs; /* config and steps */
    PyObject *function;
};

struct step {
    struct step *next;
    struct tracer *tracer;
    bool is_end; /* nothing to tell: the reference is to be dropped under the GIL */
    enum abx_trace_kind kind;
    int status, is_stream, code;
    int64_t duration_ms;
    char method[16], url[1024], error[ERROR_MAX];
};

static _Atomic(struct step *) waiting;
static atomic_int n_waiting;

static void push(struct step *s)
{
    struct step *head = atomic_load(&waiting);

    do
        s->next = head;
    while (!atomic_compare_exchange_weak(&waiting, &head, s));
    (void)atomic_fetch_add(&n_waiting, 1);
}

static void on_trace(void *user, const struct abx_trace *t)
{
    struct tracer *tracer = user;
    struct step *s = atomic_load(&n_waiting) < TRACES_MAX ? calloc(1, sizeof *s) : NULL;

    if (!s)
        return; /* a line less */
    s->tracer = tracer;
    (void)atomic_fetch_add(&tracer->refs, 1);
    s->kind = t->kind;
    s->status = t->status;
    s->is_stream = t->is_stream;
    s->duration_ms = t->duration_ms;
    (void)PyOS_snprintf(s->method, sizeof s->method, "%s", t->method);
    (void)PyOS_snprintf(s->url, sizeof s->url, "%s", t->url);
    s->code = t->error ? t->error->code : 0;
    if (t->error)
        (void)PyOS_snprintf(s->error, sizeof s->error, "%s", t->error->message);
    push(s);
}

/* With the GIL. */
static void tracer_unref(struct tracer *t)
{
    if (atomic_fetch_sub(&t->refs, 1) != 1)
        return;
    Py_DECREF(t->function);
    free(t);
}

/* The config is gone; the GIL may be anybody's. */
static void on_free(void *user)
{
    struct step *s = calloc(1, sizeof *s);

    if (!s)
        return; /* leaked rather than touched without the GIL */
    s->tracer = user;
    s->is_end = true;
    push(s);
}

int trace_set(struct abx_config_opts *opts, PyObject *function)
{
    struct tracer *t;

    if (!function || function == Py_None)
        return 0;
    if (!PyCallable_Check(function)) {
        PyErr_SetString(PyExc_TypeError, "trace has to be a function");
        return -1;
    }
    t = calloc(1, sizeof *t);
    if (!t) {
        (void)PyErr_NoMemory();
        return -1;
    }
    atomic_init(&t->refs, 1);
    Py_INCREF(function);
    t->function = function;
    opts->trace = on_trace;
    opts->trace_user = t;
    opts->trace_free = on_free;
    return 0;
}

void trace_unset(struct abx_config_opts *opts)
{
    if (opts->trace)
        tracer_unref(opts->trace_user);
    opts->trace = NULL;
}

/* -1: Ctrl-C and the like. Other exceptions are no reason for the request to fail. */
static int tell(const struct step *s)
{
    PyObject *ret = PyObject_CallFunction(s->tracer->function, "issiLiiz", (int)s->kind, s->method,
                                          s->url, s->status, (long long)s->duration_ms,
                                          s->is_stream, s->code, s->error[0] ? s->error : NULL);

    if (!ret && !PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    if (ret)
        Py_DECREF(ret);
    else
        PyErr_WriteUnraisable(s->tracer->function);
    return 0;
}

int trace_flush(void)
{
    struct step *list, *oldest = NULL;
    int r = 0;

    if (!atomic_load(&waiting))
        return 0;
    list = atomic_exchange(&waiting, NULL);
    while (list) {
        struct step *s = list;

        list = s->next;
        s->next = oldest;
        oldest = s;
    }
    while (oldest) {
        struct step *s = oldest;

        oldest = s->next;
        (void)atomic_fetch_sub(&n_waiting, 1);
        if (r < 0) {
            push(s); /* for the next time */
            continue;
        }
        r = s->is_end ? 0 : tell(s);
        tracer_unref(s->tracer);
        free(s);
    }
    return r;
}
