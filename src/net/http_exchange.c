/* http_exchange.c - what handlers call on an exchange. See http_server.h, http_session.h.
 *
 * Nothing here calls a handler back or frees anything: calls change the exchange's state and kick the
 * connection's pump.
 */
#include <assert.h>
#include <stdio.h>

#include "net/http_session.h"

#define WRITE_NOW_MIN 8192u /* smaller pieces wait for the end of the loop's turn */

static struct buf *out_of(struct http_exchange *ex)
{
    return &ex->session->sock.out;
}

const struct http1_head *http_exchange_head(const struct http_exchange *ex)
{
    return http1_parser_head(ex->session->parser);
}

const char *http_exchange_peer(const struct http_exchange *ex)
{
    return ex->session->peer;
}

bool http_exchange_is_secure(const struct http_exchange *ex)
{
    return ex->session->is_secure;
}

void http_exchange_begin(struct http_exchange *ex, const struct http_exchange_events *events,
                         void *user)
{
    ex->events = events;
    ex->user = user;
}

void http_exchange_read(struct http_exchange *ex, bool on)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct session *s = ex->session;

    if (ex->is_reading == on)
        return;
    ex->is_reading = on;
    if (!on)
        return;
    if (ex->wants_continue && !ex->is_responding) {
        struct slice part = slice_of(go_on, sizeof(go_on) - 1);

        ex->wants_continue = false;
        sock_write(&s->sock, &part, 1, false);
    }
    s->progress_at = sock_now(&s->sock);
    sock_kick(&s->sock);
}

static bool is_own_field(struct slice name)
{
    static const struct slice none = { 0 };

    return http1_is_hop_by_hop(name, none) || slice_ieq_str(name, "content-length");
}

static enum buf_status put(struct buf *b, const char *name, const char *value)
{
    return http1_field_put(b, slice_str(name), slice_str(value));
}

/* The lines that follow from the message's length and the connection's state. */
static enum buf_status put_framing(struct http_exchange *ex, int status, uint64_t length)
{
    const struct http1_head *head = http_exchange_head(ex);
    struct buf *out = out_of(ex);
    bool is_head = slice_eq_str(head->method, "HEAD");
    bool has_body = status != 204 && status != 304;
    enum buf_status r = BUF_OK;

    ex->is_bodyless = is_head || !has_body;
    ex->left = length;
    if (has_body && length != HTTP_LENGTH_UNKNOWN) {
        r = buf_printf(out, "Content-Length: %llu\r\n", (unsigned long long)length);
    } else if (has_body && !is_head) {
        ex->is_chunked = head->minor > 0;
        ex->is_close = ex->is_close || !ex->is_chunked;
        if (ex->is_chunked)
            r = put(out, "Transfer-Encoding", "chunked");
    }
    if (ex->wants_continue)
        ex->is_close = true;
    if (r == BUF_OK && ex->is_close)
        r = put(out, "Connection", "close");
    else if (r == BUF_OK && head->minor == 0)
        r = put(out, "Connection", "keep-alive");
    return r;
}

static int put_fields(struct http_exchange *ex, const struct http1_field *fields, size_t n_fields,
                      bool *ret_has_date, struct abx_err *err)
{
    for (size_t i = 0; i < n_fields; i++) {
        if (is_own_field(fields[i].name))
            return err_set(err, ABX_INVALID_ARGUMENT, "response field '%.*s' is the server's",
                           (int)fields[i].name.n, (const char *)fields[i].name.p);
        if (slice_ieq_str(fields[i].name, "date"))
            *ret_has_date = true;
        if (http1_field_put(out_of(ex), fields[i].name, fields[i].value) != BUF_OK)
            return err_set(err, ABX_INVALID_ARGUMENT, "response field %zu is malformed", i);
    }
    return 0;
}

int http_exchange_respond(struct http_exchange *ex, int status, const struct http1_field *fields,
                          size_t n_fields, uint64_t length, struct abx_err *err)
{
    struct buf *out = out_of(ex);
    size_t before = out->len;
    bool has_date = false;
    int r;

    assert(!ex->is_responding && status >= 200);
    sock_expect_head(&ex->session->sock);
    if (http1_status_line(out, status) != BUF_OK)
        r = err_set(err, ABX_INVALID_ARGUMENT, "status %d cannot be sent", status);
    else
        r = put_fields(ex, fields, n_fields, &has_date, err);
    if (r == 0 && ((!has_date && put(out, "Date", server_date(ex->session->server)) != BUF_OK) ||
                   put_framing(ex, status, length) != BUF_OK || http1_head_end(out) != BUF_OK))
        r = err_oom(err);
    if (r < 0) {
        buf_truncate(out, before);
        return r;
    }
    ex->is_responding = true;
    sock_kick(&ex->session->sock);
    return 0;
}

size_t http_exchange_room(const struct http_exchange *ex)
{
    size_t queued = ex->session->sock.out.len;

    return queued < HTTP_OUT_MAX ? HTTP_OUT_MAX - queued : 0;
}

