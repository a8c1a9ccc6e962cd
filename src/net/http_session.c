/* http_session.c - the pump of one client connection. See http_session.h.
 *
 * Input goes parser -> exchange while the handler reads; what was read beyond that waits in `in`
 * (one read at most, then reading stops). While a response is being made the socket is still read
 * into `in`, so that the client's close is noticed and pipelined requests are kept.
 */
#include "net/http_session.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#define READS_PER_EVENT 4
#define STEPS_PER_EVENT 16

static void exchange_close(struct session *s, const struct abx_err *why)
{
    struct http_exchange *ex = s->ex;

    if (!ex)
        return;
    s->ex = NULL;
    exchange_over(ex, why);
}

void session_fail(struct session *s, const struct abx_err *why, bool reset)
{
    if (s->sock.is_closed)
        return;
    server_forget(s);
    sock_close(&s->sock, reset);
    if (s->protocol)
        s->protocol->close(s, why);
    exchange_close(s, why);
}

void session_gone(struct session *s, int sys)
{
    struct abx_err why = { 0 };

    (void)err_set(&why, ABX_CANCELED, "the client went away");
    why.sys = sys;
    session_fail(s, &why, true);
}

void session_close(struct session *s)
{
    static const struct abx_err none = { 0 };

    session_fail(s, &none, false);
}

/* Everything is sent: closes our side and reads on for a while, because closing with unread input
 * would reset the connection and may destroy the answer on its way. */
static void linger_start(struct session *s)
{
    s->state = SESSION_LINGER;
    s->progress_at = sock_now(&s->sock);
    if (s->is_eof)
        session_close(s);
}

static void linger_shut(struct session *s)
{
    if (s->sock.out.len == 0)
        sock_shutdown(&s->sock);
}

void session_linger(struct session *s)
{
    linger_start(s);
    if (!s->sock.is_closed)
        linger_shut(s);
}

/* Ends the connection after an answer of our own, which no handler sees. */
static void session_refuse(struct session *s, int status, const char *text,
                           const struct abx_err *why)
{
    _cleanup_(buf_done) struct buf body = BUF_INIT(512);
    struct buf *out = &s->sock.out;
    bool is_responding = s->ex && s->ex->is_responding;

    if (is_responding) {
        session_fail(s, why, true);
        return;
    }
    exchange_close(s, why);
    if (s->sock.is_closed)
        return;
    (void)buf_printf(&body, "{\"code\":%d,\"message\":\"%s\"}", status, text);
    (void)http1_status_line(out, status);
    (void)buf_printf(out,
                     "Date: %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                     "Connection: close\r\n\r\n",
                     server_date(s->server), body.len);
    (void)buf_append_slice(out, buf_slice(&body));
    linger_start(s);
    sock_kick(&s->sock);
}

static void session_bad_request(struct session *s)
{
    enum http1_error error = http1_parser_error(s->parser);
    struct abx_err why = { 0 };

    if (!s->ex && s->state == SESSION_DRAIN) { /* this request has had its answer */
        linger_start(s);
        linger_shut(s);
        return;
    }
    (void)err_set(&why, ABX_INVALID_ARGUMENT, "%s", http1_error_text(error));
    session_refuse(s, http1_error_status(error), http1_error_text(error), &why);
}

static void deliver(struct session *s, struct slice data, bool is_end)
{
    struct http_exchange *ex = s->ex;

    if (!ex) { /* draining */
        s->drain_left -= MIN(s->drain_left, data.n);
        if (s->drain_left == 0)
            linger_start(s);
        return;
    }
    exchange_deliver(ex, data, is_end);
}

static void session_idle(struct session *s)
{
    s->state = SESSION_OPEN;
    server_give_parser(s->server, TAKE_PTR(s->parser));
    sock_shrink(&s->sock);
    s->head_at = 0;
    s->progress_at = sock_now(&s->sock);
    if (s->server->is_stopping)
        linger_start(s);
}

