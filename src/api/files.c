/* files.c - list, stat, make, move and remove files (abx/files.h). */
#include "abx/files.h"

#include "api/entry.h"
#include "base/str.h"
#include "transport/opts.h"

/* ---- entries ---- */

static int64_t time_us(const Google__Protobuf__Timestamp *t)
{
    int64_t us;

    if (!t || __builtin_mul_overflow(t->seconds, INT64_C(1000000), &us) ||
        __builtin_add_overflow(us, (int64_t)(t->nanos / 1000), &us))
        return 0;
    return us;
}

static enum abx_file_type file_type(Filesystem__FileType type)
{
    switch (type) {
    case FILESYSTEM__FILE_TYPE__FILE_TYPE_FILE:
        return ABX_FILE_FILE;
    case FILESYSTEM__FILE_TYPE__FILE_TYPE_DIRECTORY:
        return ABX_FILE_DIR;
    case FILESYSTEM__FILE_TYPE__FILE_TYPE_SYMLINK:
        return ABX_FILE_SYMLINK;
    default:
        return ABX_FILE_UNKNOWN;
    }
}

void entry_borrow(const Filesystem__EntryInfo *info, struct abx_entry *ret)
{
    bool is_link =
        info->symlink_target_opt_case == FILESYSTEM__ENTRY_INFO__SYMLINK_TARGET_OPT_SYMLINK_TARGET;

    *ret = (struct abx_entry){
        .name = info->name,
        .type = file_type(info->type),
        .path = info->path,
        .size = info->size,
        .mode = info->mode,
        .permissions = info->permissions,
        .owner = info->owner,
        .group = info->group,
        .modified_us = time_us(info->modified_time),
        .symlink_target = is_link ? info->symlink_target : NULL,
    };
}

static int metadata_take(abx_call *call, const Filesystem__EntryInfo *info, struct abx_entry *ret)
{
    struct abx_pair *pairs = call_alloc_array(call, info->n_metadata, sizeof *pairs);

    if (!pairs)
        return -1;
    for (size_t i = 0; i < info->n_metadata; i++) {
        pairs[i].key = call_strdup(call, info->metadata[i]->key);
        pairs[i].value = call_strdup(call, info->metadata[i]->value);
        if (!pairs[i].key || !pairs[i].value)
            return -1;
    }
    ret->metadata = pairs;
    ret->metadata_count = info->n_metadata;
    return 0;
}

int entry_take(abx_call *call, const Filesystem__EntryInfo *info, struct abx_entry *ret,
               struct abx_err *err)
{
    struct abx_entry e;
    const char **texts[] = { &e.name, &e.path, &e.permissions, &e.owner, &e.group };

    entry_borrow(info, &e);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        *texts[i] = call_strdup(call, *texts[i]);
        if (!*texts[i])
            return err_oom(err);
    }
    if (e.symlink_target) {
        e.symlink_target = call_strdup(call, e.symlink_target);
        if (!e.symlink_target)
            return err_oom(err);
    }
    if (metadata_take(call, info, &e) < 0)
        return err_oom(err);
    *ret = e;
    return 0;
}

const struct abx_entry *abx_call_entries(const abx_call *call, size_t *ret_count)
{
    return call_items(call, ABX_RESULT_ENTRIES, ret_count);
}

int files_path(const abx_sandbox *sandbox, const char *path, const char *user, struct buf *b,
               const char **ret, struct abx_err *err)
{
    const char *name = envd_user(sandbox, user);
    enum buf_status st = buf_append_str(b, "/files");

    if (st == BUF_OK && path)
        st = buf_append_str(b, "?path=");
    if (st == BUF_OK && path)
        st = percent_encode(b, slice_str(path));
    if (st == BUF_OK && name)
        st = buf_append_str(b, path ? "&username=" : "?username=");
    if (st == BUF_OK && name)
        st = percent_encode(b, slice_str(name));
    if (st == BUF_LIMIT)
        return err_set(err, ABX_INVALID_ARGUMENT, "path and user are longer than %zu bytes",
                       b->limit);
    *ret = st == BUF_OK ? buf_cstr(b) : NULL;
    return *ret ? 0 : err_oom(err);
}

void files_error(struct abx_err *err)
{
    if (err->code == ABX_NOT_FOUND && err->reason == ABX_REASON_NONE)
        err->reason = ABX_REASON_FILE_NOT_FOUND;
}

/* ---- calls ---- */

/* Starts `spec` with the options; `path` and `more` are texts of the request. */
static abx_call *files_call(abx_client *client, const abx_sandbox *sandbox,
                            struct rpc_call_spec *spec, const char *path, const char *more,
                            const struct abx_files_opts *given)
{
    struct abx_files_opts opts = ABX_FILES_OPTS_INIT;
    struct abx_err err = { 0 };
    int r = opts_copy(&opts, sizeof opts, given, "abx_files_opts", &err);

    if (r == 0)
        r = text_check(path, "path", true, &err);
    if (r == 0)
        r = text_check(more, "path", false, &err);
    if (r == 0)
        r = text_check(opts.user, "user", false, &err);
    if (r < 0)
        return call_new_failed(client, &err);
    spec->user = opts.user;
    spec->request_timeout_ms = opts.request_timeout_ms;
    spec->not_found = ABX_REASON_FILE_NOT_FOUND;
    return rpc_call_start(client, sandbox, spec);
}

