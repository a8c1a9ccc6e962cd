/* heartbeat.c - see heartbeat.h. */
#include "net/heartbeat.h"

#include <unistd.h>

#include "base/fd.h"

static void on_timer(uv_timer_t *t)
{
    const struct heartbeat *h = t->data;
    const uint64_t one = 1;

    /* It fails only when nobody has read it for 2^64 beats. */
    (void)!write(h->fd, &one, sizeof one);
}

int heartbeat_prepare(int fd, struct abx_err *err)
{
    if (fd_set_cloexec(fd, true) < 0 || fd_set_nonblock(fd, true) < 0)
        return err_sys(err, errno, "heartbeat descriptor %d", fd);
    return 0;
}

int heartbeat_start(struct heartbeat *h, uv_loop_t *loop, int fd, struct abx_err *err)
{
    int r;

    h->fd = fd;
    if (fd < 0)
        return 0;
    r = heartbeat_prepare(fd, err);
    if (r < 0)
        return r;
    r = uv_timer_init(loop, &h->timer);
    if (r < 0)
        return err_sys(err, -r, "heartbeat timer");
    h->timer.data = h;
    uv_unref((uv_handle_t *)&h->timer);
    r = uv_timer_start(&h->timer, on_timer, 0, HEARTBEAT_PERIOD_MS);
    return r < 0 ? err_sys(err, -r, "heartbeat timer") : 0;
}

void heartbeat_stop(struct heartbeat *h)
{
    if (h->fd < 0)
        return;
    uv_close((uv_handle_t *)&h->timer, NULL);
    fd_close(TAKE_FD(h->fd));
}
