/* client.c - Client: who may use the abx_client, and waiting. See native.h. */
#include "native.h"

#include <time.h>
#include <unistd.h>

/* A signal that came just before the wait began is noticed after at most this long. */
#define SLICE_MS 500
/* A thread that waits while another one polls looks for signals this often. */
#define FOLLOW_MS 100

PyTypeObject *client_type;

bool client_is_foreign(const struct client *c)
{
    return c->pid != getpid();
}

int client_enter(struct client *c)
{
    bool is_mine;

    if (client_is_foreign(c)) {
        PyErr_SetString(PyExc_RuntimeError,
                        "this call belongs to the process that forked this one: "
                        "start a new one here");
        return -1;
    }
    (void)pthread_mutex_lock(&c->mutex);
    is_mine = !c->is_busy;
    c->is_busy = true;
    (void)pthread_mutex_unlock(&c->mutex);
    if (is_mine)
        return 0;
    Py_BEGIN_ALLOW_THREADS;
    (void)pthread_mutex_lock(&c->mutex);
    c->users++;
    while (c->is_busy) {
        if (c->is_polling)
            abx_client_wake(c->abx);
        (void)pthread_cond_wait(&c->changed, &c->mutex);
    }
    c->users--;
    c->is_busy = true;
    (void)pthread_mutex_unlock(&c->mutex);
    Py_END_ALLOW_THREADS;
    return 0;
}

/* Takes what was buried off the list. The client is entered. */
static void client_exhume(struct client *c)
{
    struct operation *op;

    (void)pthread_mutex_lock(&c->mutex);
    op = c->buried;
    c->buried = NULL;
    (void)pthread_mutex_unlock(&c->mutex);
    while (op) {
        struct operation *next = op->buried_next;

        operation_free(op);
        op = next;
    }
}

void client_leave(struct client *c)
{
    bool is_again;

    do {
        client_exhume(c);
        (void)pthread_mutex_lock(&c->mutex);
        is_again = c->buried != NULL; /* freeing ran Python, which dropped another one */
        if (!is_again) {
            c->is_busy = false;
            (void)pthread_cond_broadcast(&c->changed);
        }
        (void)pthread_mutex_unlock(&c->mutex);
    } while (is_again);
}

void client_bury(struct client *c, struct operation *op)
{
    bool is_busy;

    if (client_is_foreign(c))
        return; /* its sockets are the parent's too: nothing may be said on them */
    (void)pthread_mutex_lock(&c->mutex);
    is_busy = c->is_busy;
    if (is_busy) {
        op->buried_next = c->buried;
        c->buried = op;
        if (c->is_polling)
            abx_client_wake(c->abx);
    } else {
        c->is_busy = true;
    }
    (void)pthread_mutex_unlock(&c->mutex);
    if (is_busy)
        return;
    operation_free(op);
    client_leave(c);
}

/* ---- waiting ---- */

static bool operation_is_ready(const struct operation *op)
{
    return atomic_load(&op->is_done) || atomic_load(&op->has_event) || atomic_load(&op->wants_data);
}

/* One look by this thread, as the one that polls or, while another one does, beside it. Without the GIL.
 * 0, or a code of libabx. */
static int wait_slice(struct client *c, struct operation *op, int64_t timeout_ms)
{
    int r = 0;

    (void)pthread_mutex_lock(&c->mutex);
    if (operation_is_ready(op)) {
        ;
    } else if (!c->is_busy && c->users == 0) {
        c->is_busy = true;
        c->is_polling = true;
        (void)pthread_mutex_unlock(&c->mutex);
        if (abx_call_is_done(op->abx))
            atomic_store(&op->is_done, true);
        else
            r = abx_client_wait(c->abx, timeout_ms < SLICE_MS ? timeout_ms : SLICE_MS);
        (void)pthread_mutex_lock(&c->mutex);
        c->is_busy = false;
        c->is_polling = false;
        (void)pthread_cond_broadcast(&c->changed);
    } else {
        int64_t ms = timeout_ms < FOLLOW_MS ? timeout_ms : FOLLOW_MS;
        struct timespec until;

        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += ms * 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
        (void)pthread_cond_timedwait(&c->changed, &c->mutex, &until);
    }
    (void)pthread_mutex_unlock(&c->mutex);
    return r == ABX_CANCELED || r > 0 ? 0 : r; /* woken or interrupted: the caller looks again */
}

