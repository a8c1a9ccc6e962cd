/* code.c - the code interpreter in a sandbox: executions as lines of JSON, contexts (abx/code.h).
 *
 * An execution ends with the line "end_of_execution"; an answer that ends without it was cut, whatever
 * HTTP says about it (e2b.md 0, 5).
 */
#include "abx/code.h"

#include <string.h>

#include "api/rpc_call.h"
#include "base/str.h"
#include "e2b/jsondoc.h"
#include "protocol/code.h"
#include "protocol/envd.h"
#include "transport/call.h"
#include "transport/opts.h"

#define CODE_BODY_MAX (16u << 20)
#define CODE_ANSWER_MAX (1u << 20)
#define CODE_TIMEOUT_MS 300000

struct code_call {
    struct envd_exchange x;
    struct buf body; /* of the request */
    struct buf line; /* of the answer, without its end so far */
    struct client_timer timer;
    int64_t timeout_ms;
    enum abx_result result;
    bool is_run, is_ended;
};

/* ---- requests ---- */

/* Adds a text member; NULL is left out. False = out of memory or not UTF-8. */
static bool member_put(json_t *object, const char *key, const char *value)
{
    return !value || json_object_set_new(object, key, json_string(value)) == 0;
}

/* The object `env_vars`, left out when there are none. */
static bool envs_put(json_t *object, const struct abx_pair *envs, size_t count)
{
    json_t *vars = count > 0 ? json_object() : NULL;

    if (count == 0)
        return true;
    for (size_t i = 0; vars && i < count; i++)
        if (!member_put(vars, envs[i].key, envs[i].value)) {
            json_decref(vars);
            return false;
        }
    return vars && json_object_set_new(object, "env_vars", vars) == 0;
}

/* ---- answers ---- */

static void timer_set(abx_call *call)
{
    struct code_call *c = call->state;

    if (c->timeout_ms > 0)
        client_timer_set(call->client, &c->timer, time_mono_ns() + c->timeout_ms * 1000000);
}

static void on_timer(void *user)
{
    abx_call *call = user;
    struct code_call *c = call->state;
    struct abx_err err;

    (void)err_reason(&err, ABX_REASON_COMMAND_TIMEOUT,
                     "the execution said nothing for %lld ms (timeout)", (long long)c->timeout_ms);
    envd_exchange_fail(&c->x, &err);
}

static enum envd_taken line_take(abx_call *call, struct slice line, struct abx_err *err)
{
    struct code_call *c = call->state;
    struct abx_event event = { .kind = ABX_EVENT_DATA };
    char why[160];

    switch (code_line_judge(&line, why)) {
    case CODE_LINE_EMPTY:
        return ENVD_TAKEN;
    case CODE_LINE_MALFORMED:
        (void)envd_protocol_error(&c->x, err, "a line is no message: %s", why);
        return ENVD_BROKEN;
    case CODE_LINE_END:
        c->is_ended = true;
        timer_set(call);
        return ENVD_TAKEN;
    case CODE_LINE_MESSAGE:
        break;
    }
    timer_set(call);
    event.data = line.p;
    event.size = line.n;
    if (call_event_push(call, &event))
        return ENVD_TAKEN;
    (void)err_oom(err);
    return ENVD_BROKEN;
}

static enum envd_taken lines_take(abx_call *call, struct slice data, struct abx_err *err)
{
    struct code_call *c = call->state;
    enum envd_taken taken = ENVD_TAKEN;

    if (call_events_full(call))
        return ENVD_LATER;
    while (taken == ENVD_TAKEN && data.n > 0) {
        const uint8_t *end = memchr(data.p, '\n', data.n);
        size_t n = end ? (size_t)(end - data.p) : data.n;

        if (c->line.len == 0 && end) { /* a whole line: nothing to copy */
            taken = line_take(call, slice_of(data.p, n), err);
        } else {
            if (buf_append(&c->line, data.p, n) != BUF_OK) {
                (void)envd_protocol_error(&c->x, err, "a line is longer than 64 MiB");
                return ENVD_BROKEN;
            }
            if (end) {
                taken = line_take(call, buf_slice(&c->line), err);
                buf_reset(&c->line);
            }
        }
        n += end ? 1 : 0;
        data = slice_of(data.p + n, data.n - n);
    }
    return taken;
}

static enum envd_taken on_body(void *user, struct slice data, struct abx_err *err)
{
    abx_call *call = user;
    struct code_call *c = call->state;

