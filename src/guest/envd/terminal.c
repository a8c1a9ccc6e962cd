/* terminal.c - see terminal.h, RFC 6455.
 *
 * Input is decoded only while none waits for the shell, and output encoded only when the previous message is
 * with the connection: both ways push back. The object lives until the exchange, the start of the
 * shell, a write to it and the timer are all done with it.
 */
#include "guest/envd/terminal.h"

#include <nettle/sha1.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "guest/daemon/environment.h"
#include "guest/daemon/paths.h"
#include "wire/rpc.h"
#include "wire/ws.h"

#define GUID "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
#define KEY_BYTES 24u         /* 16 bytes as base64 */
#define INPUT_MAX (1u << 20)  /* arrived and not yet decoded: one read of the connection */
#define OUTPUT_MAX (1u << 20) /* one message of output, and pongs up to PONGS_FULL */
#define PONGS_FULL 65536u
#define CLOSE_GOING_AWAY 1001
#define CLOSE_POLICY 1008
#define CLOSE_INTERNAL 1011

struct terminal {
    struct envd *envd;
    struct http_exchange *ex; /* NULL once it is over */
    struct user user;
    struct command *command; /* NULL before the start and once detached */
    struct command_reader reader;
    struct ws_decoder decoder;
    struct buf in;    /* not yet decoded */
    struct buf typed; /* decoded, for the shell */
    struct buf out;   /* encoded */
    uv_timer_t timer; /* first message, then pings, then the client's close frame */
    uint64_t progress_at;
    uint16_t cols, rows;
    bool is_starting;
    bool is_typing;  /* `typed` is with the shell */
    bool is_closing; /* our close frame is in `out` or gone */
    bool is_peer_closed;
    bool is_over; /* both close frames are gone: only the connection's end is left */
    bool has_timer;
};

/* --- life --------------------------------------------------------------------------------------- */

static void release(struct terminal *t)
{
    if (t->ex || t->is_starting || t->is_typing || t->has_timer)
        return;
    ws_decoder_done(&t->decoder);
    buf_done(&t->in);
    buf_done(&t->typed);
    buf_done(&t->out);
    free(t);
}

static void on_timer_closed(uv_handle_t *h)
{
    struct terminal *t = h->data;

    t->has_timer = false;
    release(t);
}

static void leave_shell(struct terminal *t)
{
    struct command *c = t->command;

    if (!c)
        return;
    t->command = NULL;
    command_detach(c, &t->reader);
    command_hang_up(c);
}

static void on_close(void *user, struct http_exchange *ex, const struct abx_err *why)
{
    struct terminal *t = user;

    t->ex = NULL;
    leave_shell(t);
    if (!uv_is_closing((uv_handle_t *)&t->timer))
        uv_close((uv_handle_t *)&t->timer, on_timer_closed);
    release(t);
}

/* --- out ---------------------------------------------------------------------------------------- */

static void pump(struct terminal *t);

static void abort_connection(struct terminal *t)
{
    if (t->ex)
        http_exchange_abort(t->ex); /* on_close follows */
}

static void on_close_timer(uv_timer_t *timer)
{
    abort_connection(timer->data);
}

/* Says why, and waits for the client's close frame. Nothing else goes out after it. */
static void close_with(struct terminal *t, int code, const char *reason)
{
    if (t->is_closing)
        return;
    t->is_closing = true;
    leave_shell(t);
    (void)uv_timer_start(&t->timer, on_close_timer, TERMINAL_CLOSE_MS, 0);
    if (ws_close_encode(&t->out, WS_SERVER, NULL, code, slice_str(reason)))
        abort_connection(t);
}

/* Encodes the next piece of output into the empty `out`; false when there is none. */
static bool encode_next(struct terminal *t)
{
    enum output_stream stream;
    struct command_end end;
    struct slice data;

    if (!t->command)
        return false;
    if (command_peek(t->command, &t->reader, &stream, &data)) {
        if (ws_frame_encode(&t->out, WS_SERVER, WS_BINARY, NULL, data)) {
            abort_connection(t);
            return false;
        }
        command_advance(t->command, &t->reader);
        return true;
    }
    if (!t->command->is_ended)
        return false;
    command_end_of(t->command->status, &end);
    close_with(t, 1000, end.status);
    return true;
}