/* Sends `s` framed, whatever the room. */
static void write_all(struct http_exchange *ex, struct slice s, bool is_last)
{
    char line[19];
    struct slice parts[4];
    size_t n = 0;

    if (ex->left != HTTP_LENGTH_UNKNOWN)
        ex->left -= s.n;
    if (ex->is_bodyless)
        return;
    if (ex->is_chunked && s.n > 0)
        parts[n++] = slice_of(line, http1_chunk_begin(line, s.n));
    if (s.n > 0)
        parts[n++] = s;
    if (ex->is_chunked && s.n > 0)
        parts[n++] = SLICE_LIT(HTTP1_CHUNK_END);
    if (ex->is_chunked && is_last)
        parts[n++] = SLICE_LIT(HTTP1_LAST_CHUNK);
    sock_write(&ex->session->sock, parts, n, s.n >= WRITE_NOW_MIN);
}

size_t http_exchange_write(struct http_exchange *ex, struct slice s)
{
    size_t n = MIN(s.n, http_exchange_room(ex));

    assert(ex->is_responding && !ex->is_ended);
    if (ex->left != HTTP_LENGTH_UNKNOWN && s.n > ex->left) {
        http_exchange_abort(ex); /* the handler broke its word about the length */
        return s.n;
    }
    if (n > 0)
        write_all(ex, (struct slice){ s.p, n }, false);
    if (n < s.n || ex->session->sock.out.len > HTTP_OUT_MAX / 2) {
        ex->wants_writable = true;
        sock_kick(&ex->session->sock);
    }
    return n;
}

void http_exchange_end(struct http_exchange *ex)
{
    assert(ex->is_responding);
    if (ex->is_ended)
        return;
    if (ex->left != HTTP_LENGTH_UNKNOWN && ex->left > 0 && !ex->is_bodyless) {
        http_exchange_abort(ex); /* shorter than announced: must not look complete */
        return;
    }
    if (ex->is_chunked)
        write_all(ex, (struct slice){ 0 }, true);
    ex->is_ended = true;
    sock_kick(&ex->session->sock);
}

void http_exchange_abort(struct http_exchange *ex)
{
    ex->is_aborted = true;
    sock_kick(&ex->session->sock);
}

void http_exchange_send(struct http_exchange *ex, int status, const struct http1_field *fields,
                        size_t n_fields, struct slice body)
{
    if (http_exchange_respond(ex, status, fields, n_fields, body.n, NULL) < 0) {
        http_exchange_abort(ex);
        return;
    }
    if (body.n > 0)
        write_all(ex, body, false);
    http_exchange_end(ex);
}

int http_exchange_upgrade(struct http_exchange *ex, const struct http1_field *fields,
                          size_t n_fields, struct abx_err *err)
{
    const struct http1_head *head = http_exchange_head(ex);
    struct slice protocol = http1_head_value(head, "upgrade");
    struct buf *out = out_of(ex);
    size_t before = out->len;
    bool has_date = false, has_protocol = false;
    int r;

    if (!head->is_upgrade || !ex->is_request_done || ex->is_responding)
        return err_set(err, ABX_FAILED_PRECONDITION, "the request asks for no upgrade");
    for (size_t i = 0; i < n_fields; i++)
        has_protocol = has_protocol || slice_ieq_str(fields[i].name, "upgrade");
    r = http1_status_line(out, 101) == BUF_OK ? 0 : err_oom(err);
    for (size_t i = 0; r == 0 && i < n_fields; i++) {
        if (slice_ieq_str(fields[i].name, "connection"))
            continue;
        if (slice_ieq_str(fields[i].name, "upgrade"))
            r = http1_field_put(out, fields[i].name, fields[i].value) == BUF_OK ? 0 : err_oom(err);
        else
            r = put_fields(ex, &fields[i], 1, &has_date, err);
    }
    if (r == 0 &&
        ((!has_protocol && http1_field_put(out, SLICE_LIT("Upgrade"), protocol) != BUF_OK) ||
         put(out, "Connection", "Upgrade") != BUF_OK || http1_head_end(out) != BUF_OK))
        r = err_set(err, ABX_INVALID_ARGUMENT, "the upgrade cannot be answered");
    if (r < 0) {
        buf_truncate(out, before);
        return r;
    }
    ex->is_responding = ex->is_raw = true;
    ex->left = HTTP_LENGTH_UNKNOWN;
    sock_kick(&ex->session->sock);
    return 0;
}

void http_exchange_collect(struct http_exchange *ex, size_t limit,
                           void (*done)(void *user, struct http_exchange *ex, struct slice body,
                                        const struct abx_err *err),
                           void *user)
{
    const struct http1_head *head = http_exchange_head(ex);
    struct collect *collect = &ex->collect;

    assert(!ex->is_collecting && done);
    *collect = (struct collect){ .done = done, .user = user };
    buf_init(&collect->body, limit);
    ex->is_collecting = true;
    if (head->framing == HTTP1_BODY_LENGTH && head->content_length > limit) {
        collect->is_too_large = true; /* reported from the pump, without asking for the body */
        sock_kick(&ex->session->sock);
        return;
    }
    http_exchange_read(ex, true);
}
