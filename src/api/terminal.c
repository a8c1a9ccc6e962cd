/* terminal.c - a sandbox's terminal over WebSocket /terminal (client.md 3.10): input and output are
 * messages, a resize is a text message {"type":"resize","cols":C,"rows":R}, the first of which goes
 * out at once. */
#include <stdio.h>
#include <string.h>

#include "abx/http.h"
#include "protocol/envd.h"
#include "transport/call.h"
#include "transport/websocket.h"

#define RESIZE_BYTES 64

static int resize_format(char to[RESIZE_BYTES], uint16_t cols, uint16_t rows, struct abx_err *err)
{
    if (cols == 0 || rows == 0)
        return err_set(err, ABX_INVALID_ARGUMENT, "cols and rows: 1..65535");
    return snprintf(to, RESIZE_BYTES, "{\"type\":\"resize\",\"cols\":%u,\"rows\":%u}", cols, rows);
}

/* envd's base URL with ws:// or wss://, and the path. */
static int terminal_url(const abx_sandbox *sb, struct buf *to, struct abx_err *err)
{
    const char *rest = strstr(sb->envd_url, "://");
    bool is_tls = slice_starts_with(slice_str(sb->envd_url), "https:");

    if (!rest || buf_printf(to, "%s%s/terminal", is_tls ? "wss" : "ws", rest) != BUF_OK ||
        !buf_cstr(to))
        return err_set(err, ABX_INVALID_ARGUMENT, "the sandbox's URL is not understood");
    return 0;
}

static int terminal_opts(const abx_sandbox *sb, const char *user, struct buf *url, struct buf *mem,
                         struct abx_pair headers[SANDBOX_HEADERS_MAX], int64_t request_timeout_ms,
                         struct abx_websocket_opts *to, struct abx_err *err)
{
    int64_t deadline_ns; /* the WebSocket makes its own */
    int r = sandbox_deadline(sb, request_timeout_ms, &deadline_ns, err);

    if (r == 0)
        r = terminal_url(sb, url, err);
    if (r == 0)
        r = sandbox_headers(sb, ENVD_PORT, envd_user(sb, user), mem, headers, err);
    if (r < 0)
        return r;
    to->url = buf_cstr(url);
    to->headers = headers;
    to->header_count = (size_t)r;
    to->request_timeout_ms = request_timeout_ms;
    to->ping_interval_ms = sb->config->ws_ping_interval_ms;
    return 0;
}

abx_call *abx_terminal_open(abx_client *client, const abx_sandbox *sandbox, uint16_t cols,
                            uint16_t rows, const char *user, int64_t request_timeout_ms)
{
    struct abx_websocket_opts opts = ABX_WEBSOCKET_OPTS_INIT;
    struct abx_pair headers[SANDBOX_HEADERS_MAX];
    _cleanup_(buf_done) struct buf url = BUF_INIT(65536), mem = BUF_INIT(65536);
    char first[RESIZE_BYTES];
    struct abx_err err = { 0 };
    int n = resize_format(first, cols, rows, &err), r = n;

    if (r >= 0)
        r = terminal_opts(sandbox, user, &url, &mem, headers, request_timeout_ms, &opts, &err);
    if (r < 0)
        return call_new_failed(client, &err);
    return websocket_open(client, sandbox->config, &opts, slice_of(first, (size_t)n));
}

int abx_terminal_resize(abx_call *call, uint16_t cols, uint16_t rows, struct abx_error *err)
{
    char text[RESIZE_BYTES];
    struct abx_err why = { 0 };
    int n = resize_format(text, cols, rows, &why);

    if (n >= 0)
        return abx_websocket_send(call, text, (size_t)n, 1, err);
    if (err)
        error_export(&why, 0, err);
    return n;
}
