/* pause.c - the gateway's part of a pause, and traffic that ends one (e2b.md 2.4).
 *
 * Hold: the row is `pausing`. Requests that come wait for control's next word about it. Of those in flight
 * streams are broken off at once, without a last chunk, so that nobody takes them for complete; the others
 * get a while to end. When nothing of this gateway reaches into the sandbox any more, control hears it.
 *
 * Wake: control is asked once for each sandbox, whoever shows the credential first; the others wait with it, and each of
 * them has the same time from its beginning, whoever asked and through which gateway. While control or the engine is
 * away, it is asked again.
 */
#include "gateway/internal.h"

#include "base/log.h"
#include "base/str.h"
#include "e2b/errors.h"
#include "e2b/tokens.h"

#define WAKE_MS 20000u
#define ASK_AGAIN_MS 500u
#define ASK_MIN_MS 1000u /* for one that has waited for another's wake in vain */

struct hold {
    struct wait wait; /* when requests in flight have had their time */
    struct row *row;
    uint64_t seq;
    uint64_t link; /* generation of the connection that it came over */
};

static const char text_no_resume[] = "This sandbox can't be resumed with the credentials provided. "
                                     "Check your access token and try again.";

/* --- hold ---------------------------------------------------------------------------------------- */

static void send_done(struct gateway *g, uint64_t seq, uint64_t link)
{
    struct ipc_conn *conn = g->control ? ipc_client_conn(g->control) : NULL;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    Abx__Ipc__HoldDone done = ABX__IPC__HOLD_DONE__INIT;

    if (!conn || link != g->table.generation)
        return; /* a control that has restarted asks anew */
    frame.body_case = ABX__IPC__FRAME__BODY_HOLD_DONE;
    frame.hold_done = &done;
    (void)ipc_conn_reply(conn, seq, &frame, NULL);
}

void gateway_hold_check(struct gateway *g, struct row *row)
{
    struct hold *h = row->hold;

    if (row->is_in_table && row->state == ROW_PAUSING && row->n_active > 0)
        return;
    row->hold = NULL;
    wait_stop(&h->wait);
    send_done(g, h->seq, h->link);
    free(h);
}

void gateway_break_off(struct row *row, bool streams_only)
{
    for (struct request *r = row->active; r; r = r->row_next)
        if (r->is_stream || !streams_only)
            http_conn_abort(r->conn);
}

static void on_drained(struct wait *w)
{
    struct hold *h = container_of(w, struct hold, wait);

    /* Its end follows from the loop: gateway_hold_check. */
    log_info("requests are broken off by a pause", "id", h->row->id, NULL);
    gateway_break_off(h->row, false);
}

void gateway_hold(struct gateway *g, const char *id, uint32_t drain_ms, uint64_t seq)
{
    struct row *row = table_find(&g->table, id);
    struct hold *h;

    if (!row) {
        send_done(g, seq, g->table.generation);
        return;
    }
    row->state = ROW_PAUSING;
    if (row->hold) { /* control has restarted meanwhile */
        row->hold->seq = seq;
        row->hold->link = g->table.generation;
        return;
    }
    h = calloc(1, sizeof(*h));
    if (!h) { /* nothing of it may go on; control does not hear and disconnects us */
        gateway_break_off(row, false);
        return;
    }
    *h = (struct hold){ .row = row, .seq = seq, .link = g->table.generation };
    row->hold = h;
    wait_start(&g->waits, &h->wait, drain_ms, on_drained);
    gateway_break_off(row, true);
    row->n_active++; /* stays whatever those that wait do */
    upstream_clear(row, ABX_UNAVAILABLE);
    row->n_active--;
    if (row->hold)
        gateway_hold_check(g, row);
}

/* --- wake ---------------------------------------------------------------------------------------- */

