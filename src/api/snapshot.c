/* snapshot.c - snapshots, rollbacks and forks (abx/sandbox.h; e2b.md 1.2 and 1.4), and requests that nothing else covers. */
#include <stdio.h>

#include "api/sandbox_info.h"
#include "base/str.h"
#include "e2b/jsondoc.h"
#include "protocol/control.h"
#include "protocol/json_fields.h"
#include "protocol/sandbox.h"
#include "transport/opts.h"

static int read_snapshot(abx_call *call, const json_t *object, const char *where,
                         struct abx_snapshot *to, struct abx_err *err)
{
    struct json_reader r = { .call = call, .object = object, .where = where, .err = err };

    if (!json_is_object(object))
        return err_reason(err, ABX_REASON_PROTOCOL, "%s is no JSON object", where);
    to->snapshot_id = json_reader_text(&r, "snapshotID");
    to->names = json_reader_texts(&r, "names", &to->name_count);
    return r.code;
}

static int decode_snapshot(abx_call *call, const json_t *doc, struct abx_err *err)
{
    struct abx_snapshot *one = call_alloc(call, sizeof *one);

    if (!one)
        return err_oom(err);
    call->items = one;
    call->item_count = 1;
    return read_snapshot(call, doc, "", one, err);
}

static int decode_snapshots(abx_call *call, const json_t *doc, struct abx_err *err)
{
    size_t n = json_array_size(doc);
    struct abx_snapshot *all;
    char where[32];
    int r = 0;

    if (!json_is_array(doc))
        return err_reason(err, ABX_REASON_PROTOCOL, "is no JSON array");
    if (n == 0)
        return 0;
    all = call_alloc_array(call, n, sizeof *all);
    if (!all)
        return err_oom(err);
    call->items = all;
    call->item_count = n;
    for (size_t i = 0; r == 0 && i < n; i++) {
        (void)snprintf(where, sizeof where, "[%zu]", i);
        r = read_snapshot(call, json_array_get(doc, i), where, &all[i], err);
    }
    return r;
}

/* POST /sandboxes/{id}<after> with what is in `w`, which is done after. */
static int start_post(abx_call *call, const char *sandbox_id, const char *after,
                      struct control_spec *spec, struct json_writer *w, struct abx_err *err)
{
    int r = w->code;

    if (r == 0)
        r = control_sandbox_path(call, sandbox_id, after, &spec->path, err);
    spec->method = "POST";
    spec->body = w->object;
    if (r == 0)
        r = control_start(call, spec, err);
    json_writer_done(w);
    return r;
}

abx_call *abx_snapshot_create(abx_client *client, abx_config *config, const char *sandbox_id,
                              const char *name, int64_t request_timeout_ms)
{
    struct control_spec spec = {
        .action = "CreateSnapshot",
        .retry = HTTP_RETRY_CONNECT,
        .request_timeout_ms = request_timeout_ms,
        .not_found = ABX_REASON_SANDBOX_NOT_FOUND,
        .result = ABX_RESULT_SNAPSHOTS,
        .decode = decode_snapshot,
    };
    abx_call *call = control_new(client, config, 0);
    struct abx_err err = { 0 };
    struct json_writer w;

    if (!call)
        return NULL;
    json_writer_init(&w, &err);
    json_writer_text(&w, "name", name);
    if (start_post(call, sandbox_id, "/snapshots", &spec, &w, &err) < 0)
        call_fail(call, &err);
    return call;
}

static int start_list(abx_call *call, struct control_query *q, int limit,
                      int64_t request_timeout_ms, struct abx_err *err)
{
    struct control_spec spec = {
        .method = "GET",
        .path = "/snapshots",
        .action = "ListSnapshots",
        .retry = HTTP_RETRY_READ,
        .request_timeout_ms = request_timeout_ms,
        .result = ABX_RESULT_SNAPSHOTS,
        .decode = decode_snapshots,
    };
    int r = control_query_done(q, call, &spec.query, err);

    if (r == 0 && (limit < 0 || limit > 100))
        r = err_set(err, ABX_INVALID_ARGUMENT,
                    "limit: %d (1 to 100 are possible, 0 = the server's default)", limit);
    return r < 0 ? r : control_start(call, &spec, err);
}

