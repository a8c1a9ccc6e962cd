/* call.c - Call: one operation as a Python object. See native.h for the threads. */
#include "native.h"

#include <string.h>

PyTypeObject *call_type;

/* ---- the C side ---- */

/* Client.process tells the waiter. The client is entered. */
static void operation_list(struct operation *op)
{
    if (op->is_listed || !atomic_load(&op->has_waiter))
        return;
    op->is_listed = true;
    op->ready_next = op->client->ready;
    op->client->ready = op;
}

static void operation_done(void *user, abx_call *abx)
{
    struct operation *op = user;

    (void)abx;
    atomic_store(&op->is_done, true);
    operation_list(op);
}

static void operation_event(void *user, abx_call *abx)
{
    struct operation *op = user;

    (void)abx;
    atomic_store(&op->has_event, true);
    operation_list(op);
}

struct operation *operation_new(struct client *c)
{
    struct operation *op = PyMem_Calloc(1, sizeof *op);

    if (!op)
        return (struct operation *)PyErr_NoMemory();
    op->client = c;
    return op;
}

void operation_free(struct operation *op)
{
    struct operation **at = &op->client->ready;

    while (op->is_listed && *at) {
        if (*at == op) {
            *at = op->ready_next;
            break;
        }
        at = &(*at)->ready_next;
    }
    abx_call_free(op->abx);
    Py_XDECREF(op->feed.bytes);
    Py_XDECREF(op->room);
    for (size_t i = 0; i < op->kept_count; i++)
        Py_DECREF(op->kept[i]);
    PyMem_Free(op->kept);
    PyMem_Free(op);
}

int64_t operation_source(void *user, void *buffer, size_t size)
{
    struct operation *op = user;
    size_t left = op->feed.size - op->feed.taken;

    if (left > 0) {
        size_t n = left < size ? left : size;

        memcpy(buffer, op->feed.p + op->feed.taken, n);
        op->feed.taken += n;
        return (int64_t)n;
    }
    if (op->feed.is_ended)
        return 0;
    atomic_store(&op->wants_data, true);
    operation_list(op);
    return ABX_UNAVAILABLE;
}

void *operation_room(void *user, size_t length)
{
    struct operation *op = user;
    PyGILState_STATE state = PyGILState_Ensure();
    char *p = NULL;

    op->room = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)length);
    if (op->room)
        p = PyByteArray_AsString(op->room);
    else
        PyErr_Clear(); /* libabx keeps the bytes itself, or says that memory is out */
    PyGILState_Release(state);
    return p;
}

PyObject *call_wrap(struct client *c, abx_call *abx, struct operation *op)
{
    struct call *call;

    op->abx = abx;
    if (!abx)
        return PyErr_NoMemory();
    call = (struct call *)PyType_GenericAlloc(call_type, 0);
    if (!call)
        return NULL;
    call->client = c;
    Py_INCREF((PyObject *)c);
    call->op = op;
    op->call = call;
    abx_call_on_done(abx, operation_done, op);
    abx_call_on_event(abx, operation_event, op);
    return (PyObject *)call;
}

/* ---- the Python side ---- */

static int call_traverse(struct call *call, visitproc visit, void *arg)
{
    Py_VISIT((PyObject *)Py_TYPE(call));
    Py_VISIT((PyObject *)call->client);
    Py_VISIT(call->waiter);
    return 0;
}

static int call_clear(struct call *call)
{
    Py_CLEAR(call->waiter);
    return 0;
}

static void call_dealloc(struct call *call)
{
    PyTypeObject *type = Py_TYPE(call);
    struct operation *op = call->op;
    struct client *c = call->client;

    PyObject_GC_UnTrack(call);
    (void)call_clear(call);
    call->op = NULL;
    if (op) {
        op->call = NULL;
        client_bury(c, op);
    }
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(call);
    Py_XDECREF((PyObject *)c);
    Py_DECREF(type);
}

