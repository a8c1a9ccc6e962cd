/* call.c - see call.h. */
#include "guest/envd/call.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

#define KEEPALIVE_DEFAULT_S 90

/* --- life --------------------------------------------------------------------------------------- */

/* Of its own: its timer is closed from the loop, later than the call is freed. */
struct call_deadline {
    uv_timer_t timer;
    struct call *call;
};

static void on_deadline_closed(uv_handle_t *h)
{
    free(h->data);
}

static void deadline_stop(struct call *c)
{
    if (c->deadline)
        uv_close((uv_handle_t *)&c->deadline->timer, on_deadline_closed);
    c->deadline = NULL;
}

static void call_release(struct call *c)
{
    if (c->ex || !c->is_handled)
        return;
    if (c->request)
        rpc_message_free(c->request);
    deadline_stop(c);
    connect_decoder_done(&c->decoder);
    buf_done(&c->input);
    free(c);
}

static void handled(struct call *c)
{
    assert(!c->is_handled);
    c->is_handled = true;
    call_release(c);
}

void call_drop(struct call *c)
{
    assert(!c->ex);
    handled(c);
}

static void client_gone(struct call *c)
{
    c->ex = NULL;
    if (!c->is_handled && c->on_gone)
        c->on_gone(c); /* may free it */
    else
        call_release(c);
}

static void on_close(void *user, struct http_exchange *ex, const struct abx_err *why)
{
    client_gone(user);
}

static void on_writable(void *user, struct http_exchange *ex)
{
    struct call *c = user;

    if (!c->is_handled && c->on_writable)
        c->on_writable(c);
}

static void on_body(void *user, struct http_exchange *ex, struct slice data, bool is_end);

static const struct http_exchange_events events = {
    .on_body = on_body,
    .on_writable = on_writable,
    .on_close = on_close,
};

/* --- answers ------------------------------------------------------------------------------------ */

static void send_end_stream(struct call *c, const struct abx_err *err)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(16384);

    if (connect_end_stream(&b, err))
        http_exchange_abort(c->ex);
    else
        envd_send(c->ex, 200, connect_content_type_name(c->codec, true), buf_slice(&b));
}

static void send_error(struct call *c, const struct abx_err *err)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(16384);

    if (c->method->kind != CALL_UNARY)
        send_end_stream(c, err); /* a stream's errors come with status 200 */
    else if (connect_error_json(&b, err))
        http_exchange_abort(c->ex);
    else
        envd_send(c->ex, err_code_http_status(err->code), "application/json", buf_slice(&b));
}

void call_fail(struct call *c, const struct abx_err *err)
{
    if (c->ex)
        send_error(c, err);
    handled(c);
}

void call_reply(struct call *c, const ProtobufCMessage *m)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(CALL_REPLY_MAX);
    bool is_stream = c->method->kind != CALL_UNARY;
    struct abx_err err = { 0 };
    int r = 0;

    if (!c->ex) {
        handled(c);
        return;
    }
    if (is_stream)
        r = call_stream_encode(c, m, &b, &err);
    else if (c->codec == CONNECT_JSON ? rpc_json_encode(m, &b) : rpc_proto_encode(m, &b))
        r = err_set(&err, ABX_RESOURCE_EXHAUSTED, "the answer is over %u bytes", CALL_REPLY_MAX);
    if (r == 0 && is_stream && connect_end_stream(&b, NULL))
        r = err_oom(&err);
    if (r < 0) {
        call_fail(c, &err);
        return;
    }
    envd_send(c->ex, 200, connect_content_type_name(c->codec, is_stream), buf_slice(&b));
    handled(c);
}

int call_stream_begin(struct call *c, const struct http1_field *fields, size_t n_fields,
                      struct abx_err *err)
{
    struct http1_field all[ENVD_FIELDS_MAX];
    size_t n = envd_cors_fields(all);

    all[n++] = (struct http1_field){
        SLICE_LIT("Content-Type"),
        slice_str(connect_content_type_name(c->codec, true)),
    };
    for (size_t i = 0; i < n_fields && n < ENVD_FIELDS_MAX; i++)
        all[n++] = fields[i];
    return http_exchange_respond(c->ex, 200, all, n, HTTP_LENGTH_UNKNOWN, err);
}

