/* lifecycle_pause.c - pause and resume. See machine.h.
 *
 * A pause of either kind first lets the gateways end what is in flight, then has the driver freeze; the
 * row `paused` is what makes it true, and is on the disk before it is answered. Without memory the
 * processes end after that. Whatever was done before is undone when it fails. A resume wakes first and
 * writes afterwards: a crash between leaves it paused, and lifecycle_restart.c brings the driver back to that.
 */
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "control/lifecycle_internal.h"

#define HOLD_MS 4500 /* gateways are disconnected before, TABLE_HOLD_MS */
#define LATER_MS 500
#define STOP_MAX_NS (60 * NSEC_PER_SEC) /* twice a call's own deadline */
#define WARN_EVERY_NS (30 * NSEC_PER_SEC)
#define AGAIN_MS 5000 /* after a pause that failed it is not over at once again */

static const struct change no_change;

/* --- calls --------------------------------------------------------------------------------------- */

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

enum driver_call { CALL_FREEZE, CALL_THAW, CALL_STOP, CALL_COPY };

static void call_driver(struct sandbox *sb, enum driver_call what)
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

/* --- events -------------------------------------------------------------------------------------- */

static const char *mode_name(const struct sandbox *sb)
{
    return sb->keeps_memory ? "full" : "filesystem";
}

/* {"mode":...,"reason":...,"stages":[...]}; NULL when out of memory. Owned by the caller. */
static char *event_data(const struct sandbox *sb, const char *reason)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(4096);

    (void)buf_printf(&b, "{\"mode\":\"%s\",\"reason\":\"%s\",", mode_name(sb), reason);
    (void)lifecycle_stages_put(&b, sb->stages, sb->n_stages);
    return buf_append_str(&b, "}") == BUF_OK && buf_cstr(&b) ? strdup(buf_cstr(&b)) : NULL;
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

void lifecycle_hold(struct sandbox *sb, const char *point)
{
    struct lifecycle *l = sb->lifecycle;

    (void)uv_timer_start(&sb->timer, lifecycle_on_timer, HOLD_MS, 0);
    if (fault_at(point, NULL) == 0 && !l->opts.on_hold(l->opts.user, sb))
        lifecycle_fire(sb, EV_HELD, &no_change);
}

