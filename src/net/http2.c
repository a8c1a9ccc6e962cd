/* http2.c - see http2.h.
 *
 * Bytes go sock -> h2_conn -> exchanges and back. wire/h2 calls back from inside of h2_conn_feed; only
 * heads and ends of streams reach handlers from there, bodies are handed on in http2_step, like
 * everything else that may call a handler.
 */
#include "net/http2.h"

#include "wire/h2.h"

#define PIECE_MAX (64u << 10)    /* of a body for one call */
#define OUT_MAX (128u << 10)     /* queued on the socket, beyond it what comes is left unread */
#define OUT_FILL_MAX (64u << 10) /* written at a time */
#define FILLS_PER_STEP 16
#define EXCHANGES_FACTOR 2u /* exchanges of all connections, in connections */

struct exchange2 {
    struct http_exchange ex;
    struct exchange2 *prev, *next;
    struct h2_stream *stream;
    size_t queued_seen; /* at ex.moved_at */
    bool is_reset;
};

struct http2 {
    struct h2_conn *conn;
    struct exchange2 *exchanges;
    size_t n;
    uint64_t head_at; /* 0, or when a head began to come that is not whole */
    bool is_broken;   /* nghttp2 has given up: what is queued is sent, then it ends */
    bool is_shutting;
};

static struct exchange2 *of(const struct http_exchange *ex)
{
    return (struct exchange2 *)(uintptr_t)ex;
}

static struct http2 *state_of(const struct session *s)
{
    return s->protocol_state;
}

/* --- what handlers call ------------------------------------------------------------------------ */

static const struct http1_head *h2_head(const struct http_exchange *ex)
{
    return h2_stream_head(of(ex)->stream);
}

static void h2_go_on(struct http_exchange *ex)
{
    (void)h2_stream_respond(of(ex)->stream, 100, NULL, 0, 0, false);
}

static int h2_respond(struct http_exchange *ex, int status, const struct http1_field *fields,
                      size_t n_fields, uint64_t length, struct abx_err *err)
{
    struct http1_field all[2 * HTTP1_FIELDS_MAX + 1];
    bool has_date = false;
    size_t n = 0;

    if (n_fields >= ARRAY_SIZE(all))
        return err_set(err, ABX_INVALID_ARGUMENT, "more than %zu response fields",
                       ARRAY_SIZE(all) - 1);
    for (size_t i = 0; i < n_fields; i++) {
        if (exchange_owns_field(fields[i].name))
            return err_set(err, ABX_INVALID_ARGUMENT, "response field '%.*s' is the server's",
                           (int)fields[i].name.n, (const char *)fields[i].name.p);
        has_date = has_date || slice_ieq_str(fields[i].name, "date");
        all[n++] = fields[i];
    }
    if (!has_date)
        all[n++] =
            (struct http1_field){ SLICE_LIT("date"), slice_str(server_date(ex->session->server)) };
    switch (
        h2_stream_respond(of(ex)->stream, status, all, n, length, !ex->is_bodyless && length > 0)) {
    case BUF_OK:
        break;
    case BUF_LIMIT:
        return err_set(err, ABX_INVALID_ARGUMENT, "a response field is malformed");
    case BUF_OOM:
        return err_oom(err);
    }
    ex->moved_at = sock_now(&ex->session->sock);
    return 0;
}

static size_t h2_queued(const struct http_exchange *ex)
{
    return h2_stream_queued(of(ex)->stream);
}

static void h2_write(struct http_exchange *ex, struct slice s)
{
    struct exchange2 *x = of(ex);

    if (h2_stream_queued(x->stream) == 0)
        ex->moved_at = sock_now(&ex->session->sock);
    if (h2_stream_write(x->stream, s) != BUF_OK)
        http_exchange_abort(ex);
    x->queued_seen = h2_stream_queued(x->stream);
}

static void h2_end(struct http_exchange *ex)
{
    if (h2_stream_queued(of(ex)->stream) == 0)
        ex->moved_at = sock_now(&ex->session->sock);
    h2_stream_end(of(ex)->stream);
}

