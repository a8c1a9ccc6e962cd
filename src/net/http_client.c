/* http_client.c - one client connection. See http_client.h.
 *
 * The same shape as the server's session: calls change state and kick, the pump (conn_on_event) does
 * everything else and is the only place that calls the user back. A connection between requests owns
 * no parser and no buffer.
 */
#include "net/http_client.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "net/sock.h"

#define DEFAULT_CONNECT_MS 5000u
#define READS_PER_EVENT 4
#define STEPS_PER_EVENT 16
#define WRITE_NOW_MIN 8192u
#define PARSERS_KEPT 32
#define INTERIM_MAX 32u

enum conn_state {
    CONN_IDLE,
    CONN_BUSY, /* a request is under way, or waits for the connection */
    CONN_OVER, /* of no more use */
};

struct http_conn {
    struct sock sock;
    struct http1_parser *parser; /* NULL between requests */
    struct buf in;               /* read, not yet parsed */
    const struct http_conn_events *events;
    void *user;
    void (*on_idle_close)(void *user, struct http_conn *c);
    void *idle_user;
    uint64_t left;    /* request body bytes still to be written, or HTTP_LENGTH_UNKNOWN */
    uint64_t base_at; /* loop time at which connecting, or waiting for the head, began */
    uint64_t sent_before;
    uint64_t blocked_at, sent_seen; /* output waits since then, and sock.sent at that time */
    uint32_t connect_timeout_ms, head_timeout_ms, write_timeout_ms;
    uint32_t n_interim; /* heads before the final one */
    enum conn_state state;

    bool is_connected; /* and its layer's handshake is over */
    bool is_shaking;   /* that handshake is under way */
    bool is_reused;
    bool is_connect_told; /* on_writable after connecting is due or done */
    bool is_idempotent;
    bool has_written_body;
    bool is_chunked;
    bool is_upgrading;
    bool is_request_ended;
    bool is_broken; /* the user gave fewer or more body bytes than announced, or late ones */
    bool is_aborted;
    bool is_failed; /* closing it must not look like a good end */
    bool is_shut;
    bool is_waiting_to_write; /* as of blocked_at */

    bool is_reading;
    bool has_input; /* a byte of the response has come */
    bool has_head;  /* the final one */
    bool is_raw;
    bool is_keep;
    bool is_response_done;
    bool is_end_delivered;
    bool wants_writable;
    bool is_eof, is_hangup, is_gone;
};

/* Parsers that no connection needs at the moment, for all connections of the process (one loop). */
static struct http1_parser *spare_parsers[PARSERS_KEPT];
static size_t n_spare_parsers;

static struct http1_parser *take_parser(void)
{
    return n_spare_parsers > 0 ? spare_parsers[--n_spare_parsers]
                               : http1_parser_new(HTTP1_RESPONSE);
}

static void give_parser(struct http1_parser *parser)
{
    if (!parser || !http1_parser_is_idle(parser) || n_spare_parsers == PARSERS_KEPT) {
        http1_parser_free(parser);
        return;
    }
    http1_parser_shrink(parser);
    spare_parsers[n_spare_parsers++] = parser;
}

static void conn_on_event(struct sock *sock, unsigned what);

static void conn_on_free(struct sock *sock)
{
    struct http_conn *c = container_of(sock, struct http_conn, sock);

    http1_parser_free(c->parser);
    buf_done(&c->in);
    free(c);
}

/* The stream stands; a layer has to agree with its peer first, which happens while it is read. */
static void conn_stands(struct http_conn *c)
{
    c->is_connected = !c->sock.layer;
    c->is_shaking = !c->is_connected;
}

static void conn_connect(struct http_conn *c, const struct http_conn_opts *opts)
{
    int r;

    do
        r = connect(opts->fd, opts->address, opts->address_len);
    while (r < 0 && errno == EINTR);
    if (r == 0) {
        conn_stands(c);
        return;
    }
    c->sock.is_blocked = true; /* nothing is written before the connection stands */
    if (errno != EINPROGRESS)
        c->sock.error = errno;
}

