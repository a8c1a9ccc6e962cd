/* sockets.c - see sockets.h. */
#include "engine/sockets.h"

#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "base/threads.h"
#include "engine/netns.h"
#include "engine/record.h"
#include "net/heartbeat.h"
#include "net/ipc.h"

#define BUCKETS 4096u
#define SOCKETS_PER_REQUEST 16u

/* Ports that no gateway may reach. Nothing of ours listens in a sandbox that users may not talk to,
 * so there is only the one that is no port. */
static const uint16_t reserved_ports[] = { 0 };

struct entry {
    struct entry *next;
    char id[RECORD_ID_SIZE];
    int netns_fd;
    uid_t root_uid;
    int steer_fds[STEER_FDS]; /* not yet given to egress */
    bool is_frozen;
};

struct died {
    struct died *next;
    char id[RECORD_ID_SIZE];
    char reason[16];
    int status;
};

struct client {
    struct client *next, **at;
    struct ipc_conn *conn;
    struct sockets *sockets;
    pid_t pid;
    bool is_egress;
};

struct sockets {
    struct sockets_opts opts;
    pthread_t thread;
    uv_loop_t loop;
    uv_async_t wake;
    struct heartbeat heartbeat;
    struct ipc_listener *listeners[2];
    struct client *clients; /* changed by the thread only, under the lock */
    int domain;             /* AF_INET6, or AF_INET without IPv6 */
    pthread_mutex_t lock;   /* all below */
    bool is_stopping;
    struct died *died, **died_tail;
    struct entry *table[BUCKETS];
    size_t n_steered; /* entries that have their steer_fds */
};

/* --- table -------------------------------------------------------------------------------------- */

static uint32_t bucket_of(const char *s)
{
    return (uint32_t)(str_hash(s) % BUCKETS);
}

static void entry_free(struct entry *e)
{
    if (e)
        packet_close_fds(e->steer_fds, STEER_FDS);
    free(e);
}

static struct entry **entry_find(struct sockets *s, const char *id)
{
    struct entry **at = &s->table[bucket_of(id)];

    while (*at && strcmp((*at)->id, id) != 0)
        at = &(*at)->next;
    return at;
}

int sockets_add(struct sockets *s, const char *sandbox_id, int netns_fd, uid_t root_uid,
                int steer_fds[STEER_FDS], struct abx_err *err)
{
    struct entry *e = calloc(1, sizeof *e);
    struct entry **at;

    if (!e)
        return err_oom(err);
    (void)snprintf(e->id, sizeof e->id, "%s", sandbox_id);
    e->netns_fd = netns_fd;
    e->root_uid = root_uid;
    for (size_t i = 0; i < STEER_FDS; i++)
        e->steer_fds[i] = TAKE_FD(steer_fds[i]);
    (void)pthread_mutex_lock(&s->lock);
    s->n_steered += e->steer_fds[STEER_LINK] >= 0;
    at = &s->table[bucket_of(sandbox_id)];
    e->next = *at;
    *at = e;
    (void)pthread_mutex_unlock(&s->lock);
    return 0;
}

void sockets_set_frozen(struct sockets *s, const char *sandbox_id, bool on)
{
    struct entry *e;

    (void)pthread_mutex_lock(&s->lock);
    e = *entry_find(s, sandbox_id);
    if (e)
        e->is_frozen = on;
    (void)pthread_mutex_unlock(&s->lock);
}

void sockets_remove(struct sockets *s, const char *sandbox_id)
{
    struct entry **at, *e;

    (void)pthread_mutex_lock(&s->lock);
    at = entry_find(s, sandbox_id);
    e = *at;
    if (e) {
        *at = e->next;
        s->n_steered -= e->steer_fds[STEER_LINK] >= 0;
    }
    (void)pthread_mutex_unlock(&s->lock);
    entry_free(e);
}

size_t sockets_held(struct sockets *s)
{
    size_t n;

    (void)pthread_mutex_lock(&s->lock);
    n = s->n_steered * STEER_FDS;
    (void)pthread_mutex_unlock(&s->lock);
    return n;
}

size_t sockets_peers(struct sockets *s, pid_t *to, size_t max)
{
    size_t n = 0;

    (void)pthread_mutex_lock(&s->lock);
    for (const struct client *k = s->clients; k && n < max; k = k->next)
        to[n++] = k->pid;
    (void)pthread_mutex_unlock(&s->lock);
    return n;
}

