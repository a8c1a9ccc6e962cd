/* gateway.c - life of the gateway, its links to control and engine, rows coming and going. */
#include "gateway/gateway.h"

#include <assert.h>
#include <stdio.h>

#include "base/fd.h"
#include "base/log.h"
#include "gateway/internal.h"
#include "net/http2.h"
#include "net/tls.h"

#define DEFAULT_CONNECTIONS 10000
#define DEFAULT_SANDBOX_CONNECTIONS 1000
#define DEFAULT_WAIT_MS 5000u
#define CONTROL_IDLE_MAX 64
#define CONTROL_IDLE_MS 60000u
#define REFUSED_TELL_MS 10000u

/* --- rows -------------------------------------------------------------------------------------- */

static void send_remove_done(struct gateway *g, uint64_t seq, uint64_t link)
{
    struct ipc_conn *conn = g->control ? ipc_client_conn(g->control) : NULL;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    Abx__Ipc__RemoveDone done = ABX__IPC__REMOVE_DONE__INIT;

    if (!conn || link != g->table.generation)
        return; /* a control that has restarted asks anew */
    frame.body_case = ABX__IPC__FRAME__BODY_REMOVE_DONE;
    frame.remove_done = &done;
    (void)ipc_conn_reply(conn, seq, &frame, NULL);
}

static void row_release(struct gateway *g, struct row *row)
{
    if (row->hold)
        gateway_hold_check(g, row);
    if (row->is_in_table || row->n_active > 0)
        return;
    if (row->owes_done)
        send_remove_done(g, row->remove_seq, row->remove_link);
    table_row_free(row);
}

void gateway_enter_row(struct row *row, struct request *r)
{
    r->row = row;
    r->row_prev = NULL;
    r->row_next = row->active;
    if (r->row_next)
        r->row_next->row_prev = r;
    row->active = r;
    row->n_active++;
    row->key->n_active++;
}

void gateway_leave_row(struct request *r)
{
    struct row *row = TAKE_PTR(r->row);

    if (r->row_prev)
        r->row_prev->row_next = r->row_next;
    else
        row->active = r->row_next;
    if (r->row_next)
        r->row_next->row_prev = r->row_prev;
    r->row_prev = r->row_next = NULL;
    row->n_active--;
    row->key->n_active--;
    row_release(r->g, row);
}

void gateway_drop_row(struct gateway *g, struct row *row)
{
    table_take_out(&g->table, row);
    /* The relay resets clients whose answer has begun; the others are told what became of the
     * sandbox. */
    for (struct request *r = row->active; r; r = r->row_next)
        http_conn_abort(r->conn);
    row->n_active++; /* stays until here whatever those that wait do */
    upstream_clear(row, ABX_NOT_FOUND);
    row->n_active--;
    row_release(g, row);
}

/* --- control ----------------------------------------------------------------------------------- */

bool gateway_has_control(const struct gateway *g)
{
    return g->control && ipc_client_conn(g->control);
}

int gateway_lookup(struct gateway *g, const char *id, const char *request_id, int timeout_ms,
                   ipc_done_fn done, void *user)
{
    struct ipc_conn *conn = g->control ? ipc_client_conn(g->control) : NULL;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    Abx__Ipc__Lookup lookup = ABX__IPC__LOOKUP__INIT;

    if (!conn)
        return ABX_UNAVAILABLE;
    lookup.sandbox_id = (char *)(uintptr_t)id;
    frame.request_id = (char *)(uintptr_t)request_id;
    frame.body_case = ABX__IPC__FRAME__BODY_LOOKUP;
    frame.lookup = &lookup;
    return ipc_conn_request(conn, &frame, timeout_ms, done, user, NULL);
}

static void take_entry(struct gateway *g, const Abx__Ipc__Entry *entry)
{
    struct abx_err err = { 0 };
    struct row *row;

    if (table_put(&g->table, entry, &row, &err) < 0) {
        log_err("a row of the table was not taken", &err);
        return;
    }
    if (row->hold)
        gateway_hold_check(g, row);
    requests_wake_sandbox(g, entry->sandbox_id);
}