int http_conn_new(const struct http_conn_opts *opts, struct http_conn **ret, struct abx_err *err)
{
    struct http_conn *c = calloc(1, sizeof(*c));
    int r, one = 1;

    if (!c) {
        if (opts->layer)
            opts->layer->ops->free(opts->layer);
        fd_close(opts->fd);
        return err_oom(err);
    }
    (void)fd_set_nonblock(opts->fd, true);
    r = sock_init(&c->sock, opts->loop, opts->fd, conn_on_event, conn_on_free, err);
    if (r < 0) {
        if (opts->layer)
            opts->layer->ops->free(opts->layer);
        free(c);
        return r;
    }
    c->sock.layer = opts->layer;
    (void)setsockopt(opts->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* fails on unix */
    buf_init(&c->in, 2 * SOCK_READ_MAX);
    c->connect_timeout_ms =
        opts->connect_timeout_ms ? opts->connect_timeout_ms : DEFAULT_CONNECT_MS;
    c->head_timeout_ms = opts->head_timeout_ms;
    c->write_timeout_ms = opts->write_timeout_ms;
    c->base_at = sock_now(&c->sock);
    if (opts->address)
        conn_connect(c, opts);
    else
        conn_stands(c);
    sock_kick(&c->sock);
    *ret = c;
    return 0;
}

void http_conn_free(struct http_conn *c)
{
    if (!c)
        return;
    sock_close(&c->sock, c->state == CONN_BUSY || c->is_failed);
    c->events = NULL;
    /* The handles go later, and a flood of requests that are given up at once would pile up parsers. */
    if (!c->sock.is_in_event) {
        http1_parser_free(TAKE_PTR(c->parser));
        buf_done(&c->in);
        buf_done(&c->sock.out);
    }
}

bool http_conn_is_idle(const struct http_conn *c)
{
    return c->state == CONN_IDLE && !c->sock.error && !c->sock.is_closed;
}

bool http_conn_is_connected(const struct http_conn *c)
{
    return c->is_connected;
}

void http_conn_set_idle_close(struct http_conn *c, void (*fn)(void *user, struct http_conn *c),
                              void *user)
{
    c->on_idle_close = fn;
    c->idle_user = user;
}

/* Has the peer closed (or said something unasked) on an idle connection? */
static bool is_stale(const struct http_conn *c)
{
    uint8_t byte;
    ssize_t n;

    if (!c->is_connected)
        return c->sock.error != 0 && c->is_reused;
    do
        n = recv(c->sock.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n >= 0 || errno != EAGAIN;
}

static int put_request(struct http_conn *c, struct slice method, struct slice target,
                       const struct http1_field *fields, size_t n_fields, struct abx_err *err)
{
    static const struct slice none = { 0 };
    struct buf *out = &c->sock.out;

    if (http1_request_line(out, method, target) != BUF_OK)
        return err_set(err, ABX_INVALID_ARGUMENT, "the request line is malformed");
    for (size_t i = 0; i < n_fields; i++) {
        bool is_upgrade = slice_ieq_str(fields[i].name, "upgrade");

        if (!is_upgrade && (http1_is_hop_by_hop(fields[i].name, none) ||
                            slice_ieq_str(fields[i].name, "content-length")))
            return err_set(err, ABX_INVALID_ARGUMENT, "request field '%.*s' is the connection's",
                           (int)fields[i].name.n, (const char *)fields[i].name.p);
        if (http1_field_put(out, fields[i].name, fields[i].value) != BUF_OK)
            return err_set(err, ABX_INVALID_ARGUMENT, "request field %zu is malformed", i);
        c->is_upgrading = c->is_upgrading || is_upgrade;
    }
    return 0;
}

static enum buf_status put_framing(struct http_conn *c, struct slice method)
{
    struct buf *out = &c->sock.out;
    bool is_bare = slice_eq_str(method, "GET") || slice_eq_str(method, "HEAD") ||
                   slice_eq_str(method, "OPTIONS") || slice_eq_str(method, "DELETE");
    enum buf_status r = BUF_OK;

    c->is_chunked = c->left == HTTP_LENGTH_UNKNOWN;
    if (c->is_chunked)
        r = http1_field_put(out, SLICE_LIT("Transfer-Encoding"), SLICE_LIT("chunked"));
    else if (c->left > 0 || !is_bare)
        r = buf_printf(out, "Content-Length: %llu\r\n", (unsigned long long)c->left);
    if (r == BUF_OK && c->is_upgrading)
        r = http1_field_put(out, SLICE_LIT("Connection"), SLICE_LIT("Upgrade"));
    return r == BUF_OK ? http1_head_end(out) : r;
}

/* Forgets the exchange before. */
static void conn_renew(struct http_conn *c)
{
    c->is_idempotent = c->has_written_body = c->is_chunked = c->is_upgrading = false;
    c->is_request_ended = c->is_broken = c->is_reading = c->has_input = c->has_head = false;
    c->is_raw = c->is_keep = c->is_response_done = c->is_end_delivered = false;
    c->wants_writable = c->is_aborted = false;
    c->n_interim = 0;
}

int http_conn_request(struct http_conn *c, struct slice method, struct slice target,
                      const struct http1_field *fields, size_t n_fields, uint64_t length,
                      const struct http_conn_events *events, void *user, struct abx_err *err)
{
    int r;

    bool is_idempotent = slice_eq_str(method, "GET") || slice_eq_str(method, "HEAD") ||
                         slice_eq_str(method, "OPTIONS");

    if (c->state != CONN_IDLE)
        return err_set(err, ABX_FAILED_PRECONDITION, "the connection is not idle");
    /* One that may be repeated is cheaper sent without looking. */
    if (c->is_eof || ((!is_idempotent || length != 0) && is_stale(c)))
        return err_set(err, ABX_UNAVAILABLE, "the server has closed the connection");
    if (!c->parser)
        c->parser = take_parser();
    if (!c->parser)
        return err_oom(err);
    conn_renew(c);
    sock_expect_head(&c->sock);
    c->left = length;
    r = put_request(c, method, target, fields, n_fields, err);
    if (r == 0 && put_framing(c, method) != BUF_OK)
        r = err_oom(err);
    if (r < 0) {
        buf_reset(&c->sock.out);
        return r;
    }
    if (slice_eq_str(method, "HEAD"))
        http1_parser_expect_no_body(c->parser);
    c->is_idempotent = is_idempotent;
    c->sent_before = c->sock.sent;
    c->events = events;
    c->user = user;
    c->state = CONN_BUSY;
    if (c->is_connected)
        c->base_at = sock_now(&c->sock);
    sock_kick(&c->sock);
    return 0;
}

size_t http_conn_room(const struct http_conn *c)
{
    return c->sock.out.len < HTTP_OUT_MAX ? HTTP_OUT_MAX - c->sock.out.len : 0;
}

size_t http_conn_write(struct http_conn *c, struct slice s)
{
    size_t n = MIN(s.n, http_conn_room(c));
    char line[19];
    struct slice parts[3];
    size_t n_parts = 0;

    assert(c->state == CONN_BUSY);
    if (c->is_request_ended || (c->left != HTTP_LENGTH_UNKNOWN && s.n > c->left)) {
        c->is_broken = true;
        sock_kick(&c->sock);
        return s.n;
    }
    if (n > 0) {
        if (c->is_chunked && !c->is_raw)
            parts[n_parts++] = slice_of(line, http1_chunk_begin(line, n));
        parts[n_parts++] = (struct slice){ s.p, n };
        if (c->is_chunked && !c->is_raw)
            parts[n_parts++] = SLICE_LIT(HTTP1_CHUNK_END);
        if (c->left != HTTP_LENGTH_UNKNOWN)
            c->left -= n;
        c->has_written_body = true;
        sock_write(&c->sock, parts, n_parts, n >= WRITE_NOW_MIN);
    }
    if (n < s.n || c->sock.out.len > HTTP_OUT_MAX / 2) {
        c->wants_writable = true;
        sock_kick(&c->sock);
    }
    return n;
}

void http_conn_end(struct http_conn *c)
{
    struct slice last = SLICE_LIT(HTTP1_LAST_CHUNK);

    assert(c->state == CONN_BUSY);
    if (c->is_request_ended)
        return;
    c->is_request_ended = true;
    if (!c->is_raw && c->left != HTTP_LENGTH_UNKNOWN && c->left > 0)
        c->is_broken = true;
    else if (c->is_chunked && !c->is_raw)
        sock_write(&c->sock, &last, 1, false);
    c->base_at = sock_now(&c->sock);
    sock_kick(&c->sock);
}

void http_conn_read(struct http_conn *c, bool on)
{
    if (c->is_reading == on)
        return;
    c->is_reading = on;
    if (on)
        sock_kick(&c->sock);
}

void http_conn_abort(struct http_conn *c)
{
    c->is_aborted = true;
    sock_kick(&c->sock);
}

/* --- the pump ---------------------------------------------------------------------------------- */

/* The request's completion; afterwards `c` may have been freed or reused. */
static void conn_done(struct http_conn *c, const struct abx_err *why, bool is_reusable,
                      bool is_safe)
{
    const struct http_conn_events *events = c->events;

    c->events = NULL;
    c->is_failed = why->code != 0;
    c->state = is_reusable ? CONN_IDLE : CONN_OVER;
    if (is_reusable) {
        c->is_reused = true;
        give_parser(TAKE_PTR(c->parser));
        sock_shrink(&c->sock);
    }
    if (events)
        events->on_done(c->user, c, why, is_reusable, is_safe);
}

/* Certain that the server has not acted on the request? See on_done in http_client.h. */
static bool is_safe_to_retry(struct http_conn *c)
{
    int sys = 0;
    socklen_t len = sizeof(sys);

    if (!c->is_connected)
        return true;
    if (!c->is_reused || c->has_input || c->has_written_body)
        return false;
    if (c->is_idempotent || c->sock.sent == c->sent_before)
        return true;
    /* A close that came before what we sent makes the server's kernel answer that with a reset,
     * which the socket keeps as EPIPE; a server that read the request and died leaves none. */
    return getsockopt(c->sock.fd, SOL_SOCKET, SO_ERROR, &sys, &len) == 0 && sys == EPIPE;
}

static void conn_fail(struct http_conn *c, const struct abx_err *why)
{
    conn_done(c, why, false, is_safe_to_retry(c));
}

/* `sys` = 0: the peer closed its side. */
static void conn_lost(struct http_conn *c, int sys)
{
    struct abx_err why = { 0 };

    if (c->state == CONN_BUSY) {
        if (!c->is_connected)
            (void)err_sys(&why, sys, c->is_shaking ? "TLS handshake" : "connect");
        else if (sys)
            (void)err_sys(&why, sys, "the connection to the server broke");
        else
            (void)err_set(&why, ABX_UNAVAILABLE, "the server closed the connection %s",
                          c->has_input ? "in the middle of its response" : "without a response");
        why.code = ABX_UNAVAILABLE;
        conn_fail(c, &why);
    } else if (c->state == CONN_IDLE) {
        c->state = CONN_OVER;
        if (c->on_idle_close)
            c->on_idle_close(c->idle_user, c);
    }
}

static void conn_bad(struct http_conn *c, const char *what)
{
    struct abx_err why = { 0 };

    (void)err_reason(&why, ABX_REASON_UPSTREAM, "the server's response is not valid: %s", what);
    conn_fail(c, &why);
}

static bool conn_wants_input(const struct http_conn *c)
{
    if (c->state != CONN_BUSY || c->sock.is_closed || !c->is_connected)
        return false;
    if (!c->has_head)
        return true;
    return c->is_reading && !c->is_end_delivered;
}

static void conn_head(struct http_conn *c, struct slice *in)
{
    const struct http1_head *head = http1_parser_head(c->parser);
    struct slice data;

    if (head->status == 101 && !c->is_upgrading) {
        conn_bad(c, "it switches protocols unasked");
        return;
    }
    if (head->status == 101) {
        c->has_head = c->is_raw = true;
        c->is_request_ended = false; /* the request was; what follows has an end of its own */
        c->wants_writable = true;
        c->left = HTTP_LENGTH_UNKNOWN;
        (void)http1_parser_next(c->parser, in, &data); /* END: the rest does not pass the parser */
    } else if (head->status >= 200) {
        c->has_head = true;
        c->is_keep = head->keep_alive && head->framing != HTTP1_BODY_UNTIL_CLOSE;
        if (head->framing == HTTP1_BODY_NONE ||
            (head->framing == HTTP1_BODY_LENGTH && head->content_length == 0))
            c->is_response_done = http1_parser_next(c->parser, in, &data) == HTTP1_END;
    } else if (++c->n_interim > INTERIM_MAX) {
        conn_bad(c, "over 32 interim heads");
        return;
    }
    if (head->status != 100)
        c->events->on_head(c->user, c, head);
    if (c->is_raw) { /* a WebSocket may hold still for hours */
        http1_parser_free(TAKE_PTR(c->parser));
        sock_shrink(&c->sock);
    }
}

static void conn_deliver(struct http_conn *c, struct slice data, bool is_end)
{
    c->is_end_delivered = c->is_end_delivered || is_end;
    c->events->on_body(c->user, c, data, is_end);
}

static void conn_feed(struct http_conn *c, struct slice *in)
{
    while (conn_wants_input(c)) {
        struct slice data = { 0 };

        if (c->is_raw) {
            if (in->n == 0)
                return;
            data = *in;
            *in = (struct slice){ 0 };
            conn_deliver(c, data, false);
            return;
        }
        if (c->is_response_done) {
            conn_deliver(c, data, true);
            return;
        }
        switch (http1_parser_next(c->parser, in, &data)) {
        case HTTP1_NEED_MORE:
            return;
        case HTTP1_HEAD:
            conn_head(c, in);
            break;
        case HTTP1_DATA:
            conn_deliver(c, data, false);
            break;
        case HTTP1_END:
            c->is_response_done = c->has_head; /* not the end of a 1xx */
            break;
        case HTTP1_UPGRADED:
        case HTTP1_ERROR:
            conn_bad(c, http1_error_text(http1_parser_error(c->parser)));
            return;
        }
    }
}

static void conn_feed_pending(struct http_conn *c)
{
    struct slice in = buf_slice(&c->in);

    conn_feed(c, &in);
    if (c->sock.is_closed)
        return;
    buf_consume(&c->in, c->in.len - in.n);
    if (c->in.len == 0 && c->in.mem)
        buf_done(&c->in);
}

static void conn_eof(struct http_conn *c)
{
    if (c->state == CONN_IDLE || !c->is_connected) {
        conn_lost(c, 0);
    } else if (c->is_raw) {
        if (c->is_reading && !c->is_end_delivered)
            conn_deliver(c, (struct slice){ 0 }, true);
    } else if (!c->is_response_done) {
        if (http1_parser_eof(c->parser) == HTTP1_END && c->has_head)
            c->is_response_done = true;
        else
            conn_lost(c, 0);
    }
}

static void conn_read_socket(struct http_conn *c)
{
    for (int i = 0; i < READS_PER_EVENT && !c->sock.is_closed && c->state != CONN_OVER; i++) {
        struct slice in;
        ssize_t n = sock_read(&c->sock, &in);

        if (n == -EAGAIN)
            return;
        if (n < 0) {
            conn_lost(c, (int)-n);
            return;
        }
        if (n == 0) {
            c->is_eof = true;
            return;
        }
        if (c->state == CONN_IDLE) { /* said something unasked */
            conn_lost(c, EPROTO);
            return;
        }
        c->has_input = true;
        if (c->in.len == 0)
            conn_feed(c, &in);
        if (c->sock.is_closed || c->state == CONN_OVER)
            return;
        if (in.n > 0 && buf_append_slice(&c->in, in) != BUF_OK) {
            conn_lost(c, ENOMEM);
            return;
        }
        if ((size_t)n < SOCK_READ_MAX || c->in.len > 0)
            return;
    }
}

/* Writing failed. A server may have answered and closed without reading all: what it said is still
 * there to be read, the rest of the request is dropped. */
static void conn_write_failed(struct http_conn *c)
{
    int sys = c->sock.error;

    if (c->is_connected && c->state == CONN_BUSY && !c->is_gone) {
        c->is_gone = true;
        buf_reset(&c->sock.out);
        conn_read_socket(c);
        return;
    }
    if (!c->is_connected || c->state == CONN_IDLE)
        conn_lost(c, sys);
}

/* Result of connecting, when there is one. */
static void conn_check_connected(struct http_conn *c, unsigned what)
{
    int sys = 0;
    socklen_t len = sizeof(sys);

    if (!(what & (SOCK_WRITABLE | SOCK_READABLE | SOCK_HANGUP)))
        return;
    if (getsockopt(c->sock.fd, SOL_SOCKET, SO_ERROR, &sys, &len) < 0)
        sys = errno;
    if (sys == 0 && !(what & SOCK_WRITABLE))
        return;
    if (sys) {
        c->sock.error = sys;
        return;
    }
    c->sock.is_blocked = false;
    conn_stands(c);
    if (c->is_connected)
        c->base_at = sock_now(&c->sock);
}

/* Goes on with the layer's handshake. */
static void conn_shake(struct http_conn *c)
{
    struct slice in;
    ssize_t n = sock_read(&c->sock, &in);

    if (n > 0 && buf_append_slice(&c->in, in) != BUF_OK)
        n = -ENOMEM;
    if (n == 0 || (n < 0 && n != -EAGAIN)) {
        c->sock.error = EPROTO;
        return;
    }
    if (!c->sock.layer->is_ready)
        return;
    c->is_shaking = false;
    c->is_connected = true;
    c->has_input = n > 0;
    c->base_at = sock_now(&c->sock);
}

static void conn_call_writable(struct http_conn *c)
{
    bool is_due = c->is_connected && !c->is_connect_told;

    if ((!is_due && !c->wants_writable) || c->sock.out.len > HTTP_OUT_MAX / 2)
        return;
    c->is_connect_told = true;
    c->wants_writable = false;
    if (c->events->on_writable)
        c->events->on_writable(c->user, c);
}

static void conn_finish(struct http_conn *c)
{
    static const struct abx_err none = { 0 };
    bool is_sent = c->is_request_ended && c->sock.out.len == 0 && !c->is_gone;

    if (c->is_raw) {
        if (is_sent && !c->is_shut) {
            sock_shutdown(&c->sock);
            c->is_shut = true;
        }
        if (c->is_end_delivered && (is_sent || c->is_gone))
            conn_done(c, &none, false, false);
        return;
    }
    if (c->is_end_delivered)
        conn_done(c, &none, c->is_keep && is_sent && c->in.len == 0 && !c->is_eof && !c->is_hangup,
                  false);
}

static void conn_step(struct http_conn *c)
{
    struct abx_err why = { 0 };

    if (c->is_connected)
        sock_flush(&c->sock);
    if (c->sock.error)
        conn_write_failed(c);
    if (c->sock.is_closed || c->state == CONN_OVER)
        return;
    if (c->state == CONN_BUSY && c->is_aborted) {
        (void)err_set(&why, ABX_ABORTED, "the exchange was given up");
        conn_fail(c, &why);
        return;
    }
    if (c->is_broken) {
        (void)err_set(&why, ABX_INTERNAL, "the request body has not the announced length");
        conn_fail(c, &why);
        return;
    }
    if (c->state == CONN_BUSY)
        conn_feed_pending(c);
    if (!c->sock.is_closed && c->state != CONN_OVER && c->is_eof && c->in.len == 0) {
        conn_eof(c);
        if (!c->sock.is_closed && c->state == CONN_BUSY)
            conn_feed_pending(c); /* the end that EOF made */
    }
    if (!c->sock.is_closed && c->state == CONN_BUSY)
        conn_finish(c);
    if (!c->sock.is_closed && c->state == CONN_BUSY)
        conn_call_writable(c);
}

static bool conn_is_waiting_to_write(const struct http_conn *c)
{
    return c->write_timeout_ms && c->is_connected && c->sock.out.len > 0;
}

static void conn_timeout(struct http_conn *c)
{
    struct abx_err why = { 0 };

    if (c->state != CONN_BUSY)
        return;
    if (c->is_shaking)
        (void)err_sys(&why, EPROTO, "the TLS handshake takes too long");
    else if (!c->is_connected)
        (void)err_set(&why, ABX_DEADLINE_EXCEEDED, "the server does not accept connections");
    else if (conn_is_waiting_to_write(c) && c->is_waiting_to_write &&
             c->sock.sent == c->sent_seen &&
             sock_now(&c->sock) >= c->blocked_at + c->write_timeout_ms)
        (void)err_set(&why, ABX_DEADLINE_EXCEEDED, "the server does not read");
    else if (!c->has_head && c->head_timeout_ms && c->is_request_ended && c->sock.out.len == 0)
        (void)err_set(&why, ABX_DEADLINE_EXCEEDED, "the server does not answer");
    else
        return;
    conn_fail(c, &why);
}

static void conn_arm_deadline(struct http_conn *c)
{
    bool is_waiting = conn_is_waiting_to_write(c);

    if (is_waiting && (!c->is_waiting_to_write || c->sock.sent != c->sent_seen)) {
        c->blocked_at = sock_now(&c->sock);
        c->sent_seen = c->sock.sent;
    }
    c->is_waiting_to_write = is_waiting;
    if (c->state == CONN_BUSY && !c->is_connected)
        sock_set_deadline(&c->sock, c->base_at, c->connect_timeout_ms);
    else if (c->state == CONN_BUSY && is_waiting)
        sock_set_deadline(&c->sock, c->blocked_at, c->write_timeout_ms);
    else if (c->state == CONN_BUSY && c->head_timeout_ms && !c->has_head && c->is_request_ended &&
             c->sock.out.len == 0)
        sock_set_deadline(&c->sock, c->base_at, c->head_timeout_ms);
    else
        sock_clear_deadline(&c->sock);
}

static void conn_arm(struct http_conn *c)
{
    unsigned watch = 0;

    if (c->state == CONN_OVER || c->is_gone)
        watch = c->is_eof || c->state == CONN_OVER ? SOCK_QUIET : SOCK_READABLE;
    else if (c->is_eof)
        watch = SOCK_QUIET;
    else if (!c->is_connected)
        watch = c->is_shaking ? SOCK_READABLE : SOCK_WRITABLE;
    else if (c->state == CONN_IDLE || conn_wants_input(c))
        watch = SOCK_READABLE;
    else if (c->is_hangup)
        watch = SOCK_QUIET; /* what it sent before waits for the reader */
    else
        watch = SOCK_HANGUP;
    if (c->is_eof && c->sock.is_blocked && c->state == CONN_BUSY)
        watch = SOCK_WRITABLE;
    sock_watch(&c->sock, watch);
    conn_arm_deadline(c);
}

static void conn_on_event(struct sock *sock, unsigned what)
{
    struct http_conn *c = container_of(sock, struct http_conn, sock);

    if (!c->is_connected && !c->is_shaking && !sock->error)
        conn_check_connected(c, what);
    if (c->is_shaking && !sock->error && !(what & SOCK_DEADLINE))
        conn_shake(c);
    if ((what & SOCK_HANGUP) && !(what & SOCK_READABLE))
        c->is_hangup = true;
    if (what & SOCK_DEADLINE)
        conn_timeout(c);
    if ((what & SOCK_READABLE) && c->is_connected && !sock->is_closed && !c->is_eof)
        conn_read_socket(c);
    for (int i = 0; i < STEPS_PER_EVENT && !sock->is_closed; i++) {
        sock->is_kicked = false;
        conn_step(c);
        if (!sock->is_kicked)
            break;
    }
    if (!sock->is_closed)
        conn_arm(c);
}