abx_call *abx_snapshot_list(abx_client *client, abx_config *config, const char *sandbox_id,
                            const char *name, int limit, const char *next_token,
                            int64_t request_timeout_ms)
{
    abx_call *call = control_new(client, config, 0);
    struct control_query q = { 0 };
    struct abx_err err = { 0 };

    if (!call)
        return NULL;
    control_query_text(&q, "sandboxID", sandbox_id);
    control_query_text(&q, "name", name);
    control_query_int(&q, "limit", limit);
    control_query_text(&q, "nextToken", next_token);
    if (start_list(call, &q, limit, request_timeout_ms, &err) < 0)
        call_fail(call, &err);
    return call;
}

static int start_delete(abx_call *call, const char *snapshot_id, int64_t request_timeout_ms,
                        struct abx_err *err)
{
    struct control_spec spec = {
        .method = "DELETE",
        .action = "DeleteTemplate",
        .retry = HTTP_RETRY_READ,
        .request_timeout_ms = request_timeout_ms,
        .not_found = ABX_REASON_TEMPLATE_NOT_FOUND,
        .false_status = 404,
        .result = ABX_RESULT_BOOL,
    };
    int r = control_path(call, "/templates/", "snapshot id", snapshot_id, "", &spec.path, err);

    return r < 0 ? r : control_start(call, &spec, err);
}

abx_call *abx_snapshot_delete(abx_client *client, abx_config *config, const char *snapshot_id,
                              int64_t request_timeout_ms)
{
    abx_call *call = control_new(client, config, 0);
    struct abx_err err = { 0 };

    if (call && start_delete(call, snapshot_id, request_timeout_ms, &err) < 0)
        call_fail(call, &err);
    return call;
}

const struct abx_snapshot *abx_call_snapshots(const abx_call *call, size_t *ret_count)
{
    return call_items(call, ABX_RESULT_SNAPSHOTS, ret_count);
}

static int start_rollback(abx_call *call, const char *sandbox_id, const char *snapshot_id,
                          int64_t request_timeout_ms, struct abx_err *err)
{
    struct control_spec spec = {
        .action = "RollbackSandbox",
        .retry = HTTP_RETRY_CONNECT,
        .request_timeout_ms = request_timeout_ms,
        .not_found = ABX_REASON_NONE, /* the sandbox or the snapshot: its message says which */
        .result = ABX_RESULT_SANDBOX_INFOS,
        .decode = sandbox_info_decode,
    };
    struct json_writer w;

    if (!snapshot_id || snapshot_id[0] == '\0')
        return err_set(err, ABX_INVALID_ARGUMENT, "snapshot_id: is missing");
    json_writer_init(&w, err);
    json_writer_text(&w, "snapshotID", snapshot_id);
    return start_post(call, sandbox_id, "/rollback", &spec, &w, err);
}

abx_call *abx_sandbox_rollback(abx_client *client, abx_config *config, const char *sandbox_id,
                               const char *snapshot_id, int64_t request_timeout_ms)
{
    abx_call *call = control_new(client, config, 0);
    struct abx_err err = { 0 };

    if (call && start_rollback(call, sandbox_id, snapshot_id, request_timeout_ms, &err) < 0)
        call_fail(call, &err);
    return call;
}

/* One of a fork's answer: a sandbox that was made, or why it was not. */
static int check_copy(abx_call *call, const json_t *object, const char *where, struct abx_err *err)
{
    struct json_reader r = { .call = call, .object = object, .where = where, .err = err };
    const json_t *made, *error;

    if (!json_is_object(object))
        return err_reason(err, ABX_REASON_PROTOCOL, "%s is no JSON object", where);
    made = json_reader_object_if(&r, "sandbox");
    error = json_reader_object_if(&r, "error");
    if (r.code < 0)
        return r.code;
    if (!made && !error)
        return err_reason(err, ABX_REASON_PROTOCOL, "%s has neither sandbox nor error", where);
    r.object = made ? made : error;
    if (made) {
        static const char *const more[] = { "templateID", "envdVersion",        "envdAccessToken",
                                            "domain",     "trafficAccessToken", "envdUrl" };

        (void)json_reader_text(&r, "sandboxID");
        for (size_t i = 0; i < ARRAY_SIZE(more); i++)
            (void)json_reader_text_if(&r, more[i]);
    } else {
        (void)json_reader_int(&r, "code");
        (void)json_reader_text(&r, "message");
    }
    return r.code;
}