static void take_remove(struct gateway *g, const char *id, uint64_t seq)
{
    struct row *row = table_find(&g->table, id);

    if (!row) {
        send_remove_done(g, seq, g->table.generation);
        return;
    }
    row->owes_done = true;
    row->remove_seq = seq;
    row->remove_link = g->table.generation;
    gateway_drop_row(g, row);
    requests_wake_sandbox(g, id); /* those that waited for it ask control what became of it */
}

static bool find_old(void *user, struct row *row)
{
    struct gateway *g = user;

    if (row->generation != g->table.generation)
        gateway_drop_row(g, row);
    return true;
}

static void take_synced(struct gateway *g)
{
    g->table.is_synced = g->table.was_synced = true;
    table_each(&g->table, find_old, g);
    requests_wake(g);
}

static void on_control_frame(void *user, struct ipc_conn *c, const Abx__Ipc__Frame *f, int *fds,
                             size_t n_fds)
{
    (void)c;
    (void)fds;
    (void)n_fds;
    if (f->body_case == ABX__IPC__FRAME__BODY_ENTRY)
        take_entry(user, f->entry);
    else if (f->body_case == ABX__IPC__FRAME__BODY_REMOVE)
        take_remove(user, f->remove->sandbox_id, f->seq);
    else if (f->body_case == ABX__IPC__FRAME__BODY_HOLD)
        gateway_hold(user, f->hold->sandbox_id, f->hold->drain_ms, f->seq);
    else if (f->body_case == ABX__IPC__FRAME__BODY_HEALTH)
        gateway_check_health(user, f->health->sandbox_id, f->health->timeout_ms, f->seq);
    else if (f->body_case == ABX__IPC__FRAME__BODY_TABLE_SYNCED)
        take_synced(user);
}

static void on_control_up(void *user, struct ipc_conn *c, const Abx__Ipc__HelloReply *hello)
{
    struct gateway *g = user;

    (void)c;
    g->table.generation++;
    g->table.is_synced = false;
    log_info("connected to control", "release", hello->release, NULL);
    requests_wake(g);
}

static void on_control_down(void *user, const struct abx_err *why)
{
    struct gateway *g = user;

    g->table.is_synced = false;
    idle_pool_clear(&g->control_idle);
    log_warn("control is away", "why", why->msg, NULL);
}

/* --- engine ------------------------------------------------------------------------------------ */

static void on_engine_frame(void *user, struct ipc_conn *c, const Abx__Ipc__Frame *f, int *fds,
                            size_t n_fds)
{
    struct gateway *g = user;
    struct row *row;

    (void)c;
    (void)fds;
    (void)n_fds;
    if (f->body_case != ABX__IPC__FRAME__BODY_DIED)
        return;
    row = table_find(&g->table, f->died->sandbox_id);
    log_info("sandbox ended", "id", f->died->sandbox_id, "reason", f->died->reason, NULL);
    if (!row)
        return;
    gateway_drop_row(g, row); /* the next request asks control, and so does each that waits */
    requests_wake_sandbox(g, f->died->sandbox_id);
}

static void on_engine_up(void *user, struct ipc_conn *c, const Abx__Ipc__HelloReply *hello)
{
    (void)c;
    log_info("connected to the engine", "release", hello->release, NULL);
    requests_wake(user);
}

static void on_engine_down(void *user, const struct abx_err *why)
{
    (void)user;
    log_warn("the engine is away", "why", why->msg, NULL);
}

/* --- life -------------------------------------------------------------------------------------- */

/* A client that does this does it often: a line now and then, with what came since the last one. */
static void on_refused(void *user, const char *peer)
{
    struct gateway *g = user;
    uint64_t now = uv_now(g->opts.loop);
    char limit[24], refused[24];

    count_add(&g->opts.counters->limited[COUNT_LIMIT_CLIENT], 1);
    g->n_refused++;
    if (g->refused_told_at && now - g->refused_told_at < REFUSED_TELL_MS)
        return;
    (void)snprintf(limit, sizeof(limit), "%zu", g->opts.max_client_connections);
    (void)snprintf(refused, sizeof(refused), "%llu", (unsigned long long)g->n_refused);
    log_warn("connections refused: one client has as many as it may", "client", peer, "limit",
             limit, "refused", refused, NULL);
    g->n_refused = 0;
    g->refused_told_at = MAX(now, UINT64_C(1));
}

