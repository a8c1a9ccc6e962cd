/* server_call.c - requests to an in-image server: one JSON object, a stream of events, a terminal.
 * See abx/server.h and server.h. */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "e2b/jsondoc.h"
#include "protocol/server.h"
#include "transport/call.h"
#include "transport/http.h"
#include "transport/opts.h"
#include "transport/websocket.h"
#include "wire/sse.h"

#define SERVER_VALUES_MAX 1000000u

struct server_call {
    abx_server *server;
    struct http_exchange *x;
    struct buf url, body;
    struct sse_decoder sse;
    bool is_stream;
    int status;
    char what[64]; /* "GET /files/list", for messages */
};

/* ---- the answer ---- */

static int protocol_error(const struct server_call *c, const char *text, struct abx_err *err)
{
    const char *host = strstr(c->server->base_url, "://") + 3;

    return err_reason(err, ABX_REASON_PROTOCOL, "%.*s: %s: %s", (int)strcspn(host, "/"), host,
                      c->what, text);
}

static void server_break(abx_call *call, const struct abx_err *err)
{
    struct server_call *c = call->state;

    if (c->x)
        http_cancel(TAKE_PTR(c->x));
    call_fail_http(call, err, c->status);
}

static void on_head(void *user, const struct http_head *head)
{
    struct server_call *c = ((abx_call *)user)->state;

    c->status = head->status;
}

/* Pushes the events in `data`; a negative code fails the call. */
static int events_take(abx_call *call, struct slice data, struct abx_err *err)
{
    struct server_call *c = call->state;

    for (;;) {
        struct abx_event event = { .kind = ABX_EVENT_DATA };
        _cleanup_(freep) char *name = NULL;
        struct sse_event e;

        switch (sse_decoder_next(&c->sse, &data, &e)) {
        case SSE_NEED_MORE:
            return 0;
        case SSE_TOO_LARGE:
            return protocol_error(c, "an event is over 16 MiB", err);
        case SSE_NOT_UTF8:
            return protocol_error(c, "an event is not UTF-8", err);
        case SSE_EVENT:
            break;
        }
        name = slice_dup(e.name);
        event.text = name;
        event.data = e.data.p;
        event.size = e.data.n;
        if (!name || !call_event_push(call, &event))
            return err_oom(err);
    }
}

static bool on_body(void *user, struct slice data)
{
    abx_call *call = user;
    struct server_call *c = call->state;
    struct abx_err err = { 0 };
    int r = 0;

    if (c->is_stream && c->status / 100 == 2) {
        if (call_events_full(call))
            return false;
        r = events_take(call, data, &err);
    } else if (buf_append_slice(&call->bytes, data) != BUF_OK) {
        r = protocol_error(c, "the answer is over 64 MiB", &err);
    }
    if (r < 0)
        server_break(call, &err);
    return true;
}

static void on_done(void *user, const struct abx_err *err)
{
    abx_call *call = user;
    struct server_call *c = call->state;
    _cleanup_(json_unrefp) json_t *doc = NULL;
    struct abx_err why = { 0 };

    c->x = NULL;
    if (c->status != 0 && c->status / 100 != 2) {
        (void)server_error_from_answer(c->status, buf_slice(&call->bytes), &why);
        (void)jsondoc_parse(buf_slice(&call->bytes), &doc, NULL);
        call_fail_said(call, &why, c->status, json_string_value(json_object_get(doc, "code")));
        return;
    }
    if (err->code != 0) {
        call_fail_http(call, err, c->status);
        return;
    }
    if (!c->is_stream) {
        int r = jsondoc_parse_limited(buf_slice(&call->bytes), SERVER_ANSWER_MAX, SERVER_VALUES_MAX,
                                      &doc, NULL);

        if (r < 0 || !json_is_object(doc)) {
            (void)protocol_error(c, "the answer is no JSON object", &why);
            call_fail_http(call, &why, c->status);
            return;
        }
    }
    call_finish(call, c->is_stream ? ABX_RESULT_NONE : ABX_RESULT_JSON);
}

/* ---- the request ---- */

static void server_cancel(abx_call *call)
{
    struct server_call *c = call->state;

    if (c->x)
        http_cancel(TAKE_PTR(c->x));
}

static void server_resume(abx_call *call)
{
    struct server_call *c = call->state;

    if (c->x)
        http_resume(c->x);
}

static void server_done(abx_call *call)
{
    struct server_call *c = call->state;

    abx_server_unref(c->server);
    c->server = NULL;
    buf_done(&c->url);
    buf_done(&c->body);
    sse_decoder_done(&c->sse);
}

/* Does `query` name a key that `bound` (of the base URL) has already? */
static bool query_overrides(const char *bound, const char *query)
{
    for (const char *p = query; *p;) {
        size_t n = strcspn(p, "&"), key = MIN(n, strcspn(p, "="));

        for (const char *q = bound; key > 0 && *q;) {
            size_t m = strcspn(q, "&");

            if (MIN(m, strcspn(q, "=")) == key && memcmp(p, q, key) == 0)
                return true;
            q += m + (q[m] == '&');
        }
        p += n + (p[n] == '&');
    }
    return false;
}

static int url_make(struct server_call *c, const struct abx_server_opts *o, struct abx_err *err)
{
    const char *bound = c->server->query, *query = o->query ? o->query : "";

    if (!o->path || o->path[0] != '/' || strpbrk(o->path, "?#"))
        return err_set(err, ABX_INVALID_ARGUMENT, "path: has to begin with / and end before ?");
    if (query_overrides(bound, query))
        return err_set(err, ABX_INVALID_ARGUMENT, "query: names a key of base_url's query");
    if (buf_printf(&c->url, "%s%s", c->server->base_url, o->path) != BUF_OK ||
        ((*bound || *query) &&
         buf_printf(&c->url, "?%s%s%s", bound, *bound && *query ? "&" : "", query) != BUF_OK) ||
        !buf_cstr(&c->url))
        return err_set(err, ABX_INVALID_ARGUMENT, "the URL is longer than 64 KiB");
    return 0;
}