static void session_begin(struct session *s, struct slice *in)
{
    const struct http1_head *head = http1_parser_head(s->parser);
    struct http_exchange *ex = calloc(1, sizeof(*ex));
    struct abx_err why = { 0 };
    struct slice data;

    s->head_at = 0;
    s->has_begun = true;
    if (!ex) {
        (void)err_oom(&why);
        session_refuse(s, 503, "out of memory", &why);
        return;
    }
    s->ex = ex;
    ex->ops = &http1_exchange_ops;
    ex->session = s;
    ex->is_close = !head->keep_alive || s->server->is_stopping;
    ex->wants_continue = head->expects_continue && head->minor > 0;
    if (head->framing == HTTP1_BODY_NONE ||
        (head->framing == HTTP1_BODY_LENGTH && head->content_length == 0)) {
        ex->is_request_done = http1_parser_next(s->parser, in, &data) == HTTP1_END;
        ex->wants_continue = false;
    }
    exchange_begin(s->server, ex);
    if (s->ex != ex || s->sock.is_closed)
        return;
    if (!ex->events && !ex->is_collecting && !ex->is_responding && !ex->is_aborted) {
        (void)err_set(&why, ABX_INTERNAL, "no handler took the request");
        session_refuse(s, 500, "no handler took the request", &why);
    }
}

static bool session_wants_input(const struct session *s)
{
    const struct http_exchange *ex = s->ex;

    if (s->sock.is_closed || s->state == SESSION_LINGER)
        return false;
    if (!ex)
        return true;
    if (!ex->is_reading || ex->is_aborted)
        return false;
    return ex->is_raw || (!ex->is_request_done && !ex->is_ended);
}

/* Does the connection, whose first bytes `in` are, speak another protocol? Then it has taken them. */
enum preface { PREFACE_OTHER, PREFACE_TAKEN, PREFACE_SHORT };

static enum preface session_try_protocol(struct session *s, struct slice *in)
{
    const struct session_protocol *protocol = s->server->opts.protocol;
    struct slice want = protocol ? protocol->preface : (struct slice){ 0 };
    bool is_agreed = s->sock.layer && s->sock.layer->chose_h2;

    if (!protocol || s->has_begun || s->parser || (s->is_secure && !is_agreed))
        return PREFACE_OTHER;
    if (!is_agreed && memcmp(in->p, want.p, MIN(in->n, want.n)) != 0)
        return PREFACE_OTHER;
    if (!is_agreed && in->n < want.n) {
        if (s->is_eof)
            return PREFACE_OTHER;
        s->head_at = s->head_at ? s->head_at : sock_now(&s->sock);
        return PREFACE_SHORT;
    }
    s->head_at = 0;
    s->has_begun = true;
    if (!protocol->start(s)) {
        session_gone(s, ENOMEM);
        return PREFACE_TAKEN;
    }
    s->protocol = protocol;
    protocol->feed(s, *in);
    *in = (struct slice){ 0 };
    return PREFACE_TAKEN;
}

/* Parses from `in` as long as someone wants what comes out. */
static void session_feed(struct session *s, struct slice *in)
{
    if (s->protocol) {
        s->protocol->feed(s, *in);
        *in = (struct slice){ 0 };
        return;
    }
    if (!s->has_begun && in->n > 0 && s->state == SESSION_OPEN &&
        session_try_protocol(s, in) != PREFACE_OTHER)
        return;
    while (session_wants_input(s)) {
        struct slice data = { 0 };

        if (s->ex && s->ex->is_raw) {
            if (in->n == 0)
                return;
            data = *in;
            *in = (struct slice){ 0 };
            deliver(s, data, false);
            return;
        }
        if (!s->parser) {
            if (in->n == 0)
                return;
            s->parser = server_take_parser(s->server);
            if (!s->parser) {
                session_gone(s, ENOMEM);
                return;
            }
        }
        switch (http1_parser_next(s->parser, in, &data)) {
        case HTTP1_NEED_MORE:
            if (!s->ex && s->state == SESSION_OPEN && s->head_at == 0 &&
                !http1_parser_is_idle(s->parser))
                s->head_at = sock_now(&s->sock);
            return;
        case HTTP1_HEAD:
            session_begin(s, in);
            break;
        case HTTP1_DATA:
            deliver(s, data, false);
            break;
        case HTTP1_END:
            if (s->ex) {
                s->ex->is_request_done = true;
                deliver(s, (struct slice){ 0 }, true);
            } else {
                session_idle(s);
            }
            break;
        case HTTP1_UPGRADED: /* raw bytes do not pass the parser */
        case HTTP1_ERROR:
            session_bad_request(s);
            return;
        }
    }
}

static void session_feed_pending(struct session *s)
{
    struct slice in = buf_slice(&s->in);

    session_feed(s, &in);
    if (s->sock.is_closed)
        return;
    buf_consume(&s->in, s->in.len - in.n);
    if (s->in.len == 0 && s->in.mem)
        buf_done(&s->in);
}

