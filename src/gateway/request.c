/* request.c - one request, from its head to its end.
 *
 * request_step looks at what is known now and either answers, starts the relay, or leaves the request
 * waiting for exactly one thing, whose coming steps it again:
 *
 *     WAIT    links, table or row to change, at most opts.wait_ms in all
 *     ASK     control's word about a sandbox: only that makes the gateway say "was not found"
 *     SOCKET  sockets from the engine
 *     PAUSE   the next try of a connection that was refused
 *     RELAY   the exchange itself
 *
 * Nothing of the body is read before the upstream connection stands, so everything before that can be
 * tried again. Once the request may have had an effect it is not repeated, and the answer says so.
 */
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/str.h"
#include "e2b/errors.h"
#include "e2b/tokens.h"
#include "gateway/internal.h"

#define CONNECT_TRIES 5 /* after the first, for ports other than envd's */
#define STALE_TRIES 8
#define DOUBT_PAUSE_MS 100
#define CONTROL_PAUSE_MS 40
#define LATE_MIN_MS 1000u /* for one more question to a role, however late it is */
#define LOOKUP_MS 5000u
/* Longer than anything that control does for a request (a create: 30 s). */
#define CONTROL_HEAD_MS 45000u

static const char text_restarting[] = "The service is restarting. Try again in a moment.";
static const char text_broken[] =
    "The connection to the sandbox broke before it answered; the request may have had an effect";
static const char text_no_tls[] =
    "The sandbox's httpsPorts name this port, but TLS with its server failed";
static const char text_control_broken[] =
    "The control plane broke off before it answered; the request may have had an effect";
static const char text_control_late[] =
    "The control plane did not answer in time; the request may have had an effect";

void request_unref(struct request *r)
{
    struct gateway *g = r->g;

    if (--r->n_refs > 0)
        return;
    if (r->prev)
        r->prev->next = r->next;
    else
        g->requests = r->next;
    if (r->next)
        r->next->prev = r->prev;
    free(r);
}

/* The exchange is over or out of our hands. */
static void request_end(struct request *r)
{
    wait_stop(&r->wait);
    if (r->port)
        upstream_leave(r);
    r->ex = NULL;
    request_unref(r);
}

static void on_client_close(void *user, struct http_exchange *ex, const struct abx_err *why)
{
    struct request *r = user;

    if (why->code != 0)
        r->status = 0;
    request_tell(r, http_exchange_head(ex));
    request_end(r);
}

/* While no relay has the exchange. */
static const struct http_exchange_events own_events = { .on_close = on_client_close };

/* --- waiting ----------------------------------------------------------------------------------- */

static bool is_transitional(const struct row *row)
{
    return row->state == ROW_CREATING || row->state == ROW_PAUSING;
}

static void give_up(struct request *r)
{
    request_trouble(r, r->is_broken ? COUNT_UPSTREAM_BROKEN : COUNT_UPSTREAM_UNAVAILABLE);
    if (r->is_broken)
        answer_sandbox_error(r, 502, 0, text_broken);
    else if (r->route.kind != ROUTE_TO_SANDBOX)
        answer_error(r, 503, 1, text_restarting);
    else if (table_find(&r->g->table, r->route.id) && !r->is_doubted && gateway_has_control(r->g) &&
             is_transitional(table_find(&r->g->table, r->route.id)))
        answer_sandbox_error(r, 409, -1, E2B_TEXT_TRANSITION);
    else
        answer_sandbox_error(r, 503, 1, text_restarting);
    r->state = REQUEST_NEW;
}

static void on_waited(struct wait *w)
{
    give_up(container_of(w, struct request, wait));
}

static void on_paused(struct wait *w)
{
    struct request *r = container_of(w, struct request, wait);

    r->state = REQUEST_NEW;
    request_step(r);
}

static void on_socket_waited(struct wait *w)
{
    struct request *r = container_of(w, struct request, wait);

    upstream_leave(r);
    give_up(r);
}

uint64_t request_time_left(const struct request *r)
{
    uint64_t now = uv_now(r->g->opts.loop);

    return r->give_up_at > now ? r->give_up_at - now : 0;
}

void request_wait(struct request *r)
{
    r->state = REQUEST_WAIT;
    wait_start(&r->g->waits, &r->wait, request_time_left(r), on_waited);
}

