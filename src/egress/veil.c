/* veil.c - see veil.h. */
#include "egress/veil.h"

#include <errno.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "net/sock.h"

struct side {
    struct sock sock;
    struct veil *veil;
    bool has_end; /* nothing more comes from it */
    bool is_shut; /* nothing more goes to it */
};

struct veil {
    struct side secret, plain;
    unsigned n_socks;
    bool is_closed, is_over;
    bool has_failed; /* the secret side: nothing goes there any more */
    bool is_read;    /* and nothing more comes from it */
    void (*over)(void *user, const char *why);
    void *user;
};

static void on_freed(struct sock *s)
{
    struct veil *v = container_of(s, struct side, sock)->veil;

    if (--v->n_socks == 0)
        free(v);
}

void veil_close(struct veil *v, bool is_reset)
{
    if (!v || v->is_closed)
        return;
    v->is_closed = true;
    sock_close(&v->secret.sock, is_reset);
    sock_close(&v->plain.sock, false);
}

static const char *find_reason(const struct veil *v)
{
    struct sock_layer *layer = v->secret.sock.layer;
    const char *distrust = tls_distrust(layer);

    if (distrust)
        return distrust;
    return layer->is_ready ? "TLS with the proxy broke off" : "the proxy does not speak TLS";
}

static void end(struct veil *v, const char *why)
{
    v->is_over = true;
    sock_watch(&v->secret.sock, SOCK_QUIET);
    sock_watch(&v->plain.sock, SOCK_QUIET);
    v->over(v->user, why);
}

/* One read, and only when the other side has taken what came before. False: failed. */
static bool move(struct side *from, struct side *to)
{
    struct slice piece;
    ssize_t n;

    if (!from->has_end && to->sock.out.len == 0) {
        n = sock_read(&from->sock, &piece);
        if (n < 0 && n != -EAGAIN)
            return false;
        if (n > 0)
            sock_write(&to->sock, &piece, 1, true);
        from->has_end = n == 0;
    }
    if (from->has_end && !to->is_shut && to->sock.out.len == 0) {
        to->is_shut = true;
        sock_shutdown(&to->sock);
    }
    return true;
}

static void watch(struct side *from, const struct side *to, bool is_ready)
{
    bool reads = !from->has_end && to->sock.out.len == 0 && is_ready;

    if (from->has_end && from->is_shut)
        sock_watch(&from->sock, SOCK_QUIET);
    else
        sock_watch(&from->sock, reads ? SOCK_READABLE : 0);
}

/* The secret side has failed. What it sent before is passed on as fast as the plain side takes it; nobody looks at
 * the failed one meanwhile, which would say so again and again. */
static void step_last(struct veil *v)
{
    struct sock *secret = &v->secret.sock, *plain = &v->plain.sock;

    v->has_failed = true;
    while (!v->is_read && !plain->error && plain->out.len == 0) {
        struct slice piece;
        ssize_t n = sock_read(secret, &piece);

        v->is_read = n <= 0;
        if (n > 0)
            sock_write(plain, &piece, 1, true);
    }
    if (plain->error || (v->is_read && plain->out.len == 0)) {
        end(v, find_reason(v));
        return;
    }
    sock_watch(secret, SOCK_QUIET);
    sock_watch(plain, 0);
}

/* Until the handshake is over nothing is taken from the plain side: TLS could not take it. */
static void step(struct veil *v)
{
    struct side *secret = &v->secret, *plain = &v->plain;
    bool ok;

    if (v->is_over)
        return;
    if (!v->has_failed)
        sock_flush(&secret->sock);
    sock_flush(&plain->sock);
    if (v->has_failed || secret->sock.error || !move(secret, plain)) {
        step_last(v);
        return;
    }
    ok = !secret->sock.layer->is_ready || move(plain, secret);
    if (!ok || plain->sock.error) {
        end(v, find_reason(v));
        return;
    }
    if (secret->is_shut && plain->is_shut) {
        end(v, NULL);
        return;
    }
    watch(secret, plain, true);
    watch(plain, secret, secret->sock.layer->is_ready);
    if (secret->sock.is_read_due) /* it may be the plain side's event */
        sock_kick(&secret->sock);
}

static void on_event(struct sock *s, unsigned what)
{
    struct veil *v = container_of(s, struct side, sock)->veil;

    if (s == &v->secret.sock && (what & SOCK_HANGUP)) /* nobody asks for that: it is a reset */
        v->has_failed = true;
    step(v);
}

bool veil_is_sending(const struct veil *v)
{
    int waiting = 0;

    return !v->has_failed && (v->secret.sock.out.len > 0 ||
                              (ioctl(v->secret.sock.fd, SIOCOUTQ, &waiting) == 0 && waiting > 0));
}

static int side_open(struct veil *v, struct side *s, uv_loop_t *loop, int fd, struct abx_err *err)
{
    int r = sock_init(&s->sock, loop, fd, on_event, on_freed, err);

    s->veil = v;
    v->n_socks += r == 0;
    return r;
}

static int open_both(struct veil *v, uv_loop_t *loop, int fd, int plain, struct tls_trust *trust,
                     const char *host, struct abx_err *err)
{
    int r = side_open(v, &v->secret, loop, fd, err);

    if (r < 0) {
        fd_close(plain);
        return r;
    }
    r = side_open(v, &v->plain, loop, plain, err);
    if (r < 0) {
        v->is_closed = true;
        sock_close(&v->secret.sock, true);
        return r;
    }
    v->secret.sock.layer = tls_trusting_open(trust, fd, host);
    if (v->secret.sock.layer)
        return 0;
    veil_close(v, true);
    return err_oom(err);
}

int veil_new(uv_loop_t *loop, int fd, struct tls_trust *trust, const char *host,
             void (*over)(void *user, const char *why), void *user, struct veil **ret,
             int *ret_plain, struct abx_err *err)
{
    struct veil *v = calloc(1, sizeof *v);
    int pair[2] = { -EBADF, -EBADF }, r;

    if (!v || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
        free(v);
        fd_close(fd);
        return err_sys(err, ENOMEM, "a pair of sockets");
    }
    v->over = over;
    v->user = user;
    r = open_both(v, loop, fd, pair[1], trust, host, err);
    if (r < 0) {
        if (v->n_socks == 0)
            free(v);
        fd_close(pair[0]);
        return r;
    }
    sock_kick(&v->secret.sock); /* the client speaks first */
    *ret = v;
    *ret_plain = pair[0];
    return 0;
}