void act_drain(struct sandbox *sb, const struct change *c)
{
    (void)c;
    if (!sb->operation->request.must_be_healthy)
        lifecycle_stages_begin(sb); /* without what was no check */
    sb->keeps_memory = !sb->operation->request.drops_memory;
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
    _cleanup_(freep) char *data = event_data(sb, is_timeout ? "timeout" : "request");
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

static void log_change(const struct sandbox *sb, const char *what)
{
    char ms[24];

    (void)snprintf(ms, sizeof ms, "%.2f", (double)(time_mono_ns() - sb->t_begin_ns) / 1e6);
    log_info(what, "id", sb->id, "mode", mode_name(sb), "ms", ms, NULL);
}

void act_paused(struct sandbox *sb, const struct change *c)
{
    (void)c;
    (void)fault_at("pause.answer", NULL);
    (void)uv_timer_stop(&sb->timer);
    log_change(sb, "sandbox paused");
    sb->lifecycle->opts.on_visible(sb->lifecycle->opts.user, sb);
    operation_end(sb, 204, NULL);
}

void act_pause_failed(struct sandbox *sb, const struct change *c)
{
    struct abx_err err = *c->failure;

    sb->end_ms = sb->end_before_ms;
    (void)err_wrap(&err, err.code, "Error pausing sandbox '%s' while %s", sb->id,
                   machine_state(c->from)->name);
    log_err("a sandbox could not be paused", &err);
    driver_trouble(&err);
    operation_end(sb, 0, &err);
    act_thaw(sb, c);
}

void act_thaw(struct sandbox *sb, const struct change *c)
{
    (void)c;
    if (sb->call == 0)
        call_driver(sb, CALL_THAW);
}

/* It runs as before, with the time that it had. */
void act_reopen(struct sandbox *sb, const struct change *c)
{
    int64_t left_ms = sb->end_ms - time_wall_ms();

    (void)c;
    (void)uv_timer_start(&sb->timer, lifecycle_on_timer, (uint64_t)MAX(left_ms, (int64_t)AGAIN_MS),
                         0);
    sb->lifecycle->opts.on_visible(sb->lifecycle->opts.user, sb);
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

void act_later(struct sandbox *sb, const struct change *c)
{
    /* Not its timer but the driver, which is compared with every 30 s: the time that it has goes on. */
    if (c->event == EV_RETRY && uv_is_active((const uv_handle_t *)&sb->timer))
        return;
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
    if (c->failure && c->failure->code != ABX_UNAVAILABLE)
        log_later(sb, c->failure);
    (void)uv_timer_start(&sb->timer, lifecycle_on_timer, LATER_MS, 0);
}

/* --- copies --------------------------------------------------------------------------------------- */

void act_copy(struct sandbox *sb, const struct change *c)
{
    (void)c;
    call_driver(sb, CALL_COPY);
}

void act_copied(struct sandbox *sb, const struct change *c)
{
    struct abx_err err;

    if (!c->failure) {
        operation_end(sb, 201, NULL);
        return;
    }
    err = *c->failure;
    (void)err_wrap(&err, err.code, "Sandbox \"%s\" cannot be copied", sb->id);
    log_err("copy", &err);
    driver_trouble(&err);
    operation_end(sb, 0, &err);
}

/* --- resume -------------------------------------------------------------------------------------- */

static void start_anew(struct sandbox *sb)
{
    struct abx_err err;

    if (lifecycle_start(sb, &err) < 0)
        lifecycle_fire(sb, EV_FAILED, &(struct change){ .failure = &err });
}

static void on_dropped(void *user, uint32_t us, const struct abx_err *failure)
{
    struct call *c = user;
    struct sandbox *sb = lifecycle_find(c->lifecycle, c->id);

    (void)us;
    if (failure || !sb || sb->call != c->number) {
        call_ended(c, failure);
        return;
    }
    free(c);
    sb->call = 0;
    sb->keeps_memory = false;
    start_anew(sb);
}

/* Its memory is not wanted any more: the processes end, then it starts with its files. */
static void drop_memory(struct sandbox *sb)
{
    struct driver *d = sb->lifecycle->opts.driver;
    struct abx_err err;
    struct call *c = call_new(sb, &err);

    if (!c || fault_at("resume.stop", &err) < 0 || d->ops->stop(d, sb->id, on_dropped, c, &err) < 0)
        call_failed(sb, c, &err);
}

static void on_held_fast(void *user, uint32_t us, const struct abx_err *failure)
{
    struct call *c = user;
    struct sandbox *sb = lifecycle_find(c->lifecycle, c->id);
    struct driver *d = c->lifecycle->opts.driver;
    struct abx_err err;

    (void)us;
    if (failure || !sb || sb->call != c->number)
        call_ended(c, failure);
    else if (d->ops->stop(d, sb->id, on_dropped, c, &err) < 0)
        call_failed(sb, c, &err);
}

/* The driver died when it had started it and could not say so. What runs now is nobody's: its files are noted as
 * kept again, it ends, then it starts. A comparison would do that as well, if nobody asks meanwhile. */
static void end_and_start(struct sandbox *sb)
{
    struct driver *d = sb->lifecycle->opts.driver;
    struct abx_err err;
    struct call *c = call_new(sb, &err);

    if (!c || d->ops->freeze(d, sb->id, DRIVER_FREEZE_FILES, on_held_fast, c, &err) < 0)
        call_failed(sb, c, &err);
}

/* A row that was damaged does not say what it needs; with its memory it has its environment. */
static int check_row(const struct sandbox *sb, struct abx_err *err)
{
    bool starts_anew = !sb->keeps_memory || sb->operation->request.drops_memory;

    if (sb->damage[0])
        return err_set(err, ABX_DATA_LOSS, "%s", sb->damage);
    return starts_anew && sb->has_lost_envs
               ? err_set(err, ABX_DATA_LOSS, "in the database its envs are damaged")
               : 0;
}

void act_wake(struct sandbox *sb, const struct change *c)
{
    struct lifecycle *l = sb->lifecycle;
    const struct sandbox_request *request = &sb->operation->request;
    struct abx_err err;

    (void)c;
    lifecycle_stages_begin(sb);
    sb->t_begin_ns = time_mono_ns();
    /* It counts itself by now. */
    if (lifecycle_check_limit(sb, lifecycle_count_active(l, sb->team, NULL) - 1,
                              request->max_active, &err) < 0) {
        lifecycle_fire(sb, EV_FAILED, &(struct change){ .failure = &err, .is_ours = true });
        return;
    }
    if (check_row(sb, &err) < 0) {
        lifecycle_fire(sb, EV_FAILED, &(struct change){ .failure = &err });
        return;
    }
    l->opts.on_visible(l->opts.user, sb); /* requests wait from here on */
    if (!sb->keeps_memory && sb->operation->ends_first)
        end_and_start(sb);
    else if (!sb->keeps_memory)
        start_anew(sb);
    else if (request->drops_memory)
        drop_memory(sb);
    else
        call_driver(sb, CALL_THAW);
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
    uuid_new(id);
    log_warn(loss == LOSS_ALL ? "nothing is left of a paused sandbox"
                              : "the memory of a paused sandbox is lost, its files are kept",
             "id", sb->id, NULL);
    if (store_sandbox_pause(sb->lifecycle->opts.store, &row, &event, NULL, NULL, &err) < 0)
        log_err("row of a paused sandbox", &err);
}

/* What the driver lacks, be it files or the template, is part of what was kept. */
static void resume_trouble(struct abx_err *err)
{
    if (err->code != ABX_DATA_LOSS && err->code != ABX_NOT_FOUND) {
        driver_trouble(err);
        return;
    }
    err->code = ABX_DATA_LOSS;
    err->reason = ABX_REASON_SAVED_STATE;
}

void act_wake_failed(struct sandbox *sb, const struct change *c)
{
    struct abx_err err = *c->failure;

    if (sb->keeps_memory && err.code == ABX_FAILED_PRECONDITION && sb->operation) {
        lifecycle_demote(sb, LOSS_MEMORY);
        lifecycle_fire(sb, sb->operation->request.what, &no_change);
        return;
    }
    if (!sb->keeps_memory && err.reason == ABX_REASON_CONFLICT && sb->operation &&
        !sb->operation->ends_first) {
        sb->operation->ends_first = true;
        lifecycle_fire(sb, sb->operation->request.what, &no_change);
        return;
    }
    sb->lifecycle->opts.on_visible(sb->lifecycle->opts.user, sb);
    if (!c->is_ours) {
        (void)err_wrap(&err, err.code, "Sandbox \"%s\" cannot be resumed while %s", sb->id,
                       machine_state(c->from)->name);
        log_err("resume", &err);
        resume_trouble(&err);
    }
    operation_end(sb, 0, &err);
}

/* The row says `running` from started_ms on, and the event comes. `config` may be NULL: it stays as it is. */
static int write_resumed(struct sandbox *sb, const char *config, store_done_fn done, void *user,
                         struct abx_err *err)
{
    _cleanup_(freep) char *data = event_data(sb, "request");
    char id[UUID_SIZE];
    struct store_event event = { .id = id,
                                 .type = "sandbox.lifecycle.resumed",
                                 .data = data ? data : "{}",
                                 .time_ms = sb->started_ms };
    struct store_sandbox row = sandbox_row(sb, "running");

    uuid_new(id);
    row.config = config; /* what is not changed may be on its way to be */
    return store_sandbox_run(sb->lifecycle->opts.store, &row, NULL, &event, done, user, err);
}

void act_resume_row(struct sandbox *sb, const struct change *c)
{
    _cleanup_(freep) char *config = NULL;
    struct abx_err err;
    struct call *call = call_new(sb, &err);
    int r = call ? fault_at("resume.row", &err) : err.code;

    if (c->created)
        lifecycle_take_created(sb, c->created);
    sb->started_ms = time_wall_ms();
    sb->timeout_ms = sb->operation->request.timeout_ms;
    sb->end_ms = sb->started_ms + sb->timeout_ms;
    if (r == 0 && sb->operation->request.config)
        r = operation_configure(sb, sb->operation, &config, &err);
    if (r == 0)
        r = write_resumed(sb, config, call_on_store, call, &err);
    if (r < 0)
        call_failed(sb, call, &err);
}

void act_resumed(struct sandbox *sb, const struct change *c)
{
    _cleanup_(freep) char *text = NULL;
    struct operation *op = sb->operation;
    struct abx_err err;
    int r = 0;

    (void)fault_at("resume.answer", NULL);
    sb->is_row_behind = c->failure != NULL;
    if (c->failure)
        log_err("row of a resumed sandbox cannot be written yet", c->failure);
    /* It runs with what was asked for, also while its row cannot say so. */
    if (op->request.config && !op->config)
        r = operation_configure(sb, op, &text, &err);
    if (r == 0 && op->config)
        r = operation_configured(sb, op, NULL, &err);
    if (r < 0)
        log_err("configuration of a resumed sandbox", &err);
    (void)uv_timer_start(&sb->timer, lifecycle_on_timer, (uint64_t)sb->timeout_ms, 0);
    log_change(sb, "sandbox resumed");
    sb->lifecycle->opts.on_visible(sb->lifecycle->opts.user, sb);
    operation_end(sb, 201, NULL);
}

struct late_row {
    struct lifecycle *lifecycle;
    char id[SANDBOX_ID_SIZE];
};

static void on_written_at_last(void *user, const struct abx_err *failure)
{
    _cleanup_(freep) struct late_row *late = user;
    struct sandbox *sb = lifecycle_find(late->lifecycle, late->id);

    if (failure)
        log_err("row of a resumed sandbox cannot be written yet", failure);
    else if (sb)
        sb->is_row_behind = false;
}

void lifecycle_write_rows(struct lifecycle *l)
{
    struct abx_err err;

    for (struct sandbox *sb = l->first; sb; sb = sb->next) {
        _cleanup_(freep) char *config = NULL;
        struct late_row *late;

        if (!sb->is_row_behind || sb->state != SANDBOX_RUNNING)
            continue;
        if (sb->config_next) /* a change is on its way, with all the rest: next time */
            continue;
        late = calloc(1, sizeof *late);
        if (!late)
            return;
        late->lifecycle = l;
        (void)snprintf(late->id, sizeof late->id, "%s", sb->id);
        config = json_dumps(sb->config, JSON_COMPACT);
        if (write_resumed(sb, config, on_written_at_last, late, &err) < 0)
            on_written_at_last(late, &err);
    }
}
