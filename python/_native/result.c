/* result.c - results and events as plain tuples, lists and dicts. Field orders are those of _native.pyi. */
#include "native.h"

#include <string.h>

PyObject *text_or_none(const char *text)
{
    if (!text)
        Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *bytes_text(const void *p, size_t n)
{
    return PyUnicode_DecodeUTF8(p ? (const char *)p : "", (Py_ssize_t)n, "replace");
}

/* ABX_UNSET = None. */
static PyObject *flag_or_none(int flag)
{
    if (flag == ABX_UNSET)
        Py_RETURN_NONE;
    return PyBool_FromLong(flag);
}

static PyObject *dict_of(const struct abx_pair *pairs, size_t count)
{
    PyObject *dict = PyDict_New();

    for (size_t i = 0; dict && i < count; i++) {
        PyObject *key = text_or_none(pairs[i].key);
        PyObject *value = text_or_none(pairs[i].value);

        if (!key || !value || PyDict_SetItem(dict, key, value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return dict;
}

static PyObject *texts_of(const char *const *texts, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (size_t i = 0; list && i < count; i++) {
        PyObject *text = text_or_none(texts[i]);

        if (!text || PyList_SetItem(list, (Py_ssize_t)i, text) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* A list of `count` elements of `size` bytes, each made by `make`. */
static PyObject *list_of(const void *items, size_t count, size_t size,
                         PyObject *(*make)(const void *))
{
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (size_t i = 0; list && i < count; i++) {
        PyObject *item = make((const char *)items + i * size);

        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* ---- one maker per kind ---- */

static PyObject *mount_of(const void *item)
{
    const struct abx_volume_mount *m = item;

    return Py_BuildValue("{sNsN}", "name", text_or_none(m->name), "path", text_or_none(m->path));
}

static PyObject *info_of(const void *item)
{
    const struct abx_sandbox_info *s = item;

    return Py_BuildValue("(NNNNNNNNLLLLLNNNNNN)", text_or_none(s->sandbox_id),
                         text_or_none(s->template_id), text_or_none(s->alias),
                         text_or_none(s->state), text_or_none(s->domain),
                         text_or_none(s->envd_version), text_or_none(s->envd_access_token),
                         text_or_none(s->envd_url), (long long)s->started_at_us,
                         (long long)s->end_at_us, (long long)s->cpu_count, (long long)s->memory_mb,
                         (long long)s->disk_mb, flag_or_none(s->allow_internet_access),
                         text_or_none(s->on_timeout), flag_or_none(s->auto_resume),
                         text_or_none(s->network_json), dict_of(s->metadata, s->metadata_count),
                         list_of(s->mounts, s->mount_count, sizeof *s->mounts, mount_of));
}

static PyObject *metrics_of(const void *item)
{
    const struct abx_metrics *m = item;

    return Py_BuildValue("(LdLLLLLL)", (long long)m->timestamp_us, m->cpu_used_pct,
                         (long long)m->cpu_count, (long long)m->mem_used, (long long)m->mem_total,
                         (long long)m->mem_cache, (long long)m->disk_used,
                         (long long)m->disk_total);
}

static PyObject *log_of(const void *item)
{
    const struct abx_log_entry *e = item;

    return Py_BuildValue("(LNNN)", (long long)e->timestamp_us, text_or_none(e->level),
                         text_or_none(e->message), text_or_none(e->fields_json));
}

static PyObject *snapshot_of(const void *item)
{
    const struct abx_snapshot *s = item;

    return Py_BuildValue("(NN)", text_or_none(s->snapshot_id), texts_of(s->names, s->name_count));
}

static PyObject *entry_of(const void *item)
{
    const struct abx_entry *e = item;

    return Py_BuildValue("(NiNLINNNLNN)", text_or_none(e->name), (int)e->type,
                         text_or_none(e->path), (long long)e->size, (unsigned)e->mode,
                         text_or_none(e->permissions), text_or_none(e->owner),
                         text_or_none(e->group), (long long)e->modified_us,
                         text_or_none(e->symlink_target), dict_of(e->metadata, e->metadata_count));
}

static PyObject *process_of(const void *item)
{
    const struct abx_process_info *p = item;

    return Py_BuildValue("(INNNNN)", (unsigned)p->pid, text_or_none(p->tag), text_or_none(p->cmd),
                         texts_of(p->args, p->arg_count), dict_of(p->envs, p->env_count),
                         text_or_none(p->cwd));
}

static PyObject *fs_event_of(const void *item)
{
    const struct abx_fs_event *e = item;
    PyObject *entry;

    if (e->entry) {
        entry = entry_of(e->entry);
    } else {
        entry = Py_None;
        Py_INCREF(entry);
    }
    return Py_BuildValue("(NiN)", text_or_none(e->name), (int)e->type, entry);
}

PyObject *command_of(const abx_call *call)
{
    struct abx_command_result r = { 0 };

    abx_call_command(call, &r);
    return Py_BuildValue("(INiNNNNN)", (unsigned)r.pid, PyBool_FromLong(r.is_ended), r.exit_code,
                         PyBool_FromLong(r.exited), text_or_none(r.status), text_or_none(r.error),
                         bytes_text(r.out, r.out_size), bytes_text(r.err, r.err_size));
}

static PyObject *http_of(const abx_call *call)
{
    struct abx_http_result r = { 0 };

    abx_call_http(call, &r);
    return Py_BuildValue("(iiNy#)", r.status, r.version, dict_of(r.headers, r.header_count),
                         r.body ? r.body : "", (Py_ssize_t)r.body_size);
}

PyObject *event_of(const struct abx_event *e)
{
    PyObject *fs;

    if (e->fs) {
        fs = fs_event_of(e->fs);
    } else {
        fs = Py_None;
        Py_INCREF(fs);
    }
    return Py_BuildValue("(iiIiNNy#N)", (int)e->kind, (int)e->stream, (unsigned)e->pid,
                         e->exit_code, PyBool_FromLong(e->exited), text_or_none(e->text),
                         e->data ? (const char *)e->data : "", (Py_ssize_t)e->size, fs);
}

PyObject *result_of(abx_call *call)
{
    size_t n = 0;
    const void *items;

    switch (abx_call_result(call)) {
    case ABX_RESULT_NONE:
        break;
    case ABX_RESULT_BOOL:
        return PyBool_FromLong(abx_call_bool(call));
    case ABX_RESULT_BYTES:
    case ABX_RESULT_JSON:
        items = abx_call_bytes(call, &n);
        return PyBytes_FromStringAndSize(items, (Py_ssize_t)n);
    case ABX_RESULT_SANDBOX:
        return sandbox_wrap(abx_call_take_sandbox(call));
    case ABX_RESULT_SANDBOX_INFOS:
        items = abx_call_sandbox_infos(call, &n);
        return list_of(items, n, sizeof(struct abx_sandbox_info), info_of);
    case ABX_RESULT_METRICS:
        items = abx_call_metrics(call, &n);
        return list_of(items, n, sizeof(struct abx_metrics), metrics_of);
    case ABX_RESULT_LOGS:
        items = abx_call_logs(call, &n);
        return list_of(items, n, sizeof(struct abx_log_entry), log_of);
    case ABX_RESULT_SNAPSHOTS:
        items = abx_call_snapshots(call, &n);
        return list_of(items, n, sizeof(struct abx_snapshot), snapshot_of);
    case ABX_RESULT_ENTRIES:
        items = abx_call_entries(call, &n);
        return list_of(items, n, sizeof(struct abx_entry), entry_of);
    case ABX_RESULT_COMMAND:
        return command_of(call);
    case ABX_RESULT_PROCESSES:
        items = abx_call_processes(call, &n);
        return list_of(items, n, sizeof(struct abx_process_info), process_of);
    case ABX_RESULT_FS_EVENTS:
        items = abx_call_fs_events(call, &n);
        return list_of(items, n, sizeof(struct abx_fs_event), fs_event_of);
    case ABX_RESULT_HTTP:
        return http_of(call);
    }
    Py_RETURN_NONE;
}