void request_wait_socket(struct request *r)
{
    r->state = REQUEST_SOCKET;
    wait_start(&r->g->waits, &r->wait, MAX(request_time_left(r), (uint64_t)LATE_MIN_MS),
               on_socket_waited);
}

void request_pause(struct request *r, uint64_t ms)
{
    r->state = REQUEST_PAUSE;
    wait_start(&r->g->waits, &r->wait, ms, on_paused);
}

/* `id` NULL: whatever they are for. */
static void wake_some(struct gateway *g, const char *id)
{
    struct request *next;

    /* A step frees at most its own request, and new ones come in front. */
    for (struct request *r = g->requests; r; r = next) {
        next = r->next;
        if (r->state != REQUEST_WAIT || (id && strcmp(r->route.id, id) != 0))
            continue;
        wait_stop(&r->wait);
        r->state = REQUEST_NEW;
        request_step(r);
    }
}

void requests_wake(struct gateway *g)
{
    wake_some(g, NULL);
}

void requests_wake_sandbox(struct gateway *g, const char *id)
{
    wake_some(g, id);
}

/* --- asking control ---------------------------------------------------------------------------- */

static void sandbox_is_gone(struct request *r)
{
    struct row *row = table_find(&r->g->table, r->route.id);

    answer_gone(r);
    if (row)
        gateway_drop_row(r->g, row);
}

static void on_looked_up(void *user, const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                         int *fds, size_t n_fds)
{
    struct request *r = user;
    const Abx__Ipc__LookupReply *found =
        reply && reply->body_case == ABX__IPC__FRAME__BODY_LOOKUP_REPLY ? reply->lookup_reply
                                                                        : NULL;
    struct row *row;
    bool is_doubted = r->is_doubted;

    (void)fds;
    (void)n_fds;
    if (!r->ex) { /* the client went away meanwhile */
        request_unref(r);
        return;
    }
    r->n_refs--;
    r->state = REQUEST_NEW;
    r->is_doubted = false;
    if (failure || !found) {
        request_wait(r);
    } else if (!found->found) {
        sandbox_is_gone(r);
    } else if (!found->entry || table_put(&r->g->table, found->entry, &row, NULL) < 0) {
        answer_sandbox_error(r, 500, 0,
                             "The control plane's answer about the sandbox is not valid");
    } else if (row->state == ROW_KILLING) {
        sandbox_is_gone(r); /* its removal was told before: the row would stay for good */
    } else if (r->is_broken) {
        request_trouble(r, COUNT_UPSTREAM_BROKEN);
        answer_sandbox_error(r, 502, 0, text_broken);
    } else if (is_doubted && request_time_left(r) == 0) {
        request_trouble(r, COUNT_UPSTREAM_UNAVAILABLE);
        answer_sandbox_error(r, 503, 1, text_restarting);
    } else if (is_doubted) {
        request_pause(r, DOUBT_PAUSE_MS);
    } else {
        request_step(r);
    }
}

static void ask_control(struct request *r)
{
    /* What has been sent to a sandbox is waited for anew: its verdict is open. */
    uint64_t ms = r->is_broken ? LOOKUP_MS : MAX(request_time_left(r), (uint64_t)LATE_MIN_MS);

    if (gateway_lookup(r->g, r->route.id, r->request_id, (int)MIN(ms, (uint64_t)LOOKUP_MS),
                       on_looked_up, r) < 0) {
        request_wait(r);
        return;
    }
    r->n_refs++;
    r->state = REQUEST_ASK;
}

/* --- relaying ---------------------------------------------------------------------------------- */

/* The target in origin form; proxies may get it in absolute form. */
static struct slice origin_target(const struct http1_head *head)
{
    struct slice t = head->target;
    const uint8_t *end = t.p + t.n;

    if (t.n > 0 && (t.p[0] == '/' || t.p[0] == '*'))
        return t;
    if (head->path.n > 0 && head->path.p >= t.p && head->path.p < end)
        return slice_of(head->path.p, (size_t)(end - head->path.p));
    return SLICE_LIT("/");
}

static void on_relayed(void *user, struct http_exchange *ex, struct http_conn *conn,
                       const struct relay_result *result);

