/* sock.c - see sock.h. */
#include "net/sock.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fd.h"

#define PARTS_MAX 8
#define HEAD_USUAL 1000u

/* Shared by all sockets: a read and the handling of its bytes never nest on one loop. */
static uint8_t scratch[SOCK_READ_MAX];

static void run_event(struct sock *s, unsigned what)
{
    if (s->is_closed)
        return;
    s->is_in_event = true;
    s->on_event(s, what);
    s->is_in_event = false;
    if (s->is_closed)
        return;
    if (s->is_kicked || s->is_read_due)
        (void)uv_idle_start(&s->idle, s->idle.idle_cb);
}

static void on_idle(uv_idle_t *idle)
{
    struct sock *s = container_of(idle, struct sock, idle);
    unsigned what;

    (void)uv_idle_stop(idle);
    what = SOCK_KICKED | (s->is_read_due ? SOCK_READABLE : 0);
    s->is_kicked = s->is_read_due = false;
    run_event(s, what);
}

static void on_timer(uv_timer_t *timer)
{
    struct sock *s = container_of(timer, struct sock, timer);
    uint64_t now = uv_now(timer->loop);

    s->timer_due = 0;
    if (s->deadline == 0)
        return;
    if (now < s->deadline) {
        s->timer_due = s->deadline;
        (void)uv_timer_start(timer, on_timer, s->deadline - now, 0);
        return;
    }
    s->deadline = 0;
    run_event(s, SOCK_DEADLINE);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct sock *s = container_of(poll, struct sock, poll);
    unsigned what = 0;

    /* An urgent byte would wake us for as long as nobody reads; the price of not looking is that a reset is seen later. */
    if (events & UV_PRIORITIZED) {
        s->is_urgent = true;
        s->watched = -1;
        (void)uv_poll_stop(poll);
        return;
    }
    if (status < 0) { /* EPOLLERR: libuv has stopped the handle, the read that follows says why */
        s->watched = 0;
        events = UV_READABLE | UV_WRITABLE | UV_DISCONNECT;
    }
    if (events & UV_READABLE)
        what |= SOCK_READABLE;
    if (events & UV_WRITABLE)
        what |= SOCK_WRITABLE;
    if ((events & UV_WRITABLE) && s->layer && s->layer->read_wants_write)
        what |= SOCK_READABLE;
    if (events & UV_DISCONNECT)
        what |= SOCK_HANGUP;
    run_event(s, what);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct sock *s = handle->data;

    if (--s->n_handles > 0)
        return;
    buf_done(&s->out);
    if (s->on_free)
        s->on_free(s);
}

int sock_init(struct sock *s, uv_loop_t *loop, int fd, void (*on_event)(struct sock *, unsigned),
              void (*on_free)(struct sock *), struct abx_err *err)
{
    int r;

    *s = (struct sock){ .fd = fd, .on_event = on_event, .on_free = on_free };
    buf_init(&s->out, SIZE_MAX / 4);
    r = uv_poll_init(loop, &s->poll, fd);
    if (r < 0) {
        fd_close(fd);
        s->fd = -EBADF;
        s->is_closed = true;
        return err_sys(err, -r, "watch a socket");
    }
    (void)uv_timer_init(loop, &s->timer);
    (void)uv_idle_init(loop, &s->idle);
    s->poll.data = s->timer.data = s->idle.data = s;
    s->n_handles = 3;
    s->idle.idle_cb = on_idle;
    return 0;
}

void sock_watch(struct sock *s, unsigned what)
{
    int want = 0;

    if (s->is_closed)
        return;
    if (what & SOCK_READABLE)
        want |= UV_READABLE;
    if (what & SOCK_HANGUP)
        want |= UV_DISCONNECT;
    if (s->is_blocked || (what & SOCK_WRITABLE) || (s->layer && s->layer->read_wants_write))
        want |= UV_WRITABLE;
    if (want == 0) /* stay registered: resets are reported whatever is asked for */
        want = s->is_urgent ? -1 : UV_PRIORITIZED;
    if (what & SOCK_QUIET)
        want = -1;
    s->is_read_due = s->layer && s->layer->has_more && (what & SOCK_READABLE);
    if (want == s->watched)
        return;
    s->watched = want;
    if (want < 0) {
        (void)uv_poll_stop(&s->poll);
        return;
    }
    (void)uv_poll_start(&s->poll, want, on_poll);
}

ssize_t sock_read(struct sock *s, struct slice *ret)
{
    ssize_t n;

    *ret = (struct slice){ 0 };
    if (s->is_closed)
        return -EAGAIN;
    if (s->layer) {
        n = s->layer->ops->read(s->layer, scratch, sizeof(scratch));
        if (n > 0)
            *ret = slice_of(scratch, (size_t)n);
        return n;
    }
    do
        n = read(s->fd, scratch, sizeof(scratch));
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    *ret = slice_of(scratch, (size_t)n);
    return n;
}

void sock_kick(struct sock *s)
{
    if (s->is_closed || s->is_kicked)
        return;
    s->is_kicked = true;
    if (!s->is_in_event)
        (void)uv_idle_start(&s->idle, on_idle);
}