static int body_take(struct server_call *c, const char *json, struct abx_err *err)
{
    _cleanup_(json_unrefp) json_t *doc = NULL;
    int r;

    if (!json)
        return 0;
    r = jsondoc_parse_limited(slice_str(json), SERVER_ANSWER_MAX, SERVER_VALUES_MAX, &doc, err);
    if (r < 0)
        return err_wrap(err, r, "body_json");
    return buf_append_str(&c->body, json) == BUF_OK ? 0 : err_oom(err);
}

static int server_send(abx_call *call, const struct abx_server_opts *o, struct abx_err *err)
{
    static const struct http_sink sink = { on_head, on_body, on_done };
    struct server_call *c = call->state;
    struct abx_pair headers[128];
    const char *method = o->method ? o->method : "GET";
    int64_t timeout_ms =
        o->request_timeout_ms == ABX_UNSET ? c->server->request_timeout_ms : o->request_timeout_ms;
    struct http_spec spec = { .config = c->server->config, .method = method };
    size_t n = c->server->header_count;
    int r = url_make(c, o, err);

    if (r == 0)
        r = body_take(c, o->body_json, err);
    if (r < 0)
        return r;
    memcpy(headers, c->server->headers, n * sizeof *headers);
    headers[n++] =
        (struct abx_pair){ "Accept", c->is_stream ? "text/event-stream" : "application/json" };
    if (o->body_json)
        headers[n++] = (struct abx_pair){ "Content-Type", "application/json" };
    (void)snprintf(c->what, sizeof c->what, "%s %s", method, o->path);
    spec.url = buf_cstr(&c->url);
    spec.headers = headers;
    spec.header_count = n;
    spec.body = buf_slice(&c->body);
    spec.has_body = o->body_json != NULL;
    spec.retry = !c->is_stream && strcmp(method, "GET") == 0 ? HTTP_RETRY_READ : HTTP_RETRY_CONNECT;
    spec.is_stream = c->is_stream;
    if (c->is_stream) {
        spec.head_deadline_ns = config_deadline_ns(c->server->config, timeout_ms);
        spec.idle_ms = MAX(o->idle_timeout_ms, INT64_C(0));
    } else {
        spec.deadline_ns = config_deadline_ns(c->server->config, timeout_ms);
    }
    return http_start(call->client, &spec, &sink, call, &c->x, err);
}

static abx_call *server_start(abx_client *client, abx_server *server,
                              const struct abx_server_opts *opts, bool is_stream)
{
    static const struct call_ops ops = { .cancel = server_cancel,
                                         .resume = server_resume,
                                         .done = server_done };
    struct abx_server_opts o = ABX_SERVER_OPTS_INIT;
    abx_call *call = call_new(client, &ops, sizeof(struct server_call));
    struct abx_err err = { 0 };
    struct server_call *c;
    int r;

    if (!call)
        return NULL;
    c = call->state;
    c->server = abx_server_ref(server);
    c->is_stream = is_stream;
    buf_init(&c->url, 65536);
    buf_init(&c->body, SERVER_ANSWER_MAX);
    sse_decoder_init(&c->sse, SERVER_EVENT_MAX);
    call->bytes.limit = SERVER_ANSWER_MAX;
    r = opts_copy(&o, sizeof o, opts, "abx_server_opts", &err);
    if (r == 0 && !server)
        r = err_set(&err, ABX_INVALID_ARGUMENT, "server: is missing (NULL)");
    if (r == 0)
        r = timeout_check(o.request_timeout_ms, "request_timeout_ms", &err);
    if (r == 0)
        r = timeout_check(o.idle_timeout_ms, "idle_timeout_ms", &err);
    if (r == 0)
        r = server_send(call, &o, &err);
    if (r < 0)
        call_fail(call, &err);
    return call;
}

abx_call *abx_server_request(abx_client *client, abx_server *server,
                             const struct abx_server_opts *opts)
{
    return server_start(client, server, opts, false);
}

abx_call *abx_server_stream(abx_client *client, abx_server *server,
                            const struct abx_server_opts *opts)
{
    return server_start(client, server, opts, true);
}

/* ---- terminals ---- */

abx_call *abx_server_pty(abx_client *client, abx_server *server, const char *session_id,
                         int64_t request_timeout_ms)
{
    struct abx_websocket_opts o = ABX_WEBSOCKET_OPTS_INIT;
    _cleanup_(buf_done) struct buf url = BUF_INIT(65536);
    struct abx_err err = { 0 };
    const char *text;
    int r = 0;

    if (!server)
        r = err_set(&err, ABX_INVALID_ARGUMENT, "server: is missing (NULL)");
    else if (!server->pty_url)
        r = err_set(&err, ABX_FAILED_PRECONDITION, "pty_url: the server has none");
    else if (buf_printf(&url, "%s/pty?session_id=", server->pty_url) != BUF_OK ||
             percent_encode(&url, slice_str(session_id)) != BUF_OK || !(text = buf_cstr(&url)))
        r = err_set(&err, ABX_INVALID_ARGUMENT, "session_id: too long");
    if (r < 0)
        return call_new_failed(client, &err);
    o.url = text;
    o.headers = server->headers;
    o.header_count = server->header_count;
    o.request_timeout_ms =
        request_timeout_ms == ABX_UNSET ? server->request_timeout_ms : request_timeout_ms;
    return websocket_open(client, server->config, &o, slice_of(NULL, 0));
}
