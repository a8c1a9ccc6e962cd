/* watch.c - changes in folders: a stream, and watchers that are asked (abx/files.h). */
#include "api/entry.h"
#include "transport/opts.h"

struct watch {
    struct envd_stream stream;
};

static void on_end(abx_call *call)
{
    struct watch *w = call->state;

    envd_stream_cancel(&w->stream);
}

static void on_resume(abx_call *call)
{
    struct watch *w = call->state;

    envd_stream_resume(&w->stream);
}

/* False for a kind of event that is newer than we are. */
static bool event_type(Filesystem__EventType type, enum abx_fs_event_type *ret)
{
    switch (type) {
    case FILESYSTEM__EVENT_TYPE__EVENT_TYPE_CREATE:
        *ret = ABX_FS_CREATE;
        return true;
    case FILESYSTEM__EVENT_TYPE__EVENT_TYPE_WRITE:
        *ret = ABX_FS_WRITE;
        return true;
    case FILESYSTEM__EVENT_TYPE__EVENT_TYPE_REMOVE:
        *ret = ABX_FS_REMOVE;
        return true;
    case FILESYSTEM__EVENT_TYPE__EVENT_TYPE_RENAME:
        *ret = ABX_FS_RENAME;
        return true;
    case FILESYSTEM__EVENT_TYPE__EVENT_TYPE_CHMOD:
        *ret = ABX_FS_CHMOD;
        return true;
    default:
        return false;
    }
}

static const Filesystem__EntryInfo *entry_of(const Filesystem__FilesystemEvent *e)
{
    return e->entry_opt_case == FILESYSTEM__FILESYSTEM_EVENT__ENTRY_OPT_ENTRY ? e->entry : NULL;
}

static int take_change(abx_call *call, const Filesystem__FilesystemEvent *e, struct abx_err *err)
{
    const Filesystem__EntryInfo *info = entry_of(e);
    struct abx_entry entry;
    struct abx_fs_event fs = { .name = e->name };
    struct abx_event event = { .kind = ABX_EVENT_FILE, .fs = &fs };

    if (!event_type(e->type, &fs.type))
        return 0;
    if (info) {
        entry_borrow(info, &entry);
        fs.entry = &entry;
    }
    return call_event_push(call, &event) ? 0 : err_oom(err);
}

static enum envd_message on_kind(const ProtobufCMessage *m)
{
    switch (((const Filesystem__WatchDirResponse *)m)->event_case) {
    case FILESYSTEM__WATCH_DIR_RESPONSE__EVENT_START:
        return ENVD_MESSAGE_START;
    case FILESYSTEM__WATCH_DIR_RESPONSE__EVENT_FILESYSTEM:
        return ENVD_MESSAGE_DATA;
    default:
        return ENVD_MESSAGE_OTHER;
    }
}

static int on_message(void *user, const ProtobufCMessage *m, struct abx_err *err)
{
    const Filesystem__WatchDirResponse *answer = (const Filesystem__WatchDirResponse *)m;
    const struct abx_event event = { .kind = ABX_EVENT_START };

    if (answer->event_case == FILESYSTEM__WATCH_DIR_RESPONSE__EVENT_FILESYSTEM)
        return take_change(user, answer->filesystem, err);
    return call_event_push(user, &event) ? 0 : err_oom(err);
}

static bool on_is_full(void *user)
{
    return call_events_full(user);
}

static void on_done(void *user, const struct abx_err *err, int http_status)
{
    abx_call *call = user;
    struct abx_err why = *err;

    if (why.code == 0) {
        call_finish(call, ABX_RESULT_NONE);
        return;
    }
    files_error(&why);
    call_fail_http(call, &why, http_status);
}