static int h2_upgrade(struct http_exchange *ex, const struct http1_field *fields, size_t n_fields,
                      struct abx_err *err)
{
    (void)ex;
    (void)fields;
    (void)n_fields;
    return err_set(err, ABX_FAILED_PRECONDITION, "HTTP/2 has no upgrades");
}

static const struct exchange_ops http2_exchange_ops = { h2_head,  h2_go_on, h2_respond, h2_queued,
                                                        h2_write, h2_end,   h2_upgrade };

/* --- from wire/h2 ------------------------------------------------------------------------------ */

static void forget(struct session *s, struct exchange2 *x)
{
    struct http2 *h = state_of(s);

    if (x->prev)
        x->prev->next = x->next;
    else
        h->exchanges = x->next;
    if (x->next)
        x->next->prev = x->prev;
    h->n--;
    s->server->n_streams--;
}

static struct exchange2 *add_exchange(struct session *s, struct h2_stream *st)
{
    struct http2 *h = state_of(s);
    struct exchange2 *x = calloc(1, sizeof(*x));

    if (!x)
        return NULL;
    x->stream = st;
    x->ex.ops = &http2_exchange_ops;
    x->ex.session = s;
    x->ex.moved_at = sock_now(&s->sock);
    x->next = h->exchanges;
    if (x->next)
        x->next->prev = x;
    h->exchanges = x;
    h->n++;
    s->server->n_streams++;
    h2_stream_set_user(st, x);
    return x;
}

static void on_request(void *user, struct h2_stream *st)
{
    struct session *s = user;
    const struct http_server_opts *opts = &s->server->opts;
    const struct http1_head *head = h2_stream_head(st);
    enum http1_error error = h2_stream_error(st);
    struct exchange2 *x = NULL;

    if (s->server->n_streams < opts->max_connections * EXCHANGES_FACTOR)
        x = add_exchange(s, st);
    if (!x) {
        h2_stream_reset(st, H2_REFUSED_STREAM);
        return;
    }
    if (error) {
        exchange_refuse(&x->ex, http1_error_status(error), http1_error_text(error));
        return;
    }
    x->ex.is_request_done = h2_stream_is_input_done(st) || head->framing == HTTP1_BODY_NONE ||
                            (head->framing == HTTP1_BODY_LENGTH && head->content_length == 0);
    x->ex.wants_continue = head->expects_continue && !x->ex.is_request_done;
    exchange_begin(s->server, &x->ex);
    if (!x->ex.events && !x->ex.is_collecting && !x->ex.is_responding && !x->ex.is_aborted)
        exchange_refuse(&x->ex, 500, "no handler took the request");
}

static void on_input(void *user, struct h2_stream *st)
{
    struct session *s = user;
    struct exchange2 *x = h2_stream_user(st);

    if (!x)
        return;
    x->ex.moved_at = sock_now(&s->sock);
    if (h2_stream_is_input_done(st))
        x->ex.is_request_done = true;
}

static void on_stream_close(void *user, struct h2_stream *st, bool is_sent)
{
    struct session *s = user;
    struct exchange2 *x = h2_stream_user(st);
    struct abx_err why = { 0 };

    if (!x)
        return;
    forget(s, x);
    if (x->ex.is_aborted)
        (void)err_set(&why, ABX_ABORTED, "the response was aborted");
    else if (!is_sent)
        (void)err_set(&why, ABX_CANCELED, "the client dropped the request");
    exchange_over(&x->ex, &why);
}

static const struct h2_events events = { on_request, on_input, on_stream_close };

/* --- the pump ---------------------------------------------------------------------------------- */

static bool http2_start(struct session *s)
{
    struct http2 *h = calloc(1, sizeof(*h));

    if (!h)
        return false;
    h->conn = h2_conn_new(&events, s);
    if (!h->conn) {
        free(h);
        return false;
    }
    s->protocol_state = h;
    return true;
}

static void http2_feed(struct session *s, struct slice in)
{
    struct http2 *h = state_of(s);

    if (h->is_broken)
        return;
    h->is_broken = !h2_conn_feed(h->conn, in);
    if (!h2_conn_is_in_head(h->conn))
        h->head_at = 0;
    else if (h->head_at == 0)
        h->head_at = sock_now(&s->sock);
    sock_kick(&s->sock);
}