static int take_entries(abx_call *call, Filesystem__EntryInfo *const *infos, size_t n,
                        struct abx_err *err)
{
    struct abx_entry *entries = call_alloc_array(call, n, sizeof *entries);

    if (!entries)
        return err_oom(err);
    for (size_t i = 0; i < n; i++)
        if (entry_take(call, infos[i], &entries[i], err) < 0)
            return err->code;
    call->items = entries;
    call->item_count = n;
    return 0;
}

static int take_list(abx_call *call, const ProtobufCMessage *m, struct abx_err *err)
{
    const Filesystem__ListDirResponse *answer = (const Filesystem__ListDirResponse *)m;

    return take_entries(call, answer->entries, answer->n_entries, err);
}

abx_call *abx_files_list(abx_client *client, const abx_sandbox *sandbox, const char *path,
                         uint32_t depth, const struct abx_files_opts *opts)
{
    Filesystem__ListDirRequest request = FILESYSTEM__LIST_DIR_REQUEST__INIT;
    struct rpc_call_spec spec = {
        .procedure = "filesystem.Filesystem/ListDir",
        .request = &request.base,
        .response = &filesystem__list_dir_response__descriptor,
        .is_read = true,
        .result = ABX_RESULT_ENTRIES,
        .take = take_list,
    };
    struct abx_err err = { 0 };

    if (depth == 0) {
        (void)err_set(&err, ABX_INVALID_ARGUMENT, "depth must be at least 1");
        return call_new_failed(client, &err);
    }
    request.path = pb_text(path);
    request.depth = depth;
    return files_call(client, sandbox, &spec, path, NULL, opts);
}

_Static_assert(offsetof(Filesystem__StatResponse, entry) ==
                   offsetof(Filesystem__MoveResponse, entry),
               "both answers are read as one");

static int take_entry(abx_call *call, const ProtobufCMessage *m, struct abx_err *err)
{
    Filesystem__EntryInfo *entry = ((const Filesystem__StatResponse *)m)->entry;

    if (!entry)
        return err_reason(err, ABX_REASON_PROTOCOL, "the answer has no entry");
    return take_entries(call, &entry, 1, err);
}

abx_call *abx_files_stat(abx_client *client, const abx_sandbox *sandbox, const char *path,
                         const struct abx_files_opts *opts)
{
    Filesystem__StatRequest request = FILESYSTEM__STAT_REQUEST__INIT;
    struct rpc_call_spec spec = {
        .procedure = "filesystem.Filesystem/Stat",
        .request = &request.base,
        .response = &filesystem__stat_response__descriptor,
        .is_read = true,
        .result = ABX_RESULT_ENTRIES,
        .take = take_entry,
    };

    request.path = pb_text(path);
    return files_call(client, sandbox, &spec, path, NULL, opts);
}

abx_call *abx_files_exists(abx_client *client, const abx_sandbox *sandbox, const char *path,
                           const struct abx_files_opts *opts)
{
    Filesystem__StatRequest request = FILESYSTEM__STAT_REQUEST__INIT;
    struct rpc_call_spec spec = {
        .procedure = "filesystem.Filesystem/Stat",
        .request = &request.base,
        .response = &filesystem__stat_response__descriptor,
        .is_read = true,
        .result = ABX_RESULT_BOOL,
        .false_code = ABX_NOT_FOUND,
    };

    request.path = pb_text(path);
    return files_call(client, sandbox, &spec, path, NULL, opts);
}

abx_call *abx_files_make_dir(abx_client *client, const abx_sandbox *sandbox, const char *path,
                             const struct abx_files_opts *opts)
{
    Filesystem__MakeDirRequest request = FILESYSTEM__MAKE_DIR_REQUEST__INIT;
    struct rpc_call_spec spec = {
        .procedure = "filesystem.Filesystem/MakeDir",
        .request = &request.base,
        .response = &filesystem__make_dir_response__descriptor,
        .result = ABX_RESULT_BOOL,
        .false_code = ABX_ALREADY_EXISTS,
    };

    request.path = pb_text(path);
    return files_call(client, sandbox, &spec, path, NULL, opts);
}

abx_call *abx_files_rename(abx_client *client, const abx_sandbox *sandbox, const char *from,
                           const char *to, const struct abx_files_opts *opts)
{
    Filesystem__MoveRequest request = FILESYSTEM__MOVE_REQUEST__INIT;
    struct rpc_call_spec spec = {
        .procedure = "filesystem.Filesystem/Move",
        .request = &request.base,
        .response = &filesystem__move_response__descriptor,
        .result = ABX_RESULT_ENTRIES,
        .take = take_entry,
    };

    request.source = pb_text(from);
    request.destination = pb_text(to);
    return files_call(client, sandbox, &spec, to ? from : NULL, to, opts);
}

abx_call *abx_files_remove(abx_client *client, const abx_sandbox *sandbox, const char *path,
                           const struct abx_files_opts *opts)
{
    Filesystem__RemoveRequest request = FILESYSTEM__REMOVE_REQUEST__INIT;
    struct rpc_call_spec spec = {
        .procedure = "filesystem.Filesystem/Remove",
        .request = &request.base,
        .response = &filesystem__remove_response__descriptor,
        .result = ABX_RESULT_NONE,
    };

    request.path = pb_text(path);
    return files_call(client, sandbox, &spec, path, NULL, opts);
}
