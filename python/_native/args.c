/* args.c - see args.h. */
#include "args.h"

#include <string.h>

/* An array that lives until args_done. */
static void *memory_array(struct arg_memory *mem, size_t n, size_t size)
{
    void *p = mem->count < ARG_MEMORY_MAX ? PyMem_Calloc(n + 1, size) : NULL;

    if (!p)
        return (void *)PyErr_NoMemory();
    mem->arrays[mem->count++] = p;
    return p;
}

void args_done(struct arg_memory *mem)
{
    for (size_t i = 0; i < mem->count; i++)
        PyMem_Free(mem->arrays[i]);
    mem->count = 0;
}

/* TypeError: "envs has to be a str, not int". */
static void raise_no_str(const char *name, PyObject *value)
{
    PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(value), "__name__");

    if (!type)
        return;
    PyErr_Format(PyExc_TypeError, "%s has to be a str, not %U", name, type);
    Py_DECREF(type);
}

/* The text of a str, borrowed from it. */
static const char *text_get(const char *name, PyObject *value)
{
    Py_ssize_t n;
    const char *text;

    if (!PyUnicode_Check(value)) {
        raise_no_str(name, value);
        return NULL;
    }
    text = PyUnicode_AsUTF8AndSize(value, &n);
    if (!text) {
        PyErr_Clear(); /* lone surrogates */
        (void)raise_invalid("%s is not valid Unicode", name);
        return NULL;
    }
    if (strlen(text) != (size_t)n) {
        (void)raise_invalid("%s has a NUL character", name);
        return NULL;
    }
    return text;
}

static int integer_get(const char *name, PyObject *value, long long least, long long most,
                       long long *ret)
{
    PyObject *index = PyNumber_Index(value);

    if (!index) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "%s has to be an int", name);
        return -1;
    }
    *ret = PyLong_AsLongLong(index);
    Py_DECREF(index);
    if ((*ret == -1 && PyErr_Occurred()) || *ret < least || *ret > most) {
        PyErr_Clear();
        (void)raise_invalid("%s has to be from %lld to %lld", name, least, most);
        return -1;
    }
    return 0;
}

static int ms_get(const char *name, PyObject *value, int64_t *ret)
{
    double seconds = PyFloat_AsDouble(value);

    if (seconds == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "%s has to be a number of seconds", name);
        return -1;
    }
    if (!(seconds >= 0 && seconds < 1e12)) {
        (void)raise_invalid("%s has to be 0 seconds or more, and less than 1e12", name);
        return -1;
    }
    *ret = (int64_t)(seconds * 1000);
    if ((double)*ret < seconds * 1000)
        (*ret)++;
    return 0;
}

static int pairs_get(const char *name, PyObject *value, struct arg_memory *mem,
                     const struct abx_pair **ret, size_t *ret_count)
{
    struct abx_pair *pairs;
    PyObject *key, *text;
    char what[128]; /* which key, which value */
    Py_ssize_t at = 0;
    size_t n = 0;

    if (!PyDict_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s has to be a dict of str", name);
        return -1;
    }
    pairs = memory_array(mem, (size_t)PyDict_Size(value), sizeof *pairs);
    if (!pairs)
        return -1;
    while (PyDict_Next(value, &at, &key, &text)) {
        (void)PyOS_snprintf(what, sizeof what, "a key of %s", name);
        pairs[n].key = text_get(what, key);
        if (pairs[n].key)
            (void)PyOS_snprintf(what, sizeof what, "%s: the value of '%.64s'", name, pairs[n].key);
        pairs[n].value = pairs[n].key ? text_get(what, text) : NULL;
        if (!pairs[n].value)
            return -1;
        n++;
    }
    *ret = pairs;
    *ret_count = n;
    return 0;
}

/* The `i`-th element of a list, borrowed. NULL with TypeError when `value` is none. */
static PyObject *list_get(const char *name, PyObject *value, Py_ssize_t i)
{
    if (!PyList_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s has to be a list", name);
        return NULL;
    }
    return PyList_GetItem(value, i);
}

static Py_ssize_t list_size(const char *name, PyObject *value)
{
    if (!PyList_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s has to be a list", name);
        return -1;
    }
    return PyList_Size(value);
}

static int texts_get(const char *name, PyObject *value, struct arg_memory *mem,
                     const char *const **ret, size_t *ret_count)
{
    Py_ssize_t n = list_size(name, value);
    const char **texts = n < 0 ? NULL : memory_array(mem, (size_t)n, sizeof *texts);

    if (!texts)
        return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = list_get(name, value, i);

        texts[i] = item ? text_get(name, item) : NULL;
        if (!texts[i])
            return -1;
    }
    *ret = texts;
    *ret_count = (size_t)n;
    return 0;
}

/* Both members of the `i`-th pair of a list, borrowed. */
static int pair_get(const char *name, PyObject *value, Py_ssize_t i, PyObject **first,
                    PyObject **second)
{
    PyObject *item = list_get(name, value, i);

    if (!item)
        return -1;
    if (!PyTuple_Check(item) || PyTuple_Size(item) != 2) {
        PyErr_Format(PyExc_TypeError, "%s has to be a list of pairs", name);
        return -1;
    }
    *first = PyTuple_GetItem(item, 0);
    *second = PyTuple_GetItem(item, 1);
    return 0;
}