/* Body bytes and ends to a handler that wants them. The exchange itself ends only in wire/h2. */
static void deliver(struct exchange2 *x)
{
    struct http_exchange *ex = &x->ex;

    exchange_check_collect(ex);
    while (ex->is_reading && !ex->is_aborted && !ex->is_ended) {
        struct slice in = h2_stream_input(x->stream);

        if (in.n == 0)
            break;
        in.n = MIN(in.n, (size_t)PIECE_MAX);
        exchange_deliver(ex, in, false);
        h2_stream_take(x->stream, in.n);
    }
    if (ex->is_reading && !ex->is_aborted && !ex->is_ended && ex->is_request_done &&
        !ex->is_end_delivered && h2_stream_input(x->stream).n == 0)
        exchange_deliver(ex, (struct slice){ 0 }, true);
}

/* Handlers may end anything, but streams end in h2_conn_send and _feed alone: the list stays. */
static void serve_exchanges(struct session *s)
{
    struct abx_err why = { 0 };

    for (struct exchange2 *x = state_of(s)->exchanges; x && !s->sock.is_closed; x = x->next) {
        if (!x->ex.is_aborted)
            deliver(x);
        if (!x->ex.is_aborted || x->is_reset)
            continue;
        x->is_reset = x->ex.is_ended = true;
        (void)err_set(&why, ABX_ABORTED, "the response was aborted");
        exchange_detach(&x->ex, &why); /* the stream lasts till the socket takes its reset */
        if (s->sock.is_closed)
            return;
        h2_stream_reset(x->stream, H2_INTERNAL_ERROR);
    }
}

static void note_progress(struct session *s)
{
    for (struct exchange2 *x = state_of(s)->exchanges; x && !s->sock.is_closed; x = x->next) {
        size_t queued = h2_stream_queued(x->stream);

        if (queued < x->queued_seen)
            x->ex.moved_at = sock_now(&s->sock);
        x->queued_seen = queued;
        if (!x->ex.is_ended && !x->ex.is_aborted)
            exchange_call_writable(&x->ex);
    }
}

/* What there is to be sent, as far as the socket takes it. */
static void fill(struct session *s)
{
    struct http2 *h = state_of(s);

    for (int i = 0; i < FILLS_PER_STEP && !s->sock.is_closed; i++) {
        if (s->sock.out.len < OUT_FILL_MAX && !h2_conn_send(h->conn, &s->sock.out, OUT_FILL_MAX))
            h->is_broken = true;
        if (s->sock.out.len == 0)
            return;
        sock_flush(&s->sock);
        if (s->sock.is_blocked || s->sock.error)
            return;
    }
    sock_kick(&s->sock);
}

/* Its own end: everything is sent, or nothing can be any more. */
static void http2_end(struct session *s)
{
    static const struct abx_err none = { 0 };
    struct http2 *h = state_of(s);
    const struct session_protocol *protocol = s->protocol;

    if (h->exchanges) {
        struct abx_err why = { 0 };

        (void)err_set(&why, ABX_CANCELED, "the client broke the connection's rules");
        protocol->close(s, &why);
    } else {
        protocol->close(s, &none);
    }
    protocol->free(s);
    s->protocol = NULL;
    session_linger(s);
}

static void http2_step(struct session *s)
{
    struct http2 *h = state_of(s);

    if (s->is_eof && !s->sock.is_closed) {
        session_gone(s, 0);
        return;
    }
    if (s->server->is_stopping && !h->is_shutting) {
        h->is_shutting = true;
        h2_conn_shutdown(h->conn);
    }
    serve_exchanges(s);
    if (s->sock.is_closed)
        return;
    fill(s);
    if (s->sock.error) {
        session_gone(s, s->sock.error);
        return;
    }
    note_progress(s);
    if (s->sock.is_closed || s->sock.out.len > 0)
        return;
    if (h->is_broken || h2_conn_is_done(h->conn))
        http2_end(s);
}

