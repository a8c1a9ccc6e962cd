/* ipc_endpoint.c - listening sockets, accepting, and the client that connects again. See ipc.h. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "net/ipc.h"

#define UIDS_MAX 4
#define ACCEPT_RETRY_MS 100
#define BACKLOG 128
#define BACKOFF_FIRST_MS 10
#define BACKOFF_LAST_MS 1000
#define HELLO_TIMEOUT_MS 5000

/* --- sockets ----------------------------------------------------------------------------------- */

static int address_of(const char *path, struct sockaddr_un *ret, struct abx_err *err)
{
    size_t n = strlen(path);

    if (n == 0 || n >= sizeof ret->sun_path)
        return err_set(err, ABX_INVALID_ARGUMENT, "socket path '%s' is empty or over %zu bytes",
                       path, sizeof ret->sun_path - 1);
    *ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
    memcpy(ret->sun_path, path, n);
    return 0;
}

int ipc_listen(const char *path, mode_t mode, int *ret_fd, struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    struct sockaddr_un a;
    int r = address_of(path, &a, err);

    if (r < 0)
        return r;
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, errno, "socket");
    if (unlink(path) < 0 && errno != ENOENT)
        return err_sys(err, errno, "remove '%s'", path);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0)
        return err_sys(err, errno, "bind '%s'", path);
    if (chmod(path, mode) < 0 || listen(fd, BACKLOG) < 0)
        return err_sys(err, errno, "listen on '%s'", path);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int ipc_connect(const char *path, int *ret_fd, struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    struct sockaddr_un a;
    int r = address_of(path, &a, err);

    if (r < 0)
        return r;
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, errno, "socket");
    if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0) {
        if (errno == EAGAIN || errno == ECONNREFUSED || errno == ENOENT)
            return err_set(err, ABX_UNAVAILABLE, "connect '%s': %s", path, strerror(errno));
        return err_sys(err, errno, "connect '%s'", path);
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* --- listener ---------------------------------------------------------------------------------- */

struct ipc_listener {
    uv_poll_t poll;
    uv_timer_t retry;
    int fd;
    uid_t uids[UIDS_MAX];
    size_t n_uids;
    ipc_accept_fn on_accept;
    void *user;
    bool is_closing;
    unsigned open_handles;
};

static bool is_allowed(const struct ipc_listener *l, uid_t uid)
{
    for (size_t i = 0; i < l->n_uids; i++)
        if (l->uids[i] == uid)
            return true;
    return false;
}

static void on_acceptable(uv_poll_t *h, int status, int events);

static void on_retry(uv_timer_t *t)
{
    struct ipc_listener *l = t->data;

    (void)uv_poll_start(&l->poll, UV_READABLE, on_acceptable);
}

static void on_acceptable(uv_poll_t *h, int status, int events)
{
    struct ipc_listener *l = h->data;

    (void)status;
    (void)events;
    while (!l->is_closing) {
        _cleanup_(closep) int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct ucred peer;
        socklen_t n = sizeof peer;

        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            if (errno != EAGAIN) {
                /* Out of descriptors or memory: the waiting peer would wake us without end. */
                (void)uv_poll_stop(&l->poll);
                (void)uv_timer_start(&l->retry, on_retry, ACCEPT_RETRY_MS, 0);
            }
            return;
        }
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0 || !is_allowed(l, peer.uid))
            continue;
        l->on_accept(l->user, TAKE_FD(fd), &peer);
    }
}

int ipc_listener_new(uv_loop_t *loop, int fd, const uid_t *uids, size_t n_uids,
                     ipc_accept_fn on_accept, void *user, struct ipc_listener **ret,
                     struct abx_err *err)
{
    _cleanup_(closep) int own = fd;
    _cleanup_(freep) struct ipc_listener *l = NULL;
    int r;

    if (n_uids == 0 || n_uids > UIDS_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "1 to %d uids", UIDS_MAX);
    l = calloc(1, sizeof *l);
    if (!l)
        return err_oom(err);
    if (fd_set_nonblock(own, true) < 0 || fd_set_cloexec(own, true) < 0)
        return err_sys(err, errno, "listening socket %d", own);
    memcpy(l->uids, uids, n_uids * sizeof *uids);
    l->n_uids = n_uids;
    l->on_accept = on_accept;
    l->user = user;
    r = uv_poll_init(loop, &l->poll, own);
    if (r < 0)
        return err_sys(err, -r, "listening socket %d", own);
    (void)uv_timer_init(loop, &l->retry);
    l->open_handles = 2;
    l->poll.data = l->retry.data = l;
    l->fd = TAKE_FD(own);
    (void)uv_poll_start(&l->poll, UV_READABLE, on_acceptable);
    *ret = TAKE_PTR(l);
    return 0;
}

static void listener_closed(uv_handle_t *h)
{
    struct ipc_listener *l = h->data;

    if (--l->open_handles == 0)
        free(l);
}

void ipc_listener_free(struct ipc_listener *l)
{
    if (!l || l->is_closing)
        return;
    l->is_closing = true;
    uv_close((uv_handle_t *)&l->poll, listener_closed);
    uv_close((uv_handle_t *)&l->retry, listener_closed);
    fd_close(TAKE_FD(l->fd));
}