static void write_failed(struct sock *s, int sys)
{
    if (s->error == 0)
        s->error = sys;
    sock_kick(s);
}

/* Appends what is left of `parts` behind their first `skip` bytes. */
static void queue_rest(struct sock *s, const struct slice *parts, size_t n_parts, size_t skip)
{
    for (size_t i = 0; i < n_parts; i++) {
        size_t off = MIN(skip, parts[i].n);

        skip -= off;
        if (buf_append(&s->out, parts[i].p + off, parts[i].n - off) != BUF_OK) {
            write_failed(s, ENOMEM);
            return;
        }
    }
}

/* One sendmsg of queue and parts. Returns bytes of `parts` that the kernel took. */
static size_t send_parts(struct sock *s, const struct slice *parts, size_t n_parts)
{
    struct iovec iov[PARTS_MAX + 1];
    struct msghdr msg = { .msg_iov = iov };
    size_t total = s->out.len, queued = s->out.len, taken;
    ssize_t n;

    if (queued > 0)
        iov[msg.msg_iovlen++] = (struct iovec){ buf_data(&s->out), queued };
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i].n == 0)
            continue;
        iov[msg.msg_iovlen].iov_base = (void *)(uintptr_t)parts[i].p;
        iov[msg.msg_iovlen++].iov_len = parts[i].n;
        total += parts[i].n;
    }
    if (total == 0)
        return 0;
    do
        n = sendmsg(s->fd, &msg, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno != EAGAIN && errno != ENOTCONN) {
        write_failed(s, errno);
        return 0;
    }
    taken = n < 0 ? 0 : (size_t)n;
    s->is_blocked = taken < total;
    s->sent += taken;
    buf_consume(&s->out, MIN(taken, queued));
    return taken > queued ? taken - queued : 0;
}

/* The queue, record by record. */
static void send_through_layer(struct sock *s)
{
    while (s->out.len > 0) {
        ssize_t n = s->layer->ops->write(s->layer, buf_slice(&s->out));

        if (n < 0 && n != -EAGAIN) {
            write_failed(s, (int)-n);
            return;
        }
        s->is_blocked = n < 0;
        if (n < 0)
            return;
        s->sent += (uint64_t)n;
        buf_consume(&s->out, (size_t)n);
    }
}

void sock_flush(struct sock *s)
{
    if (s->is_closed || s->error)
        return;
    if (s->out.len > 0 && s->layer)
        send_through_layer(s);
    else if (s->out.len > 0)
        (void)send_parts(s, NULL, 0);
    else
        s->is_blocked = false;
    /* A burst may have grown it; between bursts nothing is held. */
    if (s->out.len == 0 && s->out.cap > 4096)
        buf_done(&s->out);
}

void sock_expect_head(struct sock *s)
{
    if (!s->out.mem)
        (void)buf_reserve(&s->out, HEAD_USUAL, NULL);
}

void sock_shrink(struct sock *s)
{
    if (s->out.len == 0)
        buf_done(&s->out);
}

void sock_write(struct sock *s, const struct slice *parts, size_t n_parts, bool is_now)
{
    size_t taken = 0;

    if (s->is_closed || s->error || n_parts > PARTS_MAX)
        return;
    if (is_now && !s->is_blocked && !s->layer)
        taken = send_parts(s, parts, n_parts);
    if (s->error)
        return;
    queue_rest(s, parts, n_parts, taken);
    if (is_now && !s->is_blocked && s->layer)
        send_through_layer(s);
    if (s->out.len > 0)
        sock_kick(s);
}

void sock_set_deadline(struct sock *s, uint64_t base, uint64_t ms)
{
    uint64_t now = sock_now(s);

    if (s->is_closed)
        return;
    s->deadline = base + ms > now ? base + ms : now + 1;
    if (s->timer_due != 0 && s->timer_due <= s->deadline)
        return; /* the running timer looks again when it fires */
    s->timer_due = s->deadline;
    (void)uv_timer_start(&s->timer, on_timer, s->deadline - now, 0);
}

void sock_clear_deadline(struct sock *s)
{
    s->deadline = 0;
}

void sock_shutdown(struct sock *s)
{
    if (s->is_closed)
        return;
    if (s->layer)
        s->layer->ops->shutdown(s->layer);
    (void)shutdown(s->fd, SHUT_WR);
}

void sock_close(struct sock *s, bool reset)
{
    struct linger now = { .l_onoff = 1, .l_linger = 0 };

    if (s->is_closed)
        return;
    s->is_closed = true;
    if (s->layer) {
        if (!reset)
            s->layer->ops->shutdown(s->layer);
        s->layer->ops->free(TAKE_PTR(s->layer));
    }
    if (reset)
        (void)setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    uv_close((uv_handle_t *)&s->poll, on_handle_closed);
    uv_close((uv_handle_t *)&s->timer, on_handle_closed);
    uv_close((uv_handle_t *)&s->idle, on_handle_closed);
    fd_close(s->fd);
    s->fd = -EBADF;
}