static int64_t now_ms(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* What was buried while nobody could free it. */
static int client_tidy(struct client *c)
{
    bool has_buried;

    (void)pthread_mutex_lock(&c->mutex);
    has_buried = c->buried != NULL;
    (void)pthread_mutex_unlock(&c->mutex);
    if (!has_buried)
        return 0;
    if (client_enter(c) < 0)
        return -1;
    client_leave(c);
    return 0;
}

int client_wait_for(struct client *c, struct operation *op, int64_t timeout_ms)
{
    int64_t end_ms = timeout_ms < 0 ? INT64_MAX : now_ms() + timeout_ms;

    if (client_is_foreign(c))
        return client_enter(c); /* says so */
    while (!operation_is_ready(op)) {
        int64_t left_ms = timeout_ms < 0 ? INT64_MAX : end_ms - now_ms();
        int r;

        if (left_ms <= 0)
            return 0;
        Py_BEGIN_ALLOW_THREADS;
        r = wait_slice(c, op, left_ms);
        Py_END_ALLOW_THREADS;
        if (PyErr_CheckSignals() < 0 || client_tidy(c) < 0 || trace_flush() < 0)
            return -1;
        if (r < 0) {
            struct abx_error err = { .code = r };

            (void)PyOS_snprintf(err.message, sizeof err.message, "waiting for connections: %s",
                                abx_error_name(r));
            (void)raise_error(&err);
            return -1;
        }
    }
    return 1;
}

/* ---- the type ---- */

static PyObject *client_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = { "max_connections", "max_idle_connections",
                                         "idle_timeout_ms", NULL };
    struct abx_client_opts opts = ABX_CLIENT_OPTS_INIT;
    struct abx_error err = { 0 };
    pthread_condattr_t attr;
    struct client *c;
    int r;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|iii", (char **)(uintptr_t)names,
                                     &opts.max_connections, &opts.max_idle_connections,
                                     &opts.idle_timeout_ms))
        return NULL;
    c = (struct client *)PyType_GenericAlloc(type, 0);
    if (!c)
        return NULL;
    c->pid = getpid();
    (void)pthread_mutex_init(&c->mutex, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&c->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    r = abx_client_new(&opts, &c->abx, &err);
    if (r < 0) {
        Py_DECREF((PyObject *)c);
        return raise_error(&err);
    }
    return (PyObject *)c;
}

static void client_dealloc(struct client *c)
{
    PyTypeObject *type = Py_TYPE(c);

    if (!client_is_foreign(c)) {
        if (c->abx) {
            client_exhume(c);
            abx_client_free(c->abx);
        }
        (void)pthread_cond_destroy(&c->changed);
        (void)pthread_mutex_destroy(&c->mutex);
    } else if (!c->is_busy) { /* else another thread was in it when we were forked: leaked */
        abx_client_free(c->abx);
    }
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(c);
    Py_DECREF(type);
}

static PyObject *client_fileno(struct client *c, PyObject *unused)
{
    (void)unused;
    return PyLong_FromLong(abx_client_fd(c->abx));
}

/* Hands out the waiters of all operations to which something happened. */
static PyObject *client_waiters(struct client *c)
{
    PyObject *list = PyList_New(0);

    while (list && c->ready) {
        struct operation *op = c->ready;
        PyObject *waiter = NULL;

        c->ready = op->ready_next;
        op->is_listed = false;
        if (op->call) {
            waiter = op->call->waiter;
            op->call->waiter = NULL;
        }
        atomic_store(&op->has_waiter, false);
        if (waiter && PyList_Append(list, waiter) < 0)
            Py_CLEAR(list);
        Py_XDECREF(waiter);
    }
    return list;
}

static PyObject *client_process(struct client *c, PyObject *unused)
{
    PyObject *list;
    int r;

    (void)unused;
    if (client_enter(c) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    r = abx_client_process(c->abx);
    Py_END_ALLOW_THREADS;
    list = client_waiters(c);
    client_leave(c);
    if (trace_flush() < 0)
        PyErr_WriteUnraisable(NULL); /* the waiters must not be lost */
    if (list && r < 0) {
        struct abx_error err = { .code = r };

        (void)PyOS_snprintf(err.message, sizeof err.message, "processing: %s", abx_error_name(r));
        Py_DECREF(list);
        return raise_error(&err);
    }
    return list;
}

static PyObject *client_wake(struct client *c, PyObject *unused)
{
    (void)unused;
    abx_client_wake(c->abx);
    Py_RETURN_NONE;
}

static PyMethodDef client_methods[] = {
    { "fileno", (PyCFunction)client_fileno, METH_NOARGS,
      "Descriptor that is readable when process() has something to do." },
    { "process", (PyCFunction)client_process, METH_NOARGS,
      "Does what is due; returns the waiters of calls to which something happened." },
    { "wake", (PyCFunction)client_wake, METH_NOARGS, "Ends a running wait of another thread." },
    { NULL, NULL, 0, NULL },
};

static PyType_Slot client_slots[] = {
    { Py_tp_doc, (char *)(uintptr_t)"Connections and the loop that drives them." },
    { Py_tp_new, client_new },
    { Py_tp_dealloc, client_dealloc },
    { Py_tp_methods, client_methods },
    { 0, NULL },
};
PyType_Spec client_spec = { "agent_sandbox._native.Client", sizeof(struct client), 0,
                            Py_TPFLAGS_DEFAULT, client_slots };
