/* input.c - see input.h. */
#include "guest/daemon/input.h"

#include <string.h>
#include <unistd.h>

#include "base/fd.h"

struct input_item {
    struct input_item *next;
    struct slice left;
    input_done_fn done;
    void *user;
};

int input_init(struct input *in, uv_loop_t *loop, int fd, void (*closed)(void *user), void *user,
               struct abx_err *err)
{
    *in = (struct input){ .fd = fd, .closed = closed, .user = user };
    in->last = &in->first;
    if (fd < 0)
        return 0;
    if (uv_poll_init(loop, &in->poll, fd) < 0) {
        fd_close(TAKE_FD(in->fd));
        return err_set(err, ABX_INTERNAL, "watch a command's stdin");
    }
    in->poll.data = in;
    in->has_poll = true;
    return 0;
}

static void finish_first(struct input *in, const struct abx_err *err)
{
    struct input_item *item = in->first;

    in->first = item->next;
    if (!in->first)
        in->last = &in->first;
    in->queued -= item->left.n;
    item->done(item->user, err);
    free(item);
}

static void on_poll_closed(uv_handle_t *h)
{
    struct input *in = h->data;

    in->closed(in->user);
}

static void release(struct input *in)
{
    if (!in->has_poll || uv_is_closing((uv_handle_t *)&in->poll))
        return;
    (void)uv_poll_stop(&in->poll);
    uv_close((uv_handle_t *)&in->poll, on_poll_closed);
    fd_close(TAKE_FD(in->fd)); /* after uv_poll_stop libuv no longer uses the number */
}

static bool is_open(const struct input *in)
{
    return in->has_poll && in->fd >= 0 && !uv_is_closing((const uv_handle_t *)&in->poll);
}

static void on_poll(uv_poll_t *poll, int status, int events);

/* Writes what fits now. */
static void pump(struct input *in)
{
    struct abx_err err = { 0 };

    while (in->first && is_open(in)) {
        struct input_item *item = in->first;
        ssize_t n = item->left.n > 0 ? write(in->fd, item->left.p, item->left.n) : 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            (void)uv_poll_start(&in->poll, UV_WRITABLE, on_poll);
            return;
        }
        if (n < 0) {
            (void)err_set(&err, ABX_INTERNAL, "write to stdin: %s", strerror(errno));
            finish_first(in, &err);
            continue;
        }
        item->left = slice_of(item->left.p + n, item->left.n - (size_t)n);
        in->queued -= (size_t)n;
        if (item->left.n == 0)
            finish_first(in, &err);
    }
    if (!is_open(in))
        return;
    (void)uv_poll_stop(&in->poll);
    if (in->is_ending)
        release(in);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    pump(poll->data);
}

int input_write(struct input *in, struct slice data, input_done_fn done, void *user,
                struct abx_err *err)
{
    struct input_item *item;

    if (!is_open(in) || in->is_ending)
        return err_set(err, ABX_INTERNAL, "stdin not enabled or closed");
    if (data.n > INPUT_QUEUE_MAX - MIN(in->queued, (size_t)INPUT_QUEUE_MAX))
        return err_set(err, ABX_RESOURCE_EXHAUSTED, "over %u bytes wait for the command to read",
                       INPUT_QUEUE_MAX);
    item = calloc(1, sizeof(*item));
    if (!item)
        return err_oom(err);
    *item = (struct input_item){ .left = data, .done = done, .user = user };
    *in->last = item;
    in->last = &item->next;
    in->queued += data.n;
    /* From the loop, so that `done` never comes from inside this call. */
    (void)uv_poll_start(&in->poll, UV_WRITABLE, on_poll);
    return 0;
}

void input_end(struct input *in)
{
    in->is_ending = true;
    if (!in->first)
        release(in);
}

void input_close(struct input *in)
{
    struct abx_err err = { 0 };

    release(in);
    (void)err_set(&err, ABX_INTERNAL, "stdin not enabled or closed");
    while (in->first)
        finish_first(in, &err);
}
