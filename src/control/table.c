/* table.c - see table.h. */
#include "control/table.h"

#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "control/create_network.h"
#include "control/lifecycle.h"
#include "control/table_network.h"
#include "e2b/tokens.h"
#include "net/ipc.h"

#define SYNC_CHUNK 256 /* entries per turn of the loop */
#define SYNC_RETRY_MS 5

struct gateway {
    struct gateway *next;
    uint64_t number; /* never used again */
    struct table *table;
    struct ipc_conn *conn; /* NULL once it is closed */
    uv_timer_t timer;      /* the next part of the first copy */
    uint64_t sent;         /* number of the last sandbox of the first copy */
    bool is_synced;
    bool has_greeted;
    bool is_egress;
};

/* One removal or hold; freed with its last answer. */
struct order {
    struct table *table;
    bool is_hold;
    unsigned n_waiting;
    char id[SANDBOX_ID_SIZE];
};

/* The same at one gateway. */
struct order_one {
    struct order *order;
    struct ipc_conn *conn; /* to be disconnected when it does not answer */
};

/* A gateway's wish that a sandbox be woken; it may be gone when that is done. */
struct wake {
    struct table *table;
    uint64_t gateway;
    uint64_t seq;
    char id[SANDBOX_ID_SIZE];
};

struct table {
    struct ipc_listener *listeners[TABLE_KINDS_];
    struct lifecycle *lifecycle;
    const uint8_t *seed;
    uv_loop_t *loop;
    struct gateway *gateways;
    size_t n_gateways; /* with egress */
    size_t n_egress;
    uint64_t last_gateway;
    size_t max_active; /* of a team, for what is woken */
    char instance[40];
    table_log_fn on_log;
    void *log_user;
    bool is_closing;
};

static char *text(const char *s)
{
    return (char *)(uintptr_t)(s ? s : "");
}

/* --- entries ----------------------------------------------------------------------------------- */

struct entry_text {
    char access[TOKEN_SIZE];
    char traffic[TOKEN_SIZE];
    uint32_t https_ports[HTTPS_PORTS_MAX];
};

static void fill_state(const struct sandbox *sb, Abx__Ipc__Entry *e)
{
    static const Abx__Ipc__Entry__State states[SANDBOX_STATES_] = {
        [SANDBOX_WRITING] = ABX__IPC__ENTRY__STATE__CREATING,
        [SANDBOX_STARTING] = ABX__IPC__ENTRY__STATE__CREATING,
        [SANDBOX_COMMITTING] = ABX__IPC__ENTRY__STATE__CREATING,
        [SANDBOX_RUNNING] = ABX__IPC__ENTRY__STATE__RUNNING,
        [SANDBOX_COPYING] = ABX__IPC__ENTRY__STATE__RUNNING,
        [SANDBOX_CHECKING] = ABX__IPC__ENTRY__STATE__RUNNING,
        [SANDBOX_DRAINING] = ABX__IPC__ENTRY__STATE__PAUSING,
        [SANDBOX_FREEZING] = ABX__IPC__ENTRY__STATE__PAUSING,
        [SANDBOX_SAVING] = ABX__IPC__ENTRY__STATE__PAUSING,
        [SANDBOX_STOPPING] = ABX__IPC__ENTRY__STATE__PAUSING,
        [SANDBOX_PAUSED] = ABX__IPC__ENTRY__STATE__PAUSED,
        [SANDBOX_WAKING] = ABX__IPC__ENTRY__STATE__PAUSING,
        [SANDBOX_RESUMING] = ABX__IPC__ENTRY__STATE__PAUSING,
        [SANDBOX_THAWING] = ABX__IPC__ENTRY__STATE__PAUSING,
        [SANDBOX_FETCHING] = ABX__IPC__ENTRY__STATE__RUNNING,
        [SANDBOX_CLEARING] = ABX__IPC__ENTRY__STATE__PAUSING,
        [SANDBOX_HALTING] = ABX__IPC__ENTRY__STATE__PAUSING,
        [SANDBOX_NOTING] = ABX__IPC__ENTRY__STATE__PAUSING,
        [SANDBOX_EXCHANGING] = ABX__IPC__ENTRY__STATE__PAUSING,
        [SANDBOX_ENDING] = ABX__IPC__ENTRY__STATE__PAUSING,
        [SANDBOX_RESTARTING] = ABX__IPC__ENTRY__STATE__PAUSING,
        [SANDBOX_SETTLING] = ABX__IPC__ENTRY__STATE__PAUSING,
        [SANDBOX_FETCHING_PAUSED] = ABX__IPC__ENTRY__STATE__PAUSED,
        [SANDBOX_NOTING_PAUSED] = ABX__IPC__ENTRY__STATE__PAUSING,
        [SANDBOX_EXCHANGING_PAUSED] = ABX__IPC__ENTRY__STATE__PAUSING,
        [SANDBOX_ENDING_PAUSED] = ABX__IPC__ENTRY__STATE__PAUSING,
        [SANDBOX_PARKING] = ABX__IPC__ENTRY__STATE__PAUSING,
        [SANDBOX_KILLING] = ABX__IPC__ENTRY__STATE__KILLING,
        [SANDBOX_REMOVING] = ABX__IPC__ENTRY__STATE__KILLING,
        [SANDBOX_GONE] = ABX__IPC__ENTRY__STATE__KILLING,
    };

    abx__ipc__entry__init(e);
    e->sandbox_id = text(sb->id);
    e->state = states[sb->state];
}

