/* sandbox.c - the life of sandboxes (abx/sandbox.h): create, connect, kill, time, pause, network. Routes: client.md 3.1, bodies:
 * e2b.md 1.3. In debug mode there is no control plane: a sandbox listens on this machine (client.md 1.2). */
#include "protocol/sandbox.h"

#include "base/str.h"
#include "e2b/ids.h"
#include "protocol/control.h"
#include "protocol/envd.h"
#include "protocol/json_fields.h"
#include "transport/opts.h"

#define DEFAULT_TIMEOUT_S 300
#define DEBUG_ID "debug_sandbox_id"
#define DEBUG_VERSION "99.99.99"

/* ---- create and connect ---- */

/* Makes the call's result. Wrong parts are the server's fault here. */
static int set_sandbox(abx_call *call, const struct abx_sandbox_parts *parts, struct abx_err *err)
{
    abx_sandbox *sb = NULL;
    int r = sandbox_new(control_config(call), parts, &sb, err);

    if (r == ABX_INVALID_ARGUMENT && err) {
        err->code = r = ABX_INTERNAL;
        err->reason = ABX_REASON_PROTOCOL;
    }
    if (r == 0)
        call->items = sb;
    return r;
}

static int decode_sandbox(abx_call *call, const json_t *doc, struct abx_err *err)
{
    struct json_reader r = { .call = call, .object = doc, .where = "", .err = err };
    struct abx_sandbox_parts parts = ABX_SANDBOX_PARTS_INIT;

    if (!json_is_object(doc))
        return err_reason(err, ABX_REASON_PROTOCOL, "is no JSON object");
    parts.sandbox_id = json_reader_text(&r, "sandboxID");
    parts.template_id = json_reader_text(&r, "templateID");
    parts.envd_version = json_reader_text(&r, "envdVersion");
    (void)json_reader_text(&r, "clientID");
    parts.envd_access_token = json_reader_text_if(&r, "envdAccessToken");
    parts.traffic_access_token = json_reader_text_if(&r, "trafficAccessToken");
    parts.domain = json_reader_text_if(&r, "domain");
    parts.envd_url = json_reader_text_if(&r, "envdUrl");
    parts.protobuf = json_offers_protobuf(doc);
    return r.code < 0 ? r.code : set_sandbox(call, &parts, err);
}

/* Nobody can talk to so old an envd: the sandbox goes, and the call fails when it is gone. */
static int kill_too_old(abx_call *call, struct abx_err *err)
{
    abx_sandbox *sb = (abx_sandbox *)(uintptr_t)call->items;
    struct control_spec spec = {
        .method = "DELETE",
        .action = "KillSandbox",
        .retry = HTTP_RETRY_READ,
        .request_timeout_ms = ABX_UNSET,
    };
    int r = control_sandbox_path(call, sb->id, "", &spec.path, err);

    if (r == 0) {
        struct abx_err why;

        (void)err_reason(&why, ABX_REASON_TEMPLATE_TOO_OLD,
                         "the template's envd %s is older than 0.1.0: rebuild the template",
                         sb->envd_version);
        control_fail_after(call, &why);
        r = control_start(call, &spec, err);
    }
    call->items = NULL;
    abx_sandbox_unref(sb);
    return r < 0 ? r : CONTROL_CONTINUES;
}

static int decode_created(abx_call *call, const json_t *doc, struct abx_err *err)
{
    int r = decode_sandbox(call, doc, err);

    if (r == 0 && !sandbox_has_envd(call->items, 0, 1, 0))
        r = kill_too_old(call, err);
    return r;
}

/* A sandbox of debug mode: nobody is asked. */
static void finish_debug(abx_call *call, const char *id)
{
    struct abx_sandbox_parts parts = ABX_SANDBOX_PARTS_INIT;
    struct abx_err err = { 0 };

    parts.sandbox_id = id;
    parts.envd_version = DEBUG_VERSION;
    if (set_sandbox(call, &parts, &err) < 0)
        call_fail(call, &err);
    else
        call_finish(call, ABX_RESULT_SANDBOX);
}

static int check_timeout(int64_t timeout_s, struct abx_err *err)
{
    if (timeout_s >= 0 && timeout_s <= INT32_MAX)
        return 0;
    return err_set(err, ABX_INVALID_ARGUMENT,
                   "timeout: %lld seconds (1 to %d are possible, 0 = %d)", (long long)timeout_s,
                   INT32_MAX, DEFAULT_TIMEOUT_S);
}

