/* errors.c - see errors.h. */
#include "e2b/errors.h"

#include "base/str.h"

/* Length of the valid UTF-8 sequence at the start of `s`, 0 if there is none. */
static size_t sequence(struct slice s)
{
    for (size_t k = 1; k <= MIN(s.n, (size_t)4); k++)
        if (utf8_is_valid(slice_of(s.p, k)))
            return k;
    return 0;
}

static enum buf_status put_char(struct buf *b, uint8_t c)
{
    switch (c) {
    case '"':
        return buf_append(b, "\\\"", 2);
    case '\\':
        return buf_append(b, "\\\\", 2);
    case '\n':
        return buf_append(b, "\\n", 2);
    case '\r':
        return buf_append(b, "\\r", 2);
    case '\t':
        return buf_append(b, "\\t", 2);
    default:
        return c < 0x20 || c == 0x7f ? buf_printf(b, "\\u%04x", c) : buf_append_byte(b, c);
    }
}

enum buf_status json_string_put(struct buf *b, struct slice s)
{
    enum buf_status st = buf_append_byte(b, '"');
    size_t i = 0;

    while (st == BUF_OK && i < s.n) {
        size_t k = sequence(slice_of(s.p + i, s.n - i));

        if (k == 0)
            st = buf_append(b, "\xef\xbf\xbd", 3);
        else if (k == 1)
            st = put_char(b, s.p[i]);
        else
            st = buf_append(b, s.p + i, k);
        i += MAX(k, (size_t)1);
    }
    return st == BUF_OK ? buf_append_byte(b, '"') : st;
}

/* Appends the parts, stops at the first that does not fit. */
static enum buf_status put_message(struct buf *b, const char *before, const char *text)
{
    enum buf_status st = buf_append_str(b, before);

    return st == BUF_OK ? json_string_put(b, slice_str(text)) : st;
}

enum buf_status e2b_error_body(struct buf *b, int http_status, const char *message)
{
    enum buf_status st = buf_printf(b, "{\"code\":%d", http_status);

    if (st == BUF_OK)
        st = put_message(b, ",\"message\":", message);
    return st == BUF_OK ? buf_append_byte(b, '}') : st;
}

enum buf_status e2b_error_body_from(struct buf *b, const struct abx_err *err)
{
    return e2b_error_body(b, err_http_status(err), err->msg);
}

enum buf_status e2b_sandbox_gone_body(struct buf *b, const char *sandbox_id)
{
    enum buf_status st = put_message(b, "{\"sandboxId\":", sandbox_id);

    if (st == BUF_OK)
        st = put_message(b, ",\"message\":", E2B_TEXT_SANDBOX_GONE);
    return st == BUF_OK ? buf_append_str(b, ",\"code\":502}") : st;
}

enum buf_status e2b_port_closed_body(struct buf *b, const char *sandbox_id, uint16_t port)
{
    enum buf_status st = put_message(b, "{\"sandboxId\":", sandbox_id);

    if (st == BUF_OK)
        st = put_message(b, ",\"message\":", E2B_TEXT_PORT_CLOSED);
    return st == BUF_OK ? buf_printf(b, ",\"port\":%u,\"code\":502}", (unsigned)port) : st;
}
