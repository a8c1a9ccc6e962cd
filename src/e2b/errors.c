/* errors.c - see errors.h. */
#include "e2b/errors.h"

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
