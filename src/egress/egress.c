/* egress.c - life of egress, its links to control and engine, sandboxes coming and going. See internal.h. */
#include "egress/egress.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "egress/internal.h"

#define TICK_MS 1000u
#define STEER_TIMEOUT_MS 10000
#define STEER_RETRY_MS 1000u
#define RESOLV_MAX 65536u
#define ROOTS_MAX (1u << 20)
#define DNS_PORT 53u

/* --- table -------------------------------------------------------------------------------------- */

static struct box **box_at(struct egress *e, const char *id)
{
    struct box **at = &e->boxes[str_hash(id) % BOX_BUCKETS];

    while (*at && strcmp((*at)->id, id) != 0)
        at = &(*at)->next;
    return at;
}

static void box_drop(struct egress *e, const char *id)
{
    struct box **at = box_at(e, id), *b = *at;

    if (!b)
        return;
    *at = b->next;
    e->n_boxes--;
    count_set(&e->opts.counters->sandboxes, e->n_boxes);
    box_free(b);
}

/* `fn` may drop the box. */
static void each_box(struct egress *e, void (*fn)(struct box *b))
{
    for (size_t i = 0; i < BOX_BUCKETS; i++) {
        struct box *next;

        for (struct box *b = e->boxes[i]; b; b = next) {
            next = b->next;
            fn(b);
        }
    }
}

/* --- engine ------------------------------------------------------------------------------------- */

struct asking {
    struct egress *egress;
    char id[SANDBOX_ID_SIZE];
};

/* A paused one may have no processes and no network: it is asked for when it runs again. An engine that has just started
 * may not know a running one yet. */
static void ask_later(struct box *b, const struct abx_err *failure)
{
    bool is_unknown = failure && failure->code == ABX_NOT_FOUND;

    if (is_unknown && b->is_paused)
        return;
    if (!is_unknown && !b->is_warned)
        log_warn("a sandbox has no network", "id", b->id, "why",
                 failure ? failure->msg : "the engine sent no sockets", NULL);
    b->is_warned |= !is_unknown;
    b->ask_at = uv_now(b->egress->opts.loop) + STEER_RETRY_MS;
}

static void on_steered(void *user, const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                       int *fds, size_t n_fds)
{
    struct asking *q = user;
    struct box *b = *box_at(q->egress, q->id);

    if (b)
        b->is_asking = false;
    if (b && !failure && reply->body_case == ABX__IPC__FRAME__BODY_STEER_REPLY &&
        n_fds >= BOX_FDS - 1 && n_fds <= BOX_FDS) {
        int all[BOX_FDS] = { [BOX_FDS - 1] = -EBADF };

        for (size_t i = 0; i < n_fds; i++)
            all[i] = TAKE_FD(fds[i]);
        b->is_warned = false;
        box_steer(b, all, reply->steer_reply->root_uid);
    } else if (b) {
        ask_later(b, failure);
    }
    free(q);
}

static void ask_for_sockets(struct box *b)
{
    struct egress *e = b->egress;
    struct ipc_conn *conn = e->engine ? ipc_client_conn(e->engine) : NULL;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    Abx__Ipc__Steer steer = ABX__IPC__STEER__INIT;
    struct asking *q;

    b->ask_at = 0;
    if (!conn || b->tcp || b->is_asking || b->is_between)
        return; /* once the engine is there again, all that lack sockets ask */
    q = calloc(1, sizeof *q);
    if (!q)
        return;
    q->egress = e;
    memcpy(q->id, b->id, sizeof q->id);
    steer.sandbox_id = b->id;
    frame.body_case = ABX__IPC__FRAME__BODY_STEER;
    frame.steer = &steer;
    b->is_asking = ipc_conn_request(conn, &frame, STEER_TIMEOUT_MS, on_steered, q, NULL) == 0;
    if (!b->is_asking) {
        b->ask_at = uv_now(e->opts.loop) + STEER_RETRY_MS;
        free(q);
    }
}

static void on_engine_up(void *user, struct ipc_conn *c, const Abx__Ipc__HelloReply *hello)
{
    (void)c;
    log_info("connected to the engine", "release", hello->release, NULL);
    each_box(user, ask_for_sockets);
}

static void on_engine_down(void *user, const struct abx_err *why)
{
    (void)user;
    log_warn("the engine is away", "why", why->msg, NULL);
}

/* Control says later that it is gone; until then nothing of it may stay. Of one that was stopped control may have said
 * already that it runs again: then its sockets are others. */
static void on_engine_frame(void *user, struct ipc_conn *c, const Abx__Ipc__Frame *f, int *fds,
                            size_t n_fds)
{
    struct egress *e = user;
    struct box *b;

    (void)c;
    (void)fds;
    (void)n_fds;
    if (f->body_case != ABX__IPC__FRAME__BODY_DIED)
        return;
    b = *box_at(e, f->died->sandbox_id);
    if (!b)
        return;
    box_unsteer(b);
    if (!b->is_paused && strcmp(f->died->reason, "stopped") == 0)
        ask_for_sockets(b);
}

