/* websocket.c - WebSocket client over a bare connection of the HTTP layer. See websocket.h.
 *
 * Phases: connecting (libcurl), handshake (our request, the server's 101), open, closing (our close frame
 * is out, the server's is awaited). Reading stops while the owner's events are full; what waits to be
 * sent is bounded by what abx_websocket_send lets in. One timer stands for the phase's deadline and
 * the pings.
 */
#include "transport/websocket.h"

#include <nettle/sha1.h>
#include <string.h>

#include "base/fd.h"
#include "base/str.h"
#include "e2b/errors.h"
#include "transport/call.h"
#include "transport/http.h"
#include "transport/opts.h"
#include "wire/http1.h"
#include "wire/ws.h"

#define WEBSOCKET_READ_BYTES 16384u
#define WEBSOCKET_MESSAGE_BYTES (16u << 20)
#define WEBSOCKET_SEND_BYTES (1u << 20)
#define WEBSOCKET_CLOSE_MS 10000
#define WEBSOCKET_PING_MS 30000
#define WEBSOCKET_ERROR_BYTES 4096u
#define WEBSOCKET_REASON_BYTES 123u /* RFC 6455 5.5 */
#define WEBSOCKET_GUID "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

enum websocket_phase { CONNECTING, HANDSHAKE, OPEN, CLOSING };

struct websocket {
    struct http_exchange *x;
    enum websocket_phase phase;
    char *url;  /* with http:// or https:// */
    char *host; /* authority, for messages and the Host field */
    char *protocol;
    struct buf out;   /* to be sent: request, then frames */
    struct buf first; /* text message for the beginning */
    struct buf text;  /* body of a refusal */
    struct http1_parser *parser;
    struct ws_decoder decoder;
    char accept[32]; /* what Sec-WebSocket-Accept has to be */
    struct client_timer timer;
    struct client_task task; /* reads on after the events were full */
    int64_t phase_deadline_ns, ping_interval_ns, ping_due_ns, heard_ns;
    bool is_full;
};

static void websocket_ready(void *user, unsigned events);

/* ---- the end ---- */

static void websocket_fail(abx_call *call, const struct abx_err *err)
{
    struct websocket *w = call->state;

    if (w->x)
        http_cancel(TAKE_PTR(w->x));
    call_fail(call, err);
}

static void websocket_cancel(abx_call *call)
{
    struct websocket *w = call->state;

    if (w->x)
        http_cancel(TAKE_PTR(w->x));
}

static void websocket_done(abx_call *call)
{
    struct websocket *w = call->state;

    client_timer_clear(call->client, &w->timer);
    client_task_remove(call->client, &w->task);
    free(w->url);
    free(w->host);
    free(w->protocol);
    buf_done(&w->out);
    buf_done(&w->first);
    buf_done(&w->text);
    http1_parser_free(w->parser);
    w->parser = NULL;
    ws_decoder_done(&w->decoder);
}

/* The server closed: its code and reason are the last event. */
static void websocket_closed(abx_call *call, int code, struct slice reason)
{
    struct websocket *w = call->state;
    char *text = call_dup(call, reason);
    struct abx_event event = { .kind = ABX_EVENT_END, .exit_code = code, .text = text };
    struct abx_err err;

    if (!text || !call_event_push(call, &event)) {
        (void)err_oom(&err);
        websocket_fail(call, &err);
        return;
    }
    if (w->x)
        http_cancel(TAKE_PTR(w->x));
    call_finish(call, ABX_RESULT_NONE);
}

/* ---- time ---- */

static void websocket_arm(abx_call *call)
{
    struct websocket *w = call->state;
    int64_t due_ns = w->phase_deadline_ns;

    if (w->phase == OPEN)
        due_ns = w->ping_due_ns;
    if (due_ns > 0)
        client_timer_set(call->client, &w->timer, due_ns);
    else
        client_timer_clear(call->client, &w->timer);
}

/* ---- sending ---- */

static int websocket_watch(abx_call *call, struct abx_err *err)
{
    struct websocket *w = call->state;
    unsigned events = (w->is_full ? 0 : CLIENT_IN) | (w->out.len > 0 ? CLIENT_OUT : 0);

    return http_tunnel_watch(w->x, events, websocket_ready, call, err);
}

