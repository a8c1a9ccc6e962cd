/* health.c - does a sandbox's daemon answer? Control asks it of one gateway before a pause that wants a healthy guest.
 *
 * A check is a socket from the engine and one GET /health on it, both within the time that control gave. The head of the
 * answer is all that counts: what follows is not read. It goes on a connection of its own, in no stock and no row: what a
 * sandbox's other requests do has no part in it. Control's answer goes out once, from here.
 */
#include "gateway/internal.h"

#include "base/str.h"
#include "e2b/hosts.h"

#define TIMEOUT_MAX_MS 10000u

struct check {
    struct check *prev, *next; /* of the gateway's */
    struct gateway *g;
    struct wait wait;       /* its deadline */
    struct http_conn *conn; /* NULL until the engine has answered */
    uint64_t seq;
    uint64_t link; /* generation of the connection that it came over */
    uint32_t timeout_ms;
    int status;       /* of the daemon's answer, 0 = none */
    bool is_asking;   /* the engine has it: frees it when it answers */
    bool is_answered; /* control has its answer, or is not there any more */
};

static void check_free(struct check *k)
{
    if (k->prev)
        k->prev->next = k->next;
    else
        k->g->checks = k->next;
    if (k->next)
        k->next->prev = k->prev;
    free(k);
}

/* Nothing of it goes on; it is freed unless the engine has it. */
static void check_stop(struct check *k)
{
    wait_stop(&k->wait);
    http_conn_free(TAKE_PTR(k->conn));
    k->is_answered = true;
    if (!k->is_asking)
        check_free(k);
}

/* `failure` NULL: the daemon is well. */
static void check_end(struct check *k, const struct abx_err *failure)
{
    struct gateway *g = k->g;
    struct ipc_conn *conn = g->control ? ipc_client_conn(g->control) : NULL;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    Abx__Ipc__HealthReply reply = ABX__IPC__HEALTH_REPLY__INIT;

    frame.body_case = ABX__IPC__FRAME__BODY_HEALTH_REPLY;
    frame.health_reply = &reply;
    /* Best effort: control's own deadline ends the question. */
    if (conn && k->link == g->table.generation)
        (void)(failure ? ipc_conn_reply_error(conn, k->seq, failure, NULL)
                       : ipc_conn_reply(conn, k->seq, &frame, NULL));
    check_stop(k);
}

static void check_judge(struct check *k, const struct abx_err *why)
{
    struct abx_err err;

    if (k->status == 204 || k->status == 200) {
        check_end(k, NULL);
        return;
    }
    if (k->status != 0)
        (void)err_set(&err, ABX_UNAVAILABLE, "it answers with status %d", k->status);
    else
        err = *why;
    check_end(k, &err);
}

static void on_late(struct wait *w)
{
    struct check *k = container_of(w, struct check, wait);
    struct abx_err err;

    (void)err_set(&err, ABX_DEADLINE_EXCEEDED, "it does not answer within %u ms",
                  (unsigned)k->timeout_ms);
    check_judge(k, &err);
}

static void on_head(void *user, struct http_conn *c, const struct http1_head *head)
{
    struct check *k = user;

    if (head->status >= 200) {
        k->status = head->status;
        http_conn_abort(c);
    }
}

static void on_body(void *user, struct http_conn *c, struct slice data, bool is_end)
{
    (void)user;
    (void)c;
    (void)data;
    (void)is_end;
}

static void on_writable(void *user, struct http_conn *c)
{
    (void)user;
    (void)c;
}

static void on_done(void *user, struct http_conn *c, const struct abx_err *err, bool is_reusable,
                    bool is_safe_to_retry)
{
    (void)c;
    (void)is_reusable;
    (void)is_safe_to_retry;
    check_judge(user, err);
}

static void ask_daemon(struct check *k, int fd)
{
    static const struct http_conn_events events = { on_head, on_body, on_writable, on_done };
    static const struct http1_field host = { SLICE_LIT("Host"), SLICE_LIT("localhost") };
    struct abx_err err;

    k->conn = upstream_connect(k->g, fd, ENVD_PORT, false, false);
    if (!k->conn) {
        (void)err_oom(&err);
        check_end(k, &err);
    } else if (http_conn_request(k->conn, SLICE_LIT("GET"), SLICE_LIT("/health"), &host, 1, 0,
                                 &events, k, &err) < 0) {
        check_end(k, &err);
    } else {
        http_conn_end(k->conn);
    }
}

static void on_socket(void *user, const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                      int *fds, size_t n_fds)
{
    struct check *k = user;
    struct abx_err err;

    (void)reply;
    k->is_asking = false;
    if (k->is_answered) {
        check_free(k);
    } else if (failure) {
        check_end(k, failure);
    } else if (n_fds == 0) {
        (void)err_set(&err, ABX_RESOURCE_EXHAUSTED, "the engine's socket was lost on the way");
        check_end(k, &err);
    } else {
        ask_daemon(k, TAKE_FD(fds[0]));
    }
}

void gateway_check_health(struct gateway *g, const char *id, uint32_t timeout_ms, uint64_t seq)
{
    struct ipc_conn *conn = g->engine ? ipc_client_conn(g->engine) : NULL;
    struct check *k = calloc(1, sizeof(*k));
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    Abx__Ipc__Socket question = ABX__IPC__SOCKET__INIT;
    struct abx_err err = { 0 };
    int r;

    if (!k)
        return; /* control's deadline ends it */
    *k = (struct check){ .g = g,
                         .next = g->checks,
                         .seq = seq,
                         .link = g->table.generation,
                         .timeout_ms = MIN(timeout_ms, TIMEOUT_MAX_MS) };
    if (k->next)
        k->next->prev = k;
    g->checks = k;
    question.sandbox_id = (char *)(uintptr_t)id;
    question.port = ENVD_PORT;
    question.count = 1;
    frame.body_case = ABX__IPC__FRAME__BODY_SOCKET;
    frame.socket = &question;
    r = conn ? ipc_conn_request(conn, &frame, (int)k->timeout_ms, on_socket, k, &err)
             : err_set(&err, ABX_UNAVAILABLE, "the engine is being restarted");
    if (r < 0) {
        check_end(k, &err);
        return;
    }
    k->is_asking = true;
    wait_start(&g->waits, &k->wait, k->timeout_ms, on_late);
}

void gateway_checks_close(struct gateway *g)
{
    struct check *next;

    for (struct check *k = g->checks; k; k = next) {
        next = k->next;
        check_stop(k);
    }
}