    if (c->is_run)
        return lines_take(call, data, err);
    if (buf_append_slice(&call->bytes, data) != BUF_OK) {
        (void)envd_protocol_error(&c->x, err, "the answer is over 1 MiB");
        return ENVD_BROKEN;
    }
    return ENVD_TAKEN;
}

static void on_judge(void *user, struct abx_err *err)
{
    abx_call *call = user;
    struct code_call *c = call->state;

    if (!c->is_run || err->code != 0)
        return;
    if (c->line.len > 0 && line_take(call, buf_slice(&c->line), err) != ENVD_TAKEN)
        return;
    if (!c->is_ended) {
        (void)err_set(err, ABX_DATA_LOSS, "The execution ended without an end event");
        c->x.wants_check = true;
    }
}

static void on_done(void *user, const struct abx_err *err, int http_status)
{
    abx_call *call = user;
    struct code_call *c = call->state;
    _cleanup_(json_unrefp) json_t *doc = NULL;
    struct abx_err why;

    if (err->code != 0) {
        call_fail_http(call, err, http_status);
        return;
    }
    if (c->result == ABX_RESULT_JSON && jsondoc_parse(buf_slice(&call->bytes), &doc, &why) < 0) {
        struct abx_err bad;

        (void)err_reason(&bad, ABX_REASON_PROTOCOL, "%s: the answer is no JSON: %s", c->x.what,
                         why.msg);
        call_fail_http(call, &bad, http_status);
        return;
    }
    call_finish(call, c->result);
}

/* ---- calls ---- */

static void code_cancel(abx_call *call)
{
    envd_exchange_cancel(&((struct code_call *)call->state)->x);
}

static void code_resume(abx_call *call)
{
    envd_exchange_resume(&((struct code_call *)call->state)->x);
}

static void code_done(abx_call *call)
{
    struct code_call *c = call->state;

    client_timer_clear(call->client, &c->timer);
    buf_done(&c->body);
    buf_done(&c->line);
}

static abx_call *code_call_new(abx_client *client, enum abx_result result)
{
    static const struct call_ops ops = { .cancel = code_cancel,
                                         .resume = code_resume,
                                         .done = code_done };
    abx_call *call = call_new(client, &ops, sizeof(struct code_call));
    struct code_call *c;

    if (!call)
        return NULL;
    c = call->state;
    buf_init(&c->body, CODE_BODY_MAX);
    buf_init(&c->line, CODE_LINE_MAX);
    call->bytes.limit = CODE_ANSWER_MAX;
    c->timer = (struct client_timer){ .fn = on_timer, .user = call };
    c->result = result;
    return call;
}

/* Writes the request's body; `doc` NULL = it could not be made. */
static int body_put(struct code_call *c, const json_t *doc, struct abx_err *err)
{
    if (!doc)
        return err_set(err, ABX_INVALID_ARGUMENT, "an argument is not UTF-8, or out of memory");
    if (jsondoc_dump(doc, &c->body) != BUF_OK)
        return err_reason(err, ABX_REASON_TOO_LARGE, "the request is over 16 MiB");
    return 0;
}

/* Sends the request, with `doc` when it has a body; a failure fails the call. The deadline of a run is its owner's. */
static abx_call *code_send(abx_call *call, const abx_sandbox *sandbox, struct envd_request *q,
                           const json_t *doc, int64_t request_timeout_ms)
{
    static const struct envd_exchange_ops ops = { .body = on_body,
                                                  .judge = on_judge,
                                                  .done = on_done };
    static const struct abx_pair json = { "Content-Type", "application/json" };
    struct code_call *c = call->state;
    struct abx_err err = { 0 };
    int r = 0;

    if (!c->is_run)
        r = sandbox_deadline(sandbox, request_timeout_ms, &q->deadline_ns, &err);
    if (r == 0 && q->has_body)
        r = body_put(c, doc, &err);

    q->port = ABX_CODE_PORT;
    q->body = buf_slice(&c->body);
    q->headers = &json;
    q->header_count = q->has_body ? 1 : 0;
    if (r == 0)
        r = envd_exchange_start(&c->x, call->client, sandbox, q, &ops, call, &err);
    if (r < 0)
        call_fail(call, &err);
    return call;
}

