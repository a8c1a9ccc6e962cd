/* http1_exchange.c - how HTTP/1.1 writes responses. See http_session.h.
 *
 * Nothing here calls a handler back or frees anything: calls change the exchange's state and kick the
 * connection's pump.
 */
#include <assert.h>

#include "net/http_session.h"

#define WRITE_NOW_MIN 8192u /* smaller pieces wait for the end of the loop's turn */

static struct buf *out_of(struct http_exchange *ex)
{
    return &ex->session->sock.out;
}

static const struct http1_head *h1_head(const struct http_exchange *ex)
{
    return http1_parser_head(ex->session->parser);
}

static void h1_go_on(struct http_exchange *ex)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct slice part = slice_of(go_on, sizeof(go_on) - 1);

    sock_write(&ex->session->sock, &part, 1, false);
}

static enum buf_status put(struct buf *b, const char *name, const char *value)
{
    return http1_field_put(b, slice_str(name), slice_str(value));
}

/* The lines that follow from the message's length and the connection's state. */
static enum buf_status put_framing(struct http_exchange *ex, int status, uint64_t length)
{
    const struct http1_head *head = h1_head(ex);
    struct buf *out = out_of(ex);
    bool is_head = slice_eq_str(head->method, "HEAD");
    bool has_body = status != 204 && status != 304;
    enum buf_status r = BUF_OK;

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
        if (exchange_owns_field(fields[i].name))
            return err_set(err, ABX_INVALID_ARGUMENT, "response field '%.*s' is the server's",
                           (int)fields[i].name.n, (const char *)fields[i].name.p);
        if (slice_ieq_str(fields[i].name, "date"))
            *ret_has_date = true;
        if (http1_field_put(out_of(ex), fields[i].name, fields[i].value) != BUF_OK)
            return err_set(err, ABX_INVALID_ARGUMENT, "response field %zu is malformed", i);
    }
    return 0;
}

static int h1_respond(struct http_exchange *ex, int status, const struct http1_field *fields,
                      size_t n_fields, uint64_t length, struct abx_err *err)
{
    struct buf *out = out_of(ex);
    size_t before = out->len;
    bool has_date = false;
    int r;

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
    return 0;
}

static size_t h1_queued(const struct http_exchange *ex)
{
    return ex->session->sock.out.len;
}

static void send_framed(struct http_exchange *ex, struct slice s, bool is_last)
{
    char line[19];
    struct slice parts[4];
    size_t n = 0;

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

static void h1_write(struct http_exchange *ex, struct slice s)
{
    send_framed(ex, s, false);
}

static void h1_end(struct http_exchange *ex)
{
    if (ex->is_chunked && !ex->is_bodyless)
        send_framed(ex, (struct slice){ 0 }, true);
}

static int h1_upgrade(struct http_exchange *ex, const struct http1_field *fields, size_t n_fields,
                      struct abx_err *err)
{
    const struct http1_head *head = h1_head(ex);
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

const struct exchange_ops http1_exchange_ops = { h1_head,  h1_go_on, h1_respond, h1_queued,
                                                 h1_write, h1_end,   h1_upgrade };