static PyObject *call_wait(struct call *call, PyObject *timeout)
{
    double seconds = timeout == Py_None ? -1 : PyFloat_AsDouble(timeout);
    int r;

    if (PyErr_Occurred())
        return NULL;
    if (timeout != Py_None && !(seconds >= 0 && seconds < 1e12))
        return raise_invalid("timeout has to be 0 seconds or more");
    r = client_wait_for(call->client, call->op, seconds < 0 ? -1 : (int64_t)(seconds * 1000 + 0.5));
    return r < 0 ? NULL : PyBool_FromLong(r);
}

static PyObject *call_set_waiter(struct call *call, PyObject *waiter)
{
    struct operation *op = call->op;
    PyObject *old;

    if (client_enter(call->client) < 0)
        return NULL;
    Py_INCREF(waiter);
    old = call->waiter;
    call->waiter = waiter;
    Py_XDECREF(old);
    atomic_store(&op->has_waiter, true);
    if (!atomic_load(&op->is_done) && abx_call_is_done(op->abx))
        atomic_store(&op->is_done, true);
    if (atomic_load(&op->is_done) || atomic_load(&op->has_event) || atomic_load(&op->wants_data)) {
        atomic_store(&op->has_waiter, false);
        Py_CLEAR(call->waiter);
        client_leave(call->client);
        Py_RETURN_FALSE;
    }
    client_leave(call->client);
    Py_RETURN_TRUE;
}

static PyObject *call_done(struct call *call, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(atomic_load(&call->op->is_done));
}

static PyObject *call_next(struct call *call, PyObject *unused)
{
    struct operation *op = call->op;
    struct abx_event event;
    PyObject *ret;

    (void)unused;
    if (client_enter(call->client) < 0)
        return NULL;
    if (abx_call_next(op->abx, &event) == 1) {
        ret = event_of(&event);
    } else {
        atomic_store(&op->has_event, false);
        if (abx_call_is_done(op->abx))
            atomic_store(&op->is_done, true);
        ret = Py_None;
        Py_INCREF(ret);
    }
    client_leave(call->client);
    return ret;
}

