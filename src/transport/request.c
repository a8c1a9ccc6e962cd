/* request.c - abx_http_request: one exchange as a call, its answer as a result or as DATA events. */
#include <string.h>

#include "base/str.h"
#include "transport/call.h"
#include "transport/http.h"
#include "transport/opts.h"

#define RESULT_BYTES_DEFAULT (UINT64_C(64) << 20)

struct request {
    struct http_exchange *exchange;
    bool is_stream;
    uint64_t max_bytes;
    int status, version;
    struct abx_pair *headers; /* the call's arena */
    size_t header_count;
    abx_source_fn source;
    void *source_user;
};

static void request_cancel(abx_call *call)
{
    struct request *r = call->state;

    if (r->exchange)
        http_cancel(TAKE_PTR(r->exchange));
}

static void request_resume(abx_call *call)
{
    struct request *r = call->state;

    if (r->exchange)
        http_resume(r->exchange);
}

static void request_resume_source(abx_call *call)
{
    struct request *r = call->state;

    if (r->exchange)
        http_resume_source(r->exchange);
}

static const struct call_ops request_ops = {
    .cancel = request_cancel,
    .resume = request_resume,
    .resume_source = request_resume_source,
};

/* Ends it with an error of ours while the exchange runs. */
static void request_break(abx_call *call, const struct abx_err *err)
{
    request_cancel(call);
    call_fail(call, err);
}

static void request_on_head(void *user, const struct http_head *head)
{
    abx_call *call = user;
    struct request *r = call->state;
    struct abx_err err = { 0 };

    r->headers = call_alloc_array(call, head->header_count + 1, sizeof *r->headers);
    for (size_t i = 0; r->headers && i < head->header_count; i++) {
        r->headers[i].key = call_strdup(call, head->headers[i].key);
        r->headers[i].value = call_strdup(call, head->headers[i].value);
        if (!r->headers[i].key || !r->headers[i].value)
            r->headers = NULL;
    }
    if (!r->headers) {
        (void)err_oom(&err);
        request_break(call, &err);
        return;
    }
    r->header_count = head->header_count;
    r->status = head->status;
    r->version = head->version;
}

static bool request_on_body(void *user, struct slice data)
{
    abx_call *call = user;
    struct request *r = call->state;
    struct abx_err err = { 0 };

    if (r->is_stream) {
        struct abx_event event = { .kind = ABX_EVENT_DATA, .data = data.p, .size = data.n };

        if (call_events_full(call))
            return false;
        if (call_event_push(call, &event))
            return true;
        (void)err_oom(&err);
    } else {
        switch (buf_append_slice(&call->bytes, data)) {
        case BUF_OK:
            return true;
        case BUF_LIMIT:
            (void)err_reason(&err, ABX_REASON_TOO_LARGE,
                             "the answer's body is over max_bytes (%llu)",
                             (unsigned long long)r->max_bytes);
            break;
        case BUF_OOM:
            (void)err_oom(&err);
            break;
        }
    }
    request_break(call, &err);
    return true;
}

static void request_on_done(void *user, const struct abx_err *err)
{
    abx_call *call = user;
    struct request *r = call->state;
    struct abx_err oom = { 0 };

    r->exchange = NULL;
    if (err->code != 0) {
        call_fail(call, err);
    } else if (!r->is_stream && !buf_cstr(&call->bytes)) {
        (void)err_oom(&oom);
        call_fail(call, &oom);
    } else {
        call_finish(call, ABX_RESULT_HTTP);
    }
}

static const struct http_sink request_sink = { request_on_head, request_on_body, request_on_done };

static int64_t request_source(void *user, void *buffer, size_t size)
{
    abx_call *call = user;
    const struct request *r = call->state;
    int64_t n;

    call_enter(call);
    n = r->source(r->source_user, buffer, size);
    call_leave(call);
    return n;
}

static bool is_read(const char *method)
{
    return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
}

static int request_check(const struct abx_http_opts *o, struct abx_err *err)
{
    int r = opts_array_check(o->headers, o->header_count, "headers", err);

    if (r == 0)
        r = opts_array_check(o->body, o->body_size, "body", err);
    if (r == 0 && o->body && o->source)
        r = err_set(err, ABX_INVALID_ARGUMENT, "body and source: only one of them");
    if (r == 0)
        r = timeout_check(o->request_timeout_ms, "request_timeout_ms", err);
    return r == 0 ? timeout_check(o->idle_timeout_ms, "idle_timeout_ms", err) : r;
}

abx_call *abx_http_request(abx_client *client, abx_config *config, const struct abx_http_opts *opts)
{
    struct abx_http_opts o = ABX_HTTP_OPTS_INIT;
    struct http_spec spec = { .config = config };
    struct abx_err err = { 0 };
    abx_call *call;
    struct request *r;
    int64_t due_ns;

    if (opts_copy(&o, sizeof o, opts, "abx_http_opts", &err) < 0 || request_check(&o, &err) < 0)
        return call_new_failed(client, &err);
    call = call_new(client, &request_ops, sizeof(struct request));
    if (!call)
        return NULL;
    r = call->state;
    r->is_stream = o.stream != 0;
    r->max_bytes = o.max_bytes ? o.max_bytes : RESULT_BYTES_DEFAULT;
    buf_init(&call->bytes, (size_t)MIN(r->max_bytes, (uint64_t)(SIZE_MAX / 2)));
    spec.method = o.method ? o.method : "GET";
    spec.url = o.url;
    spec.headers = o.headers;
    spec.header_count = o.header_count;
    spec.body = slice_of(o.body, o.body_size);
    spec.has_body = o.body || o.source;
    r->source = o.source;
    r->source_user = o.source_user;
    spec.source = o.source ? request_source : NULL;
    spec.source_user = call;
    spec.source_size = o.source_size;
    spec.retry = o.retry_reads && is_read(spec.method) ? HTTP_RETRY_READ : HTTP_RETRY_CONNECT;
    due_ns = config_deadline_ns(config, o.request_timeout_ms);
    spec.is_stream = r->is_stream;
    if (r->is_stream) {
        spec.head_deadline_ns = due_ns;
        spec.idle_ms = MAX(o.idle_timeout_ms, INT64_C(0));
    } else {
        spec.deadline_ns = due_ns;
    }
    if (http_start(client, &spec, &request_sink, call, &r->exchange, &err) < 0)
        call_fail(call, &err);
    return call;
}

void abx_call_http(const abx_call *call, struct abx_http_result *ret)
{
    const struct request *r;

    *ret = (struct abx_http_result){ 0 };
    if (!call || call->ops != &request_ops)
        return;
    r = call->state;
    ret->status = r->status;
    ret->version = r->version;
    ret->headers = r->headers;
    ret->header_count = r->header_count;
    if (abx_call_result(call) == ABX_RESULT_HTTP && !r->is_stream)
        ret->body = abx_call_bytes(call, &ret->body_size);
}
