/* module.c - the module, its errors, and the functions that need no client. */
#include "native.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Makes the exception of an error: f(code, reason, http_status, message, error_code). Set by agent_sandbox._errors. */
static PyObject *error_maker;

PyObject *raise_error(const struct abx_error *err)
{
    PyObject *exception;

    if (PyErr_Occurred())
        return NULL;
    if (!error_maker) {
        PyErr_Format(PyExc_RuntimeError, "%s (%d)", err->message, err->code);
        return NULL;
    }
    exception =
        PyObject_CallFunction(error_maker, "iiiNs", err->code, err->reason, err->http_status,
                              text_or_none(err->message), err->error_code);
    if (exception)
        PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_XDECREF(exception);
    return NULL;
}

PyObject *raise_invalid(const char *format, ...)
{
    struct abx_error err = { .code = ABX_INVALID_ARGUMENT };
    va_list args;

    va_start(args, format);
    (void)PyOS_vsnprintf(err.message, sizeof err.message, format, args);
    va_end(args);
    return raise_error(&err);
}

static PyObject *set_error_maker(PyObject *module, PyObject *maker)
{
    PyObject *old = error_maker;

    (void)module;
    Py_INCREF(maker);
    error_maker = maker;
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

static PyObject *signature(PyObject *module, PyObject *args)
{
    const char *path, *operation, *user, *token;
    int64_t expiration = 0;
    struct abx_error err = { 0 };
    long long expires_in_s;
    char *text = NULL;
    PyObject *ret;

    (void)module;
    if (!PyArg_ParseTuple(args, "sszsL", &path, &operation, &user, &token, &expires_in_s))
        return NULL;
    if (abx_signature_make(path, operation, user, token, expires_in_s, &text, &expiration, &err) <
        0)
        return raise_error(&err);
    ret = Py_BuildValue("(sL)", text, (long long)expiration);
    free(text);
    return ret;
}

static PyObject *error_name(PyObject *module, PyObject *code)
{
    long n = PyLong_AsLong(code);

    (void)module;
    return n == -1 && PyErr_Occurred() ? NULL : text_or_none(abx_error_name((int)n));
}

static PyMethodDef module_methods[] = {
    { "error_name", error_name, METH_O, "Connect's name of a code." },
    { "set_error_maker", set_error_maker, METH_O,
      "Function that makes the exception of (code, reason, http_status, message, error_code)." },
    { "signature", signature, METH_VARARGS,
      "(signature, expiration) of path, operation, user, token, seconds (-1 = never)." },
    { NULL, NULL, 0, NULL },
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    "agent_sandbox._native",
    "libabx for Python.",
    -1,
    module_methods,
    NULL,
    NULL,
    NULL,
    NULL,
};

static int type_add(PyObject *module, PyType_Spec *spec, const char *name, PyTypeObject **ret)
{
    PyObject *type = PyType_FromSpec(spec);

    if (!type)
        return -1;
    *ret = (PyTypeObject *)type; /* kept for good */
    return PyObject_SetAttrString(module, name, type);
}

static const struct {
    const char *name;
    int value;
} constants[] = {
    { "EVENT_START", ABX_EVENT_START },
    { "EVENT_OUTPUT", ABX_EVENT_OUTPUT },
    { "EVENT_END", ABX_EVENT_END },
    { "EVENT_FILE", ABX_EVENT_FILE },
    { "EVENT_DATA", ABX_EVENT_DATA },
    { "TRACE_REQUEST", ABX_TRACE_REQUEST },
    { "TRACE_RESPONSE", ABX_TRACE_RESPONSE },
    { "TRACE_END", ABX_TRACE_END },
    { "TRACE_FAILED", ABX_TRACE_FAILED },
    { "STDOUT", ABX_STDOUT },
    { "STDERR", ABX_STDERR },
    { "PTY", ABX_PTY },
    { "CANCELED", ABX_CANCELED },
    { "INVALID_ARGUMENT", ABX_INVALID_ARGUMENT },
    { "DEADLINE_EXCEEDED", ABX_DEADLINE_EXCEEDED },
    { "NOT_FOUND", ABX_NOT_FOUND },
    { "RESOURCE_EXHAUSTED", ABX_RESOURCE_EXHAUSTED },
    { "UNIMPLEMENTED", ABX_UNIMPLEMENTED },
    { "UNAVAILABLE", ABX_UNAVAILABLE },
    { "DATA_LOSS", ABX_DATA_LOSS },
    { "UNAUTHENTICATED", ABX_UNAUTHENTICATED },
    { "REASON_DISK_FULL", ABX_REASON_DISK_FULL },
    { "REASON_TOO_LARGE", ABX_REASON_TOO_LARGE },
    { "REASON_RATE_LIMITED", ABX_REASON_RATE_LIMITED },
    { "REASON_SANDBOX_GONE", ABX_REASON_SANDBOX_GONE },
    { "REASON_SANDBOX_NOT_FOUND", ABX_REASON_SANDBOX_NOT_FOUND },
    { "REASON_FILE_NOT_FOUND", ABX_REASON_FILE_NOT_FOUND },
    { "REASON_TEMPLATE_NOT_FOUND", ABX_REASON_TEMPLATE_NOT_FOUND },
    { "REASON_TEMPLATE_TOO_OLD", ABX_REASON_TEMPLATE_TOO_OLD },
    { "REASON_NO_CREDENTIALS", ABX_REASON_NO_CREDENTIALS },
    { "REASON_REQUEST_TIMEOUT", ABX_REASON_REQUEST_TIMEOUT },
    { "REASON_COMMAND_TIMEOUT", ABX_REASON_COMMAND_TIMEOUT },
    { "REASON_NAME", ABX_REASON_NAME },
    { "REASON_CONNECT", ABX_REASON_CONNECT },
    { "REASON_TLS", ABX_REASON_TLS },
    { "REASON_DISCONNECTED", ABX_REASON_DISCONNECTED },
};

static int module_fill(PyObject *module)
{
    if (type_add(module, &client_spec, "Client", &client_type) < 0 ||
        type_add(module, &config_spec, "Config", &config_type) < 0 ||
        type_add(module, &sandbox_spec, "Sandbox", &sandbox_type) < 0 ||
        type_add(module, &call_spec, "Call", &call_type) < 0 || ops_add(module) < 0 ||
        git_add(module) < 0 || PyModule_AddStringConstant(module, "VERSION", abx_version()) < 0)
        return -1;
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++) {
        if (PyModule_AddIntConstant(module, constants[i].name, constants[i].value) < 0)
            return -1;
    }
    return 0;
}

PyMODINIT_FUNC PyInit__native(void);
PyMODINIT_FUNC PyInit__native(void)
{
    PyObject *module = PyModule_Create(&module_def);

    if (module && module_fill(module) < 0)
        Py_CLEAR(module);
    return module;
}