static PyObject *call_cancel(struct call *call, PyObject *unused)
{
    (void)unused;
    if (client_enter(call->client) < 0)
        return NULL;
    abx_call_cancel(call->op->abx);
    client_leave(call->client);
    if (trace_flush() < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *call_wants_data(struct call *call, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(atomic_load(&call->op->wants_data));
}

static PyObject *call_feed(struct call *call, PyObject *data)
{
    struct operation *op = call->op;
    PyObject *old;
    Py_ssize_t n;
    char *p;

    if (PyBytes_AsStringAndSize(data, &p, &n) < 0 || client_enter(call->client) < 0)
        return NULL;
    old = op->feed.bytes;
    Py_INCREF(data);
    op->feed = (struct feed){ .bytes = data, .p = p, .size = (size_t)n, .is_ended = n == 0 };
    Py_XDECREF(old);
    atomic_store(&op->wants_data, false);
    if (!abx_call_is_done(op->abx))
        abx_call_resume(op->abx);
    client_leave(call->client);
    Py_RETURN_NONE;
}

/* Runs `convert` on the finished, successful call; else raises its error. */
static PyObject *call_convert(struct call *call, PyObject *(*convert)(abx_call *abx))
{
    const struct abx_error *error;
    PyObject *ret;

    if (client_enter(call->client) < 0)
        return NULL;
    error = abx_call_error(call->op->abx);
    if (error->code != 0)
        ret = raise_error(error);
    else if (!abx_call_is_done(call->op->abx))
        ret = (PyErr_SetString(PyExc_RuntimeError, "the call is not done"), NULL);
    else
        ret = convert(call->op->abx);
    client_leave(call->client);
    return ret;
}

static PyObject *text_of(abx_call *abx)
{
    size_t n;
    const char *p = abx_call_bytes(abx, &n);

    return PyUnicode_DecodeUTF8(p, (Py_ssize_t)n, "replace");
}

static PyObject *bytearray_of(abx_call *abx)
{
    size_t n;
    const char *p = abx_call_bytes(abx, &n);

    return PyByteArray_FromStringAndSize(p, (Py_ssize_t)n);
}

static PyObject *nothing_of(abx_call *abx)
{
    (void)abx;
    Py_RETURN_NONE;
}

static PyObject *next_token_of(abx_call *abx)
{
    return text_or_none(abx_call_next_token(abx));
}

static PyObject *call_result(struct call *call, PyObject *unused)
{
    (void)unused;
    return call_convert(call, result_of);
}

static PyObject *call_text(struct call *call, PyObject *unused)
{
    (void)unused;
    return call_convert(call, text_of);
}

/* The bytearray that was filled is given away: once, its owner may resize it. */
static PyObject *call_bytearray(struct call *call, PyObject *unused)
{
    PyObject *ret, *room = NULL;

    (void)unused;
    ret = call_convert(call, call->op->room ? nothing_of : bytearray_of);
    if (ret && call->op->room) {
        room = call->op->room;
        call->op->room = NULL;
        Py_DECREF(ret);
        return room;
    }
    return ret;
}

static PyObject *call_next_token(struct call *call, PyObject *unused)
{
    (void)unused;
    return call_convert(call, next_token_of);
}

/* What a command wrote so far, also while it runs and after a failure. */
static PyObject *call_command(struct call *call, PyObject *unused)
{
    PyObject *ret;

    (void)unused;
    if (client_enter(call->client) < 0)
        return NULL;
    ret = command_of(call->op->abx);
    client_leave(call->client);
    return ret;
}

/* Where the output of a command begins for this call; None when that is not known. */
static PyObject *call_output_offset(struct call *call, PyObject *unused)
{
    uint64_t offset;
    int known;

    (void)unused;
    if (client_enter(call->client) < 0)
        return NULL;
    known = abx_call_output_offset(call->op->abx, &offset);
    client_leave(call->client);
    if (!known)
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(offset);
}

/* Status of the answer, 0 = none yet. */
static PyObject *call_http_status(struct call *call, PyObject *unused)
{
    struct abx_http_result r = { 0 };

    (void)unused;
    if (client_enter(call->client) < 0)
        return NULL;
    abx_call_http(call->op->abx, &r);
    client_leave(call->client);
    return PyLong_FromLong(r.status);
}

static PyMethodDef call_methods[] = {
    { "wait", (PyCFunction)call_wait, METH_O,
      "Waits until something happened; False when `timeout` seconds passed first." },
    { "set_waiter", (PyCFunction)call_set_waiter, METH_O,
      "Client.process will return this object; False when something happened already." },
    { "done", (PyCFunction)call_done, METH_NOARGS, "Is it over, and every event taken?" },
    { "next", (PyCFunction)call_next, METH_NOARGS, "The next event, or None." },
    { "cancel", (PyCFunction)call_cancel, METH_NOARGS, "Ends it; its connection is cut." },
    { "wants_data", (PyCFunction)call_wants_data, METH_NOARGS, "Does an upload wait for feed()?" },
    { "feed", (PyCFunction)call_feed, METH_O, "The next bytes of an upload; b'' ends it." },
    { "result", (PyCFunction)call_result, METH_NOARGS, "What it brought, or raises its error." },
    { "text", (PyCFunction)call_text, METH_NOARGS, "Bytes of the result as text." },
    { "bytearray", (PyCFunction)call_bytearray, METH_NOARGS, "Bytes of the result." },
    { "output_offset", (PyCFunction)call_output_offset, METH_NOARGS,
      "Where the output of a command begins for this call, or None." },
    { "next_token", (PyCFunction)call_next_token, METH_NOARGS,
      "Token of the page behind this one." },
    { "command", (PyCFunction)call_command, METH_NOARGS, "What a command did so far." },
    { "http_status", (PyCFunction)call_http_status, METH_NOARGS,
      "Status of the answer to http_request; 0 before it." },
    { NULL, NULL, 0, NULL },
};

static PyType_Slot call_slots[] = {
    { Py_tp_doc, (char *)(uintptr_t)"One operation." },
    { Py_tp_dealloc, call_dealloc },
    { Py_tp_traverse, call_traverse },
    { Py_tp_clear, call_clear },
    { Py_tp_methods, call_methods },
    { 0, NULL },
};
PyType_Spec call_spec = { "agent_sandbox._native.Call", sizeof(struct call), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                              Py_TPFLAGS_DISALLOW_INSTANTIATION,
                          call_slots };
