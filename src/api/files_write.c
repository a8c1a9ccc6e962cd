/* files_write.c - POST /files (abx/files.h).
 *
 * One file from memory goes as application/octet-stream with ?path=, straight from the caller's memory;
 * several go as multipart/form-data in one request without a path, as the field's clients send them. Where
 * that cannot be (packed, names that a multipart head cannot carry) they go one after the other. An envd
 * before 0.5.7 knows multipart only.
 */
#include <string.h>

#include "api/entry.h"
#include "api/upload.h"
#include "base/str.h"
#include "e2b/jsondoc.h"
#include "transport/opts.h"

#define BATCH_ITEMS 1000u
#define BATCH_NAMES 65536u /* bytes: the answer names every file and has to stay under 1 MiB */
#define ANSWER_MAX (1u << 20)
#define METADATA_MAX 60u
#define METADATA_KEY_MAX 246u

struct write {
    struct envd_exchange x;
    struct upload upload;
    abx_sandbox *sandbox;
    struct abx_write_item *items; /* arena, with their paths */
    size_t count, next, batch;    /* `batch` items from `next` on are on their way */
    const char *user;
    struct abx_pair *headers; /* X-Metadata-*, arena; room for two more */
    size_t header_count;
    bool is_gzip, is_octet;
    int64_t deadline_ns; /* of requests without a source */
    int64_t timeout_ms;  /* of sources: between their bytes, 0 = none */
    bool has_source;
    struct client_timer timer;
    struct buf answer;
    struct abx_entry *entries;
};

static void write_cancel(abx_call *call)
{
    struct write *w = call->state;

    envd_exchange_cancel(&w->x);
}

static void write_done(abx_call *call)
{
    struct write *w = call->state;

    client_timer_clear(call->client, &w->timer);
    upload_done(&w->upload);
    buf_done(&w->answer);
    abx_sandbox_unref(TAKE_PTR(w->sandbox));
}

static void write_resume(abx_call *call)
{
    struct write *w = call->state;

    upload_resume(&w->upload);
    envd_exchange_resume_source(&w->x);
}

/* ---- the answer ---- */

static const char *text_take(abx_call *call, const json_t *object, const char *name)
{
    const json_t *v = json_object_get(object, name);

    return call_strdup(call, v && json_is_string(v) ? json_string_value(v) : "");
}

static int metadata_take(abx_call *call, const json_t *object, struct abx_entry *ret)
{
    json_t *metadata = json_object_get(object, "metadata");
    struct abx_pair *pairs;
    const char *key;
    json_t *value;
    size_t n = 0;

    if (!json_is_object(metadata))
        return 0;
    pairs = call_alloc_array(call, json_object_size(metadata), sizeof *pairs);
    if (!pairs)
        return -1;
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            continue;
        pairs[n].key = call_strdup(call, key);
        pairs[n].value = call_strdup(call, json_string_value(value));
        if (!pairs[n].key || !pairs[n].value)
            return -1;
        n++;
    }
    ret->metadata = pairs;
    ret->metadata_count = n;
    return 0;
}

static int entry_take_json(abx_call *call, const json_t *object, struct abx_entry *ret,
                           struct abx_err *err)
{
    const char *type = json_string_value(json_object_get(object, "type"));

    *ret = (struct abx_entry){
        .name = text_take(call, object, "name"),
        .path = text_take(call, object, "path"),
    };
    if (type && strcmp(type, "file") == 0)
        ret->type = ABX_FILE_FILE;
    else if (type && strcmp(type, "dir") == 0)
        ret->type = ABX_FILE_DIR;
    if (!ret->name || !ret->path || metadata_take(call, object, ret) < 0)
        return err_oom(err);
    return 0;
}