/* Sends what waits, as far as the connection takes it. */
static int websocket_flush(abx_call *call, struct abx_err *err)
{
    struct websocket *w = call->state;

    while (w->out.len > 0) {
        int64_t n = http_tunnel_send(w->x, buf_slice(&w->out), err);

        if (n == ABX_UNAVAILABLE && (!err || err->reason == ABX_REASON_NONE))
            break;
        if (n < 0)
            return (int)n;
        buf_consume(&w->out, (size_t)n);
    }
    return websocket_watch(call, err);
}

static int frame_put(struct websocket *w, enum ws_opcode opcode, struct slice data,
                     struct abx_err *err)
{
    uint8_t mask[4];

    random_bytes(mask, sizeof mask);
    if (ws_frame_encode(&w->out, WS_CLIENT, opcode, mask, data) != BUF_OK)
        return err_reason(err, ABX_REASON_TOO_LARGE, "%s: WebSocket: too much waits to be sent",
                          w->host);
    return 0;
}

static int close_put(struct websocket *w, int code, struct slice reason, struct abx_err *err)
{
    uint8_t mask[4];

    random_bytes(mask, sizeof mask);
    if (ws_close_encode(&w->out, WS_CLIENT, mask, code, reason) != BUF_OK)
        return err_oom(err);
    return 0;
}

/* Tells the server why it is cut off, as far as one write does that, and fails the call. */
static void websocket_refuse(abx_call *call, int close_code, const char *reason)
{
    struct websocket *w = call->state;
    struct abx_err err;

    if (close_put(w, close_code, slice_str(reason), NULL) == 0)
        (void)http_tunnel_send(w->x, buf_slice(&w->out), NULL);
    if (close_code == 1009)
        (void)err_reason(&err, ABX_REASON_TOO_LARGE, "%s: WebSocket: %s of %zu bytes", w->host,
                         reason, w->decoder.message.limit);
    else
        (void)err_reason(&err, ABX_REASON_PROTOCOL, "%s: WebSocket: %s", w->host, reason);
    websocket_fail(call, &err);
}

static void websocket_due(void *user)
{
    abx_call *call = user;
    struct websocket *w = call->state;
    static const char *const names[] = { "connect", "handshake", "open", "closing handshake" };
    int64_t now_ns = time_mono_ns();
    struct abx_err err = { 0 };
    int r = 0;

    if (w->phase != OPEN) {
        r = err_reason(&err, ABX_REASON_REQUEST_TIMEOUT, "%s: WebSocket: %s took too long", w->host,
                       names[w->phase]);
    } else if (!w->is_full && now_ns - w->heard_ns >= 2 * w->ping_interval_ns) {
        r = err_reason(&err, ABX_REASON_DISCONNECTED,
                       "%s: WebSocket: no answer to pings for %lld ms", w->host,
                       (long long)(2 * w->ping_interval_ns / 1000000));
    } else {
        if (w->out.len < WEBSOCKET_SEND_BYTES)
            r = frame_put(w, WS_PING, slice_of(NULL, 0), &err);
        w->ping_due_ns = now_ns + w->ping_interval_ns;
        websocket_arm(call);
        if (r == 0)
            r = websocket_flush(call, &err);
    }
    if (r < 0)
        websocket_fail(call, &err);
}

/* ---- handshake ---- */

static bool accept_make(struct websocket *w, char key[32])
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(128);
    struct sha1_ctx hash;
    uint8_t nonce[16], digest[SHA1_DIGEST_SIZE];

    random_bytes(nonce, sizeof nonce);
    if (base64_encode(&b, slice_of(nonce, sizeof nonce), true) != BUF_OK || !buf_cstr(&b))
        return false;
    memcpy(key, buf_cstr(&b), b.len + 1);
    sha1_init(&hash);
    sha1_update(&hash, b.len, buf_data(&b));
    sha1_update(&hash, sizeof WEBSOCKET_GUID - 1, (const uint8_t *)WEBSOCKET_GUID);
    sha1_digest(&hash, sizeof digest, digest);
    buf_reset(&b);
    if (base64_encode(&b, slice_of(digest, sizeof digest), true) != BUF_OK || !buf_cstr(&b))
        return false;
    memcpy(w->accept, buf_cstr(&b), b.len + 1);
    return true;
}

static bool field_put(struct buf *b, const char *name, const char *value)
{
    return http1_field_put(b, slice_str(name), slice_str(value)) == BUF_OK;
}