/* Fills `e`; its strings lie in `sb` and `t`. */
static void fill_entry(const struct table *table, const struct sandbox *sb, struct entry_text *t,
                       Abx__Ipc__Entry *e)
{
    const json_t *network = json_object_get(sb->config, "network");
    const json_t *ports = json_object_get(network, "httpsPorts"), *port;
    size_t i;

    fill_state(sb, e);
    e->team = text(sb->team);
    e->auto_resume = sandbox_wakes_itself(sb) &&
                     (e->state != ABX__IPC__ENTRY__STATE__PAUSED || sb->keeps_memory);
    e->key_id = text(json_string_value(json_object_get(sb->config, "key")));
    e->mask_request_host = text(json_string_value(json_object_get(network, "maskRequestHost")));
    json_array_foreach(ports, i, port)
    {
        if (e->n_https_ports < HTTPS_PORTS_MAX)
            t->https_ports[e->n_https_ports++] = (uint32_t)json_integer_value(port);
    }
    e->https_ports = t->https_ports;
    if (sb->is_secure) {
        access_token_make(table->seed, sb->id, t->access);
        e->access_token = t->access;
    }
    if (sb->is_traffic_private) {
        traffic_token_make(table->seed, sb->id, t->traffic);
        e->traffic_token = t->traffic;
    }
}

/* Egress has no use for tokens. With `done` as a request. */
static int send_rules(struct gateway *g, const struct sandbox *sb, ipc_done_fn done, void *user,
                      struct abx_err *err)
{
    _cleanup_(network_message_done) struct network_message network;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    Abx__Ipc__Entry e;
    int r = network_message_init(&network, sb->config, err);

    if (r < 0)
        return r;
    fill_state(sb, &e);
    e.network = &network.body;
    frame.body_case = ABX__IPC__FRAME__BODY_ENTRY;
    frame.entry = &e;
    return done ? ipc_conn_request(g->conn, &frame, TABLE_DROP_MS, done, user, err)
                : ipc_conn_send(g->conn, &frame, NULL, 0, err);
}

static int send_entry(struct gateway *g, const struct sandbox *sb, struct abx_err *err)
{
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    struct entry_text t;
    Abx__Ipc__Entry e;

    if (g->is_egress)
        return send_rules(g, sb, NULL, NULL, err);
    fill_entry(g->table, sb, &t, &e);
    frame.body_case = ABX__IPC__FRAME__BODY_ENTRY;
    frame.entry = &e;
    return ipc_conn_send(g->conn, &frame, NULL, 0, err);
}

