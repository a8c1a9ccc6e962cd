/* lifecycle_pause.c - pause. See machine.h.
 *
 * A pause of either kind first lets the gateways end what is in flight, then has the driver freeze; the
 * row `paused` is what makes it true, and is on the disk before it is answered. Without memory the
 * processes end after that. Whatever was done before is undone when it fails.
 */
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "control/lifecycle_internal.h"

#define HOLD_MS 4500  /* gateways are disconnected before, TABLE_HOLD_MS */
#define AGAIN_MS 5000 /* after a pause that failed it is not over at once again */

static const struct change no_change;

/* --- events -------------------------------------------------------------------------------------- */

static const char *mode_name(const struct sandbox *sb)
{
    return sb->keeps_memory ? "full" : "filesystem";
}

char *pause_event_data(const struct sandbox *sb, const char *reason)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(4096);

    (void)buf_printf(&b, "{\"mode\":\"%s\",\"reason\":\"%s\",", mode_name(sb), reason);
    (void)lifecycle_stages_put(&b, sb->stages, sb->n_stages);
    return buf_append_str(&b, "}") == BUF_OK && buf_cstr(&b) ? strdup(buf_cstr(&b)) : NULL;
}

void pause_log(const struct sandbox *sb, const char *what)
{
    char ms[24];

    (void)snprintf(ms, sizeof ms, "%.2f", (double)(time_mono_ns() - sb->t_begin_ns) / 1e6);
    log_info(what, "id", sb->id, "mode", mode_name(sb), "ms", ms, NULL);
}

/* --- pause --------------------------------------------------------------------------------------- */

void act_check(struct sandbox *sb, const struct change *c)
{
    struct lifecycle_opts *o = &sb->lifecycle->opts;
    struct abx_err err;
    struct call *call;
    int r;

    (void)c;
    lifecycle_stages_begin(sb);
    sb->t_begin_ns = time_mono_ns();
    if (!sb->operation->request.must_be_healthy) {
        lifecycle_fire(sb, EV_DONE, &no_change);
        return;
    }
    call = call_new(sb, &err);
    r = call ? fault_at("pause.check", &err) : err.code;
    if (r == 0)
        r = o->on_check ? o->on_check(o->user, sb, call_on_store, call, &err)
                        : err_set(&err, ABX_UNAVAILABLE, "nobody can ask it");
    if (r < 0)
        call_failed(sb, call, &err);
}

void act_unhealthy(struct sandbox *sb, const struct change *c)
{
    struct abx_err err;

    (void)err_reason(&err, ABX_REASON_BUSY,
                     "Sandbox '%s' is not paused, it runs on: its guest is not healthy: %s", sb->id,
                     c->failure->msg);
    operation_end(sb, 0, &err);
}

/* The timer will be for other things; the wall clock may be set meanwhile. */
static void note_due(struct sandbox *sb)
{
    sb->due_ms = uv_now(sb->timer.loop) + uv_timer_get_due_in(&sb->timer);
}

int64_t lifecycle_take_left(struct sandbox *sb)
{
    int64_t left_ms = sb->end_ms - time_wall_ms();

    if (sb->due_ms > 0)
        left_ms = (int64_t)sb->due_ms - (int64_t)uv_now(sb->timer.loop);
    sb->due_ms = 0;
    return left_ms;
}

void lifecycle_hold(struct sandbox *sb, const char *point)
{
    struct lifecycle *l = sb->lifecycle;

    note_due(sb);
    (void)uv_timer_start(&sb->timer, lifecycle_on_timer, HOLD_MS, 0);
    if (fault_at(point, NULL) == 0 && !l->opts.on_hold(l->opts.user, sb))
        lifecycle_fire(sb, EV_HELD, &no_change);
}

void act_drain(struct sandbox *sb, const struct change *c)
{
    (void)c;
    if (!sb->operation->request.must_be_healthy)
        lifecycle_stages_begin(sb); /* without what was no check */
    /* Without its memory it could not be resumed any more. */
    sb->keeps_memory = !sb->operation->request.drops_memory || sb->has_lost_envs;
    sb->end_before_ms = sb->end_ms;
    lifecycle_hold(sb, "pause.drain");
}

void act_freeze(struct sandbox *sb, const struct change *c)
{
    (void)c;
    (void)uv_timer_stop(&sb->timer);
    call_driver(sb, CALL_FREEZE);
}