/* 0, or UNAVAILABLE when the connection is stale; the connection is freed unless 0. */
static int relay_begin(struct request *r, struct http_conn *conn, const char *mask_host)
{
    const struct http1_head *head = http_exchange_head(r->ex);
    struct gateway_counters *counters = r->g->opts.counters;
    bool is_sandbox = r->route.kind == ROUTE_TO_SANDBOX;
    struct upstream_fields fields = { 0 };
    struct relay_opts opts = { .ex = r->ex,
                               .conn = conn,
                               .target = origin_target(head),
                               .response_fields = r->answer_fields,
                               .n_response_fields = ANSWER_FIELDS,
                               .bytes_in = &counters->bytes_in[r->count_route],
                               .bytes_out = &counters->bytes_out[r->count_route],
                               .ret_is_stream = &r->is_stream,
                               .on_done = on_relayed,
                               .user = r };
    int e = upstream_fields_make(r->ex, r->request_id, r->route.port == ENVD_PORT ? "" : mask_host,
                                 r->route.port, is_sandbox, &fields, NULL);

    r->is_stream = false;
    opts.fields = fields.list;
    opts.n_fields = fields.n;
    if (e == 0)
        e = relay_start(&opts, NULL);
    upstream_fields_done(&fields);
    if (e < 0) {
        http_conn_free(conn);
        return e;
    }
    r->conn = conn;
    r->state = REQUEST_RELAY;
    return 0;
}

/* The connection failed before any answer, and the request has certainly not been seen. */
static void sandbox_unreached(struct request *r, const struct abx_err *why)
{
    static const unsigned pauses[CONNECT_TRIES] = { 100, 150, 200, 300, 400 };
    bool is_refused = why->sys == ECONNREFUSED;

    if (why->sys == EPROTO) {
        request_trouble(r, COUNT_UPSTREAM_TLS);
        answer_sandbox_error(r, 502, 1, text_no_tls);
    } else if (why->code == ABX_DEADLINE_EXCEEDED) {
        request_trouble(r, COUNT_UPSTREAM_TIMEOUT);
        answer_sandbox_error(r, 504, 1, "The server on this port does not accept connections");
    } else if (is_refused && !r->is_second_address) {
        r->is_second_address = true;
        request_step(r);
    } else if (is_refused && r->route.port != ENVD_PORT && r->n_tries < CONNECT_TRIES) {
        r->is_second_address = false;
        request_pause(r, pauses[r->n_tries++]);
    } else if (why->code == ABX_ABORTED || !r->has_asked) {
        r->is_second_address = false;
        r->has_asked = r->is_doubted = true; /* a dying sandbox looks like this: control knows */
        request_step(r);
    } else {
        answer_port_closed(r, true);
    }
}

static void control_unreached(struct request *r)
{
    if (request_time_left(r) > 0) {
        request_pause(r, CONTROL_PAUSE_MS);
        return;
    }
    request_trouble(r, COUNT_UPSTREAM_UNAVAILABLE);
    answer_error(r, 503, 1, text_restarting);
}

static void relay_failed(struct request *r, const struct relay_result *result, bool was_connected)
{
    bool is_sandbox = r->route.kind == ROUTE_TO_SANDBOX;

    if (result->is_safe_to_retry && was_connected && r->n_tries++ < STALE_TRIES) {
        request_step(r);
    } else if (result->is_safe_to_retry && is_sandbox) {
        sandbox_unreached(r, &result->err);
    } else if (result->is_safe_to_retry) {
        control_unreached(r);
    } else if (is_sandbox) {
        r->is_broken = true;
        request_step(r);
    } else if (result->err.code == ABX_DEADLINE_EXCEEDED) {
        request_trouble(r, COUNT_UPSTREAM_CONTROL);
        answer_error(r, 504, 0, text_control_late);
    } else {
        request_trouble(r, COUNT_UPSTREAM_CONTROL);
        answer_error(r, 502, 0, text_control_broken);
    }
}

static void on_relayed(void *user, struct http_exchange *ex, struct http_conn *conn,
                       const struct relay_result *result)
{
    struct request *r = user;
    bool was_connected = http_conn_is_connected(conn);
    bool is_reusable = result->is_reusable && result->err.code == 0;

    r->conn = NULL;
    r->state = REQUEST_NEW;
    if (!is_reusable)
        http_conn_free(conn);
    else if (r->row)
        upstream_put_back(r, r->row, conn);
    else
        idle_pool_put(&r->g->control_idle, conn);
    if (ex && result->err.code && !result->is_response_sent) {
        http_exchange_begin(ex, &own_events, r);
        if (r->row)
            gateway_leave_row(r);
        relay_failed(r, result, was_connected);
        return;
    }
    if (r->row)
        gateway_leave_row(r);
    r->status = result->err.code && result->is_response_sent ? 0 : result->status;
    r->answered_ns = result->head_ns;
    if (r->status == 0 && result->err.code != ABX_CANCELED)
        request_trouble(r, r->count_route == COUNT_ROUTE_CONTROL ? COUNT_UPSTREAM_CONTROL
                                                                 : COUNT_UPSTREAM_BROKEN);
    request_tell(r, ex ? http_exchange_head(ex) : NULL);
    request_end(r);
}