int call_stream_encode(struct call *c, const ProtobufCMessage *m, struct buf *b,
                       struct abx_err *err)
{
    size_t mark, before = b->len;

    if (!connect_envelope_begin(b, 0, &mark) ||
        (c->codec == CONNECT_JSON ? rpc_json_encode(m, b) : rpc_proto_encode(m, b)) ||
        !connect_envelope_end(b, mark)) {
        buf_truncate(b, before);
        return err_oom(err);
    }
    return 0;
}

void call_stream_end(struct call *c)
{
    if (c->ex)
        http_exchange_end(c->ex);
    handled(c);
}

void call_stream_abort(struct call *c)
{
    if (c->ex)
        http_exchange_abort(c->ex);
    handled(c);
}

/* --- deadlines ---------------------------------------------------------------------------------- */

static void on_deadline(uv_timer_t *timer)
{
    static const struct http_exchange_events none = { 0 };
    struct call *c = container_of(timer, struct call_deadline, timer)->call;
    struct http_exchange *ex = c->ex;
    struct abx_err err = { 0 };

    deadline_stop(c);
    if (!ex || c->is_handled)
        return;
    (void)err_set(&err, ABX_DEADLINE_EXCEEDED, "the time for this call is over");
    http_exchange_begin(ex, &none, NULL);
    send_error(c, &err);
    client_gone(c);
}

static void deadline_start(struct call *c)
{
    if (c->timeout_ms == 0 || c->method->kind == CALL_SERVER_STREAM)
        return;
    c->deadline = calloc(1, sizeof(*c->deadline));
    if (!c->deadline)
        return; /* the client has its own */
    (void)uv_timer_init(c->envd->loop, &c->deadline->timer);
    c->deadline->timer.data = c->deadline;
    c->deadline->call = c;
    (void)uv_timer_start(&c->deadline->timer, on_deadline, c->timeout_ms, 0);
}

/* --- requests ----------------------------------------------------------------------------------- */

static int decode(struct call *c, struct slice body, ProtobufCMessage **ret, struct abx_err *err)
{
    struct rpc_error e = { 0 };
    enum rpc_status r = c->codec == CONNECT_JSON
                            ? rpc_json_decode(c->method->request, body, ret, &e)
                            : rpc_proto_decode(c->method->request, body, ret, &e);

    if (r == RPC_OOM)
        return err_oom(err);
    if (r)
        return err_set(err, ABX_INVALID_ARGUMENT, "request: %s (at byte %zu)", e.text, e.offset);
    return 0;
}

/* What Connect's other servers answer, so that clients take the two sides for incompatible and nothing else. */
static int refuse_compressed(struct abx_err *err)
{
    return err_set(err, ABX_INTERNAL, "request: a compressed message without a compression");
}

/* The one message of a server stream's request. */
static int unwrap(struct slice *body, struct abx_err *err)
{
    uint32_t n;

    if (body->n == 0)
        return err_set(err, ABX_UNIMPLEMENTED, "request: no message where one belongs");
    if (body->n < CONNECT_PREFIX_SIZE)
        return err_set(err, ABX_INVALID_ARGUMENT, "request: no enveloped message");
    n = (uint32_t)body->p[1] << 24 | (uint32_t)body->p[2] << 16 | (uint32_t)body->p[3] << 8 |
        body->p[4];
    if (body->p[0] & CONNECT_FLAG_COMPRESSED)
        return refuse_compressed(err);
    if (body->p[0] != 0 || n > body->n - CONNECT_PREFIX_SIZE)
        return err_set(err, ABX_INVALID_ARGUMENT, "request: malformed envelope");
    if (n < body->n - CONNECT_PREFIX_SIZE)
        return err_set(err, ABX_UNIMPLEMENTED, "request: more than one message");
    *body = slice_of(body->p + CONNECT_PREFIX_SIZE, n);
    return 0;
}