static void session_read(struct session *s)
{
    for (int i = 0; i < READS_PER_EVENT && !s->sock.is_closed; i++) {
        struct slice in;
        ssize_t n = sock_read(&s->sock, &in);

        if (n == -EAGAIN)
            return;
        if (n < 0) {
            session_gone(s, (int)-n);
            return;
        }
        if (n == 0) {
            s->is_eof = true;
            s->fin_at = s->fin_at ? s->fin_at : sock_now(&s->sock);
            return;
        }
        if (s->state == SESSION_LINGER)
            continue;
        if (s->state == SESSION_OPEN)
            s->progress_at = sock_now(&s->sock);
        if (s->in.len == 0)
            session_feed(s, &in);
        if (s->sock.is_closed)
            return;
        if (in.n > 0 && buf_append_slice(&s->in, in) != BUF_OK) {
            session_gone(s, ENOMEM);
            return;
        }
        if ((size_t)n < SOCK_READ_MAX || s->in.len > 0)
            return;
    }
}

/* The client's side is closed and all its bytes are used up. */
static void session_eof(struct session *s)
{
    struct http_exchange *ex = s->ex;

    if (!ex) {
        session_close(s);
    } else if (ex->is_raw) {
        if (!ex->is_reading || ex->is_raw_eof)
            return;
        ex->is_raw_eof = true;
        deliver(s, (struct slice){ 0 }, true);
        sock_kick(&s->sock);
    } else if (!ex->is_request_done && ex->is_reading) {
        session_gone(s, 0);
    }
}

/* The response of the exchange is with the kernel. */
static void session_finish(struct session *s)
{
    static const struct abx_err none = { 0 };
    struct http_exchange *ex = s->ex;
    bool is_close = ex->is_close || s->server->is_stopping || s->is_eof;
    bool is_done = ex->is_request_done;

    if (ex->is_raw) {
        if (!ex->is_shut)
            sock_shutdown(&s->sock);
        ex->is_shut = true;
        if (!ex->is_raw_eof)
            return;
        exchange_close(s, &none);
        session_close(s);
        return;
    }
    /* A client that still waits for 100 Continue may or may not send its body now. */
    if (!is_done && ex->wants_continue)
        is_close = true;
    exchange_close(s, &none);
    if (s->sock.is_closed)
        return;
    if (is_close) {
        linger_start(s);
        linger_shut(s);
    } else if (is_done) {
        session_idle(s);
    } else {
        const struct http1_head *head = http1_parser_head(s->parser);

        s->state = SESSION_DRAIN;
        s->drain_left = SESSION_DRAIN_MAX;
        s->progress_at = sock_now(&s->sock);
        if (head->framing == HTTP1_BODY_LENGTH && head->content_length > SESSION_DRAIN_MAX) {
            linger_start(s);
            linger_shut(s);
        }
    }
    sock_kick(&s->sock);
}

static void session_step(struct session *s)
{
    struct abx_err why = { 0 };

    sock_flush(&s->sock);
    if (s->sock.error) {
        session_gone(s, s->sock.error);
        return;
    }
    if (s->ex && s->ex->is_aborted) {
        (void)err_set(&why, ABX_ABORTED, "the response was aborted");
        session_fail(s, &why, true);
        return;
    }
    if (s->ex)
        exchange_check_collect(s->ex);
    if (s->ex && s->ex->is_reading && s->ex->is_request_done && !s->ex->is_raw &&
        !s->ex->is_end_delivered)
        deliver(s, (struct slice){ 0 }, true);
    if (s->sock.is_closed)
        return;
    session_feed_pending(s);
    if (!s->sock.is_closed && s->is_eof && s->in.len == 0 && s->state != SESSION_LINGER)
        session_eof(s);
    if (s->sock.is_closed)
        return;
    if (s->ex && s->ex->is_ended && s->sock.out.len == 0)
        session_finish(s);
    else if (s->ex)
        exchange_call_writable(s->ex);
    else if (s->state == SESSION_LINGER && s->sock.out.len == 0)
        linger_shut(s);
    else if (s->server->is_stopping && s->state == SESSION_OPEN)
        linger_start(s);
}