/* --- the steps --------------------------------------------------------------------------------- */

static struct http_conn *connect_control(struct gateway *g)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    struct http_conn_opts opts = { .loop = g->opts.loop,
                                   .address = (struct sockaddr *)&un,
                                   .address_len = sizeof(un),
                                   .head_timeout_ms = CONTROL_HEAD_MS };
    struct http_conn *conn = NULL;

    if ((size_t)snprintf(un.sun_path, sizeof(un.sun_path), "%s", g->opts.control_path) >=
        sizeof(un.sun_path))
        return NULL;
    opts.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (opts.fd < 0)
        return NULL;
    return http_conn_new(&opts, &conn, NULL) < 0 ? NULL : conn;
}

static void control_step(struct request *r)
{
    if (!gateway_has_control(r->g)) {
        request_wait(r);
        return;
    }
    for (int i = 0; i < STALE_TRIES; i++) {
        struct http_conn *conn = idle_pool_take(&r->g->control_idle);
        int e;

        if (!conn)
            conn = connect_control(r->g);
        if (!conn)
            break;
        e = relay_begin(r, conn, "");
        if (e == 0)
            return;
        if (e != ABX_UNAVAILABLE) {
            answer_error(r, 500, 0, "The request cannot be passed on");
            return;
        }
    }
    control_unreached(r);
}

/* Ports other than envd's may ask for the traffic token. */
static bool may_enter(const struct request *r, const struct row *row)
{
    const struct http1_head *head = http_exchange_head(r->ex);

    return r->route.port == ENVD_PORT || !*row->traffic_token ||
           token_equal(http1_head_value(head, "e2b-traffic-access-token"),
                       slice_str(row->traffic_token));
}

static void sandbox_enter(struct request *r, struct row *row)
{
    for (int i = 0; i < STALE_TRIES; i++) {
        struct http_conn *conn;
        int e;

        switch (upstream_open(r, row, &conn)) {
        case UPSTREAM_READY:
            e = relay_begin(r, conn, row->mask_host);
            if (e == 0) {
                gateway_enter_row(row, r);
                return;
            }
            if (e != ABX_UNAVAILABLE) {
                answer_sandbox_error(r, 500, 0, "The request cannot be passed on");
                return;
            }
            break;
        case UPSTREAM_LATER:
            return;
        case UPSTREAM_NO_ENGINE:
            request_wait(r);
            return;
        case UPSTREAM_FAILED:
            request_trouble(r, COUNT_UPSTREAM_UNAVAILABLE);
            answer_sandbox_error(r, 503, 1, "The gateway is out of resources");
            return;
        }
    }
    request_trouble(r, COUNT_UPSTREAM_UNAVAILABLE);
    answer_sandbox_error(r, 503, 1, "The gateway is out of resources");
}

static void too_many(struct request *r, enum count_limit which, const char *message)
{
    count_add(&r->g->opts.counters->limited[which], 1);
    answer_sandbox_error(r, 429, 1, message);
}

static void sandbox_step(struct request *r)
{
    struct gateway *g = r->g;
    struct row *row = table_find(&g->table, r->route.id);

    if (!row || r->is_broken || r->is_doubted) {
        ask_control(r);
        return;
    }
    switch (row->state) {
    case ROW_CREATING:
        request_wait(r);
        return;
    case ROW_PAUSING:
        request_wait_wake(r, row);
        return;
    case ROW_PAUSED:
        request_wake(r, row);
        return;
    case ROW_KILLING:
        answer_gone(r);
        return;
    case ROW_RUNNING:
        break;
    }
    if (!may_enter(r, row))
        answer_sandbox_error(r, 403, -1,
                             "This port asks for the sandbox's traffic access token in "
                             "E2b-Traffic-Access-Token");
    else if (row->n_active >= g->opts.max_sandbox_connections)
        too_many(r, COUNT_LIMIT_SANDBOX, "Too many connections to this sandbox");
    else if (row->key->n_active >= g->opts.max_key_connections)
        too_many(r, COUNT_LIMIT_KEY, "Too many connections to sandboxes of this API key");
    else
        sandbox_enter(r, row);
}