static int answer_take(abx_call *call, struct abx_err *err)
{
    struct write *w = call->state;
    _cleanup_(json_unrefp) json_t *doc = NULL;
    struct abx_err why = { 0 };
    int r = 0;

    if (jsondoc_parse(buf_slice(&w->answer), &doc, &why) < 0)
        return envd_protocol_error(&w->x, err, "malformed answer: %s", why.msg);
    if (!json_is_array(doc) || json_array_size(doc) != w->batch)
        return envd_protocol_error(&w->x, err, "the answer is no list of %zu files", w->batch);
    for (size_t i = 0; r == 0 && i < w->batch; i++) {
        const json_t *object = json_array_get(doc, i);

        if (!json_is_object(object))
            return envd_protocol_error(&w->x, err, "the answer is no list of objects");
        r = entry_take_json(call, object, &w->entries[w->next + i], err);
    }
    return r;
}

static enum envd_taken on_body(void *user, struct slice data, struct abx_err *err)
{
    abx_call *call = user;
    struct write *w = call->state;

    switch (buf_append_slice(&w->answer, data)) {
    case BUF_OK:
        return ENVD_TAKEN;
    case BUF_LIMIT:
        (void)envd_protocol_error(&w->x, err, "the answer is over %u bytes", ANSWER_MAX);
        break;
    case BUF_OOM:
        (void)err_oom(err);
        break;
    }
    return ENVD_BROKEN;
}

/* What our own side did wrong says more than the cut that followed. */
static void on_judge(void *user, struct abx_err *err)
{
    abx_call *call = user;
    struct write *w = call->state;

    if (w->upload.err.code != 0 && w->x.status == 0)
        *err = w->upload.err;
    if (err->code == 0)
        (void)answer_take(call, err);
}

static int write_send(abx_call *call, struct abx_err *err);

static void on_done(void *user, const struct abx_err *err, int http_status)
{
    abx_call *call = user;
    struct write *w = call->state;
    struct abx_err why = *err;

    client_timer_clear(call->client, &w->timer);
    upload_done(&w->upload);
    if (why.code == 0) {
        w->next += w->batch;
        if (w->next < w->count && write_send(call, &why) == 0)
            return;
    }
    if (why.code != 0) {
        files_error(&why);
        call_fail_http(call, &why, http_status);
        return;
    }
    call->items = w->entries;
    call->item_count = w->count;
    call_finish(call, ABX_RESULT_ENTRIES);
}

/* ---- requests ---- */

static void timer_move(abx_call *call)
{
    struct write *w = call->state;

    if (w->timeout_ms > 0)
        client_timer_set(call->client, &w->timer, time_mono_ns() + w->timeout_ms * NSEC_PER_MSEC);
}

static void on_timer(void *user)
{
    abx_call *call = user;
    struct write *w = call->state;
    struct abx_err err = { 0 };

    (void)envd_protocol_error(&w->x, &err, "no byte of the source and no answer for %lld ms",
                              (long long)w->timeout_ms);
    err.code = ABX_DEADLINE_EXCEEDED;
    err.reason = ABX_REASON_REQUEST_TIMEOUT;
    envd_exchange_fail(&w->x, &err);
}

static int64_t on_read(void *user, void *buffer, size_t size)
{
    abx_call *call = user;
    struct write *w = call->state;
    int64_t n;

    call_enter(call);
    n = upload_read(&w->upload, buffer, size);
    call_leave(call);
    if (w->has_source && n >= 0)
        timer_move(call);
    return n;
}

/* How many items from `next` on go in one request; 1 also where they go one by one. */
static size_t batch_size(const struct write *w)
{
    size_t n = 0, names = 0;

    if (w->count == 1 || w->is_octet)
        return 1;
    while (w->next + n < w->count && n < BATCH_ITEMS &&
           upload_name_is_plain(w->items[w->next + n].path)) {
        names += strlen(w->items[w->next + n].path);
        if (n > 0 && names > BATCH_NAMES)
            break;
        n++;
    }
    return MAX(n, (size_t)1);
}

/* Body, type and path of the next request. */
static int write_body(abx_call *call, struct envd_request *q, struct buf *type, bool is_batch,
                      struct abx_err *err)
{
    struct write *w = call->state;
    const struct abx_write_item *items = &w->items[w->next];
    bool is_raw = w->is_octet || (!is_batch && sandbox_has_envd(w->sandbox, 0, 5, 7));
    int r;

