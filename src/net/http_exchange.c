/* http_exchange.c - what handlers call on an exchange, and what the pumps do with one. See
 * http_server.h, http_session.h.
 *
 * Nothing that handlers call calls one back or frees anything: calls change the exchange's state and
 * kick the connection's pump. A call that the exchange's state does not allow is a fault of the
 * handler's: it costs this exchange, and not the process with all others.
 */
#include <assert.h>

#include "net/http_session.h"

const struct http1_head *http_exchange_head(const struct http_exchange *ex)
{
    return ex->ops->head(ex);
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
    struct session *s = ex->session;

    if (ex->is_reading == on)
        return;
    ex->is_reading = on;
    if (!on)
        return;
    if (ex->wants_continue && !ex->is_responding) {
        ex->wants_continue = false;
        ex->ops->go_on(ex);
    }
    s->progress_at = ex->moved_at = sock_now(&s->sock);
    sock_kick(&s->sock);
}

bool http_exchange_is_read(const struct http_exchange *ex)
{
    return ex->is_end_delivered;
}

bool exchange_owns_field(struct slice name)
{
    static const struct slice none = { 0 };

    return http1_is_hop_by_hop(name, none) || slice_ieq_str(name, "content-length");
}

int http_exchange_respond(struct http_exchange *ex, int status, const struct http1_field *fields,
                          size_t n_fields, uint64_t length, struct abx_err *err)
{
    int r;

    if (ex->is_responding || status < 200) {
        http_exchange_abort(ex);
        return err_set(err, ABX_FAILED_PRECONDITION, "the response has begun, or %d begins none",
                       status);
    }
    ex->is_bodyless =
        slice_eq_str(http_exchange_head(ex)->method, "HEAD") || status == 204 || status == 304;
    ex->left = length;
    r = ex->ops->respond(ex, status, fields, n_fields, length, err);
    if (r < 0)
        return r;
    ex->is_responding = true;
    sock_kick(&ex->session->sock);
    return 0;
}

size_t http_exchange_room(const struct http_exchange *ex)
{
    size_t queued = ex->ops->queued(ex);

    return queued < HTTP_OUT_MAX ? HTTP_OUT_MAX - queued : 0;
}

/* Sends `s`, whatever the room. */
static void write_all(struct http_exchange *ex, struct slice s)
{
    if (ex->left != HTTP_LENGTH_UNKNOWN)
        ex->left -= s.n;
    if (!ex->is_bodyless)
        ex->ops->write(ex, s);
}

size_t http_exchange_write(struct http_exchange *ex, struct slice s)
{
    size_t n = MIN(s.n, http_exchange_room(ex));

    if (!ex->is_responding || ex->is_ended) {
        http_exchange_abort(ex);
        return s.n;
    }
    if (ex->left != HTTP_LENGTH_UNKNOWN && s.n > ex->left) {
        http_exchange_abort(ex); /* the handler broke its word about the length */
        return s.n;
    }
    if (n > 0)
        write_all(ex, (struct slice){ s.p, n });
    if (n < s.n || ex->ops->queued(ex) > HTTP_OUT_MAX / 2) {
        ex->wants_writable = true;
        sock_kick(&ex->session->sock);
    }
    return n;
}

void http_exchange_end(struct http_exchange *ex)
{
    if (!ex->is_responding) {
        http_exchange_abort(ex);
        return;
    }
    if (ex->is_ended)
        return;
    if (ex->left != HTTP_LENGTH_UNKNOWN && ex->left > 0 && !ex->is_bodyless) {
        http_exchange_abort(ex); /* shorter than announced: must not look complete */
        return;
    }
    ex->is_ended = true;
    ex->ops->end(ex);
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
        write_all(ex, body);
    http_exchange_end(ex);
}

int http_exchange_upgrade(struct http_exchange *ex, const struct http1_field *fields,
                          size_t n_fields, struct abx_err *err)
{
    return ex->ops->upgrade(ex, fields, n_fields, err);
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

/* --- the pumps' side --------------------------------------------------------------------------- */

void exchange_refuse(struct http_exchange *ex, int status, const char *text)
{
    static const struct http1_field type = { SLICE_LIT("Content-Type"),
                                             SLICE_LIT("application/json") };
    _cleanup_(buf_done) struct buf body = BUF_INIT(512);

    (void)buf_printf(&body, "{\"code\":%d,\"message\":\"%s\"}", status, text);
    http_exchange_send(ex, status, &type, 1, buf_slice(&body));
}

void exchange_begin(struct http_server *server, struct http_exchange *ex)
{
    server->opts.on_request(server->opts.user, ex);
}

/* Ends a collection: the exchange is the handler's again. */
static void collect_finish(struct http_exchange *ex, const struct abx_err *why)
{
    struct collect collect = ex->collect;

    ex->collect = (struct collect){ 0 };
    ex->is_collecting = ex->is_reading = false;
    ex->events = NULL;
    collect.done(collect.user, ex, buf_slice(&collect.body), why);
    buf_done(&collect.body);
}

void exchange_detach(struct http_exchange *ex, const struct abx_err *why)
{
    const struct http_exchange_events *events = ex->events;
    struct abx_err gone = { 0 };

    ex->is_reading = false;
    if (ex->is_collecting) {
        /* Whatever ended it: this code says that there is nobody to be answered. */
        (void)err_set(&gone, ABX_CANCELED, "%s", why->code ? why->msg : "the client went away");
        collect_finish(ex, &gone);
    } else if (events && events->on_close) {
        events->on_close(ex->user, ex, why);
    }
    ex->events = NULL;
}

void exchange_over(struct http_exchange *ex, const struct abx_err *why)
{
    exchange_detach(ex, why);
    free(ex);
}

static void collect_body(struct http_exchange *ex, struct slice data, bool is_end)
{
    struct collect *collect = &ex->collect;
    struct abx_err why = { 0 };

    if (data.n > buf_room(&collect->body))
        collect->is_too_large = true;
    else if (buf_append_slice(&collect->body, data) != BUF_OK)
        (void)err_oom(&why);
    else if (!is_end)
        return;
    if (collect->is_too_large)
        (void)err_reason(&why, ABX_REASON_TOO_LARGE, "the request body is larger than %zu bytes",
                         collect->body.limit);
    collect_finish(ex, &why);
}

void exchange_check_collect(struct http_exchange *ex)
{
    if (ex->is_collecting && ex->collect.is_too_large)
        collect_body(ex, (struct slice){ 0 }, true);
}

void exchange_deliver(struct http_exchange *ex, struct slice data, bool is_end)
{
    if (is_end)
        ex->is_end_delivered = true;
    if (ex->is_collecting)
        collect_body(ex, data, is_end);
    else if (ex->events && ex->events->on_body)
        ex->events->on_body(ex->user, ex, data, is_end);
}

void exchange_call_writable(struct http_exchange *ex)
{
    if (!ex->wants_writable || ex->ops->queued(ex) > HTTP_OUT_MAX / 2)
        return;
    ex->wants_writable = false;
    if (ex->events && ex->events->on_writable)
        ex->events->on_writable(ex->user, ex);
}