void sockets_send_died(struct sockets *s, const char *sandbox_id, const char *reason, int status)
{
    struct died *d = calloc(1, sizeof *d);

    if (!d)
        return; /* gateways also learn it from control and from failing connects */
    (void)snprintf(d->id, sizeof d->id, "%s", sandbox_id);
    (void)snprintf(d->reason, sizeof d->reason, "%s", reason);
    d->status = status;
    (void)pthread_mutex_lock(&s->lock);
    *s->died_tail = d;
    s->died_tail = &d->next;
    (void)pthread_mutex_unlock(&s->lock);
    (void)uv_async_send(&s->wake);
}

/* --- requests ----------------------------------------------------------------------------------- */

static bool is_reserved(uint32_t port)
{
    for (size_t i = 0; i < ARRAY_SIZE(reserved_ports); i++)
        if (reserved_ports[i] == port)
            return true;
    return false;
}

/* Makes up to `count` sockets while the namespace cannot go away. */
static int make_sockets(struct sockets *s, const char *id, uint32_t count, int *fds, size_t *ret_n,
                        struct abx_err *err)
{
    struct entry *e;
    int r = 0;

    (void)pthread_mutex_lock(&s->lock);
    e = *entry_find(s, id);
    if (!e)
        r = err_set(err, ABX_NOT_FOUND, "no sandbox '%.64s'", id);
    else if (e->is_frozen)
        r = err_set(err, ABX_FAILED_PRECONDITION, "sandbox '%s' is paused", id);
    for (*ret_n = 0; r == 0 && *ret_n < count; (*ret_n)++) {
        r = netns_socket(e->netns_fd, s->domain, SOCK_STREAM, 0, &fds[*ret_n], err);
        if (r == ABX_UNIMPLEMENTED || (r < 0 && err->sys == EAFNOSUPPORT)) {
            s->domain = AF_INET;
            r = netns_socket(e->netns_fd, s->domain, SOCK_STREAM, 0, &fds[*ret_n], err);
        }
        if (r < 0)
            break;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return r;
}

static void take_socket(struct sockets *s, struct ipc_conn *c, const Abx__Ipc__Frame *f)
{
    const Abx__Ipc__Socket *q = f->socket;
    Abx__Ipc__Frame reply = ABX__IPC__FRAME__INIT;
    Abx__Ipc__SocketReply body = ABX__IPC__SOCKET_REPLY__INIT;
    int fds[SOCKETS_PER_REQUEST];
    struct abx_err e = { 0 };
    size_t n = 0;
    int r;

    if (q->port > UINT16_MAX || q->count == 0 || q->count > SOCKETS_PER_REQUEST)
        r = err_set(&e, ABX_INVALID_ARGUMENT, "port %u, %u sockets", q->port, q->count);
    else if (is_reserved(q->port))
        r = err_set(&e, ABX_PERMISSION_DENIED, "port %u is reserved", q->port);
    else
        r = make_sockets(s, q->sandbox_id, q->count, fds, &n, &e);
    if (r < 0) {
        for (size_t i = 0; i < n; i++)
            fd_close(fds[i]);
        (void)ipc_conn_reply_error(c, f->seq, &e, NULL);
        return;
    }
    body.count = (uint32_t)n;
    reply.seq = f->seq;
    reply.body_case = ABX__IPC__FRAME__BODY_SOCKET_REPLY;
    reply.socket_reply = &body;
    if (ipc_conn_send(c, &reply, fds, n, &e) < 0)
        ipc_conn_close(c); /* a gateway that takes nothing any more */
}

static void send_died(struct sockets *s, struct died *d)
{
    Abx__Ipc__Frame f = ABX__IPC__FRAME__INIT;
    Abx__Ipc__Died body = ABX__IPC__DIED__INIT;

    body.sandbox_id = d->id;
    body.reason = d->reason;
    body.status = d->status;
    f.body_case = ABX__IPC__FRAME__BODY_DIED;
    f.died = &body;
    for (struct client *k = s->clients; k; k = k->next)
        if (ipc_conn_send(k->conn, &f, NULL, 0, NULL) < 0)
            ipc_conn_close(k->conn);
}

static void send_all_died(struct sockets *s)
{
    struct died *list;

    (void)pthread_mutex_lock(&s->lock);
    list = s->died;
    s->died = NULL;
    s->died_tail = &s->died;
    (void)pthread_mutex_unlock(&s->lock);
    while (list) {
        struct died *d = list;

        list = d->next;
        send_died(s, d);
        free(d);
    }
}

/* Those made with the sandbox, else new ones: egress or the engine has been restarted since. */
static int take_steering(struct sockets *s, const char *id, int fds[STEER_FDS], uid_t *ret_root_uid,
                         struct abx_err *err)
{
    struct entry *e;
    int r = 0;