static void on_collected(void *user, struct http_exchange *ex, struct slice body,
                         const struct abx_err *why)
{
    struct call *c = user;
    struct abx_err err = *why;
    int r;

    if (err.code == ABX_CANCELED) {
        c->ex = NULL;
        handled(c);
        return;
    }
    http_exchange_begin(ex, &events, c);
    deadline_start(c);
    r = err.code;
    if (r == 0 && c->method->kind == CALL_SERVER_STREAM)
        r = unwrap(&body, &err);
    if (r == 0)
        r = decode(c, body, &c->request, &err);
    if (r == 0)
        r = envd_user(c->envd, http_exchange_head(ex), &c->user, &err);
    if (r < 0)
        call_fail(c, &err);
    else
        c->method->handle(c);
}

/* --- client streams ----------------------------------------------------------------------------- */

static void stream_fail(struct call *c, int code, const char *text)
{
    struct abx_err err = { 0 };

    (void)err_set(&err, code, "%s", text);
    call_fail(c, &err);
}

static void fail_compressed(struct call *c)
{
    struct abx_err err = { 0 };

    (void)refuse_compressed(&err);
    call_fail(c, &err);
}

/* Hands out one message if one is complete, else reads on. True: perhaps there is one more. */
static bool stream_feed_one(struct call *c)
{
    struct slice in = buf_slice(&c->input), message;
    ProtobufCMessage *m = NULL;
    struct abx_err err = { 0 };
    enum connect_event ev;
    uint8_t flags;

    ev = connect_decoder_next(&c->decoder, &in, &flags, &message);
    buf_consume(&c->input, c->input.len - in.n);
    switch (ev) {
    case CONNECT_NEED_MORE:
        if (!c->is_input_end)
            http_exchange_read(c->ex, true);
        else if (connect_decoder_is_partial(&c->decoder))
            stream_fail(c, ABX_INVALID_ARGUMENT, "request: the last message is cut");
        else
            c->method->on_message(c, NULL);
        return false;
    case CONNECT_TOO_LARGE:
        stream_fail(c, ABX_RESOURCE_EXHAUSTED, "request: message over 4 MiB");
        return false;
    case CONNECT_BAD_FLAGS:
        if (flags & CONNECT_FLAG_COMPRESSED)
            fail_compressed(c);
        else
            stream_fail(c, ABX_INVALID_ARGUMENT, "request: malformed envelope");
        return false;
    case CONNECT_MESSAGE:
        c->wants_message = false;
        if (flags & CONNECT_FLAG_END) {
            c->method->on_message(c, NULL);
        } else if (decode(c, message, &m, &err) < 0) {
            call_fail(c, &err);
        } else {
            c->method->on_message(c, m);
        }
        return true;
    }
    return false;
}

/* As long as messages are asked for. A handler asks for the next one from inside of its on_message:
 * a loop and not a call each, for one read may bring thousands. `c` stays, the exchange being open. */
static void stream_feed(struct call *c)
{
    if (c->is_feeding)
        return;
    c->is_feeding = true;
    while (c->wants_message && !c->is_handled && stream_feed_one(c)) {
    }
    c->is_feeding = false;
}

static void on_body(void *user, struct http_exchange *ex, struct slice data, bool is_end)
{
    struct call *c = user;

    if (c->is_handled)
        return;
    c->is_input_end = is_end;
    http_exchange_read(ex, false);
    if (buf_append_slice(&c->input, data))
        stream_fail(c, ABX_RESOURCE_EXHAUSTED, "out of memory");
    else if (c->wants_message)
        stream_feed(c);
}

void call_next(struct call *c)
{
    c->wants_message = true;
    if (c->ex)
        stream_feed(c);
}

/* --- routes ------------------------------------------------------------------------------------- */

static const struct call_method *const services[] = { process_methods, filesystem_methods };