static int check_key(const char *key, struct abx_err *err)
{
    size_t n = strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789-");

    if (n >= 1 && n <= 255 && key[n] == '\0')
        return 0;
    return err_set(err, ABX_INVALID_ARGUMENT,
                   "idempotency key: has to be 1 to 255 characters of [a-z0-9-]");
}

static void put_mounts(struct json_writer *w, const struct abx_create_opts *o)
{
    json_t *list;

    if (o->mount_count == 0)
        return;
    list = json_array();
    for (size_t i = 0; i < o->mount_count && w->code == 0; i++) {
        struct json_writer one;

        json_writer_init(&one, w->err);
        json_writer_text(&one, "name", o->mounts[i].name);
        json_writer_text(&one, "path", o->mounts[i].path);
        if (one.code == 0 && json_array_append_new(list, TAKE_PTR(one.object)) < 0)
            one.code = err_oom(w->err);
        w->code = one.code;
        json_writer_done(&one);
    }
    json_writer_take(w, "volumeMounts", list);
}

static void put_size(struct json_writer *w, const char *name, int value)
{
    if (value < 0 && w->code == 0)
        w->code = err_set(w->err, ABX_INVALID_ARGUMENT, "%s: %d is negative", name, value);
    if (value > 0)
        json_writer_int(w, name, value);
}

static void put_create(struct json_writer *w, const abx_config *config,
                       const struct abx_create_opts *o)
{
    json_writer_text(w, "templateID", o->template_id ? o->template_id : config->default_template);
    json_writer_int(w, "timeout", o->timeout_s > 0 ? o->timeout_s : DEFAULT_TIMEOUT_S);
    json_writer_bool(w, "secure", o->secure == ABX_UNSET ? 1 : o->secure);
    json_writer_bool(w, "allow_internet_access",
                     o->allow_internet_access == ABX_UNSET ? 1 : o->allow_internet_access);
    json_writer_pairs(w, "metadata", o->metadata, o->metadata_count);
    json_writer_pairs(w, "envVars", o->envs, o->env_count);
    json_writer_bool(w, "autoPause", o->auto_pause);
    json_writer_bool(w, "autoPauseMemory", o->auto_pause_memory);
    if (o->auto_resume != ABX_UNSET)
        json_writer_take(w, "autoResume", json_pack("{s:b}", "enabled", o->auto_resume != 0));
    json_writer_json(w, "network", "network_json", o->network_json);
    json_writer_json(w, "mcp", "mcp_json", o->mcp_json);
    json_writer_json(w, "iam", "iam_json", o->iam_json);
    put_mounts(w, o);
    put_size(w, "cpuCount", o->cpu_count);
    put_size(w, "memoryMB", o->memory_mb);
    put_size(w, "diskSizeMB", o->disk_mb);
}

static int start_create(abx_call *call, const struct abx_create_opts *given, struct abx_err *err)
{
    struct abx_create_opts opts = ABX_CREATE_OPTS_INIT;
    char key[UUID_SIZE];
    struct json_writer w;
    int r = opts_copy(&opts, sizeof opts, given, "abx_create_opts", err);

    if (r == 0)
        r = config_check(control_config(call), err);
    if (r == 0)
        r = opts_array_check(opts.metadata, opts.metadata_count, "metadata", err);
    if (r == 0)
        r = opts_array_check(opts.envs, opts.env_count, "envs", err);
    if (r == 0)
        r = opts_array_check(opts.mounts, opts.mount_count, "mounts", err);
    if (r == 0)
        r = check_timeout(opts.timeout_s, err);
    if (r == 0 && opts.idempotency_key)
        r = check_key(opts.idempotency_key, err);
    if (r < 0)
        return r;
    if (control_is_debug(call)) {
        finish_debug(call, DEBUG_ID);
        return 0;
    }
    if (!opts.idempotency_key)
        uuid_new(key);
    json_writer_init(&w, err);
    put_create(&w, control_config(call), &opts);
    r = w.code;
    if (r == 0) {
        struct control_spec spec = {
            .method = "POST",
            .path = "/sandboxes",
            .action = "CreateSandbox",
            .idempotency_key = opts.idempotency_key ? opts.idempotency_key : key,
            .body = w.object,
            .retry = HTTP_RETRY_KEYED,
            .request_timeout_ms = opts.request_timeout_ms,
            .not_found = ABX_REASON_TEMPLATE_NOT_FOUND,
            .result = ABX_RESULT_SANDBOX,
            .decode = decode_created,
        };

        r = control_start(call, &spec, err);
    }
    json_writer_done(&w);
    return r;
}

