/* relay.c - see relay.h.
 *
 * Each direction reads only while the other side's queue is at most half full; one piece of input is
 * never larger than the other half, so that every piece is taken whole and nothing is kept here. If one is
 * not, that is a fault of ours, which costs the one exchange and not the process with all others.
 */
#include "net/relay.h"

#include "base/str.h"
#include "net/counters.h"

struct relay {
    struct relay_opts opts;
    struct http_exchange *ex; /* NULL once it is gone */
    uint64_t length;          /* of the request body */
    bool is_request_ended;    /* false again when the server switches protocols */
    bool has_read_body;
    bool is_response_sent;
    int status;
    int64_t head_ns;
};

static bool is_half_full(size_t room)
{
    return room < HTTP_OUT_MAX / 2;
}

/* The exchange after the relay: only its queue is left to be sent. */
static const struct http_exchange_events no_events;

static void relay_finish(struct relay *r, const struct relay_result *result)
{
    struct relay_opts opts = r->opts;
    struct http_exchange *ex = r->ex;

    if (ex)
        http_exchange_begin(ex, &no_events, NULL);
    if (ex && !r->is_response_sent)
        http_exchange_read(ex, false);
    free(r);
    opts.on_done(opts.user, ex, opts.conn, result);
}

/* --- client to server -------------------------------------------------------------------------- */

static void client_body(void *user, struct http_exchange *ex, struct slice data, bool is_end)
{
    struct relay *r = user;

    if (data.n > 0) {
        size_t n = http_conn_write(r->opts.conn, data);

        r->has_read_body = true;
        if (r->opts.bytes_in)
            count_add(r->opts.bytes_in, data.n);
        if (n < data.n)
            http_conn_abort(r->opts.conn);
        if (is_half_full(http_conn_room(r->opts.conn)))
            http_exchange_read(ex, false);
    }
    if (is_end && !r->is_request_ended) {
        r->is_request_ended = true;
        http_conn_end(r->opts.conn);
        http_exchange_read(ex, false);
    }
}

static void client_writable(void *user, struct http_exchange *ex)
{
    struct relay *r = user;

    (void)ex;
    http_conn_read(r->opts.conn, true);
}

static void client_close(void *user, struct http_exchange *ex, const struct abx_err *why)
{
    struct relay *r = user;
    struct relay_result result = { .is_response_sent = r->is_response_sent,
                                   .status = r->status,
                                   .head_ns = r->head_ns };

    (void)ex;
    r->ex = NULL;
    if (why->code == 0) /* after an upgrade; on_done follows with the server's end */
        return;
    result.err = *why;
    relay_finish(r, &result);
}

static const struct http_exchange_events client_events = { client_body, client_writable,
                                                           client_close };

/* --- server to client -------------------------------------------------------------------------- */

static bool is_overridden(const struct http1_head *head, const struct http1_field *field)
{
    for (size_t i = 0; i < head->n_fields; i++)
        if (head->fields[i].name.n == field->name.n && slice_ieq(head->fields[i].name, field->name))
            return true;
    return false;
}

/* Fields for the client: the server's without those of its connection, then the caller's that the
 * server has not set itself. */
static size_t response_fields(struct relay *r, const struct http1_head *head,
                              struct http1_field to[HTTP1_FIELDS_MAX * 2])
{
    size_t n = 0;

    for (size_t i = 0; i < head->n_fields; i++) {
        const struct http1_field *field = &head->fields[i];
        bool is_upgrade = head->status == 101 && slice_ieq_str(field->name, "upgrade");

        if (!is_upgrade && (http1_head_is_hop_by_hop(head, field->name) ||
                            slice_ieq_str(field->name, "content-length")))
            continue;
        to[n++] = *field;
    }
    for (size_t i = 0; i < r->opts.n_response_fields && n < HTTP1_FIELDS_MAX * 2; i++)
        if (!is_overridden(head, &r->opts.response_fields[i]))
            to[n++] = r->opts.response_fields[i];
    return n;
}