/* A service's method; NULL with *ret_is_ours when the service has no such method. */
static const struct call_method *method_find(struct slice path, bool *ret_is_ours)
{
    *ret_is_ours = false;
    for (size_t i = 0; i < ARRAY_SIZE(services); i++) {
        const char *first = services[i]->path, *slash = first ? strrchr(first, '/') : NULL;
        for (const struct call_method *m = services[i]; m->path; m++) {
            if (slice_eq_str(path, m->path))
                return m;
        }
        if (slash && path.n > (size_t)(slash - first) &&
            memcmp(path.p, first, (size_t)(slash - first) + 1) == 0)
            *ret_is_ours = true;
    }
    return NULL;
}

/* For requests that are none of Connect's: no code of its own goes with the HTTP status. */
static void refuse(struct http_exchange *ex, int status, int code, const char *text)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(16384);
    struct abx_err err = { 0 };

    (void)err_set(&err, code, "%s", text);
    if (connect_error_json(&b, &err))
        http_exchange_abort(ex);
    else
        envd_send(ex, status, "application/json", buf_slice(&b));
}

/* Content-Encoding, or Connect-Content-Encoding of streams: nothing is ever compressed here. */
static int check_encoding(const struct http1_head *head, bool is_stream, struct abx_err *err)
{
    struct slice name =
        http1_head_value(head, is_stream ? "connect-content-encoding" : "content-encoding");

    if (name.n == 0 || slice_ieq_str(name, "identity"))
        return 0;
    return err_set(err, ABX_UNIMPLEMENTED,
                   "unknown compression '%.*s': supported encodings are identity",
                   (int)(name.n < 64 ? name.n : 64), (const char *)name.p);
}

/* Connect-Timeout-Ms and Keepalive-Ping-Interval. */
static bool read_times(struct call *c, const struct http1_head *head)
{
    const struct http1_field *timeout = http1_head_find(head, "connect-timeout-ms");
    struct slice keepalive = http1_head_value(head, "keepalive-ping-interval");
    uint64_t seconds;

    c->keepalive_s = KEEPALIVE_DEFAULT_S;
    if (keepalive.n > 0 && str_parse_u64(keepalive, 86400, &seconds) && seconds > 0)
        c->keepalive_s = (uint32_t)seconds;
    return !timeout || connect_timeout_parse(timeout->value, &c->timeout_ms);
}

static void call_begin(struct envd *e, struct http_exchange *ex, const struct call_method *method)
{
    const struct http1_head *head = http_exchange_head(ex);
    struct call *c = calloc(1, sizeof(*c));
    struct abx_err err = { 0 };
    bool is_stream;

    if (!c) {
        envd_error(ex, 503, "out of memory");
        return;
    }
    c->envd = e;
    c->method = method;
    c->ex = ex;
    connect_decoder_init(&c->decoder);
    buf_init(&c->input, 1u << 20);
    if (!connect_content_type(http1_head_value(head, "content-type"), &c->codec, &is_stream) ||
        is_stream != (method->kind != CALL_UNARY)) {
        refuse(ex, 415, ABX_UNKNOWN, "unsupported media type");
        c->ex = NULL;
        handled(c);
        return;
    }
    if (!read_times(c, head))
        (void)err_set(&err, ABX_INVALID_ARGUMENT, "malformed Connect-Timeout-Ms");
    else
        (void)check_encoding(head, is_stream, &err);
    if (method->kind != CALL_CLIENT_STREAM && err.code == 0) {
        http_exchange_collect(ex, CALL_REQUEST_MAX, on_collected, c);
        return;
    }
    http_exchange_begin(ex, &events, c);
    deadline_start(c);
    if (err.code == 0)
        (void)envd_user(e, head, &c->user, &err);
    if (err.code)
        call_fail(c, &err);
    else
        method->handle(c);
}

bool call_handle(struct envd *e, struct http_exchange *ex)
{
    const struct http1_head *head = http_exchange_head(ex);
    bool is_ours;
    const struct call_method *method = method_find(head->path, &is_ours);

    if (!method && !is_ours)
        return false;
    if (!method)
        refuse(ex, 404, ABX_UNIMPLEMENTED, "this service has no such method");
    else if (slice_eq_str(head->method, "POST"))
        call_begin(e, ex, method);
    else
        refuse(ex, 405, ABX_UNKNOWN, "method not allowed");
    return true;
}
