/* address.c - Config and Sandbox: where to connect, and the address of one sandbox. Both immutable. */
#include "args.h"

#include <stdlib.h>

PyTypeObject *config_type, *sandbox_type;

/* ---- Config ---- */

#define OPTION(name, kind) { #name, kind, offsetof(struct abx_config_opts, name), 0 }
static const struct arg config_args[] = {
    OPTION(profile, ARG_TEXT),
    OPTION(api_key, ARG_TEXT),
    OPTION(access_token, ARG_TEXT),
    OPTION(access_key_id, ARG_TEXT),
    OPTION(access_key_secret, ARG_TEXT),
    OPTION(security_token, ARG_TEXT),
    OPTION(api_url, ARG_TEXT),
    OPTION(domain, ARG_TEXT),
    OPTION(sandbox_url, ARG_TEXT),
    OPTION(volume_url, ARG_TEXT),
    OPTION(proxy, ARG_TEXT),
    OPTION(ca_file, ARG_TEXT),
    { "headers", ARG_PAIRS, offsetof(struct abx_config_opts, headers),
      offsetof(struct abx_config_opts, header_count) },
    { "sandbox_headers", ARG_PAIRS, offsetof(struct abx_config_opts, sandbox_headers),
      offsetof(struct abx_config_opts, sandbox_header_count) },
    { "request_timeout", ARG_MS, offsetof(struct abx_config_opts, request_timeout_ms), 0 },
    OPTION(bearer, ARG_FLAG),
    OPTION(protobuf, ARG_FLAG),
    OPTION(debug, ARG_FLAG),
    OPTION(integration, ARG_TEXT),
    OPTION(user_agent, ARG_TEXT),
};
#define CONFIG_ARGS (sizeof config_args / sizeof config_args[0])

static PyObject *config_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    struct abx_config_opts opts = ABX_CONFIG_OPTS_INIT;
    PyObject *values[CONFIG_ARGS];
    struct arg_memory mem = { 0 };
    struct abx_error err = { 0 };
    abx_config *abx = NULL;
    struct config *config;
    int r;

    if (PyTuple_Size(args) != 0) {
        PyErr_SetString(PyExc_TypeError, "Config takes keywords only");
        return NULL;
    }
    for (size_t i = 0; i < CONFIG_ARGS; i++) {
        values[i] = kwargs ? PyDict_GetItemString(kwargs, config_args[i].name) : NULL;
        if (!values[i])
            values[i] = Py_None;
    }
    if (args_parse(config_args, CONFIG_ARGS, values, CONFIG_ARGS, "Config", &opts, &mem) < 0) {
        args_done(&mem);
        return NULL;
    }
    if (trace_set(&opts, kwargs ? PyDict_GetItemString(kwargs, "trace") : NULL) < 0) {
        args_done(&mem);
        return NULL;
    }
    r = abx_config_load(&opts, &abx, &err);
    args_done(&mem);
    if (r < 0) {
        trace_unset(&opts);
        return raise_error(&err);
    }
    config = (struct config *)PyType_GenericAlloc(type, 0);
    if (!config)
        abx_config_unref(abx);
    else
        config->abx = abx;
    return (PyObject *)config;
}

static void config_dealloc(struct config *config)
{
    PyTypeObject *type = Py_TYPE(config);

    abx_config_unref(config->abx);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(config);
    Py_DECREF(type);
}

static PyObject *config_get(struct config *config, PyObject *args)
{
    const char *key, *origin = NULL, *value;
    int reveal = 0;

    if (!PyArg_ParseTuple(args, "s|p", &key, &reveal))
        return NULL;
    value = abx_config_get(config->abx, key, reveal, &origin);
    return Py_BuildValue("(NN)", text_or_none(value), text_or_none(value ? origin : NULL));
}

static PyMethodDef config_methods[] = {
    { "get", (PyCFunction)config_get, METH_VARARGS,
      "(value, origin) of a key; secrets are masked unless `reveal`." },
    { NULL, NULL, 0, NULL },
};
static PyType_Slot config_slots[] = {
    { Py_tp_doc, (char *)(uintptr_t)"Resolved configuration." },
    { Py_tp_new, config_new },
    { Py_tp_dealloc, config_dealloc },
    { Py_tp_methods, config_methods },
    { 0, NULL },
};
PyType_Spec config_spec = { "agent_sandbox._native.Config", sizeof(struct config), 0,
                            Py_TPFLAGS_DEFAULT, config_slots };

/* ---- Sandbox ---- */

PyObject *sandbox_wrap(abx_sandbox *abx)
{
    struct sandbox *sandbox;

    if (!abx) {
        PyErr_SetString(PyExc_RuntimeError, "the sandbox was taken already");
        return NULL;
    }
    sandbox = (struct sandbox *)PyType_GenericAlloc(sandbox_type, 0);
    if (!sandbox)
        abx_sandbox_unref(abx);
    else
        sandbox->abx = abx;
    return (PyObject *)sandbox;
}