/* Takes the options, and what of them the sandbox's envd understands. */
static int watch_opts(const abx_sandbox *sandbox, const char *path,
                      const struct abx_watch_opts *given, struct abx_watch_opts *opts,
                      int64_t *ret_deadline_ns, struct abx_err *err)
{
    int r = opts_copy(opts, sizeof *opts, given, "abx_watch_opts", err);

    if (r == 0)
        r = text_check(path, "path", true, err);
    if (r == 0)
        r = text_check(opts->user, "user", false, err);
    if (r == 0)
        r = timeout_check(opts->timeout_ms, "timeout_ms", err);
    if (r == 0)
        r = sandbox_deadline(sandbox, opts->request_timeout_ms, ret_deadline_ns, err);
    if (r == 0 && opts->recursive)
        r = sandbox_need_envd(sandbox, 0, 1, 4, "watching folders recursively", err);
    if (r == 0 && opts->include_entry)
        r = sandbox_need_envd(sandbox, 0, 6, 3, "entries in watch events", err);
    if (r == 0 && opts->allow_network_mounts)
        r = sandbox_need_envd(sandbox, 0, 6, 4, "watching network mounts", err);
    return r;
}

static int start_watch(abx_call *call, const abx_sandbox *sandbox, const char *path,
                       const struct abx_watch_opts *given, struct abx_err *err)
{
    static const struct envd_stream_ops ops = { on_kind, on_message, on_is_full, on_done, NULL };
    struct abx_watch_opts opts = ABX_WATCH_OPTS_INIT;
    Filesystem__WatchDirRequest request = FILESYSTEM__WATCH_DIR_REQUEST__INIT;
    struct watch *w = call->state;
    struct envd_rpc rpc = {
        .procedure = "filesystem.Filesystem/WatchDir",
        .request = &request.base,
        .response = &filesystem__watch_dir_response__descriptor,
    };
    int r = watch_opts(sandbox, path, given, &opts, &rpc.deadline_ns, err);

    if (r < 0)
        return r;
    request.path = (char *)(uintptr_t)path;
    request.recursive = opts.recursive != 0;
    request.include_entry = opts.include_entry != 0;
    request.allow_network_mounts = opts.allow_network_mounts != 0;
    rpc.user = opts.user;
    rpc.timeout_ms = MAX(opts.timeout_ms, INT64_C(0));
    return envd_stream_start(&w->stream, call->client, sandbox, &rpc, &ops, call, err);
}

abx_call *abx_files_watch(abx_client *client, const abx_sandbox *sandbox, const char *path,
                          const struct abx_watch_opts *opts)
{
    static const struct call_ops call_ops = { .cancel = on_end,
                                              .resume = on_resume,
                                              .done = on_end };
    abx_call *call = call_new(client, &call_ops, sizeof(struct watch));
    struct abx_err err = { 0 };

    if (call && start_watch(call, sandbox, path, opts, &err) < 0)
        call_fail(call, &err);
    return call;
}

/* ---- watchers ---- */

static int take_watcher(abx_call *call, const ProtobufCMessage *m, struct abx_err *err)
{
    const Filesystem__CreateWatcherResponse *answer = (const Filesystem__CreateWatcherResponse *)m;

    if (answer->watcher_id[0] == '\0')
        return err_reason(err, ABX_REASON_PROTOCOL, "the answer has no watcher id");
    return buf_append_str(&call->bytes, answer->watcher_id) == BUF_OK ? 0 : err_oom(err);
}

abx_call *abx_watcher_create(abx_client *client, const abx_sandbox *sandbox, const char *path,
                             const struct abx_watch_opts *given)
{
    struct abx_watch_opts opts = ABX_WATCH_OPTS_INIT;
    Filesystem__CreateWatcherRequest request = FILESYSTEM__CREATE_WATCHER_REQUEST__INIT;
    struct rpc_call_spec spec = {
        .procedure = "filesystem.Filesystem/CreateWatcher",
        .request = &request.base,
        .response = &filesystem__create_watcher_response__descriptor,
        .wants_pings = true,
        .result = ABX_RESULT_BYTES,
        .take = take_watcher,
        .not_found = ABX_REASON_FILE_NOT_FOUND,
    };
    struct abx_err err = { 0 };
    int64_t deadline_ns; /* rpc_call_start makes its own */

    if (watch_opts(sandbox, path, given, &opts, &deadline_ns, &err) < 0)
        return call_new_failed(client, &err);
    request.path = (char *)(uintptr_t)path;
    request.recursive = opts.recursive != 0;
    request.include_entry = opts.include_entry != 0;
    request.allow_network_mounts = opts.allow_network_mounts != 0;
    spec.user = opts.user;
    spec.request_timeout_ms = opts.request_timeout_ms;
    return rpc_call_start(client, sandbox, &spec);
}