/* A field of the handshake itself, or of a body that a GET does not have. */
static bool is_own_field(const char *name)
{
    static const char *const own[] = { "host",
                                       "connection",
                                       "upgrade",
                                       "sec-websocket-version",
                                       "sec-websocket-key",
                                       "sec-websocket-protocol",
                                       "sec-websocket-extensions",
                                       "content-length",
                                       "transfer-encoding",
                                       "expect" };

    for (size_t i = 0; i < ARRAY_SIZE(own); i++)
        if (strcasecmp(name, own[i]) == 0)
            return true;
    return false;
}

static int fields_put(struct websocket *w, const struct abx_websocket_opts *o, struct abx_err *err)
{
    for (size_t i = 0; i < o->header_count; i++) {
        const struct abx_pair *h = &o->headers[i];

        if (!h->key || !h->value)
            return err_set(err, ABX_INVALID_ARGUMENT, "header %zu: name or value is missing", i);
        if (is_own_field(h->key))
            return err_set(err, ABX_INVALID_ARGUMENT, "header '%s': is set by the library", h->key);
        if (!field_put(&w->out, h->key, h->value))
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "header %zu: its name is no token, or its value has a control byte", i);
    }
    return 0;
}

/* Path and query of the URL as a request's target; the fragment is nobody else's business (RFC 6455 3). */
static bool target_put(struct websocket *w, struct buf *to)
{
    const char *rest = strstr(w->url, "://") + 3;

    rest += strcspn(rest, "/?#");
    return (*rest == '/' || buf_append_byte(to, '/') == BUF_OK) &&
           buf_append(to, rest, strcspn(rest, "#")) == BUF_OK;
}

/* The request into w->out. */
static int request_make(struct websocket *w, const struct abx_websocket_opts *o,
                        struct abx_err *err)
{
    _cleanup_(buf_done) struct buf target = BUF_INIT(65537);
    char key[32];
    bool ok = accept_make(w, key) && target_put(w, &target) &&
              http1_request_line(&w->out, SLICE_LIT("GET"), buf_slice(&target)) == BUF_OK &&
              field_put(&w->out, "Host", w->host) && field_put(&w->out, "Connection", "Upgrade") &&
              field_put(&w->out, "Upgrade", "websocket") &&
              field_put(&w->out, "Sec-WebSocket-Version", "13") &&
              field_put(&w->out, "Sec-WebSocket-Key", key);

    if (ok && o->protocol)
        ok = field_put(&w->out, "Sec-WebSocket-Protocol", o->protocol);
    if (!ok)
        return err_set(err, ABX_INVALID_ARGUMENT, "url or protocol: has a forbidden byte");
    if (fields_put(w, o, err) < 0)
        return err->code;
    return http1_head_end(&w->out) == BUF_OK ? 0 : err_oom(err);
}

static int refusal(struct websocket *w, int status, struct abx_err *err)
{
    static const struct {
        int status, code;
    } codes[] = {
        { 400, ABX_INVALID_ARGUMENT },  { 401, ABX_UNAUTHENTICATED },
        { 403, ABX_PERMISSION_DENIED }, { 404, ABX_NOT_FOUND },
        { 409, ABX_ABORTED },           { 429, ABX_RESOURCE_EXHAUSTED },
        { 501, ABX_UNIMPLEMENTED },     { 502, ABX_UNAVAILABLE },
        { 503, ABX_UNAVAILABLE },       { 504, ABX_DEADLINE_EXCEEDED },
    };
    const char *text = buf_cstr(&w->text);
    int code = ABX_UNKNOWN;

    for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
        if (codes[i].status == status)
            code = codes[i].code;
    (void)err_set(err, code, "%s: WebSocket: refused with status %d: %.200s", w->host, status,
                  text && utf8_is_valid(slice_str(text)) ? text : "");
    if (status == 502 && text && strstr(text, E2B_TEXT_SANDBOX_GONE))
        err->reason = ABX_REASON_SANDBOX_GONE;
    if (status == 502 && text && strstr(text, E2B_TEXT_PORT_CLOSED))
        err->reason = ABX_REASON_PORT_CLOSED;
    if (status == 429)
        err->reason = ABX_REASON_RATE_LIMITED;
    return code;
}