static uint64_t response_length(const struct http1_head *head)
{
    uint64_t length;

    switch (head->framing) {
    case HTTP1_BODY_LENGTH:
        return head->content_length;
    case HTTP1_BODY_CHUNKED:
    case HTTP1_BODY_UNTIL_CLOSE:
        return HTTP_LENGTH_UNKNOWN;
    case HTTP1_BODY_NONE:
        break;
    }
    /* The answer to a HEAD may tell the length of what a GET would have got. */
    if (str_parse_u64(http1_head_value(head, "content-length"), UINT64_MAX - 1, &length))
        return length;
    return HTTP_LENGTH_UNKNOWN;
}

static bool has_own_end(const struct http1_head *head)
{
    return head->status != 101 &&
           (head->framing == HTTP1_BODY_NONE || head->framing == HTTP1_BODY_LENGTH);
}

static void server_head(void *user, struct http_conn *c, const struct http1_head *head)
{
    struct relay *r = user;
    struct http1_field fields[HTTP1_FIELDS_MAX * 2];
    size_t n;
    int result;

    if (!r->ex || (head->status < 200 && head->status != 101))
        return;
    r->status = head->status;
    r->head_ns = time_mono_ns();
    n = response_fields(r, head, fields);
    if (head->status == 101) {
        result = http_exchange_upgrade(r->ex, fields, n, NULL);
    } else {
        result = http_exchange_respond(r->ex, head->status, fields, n, response_length(head), NULL);
    }
    if (result < 0) { /* nothing of it is sent: on_done's caller says so */
        http_conn_abort(c);
        return;
    }
    r->is_response_sent = true;
    if (r->opts.ret_is_stream)
        *r->opts.ret_is_stream = !has_own_end(head);
    http_conn_read(c, true);
    if (head->status == 101) /* server_writable reads on, once the body has left the queue */
        r->is_request_ended = false;
}

static void server_body(void *user, struct http_conn *c, struct slice data, bool is_end)
{
    struct relay *r = user;

    if (!r->ex)
        return;
    if (data.n > 0) {
        size_t n = http_exchange_write(r->ex, data);

        if (r->opts.bytes_out)
            count_add(r->opts.bytes_out, data.n);
        if (n < data.n)
            http_exchange_abort(r->ex);
        if (is_half_full(http_exchange_room(r->ex)))
            http_conn_read(c, false);
    }
    if (is_end)
        http_exchange_end(r->ex);
}

static void server_writable(void *user, struct http_conn *c)
{
    struct relay *r = user;

    (void)c;
    if (r->ex && !r->is_request_ended)
        http_exchange_read(r->ex, true);
}

static void server_done(void *user, struct http_conn *c, const struct abx_err *err,
                        bool is_reusable, bool is_safe_to_retry)
{
    struct relay *r = user;
    struct relay_result result = {
        .err = *err,
        .is_response_sent = r->is_response_sent,
        .is_safe_to_retry = is_safe_to_retry && !r->has_read_body,
        .is_reusable = is_reusable,
        .status = r->status,
        .head_ns = r->head_ns,
    };

    (void)c;
    if (err->code && r->ex && r->is_response_sent)
        http_exchange_abort(r->ex);
    relay_finish(r, &result);
}

static const struct http_conn_events server_events = { server_head, server_body, server_writable,
                                                       server_done };

int relay_start(const struct relay_opts *opts, struct abx_err *err)
{
    const struct http1_head *head = http_exchange_head(opts->ex);
    struct relay *r = calloc(1, sizeof(*r));
    int result;

    if (!r)
        return err_oom(err);
    r->opts = *opts;
    r->ex = opts->ex;
    if (head->framing == HTTP1_BODY_LENGTH)
        r->length = head->content_length;
    else if (head->framing == HTTP1_BODY_CHUNKED && !http_exchange_is_read(opts->ex))
        r->length = HTTP_LENGTH_UNKNOWN; /* else an earlier try has found it to be empty */
    result = http_conn_request(opts->conn, head->method, opts->target, opts->fields, opts->n_fields,
                               r->length, &server_events, r, err);
    if (result < 0) {
        free(r);
        return result;
    }
    http_exchange_begin(opts->ex, &client_events, r);
    if (r->length == 0) {
        r->is_request_ended = true;
        http_conn_end(opts->conn);
    } else if (http_conn_is_connected(opts->conn)) {
        /* Before that nothing of the body is consumed, so that another connection can be tried. */
        http_exchange_read(opts->ex, true);
    }
    return 0;
}