abx_call *abx_sandbox_create(abx_client *client, abx_config *config,
                             const struct abx_create_opts *opts)
{
    abx_call *call = control_new(client, config, 0);
    struct abx_err err = { 0 };

    if (call && start_create(call, opts, &err) < 0)
        call_fail(call, &err);
    return call;
}

/* A request of one sandbox; `body` is taken over, NULL = none. */
static int start_of_sandbox(abx_call *call, const char *sandbox_id, const char *after,
                            struct control_spec *spec, json_t *body, struct abx_err *err)
{
    int r = control_sandbox_path(call, sandbox_id, after, &spec->path, err);

    spec->body = body;
    spec->not_found = ABX_REASON_SANDBOX_NOT_FOUND;
    if (r == 0)
        r = control_start(call, spec, err);
    json_decref(body);
    return r;
}

static int start_connect(abx_call *call, const char *sandbox_id, int64_t timeout_s,
                         int64_t request_timeout_ms, struct abx_err *err)
{
    struct control_spec spec = {
        .method = "POST",
        .action = "ConnectSandbox",
        .retry = HTTP_RETRY_CONNECT,
        .request_timeout_ms = request_timeout_ms,
        .result = ABX_RESULT_SANDBOX,
        .decode = decode_sandbox,
    };
    json_t *body;
    int r = sandbox_id_check(sandbox_id, err);

    if (r == 0)
        r = check_timeout(timeout_s, err);
    if (r < 0)
        return r;
    if (control_is_debug(call)) {
        finish_debug(call, sandbox_id);
        return 0;
    }
    body =
        json_pack("{s:I}", "timeout", (json_int_t)(timeout_s > 0 ? timeout_s : DEFAULT_TIMEOUT_S));
    return body ? start_of_sandbox(call, sandbox_id, "/connect", &spec, body, err) : err_oom(err);
}

abx_call *abx_sandbox_connect(abx_client *client, abx_config *config, const char *sandbox_id,
                              int64_t timeout_s, int64_t request_timeout_ms)
{
    abx_call *call = control_new(client, config, 0);
    struct abx_err err = { 0 };

    if (call && start_connect(call, sandbox_id, timeout_s, request_timeout_ms, &err) < 0)
        call_fail(call, &err);
    return call;
}

abx_sandbox *abx_call_take_sandbox(abx_call *call)
{
    abx_sandbox *sb;

    if (abx_call_result(call) != ABX_RESULT_SANDBOX)
        return NULL;
    sb = (abx_sandbox *)(uintptr_t)call->items;
    call->items = NULL;
    return sb;
}

/* ---- kill, time, pause, network ---- */

abx_call *abx_sandbox_kill(abx_client *client, abx_config *config, const char *sandbox_id,
                           int64_t request_timeout_ms)
{
    struct control_spec spec = {
        .method = "DELETE",
        .action = "KillSandbox",
        .retry = HTTP_RETRY_READ,
        .request_timeout_ms = request_timeout_ms,
        .false_status = 404,
        .result = ABX_RESULT_BOOL,
    };
    abx_call *call = control_new(client, config, 0);
    struct abx_err err = { 0 };

    if (!call)
        return NULL;
    if (control_is_debug(call)) {
        call->bool_result = 1;
        call_finish(call, ABX_RESULT_BOOL);
    } else if (start_of_sandbox(call, sandbox_id, "", &spec, NULL, &err) < 0) {
        call_fail(call, &err);
    }
    return call;
}

/* A POST or PUT whose answer has no body. */
static abx_call *change(abx_client *client, abx_config *config, const char *sandbox_id,
                        const char *after, struct control_spec *spec, json_t *body)
{
    abx_call *call = control_new(client, config, 0);
    struct abx_err err = { 0 };
    int r;

    if (!call) {
        json_decref(body);
        return NULL;
    }
    r = body ? start_of_sandbox(call, sandbox_id, after, spec, body, &err) : err_oom(&err);
    if (r < 0)
        call_fail(call, &err);
    return call;
}