/* A 101 that is none of this handshake's is refused: RFC 6455 4.1. */
static int head_check(struct websocket *w, const struct http1_head *head, struct abx_err *err)
{
    struct slice protocol = http1_head_value(head, "sec-websocket-protocol");
    const char *wrong = NULL;

    if (!slice_ieq_str(http1_head_value(head, "upgrade"), "websocket") ||
        !http1_list_has(http1_head_value(head, "connection"), SLICE_LIT("upgrade")))
        wrong = "its 101 upgrades to something else";
    else if (!slice_eq_str(http1_head_value(head, "sec-websocket-accept"), w->accept))
        wrong = "Sec-WebSocket-Accept is wrong";
    else if (http1_head_value(head, "sec-websocket-extensions").n > 0)
        wrong = "it chose an extension that was not offered";
    else if (protocol.n > 0 && (!w->protocol || !slice_eq_str(protocol, w->protocol)))
        wrong = "it chose a protocol that was not offered";
    if (wrong)
        return err_reason(err, ABX_REASON_PROTOCOL, "%s: WebSocket: %s", w->host, wrong);
    return 0;
}

static int websocket_opened(abx_call *call, struct abx_err *err)
{
    struct websocket *w = call->state;
    struct abx_event event = { .kind = ABX_EVENT_START };
    int64_t now_ns = time_mono_ns();

    w->phase = OPEN;
    w->heard_ns = now_ns;
    w->ping_due_ns = w->ping_interval_ns > 0 ? now_ns + w->ping_interval_ns : 0;
    websocket_arm(call);
    if (!call_event_push(call, &event))
        return err_oom(err);
    return w->first.len > 0 ? frame_put(w, WS_TEXT, buf_slice(&w->first), err) : 0;
}

/* Reads the server's head; what stands behind a 101 stays in *in. */
static int handshake_take(abx_call *call, struct slice *in, struct abx_err *err)
{
    struct websocket *w = call->state;
    const struct http1_head *head;
    struct slice data;
    int r;

    for (;;) {
        switch (http1_parser_next(w->parser, in, &data)) {
        case HTTP1_NEED_MORE:
            return 0;
        case HTTP1_HEAD:
            head = http1_parser_head(w->parser);
            if (head->status != 101)
                break;
            r = head_check(w, head, err);
            if (r < 0)
                return r;
            http1_parser_upgrade(w->parser);
            return websocket_opened(call, err);
        case HTTP1_DATA:
            (void)buf_append(&w->text, data.p, MIN(data.n, buf_room(&w->text)));
            break;
        case HTTP1_END:
            head = http1_parser_head(w->parser);
            if (head->status >= 200)
                return refusal(w, head->status, err);
            break;
        case HTTP1_UPGRADED:
        case HTTP1_ERROR:
            return err_reason(err, ABX_REASON_PROTOCOL, "%s: WebSocket: answer: %s", w->host,
                              http1_error_text(http1_parser_error(w->parser)));
        }
    }
}

/* ---- receiving ---- */

/* False = the call has ended. */
static bool frames_take(abx_call *call, struct slice in)
{
    struct websocket *w = call->state;
    struct ws_message m;
    struct abx_err err = { 0 };
    struct abx_event event;
    int r = 0;

    while (r == 0) {
        switch (ws_decoder_next(&w->decoder, &in, &m)) {
        case WS_NEED_MORE:
            return true;
        case WS_ERROR:
            websocket_refuse(call, m.close_code, m.reason);
            return false;
        case WS_MESSAGE:
            event = (struct abx_event){ .kind = ABX_EVENT_DATA,
                                        .data = m.data.p,
                                        .size = m.data.n,
                                        .exited = m.opcode == WS_TEXT };
            r = call_event_push(call, &event) ? 0 : err_oom(&err);
            break;
        case WS_CONTROL:
            if (m.opcode == WS_PING && w->phase == OPEN && w->out.len < WEBSOCKET_SEND_BYTES)
                r = frame_put(w, WS_PONG, m.data, &err);
            if (m.opcode == WS_CLOSE) {
                if (w->phase == OPEN && close_put(w, m.close_code, m.data, NULL) == 0)
                    (void)http_tunnel_send(w->x, buf_slice(&w->out), NULL);
                websocket_closed(call, m.close_code, m.data);
                return false;
            }
            break;
        }
    }
    websocket_fail(call, &err);
    return false;
}

/* The connection ended. */
static void websocket_lost(abx_call *call)
{
    struct websocket *w = call->state;
    struct abx_err err;

    if (w->phase == HANDSHAKE && http1_parser_eof(w->parser) == HTTP1_END &&
        http1_parser_head(w->parser)->status >= 200)
        (void)refusal(w, http1_parser_head(w->parser)->status, &err);
    else
        (void)err_reason(&err, ABX_REASON_DISCONNECTED,
                         "%s: WebSocket: the connection ended without a close frame", w->host);
    websocket_fail(call, &err);
}