    (void)pthread_mutex_lock(&s->lock);
    e = *entry_find(s, id);
    if (!e) {
        r = err_set(err, ABX_NOT_FOUND, "no sandbox '%.64s'", id);
    } else if (e->steer_fds[STEER_LINK] >= 0) {
        for (size_t i = 0; i < STEER_FDS; i++)
            fds[i] = TAKE_FD(e->steer_fds[i]);
        s->n_steered--;
    } else {
        r = steer_open(e->netns_fd, fds, err);
    }
    if (r == 0)
        *ret_root_uid = e->root_uid;
    (void)pthread_mutex_unlock(&s->lock);
    return r;
}

static void take_steer(struct sockets *s, struct ipc_conn *c, const Abx__Ipc__Frame *f)
{
    Abx__Ipc__Frame reply = ABX__IPC__FRAME__INIT;
    Abx__Ipc__SteerReply body = ABX__IPC__STEER_REPLY__INIT;
    int fds[STEER_FDS];
    struct abx_err e = { 0 };
    uid_t root_uid = 0;

    /* What was said of its former life comes before what belongs to this one. */
    send_all_died(s);
    if (take_steering(s, f->steer->sandbox_id, fds, &root_uid, &e) < 0) {
        (void)ipc_conn_reply_error(c, f->seq, &e, NULL);
        return;
    }
    body.root_uid = root_uid;
    reply.seq = f->seq;
    reply.body_case = ABX__IPC__FRAME__BODY_STEER_REPLY;
    reply.steer_reply = &body;
    if (ipc_conn_send(c, &reply, fds, STEER_FDS - (fds[STEER_REPORT] < 0), &e) < 0)
        ipc_conn_close(c);
}

static void take_hello(struct sockets *s, struct ipc_conn *c, const Abx__Ipc__Frame *f)
{
    Abx__Ipc__Frame reply = ABX__IPC__FRAME__INIT;
    Abx__Ipc__HelloReply body = ABX__IPC__HELLO_REPLY__INIT;
    char release[] = ABX_VERSION;

    body.release = release;
    body.instance = (char *)(uintptr_t)s->opts.instance;
    body.boot_id = (char *)(uintptr_t)s->opts.boot_id;
    reply.body_case = ABX__IPC__FRAME__BODY_HELLO_REPLY;
    reply.hello_reply = &body;
    (void)ipc_conn_reply(c, f->seq, &reply, NULL);
}

static void on_frame(void *user, struct ipc_conn *c, const Abx__Ipc__Frame *f, int *fds,
                     size_t n_fds)
{
    struct client *k = user;
    struct abx_err e;

    (void)fds;
    (void)n_fds;
    if (f->body_case == ABX__IPC__FRAME__BODY_SOCKET && !k->is_egress) {
        take_socket(k->sockets, c, f);
    } else if (f->body_case == ABX__IPC__FRAME__BODY_STEER && k->is_egress) {
        take_steer(k->sockets, c, f);
    } else if (f->body_case == ABX__IPC__FRAME__BODY_HELLO) {
        take_hello(k->sockets, c, f);
    } else {
        (void)err_set(&e, ABX_PERMISSION_DENIED, "%s",
                      k->is_egress ? "egress may ask for steering only"
                                   : "a gateway may ask for sockets only");
        (void)ipc_conn_reply_error(c, f->seq, &e, NULL);
    }
}

/* --- connections and thread --------------------------------------------------------------------- */

static void on_close(void *user, struct ipc_conn *c, const struct abx_err *why)
{
    struct client *k = user;

    (void)c;
    if (why->code)
        log_err(k->is_egress ? "egress connection ended" : "gateway connection ended", why);
    (void)pthread_mutex_lock(&k->sockets->lock);
    *k->at = k->next;
    if (k->next)
        k->next->at = k->at;
    (void)pthread_mutex_unlock(&k->sockets->lock);
    free(k);
}

static void add_client(struct sockets *s, int fd, const struct ucred *peer, bool is_egress)
{
    struct client *k = calloc(1, sizeof *k);
    const struct ipc_handlers h = { on_frame, on_close, k };
    struct abx_err e;

    if (!k) {
        fd_close(fd);
        return;
    }
    k->sockets = s;
    k->pid = peer->pid;
    k->is_egress = is_egress;
    if (ipc_conn_new(&s->loop, fd, &h, &k->conn, &e) < 0) {
        log_err("gateway connection", &e);
        free(k);
        return;
    }
    (void)pthread_mutex_lock(&s->lock);
    k->next = s->clients;
    k->at = &s->clients;
    if (k->next)
        k->next->at = &k->next;
    s->clients = k;
    (void)pthread_mutex_unlock(&s->lock);
}

static void on_gateway(void *user, int fd, const struct ucred *peer)
{
    add_client(user, fd, peer, false);
}

static void on_egress(void *user, int fd, const struct ucred *peer)
{
    add_client(user, fd, peer, true);
}

static void on_wake(uv_async_t *h)
{
    struct sockets *s = h->data;
    bool is_stopping;

    send_all_died(s);
    (void)pthread_mutex_lock(&s->lock);
    is_stopping = s->is_stopping;
    (void)pthread_mutex_unlock(&s->lock);
    if (!is_stopping)
        return;
    heartbeat_stop(&s->heartbeat);
    for (size_t i = 0; i < ARRAY_SIZE(s->listeners); i++)
        ipc_listener_free(s->listeners[i]);
    for (struct client *k = s->clients; k; k = k->next)
        ipc_conn_close(k->conn);
    uv_close((uv_handle_t *)&s->wake, NULL);
}

static void *thread_main(void *user)
{
    struct sockets *s = user;

    (void)pthread_setname_np(pthread_self(), SOCKETS_THREAD);
    (void)uv_run(&s->loop, UV_RUN_DEFAULT);
    return NULL;
}

/* Signals are the main thread's. */
static int start_thread(struct sockets *s, struct abx_err *err)
{
    sigset_t all, before;
    int r;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&s->thread, NULL, thread_main, s);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r != 0 ? err_sys(err, r, "start thread") : 0;
}