/* --- control ------------------------------------------------------------------------------------ */

static int take_entry(struct egress *e, const Abx__Ipc__Entry *entry, struct abx_err *err)
{
    _cleanup_(policy_freep) struct policy *policy = NULL;
    char id[SANDBOX_ID_SIZE];
    struct box **at, *b;
    int r;

    if (!sandbox_id_parse(slice_str(entry->sandbox_id), id) || strcmp(id, entry->sandbox_id) != 0)
        return err_set(err, ABX_INVALID_ARGUMENT, "row with a bad sandbox id");
    r = policy_new(entry->network, &e->operator_policy, &policy, err);
    if (r < 0)
        return r;
    at = box_at(e, id);
    b = *at;
    if (!b) {
        b = box_new(e, id, err);
        if (!b)
            return ABX_RESOURCE_EXHAUSTED;
        *at = b;
        e->n_boxes++;
        count_set(&e->opts.counters->sandboxes, e->n_boxes);
    }
    b->generation = e->generation;
    b->is_between = entry->state == ABX__IPC__ENTRY__STATE__PAUSING;
    b->is_paused = b->is_between || entry->state == ABX__IPC__ENTRY__STATE__PAUSED;
    box_set_policy(b, TAKE_PTR(policy));
    ask_for_sockets(b);
    return 0;
}

static void drop_old(struct box *b)
{
    if (b->generation != b->egress->generation)
        box_drop(b->egress, b->id);
}

static void take_remove(struct egress *e, struct ipc_conn *c, const Abx__Ipc__Frame *f)
{
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    Abx__Ipc__RemoveDone done = ABX__IPC__REMOVE_DONE__INIT;

    box_drop(e, f->remove->sandbox_id);
    frame.body_case = ABX__IPC__FRAME__BODY_REMOVE_DONE;
    frame.remove_done = &done;
    (void)ipc_conn_reply(c, f->seq, &frame, NULL);
}

static void send_entry_done(struct ipc_conn *c, uint64_t seq)
{
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    Abx__Ipc__EntryDone done = ABX__IPC__ENTRY_DONE__INIT;

    frame.body_case = ABX__IPC__FRAME__BODY_ENTRY_DONE;
    frame.entry_done = &done;
    (void)ipc_conn_reply(c, seq, &frame, NULL);
}

/* Rules that cannot be taken must not leave others in force. */
static void on_control_frame(void *user, struct ipc_conn *c, const Abx__Ipc__Frame *f, int *fds,
                             size_t n_fds)
{
    struct egress *e = user;
    struct abx_err err = { 0 };

    (void)fds;
    (void)n_fds;
    if (f->body_case == ABX__IPC__FRAME__BODY_ENTRY) {
        if (take_entry(e, f->entry, &err) < 0) {
            log_err("a sandbox's rules were not taken, it has no network", &err);
            box_drop(e, f->entry->sandbox_id);
        }
        if (f->seq != 0)
            send_entry_done(c, f->seq);
    } else if (f->body_case == ABX__IPC__FRAME__BODY_REMOVE) {
        take_remove(e, c, f);
    } else if (f->body_case == ABX__IPC__FRAME__BODY_TABLE_SYNCED) {
        each_box(e, drop_old);
    }
}

static void on_control_up(void *user, struct ipc_conn *c, const Abx__Ipc__HelloReply *hello)
{
    struct egress *e = user;

    (void)c;
    e->generation++;
    log_info("connected to control", "release", hello->release, NULL);
}

/* What it said last holds until it is back. */
static void on_control_down(void *user, const struct abx_err *why)
{
    (void)user;
    log_warn("control is away", "why", why->msg, NULL);
}

/* --- trust -------------------------------------------------------------------------------------- */

/* Some hundred certificates: read when the first proxy has TLS, which most services never see. */
struct tls_trust *egress_host_trust(struct egress *e)
{
    _cleanup_(buf_done) struct buf pem = BUF_INIT(ROOTS_MAX);
    struct abx_err err = { 0 };
    uint8_t piece[16384];
    ssize_t n;
    int r = 0;

    if (e->host_trust || e->opts.roots_fd < 0)
        return e->host_trust;
    (void)lseek(e->opts.roots_fd, 0, SEEK_SET);
    while (r == 0 && (n = read(e->opts.roots_fd, piece, sizeof piece)) > 0)
        if (buf_append(&pem, piece, (size_t)n) != BUF_OK)
            r = err_set(&err, ABX_RESOURCE_EXHAUSTED, "over %u bytes", ROOTS_MAX);
    if (r == 0)
        r = tls_trust_new(buf_slice(&pem), &e->host_trust, &err);
    if (r < 0)
        log_err("the certificates that the host trusts cannot be read", &err);
    return e->host_trust;
}