static bool wants_input(const struct terminal *t)
{
    return !t->is_typing && !t->is_peer_closed && t->out.len < PONGS_FULL && t->in.len == 0;
}

static void pump(struct terminal *t)
{
    while (t->ex && !t->is_over) {
        if (t->out.len > 0) {
            size_t n = http_exchange_write(t->ex, buf_slice(&t->out));

            buf_consume(&t->out, n);
            if (n > 0)
                t->progress_at = uv_now(t->envd->loop);
            if (t->out.len > 0)
                break; /* on writable again */
        }
        if (t->is_closing && t->is_peer_closed) {
            t->is_over = true;
            http_exchange_end(t->ex);
            break;
        }
        if (t->is_closing || !encode_next(t)) {
            buf_done(&t->out); /* an idle terminal holds no buffer */
            break;
        }
    }
    if (t->ex)
        http_exchange_read(t->ex, t->is_over || wants_input(t));
}

static void on_more(struct command_reader *r)
{
    struct terminal *t = container_of(r, struct terminal, reader);

    if (t->out.len == 0)
        pump(t);
}

static void on_tick(struct command_reader *r, uint64_t now_ms)
{
    struct terminal *t = container_of(r, struct terminal, reader);

    if (t->out.len > 0 && now_ms - t->progress_at > COMMAND_STALL_MS)
        abort_connection(t);
}

static void on_ping_timer(uv_timer_t *timer)
{
    struct terminal *t = timer->data;

    if (t->out.len == 0 && !ws_frame_encode(&t->out, WS_SERVER, WS_PING, NULL, slice_of(NULL, 0)))
        pump(t);
}

/* --- the shell ---------------------------------------------------------------------------------- */

static void feed(struct terminal *t);

static void on_typed(void *user, const struct abx_err *err)
{
    struct terminal *t = user;

    t->is_typing = false;
    buf_done(&t->typed);
    if (!t->ex) {
        release(t);
        return;
    }
    /* An error means that the shell has gone: its end is on the way. */
    feed(t);
    pump(t);
}

/* Hands `typed` to the shell; what it cannot take any more is void, as its end will tell. */
static void type(struct terminal *t)
{
    if (t->typed.len == 0)
        return;
    t->is_typing =
        t->command && !input_write(&t->command->input, buf_slice(&t->typed), on_typed, t, NULL);
    if (!t->is_typing)
        buf_done(&t->typed);
}

static void on_started(void *user, struct command *c, const struct abx_err *err)
{
    struct terminal *t = user;
    uint64_t dropped;

    t->is_starting = false;
    if (!t->ex || t->is_closing) {
        if (c)
            command_hang_up(c);
        release(t);
        return;
    }
    if (!c) {
        close_with(t, CLOSE_INTERNAL, err->msg);
        pump(t);
        return;
    }
    t->command = c;
    t->reader.on_more = on_more;
    t->reader.on_tick = on_tick;
    command_attach(c, &t->reader, &dropped);
    (void)uv_timer_start(&t->timer, on_ping_timer, TERMINAL_PING_MS, TERMINAL_PING_MS);
    (void)command_resize(c, t->cols, t->rows, NULL); /* it may have changed meanwhile */
    type(t);
    feed(t);
    pump(t);
}

/* The same as a client's Start with a terminal would have. */
static Process__StartRequest *request_make(const struct terminal *t)
{
    ProtobufCMessage *m = NULL;
    char json[320];

    (void)snprintf(json, sizeof(json),
                   "{\"process\":{\"cmd\":\"/bin/bash\",\"args\":[\"-i\",\"-l\"],\"envs\":"
                   "{\"TERM\":\"xterm-256color\",\"LANG\":\"C.UTF-8\",\"LC_ALL\":\"C.UTF-8\"}},"
                   "\"tag\":\"" COMMAND_TERMINAL_TAG
                   "\",\"pty\":{\"size\":{\"cols\":%u,\"rows\":%u}}}",
                   t->cols, t->rows);
    if (rpc_json_decode(&process__start_request__descriptor, slice_str(json), &m, NULL))
        return NULL;
    return (Process__StartRequest *)m;
}