int sockets_start(const struct sockets_opts *opts, struct sockets **ret, struct abx_err *err)
{
    const uid_t gateways[] = { 0, opts->gateway_uid }, egress[] = { 0, opts->egress_uid };
    struct sockets *s = calloc(1, sizeof *s);
    int r;

    if (!s || uv_loop_init(&s->loop) < 0) {
        free(s);
        fd_close(opts->gateway_fd);
        fd_close(opts->egress_fd);
        return err_oom(err);
    }
    s->opts = *opts;
    s->domain = AF_INET6;
    s->died_tail = &s->died;
    (void)pthread_mutex_init(&s->lock, NULL);
    s->wake.data = s;
    r = uv_async_init(&s->loop, &s->wake, on_wake);
    if (r < 0)
        r = err_sys(err, -r, "wake-up");
    else
        r = ipc_listener_new(&s->loop, opts->gateway_fd, gateways, 2, on_gateway, s,
                             &s->listeners[0], err);
    if (r == 0)
        r = ipc_listener_new(&s->loop, opts->egress_fd, egress, 2, on_egress, s, &s->listeners[1],
                             err);
    if (r == 0)
        r = heartbeat_start(&s->heartbeat, &s->loop, opts->heartbeat_fd, err);
    if (r == 0)
        r = start_thread(s, err);
    if (r < 0)
        return r; /* the process ends */
    *ret = s;
    return 0;
}

void sockets_stop(struct sockets *s)
{
    (void)pthread_mutex_lock(&s->lock);
    s->is_stopping = true;
    (void)pthread_mutex_unlock(&s->lock);
    (void)uv_async_send(&s->wake);
    (void)pthread_join(s->thread, NULL);
    (void)uv_loop_close(&s->loop);
    for (size_t i = 0; i < BUCKETS; i++)
        while (s->table[i]) {
            struct entry *e = s->table[i];

            s->table[i] = e->next;
            entry_free(e);
        }
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}