abx_call *abx_sandbox_set_timeout(abx_client *client, abx_config *config, const char *sandbox_id,
                                  int64_t timeout_s, int64_t request_timeout_ms)
{
    struct control_spec spec = {
        .method = "POST",
        .action = "SetSandboxTimeout",
        .retry = HTTP_RETRY_CONNECT,
        .request_timeout_ms = request_timeout_ms,
        .result = ABX_RESULT_NONE,
    };

    if (config && config->debug) {
        abx_call *call = control_new(client, config, 0);

        if (call)
            call_finish(call, ABX_RESULT_NONE);
        return call;
    }
    return change(client, config, sandbox_id, "/timeout", &spec,
                  json_pack("{s:I}", "timeout", (json_int_t)timeout_s));
}

static abx_call *pause_sandbox(abx_client *client, abx_config *config, const char *sandbox_id,
                               json_t *body, int64_t request_timeout_ms)
{
    struct control_spec spec = {
        .method = "POST",
        .action = "PauseSandbox",
        .retry = HTTP_RETRY_CONNECT,
        .request_timeout_ms = request_timeout_ms,
        .false_status = 409,
        .result = ABX_RESULT_BOOL,
    };

    return change(client, config, sandbox_id, "/pause", &spec, body);
}

abx_call *abx_sandbox_pause(abx_client *client, abx_config *config, const char *sandbox_id,
                            int memory, int64_t request_timeout_ms)
{
    return pause_sandbox(client, config, sandbox_id, json_pack("{s:b}", "memory", memory != 0),
                         request_timeout_ms);
}

abx_call *abx_sandbox_pause_strict(abx_client *client, abx_config *config, const char *sandbox_id,
                                   int memory, int64_t request_timeout_ms)
{
    return pause_sandbox(client, config, sandbox_id,
                         json_pack("{s:b,s:b}", "memory", memory != 0, "requireHealthyGuest", 1),
                         request_timeout_ms);
}

abx_call *abx_sandbox_update_network(abx_client *client, abx_config *config, const char *sandbox_id,
                                     const char *network_json, int64_t request_timeout_ms)
{
    struct control_spec spec = {
        .method = "PUT",
        .action = "UpdateSandboxNetwork",
        .retry = HTTP_RETRY_CONNECT,
        .request_timeout_ms = request_timeout_ms,
        .result = ABX_RESULT_NONE,
    };
    struct abx_err err = { 0 };
    json_t *body = NULL;

    if (json_object_parse("network_json", network_json, &body, &err) < 0)
        return call_new_failed(client, &err);
    return change(client, config, sandbox_id, "/network", &spec, body);
}

/* ---- does it run? ---- */

static void health_done(void *user, const struct abx_err *err, int http_status)
{
    abx_call *call = user;

    if (err->code != 0 && err->reason != ABX_REASON_SANDBOX_GONE) {
        call_fail_http(call, err, http_status);
        return;
    }
    call->bool_result = err->code == 0;
    call_finish(call, ABX_RESULT_BOOL);
}

static enum envd_taken health_body(void *user, struct slice data, struct abx_err *err)
{
    return ENVD_TAKEN;
}

static void health_cancel(abx_call *call)
{
    envd_exchange_cancel(call->state);
}

abx_call *abx_sandbox_is_running(abx_client *client, const abx_sandbox *sandbox,
                                 int64_t request_timeout_ms)
{
    static const struct call_ops ops = { .cancel = health_cancel };
    static const struct envd_exchange_ops exchange = { .body = health_body, .done = health_done };
    struct envd_request request = {
        .what = "GET /health",
        .method = "GET",
        .path = "/health",
        .retry = HTTP_RETRY_READ,
    };
    abx_call *call = call_new(client, &ops, sizeof(struct envd_exchange));
    struct abx_err err = { 0 };
    int r = sandbox_deadline(sandbox, request_timeout_ms, &request.deadline_ns, &err);

    if (call && r == 0)
        r = envd_exchange_start(call->state, client, sandbox, &request, &exchange, call, &err);
    if (call && r < 0)
        call_fail(call, &err);
    return call;
}
