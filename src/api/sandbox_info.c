/* sandbox_info.c - what is known of sandboxes (abx/sandbox.h): details, lists, metrics, logs (e2b.md 1.4 to 1.6). */
#include "api/sandbox_info.h"

#include <stdio.h>

#include "base/str.h"
#include "protocol/control.h"
#include "protocol/json_fields.h"
#include "protocol/sandbox.h"
#include "transport/opts.h"

/* ---- details and lists ---- */

static const struct abx_volume_mount *read_mounts(struct json_reader *r, size_t *ret_count)
{
    const json_t *list = json_object_get(r->object, "volumeMounts");
    size_t n = json_array_size(list);
    struct abx_volume_mount *mounts;

    *ret_count = 0;
    if (n == 0 || r->code < 0)
        return NULL;
    mounts = call_alloc_array(r->call, n, sizeof *mounts);
    if (!mounts) {
        r->code = err_oom(r->err);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        struct json_reader one = *r;

        one.object = json_array_get(list, i);
        mounts[i].name = json_reader_text(&one, "name");
        mounts[i].path = json_reader_text(&one, "path");
        if (one.code < 0)
            r->code = err_wrap(r->err, one.code, "volumeMounts[%zu]", i);
    }
    *ret_count = n;
    return mounts;
}

/* A ListedSandbox or a SandboxDetail: the second has more of what may be missing. */
static int read_info(abx_call *call, const json_t *object, const char *where,
                     struct abx_sandbox_info *to, struct abx_err *err)
{
    struct json_reader r = { .call = call, .object = object, .where = where, .err = err };
    struct json_reader life = r;

    if (!json_is_object(object))
        return err_reason(err, ABX_REASON_PROTOCOL, "%s is no JSON object", where);
    to->sandbox_id = json_reader_text(&r, "sandboxID");
    to->template_id = json_reader_text(&r, "templateID");
    to->client_id = json_reader_text(&r, "clientID");
    to->state = json_reader_text(&r, "state");
    to->envd_version = json_reader_text(&r, "envdVersion");
    to->started_at_us = json_reader_time_us(&r, "startedAt");
    to->end_at_us = json_reader_time_us(&r, "endAt");
    to->cpu_count = json_reader_int(&r, "cpuCount");
    to->memory_mb = json_reader_int(&r, "memoryMB");
    to->disk_mb = json_reader_int(&r, "diskSizeMB");
    to->alias = json_reader_text_if(&r, "alias");
    to->domain = json_reader_text_if(&r, "domain");
    to->envd_access_token = json_reader_text_if(&r, "envdAccessToken");
    to->traffic_access_token = json_reader_text_if(&r, "trafficAccessToken");
    to->envd_url = json_reader_text_if(&r, "envdUrl");
    to->protobuf = json_offers_protobuf(object);
    to->allow_internet_access = json_reader_bool_if(&r, "allowInternetAccess");
    to->network_json = json_reader_json_if(&r, "network");
    to->metadata = json_reader_pairs(&r, "metadata", &to->metadata_count);
    to->mounts = read_mounts(&r, &to->mount_count);
    life.object = json_reader_object_if(&r, "lifecycle");
    to->on_timeout = NULL;
    to->auto_resume = ABX_UNSET;
    if (life.object) {
        to->on_timeout = json_reader_text_if(&life, "onTimeout");
        to->auto_resume = json_reader_bool_if(&life, "autoResume");
    }
    return r.code < 0 ? r.code : life.code;
}

int sandbox_info_decode(abx_call *call, const json_t *doc, struct abx_err *err)
{
    struct abx_sandbox_info *info = call_alloc(call, sizeof *info);

    if (!info)
        return err_oom(err);
    call->items = info;
    call->item_count = 1;
    return read_info(call, doc, "", info, err);
}

/* Room for the elements of an array; `*ret` stays NULL when there are none. */
static int array_room(abx_call *call, const json_t *array, const char *what, size_t size,
                      void **ret, struct abx_err *err)
{
    size_t n = json_array_size(array);

    *ret = NULL;
    if (!json_is_array(array))
        return err_reason(err, ABX_REASON_PROTOCOL, "%s is no JSON array", what);
    if (n > 0) {
        *ret = call_alloc_array(call, n, size);
        if (!*ret)
            return err_oom(err);
    }
    call->items = *ret;
    call->item_count = n;
    return 0;
}

#define WHERE_SIZE 32

static const char *where_of(size_t i, char to[WHERE_SIZE])
{
    (void)snprintf(to, WHERE_SIZE, "[%zu]", i);
    return to;
}

static int decode_list(abx_call *call, const json_t *doc, struct abx_err *err)
{
    char where[WHERE_SIZE];
    void *room;
    int r = array_room(call, doc, "it", sizeof(struct abx_sandbox_info), &room, err);

    for (size_t i = 0; r == 0 && i < call->item_count; i++)
        r = read_info(call, json_array_get(doc, i), where_of(i, where),
                      (struct abx_sandbox_info *)room + i, err);
    return r;
}