/* --- life --------------------------------------------------------------------------------------- */

static bool is_host(void *user, const struct in6_addr *ip)
{
    const struct egress *e = user;

    return hostnet_has(e->host, ip);
}

static void on_host_change(void *user)
{
    each_box(user, box_recheck);
}

/* Servers of names, one a line (resolv.conf(5)); others than the first few are not asked. */
static void parse_servers(char *text, struct resolver_servers *ret)
{
    char *rest = NULL;

    *ret = (struct resolver_servers){ 0 };
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        struct address *a = &ret->list[ret->n];
        char *words = NULL, *word = strtok_r(line, " \t\r", &words);

        if (!word || strcmp(word, "nameserver") != 0 || ret->n == RESOLVER_SERVERS_MAX)
            continue;
        word = strtok_r(NULL, " \t\r", &words);
        *a = (struct address){ .port = DNS_PORT };
        ret->n += word && ip_parse(word, &a->ip);
    }
}

/* The supervisor keeps a copy of the host's in our root folder. */
static void read_servers(struct egress *e)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(RESOLV_MAX);
    struct abx_err err = { 0 };
    struct stat st;
    char count[8];

    if (!e->opts.resolv_path || stat(e->opts.resolv_path, &st) < 0 ||
        (st.st_mtim.tv_sec == e->servers_at.tv_sec && st.st_mtim.tv_nsec == e->servers_at.tv_nsec))
        return;
    e->servers_at = st.st_mtim;
    if (file_read(AT_FDCWD, e->opts.resolv_path, &text, &err) < 0 || !buf_cstr(&text)) {
        log_err("the host's servers of names cannot be read", &err);
        return;
    }
    parse_servers((char *)(uintptr_t)buf_cstr(&text), &e->servers);
    (void)snprintf(count, sizeof count, "%zu", e->servers.n);
    log_info("servers of names", "count", count, NULL);
}

static void tick(struct box *b)
{
    box_tick(b);
    if (b->ask_at != 0 && uv_now(b->egress->opts.loop) >= b->ask_at)
        ask_for_sockets(b);
}

static void on_tick(uv_timer_t *timer)
{
    read_servers(timer->data);
    each_box(timer->data, tick);
}

static int start(struct egress *e, struct abx_err *err)
{
    const struct ipc_client_handlers control = { on_control_up, on_control_frame, on_control_down,
                                                 e };
    const struct ipc_client_handlers engine = { on_engine_up, on_engine_frame, on_engine_down, e };
    int r = hostnet_open(e->opts.loop, on_host_change, e, &e->host, err);

    if (r == 0)
        r = resolver_new(e->opts.loop, e->opts.max_fds / FDS_PER_LOOKUP, &e->resolver, err);
    if (r == 0)
        r = ipc_client_new(e->opts.loop, e->opts.table_path, &control, &e->control, err);
    if (r == 0)
        r = ipc_client_new(e->opts.loop, e->opts.engine_path, &engine, &e->engine, err);
    return r;
}

int egress_new(const struct egress_opts *opts, struct egress **ret, struct abx_err *err)
{
    struct egress *e = calloc(1, sizeof *e);
    int r;

    if (!e)
        return err_oom(err);
    e->opts = *opts;
    e->operator_policy = (struct operator_policy){ e->opts.allow, e->opts.n_allow, is_host, e };
    for (; e->servers.n < opts->n_servers; e->servers.n++)
        e->servers.list[e->servers.n] = opts->servers[e->servers.n];
    read_servers(e);
    (void)uv_timer_init(opts->loop, &e->timer);
    e->timer.data = e;
    r = start(e, err);
    if (r < 0) {
        egress_close(e);
        (void)uv_run(opts->loop, UV_RUN_DEFAULT);
        egress_free(e);
        return r;
    }
    (void)uv_timer_start(&e->timer, on_tick, TICK_MS, TICK_MS);
    *ret = e;
    return 0;
}

static void drop_any(struct box *b)
{
    box_drop(b->egress, b->id);
}

void egress_close(struct egress *e)
{
    if (e->is_closing)
        return;
    e->is_closing = true;
    each_box(e, drop_any);
    if (e->control)
        ipc_client_free(e->control);
    if (e->engine)
        ipc_client_free(e->engine);
    e->control = e->engine = NULL;
    resolver_free(TAKE_PTR(e->resolver));
    hostnet_close(TAKE_PTR(e->host));
    uv_close((uv_handle_t *)&e->timer, NULL);
}

void egress_free(struct egress *e)
{
    assert(e->is_closing && e->n_flows == 0);
    lane_pool_done(&e->pipes);
    tls_trust_unref(e->host_trust);
    free(e);
}