#define PART(name, kind) { #name, kind, offsetof(struct abx_sandbox_parts, name), 0 }
static const struct arg parts_args[] = {
    PART(sandbox_id, ARG_NEEDED),
    PART(template_id, ARG_TEXT),
    PART(envd_version, ARG_TEXT),
    PART(envd_access_token, ARG_TEXT),
    PART(traffic_access_token, ARG_TEXT),
    PART(domain, ARG_TEXT),
    PART(envd_url, ARG_TEXT),
};
#define PARTS_ARGS (sizeof parts_args / sizeof parts_args[0])

static PyObject *sandbox_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    struct abx_sandbox_parts parts = { .size = sizeof parts };
    PyObject *values[1 + PARTS_ARGS];
    struct arg_memory mem = { 0 };
    struct abx_error err = { 0 };
    abx_sandbox *abx = NULL;
    Py_ssize_t n = PyTuple_Size(args);

    (void)type;
    if (kwargs || n != 1 + (Py_ssize_t)PARTS_ARGS ||
        !PyObject_TypeCheck(PyTuple_GetItem(args, 0), config_type)) {
        PyErr_SetString(PyExc_TypeError, "Sandbox takes a Config and its parts");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        values[i] = PyTuple_GetItem(args, i);
    if (args_parse(parts_args, PARTS_ARGS, values + 1, n - 1, "Sandbox", &parts, &mem) < 0)
        return NULL;
    if (abx_sandbox_new(((struct config *)values[0])->abx, &parts, &abx, &err) < 0)
        return raise_error(&err);
    return sandbox_wrap(abx);
}

static void sandbox_dealloc(struct sandbox *sandbox)
{
    PyTypeObject *type = Py_TYPE(sandbox);

    abx_sandbox_unref(sandbox->abx);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(sandbox);
    Py_DECREF(type);
}

static PyObject *owned_text(char *text)
{
    PyObject *ret = text ? text_or_none(text) : PyErr_NoMemory();

    free(text);
    return ret;
}

static PyObject *sandbox_host(struct sandbox *sandbox, PyObject *port)
{
    long n = PyLong_AsLong(port);

    if (n == -1 && PyErr_Occurred())
        return NULL;
    if (n < 0 || n > UINT16_MAX)
        return raise_invalid("port has to be from 0 to %d", UINT16_MAX);
    return owned_text(abx_sandbox_host(sandbox->abx, (uint16_t)n));
}

static PyObject *sandbox_file_url(struct sandbox *sandbox, PyObject *args)
{
    const char *path, *operation, *user;
    struct abx_error err = { 0 };
    long long expires_in_s;
    char *url = NULL;

    if (!PyArg_ParseTuple(args, "sszL", &path, &operation, &user, &expires_in_s))
        return NULL;
    if (abx_sandbox_file_url(sandbox->abx, path, operation, user, expires_in_s, &url, &err) < 0)
        return raise_error(&err);
    return owned_text(url);
}

#define SANDBOX_TEXT(name, expression)                                                             \
    static PyObject *sandbox_get_##name(struct sandbox *sandbox, void *unused)                     \
    {                                                                                              \
        (void)unused;                                                                              \
        return text_or_none(expression);                                                           \
    }
SANDBOX_TEXT(id, abx_sandbox_id(sandbox->abx))
SANDBOX_TEXT(template_id, abx_sandbox_template_id(sandbox->abx))
SANDBOX_TEXT(envd_version, abx_sandbox_envd_version(sandbox->abx))
SANDBOX_TEXT(domain, abx_sandbox_domain(sandbox->abx))
SANDBOX_TEXT(access_token, abx_sandbox_access_token(sandbox->abx))
SANDBOX_TEXT(traffic_token, abx_sandbox_traffic_token(sandbox->abx))
SANDBOX_TEXT(envd_url, abx_sandbox_envd_url(sandbox->abx, 0))
SANDBOX_TEXT(envd_direct_url, abx_sandbox_envd_url(sandbox->abx, 1))

#define GETTER(name) { #name, (getter)sandbox_get_##name, NULL, NULL, NULL }
static PyGetSetDef sandbox_getters[] = {
    GETTER(id),       GETTER(template_id),     GETTER(envd_version),
    GETTER(domain),   GETTER(access_token),    GETTER(traffic_token),
    GETTER(envd_url), GETTER(envd_direct_url), { NULL, NULL, NULL, NULL, NULL },
};
static PyMethodDef sandbox_methods[] = {
    { "host", (PyCFunction)sandbox_host, METH_O, "Host of a port." },
    { "file_url", (PyCFunction)sandbox_file_url, METH_VARARGS,
      "Signed URL: path, operation, user, seconds until it expires (-1 = never)." },
    { NULL, NULL, 0, NULL },
};
static PyType_Slot sandbox_slots[] = {
    { Py_tp_doc, (char *)(uintptr_t)"Address of a sandbox." },
    { Py_tp_new, sandbox_new },
    { Py_tp_dealloc, sandbox_dealloc },
    { Py_tp_getset, sandbox_getters },
    { Py_tp_methods, sandbox_methods },
    { 0, NULL },
};
PyType_Spec sandbox_spec = { "agent_sandbox._native.Sandbox", sizeof(struct sandbox), 0,
                             Py_TPFLAGS_DEFAULT, sandbox_slots };
