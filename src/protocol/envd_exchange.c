/* envd_exchange.c - one HTTP request to envd. See envd.h.
 *
 * When the connection broke, GET /health of the same sandbox tells whether it is gone (the gateway's
 * 502) or only the connection was (client.md 2.6).
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "protocol/envd.h"

const char *envd_user(const abx_sandbox *sandbox, const char *user)
{
    return user || sandbox_has_envd(sandbox, 0, 4, 0) ? user : "user";
}

/* Host and port of envd's base URL. */
static struct slice host_of(const abx_sandbox *sb)
{
    const char *host = strstr(sb->envd_url, "://");

    host = host ? host + 3 : sb->envd_url;
    return slice_of(host, strcspn(host, "/"));
}

int envd_protocol_error(const struct envd_exchange *e, struct abx_err *err, const char *fmt, ...)
{
    struct slice host = host_of(e->sandbox);
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_reason(err, ABX_REASON_PROTOCOL, "%.*s: %s: %s", (int)host.n, (const char *)host.p,
                      e->what, text);
}

/* Lets go of everything but how it ended. */
static void exchange_clear(struct envd_exchange *e)
{
    if (e->http)
        http_cancel(TAKE_PTR(e->http));
    if (e->health)
        http_cancel(TAKE_PTR(e->health));
    if (e->client)
        client_task_remove(e->client, &e->task);
    buf_done(&e->text);
    abx_sandbox_unref(TAKE_PTR(e->sandbox));
}

/* Tells the owner, who may free `e`. */
static void exchange_tell(struct envd_exchange *e)
{
    struct abx_err err = e->err;

    exchange_clear(e);
    e->ops->done(e->user, &err, e->status);
}

/* ---- does the sandbox still run? ---- */

static void health_head(void *user, const struct http_head *head)
{
    struct envd_exchange *e = user;

    e->health_status = head->status;
}

static bool text_take(void *user, struct slice data)
{
    struct envd_exchange *e = user;

    (void)buf_append(&e->text, data.p, MIN(data.n, buf_room(&e->text)));
    return true;
}

static void health_done(void *user, const struct abx_err *err)
{
    struct envd_exchange *e = user;
    struct abx_err why = { 0 };

    e->health = NULL;
    if (err->code == 0 && e->health_status == 502) {
        (void)envd_error_from_answer(502, buf_slice(&e->text), NULL, &why);
        if (why.reason != ABX_REASON_PORT_CLOSED)
            (void)err_reason(&e->err, ABX_REASON_SANDBOX_GONE,
                             "The sandbox was not found: it was killed or reached its end of life "
                             "during %s",
                             e->what);
    }
    exchange_tell(e);
}

/* Starts the question; false when it cannot be asked. */
static bool health_start(struct envd_exchange *e)
{
    static const struct http_sink sink = { health_head, text_take, health_done };
    struct abx_pair pairs[SANDBOX_HEADERS_MAX];
    _cleanup_(buf_done) struct buf mem = BUF_INIT(65536), url = BUF_INIT(65536);
    int64_t deadline_ns = time_mono_ns() + ENVD_HEALTH_TIMEOUT_MS * NSEC_PER_MSEC;
    struct http_spec spec = {
        .config = e->sandbox->config,
        .method = "GET",
        .headers = pairs,
        .retry = HTTP_RETRY_CONNECT,
        .skip_502_retry = true,
    };
    int n = sandbox_headers(e->sandbox, ENVD_PORT, NULL, &mem, pairs, NULL);

    if (n < 0 || buf_printf(&url, "%s/health", e->sandbox->envd_url) != BUF_OK)
        return false;
    spec.url = buf_cstr(&url);
    spec.header_count = (size_t)n;
    spec.deadline_ns = e->deadline_ns > 0 ? MIN(e->deadline_ns, deadline_ns) : deadline_ns;
    buf_reset(&e->text);
    return spec.url && http_start(e->client, &spec, &sink, e, &e->health, NULL) == 0;
}

/* ---- the request ---- */

static void exchange_end(struct envd_exchange *e)
{
    bool is_cut;

    if (!e->is_broken && e->ops->judge)
        e->ops->judge(e->user, &e->err);
    is_cut = e->err.code != 0 && (e->err.reason == ABX_REASON_DISCONNECTED || e->wants_check);
    if (is_cut && !e->is_broken && health_start(e))
        return;
    exchange_tell(e);
}

static void on_head(void *user, const struct http_head *head)
{
    struct envd_exchange *e = user;
    struct abx_err err = { 0 };

    e->status = head->status;
    if (head->status / 100 == 2 && !e->is_broken && e->ops->head &&
        e->ops->head(e->user, head, &err) != 0)
        envd_exchange_fail(e, &err);
}