/* envd asks for its token, or for a signature of it that has not expired; other ports for the traffic token, if there is one. */
static bool may_wake(const struct request *r, const struct row *row)
{
    const struct http1_head *head = http_exchange_head(r->ex);
    struct route_proof proof;

    if (r->route.port != ENVD_PORT)
        return !*row->traffic_token ||
               token_equal(http1_head_value(head, "e2b-traffic-access-token"),
                           slice_str(row->traffic_token));
    if (!*row->access_token)
        return true;
    route_proof_read(head, &proof);
    return route_proof_matches(&proof, slice_str(row->access_token)) &&
           !route_proof_is_expired(&proof, time_wall_ms() / 1000);
}

/* A role that restarts, or what comes and goes: nothing was done, and another try may go well. */
static bool may_ask_again(const struct request *r, const struct abx_err *failure)
{
    return failure->code == ABX_UNAVAILABLE && failure->reason == ABX_REASON_NONE &&
           request_time_left(r) > 0;
}

static void put_off(struct request *r, struct row *row)
{
    row->wake_at = uv_now(r->g->opts.loop) + ASK_AGAIN_MS;
}

/* The request that asked; it may have lost its client by the time of the answer. */
static void on_woken(void *user, const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                     int *fds, size_t n_fds)
{
    struct request *r = user;
    struct row *row = table_find(&r->g->table, r->route.id);
    struct gateway *g = r->g;
    char id[SANDBOX_ID_SIZE];

    (void)reply;
    (void)fds;
    (void)n_fds;
    memcpy(id, r->route.id, sizeof(id)); /* it may be freed */
    if (row)
        row->is_waking = false;
    if (r->ex) {
        r->n_refs--;
        r->state = REQUEST_NEW;
        if (failure && row && may_ask_again(r, failure))
            put_off(r, row);
        if (!failure || may_ask_again(r, failure))
            request_step(r);
        else if (failure->code == ABX_NOT_FOUND)
            answer_gone(r);
        else if (failure->reason == ABX_REASON_RATE_LIMITED)
            answer_sandbox_error(r, 429, 0, failure->msg);
        else if (failure->code == ABX_UNAVAILABLE || failure->code == ABX_DEADLINE_EXCEEDED)
            answer_sandbox_error(r, 503, 1, failure->msg);
        else if (failure->reason == ABX_REASON_SAVED_STATE)
            answer_sandbox_error(r, 410, 0, failure->msg);
        else
            answer_sandbox_error(r, 409, -1, E2B_TEXT_TRANSITION);
    } else {
        request_unref(r);
    }
    requests_wake_sandbox(g, id); /* those that waited with it; one of them asks again if need be */
}

static void grant_time(struct request *r)
{
    r->give_up_at = MAX(r->give_up_at, r->began_at + WAKE_MS);
}

void request_wait_wake(struct request *r, struct row *row)
{
    if (row->auto_resume && may_wake(r, row))
        grant_time(r);
    request_wait(r);
}

void request_wake(struct request *r, struct row *row)
{
    struct ipc_conn *conn = r->g->control ? ipc_client_conn(r->g->control) : NULL;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    Abx__Ipc__Wake wake = ABX__IPC__WAKE__INIT;
    uint64_t now = uv_now(r->g->opts.loop);
    int ms;

    if (!row->auto_resume) {
        answer_gone(r);
        return;
    }
    if (!may_wake(r, row)) {
        answer_sandbox_error(r, 403, -1, text_no_resume);
        return;
    }
    grant_time(r);
    if (row->is_waking || !conn || (row->wake_at > now && request_time_left(r) == 0)) {
        request_wait(r);
        return;
    }
    if (row->wake_at > now) {
        request_pause(r, row->wake_at - now);
        return;
    }
    wake.sandbox_id = row->id;
    frame.request_id = r->request_id;
    frame.body_case = ABX__IPC__FRAME__BODY_WAKE;
    frame.wake = &wake;
    ms = (int)MAX(request_time_left(r), (uint64_t)ASK_MIN_MS);
    if (ipc_conn_request(conn, &frame, ms, on_woken, r, NULL) < 0) {
        put_off(r, row);
        request_pause(r, ASK_AGAIN_MS);
        return;
    }
    row->is_waking = true;
    r->n_refs++;
    r->state = REQUEST_ASK;
}