    w->has_source = false;
    for (size_t i = 0; i < w->batch; i++)
        w->has_source |= items[i].source != NULL;
    if (is_raw && !w->is_gzip && !w->has_source) {
        q->body = slice_of(items->data, items->size);
        q->has_body = true;
    } else {
        r = upload_init(&w->upload, items, w->batch, is_raw, is_batch, w->is_gzip && is_raw, err);
        if (r < 0)
            return r;
        q->source = on_read;
        q->source_user = call;
        q->source_size = upload_size(&w->upload);
    }
    w->headers[w->header_count] = (struct abx_pair){ "Content-Type", "application/octet-stream" };
    if (!is_raw) {
        if (buf_printf(type, "multipart/form-data; boundary=%s", w->upload.boundary) != BUF_OK ||
            !buf_cstr(type))
            return err_oom(err);
        w->headers[w->header_count].value = buf_cstr(type);
    }
    w->headers[w->header_count + 1] = (struct abx_pair){ "Content-Encoding", "gzip" };
    q->headers = w->headers;
    q->header_count = w->header_count + (w->is_gzip && is_raw ? 2 : 1);
    return 0;
}

static int write_send(abx_call *call, struct abx_err *err)
{
    static const struct envd_exchange_ops ops = { NULL, on_body, on_judge, on_done };
    _cleanup_(buf_done) struct buf path = BUF_INIT(65536), type = BUF_INIT(256);
    struct write *w = call->state;
    struct envd_request q = { .what = "POST /files",
                              .method = "POST",
                              .retry = HTTP_RETRY_CONNECT };
    bool is_batch;
    int r;

    w->batch = batch_size(w);
    is_batch = w->count > 1 && !w->is_octet && upload_name_is_plain(w->items[w->next].path);
    buf_reset(&w->answer);
    r = files_path(w->sandbox, is_batch ? NULL : w->items[w->next].path, w->user, &path, &q.path,
                   err);
    if (r == 0)
        r = write_body(call, &q, &type, is_batch, err);
    if (r < 0)
        return r;
    q.deadline_ns = w->has_source ? 0 : w->deadline_ns;
    r = envd_exchange_start(&w->x, call->client, w->sandbox, &q, &ops, call, err);
    if (r == 0 && w->has_source)
        timer_move(call);
    return r;
}

/* ---- arguments ---- */

static bool is_token(const char *s)
{
    for (const char *p = s; *p; p++)
        if ((uint8_t)*p <= ' ' || (uint8_t)*p >= 0x7f || strchr("()<>@,;:\\\"/[]?={}", *p))
            return false;
    return *s != '\0';
}

static bool is_printable(const char *s)
{
    for (; *s; s++)
        if ((uint8_t)*s < 0x20 || (uint8_t)*s > 0x7e)
            return false;
    return true;
}

static int metadata_set(abx_call *call, const struct abx_write_opts *opts, struct abx_err *err)
{
    struct write *w = call->state;

    if (opts_array_check(opts->metadata, opts->metadata_count, "metadata", err) < 0)
        return err->code;
    if (opts->metadata_count > METADATA_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "metadata: more than %u pairs", METADATA_MAX);
    w->headers = call_alloc_array(call, opts->metadata_count + 2, sizeof *w->headers);
    if (!w->headers)
        return err_oom(err);
    for (size_t i = 0; i < opts->metadata_count; i++) {
        const struct abx_pair *pair = &opts->metadata[i];
        _cleanup_(buf_done) struct buf name = BUF_INIT(METADATA_KEY_MAX + 64);

        if (!pair->key || !is_token(pair->key) || strlen(pair->key) > METADATA_KEY_MAX)
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "metadata: the key '%.64s' is no HTTP token of 1 to %u characters",
                           pair->key ? pair->key : "", METADATA_KEY_MAX);
        if (!pair->value || !is_printable(pair->value))
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "metadata: the value of '%.64s' is not printable ASCII", pair->key);
        if (buf_printf(&name, "X-Metadata-%s", pair->key) != BUF_OK)
            return err_oom(err);
        w->headers[i].key = call_dup(call, buf_slice(&name));
        w->headers[i].value = call_strdup(call, pair->value);
        if (!w->headers[i].key || !w->headers[i].value)
            return err_oom(err);
    }
    w->header_count = opts->metadata_count;
    return 0;
}