static int start(struct terminal *t, Process__StartRequest *req, struct abx_err *err)
{
    char *argv[] = { req->process->cmd, req->process->args[0], req->process->args[1], NULL };
    struct command_opts opts = { .request = req, .user = &t->user, .argv = argv };
    _cleanup_(environment_freep) char **envp = NULL;
    char cwd[PATH_MAX];
    int r = guest_path(&t->user, t->envd->id->default_workdir, "", cwd, err);

    if (r == 0)
        r = environment_make(t->envd->id, &t->user, req->process, &envp, err);
    if (r < 0)
        return r;
    opts.cwd = cwd;
    opts.envp = envp;
    return command_start(t->envd->commands, &opts, on_started, t, err);
}

static void shell_start(struct terminal *t)
{
    struct abx_err err = { 0 };
    Process__StartRequest *req;

    if (t->command || t->is_starting || t->is_closing)
        return;
    (void)uv_timer_stop(&t->timer);
    req = request_make(t);
    if (!req || start(t, req, &err) < 0) {
        if (req)
            rpc_message_free(&req->base);
        close_with(t, CLOSE_INTERNAL, req ? err.msg : "out of memory");
        return;
    }
    t->is_starting = true;
}

static void on_first_timer(uv_timer_t *timer)
{
    struct terminal *t = timer->data;

    shell_start(t);
    pump(t);
}

/* --- in ----------------------------------------------------------------------------------------- */

/* A resize message: true, and the size is set or the terminal closed. */
static bool take_resize(struct terminal *t, struct slice text)
{
    ProtobufCMessage *m = NULL;
    const Process__PTY__Size *size;
    struct slice type;

    if (text.n == 0 || text.p[0] != '{' || !json_scan_member(text, 4, 64, "type", &type, NULL) ||
        !slice_eq_str(type, "resize"))
        return false;
    if (rpc_json_decode(&process__pty__size__descriptor, text, &m, NULL) == 0) {
        size = (const Process__PTY__Size *)m;
        if (size->cols <= UINT16_MAX && size->rows <= UINT16_MAX) {
            t->cols = (uint16_t)size->cols;
            t->rows = (uint16_t)size->rows;
            rpc_message_free(m);
            if (t->command)
                (void)command_resize(t->command, t->cols, t->rows, NULL); /* it may have ended */
            return true;
        }
        rpc_message_free(m);
    }
    close_with(t, CLOSE_POLICY, "resize: cols and rows are numbers from 0 to 65535");
    return true;
}

static void take_message(struct terminal *t, const struct ws_message *m)
{
    if (m->opcode != WS_TEXT || !take_resize(t, m->data)) {
        if (buf_append_slice(&t->typed, m->data)) {
            close_with(t, CLOSE_INTERNAL, "out of memory");
            return;
        }
    }
    shell_start(t);
    if (!t->is_starting)
        type(t);
}

static void take_control(struct terminal *t, const struct ws_message *m)
{
    if (m->opcode == WS_PING && !t->is_closing &&
        ws_frame_encode(&t->out, WS_SERVER, WS_PONG, NULL, m->data))
        abort_connection(t);
    if (m->opcode != WS_CLOSE)
        return;
    t->is_peer_closed = true;
    close_with(t, m->close_code, "");
}

/* Decodes what has come as long as the shell takes it. */
static void feed(struct terminal *t)
{
    while (t->ex && !t->is_typing && !t->is_starting && !t->is_peer_closed) {
        struct slice in = buf_slice(&t->in);
        struct ws_message m;
        enum ws_event ev = ws_decoder_next(&t->decoder, &in, &m);

        buf_consume(&t->in, t->in.len - in.n);
        if (ev == WS_NEED_MORE)
            break;
        if (ev == WS_CONTROL) {
            take_control(t, &m);
        } else if (ev == WS_MESSAGE && !t->is_closing) {
            take_message(t, &m);
        } else if (ev == WS_ERROR) {
            t->is_peer_closed = true; /* nothing more is understood */
            close_with(t, m.close_code, m.reason);
        }
    }
    if (t->in.len == 0)
        buf_done(&t->in);
}

