/* lifecycle_extend.c - another time for the end of a sandbox. See lifecycle.h. */
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "base/str.h"
#include "control/lifecycle_internal.h"

/* Completion of an extension; the sandbox may be gone by then. */
struct extension {
    struct lifecycle *lifecycle;
    char id[SANDBOX_ID_SIZE];
    int64_t end_ms, end_before_ms;
    uint64_t due_before_ms; /* by the loop's clock */
    sandbox_done_fn done;
    void *user;
};

static void set_end(struct sandbox *sb, int64_t end_ms, uint64_t left_ms)
{
    sb->end_ms = end_ms;
    (void)uv_timer_start(&sb->timer, lifecycle_on_timer, left_ms, 0);
}

/* What could not be written has no effect, unless a later one has had its own. */
static void extension_undo(const struct extension *x)
{
    struct sandbox *sb = lifecycle_find(x->lifecycle, x->id);
    uint64_t now = sb ? uv_now(sb->timer.loop) : 0;

    if (sb && sb->end_ms == x->end_ms && sb->end_ms != x->end_before_ms &&
        uv_is_active((uv_handle_t *)&sb->timer)) /* else it is ending */
        set_end(sb, x->end_before_ms, MAX(x->due_before_ms, now) - now);
}

static void on_extended(void *user, const struct abx_err *failure)
{
    struct extension *x = user;

    if (failure)
        extension_undo(x);
    x->done(x->user, failure);
    free(x);
}

int lifecycle_extend(struct lifecycle *l, struct sandbox *sb, int64_t timeout_ms, bool only_longer,
                     sandbox_done_fn done, void *user, struct abx_err *err)
{
    struct extension *x = calloc(1, sizeof(*x));
    int64_t end_ms = time_wall_ms() + timeout_ms;
    /* What is left by the clock that counts: the wall clock may have been set meanwhile. */
    int64_t left_ms = (int64_t)uv_timer_get_due_in(&sb->timer);
    int r;

    if (!x)
        return err_oom(err);
    *x = (struct extension){ .lifecycle = l, .end_before_ms = sb->end_ms };
    memcpy(x->id, sb->id, sizeof(x->id));
    x->due_before_ms = uv_now(sb->timer.loop) + (uint64_t)left_ms;
    x->done = done;
    x->user = user;
    if (only_longer && left_ms >= timeout_ms)
        end_ms = sb->end_ms;
    x->end_ms = end_ms;
    r = store_sandbox_extend(l->opts.store, sb->id, end_ms, on_extended, x, err);
    if (r < 0) {
        free(x);
        return r;
    }
    if (!only_longer || left_ms < timeout_ms) {
        set_end(sb, end_ms, (uint64_t)MAX(timeout_ms, INT64_C(0)));
    }
    return 0;
}