void act_save(struct sandbox *sb, const struct change *c)
{
    bool is_timeout = sb->operation && sb->operation->request.is_timeout;
    _cleanup_(freep) char *data = pause_event_data(sb, is_timeout ? "timeout" : "request");
    char id[UUID_SIZE];
    struct store_event event = { .id = id,
                                 .type = "sandbox.lifecycle.paused",
                                 .data = data ? data : "{}",
                                 .time_ms = time_wall_ms() };
    struct store_sandbox row;
    struct abx_err err;
    struct call *call = call_new(sb, &err);
    int r = call ? fault_at("pause.save", &err) : err.code;

    (void)c;
    uuid_new(id);
    sb->end_ms = event.time_ms; /* of a paused one: since when */
    row = sandbox_row(sb, "paused");
    if (r == 0)
        r = store_sandbox_pause(sb->lifecycle->opts.store, &row, &event, call_on_store, call, &err);
    if (r < 0)
        call_failed(sb, call, &err);
}

/* Without memory the processes end now. */
void act_stop(struct sandbox *sb, const struct change *c)
{
    (void)c;
    if (sb->call != 0)
        return;
    if (sb->keeps_memory)
        lifecycle_fire(sb, EV_DONE, &no_change);
    else
        call_driver(sb, CALL_STOP);
}

void act_paused(struct sandbox *sb, const struct change *c)
{
    (void)c;
    (void)fault_at("pause.answer", NULL);
    (void)uv_timer_stop(&sb->timer);
    sb->due_ms = 0;
    pause_log(sb, "sandbox paused");
    sb->lifecycle->opts.on_visible(sb->lifecycle->opts.user, sb);
    operation_end(sb, 204, NULL);
}

void act_pause_failed(struct sandbox *sb, const struct change *c)
{
    struct abx_err err = *c->failure;

    sb->end_ms = sb->end_before_ms;
    sb->has_no_pause = sb->operation && sb->operation->request.is_timeout;
    (void)err_wrap(&err, err.code, "Error pausing sandbox '%s' while %s", sb->id,
                   machine_state(c->from)->name);
    log_err("a sandbox could not be paused", &err);
    driver_trouble(&err);
    operation_end(sb, 0, &err);
    act_thaw(sb, c);
}

void act_thaw(struct sandbox *sb, const struct change *c)
{
    if (c->from == SANDBOX_RUNNING) /* a crash left it frozen */
        note_due(sb);
    if (sb->call == 0)
        call_driver(sb, CALL_THAW);
}

void lifecycle_note_over(struct sandbox *sb, int64_t left_ms)
{
    if (left_ms <= 0 && sb->t_over_ns == 0)
        sb->t_over_ns = MAX(time_mono_ns() + left_ms * NSEC_PER_MSEC, INT64_C(1));
}

/* It runs as before, with the time that it had. Where that was over and its pause has failed, who waits has his turn
 * before the next try: he may want to give it more time, or to know why. */
void act_reopen(struct sandbox *sb, const struct change *c)
{
    int64_t left_ms = lifecycle_take_left(sb);

    (void)c;
    if (!sb->has_no_pause)
        lifecycle_note_over(sb, left_ms);
    sb->has_no_pause = false;
    (void)uv_timer_start(&sb->timer, lifecycle_on_timer, (uint64_t)MAX(left_ms, (int64_t)AGAIN_MS),
                         0);
    sb->lifecycle->opts.on_visible(sb->lifecycle->opts.user, sb);
}

static void on_demoted(void *user, const struct abx_err *failure)
{
    (void)user;
    if (failure)
        log_err("row of a paused sandbox", failure);
}

void lifecycle_demote(struct sandbox *sb, enum loss loss)
{
    static const char *const data[] = {
        [LOSS_MEMORY] =
            "{\"mode\":\"filesystem\",\"reason\":\"its processes ended while it was paused: the "
            "machine was started anew, or they were killed\"}",
        [LOSS_ALL] =
            "{\"mode\":\"filesystem\",\"reason\":\"nothing is left of what was kept of it: it "
            "cannot be resumed\"}",
    };
    char id[UUID_SIZE];
    struct store_event event = { .id = id,
                                 .type = "sandbox.lifecycle.updated",
                                 .data = data[loss],
                                 .time_ms = time_wall_ms(),
                                 .is_warning = loss == LOSS_ALL };
    struct store_sandbox row;
    struct abx_err err;

    sb->keeps_memory = false;
    row = sandbox_row(sb, "paused");
    if (loss == LOSS_ALL)
        row.pause_mode = "lost"; /* so that a restart does not tell it again */
    uuid_new(id);
    log_warn(loss == LOSS_ALL ? "nothing is left of a paused sandbox"
                              : "the memory of a paused sandbox is lost, its files are kept",
             "id", sb->id, NULL);
    if (store_sandbox_pause(sb->lifecycle->opts.store, &row, &event, on_demoted, NULL, &err) < 0)
        on_demoted(NULL, &err);
}
