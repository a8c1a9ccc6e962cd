/* input.h - a queue of writes to a command's stdin (or terminal), with back pressure.
 *
 * Each write is answered when the kernel has all of it. Bytes are borrowed until then. Bounded by
 * INPUT_QUEUE_MAX waiting bytes.
 */
#pragma once

#include <uv.h>

#include "base/buf.h"
#include "base/err.h"

#define INPUT_QUEUE_MAX (16u << 20)

/* err->code 0: written. Called once, from the loop. */
typedef void (*input_done_fn)(void *user, const struct abx_err *err);

struct input_item;

struct input {
    uv_poll_t poll;
    int fd; /* -EBADF: closed or never there */
    bool has_poll;
    bool is_ending; /* closes when the queue is empty */
    struct input_item *first, **last;
    size_t queued;
    void (*closed)(void *user);
    void *user;
};

/* Takes `fd` over (non-blocking). `closed` is called when input_close has released the handle. */
int input_init(struct input *in, uv_loop_t *loop, int fd, void (*closed)(void *user), void *user,
               struct abx_err *err);
/* INTERNAL "stdin not enabled or closed" when there is no input; RESOURCE_EXHAUSTED when too much
 * waits. After an error `done` does not come. */
int input_write(struct input *in, struct slice data, input_done_fn done, void *user,
                struct abx_err *err);
/* Closes after what is queued. */
void input_end(struct input *in);
/* Fails what is queued and closes now. Fine to call again; `closed` follows once from the loop if
 * there was a handle (has_poll). */
void input_close(struct input *in);