/* A gateway that cannot take what it needs gets a new connection and a fresh table. */
static void give_up(struct gateway *g, const char *what, const struct abx_err *why)
{
    /* One that is gone by itself has its end told by on_close. */
    if (why->sys != EPIPE && why->sys != ECONNRESET)
        log_warn("gateway is disconnected", "at", what, "error", why->msg, NULL);
    if (g->conn)
        ipc_conn_close(g->conn);
}

/* --- the first copy ---------------------------------------------------------------------------- */

static void on_sync(uv_timer_t *timer)
{
    struct gateway *g = container_of(timer, struct gateway, timer);
    Abx__Ipc__TableSynced synced = ABX__IPC__TABLE_SYNCED__INIT;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    struct sandbox *sb = lifecycle_after(g->table->lifecycle, g->sent);
    struct abx_err err = { 0 };
    int r = 0;

    if (!g->conn)
        return;
    for (unsigned i = 0; sb && i < SYNC_CHUNK && r == 0;
         sb = lifecycle_next(g->table->lifecycle, sb), i++) {
        if (sandbox_is_visible(sb))
            r = send_entry(g, sb, &err);
        if (r == 0)
            g->sent = sb->number;
    }
    if (r == 0 && !sb) {
        frame.body_case = ABX__IPC__FRAME__BODY_TABLE_SYNCED;
        frame.table_synced = &synced;
        r = ipc_conn_send(g->conn, &frame, NULL, 0, &err);
        g->is_synced = r == 0;
    }
    if (r < 0 && err.code != ABX_RESOURCE_EXHAUSTED)
        give_up(g, "first copy", &err);
    else if (!g->is_synced)
        /* A full queue: the gateway has to read first. */
        (void)uv_timer_start(&g->timer, on_sync, r < 0 ? SYNC_RETRY_MS : 0, 0);
}

/* --- frames of gateways ------------------------------------------------------------------------ */

static void greet(struct gateway *g, uint64_t seq)
{
    Abx__Ipc__HelloReply hello = ABX__IPC__HELLO_REPLY__INIT;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    struct abx_err err = { 0 };

    hello.release = text(ABX_VERSION);
    hello.instance = g->table->instance;
    frame.body_case = ABX__IPC__FRAME__BODY_HELLO_REPLY;
    frame.hello_reply = &hello;
    if (ipc_conn_reply(g->conn, seq, &frame, &err) < 0) {
        give_up(g, "hello", &err);
        return;
    }
    if (!g->has_greeted)
        (void)uv_timer_start(&g->timer, on_sync, 0, 0);
    g->has_greeted = true;
}

static void look_up(struct gateway *g, uint64_t seq, const char *id)
{
    struct sandbox *sb = lifecycle_find(g->table->lifecycle, id);
    Abx__Ipc__LookupReply reply = ABX__IPC__LOOKUP_REPLY__INIT;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    struct abx_err err = { 0 };
    struct entry_text t;
    Abx__Ipc__Entry e;

    if (sb) {
        fill_entry(g->table, sb, &t, &e);
        sb->is_known = true;
        reply.found = true;
        reply.entry = &e;
    }
    frame.body_case = ABX__IPC__FRAME__BODY_LOOKUP_REPLY;
    frame.lookup_reply = &reply;
    if (ipc_conn_reply(g->conn, seq, &frame, &err) < 0)
        give_up(g, "lookup", &err);
}

static struct gateway *gateway_find(const struct table *t, uint64_t number)
{
    struct gateway *g = t->gateways;

    while (g && g->number != number)
        g = g->next;
    return g;
}

static void on_woken(void *user, int status, const struct abx_err *failure)
{
    struct wake *w = user;
    struct gateway *g = gateway_find(w->table, w->gateway);
    const struct sandbox *sb = lifecycle_find(w->table->lifecycle, w->id);
    Abx__Ipc__WakeReply reply = ABX__IPC__WAKE_REPLY__INIT;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    struct abx_err err = { 0 }, gone;

    (void)status;
    if (failure && (!sb || !sandbox_is_visible(sb))) {
        (void)err_set(&gone, ABX_NOT_FOUND, "%s", failure->msg);
        failure = &gone;
    }
    frame.body_case = ABX__IPC__FRAME__BODY_WAKE_REPLY;
    frame.wake_reply = &reply;
    if (g && g->conn &&
        (failure ? ipc_conn_reply_error(g->conn, w->seq, failure, &err)
                 : ipc_conn_reply(g->conn, w->seq, &frame, &err)) < 0)
        give_up(g, "wake", &err);
    free(w);
}