static int mounts_get(const char *name, PyObject *value, struct arg_memory *mem,
                      const struct abx_volume_mount **ret, size_t *ret_count)
{
    Py_ssize_t n = list_size(name, value);
    struct abx_volume_mount *mounts = n < 0 ? NULL : memory_array(mem, (size_t)n, sizeof *mounts);

    if (!mounts)
        return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *volume, *path;

        if (pair_get(name, value, i, &volume, &path) < 0)
            return -1;
        mounts[i].name = text_get(name, volume);
        mounts[i].path = mounts[i].name ? text_get(name, path) : NULL;
        if (!mounts[i].path)
            return -1;
    }
    *ret = mounts;
    *ret_count = (size_t)n;
    return 0;
}

/* Bytes that stay until the operation is freed. */
static int data_get(const char *name, PyObject *value, struct arg_memory *mem, const void **ret,
                    size_t *ret_size)
{
    struct operation *op = mem->op;
    PyObject **kept;
    Py_ssize_t n;
    char *p;

    if (!PyBytes_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s has to be bytes", name);
        return -1;
    }
    kept = PyMem_Realloc(op->kept, (op->kept_count + 1) * sizeof *kept);
    if (!kept) {
        (void)PyErr_NoMemory();
        return -1;
    }
    op->kept = kept;
    if (PyBytes_AsStringAndSize(value, &p, &n) < 0)
        return -1;
    kept[op->kept_count++] = value;
    Py_INCREF(value);
    *ret = p;
    *ret_size = (size_t)n;
    return 0;
}

static int items_get(const char *name, PyObject *value, struct arg_memory *mem,
                     struct abx_write_item **ret, size_t *ret_count)
{
    Py_ssize_t n = list_size(name, value);
    struct abx_write_item *items = n < 0 ? NULL : memory_array(mem, (size_t)n, sizeof *items);

    if (!items)
        return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *path, *data;

        if (pair_get(name, value, i, &path, &data) < 0)
            return -1;
        items[i].source_size = ABX_UNSET;
        items[i].path = text_get("path", path);
        if (!items[i].path)
            return -1;
        if (data == Py_None) {
            items[i].source = operation_source;
            items[i].source_user = mem->op;
        } else if (data_get("data", data, mem, &items[i].data, &items[i].size) < 0) {
            return -1;
        }
    }
    *ret = items;
    *ret_count = (size_t)n;
    return 0;
}

static int number_parse(const struct arg *arg, PyObject *value, void *member)
{
    static const long long least[] = { [ARG_INT] = INT32_MIN, [ARG_INT64] = INT64_MIN };
    static const long long most[] = { [ARG_INT] = INT32_MAX,
                                      [ARG_INT64] = INT64_MAX,
                                      [ARG_UINT32] = UINT32_MAX,
                                      [ARG_UINT16] = UINT16_MAX,
                                      [ARG_UINT64] = INT64_MAX };
    long long min = arg->kind <= ARG_INT64 ? least[arg->kind] : 0;
    long long n;

    if (integer_get(arg->name, value, min, most[arg->kind], &n) < 0)
        return -1;
    if (arg->kind == ARG_INT)
        *(int *)member = (int)n;
    else if (arg->kind == ARG_UINT32)
        *(uint32_t *)member = (uint32_t)n;
    else if (arg->kind == ARG_UINT16)
        *(uint16_t *)member = (uint16_t)n;
    else
        *(int64_t *)member = n; /* of the same size as uint64_t */
    return 0;
}

static int arg_parse(const struct arg *arg, PyObject *value, void *to, struct arg_memory *mem)
{
    void *member = (char *)to + arg->at;
    size_t *count = (size_t *)(void *)((char *)to + arg->count_at);
    int flag;

    switch (arg->kind) {
    case ARG_TEXT:
    case ARG_NEEDED:
        *(const char **)member = text_get(arg->name, value);
        return *(const char **)member ? 0 : -1;
    case ARG_INT:
    case ARG_INT64:
    case ARG_UINT32:
    case ARG_UINT16:
    case ARG_UINT64:
        return number_parse(arg, value, member);
    case ARG_FLAG:
        flag = PyObject_IsTrue(value);
        *(int *)member = flag;
        return flag < 0 ? -1 : 0;
    case ARG_ROOM:
        flag = PyObject_IsTrue(value);
        if (flag > 0) {
            *(abx_room_fn *)member = operation_room;
            *(void **)(void *)((char *)to + arg->count_at) = mem->op;
        }
        return flag < 0 ? -1 : 0;
    case ARG_MS:
        return ms_get(arg->name, value, member);
    case ARG_PAIRS:
        return pairs_get(arg->name, value, mem, member, count);
    case ARG_TEXTS:
        return texts_get(arg->name, value, mem, member, count);
    case ARG_MOUNTS:
        return mounts_get(arg->name, value, mem, member, count);
    case ARG_DATA:
        return data_get(arg->name, value, mem, member, count);
    case ARG_ITEMS:
        return items_get(arg->name, value, mem, member, count);
    }
    return -1;
}

int args_parse(const struct arg *table, size_t count, PyObject *const *values, Py_ssize_t given,
               const char *function, void *to, struct arg_memory *mem)
{
    if (given < 0 || (size_t)given != count) {
        PyErr_Format(PyExc_TypeError, "%s takes %zu values, not %zd", function, count, given);
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        if (values[i] == Py_None) {
            if (table[i].kind != ARG_NEEDED)
                continue;
            PyErr_Format(PyExc_TypeError, "%s has to be a str, not None", table[i].name);
            return -1;
        }
        if (arg_parse(&table[i], values[i], to, mem) < 0)
            return -1;
    }
    return 0;
}