/* --- client ------------------------------------------------------------------------------------ */

struct ipc_client {
    uv_timer_t retry;
    uv_loop_t *loop;
    struct ipc_client_handlers handlers;
    struct ipc_conn *conn; /* until its on_close */
    bool is_up;
    bool is_closing;
    bool is_timer_open;
    bool has_told; /* why it cannot connect */
    unsigned backoff_ms;
    char *path;
};

static void try_connect(uv_timer_t *t);

static void client_finish(struct ipc_client *k)
{
    if (k->conn || k->is_timer_open)
        return;
    free(k->path);
    free(k);
}

static void try_later(struct ipc_client *k)
{
    (void)uv_timer_start(&k->retry, try_connect, k->backoff_ms, 0);
    k->backoff_ms = MIN(MAX(k->backoff_ms * 2, (unsigned)BACKOFF_FIRST_MS), //
                        (unsigned)BACKOFF_LAST_MS);
}

static void client_on_frame(void *user, struct ipc_conn *c, const Abx__Ipc__Frame *frame, int *fds,
                            size_t n_fds)
{
    struct ipc_client *k = user;

    if (k->is_up && !k->is_closing && k->handlers.on_frame)
        k->handlers.on_frame(k->handlers.user, c, frame, fds, n_fds);
}

static void client_on_close(void *user, struct ipc_conn *c, const struct abx_err *why)
{
    struct ipc_client *k = user;
    bool was_up = k->is_up;

    (void)c;
    k->conn = NULL;
    k->is_up = false;
    if (k->is_closing) {
        client_finish(k);
        return;
    }
    try_later(k);
    if (was_up && k->handlers.on_down)
        k->handlers.on_down(k->handlers.user, why);
}

static void on_hello(void *user, const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                     int *fds, size_t n_fds)
{
    struct ipc_client *k = user;

    (void)fds;
    (void)n_fds;
    if (k->is_closing)
        return;
    if (failure || reply->body_case != ABX__IPC__FRAME__BODY_HELLO_REPLY) {
        ipc_conn_close(k->conn);
        return;
    }
    k->is_up = true;
    k->has_told = false;
    k->backoff_ms = 0;
    k->handlers.on_up(k->handlers.user, k->conn, reply->hello_reply);
}

/* That nobody listens yet is the order of things. */
static void tell_once(struct ipc_client *k, int r, const struct abx_err *why)
{
    if (r == ABX_UNAVAILABLE || k->has_told)
        return;
    k->has_told = true;
    log_warn("cannot connect, and tries on", "error", why->msg, NULL);
}

static void try_connect(uv_timer_t *t)
{
    struct ipc_client *k = t->data;
    const struct ipc_handlers h = { client_on_frame, client_on_close, k };
    Abx__Ipc__Frame f = ABX__IPC__FRAME__INIT;
    Abx__Ipc__Hello hello = ABX__IPC__HELLO__INIT;
    char release[] = ABX_VERSION;
    struct abx_err why;
    int fd, r = ipc_connect(k->path, &fd, &why);

    if (r == 0)
        r = ipc_conn_new(k->loop, fd, &h, &k->conn, &why);
    if (r < 0) {
        tell_once(k, r, &why);
        try_later(k);
        return;
    }
    hello.release = release;
    f.body_case = ABX__IPC__FRAME__BODY_HELLO;
    f.hello = &hello;
    if (ipc_conn_request(k->conn, &f, HELLO_TIMEOUT_MS, on_hello, k, NULL) < 0)
        ipc_conn_close(k->conn);
}

int ipc_client_new(uv_loop_t *loop, const char *path, const struct ipc_client_handlers *handlers,
                   struct ipc_client **ret, struct abx_err *err)
{
    _cleanup_(freep) struct ipc_client *k = NULL;
    struct sockaddr_un a;
    int r = address_of(path, &a, err);

    if (r < 0)
        return r;
    k = calloc(1, sizeof *k);
    if (!k)
        return err_oom(err);
    k->path = strdup(path);
    if (!k->path)
        return err_oom(err);
    k->loop = loop;
    k->handlers = *handlers;
    (void)uv_timer_init(loop, &k->retry);
    k->retry.data = k;
    k->is_timer_open = true;
    (void)uv_timer_start(&k->retry, try_connect, 0, 0);
    k->backoff_ms = BACKOFF_FIRST_MS;
    *ret = TAKE_PTR(k);
    return 0;
}

struct ipc_conn *ipc_client_conn(const struct ipc_client *k)
{
    return k->is_up ? k->conn : NULL;
}

static void client_timer_closed(uv_handle_t *h)
{
    struct ipc_client *k = h->data;

    k->is_timer_open = false;
    client_finish(k);
}

void ipc_client_free(struct ipc_client *k)
{
    if (!k || k->is_closing)
        return;
    k->is_closing = true;
    k->is_up = false;
    if (k->conn)
        ipc_conn_close(k->conn);
    uv_close((uv_handle_t *)&k->retry, client_timer_closed);
}