void request_sockets_came(struct request *r, int code)
{
    wait_stop(&r->wait);
    r->state = REQUEST_NEW;
    switch (code) {
    case 0:
        request_step(r);
        return;
    case ABX_NOT_FOUND:
    case ABX_FAILED_PRECONDITION:
        r->is_doubted = true;
        request_step(r);
        return;
    case ABX_PERMISSION_DENIED: /* a port that is not for the outside */
        answer_port_closed(r, false);
        return;
    case ABX_UNAVAILABLE:
    case ABX_DEADLINE_EXCEEDED:
        if (request_time_left(r) == 0)
            give_up(r);
        else
            request_pause(r, DOUBT_PAUSE_MS);
        return;
    default:
        request_trouble(r, COUNT_UPSTREAM_UNAVAILABLE);
        answer_sandbox_error(r, 503, 1, "The sandbox cannot be reached at the moment");
    }
}

struct search {
    struct route_proof proof;
    char id[SANDBOX_ID_SIZE];
    unsigned n;
};

static bool search_row(void *user, struct row *row)
{
    struct search *s = user;

    if (route_proof_matches(&s->proof, slice_str(row->access_token))) {
        memcpy(s->id, row->id, sizeof(s->id));
        s->n++;
    }
    return s->n < 2;
}

/* Route order (3). Clients that name a sandbox by its token alone ask so whether it is still there; the
 * control plane, which has a /health of its own, would say yes. The same for signed URLs. A row that is on its way is waited for. */
static void token_step(struct request *r)
{
    struct search search = { .n = 0 };

    if (!r->g->table.was_synced) {
        request_wait(r);
        return;
    }
    route_proof_read(http_exchange_head(r->ex), &search.proof);
    table_each(&r->g->table, search_row, &search);
    if (search.n == 0 && (search.proof.token.n > 0 || search.proof.is_signed)) {
        r->route.port = ENVD_PORT;
        if (r->has_searched) {
            answer_gone(r);
        } else {
            r->has_searched = true;
            request_pause(r, DOUBT_PAUSE_MS);
        }
        return;
    }
    r->route.kind = ROUTE_TO_CONTROL;
    if (search.n == 1) {
        r->route.kind = ROUTE_TO_SANDBOX;
        r->route.port = ENVD_PORT;
        memcpy(r->route.id, search.id, sizeof(r->route.id));
    }
    request_set_route(r);
    request_step(r);
}

void request_step(struct request *r)
{
    switch (r->route.kind) {
    case ROUTE_TO_CONTROL:
        control_step(r);
        return;
    case ROUTE_TO_SANDBOX:
        sandbox_step(r);
        return;
    case ROUTE_BY_TOKEN:
        token_step(r);
        return;
    case ROUTE_RESERVED:
        answer_sandbox_error(r, 404, -1, E2B_TEXT_RESERVED);
        return;
    case ROUTE_BAD:
        answer_error(r, 400, -1, r->route.message);
        return;
    }
}

void request_begin(void *user, struct http_exchange *ex)
{
    struct gateway *g = user;
    const struct http1_head *head = http_exchange_head(ex);
    struct request *r = calloc(1, sizeof(*r));

    if (!r) {
        http_exchange_abort(ex);
        return;
    }
    r->g = g;
    r->ex = ex;
    r->n_refs = 1;
    r->began_ns = time_mono_ns();
    r->count_route = COUNT_ROUTE_NONE;
    r->began_at = uv_now(g->opts.loop);
    r->give_up_at = r->began_at + g->opts.wait_ms;
    r->next = g->requests;
    if (r->next)
        r->next->prev = r;
    g->requests = r;
    request_id_get(&g->ids, head, r->request_id);
    answer_fields_set(r);
    http_exchange_begin(ex, &own_events, r);
    if (slice_eq_str(head->method, "OPTIONS")) {
        answer_options(r);
    } else if (slice_eq_str(head->method, "CONNECT")) {
        answer_error(r, 405, -1, "CONNECT is not for this service");
    } else {
        route_decide(head, g->opts.domain, &r->route);
        request_set_route(r);
        request_step(r);
    }
}
