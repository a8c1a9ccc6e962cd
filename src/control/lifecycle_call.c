/* lifecycle_call.c - calls to the driver and to the store for the state that a sandbox is in, and what becomes of those
 * that fail: what is tried again by timer, and for how long. See machine.h.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "control/lifecycle_internal.h"

#define LATER_MS 500
#define STOP_MAX_NS (60 * NSEC_PER_SEC)  /* twice a call's own deadline */
#define END_AFTER_NS (30 * NSEC_PER_SEC) /* of tries, when its time is over, too */
#define WARN_EVERY_NS (30 * NSEC_PER_SEC)

static const struct change no_change;

struct call *call_new(struct sandbox *sb, struct abx_err *err)
{
    struct call *c = calloc(1, sizeof(*c));

    if (!c) {
        (void)err_oom(err);
        return NULL;
    }
    c->lifecycle = sb->lifecycle;
    c->number = sb->call = ++sb->lifecycle->last_call;
    memcpy(c->id, sb->id, sizeof(c->id));
    return c;
}

void call_ended(struct call *c, const struct abx_err *failure)
{
    struct sandbox *sb = lifecycle_find(c->lifecycle, c->id);
    uint64_t number = c->number;

    free(c);
    if (!sb || sb->call != number)
        return;
    sb->call = 0;
    lifecycle_fire(sb, lifecycle_outcome(sb, failure), &(struct change){ .failure = failure });
}

void call_on_driver(void *user, uint32_t us, const struct abx_err *failure)
{
    const struct call *c = user;
    struct sandbox *sb = lifecycle_find(c->lifecycle, c->id);

    if (sb && sb->call == c->number)
        sb->driver_us = us;
    call_ended(user, failure);
}

/* Of the store, and of a check. */
void call_on_store(void *user, const struct abx_err *failure)
{
    call_ended(user, failure);
}

void call_failed(struct sandbox *sb, struct call *c, const struct abx_err *why)
{
    free(c);
    sb->call = 0;
    lifecycle_fire(sb, EV_FAILED, &(struct change){ .failure = why });
}

void call_driver(struct sandbox *sb, enum driver_call what)
{
    static const char *const points[SANDBOX_STATES_] = {
        [SANDBOX_COPYING] = "copy.files",  [SANDBOX_FREEZING] = "pause.freeze",
        [SANDBOX_STOPPING] = "pause.stop", [SANDBOX_WAKING] = "resume.thaw",
        [SANDBOX_THAWING] = "pause.undo",
    };
    struct driver *d = sb->lifecycle->opts.driver;
    struct abx_err err;
    struct call *c = call_new(sb, &err);
    int r = c ? fault_at(points[sb->state], &err) : err.code;

    if (r == 0 && !d)
        r = err_set(&err, ABX_UNAVAILABLE, "there is no driver yet");
    if (r == 0) {
        switch (what) {
        case CALL_FREEZE:
            r = d->ops->freeze(d, sb->id,
                               sb->keeps_memory ? DRIVER_FREEZE_MEMORY : DRIVER_FREEZE_FILES,
                               call_on_driver, c, &err);
            break;
        case CALL_THAW:
            r = d->ops->thaw(d, sb->id, sb->state == SANDBOX_WAKING, call_on_driver, c, &err);
            break;
        case CALL_COPY:
            r = d->ops->clone(d, sb->id, sb->operation->request.copy_id, call_on_driver, c, &err);
            break;
        case CALL_STOP:
            r = d->ops->stop(d, sb->id, call_on_driver, c, &err);
            break;
        }
    }
    if (r < 0)
        call_failed(sb, c, &err);
}

void driver_trouble(struct abx_err *err)
{
    bool may_pass = err->code == ABX_RESOURCE_EXHAUSTED || err->code == ABX_UNAVAILABLE ||
                    err->code == ABX_DEADLINE_EXCEEDED || err->reason == ABX_REASON_CONFLICT;

    if (!may_pass) {
        err->code = ABX_INTERNAL;
        err->reason = ABX_REASON_NONE;
    }
}

bool lifecycle_stop_is_over(const struct sandbox *sb, const struct abx_err *failure)
{
    return failure->code == ABX_NOT_FOUND || time_mono_ns() - sb->t_state_ns > STOP_MAX_NS;
}

/* Twice a second the same failure, until another one comes or all is well, is one line each half minute. */
static void log_later(struct sandbox *sb, const struct abx_err *failure)
{
    int64_t now = time_mono_ns();

    if (sb->t_warned_ns > sb->t_state_ns && now - sb->t_warned_ns < WARN_EVERY_NS &&
        sb->warned_code == failure->code)
        return;
    sb->t_warned_ns = now;
    sb->warned_code = failure->code;
    log_warn("a sandbox keeps its state for now", "id", sb->id, "state",
             machine_state(sb->state)->name, "error", failure->msg, NULL);
}

/* A pool that is out of use may be so for long, and nobody can look; processes may not thaw: that does not put off the end of
 * its time. Unless that is a pause, which there is no way to. */
static bool is_over(const struct sandbox *sb)
{
    return (sb->state == SANDBOX_EXCHANGING || sb->state == SANDBOX_THAWING) &&
           !sandbox_pauses_itself(sb) &&
           (sb->due_ms > 0 ? uv_now(sb->timer.loop) >= sb->due_ms : time_wall_ms() >= sb->end_ms) &&
           time_mono_ns() - sb->t_state_ns > END_AFTER_NS;
}

void act_later(struct sandbox *sb, const struct change *c)
{
    /* Not its timer but the driver, which is compared with every 30 s: the time that it has goes on. */
    if (c->event == EV_RETRY && uv_is_active((const uv_handle_t *)&sb->timer))
        return;
    if (c->event == EV_RETRY)
        lifecycle_note_over(sb, 0);
    if (c->failure && sb->state == SANDBOX_THAWING &&
        (c->failure->code == ABX_FAILED_PRECONDITION || c->failure->code == ABX_NOT_FOUND)) {
        lifecycle_fire(sb, EV_DIED, &(struct change){ .reason = "lost" });
        return;
    }
    if (c->failure && sb->state == SANDBOX_STOPPING && lifecycle_stop_is_over(sb, c->failure)) {
        lifecycle_fire(sb, EV_DONE, &no_change);
        return;
    }
    if (c->failure && rollback_end_is_over(sb, c->failure))
        return;
    if (c->failure && is_over(sb)) {
        lifecycle_fire(sb, EV_KILL, &(struct change){ .reason = "timeout" });
        return;
    }
    if (c->failure && c->failure->code != ABX_UNAVAILABLE)
        log_later(sb, c->failure);
    (void)uv_timer_start(&sb->timer, lifecycle_on_timer, LATER_MS, 0);
    if (c->failure)
        lifecycle_tell_waiting(sb, c->failure);
}
