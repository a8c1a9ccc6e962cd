/* lifecycle_resume.c - resume. See machine.h.
 *
 * A resume wakes first and writes afterwards: a crash between leaves it paused, and lifecycle_restart.c brings the driver
 * back to that. It runs also while its row cannot be written; that comes later.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "control/lifecycle_internal.h"

static const struct change no_change;

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

    return sandbox_check_row(sb, starts_anew, err);
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
static int write_running(struct sandbox *sb, const char *config, store_done_fn done, void *user,
                         struct abx_err *err)
{
    _cleanup_(freep) char *resumed = pause_event_data(sb, "request");
    const char *data = sb->is_late_rollback ? sb->late_data : resumed;
    char id[UUID_SIZE];
    struct store_event event = { .id = id,
                                 .type = sb->is_late_rollback ? "sandbox.lifecycle.rolled_back"
                                                              : "sandbox.lifecycle.resumed",
                                 .data = data ? data : "{}",
                                 .time_ms = sb->started_ms };
    struct store_sandbox row = sandbox_row(sb, "running");

    uuid_new(id);
    row.config = config;      /* what is not changed may be on its way to be */
    if (sb->is_late_rollback) /* which leaves started_ms as it was */
        event.time_ms = time_wall_ms();
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
    sb->is_late_rollback = false;
    sb->started_ms = time_wall_ms();
    sb->timeout_ms = sb->operation->request.timeout_ms;
    sb->end_ms = sb->started_ms + sb->timeout_ms;
    if (r == 0 && sb->operation->request.config)
        r = operation_configure(sb, sb->operation, &config, &err);
    if (r == 0)
        r = write_running(sb, config, call_on_store, call, &err);
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
    sb->t_over_ns = 0;
    (void)uv_timer_start(&sb->timer, lifecycle_on_timer, (uint64_t)sb->timeout_ms, 0);
    pause_log(sb, "sandbox resumed");
    sb->lifecycle->opts.on_visible(sb->lifecycle->opts.user, sb);
    operation_end(sb, 201, NULL);
}

/* --- its row, later -------------------------------------------------------------------------------- */

struct late_row {
    struct lifecycle *lifecycle;
    char id[SANDBOX_ID_SIZE];
};

static void on_written_at_last(void *user, const struct abx_err *failure)
{
    _cleanup_(freep) struct late_row *late = user;
    struct sandbox *sb = lifecycle_find(late->lifecycle, late->id);

    if (failure)
        log_err("row of a running sandbox cannot be written yet", failure);
    if (!sb)
        return;
    sb->is_row_coming = false;
    if (!failure)
        sb->is_row_behind = false;
}

void lifecycle_write_rows(struct lifecycle *l)
{
    struct abx_err err;

    for (struct sandbox *sb = l->first; sb; sb = sb->next) {
        _cleanup_(freep) char *config = NULL;
        struct late_row *late;

        if (!sb->is_row_behind || sb->is_row_coming || sb->state != SANDBOX_RUNNING)
            continue;
        if (sb->config_next) /* a change is on its way, with all the rest: next time */
            continue;
        late = calloc(1, sizeof *late);
        if (!late)
            return;
        late->lifecycle = l;
        (void)snprintf(late->id, sizeof late->id, "%s", sb->id);
        config = json_dumps(sb->config, JSON_COMPACT);
        sb->is_row_coming = true;
        if (write_running(sb, config, on_written_at_last, late, &err) < 0)
            on_written_at_last(late, &err);
    }
}