static void on_body(void *user, struct http_exchange *ex, struct slice data, bool is_end)
{
    struct terminal *t = user;

    if (t->is_over)
        return;
    t->is_peer_closed = t->is_peer_closed || is_end;
    if (buf_append_slice(&t->in, data)) {
        abort_connection(t);
        return;
    }
    if (is_end)
        close_with(t, CLOSE_GOING_AWAY, "");
    feed(t);
    pump(t);
}

static void on_writable(void *user, struct http_exchange *ex)
{
    pump(user);
}

static const struct http_exchange_events events = {
    .on_body = on_body,
    .on_writable = on_writable,
    .on_close = on_close,
};

/* --- handshake ---------------------------------------------------------------------------------- */

static bool accept_make(struct slice key, struct buf *to)
{
    uint8_t digest[SHA1_DIGEST_SIZE];
    struct sha1_ctx hash;

    sha1_init(&hash);
    sha1_update(&hash, key.n, key.p);
    sha1_update(&hash, sizeof(GUID) - 1, (const uint8_t *)GUID);
    sha1_digest(&hash, sizeof(digest), digest);
    return base64_encode(to, slice_of(digest, sizeof(digest)), true) == BUF_OK;
}

static void refuse(struct http_exchange *ex, const char *why)
{
    const struct http1_field version = { SLICE_LIT("Sec-WebSocket-Version"), SLICE_LIT("13") };

    envd_error_with(ex, 400, why, &version, 1);
}

static struct terminal *terminal_new(struct envd *e, struct http_exchange *ex,
                                     const struct user *user)
{
    struct terminal *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->envd = e;
    t->ex = ex;
    t->user = *user;
    t->cols = 80;
    t->rows = 24;
    ws_decoder_init(&t->decoder, WS_SERVER, TERMINAL_MESSAGE_MAX);
    buf_init(&t->in, INPUT_MAX);
    buf_init(&t->typed, TERMINAL_MESSAGE_MAX);
    buf_init(&t->out, OUTPUT_MAX);
    (void)uv_timer_init(e->loop, &t->timer);
    t->timer.data = t;
    t->has_timer = true;
    t->progress_at = uv_now(e->loop);
    return t;
}

void terminal_handle(struct envd *e, struct http_exchange *ex)
{
    const struct http1_head *head = http_exchange_head(ex);
    struct slice key = http1_head_value(head, "sec-websocket-key");
    _cleanup_(buf_done) struct buf accept = BUF_INIT(64), nonce = BUF_INIT(64);
    struct http1_field field = { .name = SLICE_LIT("Sec-WebSocket-Accept") };
    struct abx_err err = { 0 };
    struct terminal *t;
    struct user user;

    if (!slice_eq_str(head->method, "GET")) {
        envd_error(ex, 405, "method not allowed");
        return;
    }
    if (!head->is_upgrade || !slice_ieq_str(http1_head_value(head, "upgrade"), "websocket") ||
        !slice_eq_str(http1_head_value(head, "sec-websocket-version"), "13")) {
        refuse(ex, "a WebSocket handshake of version 13 is expected");
        return;
    }
    if (key.n != KEY_BYTES || !base64_decode(&nonce, key) || nonce.len != 16) {
        refuse(ex, "malformed Sec-WebSocket-Key");
        return;
    }
    if (envd_user(e, head, &user, &err) < 0) {
        envd_error_from(ex, &err);
        return;
    }
    t = accept_make(key, &accept) ? terminal_new(e, ex, &user) : NULL;
    if (!t) {
        envd_error(ex, 503, "out of memory");
        return;
    }
    field.value = buf_slice(&accept);
    http_exchange_begin(ex, &events, t);
    if (http_exchange_upgrade(ex, &field, 1, &err) < 0) {
        http_exchange_abort(ex); /* on_close frees */
        return;
    }
    (void)uv_timer_start(&t->timer, on_first_timer, TERMINAL_FIRST_MS, 0);
    http_exchange_read(ex, true);
}