static int items_set(abx_call *call, const struct abx_write_item *items, size_t count,
                     struct abx_err *err)
{
    struct write *w = call->state;

    if (opts_array_check(items, count, "items", err) < 0)
        return err->code;
    w->items = call_alloc_array(call, count, sizeof *w->items);
    w->entries = call_alloc_array(call, count, sizeof *w->entries);
    if (!w->items || !w->entries)
        return err_oom(err);
    for (size_t i = 0; i < count; i++) {
        struct abx_write_item *item = &w->items[i];

        *item = items[i];
        if (text_check(item->path, "path", true, err) < 0)
            return err->code;
        if (!item->data && !item->source && item->size > 0)
            return err_set(err, ABX_INVALID_ARGUMENT, "'%.200s': data is NULL", item->path);
        if (item->source && item->source_size < 0 && item->source_size != ABX_UNSET)
            return err_set(err, ABX_INVALID_ARGUMENT, "'%.200s': source_size is negative",
                           item->path);
        item->path = call_strdup(call, item->path);
        if (!item->path)
            return err_oom(err);
    }
    w->count = count;
    return 0;
}

static int opts_set(abx_call *call, const abx_sandbox *sandbox, const struct abx_write_opts *given,
                    struct abx_err *err)
{
    struct abx_write_opts opts = ABX_WRITE_OPTS_INIT;
    struct write *w = call->state;
    int r = opts_copy(&opts, sizeof opts, given, "abx_write_opts", err);

    if (r == 0)
        r = text_check(opts.user, "user", false, err);
    if (r == 0)
        r = sandbox_deadline(sandbox, opts.request_timeout_ms, &w->deadline_ns, err);
    if (r == 0 && opts.octet_stream)
        r = sandbox_need_envd(sandbox, 0, 5, 7, "octet-stream uploads", err);
    if (r == 0 && opts.metadata_count > 0)
        r = sandbox_need_envd(sandbox, 0, 6, 2, "file metadata", err);
    if (r == 0)
        r = metadata_set(call, &opts, err);
    if (r < 0)
        return r;
    w->user = call_strdup(call, opts.user);
    if (opts.user && !w->user)
        return err_oom(err);
    /* An older one gets the same bytes unpacked. */
    w->is_gzip = opts.gzip && sandbox_has_envd(sandbox, 0, 5, 7);
    w->is_octet = opts.octet_stream || w->is_gzip;
    w->timeout_ms = opts.request_timeout_ms == ABX_UNSET ? sandbox->config->request_timeout_ms
                                                         : opts.request_timeout_ms;
    return 0;
}

static int start_write(abx_call *call, const abx_sandbox *sandbox,
                       const struct abx_write_item *items, size_t count,
                       const struct abx_write_opts *opts, struct abx_err *err)
{
    struct write *w = call->state;
    int r;

    w->timer = (struct client_timer){ .fn = on_timer, .user = call };
    buf_init(&w->answer, ANSWER_MAX);
    r = opts_set(call, sandbox, opts, err);
    if (r == 0)
        r = items_set(call, items, count, err);
    if (r < 0)
        return r;
    w->sandbox = abx_sandbox_ref((abx_sandbox *)(uintptr_t)sandbox);
    if (count == 0) {
        call->items = w->entries;
        call_finish(call, ABX_RESULT_ENTRIES);
        return 0;
    }
    return write_send(call, err);
}

abx_call *abx_files_write(abx_client *client, const abx_sandbox *sandbox,
                          const struct abx_write_item *items, size_t count,
                          const struct abx_write_opts *opts)
{
    static const struct call_ops ops = { .cancel = write_cancel,
                                         .resume_source = write_resume,
                                         .done = write_done };
    abx_call *call = call_new(client, &ops, sizeof(struct write));
    struct abx_err err = { 0 };

    if (call && start_write(call, sandbox, items, count, opts, &err) < 0)
        call_fail(call, &err);
    return call;
}