/* Reads until there is nothing more, the events are full, or the call ended (false). */
static bool websocket_read(abx_call *call)
{
    struct websocket *w = call->state;
    uint8_t bytes[WEBSOCKET_READ_BYTES];

    while (!(w->is_full = call_events_full(call))) {
        struct abx_err err = { 0 };
        int64_t n = http_tunnel_recv(w->x, bytes, sizeof bytes, &err);
        struct slice in = slice_of(bytes, n > 0 ? (size_t)n : 0);
        int r = 0;

        if (n == ABX_UNAVAILABLE && err.reason == ABX_REASON_NONE)
            return true;
        if (n == 0) {
            websocket_lost(call);
            return false;
        }
        w->heard_ns = time_mono_ns();
        if (n < 0)
            r = (int)n;
        else if (w->phase == HANDSHAKE)
            r = handshake_take(call, &in, &err);
        if (r < 0) {
            websocket_fail(call, &err);
            return false;
        }
        if (w->phase != HANDSHAKE && in.n > 0 && !frames_take(call, in))
            return false;
    }
    return true;
}

static void websocket_ready(void *user, unsigned events)
{
    abx_call *call = user;
    struct abx_err err = { 0 };

    (void)events;
    if (websocket_read(call) && websocket_flush(call, &err) < 0)
        websocket_fail(call, &err);
}

/* A task: the events have room again. What TLS holds already makes no socket readable. */
static void websocket_continue(void *user)
{
    abx_call *call = user;
    struct websocket *w = call->state;

    if (w->x && !call->is_finished)
        websocket_ready(call, CLIENT_IN);
}

static void websocket_resume(abx_call *call)
{
    client_task_add(call->client, &((struct websocket *)call->state)->task);
}

/* ---- the start ---- */

static void websocket_connected(void *user, const struct abx_err *err)
{
    abx_call *call = user;
    struct websocket *w = call->state;
    struct abx_err why = { 0 };

    if (err->code != 0) {
        w->x = NULL;
        call_fail(call, err);
        return;
    }
    w->phase = HANDSHAKE;
    websocket_arm(call);
    if (websocket_flush(call, &why) < 0)
        websocket_fail(call, &why);
}

/* ws:// and wss:// as http:// and https://, and the authority. */
static int url_take(struct websocket *w, const char *url, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(65536);
    const char *rest = NULL, *scheme = "http://";

    if (url && strncasecmp(url, "ws://", 5) == 0) {
        rest = url + 5;
    } else if (url && strncasecmp(url, "wss://", 6) == 0) {
        rest = url + 6;
        scheme = "https://";
    }
    if (!rest)
        return err_set(err, ABX_INVALID_ARGUMENT, "url: has to begin with ws:// or wss://");
    if (buf_printf(&b, "%s%s", scheme, rest) != BUF_OK)
        return err_set(err, ABX_INVALID_ARGUMENT, "url: over 64 KiB");
    w->url = slice_dup(buf_slice(&b));
    w->host = slice_dup(slice_of(rest, strcspn(rest, "/?#")));
    return w->url && w->host ? 0 : err_oom(err);
}

static int opts_take(struct websocket *w, const struct abx_websocket_opts *o, struct slice first,
                     struct abx_err *err)
{
    size_t limit = o->max_message_bytes ? o->max_message_bytes : WEBSOCKET_MESSAGE_BYTES;
    int64_t ping_ms = o->ping_interval_ms == ABX_UNSET ? WEBSOCKET_PING_MS : o->ping_interval_ms;
    int r = url_take(w, o->url, err);

    if (r == 0)
        r = timeout_check(o->request_timeout_ms, "request_timeout_ms", err);
    if (r == 0)
        r = opts_array_check(o->headers, o->header_count, "headers", err);
    if (r < 0)
        return r;
    if (ping_ms < 0 || ping_ms > INT32_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "ping_interval_ms: is negative or over 2^31");
    w->ping_interval_ns = ping_ms * 1000000;
    ws_decoder_init(&w->decoder, WS_CLIENT, limit);
    buf_init(&w->out, SIZE_MAX / 2);
    buf_init(&w->first, WEBSOCKET_SEND_BYTES);
    buf_init(&w->text, WEBSOCKET_ERROR_BYTES);
    w->parser = http1_parser_new(HTTP1_RESPONSE);
    w->protocol = o->protocol ? strdup(o->protocol) : NULL;
    if (!w->parser || (o->protocol && !w->protocol) || buf_append_slice(&w->first, first) != BUF_OK)
        return err_oom(err);
    return request_make(w, o, err);
}