/* When an exchange has been waited for long enough; 0 = it is not waited for. */
static uint64_t exchange_deadline(const struct session *s, const struct exchange2 *x)
{
    const struct http_server_opts *opts = &s->server->opts;

    if (x->is_reset) /* http2_deadline's: it waits for the socket alone */
        return 0;
    /* The end of a response may wait for the client's windows by itself. */
    if (h2_stream_queued(x->stream) > 0 || x->ex.is_ended)
        return x->ex.moved_at + opts->write_timeout_ms;
    if (x->ex.is_reading && !x->ex.is_request_done)
        return x->ex.moved_at + opts->body_timeout_ms;
    return 0;
}

static uint64_t http2_deadline(const struct session *s)
{
    const struct http_server_opts *opts = &s->server->opts;
    const struct http2 *h = state_of(s);
    uint64_t at = UINT64_MAX;

    if (s->sock.out.len > 0)
        at = s->progress_at + opts->write_timeout_ms;
    if (h->head_at)
        at = MIN(at, h->head_at + opts->header_timeout_ms);
    if (!h->exchanges)
        at = MIN(at, s->progress_at + (h->is_shutting ? SESSION_DRAIN_MS : opts->idle_timeout_ms));
    for (const struct exchange2 *x = h->exchanges; x; x = x->next) {
        uint64_t due = exchange_deadline(s, x);

        if (due)
            at = MIN(at, due);
    }
    return at;
}

static void http2_timeout(struct session *s)
{
    struct http2 *h = state_of(s);
    uint64_t now = sock_now(&s->sock);
    struct abx_err why = { 0 };

    (void)err_set(&why, ABX_DEADLINE_EXCEEDED, "the client was too slow");
    if ((s->sock.out.len > 0 && now >= s->progress_at + s->server->opts.write_timeout_ms) ||
        (h->head_at && now >= h->head_at + s->server->opts.header_timeout_ms) ||
        (h->is_shutting && !h->exchanges)) {
        session_fail(s, &why, true);
        return;
    }
    for (struct exchange2 *x = h->exchanges; x; x = x->next) {
        uint64_t due = exchange_deadline(s, x);

        if (!due || now < due)
            continue;
        x->ex.moved_at = now;
        if (x->ex.is_responding) {
            http_exchange_abort(&x->ex);
            continue;
        }
        /* The client's window may hold the answer up, and the handler's own must not follow. */
        exchange_detach(&x->ex, &why);
        if (s->sock.is_closed)
            return;
        exchange_refuse(&x->ex, 408, "the request did not arrive in time");
    }
    if (!h->exchanges && !h->is_shutting &&
        now >= s->progress_at + s->server->opts.idle_timeout_ms) {
        h->is_shutting = true;
        s->progress_at = now;
        h2_conn_shutdown(h->conn);
        sock_kick(&s->sock);
    }
}

static void http2_arm(struct session *s)
{
    uint64_t at;

    if (s->sock.sent != s->sent_seen || s->sock.is_blocked != s->was_blocked) {
        s->progress_at = sock_now(&s->sock);
        s->sent_seen = s->sock.sent;
        s->was_blocked = s->sock.is_blocked;
    }
    if (!s->is_eof && s->sock.out.len < OUT_MAX && !state_of(s)->is_broken)
        sock_watch(&s->sock, SOCK_READABLE);
    else
        sock_watch(&s->sock, s->fin_at ? 0 : SOCK_HANGUP);
    at = http2_deadline(s);
    if (at == UINT64_MAX)
        sock_clear_deadline(&s->sock);
    else
        sock_set_deadline(&s->sock, at, 0);
}

static void http2_close(struct session *s, const struct abx_err *why)
{
    struct http2 *h = state_of(s);

    while (h->exchanges) {
        struct exchange2 *x = h->exchanges;

        forget(s, x);
        h2_stream_set_user(x->stream, NULL);
        exchange_over(&x->ex, why);
    }
}

static void http2_free(struct session *s)
{
    struct http2 *h = state_of(s);

    s->protocol_state = NULL;
    h2_conn_free(h->conn);
    free(h);
}

const struct session_protocol http2_protocol = {
    .preface = SLICE_LIT(H2_PREFACE),
    .start = http2_start,
    .feed = http2_feed,
    .step = http2_step,
    .timeout = http2_timeout,
    .arm = http2_arm,
    .close = http2_close,
    .free = http2_free,
};