/* The gateway has seen the credential; whether it may be woken at all is asked here once more. While the driver is away it
 * asks twice a second: nothing that all would be told of is begun then. */
static void wake(struct gateway *g, uint64_t seq, const char *id)
{
    struct lifecycle *l = g->table->lifecycle;
    struct sandbox *sb = lifecycle_find(l, id);
    struct sandbox_request request = { .what = EV_CONNECT,
                                       .timeout_ms = TABLE_WAKE_MS,
                                       .max_active = g->table->max_active };
    struct wake *w = calloc(1, sizeof(*w));
    struct abx_err err = { 0 };
    int r = 0;

    if (!w)
        r = err_oom(&err);
    else if (sb && !sandbox_wakes_itself(sb))
        r = err_set(&err, ABX_NOT_FOUND, "traffic does not wake sandbox '%s'", id);
    else if (sb && sb->state == SANDBOX_PAUSED && !lifecycle_has_driver(l))
        r = err_set(&err, ABX_UNAVAILABLE, "Sandbox \"%s\" cannot be resumed: the engine is away",
                    id);
    if (r == 0) {
        *w = (struct wake){ g->table, g->number, seq, "" };
        (void)snprintf(w->id, sizeof w->id, "%s", id);
        r = lifecycle_request(l, id, &request, on_woken, w, &err);
    }
    if (r == 0)
        return;
    free(w);
    if (ipc_conn_reply_error(g->conn, seq, &err, NULL) < 0)
        give_up(g, "wake", &err);
}

static void on_frame(void *user, struct ipc_conn *c, const Abx__Ipc__Frame *frame, int *fds,
                     size_t n_fds)
{
    struct gateway *g = user;
    struct abx_err err;

    (void)fds;
    (void)n_fds;
    if (frame->body_case == ABX__IPC__FRAME__BODY_HELLO) {
        greet(g, frame->seq);
    } else if (frame->body_case == ABX__IPC__FRAME__BODY_LOOKUP && !g->is_egress) {
        look_up(g, frame->seq, frame->lookup->sandbox_id);
    } else if (frame->body_case == ABX__IPC__FRAME__BODY_WAKE && !g->is_egress) {
        wake(g, frame->seq, frame->wake->sandbox_id);
    } else if (frame->body_case == ABX__IPC__FRAME__BODY_LOG && g->is_egress) {
        if (g->table->on_log)
            g->table->on_log(g->table->log_user, frame->log);
    } else {
        (void)err_set(&err, ABX_PERMISSION_DENIED, "not a message of %s",
                      g->is_egress ? "egress" : "a gateway");
        (void)ipc_conn_reply_error(c, frame->seq, &err, NULL);
    }
}

static void on_timer_closed(uv_handle_t *h)
{
    free(container_of((uv_timer_t *)(void *)h, struct gateway, timer));
}

/* The table goes with its last gateway. */
static void table_unuse(struct table *t)
{
    if (t->is_closing && t->n_gateways == 0)
        free(t);
}

static void on_close(void *user, struct ipc_conn *c, const struct abx_err *why)
{
    struct gateway *g = user, **at = &g->table->gateways;
    struct table *t = g->table;

    (void)c;
    if (why->code != 0)
        log_warn("gateway's connection ended", "error", why->msg, NULL);
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    t->n_gateways--;
    t->n_egress -= g->is_egress;
    g->conn = NULL;
    uv_close((uv_handle_t *)&g->timer, on_timer_closed);
    table_unuse(t);
}

static void add_peer(struct table *t, int fd, bool is_egress)
{
    struct gateway *g = calloc(1, sizeof(*g));
    struct ipc_handlers handlers = { on_frame, on_close, g };
    struct abx_err err = { 0 };

    if (!g) {
        fd_close(fd);
        return;
    }
    g->table = t;
    g->is_egress = is_egress;
    if (ipc_conn_new(t->loop, fd, &handlers, &g->conn, &err) < 0) {
        log_err("gateway cannot be accepted", &err);
        free(g);
        return;
    }
    (void)uv_timer_init(t->loop, &g->timer);
    g->number = ++t->last_gateway;
    g->next = t->gateways;
    t->gateways = g;
    t->n_gateways++;
    t->n_egress += is_egress;
}

