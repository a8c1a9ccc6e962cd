/* work.h - one piece of blocking work in the loop's pool, with a user's file rights. */
#pragma once

#include <uv.h>

#include "guest/daemon/users.h"

struct work {
    uv_work_t req;
    const struct user *as;
    void (*run)(struct work *w);  /* in a thread of the pool */
    void (*done)(struct work *w); /* on the loop, always, exactly once */
    struct abx_err err;           /* set by `run`; set when the user could not be taken on */
};

/* `as` may be NULL for root; borrowed until done. `w` is the caller's and must stay until done.
 * Negative only when nothing was queued. */
int work_start(uv_loop_t *loop, struct work *w, const struct user *as, void (*run)(struct work *w),
               void (*done)(struct work *w));