static int take_change_copy(abx_call *call, const Filesystem__FilesystemEvent *e,
                            struct abx_fs_event *ret, struct abx_err *err)
{
    const Filesystem__EntryInfo *info = entry_of(e);
    struct abx_entry *entry;

    ret->name = call_strdup(call, e->name);
    if (!ret->name)
        return err_oom(err);
    if (!info)
        return 0;
    entry = call_alloc(call, sizeof *entry);
    if (!entry)
        return err_oom(err);
    ret->entry = entry;
    return entry_take(call, info, entry, err);
}

static int take_changes(abx_call *call, const ProtobufCMessage *m, struct abx_err *err)
{
    const Filesystem__GetWatcherEventsResponse *answer =
        (const Filesystem__GetWatcherEventsResponse *)m;
    struct abx_fs_event *events = call_alloc_array(call, answer->n_events, sizeof *events);
    size_t n = 0;

    if (!events)
        return err_oom(err);
    for (size_t i = 0; i < answer->n_events; i++) {
        if (!event_type(answer->events[i]->type, &events[n].type))
            continue;
        if (take_change_copy(call, answer->events[i], &events[n], err) < 0)
            return err->code;
        n++;
    }
    call->items = events;
    call->item_count = n;
    return 0;
}

const struct abx_fs_event *abx_call_fs_events(const abx_call *call, size_t *ret_count)
{
    return call_items(call, ABX_RESULT_FS_EVENTS, ret_count);
}

static abx_call *watcher_call(abx_client *client, const abx_sandbox *sandbox,
                              struct rpc_call_spec *spec, const char *watcher_id,
                              const struct abx_files_opts *given)
{
    struct abx_files_opts opts = ABX_FILES_OPTS_INIT;
    struct abx_err err = { 0 };
    int r = opts_copy(&opts, sizeof opts, given, "abx_files_opts", &err);

    if (r == 0)
        r = text_check(watcher_id, "watcher_id", true, &err);
    if (r < 0)
        return call_new_failed(client, &err);
    spec->user = opts.user;
    spec->request_timeout_ms = opts.request_timeout_ms;
    return rpc_call_start(client, sandbox, spec);
}

abx_call *abx_watcher_get_events(abx_client *client, const abx_sandbox *sandbox,
                                 const char *watcher_id, const struct abx_files_opts *opts)
{
    Filesystem__GetWatcherEventsRequest request = FILESYSTEM__GET_WATCHER_EVENTS_REQUEST__INIT;
    struct rpc_call_spec spec = {
        .procedure = "filesystem.Filesystem/GetWatcherEvents",
        .request = &request.base,
        .response = &filesystem__get_watcher_events_response__descriptor,
        .result = ABX_RESULT_FS_EVENTS, /* takes the events away: no read */
        .take = take_changes,
    };

    request.watcher_id = (char *)(uintptr_t)watcher_id;
    return watcher_call(client, sandbox, &spec, watcher_id, opts);
}

abx_call *abx_watcher_remove(abx_client *client, const abx_sandbox *sandbox, const char *watcher_id,
                             const struct abx_files_opts *opts)
{
    Filesystem__RemoveWatcherRequest request = FILESYSTEM__REMOVE_WATCHER_REQUEST__INIT;
    struct rpc_call_spec spec = {
        .procedure = "filesystem.Filesystem/RemoveWatcher",
        .request = &request.base,
        .response = &filesystem__remove_watcher_response__descriptor,
        .result = ABX_RESULT_NONE,
    };

    request.watcher_id = (char *)(uintptr_t)watcher_id;
    return watcher_call(client, sandbox, &spec, watcher_id, opts);
}