static int start_info(abx_call *call, const char *sandbox_id, int64_t request_timeout_ms,
                      struct abx_err *err)
{
    struct control_spec spec = {
        .method = "GET",
        .action = "GetSandbox",
        .retry = HTTP_RETRY_READ,
        .request_timeout_ms = request_timeout_ms,
        .not_found = ABX_REASON_SANDBOX_NOT_FOUND,
        .result = ABX_RESULT_SANDBOX_INFOS,
        .decode = sandbox_info_decode,
    };
    int r = control_sandbox_path(call, sandbox_id, "", &spec.path, err);

    return r < 0 ? r : control_start(call, &spec, err);
}

abx_call *abx_sandbox_get_info(abx_client *client, abx_config *config, const char *sandbox_id,
                               int64_t request_timeout_ms)
{
    abx_call *call = control_new(client, config, 0);
    struct abx_err err = { 0 };

    if (call && start_info(call, sandbox_id, request_timeout_ms, &err) < 0)
        call_fail(call, &err);
    return call;
}

/* Percent-encodes twice; a third time comes with the query (e2b.md 1.5). */
static bool encode_twice(struct buf *to, const char *text)
{
    _cleanup_(buf_done) struct buf once = BUF_INIT(65536);

    return percent_encode(&once, slice_str(text)) == BUF_OK &&
           percent_encode(to, buf_slice(&once)) == BUF_OK;
}

static int put_metadata(struct control_query *q, const struct abx_pair *pairs, size_t n,
                        struct abx_err *err)
{
    _cleanup_(buf_done) struct buf filter = BUF_INIT(65536);

    if (opts_array_check(pairs, n, "metadata", err) < 0)
        return err->code;
    for (size_t i = 0; i < n; i++) {
        if (!pairs[i].key || !pairs[i].value)
            return err_set(err, ABX_INVALID_ARGUMENT, "metadata: a text is missing (NULL)");
        if ((i > 0 && buf_append_byte(&filter, '&') != BUF_OK) ||
            !encode_twice(&filter, pairs[i].key) || buf_append_byte(&filter, '=') != BUF_OK ||
            !encode_twice(&filter, pairs[i].value))
            return err_set(err, ABX_INVALID_ARGUMENT, "metadata: the filter is over 64 KiB");
    }
    if (n > 0)
        control_query_text(q, "metadata", buf_cstr(&filter));
    return 0;
}

static int check_limit(int limit, struct abx_err *err)
{
    if (limit >= 0 && limit <= 100)
        return 0;
    return err_set(err, ABX_INVALID_ARGUMENT,
                   "limit: %d (1 to 100 are possible, 0 = the server's default)", limit);
}

static int start_list(abx_call *call, const struct abx_list_opts *given, struct abx_err *err)
{
    struct abx_list_opts opts = ABX_LIST_OPTS_INIT;
    struct control_spec spec = {
        .method = "GET",
        .path = "/v2/sandboxes",
        .action = "ListSandboxes",
        .retry = HTTP_RETRY_READ,
        .result = ABX_RESULT_SANDBOX_INFOS,
        .decode = decode_list,
    };
    struct control_query q = { 0 };
    int r = opts_copy(&opts, sizeof opts, given, "abx_list_opts", err), done;

    if (r == 0)
        r = check_limit(opts.limit, err);
    if (r == 0)
        r = put_metadata(&q, opts.metadata, opts.metadata_count, err);
    control_query_text(&q, "state", opts.states);
    control_query_text(&q, "template", opts.template_id);
    control_query_int(&q, "limit", opts.limit);
    control_query_text(&q, "nextToken", opts.next_token);
    done = control_query_done(&q, call, &spec.query, r == 0 ? err : NULL);
    spec.request_timeout_ms = opts.request_timeout_ms;
    if (r == 0)
        r = done;
    return r < 0 ? r : control_start(call, &spec, err);
}

abx_call *abx_sandbox_list(abx_client *client, abx_config *config, const struct abx_list_opts *opts)
{
    abx_call *call = control_new(client, config, 0);
    struct abx_err err = { 0 };

    if (call && start_list(call, opts, &err) < 0)
        call_fail(call, &err);
    return call;
}

const struct abx_sandbox_info *abx_call_sandbox_infos(const abx_call *call, size_t *ret_count)
{
    return call_items(call, ABX_RESULT_SANDBOX_INFOS, ret_count);
}

/* ---- metrics ---- */

static int decode_metrics(abx_call *call, const json_t *doc, struct abx_err *err)
{
    struct abx_metrics *all;
    char where[WHERE_SIZE];
    void *room;
    int code = array_room(call, doc, "it", sizeof *all, &room, err);

    all = room;
    for (size_t i = 0; code == 0 && i < call->item_count; i++) {
        struct json_reader r = {
            .call = call, .object = json_array_get(doc, i), .where = where_of(i, where), .err = err
        };

        all[i].timestamp_us = json_reader_time_us(&r, "timestamp");
        all[i].cpu_used_pct = json_reader_number(&r, "cpuUsedPct");
        all[i].cpu_count = json_reader_int(&r, "cpuCount");
        all[i].mem_used = json_reader_int(&r, "memUsed");
        all[i].mem_total = json_reader_int(&r, "memTotal");
        all[i].mem_cache = json_reader_int(&r, "memCache");
        all[i].disk_used = json_reader_int(&r, "diskUsed");
        all[i].disk_total = json_reader_int(&r, "diskTotal");
        code = r.code;
    }
    return code;
}