abx_call *websocket_open(abx_client *client, abx_config *config,
                         const struct abx_websocket_opts *opts, struct slice first)
{
    static const struct call_ops ops = { .cancel = websocket_cancel,
                                         .resume = websocket_resume,
                                         .done = websocket_done };
    static const struct http_sink sink = { .done = websocket_connected };
    struct abx_websocket_opts o = ABX_WEBSOCKET_OPTS_INIT;
    abx_call *call = call_new(client, &ops, sizeof(struct websocket));
    struct http_spec spec = { .config = config, .method = "GET", .retry = HTTP_RETRY_CONNECT };
    struct abx_err err = { 0 };
    struct websocket *w;
    int r;

    if (!call)
        return NULL;
    w = call->state;
    w->timer = (struct client_timer){ .fn = websocket_due, .user = call };
    w->task = (struct client_task){ .fn = websocket_continue, .user = call };
    r = opts_copy(&o, sizeof o, opts, "abx_websocket_opts", &err);
    if (r == 0)
        r = opts_take(w, &o, first, &err);
    if (r == 0) {
        w->phase_deadline_ns = config_deadline_ns(config, o.request_timeout_ms);
        spec.url = w->url;
        spec.deadline_ns = w->phase_deadline_ns;
        r = http_tunnel_start(client, &spec, &sink, call, &w->x, &err);
    }
    if (r < 0)
        call_fail(call, &err);
    return call;
}

abx_call *abx_websocket_open(abx_client *client, abx_config *config,
                             const struct abx_websocket_opts *opts)
{
    return websocket_open(client, config, opts, slice_of(NULL, 0));
}

/* ---- the owner's side ---- */

static int export_fail(const struct abx_err *err, struct abx_error *to)
{
    if (to)
        error_export(err, 0, to);
    return err->code;
}

static struct websocket *websocket_of(abx_call *call, struct abx_err *err)
{
    struct websocket *w = call ? call->state : NULL;

    if (w && call->ops->resume == websocket_resume && !call->is_finished && w->phase == OPEN)
        return w;
    (void)err_set(err, ABX_FAILED_PRECONDITION, "the WebSocket is not open");
    return NULL;
}

int abx_websocket_send(abx_call *call, const void *data, size_t size, int is_text,
                       struct abx_error *err)
{
    struct abx_err why = { 0 };
    struct websocket *w = websocket_of(call, &why);
    int r = w ? 0 : why.code;

    if (r == 0)
        r = opts_array_check(data, size, "data", &why);
    if (r == 0 && is_text && !utf8_is_valid(slice_of(data, size)))
        r = err_set(&why, ABX_INVALID_ARGUMENT, "data: a text message has to be UTF-8");
    if (r == 0 && w->out.len >= WEBSOCKET_SEND_BYTES)
        r = err_set(&why, ABX_RESOURCE_EXHAUSTED, "1 MiB waits to be sent already");
    if (r == 0)
        r = frame_put(w, is_text ? WS_TEXT : WS_BINARY, slice_of(data, size), &why);
    if (r == 0)
        r = websocket_watch(call, &why);
    return r < 0 ? export_fail(&why, err) : 0;
}

int abx_websocket_close(abx_call *call, int code, const char *reason, struct abx_error *err)
{
    struct abx_err why = { 0 };
    struct websocket *w = websocket_of(call, &why);
    int r = w ? 0 : why.code;

    if (r == 0 && !ws_close_code_is_valid(code))
        r = err_set(&why, ABX_INVALID_ARGUMENT, "code: %d may not be sent", code);
    if (r == 0 && reason &&
        (strlen(reason) > WEBSOCKET_REASON_BYTES || !utf8_is_valid(slice_str(reason))))
        r = err_set(&why, ABX_INVALID_ARGUMENT, "reason: has to be UTF-8 of at most %u bytes",
                    WEBSOCKET_REASON_BYTES);
    if (r == 0)
        r = close_put(w, code, slice_str(reason), &why);
    if (r == 0) {
        w->phase = CLOSING;
        w->phase_deadline_ns = time_mono_ns() + INT64_C(1000000) * WEBSOCKET_CLOSE_MS;
        websocket_arm(call);
        r = websocket_watch(call, &why);
    }
    return r < 0 ? export_fail(&why, err) : 0;
}