static int gateway_start(struct gateway *g, struct abx_err *err)
{
    const struct ipc_client_handlers control = { on_control_up, on_control_frame, on_control_down,
                                                 g };
    const struct ipc_client_handlers engine = { on_engine_up, on_engine_frame, on_engine_down, g };
    const struct http_server_opts opts = { .loop = g->opts.loop,
                                           .listen_fd = TAKE_FD(g->opts.listen_fd),
                                           .tls_listen_fd = g->opts.tls_listen_fd,
                                           .open_layer = g->opts.tls ? tls_server_open : NULL,
                                           .layer_user = g->opts.tls,
                                           .protocol = &http2_protocol,
                                           .max_connections = g->opts.max_connections,
                                           .max_peer_connections = g->opts.max_client_connections,
                                           .on_refused = on_refused,
                                           .n_connections = &g->opts.counters->connections,
                                           .n_accepted = &g->opts.counters->connections_total,
                                           .body_timeout_ms = STREAM_TIMEOUT_MS,
                                           .on_request = request_begin,
                                           .user = g };
    int r = http_server_new(&opts, &g->server, err);

    if (r == 0)
        r = table_init(&g->table, err);
    if (r == 0)
        r = ipc_client_new(g->opts.loop, g->opts.table_path, &control, &g->control, err);
    if (r == 0)
        r = ipc_client_new(g->opts.loop, g->opts.engine_path, &engine, &g->engine, err);
    return r;
}

int gateway_new(const struct gateway_opts *opts, struct gateway **ret, struct abx_err *err)
{
    struct gateway *g = calloc(1, sizeof(*g));
    int r;

    if (!g) {
        fd_close(opts->listen_fd);
        if (opts->tls)
            fd_close(opts->tls_listen_fd);
        return err_oom(err);
    }
    g->opts = *opts;
    if (g->opts.max_connections == 0)
        g->opts.max_connections = DEFAULT_CONNECTIONS;
    if (g->opts.max_client_connections == 0)
        g->opts.max_client_connections = MAX(g->opts.max_connections / 2, (size_t)1);
    if (g->opts.max_sandbox_connections == 0)
        g->opts.max_sandbox_connections = DEFAULT_SANDBOX_CONNECTIONS;
    if (g->opts.max_key_connections == 0)
        g->opts.max_key_connections = MAX(g->opts.max_connections / 2, (size_t)1);
    if (g->opts.wait_ms == 0)
        g->opts.wait_ms = DEFAULT_WAIT_MS;
    wait_list_init(&g->waits, g->opts.loop);
    g->idle_limit.max = g->opts.max_connections / 2 + CONTROL_IDLE_MAX;
    idle_pool_init(&g->control_idle, &g->waits, &g->idle_limit, CONTROL_IDLE_MAX, CONTROL_IDLE_MS);
    r = gateway_start(g, err);
    if (r < 0) {
        gateway_close(g);
        (void)uv_run(g->opts.loop, UV_RUN_DEFAULT);
        gateway_free(g);
        return r;
    }
    *ret = g;
    return 0;
}

void gateway_stop(struct gateway *g)
{
    http_server_stop(g->server);
}

static bool end_streams(void *user, struct row *row)
{
    (void)user;
    gateway_break_off(row, true);
    return true;
}

void gateway_end_streams(struct gateway *g)
{
    table_each(&g->table, end_streams, NULL);
}

size_t gateway_connections(const struct gateway *g)
{
    return http_server_connections(g->server);
}

static bool drop_each(void *user, struct row *row)
{
    gateway_drop_row(user, row);
    return true;
}

void gateway_close(struct gateway *g)
{
    if (g->is_closing)
        return;
    g->is_closing = true;
    http_server_free(g->server);
    g->server = NULL;
    if (g->table.buckets)
        table_each(&g->table, drop_each, g);
    idle_pool_clear(&g->control_idle);
    gateway_checks_close(g);
    if (g->control)
        ipc_client_free(g->control);
    if (g->engine)
        ipc_client_free(g->engine);
    g->control = g->engine = NULL;
    wait_list_close(&g->waits, NULL);
}

void gateway_free(struct gateway *g)
{
    assert(g->is_closing && !g->requests);
    table_done(&g->table);
    free(g);
}