static bool on_body(void *user, struct slice data)
{
    struct envd_exchange *e = user;
    struct abx_err err = { 0 };

    if (e->is_broken)
        return true;
    if (e->status / 100 != 2)
        return text_take(e, data);
    switch (e->ops->body(e->user, data, &err)) {
    case ENVD_LATER:
        return false;
    case ENVD_BROKEN:
        envd_exchange_fail(e, &err);
        return true;
    case ENVD_TAKEN:
        return true;
    }
    return true;
}

static void on_done(void *user, const struct abx_err *err)
{
    struct envd_exchange *e = user;

    e->http = NULL;
    client_task_remove(e->client, &e->task);
    if (!e->is_broken) {
        e->err = *err;
        /* An answer that is an error counts even if it was cut. */
        if (e->status != 0 && e->status / 100 != 2)
            (void)envd_error_from_answer(e->status, buf_slice(&e->text), &e->is_coded, &e->err);
    }
    exchange_end(e);
}

static void on_broken(void *user)
{
    struct envd_exchange *e = user;

    if (e->http)
        http_cancel(TAKE_PTR(e->http));
    if (e->health)
        http_cancel(TAKE_PTR(e->health));
    exchange_tell(e);
}

void envd_exchange_fail(struct envd_exchange *e, const struct abx_err *err)
{
    if (e->is_broken)
        return;
    e->is_broken = true;
    if (!e->health) /* else what broke it stays the reason, only its check is over */
        e->err = *err;
    client_task_add(e->client, &e->task);
}

void envd_exchange_cancel(struct envd_exchange *e)
{
    if (e->sandbox)
        exchange_clear(e);
}

void envd_exchange_resume(struct envd_exchange *e)
{
    if (e->http)
        http_resume(e->http);
}

void envd_exchange_resume_source(struct envd_exchange *e)
{
    if (e->http)
        http_resume_source(e->http);
}

static int exchange_send(struct envd_exchange *e, const struct envd_request *q, struct abx_err *err)
{
    static const struct http_sink sink = { on_head, on_body, on_done };
    struct abx_pair pairs[SANDBOX_HEADERS_MAX + ENVD_HEADERS_MAX];
    _cleanup_(buf_done) struct buf mem = BUF_INIT(65536), url = BUF_INIT(65536);
    _cleanup_(freep) char *base = NULL;
    uint16_t port = q->port ? q->port : ENVD_PORT;
    struct http_spec spec = {
        .config = e->sandbox->config,
        .method = q->method,
        .headers = pairs,
        .body = q->body,
        .has_body = q->has_body,
        .source = q->source,
        .source_user = q->source_user,
        .source_size = q->source_size,
        .retry = q->retry,
        .deadline_ns = q->deadline_ns,
        .head_deadline_ns = q->head_deadline_ns,
        .idle_ms = q->idle_ms,
        .accept_gzip = q->accept_gzip,
        .is_stream = q->is_stream,
        .skip_502_retry = true,
    };
    enum buf_status st;
    int n = sandbox_headers(e->sandbox, port, q->user, &mem, pairs, err);

    if (n >= 0 && port != ENVD_PORT) {
        int r = sandbox_port_url(e->sandbox, port, &base, err);

        n = r < 0 ? r : n;
    }
    if (n < 0)
        return n;
    if (q->header_count > 0)
        memcpy(pairs + n, q->headers, q->header_count * sizeof *pairs);
    spec.header_count = (size_t)n + q->header_count;
    st = buf_printf(&url, "%s%s", base ? base : e->sandbox->envd_url, q->path);
    if (st == BUF_LIMIT)
        return err_set(err, ABX_INVALID_ARGUMENT, "the URL is longer than 64 KiB");
    spec.url = st == BUF_OK ? buf_cstr(&url) : NULL;
    if (!spec.url)
        return err_oom(err);
    return http_start(e->client, &spec, &sink, e, &e->http, err);
}

int envd_exchange_start(struct envd_exchange *e, abx_client *client, const abx_sandbox *sandbox,
                        const struct envd_request *request, const struct envd_exchange_ops *ops,
                        void *user, struct abx_err *err)
{
    int r;

    *e = (struct envd_exchange){
        .client = client,
        .sandbox = abx_sandbox_ref((abx_sandbox *)(uintptr_t)sandbox),
        .what = request->what,
        .ops = ops,
        .user = user,
        .task = { .fn = on_broken, .user = e },
        .deadline_ns = request->deadline_ns,
        .text = BUF_INIT(ENVD_ERROR_BODY_MAX),
    };
    r = exchange_send(e, request, err);
    if (r < 0)
        exchange_clear(e);
    return r;
}