static int start_metrics(abx_call *call, const char *sandbox_id, int64_t start_s, int64_t end_s,
                         int64_t request_timeout_ms, struct abx_err *err)
{
    struct control_spec spec = {
        .method = "GET",
        .action = "GetSandboxMetrics",
        .retry = HTTP_RETRY_READ,
        .request_timeout_ms = request_timeout_ms,
        .not_found = ABX_REASON_SANDBOX_NOT_FOUND,
        .result = ABX_RESULT_METRICS,
        .decode = decode_metrics,
    };
    struct control_query q = { 0 };
    int r = control_sandbox_path(call, sandbox_id, "/metrics", &spec.path, err);

    if (r < 0)
        return r;
    if (control_is_debug(call)) {
        call_finish(call, ABX_RESULT_METRICS);
        return 0;
    }
    control_query_int(&q, "start", start_s);
    control_query_int(&q, "end", end_s);
    r = control_query_done(&q, call, &spec.query, err);
    return r < 0 ? r : control_start(call, &spec, err);
}

abx_call *abx_sandbox_get_metrics(abx_client *client, abx_config *config, const char *sandbox_id,
                                  int64_t start_s, int64_t end_s, int64_t request_timeout_ms)
{
    abx_call *call = control_new(client, config, 0);
    struct abx_err err = { 0 };

    if (call && start_metrics(call, sandbox_id, start_s, end_s, request_timeout_ms, &err) < 0)
        call_fail(call, &err);
    return call;
}

const struct abx_metrics *abx_call_metrics(const abx_call *call, size_t *ret_count)
{
    return call_items(call, ABX_RESULT_METRICS, ret_count);
}

/* ---- logs ---- */

static int decode_logs(abx_call *call, const json_t *doc, struct abx_err *err)
{
    const json_t *list = json_object_get(doc, "logs");
    struct abx_log_entry *all;
    char where[WHERE_SIZE];
    void *room;
    int code = array_room(call, list, "logs", sizeof *all, &room, err);

    all = room;
    for (size_t i = 0; code == 0 && i < call->item_count; i++) {
        struct json_reader r = {
            .call = call, .object = json_array_get(list, i), .where = where_of(i, where), .err = err
        };

        all[i].timestamp_us = json_reader_time_us(&r, "timestamp");
        all[i].level = json_reader_text(&r, "level");
        all[i].message = json_reader_text(&r, "message");
        all[i].fields_json = json_reader_json_if(&r, "fields");
        if (!all[i].fields_json)
            all[i].fields_json = "{}";
        code = r.code < 0 ? err_wrap(err, r.code, "logs") : 0;
    }
    return code;
}

static int start_logs(abx_call *call, const char *sandbox_id, const struct abx_logs_opts *given,
                      struct abx_err *err)
{
    struct abx_logs_opts opts = ABX_LOGS_OPTS_INIT;
    struct control_spec spec = {
        .method = "GET",
        .action = "GetSandboxLogs",
        .retry = HTTP_RETRY_READ,
        .not_found = ABX_REASON_SANDBOX_NOT_FOUND,
        .result = ABX_RESULT_LOGS,
        .decode = decode_logs,
    };
    struct control_query q = { 0 };
    int r = opts_copy(&opts, sizeof opts, given, "abx_logs_opts", err);

    if (r == 0 && opts.limit < 0)
        r = err_set(err, ABX_INVALID_ARGUMENT, "limit: %d is negative", opts.limit);
    if (r == 0)
        r = sandbox_id_check(sandbox_id, err);
    if (r == 0)
        r = control_path(call, "/v2/sandboxes/", "sandbox id", sandbox_id, "/logs", &spec.path,
                         err);
    if (r < 0)
        return r;
    control_query_int(&q, "cursor", opts.cursor_ms);
    control_query_int(&q, "limit", opts.limit);
    control_query_text(&q, "direction", opts.backward ? "backward" : "forward");
    control_query_text(&q, "level", opts.level);
    control_query_text(&q, "search", opts.search);
    spec.request_timeout_ms = opts.request_timeout_ms;
    r = control_query_done(&q, call, &spec.query, err);
    return r < 0 ? r : control_start(call, &spec, err);
}

abx_call *abx_sandbox_get_logs(abx_client *client, abx_config *config, const char *sandbox_id,
                               const struct abx_logs_opts *opts)
{
    abx_call *call = control_new(client, config, 0);
    struct abx_err err = { 0 };

    if (call && start_logs(call, sandbox_id, opts, &err) < 0)
        call_fail(call, &err);
    return call;
}

const struct abx_log_entry *abx_call_logs(const abx_call *call, size_t *ret_count)
{
    return call_items(call, ABX_RESULT_LOGS, ret_count);
}