static void on_gateway(void *user, int fd, const struct ucred *peer)
{
    (void)peer;
    add_peer(user, fd, false);
}

static void on_egress(void *user, int fd, const struct ucred *peer)
{
    (void)peer;
    add_peer(user, fd, true);
}

/* --- public ------------------------------------------------------------------------------------ */

int table_new(uv_loop_t *loop, const char *instance, struct lifecycle *lifecycle,
              const uint8_t *seed, size_t max_active, struct table **ret, struct abx_err *err)
{
    struct table *t = calloc(1, sizeof(*t));

    if (!t)
        return err_oom(err);
    t->loop = loop;
    t->lifecycle = lifecycle;
    t->seed = seed;
    t->max_active = max_active;
    (void)snprintf(t->instance, sizeof t->instance, "%s", instance);
    *ret = t;
    return 0;
}

void table_set_log(struct table *t, table_log_fn on_log, void *user)
{
    t->on_log = on_log;
    t->log_user = user;
}

int table_listen(struct table *t, int fd, const uid_t *uids, size_t n_uids, enum table_kind kind,
                 struct abx_err *err)
{
    return ipc_listener_new(t->loop, fd, uids, n_uids,
                            kind == TABLE_FOR_EGRESS ? on_egress : on_gateway, t,
                            &t->listeners[kind], err);
}

void table_close(struct table *t)
{
    if (!t)
        return;
    t->is_closing = true;
    for (size_t i = 0; i < TABLE_KINDS_; i++)
        if (t->listeners[i])
            ipc_listener_free(t->listeners[i]);
    for (struct gateway *g = t->gateways; g; g = g->next)
        ipc_conn_close(g->conn);
    table_unuse(t);
}

void table_put(struct table *t, const struct sandbox *sb)
{
    struct abx_err err = { 0 };

    for (struct gateway *g = t->gateways; g; g = g->next)
        if (g->has_greeted && send_entry(g, sb, &err) < 0)
            give_up(g, "entry", &err);
}

struct confirmation {
    void (*done)(void *user);
    void *user;
    unsigned n_waiting;
};

static void confirmation_end(struct confirmation *x)
{
    if (--x->n_waiting > 0)
        return;
    x->done(x->user);
    free(x);
}

struct confirmation_one {
    struct confirmation *all;
    struct ipc_conn *conn;
};

static void on_confirmed(void *user, const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                         int *fds, size_t n_fds)
{
    struct confirmation_one *one = user;

    (void)reply;
    (void)fds;
    (void)n_fds;
    if (failure && failure->code == ABX_DEADLINE_EXCEEDED) {
        log_warn("egress does not take rules in time: disconnected", NULL);
        ipc_conn_close(one->conn);
    }
    confirmation_end(one->all);
    free(one);
}

void table_confirm(struct table *t, const struct sandbox *sb, void (*done)(void *user), void *user)
{
    struct confirmation *x = calloc(1, sizeof(*x));
    struct abx_err err = { 0 };

    if (!x) {
        done(user);
        return;
    }
    *x = (struct confirmation){ done, user, 1 };
    for (struct gateway *g = t->gateways; g; g = g->next) {
        struct confirmation_one *one;

        if (!g->is_egress || !g->has_greeted)
            continue;
        one = calloc(1, sizeof(*one));
        if (!one) {
            (void)err_oom(&err);
            give_up(g, "rules", &err);
            continue;
        }
        *one = (struct confirmation_one){ x, g->conn };
        if (send_rules(g, sb, on_confirmed, one, &err) == 0) {
            x->n_waiting++;
            continue;
        }
        give_up(g, "rules", &err);
        free(one);
    }
    confirmation_end(x);
}