/* What is being waited for, as a loop time; 0 for nothing. */
static uint64_t session_deadline(const struct session *s)
{
    const struct http_server_opts *opts = &s->server->opts;
    const struct http_exchange *ex = s->ex;
    uint64_t at = UINT64_MAX;

    if (s->state == SESSION_LINGER)
        return s->progress_at + SESSION_LINGER_MS;
    if (s->state == SESSION_DRAIN)
        return s->progress_at + SESSION_DRAIN_MS;
    if (!ex && s->head_at)
        return s->head_at + opts->header_timeout_ms;
    if (!ex && s->sock.layer && !s->sock.layer->is_ready)
        return s->progress_at + opts->header_timeout_ms;
    if (!ex)
        return s->progress_at + opts->idle_timeout_ms;
    if (s->sock.out.len > 0 || ex->is_shut || (ex->is_raw && s->is_eof))
        at = s->progress_at + opts->write_timeout_ms;
    else if (ex->is_raw)
        at = s->progress_at + opts->idle_timeout_ms;
    if (ex->is_reading && !ex->is_request_done && !ex->is_raw)
        at = MIN(at, s->progress_at + opts->body_timeout_ms);
    if (ex->is_request_done && !ex->is_raw && s->is_eof)
        at = MIN(at, s->fin_at + opts->fin_grace_ms);
    return at == UINT64_MAX ? 0 : at;
}

static void session_timeout(struct session *s)
{
    const struct http_exchange *ex = s->ex;
    struct abx_err why = { 0 };
    bool is_waiting_for_body = ex && ex->is_reading && !ex->is_request_done && !ex->is_raw;

    if (session_deadline(s) == 0 || session_deadline(s) > sock_now(&s->sock))
        return;
    if (s->state != SESSION_OPEN || (!ex && !s->head_at)) {
        session_close(s);
        return;
    }
    if (ex && ex->is_request_done && !ex->is_raw && s->is_eof) {
        session_gone(s, 0);
        return;
    }
    (void)err_set(&why, ABX_DEADLINE_EXCEEDED, "the client was too slow");
    if (!ex || (is_waiting_for_body && s->sock.out.len == 0))
        session_refuse(s, 408, "the request did not arrive in time", &why);
    else
        session_fail(s, &why, true);
}

/* The peer's close as seen without reading. POLLHUP: both directions are closed, so nobody is left
 * to answer (always so when a unix socket's peer closes). */
static void session_hangup(struct session *s)
{
    struct pollfd fd = { .fd = s->sock.fd };

    if (poll(&fd, 1, 0) > 0 && (fd.revents & (POLLHUP | POLLERR))) {
        session_gone(s, ECONNRESET);
        return;
    }
    if (s->fin_at == 0)
        s->fin_at = sock_now(&s->sock);
}

/* Whether to read from the socket now. */
static bool session_is_readable(const struct session *s)
{
    if (s->is_eof)
        return false;
    if (s->state == SESSION_LINGER)
        return true;
    if (s->in.len > 0 && session_wants_input(s))
        return true; /* the parser wants more than `in` has */
    if (s->in.len >= SESSION_IN_MAX)
        return false;
    return session_wants_input(s) || (s->ex && s->ex->is_request_done && !s->ex->is_raw);
}

static void session_arm(struct session *s)
{
    uint64_t now = sock_now(&s->sock), at;
    unsigned watch = 0;

    if (s->sock.sent != s->sent_seen || s->sock.is_blocked != s->was_blocked) {
        if (s->state == SESSION_OPEN)
            s->progress_at = now;
        s->sent_seen = s->sock.sent;
        s->was_blocked = s->sock.is_blocked;
    }
    if (s->ex && s->ex->is_raw) /* it may hold still for hours */
        sock_shrink(&s->sock);
    if (session_is_readable(s))
        watch |= SOCK_READABLE;
    else if (s->fin_at == 0)
        watch |= SOCK_HANGUP;
    sock_watch(&s->sock, watch);
    at = session_deadline(s);
    if (at == 0)
        sock_clear_deadline(&s->sock);
    else
        sock_set_deadline(&s->sock, at, 0);
}

void session_on_event(struct sock *sock, unsigned what)
{
    struct session *s = container_of(sock, struct session, sock);

    if ((what & SOCK_HANGUP) && !(what & SOCK_READABLE))
        session_hangup(s);
    if ((what & SOCK_DEADLINE) && !sock->is_closed)
        (s->protocol ? s->protocol->timeout : session_timeout)(s);
    if ((what & SOCK_READABLE) && !sock->is_closed && s->server->opts.before_read)
        s->server->opts.before_read(s->server->opts.user);
    if ((what & SOCK_READABLE) && !sock->is_closed)
        session_read(s);
    for (int i = 0; i < STEPS_PER_EVENT && !sock->is_closed; i++) {
        sock->is_kicked = false;
        (s->protocol ? s->protocol->step : session_step)(s);
        if (!sock->is_kicked)
            break;
    }
    if (!sock->is_closed)
        (s->protocol ? s->protocol->arm : session_arm)(s);
}