static int decode_fork(abx_call *call, const json_t *doc, struct abx_err *err)
{
    char where[32];
    int r = 0;

    if (!json_is_array(doc))
        return err_reason(err, ABX_REASON_PROTOCOL, "is no JSON array");
    for (size_t i = 0; r == 0 && i < json_array_size(doc); i++) {
        (void)snprintf(where, sizeof where, "[%zu]", i);
        r = check_copy(call, json_array_get(doc, i), where, err);
    }
    return r;
}

static int start_fork(abx_call *call, const char *sandbox_id, int count, int64_t timeout_s,
                      int64_t request_timeout_ms, struct abx_err *err)
{
    struct control_spec spec = {
        .action = "ForkSandbox",
        .retry = HTTP_RETRY_CONNECT,
        .request_timeout_ms = request_timeout_ms,
        .not_found = ABX_REASON_SANDBOX_NOT_FOUND,
        .result = ABX_RESULT_JSON,
        .decode = decode_fork,
    };
    struct json_writer w;

    if (count < 1 || count > 100)
        return err_set(err, ABX_INVALID_ARGUMENT, "count: %d (1 to 100 are possible)", count);
    if (timeout_s < 0 || timeout_s > INT32_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "timeout: %lld seconds (0 = the server's default)", (long long)timeout_s);
    json_writer_init(&w, err);
    json_writer_int(&w, "count", count);
    if (timeout_s > 0)
        json_writer_int(&w, "timeout", timeout_s);
    return start_post(call, sandbox_id, "/fork", &spec, &w, err);
}

abx_call *abx_sandbox_fork(abx_client *client, abx_config *config, const char *sandbox_id,
                           int count, int64_t timeout_s, int64_t request_timeout_ms)
{
    abx_call *call = control_new(client, config, 0);
    struct abx_err err = { 0 };

    if (call && start_fork(call, sandbox_id, count, timeout_s, request_timeout_ms, &err) < 0)
        call_fail(call, &err);
    return call;
}

/* ---- every other route ---- */

/* What may stand in a request line: visible ASCII; `stop` ends a path, a query, or nothing. */
static bool is_line_part(const char *text, char stop)
{
    for (; *text; text++) {
        if (*text <= ' ' || *text >= 0x7f || *text == '#' || *text == stop)
            return false;
    }
    return true;
}

static int check_request(const struct abx_control_opts *o, struct abx_err *err)
{
    size_t n = o->method ? strspn(o->method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") : 0;
    _cleanup_(json_unrefp) json_t *doc = NULL;
    int r = 0;

    if (n == 0 || n > 16 || o->method[n] != '\0')
        return err_set(err, ABX_INVALID_ARGUMENT, "method: has to be 1 to 16 capital letters");
    if (!o->path || o->path[0] != '/' || !is_line_part(o->path, '?'))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "path: has to begin with '/' and to be percent-encoded");
    if (o->query && !is_line_part(o->query, '\0'))
        return err_set(err, ABX_INVALID_ARGUMENT, "query: has to be percent-encoded");
    if (o->body_json)
        r = jsondoc_parse(slice_str(o->body_json), &doc, err);
    return r < 0 ? err_wrap(err, r, "body_json") : 0;
}

static int start_request(abx_call *call, const struct abx_control_opts *given, struct abx_err *err)
{
    struct abx_control_opts opts = ABX_CONTROL_OPTS_INIT;
    struct control_spec spec = { .action = "Request",
                                 .retry = HTTP_RETRY_CONNECT,
                                 .result = ABX_RESULT_JSON };
    int r = opts_copy(&opts, sizeof opts, given, "abx_control_opts", err);

    if (r == 0)
        r = check_request(&opts, err);
    if (r < 0)
        return r;
    spec.method = call_strdup(call, opts.method);
    spec.path = call_strdup(call, opts.path);
    spec.query = call_strdup(call, opts.query);
    if (!spec.method || !spec.path || (opts.query && !spec.query))
        return err_oom(err);
    spec.body_text = slice_str(opts.body_json);
    spec.request_timeout_ms = opts.request_timeout_ms;
    if (strcmp(opts.method, "GET") == 0 || strcmp(opts.method, "HEAD") == 0)
        spec.retry = HTTP_RETRY_READ;
    return control_start(call, &spec, err);
}

abx_call *abx_control_request(abx_client *client, abx_config *config,
                              const struct abx_control_opts *opts)
{
    abx_call *call = control_new(client, config, 0);
    struct abx_err err = { 0 };

    if (call && start_request(call, opts, &err) < 0)
        call_fail(call, &err);
    return call;
}