static void order_done(struct order *o)
{
    if (--o->n_waiting > 0)
        return;
    if (o->is_hold)
        lifecycle_held(o->table->lifecycle, o->id);
    else
        lifecycle_told(o->table->lifecycle, o->id);
    free(o);
}

static void on_ordered(void *user, const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                       int *fds, size_t n_fds)
{
    struct order_one *one = user;

    (void)reply;
    (void)fds;
    (void)n_fds;
    if (failure && failure->code == ABX_DEADLINE_EXCEEDED) {
        log_warn("gateway does not let go of a sandbox in time: disconnected", "id", one->order->id,
                 NULL);
        ipc_conn_close(one->conn);
    }
    order_done(one->order);
    free(one);
}

static bool order_at(struct order *o, struct gateway *g)
{
    Abx__Ipc__Remove remove = ABX__IPC__REMOVE__INIT;
    Abx__Ipc__Hold hold = ABX__IPC__HOLD__INIT;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    struct order_one *one = malloc(sizeof(*one));
    struct abx_err err = { 0 };

    if (o->is_hold) {
        hold.sandbox_id = o->id;
        hold.drain_ms = TABLE_DRAIN_MS;
        frame.body_case = ABX__IPC__FRAME__BODY_HOLD;
        frame.hold = &hold;
    } else {
        remove.sandbox_id = o->id;
        frame.body_case = ABX__IPC__FRAME__BODY_REMOVE;
        frame.remove = &remove;
    }
    if (one) {
        *one = (struct order_one){ o, g->conn };
        if (ipc_conn_request(g->conn, &frame, o->is_hold ? TABLE_HOLD_MS : TABLE_DROP_MS,
                             on_ordered, one, &err) == 0)
            return true;
    } else {
        (void)err_oom(&err);
    }
    give_up(g, "order", &err);
    free(one);
    return false;
}

static bool order_all(struct table *t, const char *id, bool is_hold)
{
    struct order *o = NULL;

    for (struct gateway *g = t->gateways; g; g = g->next) {
        if (is_hold && g->is_egress) /* what a frozen sandbox has open outside stays open */
            continue;
        if (!o) {
            o = calloc(1, sizeof(*o));
            if (!o) {
                struct abx_err err;

                (void)err_oom(&err);
                give_up(g, "order", &err);
                continue;
            }
            o->table = t;
            o->is_hold = is_hold;
            (void)snprintf(o->id, sizeof o->id, "%s", id);
        }
        if (order_at(o, g))
            o->n_waiting++;
    }
    if (o && o->n_waiting > 0)
        return true;
    free(o);
    return false;
}

struct check {
    void (*done)(void *user, const struct abx_err *failure);
    void *user;
};

static void on_checked(void *user, const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                       int *fds, size_t n_fds)
{
    struct check *k = user;

    (void)reply;
    (void)fds;
    (void)n_fds;
    k->done(k->user, failure);
    free(k);
}

int table_check(struct table *t, const char *id,
                void (*done)(void *user, const struct abx_err *failure), void *user,
                struct abx_err *err)
{
    Abx__Ipc__Health health = ABX__IPC__HEALTH__INIT;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    struct gateway *g = t->gateways;
    struct check *k;
    int r;

    while (g && (g->is_egress || !g->has_greeted || !g->conn))
        g = g->next;
    if (!g)
        return err_set(err, ABX_UNAVAILABLE, "there is no gateway that could ask it");
    k = calloc(1, sizeof(*k));
    if (!k)
        return err_oom(err);
    *k = (struct check){ done, user };
    health.sandbox_id = text(id);
    health.timeout_ms = TABLE_HEALTH_MS;
    frame.body_case = ABX__IPC__FRAME__BODY_HEALTH;
    frame.health = &health;
    r = ipc_conn_request(g->conn, &frame, TABLE_HEALTH_MS + 1000, on_checked, k, err);
    if (r < 0)
        free(k);
    return r;
}

bool table_drop(struct table *t, const char *id)
{
    return order_all(t, id, false);
}

bool table_hold(struct table *t, const char *id)
{
    return order_all(t, id, true);
}

size_t table_gateways(const struct table *t)
{
    return t->n_gateways - t->n_egress;
}