abx_call *abx_code_run(abx_client *client, const abx_sandbox *sandbox, const char *code,
                       const struct abx_code_opts *opts)
{
    struct abx_code_opts o = ABX_CODE_OPTS_INIT;
    abx_call *call = code_call_new(client, ABX_RESULT_NONE);
    struct envd_request q = { .what = "POST /execute",
                              .method = "POST",
                              .path = "/execute",
                              .has_body = true,
                              .retry = HTTP_RETRY_CONNECT };
    _cleanup_(json_unrefp) json_t *body = json_object();
    struct abx_err err = { 0 };
    struct code_call *c;
    bool ok;
    int r;

    if (!call)
        return NULL;
    r = opts_copy(&o, sizeof o, opts, "abx_code_opts", &err);
    if (r == 0)
        r = text_check(code, "code", true, &err);
    if (r == 0)
        r = timeout_check(o.timeout_ms, "timeout_ms", &err);
    if (r == 0)
        r = opts_array_check(o.envs, o.env_count, "envs", &err);
    if (r == 0)
        r = sandbox_deadline(sandbox, o.request_timeout_ms, &q.head_deadline_ns, &err);
    if (r == 0 && o.language && o.context_id)
        r = err_set(&err, ABX_INVALID_ARGUMENT, "language and context_id exclude each other");
    if (r < 0) {
        call_fail(call, &err);
        return call;
    }
    c = call->state;
    c->is_run = q.is_stream = true;
    c->timeout_ms = o.timeout_ms == ABX_UNSET ? CODE_TIMEOUT_MS : o.timeout_ms;
    ok = body && member_put(body, "code", code) && member_put(body, "context_id", o.context_id) &&
         member_put(body, "language", o.language) && envs_put(body, o.envs, o.env_count);
    timer_set(call);
    return code_send(call, sandbox, &q, ok ? body : NULL, ABX_UNSET);
}

abx_call *abx_code_context_create(abx_client *client, const abx_sandbox *sandbox,
                                  const char *language, const char *cwd, int64_t request_timeout_ms)
{
    abx_call *call = code_call_new(client, ABX_RESULT_JSON);
    struct envd_request q = { .what = "POST /contexts",
                              .method = "POST",
                              .path = "/contexts",
                              .has_body = true,
                              .retry = HTTP_RETRY_CONNECT };
    _cleanup_(json_unrefp) json_t *body = json_object();
    bool ok;

    if (!call)
        return NULL;
    ok = body && member_put(body, "language", language) && member_put(body, "cwd", cwd);
    return code_send(call, sandbox, &q, ok ? body : NULL, request_timeout_ms);
}

abx_call *abx_code_context_list(abx_client *client, const abx_sandbox *sandbox,
                                int64_t request_timeout_ms)
{
    abx_call *call = code_call_new(client, ABX_RESULT_JSON);
    struct envd_request q = {
        .what = "GET /contexts", .method = "GET", .path = "/contexts", .retry = HTTP_RETRY_READ
    };

    if (!call)
        return NULL;
    return code_send(call, sandbox, &q, NULL, request_timeout_ms);
}

/* POST /contexts/{id}/restart and DELETE /contexts/{id}; the id is percent-encoded. */
static abx_call *context_change(abx_client *client, const abx_sandbox *sandbox, const char *id,
                                struct envd_request *q, const char *suffix,
                                int64_t request_timeout_ms)
{
    abx_call *call = code_call_new(client, ABX_RESULT_NONE);
    _cleanup_(buf_done) struct buf path = BUF_INIT(4096);
    _cleanup_(json_unrefp) json_t *body = q->has_body ? json_object() : NULL;
    struct abx_err err;

    if (!call)
        return NULL;
    if (!id || !*id || buf_append_str(&path, "/contexts/") != BUF_OK ||
        percent_encode(&path, slice_str(id)) != BUF_OK || buf_append_str(&path, suffix) != BUF_OK ||
        !buf_cstr(&path)) {
        (void)err_set(&err, ABX_INVALID_ARGUMENT, "context_id is empty or over 1,300 bytes");
        call_fail(call, &err);
        return call;
    }
    q->path = buf_cstr(&path);
    q->retry = HTTP_RETRY_CONNECT;
    return code_send(call, sandbox, q, body, request_timeout_ms);
}

abx_call *abx_code_context_restart(abx_client *client, const abx_sandbox *sandbox,
                                   const char *context_id, int64_t request_timeout_ms)
{
    struct envd_request q = { .what = "POST /contexts/{id}/restart",
                              .method = "POST",
                              .has_body = true };

    return context_change(client, sandbox, context_id, &q, "/restart", request_timeout_ms);
}

abx_call *abx_code_context_remove(abx_client *client, const abx_sandbox *sandbox,
                                  const char *context_id, int64_t request_timeout_ms)
{
    struct envd_request q = { .what = "DELETE /contexts/{id}", .method = "DELETE" };

    return context_change(client, sandbox, context_id, &q, "", request_timeout_ms);
}
