/* lifecycle_rollback.c - back to the files of a snapshot, in place. See machine.h.
 *
 * Everything that can fail comes while the sandbox could still go on as it was: a copy of the snapshot's files is made
 * beside its own while it runs, then it is frozen as for a pause, then the row says where it goes, then the driver
 * exchanges the files. From the row on a crash of any process leads to the new state, before it to the old one; what
 * the driver refuses after it is undone. Then the processes end, the sandbox starts anew, and the row says that it
 * runs. One that was paused stays so, without memory. The copy, which has the old files by then, is removed.
 */
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "control/lifecycle_internal.h"
#include "e2b/names.h"

#define START_TRIES_NS (30 * NSEC_PER_SEC) /* while the driver is away, or loses workers */
#define LOADED_MS 500

/* --- calls --------------------------------------------------------------------------------------- */

/* Has the driver looked, and found that it is not done? See driver.h; any other failure may come before it could look. */
static bool is_not_done(const struct abx_err *failure)
{
    return failure->code == ABX_FAILED_PRECONDITION || failure->reason == ABX_REASON_DISK_FULL;
}

/* Is the failure one after which nobody knows, or after which it may go well? */
static bool may_pass(const struct sandbox *sb, const struct abx_err *failure)
{
    bool is_away = failure->code == ABX_UNAVAILABLE || failure->reason == ABX_REASON_CONFLICT;

    if (sb->state == SANDBOX_RESTARTING)
        return is_away && time_mono_ns() - sb->t_restart_ns < START_TRIES_NS;
    if (sb->state == SANDBOX_ENDING) /* rollback_end_is_over */
        return true;
    if (sb->may_be_done)
        return !is_not_done(failure);
    return is_away || failure->code == ABX_DEADLINE_EXCEEDED;
}

enum lifecycle_event lifecycle_outcome(const struct sandbox *sb, const struct abx_err *failure)
{
    if (!failure)
        return EV_DONE;
    return machine_cell(sb->state, EV_REFUSED)->is_possible && !may_pass(sb, failure) ? EV_REFUSED
                                                                                      : EV_FAILED;
}

/* The driver and a call to it, for the step `point`; NULL when there is not both. */
static struct call *call_begin(struct sandbox *sb, const char *point, struct driver **ret,
                               struct abx_err *err)
{
    *ret = sb->lifecycle->opts.driver;
    if (fault_at(point, err) < 0)
        return NULL;
    if (*ret)
        return call_new(sb, err);
    (void)err_set(err, ABX_UNAVAILABLE, "there is no driver yet");
    return NULL;
}

/* --- what clients hear ---------------------------------------------------------------------------- */

/* NULL when out of memory. Owned by the caller. */
static char *event_data(const struct sandbox *sb)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(4096);

    (void)buf_printf(&b,
                     "{\"snapshotID\":\"%s:" NAME_DEFAULT_TAG
                     "\",\"mode\":\"filesystem\",\"reason\":\"%s\",",
                     sb->rollback_to, sb->has_no_start ? "rollback" : "request");
    (void)lifecycle_stages_put(&b, sb->stages, sb->n_stages);
    return buf_append_str(&b, "}") == BUF_OK && buf_cstr(&b) ? strdup(buf_cstr(&b)) : NULL;
}

static void log_change(const struct sandbox *sb)
{
    char ms[24];

    (void)snprintf(ms, sizeof ms, "%.2f", (double)(time_mono_ns() - sb->t_begin_ns) / 1e6);
    log_info("sandbox rolled back", "id", sb->id, "snapshot", sb->rollback_to, "state",
             machine_state(sb->state)->name, "ms", ms, NULL);
}

static void answer_failure(struct sandbox *sb, const struct change *c)
{
    struct abx_err err = *c->failure;

    if (!c->is_ours) {
        (void)err_wrap(&err, err.code, "Error rolling back sandbox '%s' to snapshot '%s' while %s",
                       sb->id, sb->rollback_to, machine_state(c->from)->name);
        log_err("a sandbox could not be rolled back", &err);
        driver_trouble(&err);
    }
    operation_end(sb, 0, &err);
}

/* --- while it can still go on as it was ------------------------------------------------------------ */

static int fetch(struct sandbox *sb, struct abx_err *err)
{
    struct driver *d;
    struct call *call;
    int r = sandbox_check_row(sb, true, err);

    if (r < 0)
        return r;
    /* The request may have waited for its turn, and the snapshot been deleted meanwhile. */
    if (!lifecycle_is_kept(sb->lifecycle, sb->rollback_to))
        return err_set(err, ABX_NOT_FOUND, "snapshot '%s' not found", sb->rollback_to);
    sandbox_id_new(sb->rollback_copy);
    r = lifecycle_keep(sb->lifecycle, sb->rollback_copy, err);
    if (r < 0) {
        sb->rollback_copy[0] = '\0';
        return r;
    }
    call = call_begin(sb, "rollback.fetch", &d, err);
    r = call ? d->ops->clone(d, sb->rollback_to, sb->rollback_copy, call_on_driver, call, err)
             : err->code;
    if (r < 0)
        call_failed(sb, call, err);
    return 0;
}

void act_fetch(struct sandbox *sb, const struct change *c)
{
    struct abx_err err;

    (void)c;
    lifecycle_stages_begin(sb);
    sb->t_begin_ns = time_mono_ns();
    sb->t_restart_ns = 0;
    sb->is_again = sb->has_no_start = sb->may_be_done = false;
    memcpy(sb->rollback_to, sb->operation->request.snapshot_id, sizeof sb->rollback_to);
    if (fetch(sb, &err) < 0)
        lifecycle_fire(sb, EV_FAILED, &(struct change){ .failure = &err, .is_ours = true });
}

void act_clear(struct sandbox *sb, const struct change *c)
{
    (void)c;
    lifecycle_hold(sb, "rollback.clear");
}

/* What was written before is not wanted any more, nor is memory. */
void act_halt(struct sandbox *sb, const struct change *c)
{
    struct abx_err err;
    struct driver *d;
    struct call *call;

    (void)c;
    (void)uv_timer_stop(&sb->timer);
    call = call_begin(sb, "rollback.halt", &d, &err);
    if (!call || d->ops->freeze(d, sb->id, DRIVER_FREEZE_BRIEF, call_on_driver, call, &err) < 0)
        call_failed(sb, call, &err);
}

void act_note(struct sandbox *sb, const struct change *c)
{
    struct store_sandbox row = sandbox_row(sb, "");
    struct abx_err err;
    struct call *call = fault_at("rollback.note", &err) == 0 ? call_new(sb, &err) : NULL;

    (void)c;
    if (!call ||
        store_sandbox_note_rollback(sb->lifecycle->opts.store, &row, call_on_store, call, &err) < 0)
        call_failed(sb, call, &err);
}

void act_exchange(struct sandbox *sb, const struct change *c)
{
    bool is_synced = sb->state == SANDBOX_EXCHANGING_PAUSED; /* as a pause of files is */
    struct abx_err err;
    struct driver *d;
    struct call *call;

    (void)c;
    if (sb->call != 0)
        return;
    call = call_begin(sb, "rollback.exchange", &d, &err);
    if (!call ||
        d->ops->exchange(d, sb->id, sb->rollback_copy, is_synced, call_on_driver, call, &err) < 0)
        call_failed(sb, call, &err);
}

/* From now on only the driver's word that it is not done leads back: what is taken for the copy may have the old files. */
void act_exchange_again(struct sandbox *sb, const struct change *c)
{
    sb->may_be_done = true;
    act_later(sb, c);
}

void rollback_forget(struct sandbox *sb)
{
    if (sb->rollback_copy[0])
        lifecycle_unkeep(sb->lifecycle, sb->rollback_copy);
    sb->rollback_copy[0] = sb->rollback_to[0] = '\0';
}

/* The row goes back to what it said. When that cannot be written, a restart tries once more, and the driver refuses:
 * the copy is not there any more. */
static void undo(struct sandbox *sb, enum sandbox_state from)
{
    bool is_noted =
        from != SANDBOX_FETCHING && from != SANDBOX_FETCHING_PAUSED && from != SANDBOX_HALTING;
    struct store_sandbox row;
    struct abx_err err;

    rollback_forget(sb);
    row = sandbox_row(sb, "");
    if (is_noted &&
        store_sandbox_note_rollback(sb->lifecycle->opts.store, &row, NULL, NULL, &err) < 0)
        log_err("row of a sandbox that could not be rolled back", &err);
}

void act_rollback_failed(struct sandbox *sb, const struct change *c)
{
    struct lifecycle *l = sb->lifecycle;

    if (sb->state == SANDBOX_PAUSED) {
        (void)uv_timer_stop(&sb->timer);
        l->opts.on_visible(l->opts.user, sb);
    }
    answer_failure(sb, c);
    undo(sb, c->from);
}

void act_rollback_undo(struct sandbox *sb, const struct change *c)
{
    answer_failure(sb, c);
    undo(sb, c->from);
    act_thaw(sb, c);
}

/* --- behind that ----------------------------------------------------------------------------------- */

static void end_processes(struct sandbox *sb)
{
    struct abx_err err;
    struct driver *d;
    struct call *call = call_begin(sb, "rollback.end", &d, &err);

    if (!call || d->ops->stop(d, sb->id, call_on_driver, call, &err) < 0)
        call_failed(sb, call, &err);
}

static void on_frozen_again(void *user, uint32_t us, const struct abx_err *failure)
{
    struct call *c = user;
    struct sandbox *sb = lifecycle_find(c->lifecycle, c->id);
    bool has_none = failure && failure->code == ABX_FAILED_PRECONDITION;

    (void)us;
    if (!sb || sb->call != c->number || (failure && !has_none)) {
        call_ended(c, failure);
        return;
    }
    free(c);
    sb->call = 0;
    end_processes(sb);
}

/* After a crash it may have been started already, by one who could not say so any more: only what is frozen
 * can be ended and keep its files. */
void act_end(struct sandbox *sb, const struct change *c)
{
    struct abx_err err;
    struct driver *d;
    struct call *call;

    (void)c;
    if (sb->call != 0)
        return;
    if (!sb->is_again) {
        end_processes(sb);
        return;
    }
    call = call_begin(sb, "rollback.end", &d, &err);
    if (!call || d->ops->freeze(d, sb->id, DRIVER_FREEZE_BRIEF, on_frozen_again, call, &err) < 0)
        call_failed(sb, call, &err);
}

bool rollback_end_is_over(struct sandbox *sb, const struct abx_err *failure)
{
    struct change c = { .failure = failure };

    if ((sb->state != SANDBOX_ENDING && sb->state != SANDBOX_ENDING_PAUSED) ||
        !lifecycle_stop_is_over(sb, failure))
        return false;
    /* What has processes that do not end cannot be started, but can be paused like one that was. */
    if (sb->state == SANDBOX_ENDING && failure->code != ABX_NOT_FOUND)
        lifecycle_fire(sb, EV_REFUSED, &c);
    else
        lifecycle_fire(sb, EV_DONE, &(struct change){ 0 });
    return true;
}

void act_restart(struct sandbox *sb, const struct change *c)
{
    struct abx_err err;

    (void)c;
    (void)uv_timer_stop(&sb->timer);
    if (sb->t_restart_ns == 0)
        sb->t_restart_ns = time_mono_ns();
    if (sandbox_check_row(sb, true, &err) < 0 || lifecycle_start(sb, &err) < 0)
        lifecycle_fire(sb, lifecycle_outcome(sb, &err), &(struct change){ .failure = &err });
}

void act_restart_again(struct sandbox *sb, const struct change *c)
{
    sb->is_again = true;
    act_later(sb, c);
}

void act_restart_failed(struct sandbox *sb, const struct change *c)
{
    struct abx_err err = *c->failure;

    (void)err_wrap(
        &err, err.code,
        "Sandbox '%s' has the files of snapshot '%s' and is paused, because it could not "
        "be started",
        sb->id, sb->rollback_to);
    log_err("a sandbox that was rolled back", &err);
    driver_trouble(&err);
    operation_end(sb, 0, &err);
    sb->has_no_start = true;
    act_park(sb, c);
}

void act_settle(struct sandbox *sb, const struct change *c)
{
    _cleanup_(freep) char *data = NULL;
    char id[UUID_SIZE];
    struct store_event event = { .id = id,
                                 .type = "sandbox.lifecycle.rolled_back",
                                 .time_ms = time_wall_ms() };
    struct store_sandbox row;
    struct abx_err err;
    struct call *call = fault_at("rollback.settle", &err) == 0 ? call_new(sb, &err) : NULL;

    lifecycle_take_created(sb, c->created);
    data = event_data(sb);
    event.data = data ? data : "{}";
    uuid_new(id);
    row = sandbox_row(sb, "running");
    row.config = ""; /* stays: another one may be on its way */
    if (!call || store_sandbox_run(sb->lifecycle->opts.store, &row, NULL, &event, call_on_store,
                                   call, &err) < 0)
        call_failed(sb, call, &err);
}

/* Its time went on meanwhile. */
static void set_time(struct sandbox *sb)
{
    int64_t left_ms = lifecycle_take_left(sb);

    lifecycle_note_over(sb, left_ms);
    (void)uv_timer_start(&sb->timer, lifecycle_on_timer, (uint64_t)MAX(left_ms, INT64_C(0)), 0);
}

void act_rolled_back(struct sandbox *sb, const struct change *c)
{
    sb->is_row_behind = sb->is_late_rollback = c->failure != NULL;
    if (c->failure) {
        log_err("row of a sandbox that was rolled back cannot be written yet", c->failure);
        free(sb->late_data);
        sb->late_data = event_data(sb);
    }
    set_time(sb);
    log_change(sb);
    sb->lifecycle->opts.on_visible(sb->lifecycle->opts.user, sb);
    rollback_forget(sb);
    (void)fault_at("rollback.answer", NULL);
    operation_end(sb, 200, NULL);
}

void act_park(struct sandbox *sb, const struct change *c)
{
    _cleanup_(freep) char *data = event_data(sb);
    char id[UUID_SIZE];
    struct store_event event = { .id = id,
                                 .type = sb->has_no_start ? "sandbox.lifecycle.paused"
                                                          : "sandbox.lifecycle.rolled_back",
                                 .data = data ? data : "{}",
                                 .time_ms = time_wall_ms(),
                                 .is_warning = sb->has_no_start };
    struct store_sandbox row;
    struct abx_err err;
    struct call *call;

    (void)c;
    if (sb->call != 0)
        return;
    call = fault_at("rollback.park", &err) == 0 ? call_new(sb, &err) : NULL;
    uuid_new(id);
    sb->keeps_memory = false;
    if (sb->has_no_start)
        sb->end_ms = event.time_ms; /* of a paused one: since when */
    row = sandbox_row(sb, "paused");
    if (!call ||
        store_sandbox_pause(sb->lifecycle->opts.store, &row, &event, call_on_store, call, &err) < 0)
        call_failed(sb, call, &err);
}

void act_parked(struct sandbox *sb, const struct change *c)
{
    (void)c;
    (void)uv_timer_stop(&sb->timer);
    sb->due_ms = 0;
    log_change(sb);
    sb->lifecycle->opts.on_visible(sb->lifecycle->opts.user, sb);
    rollback_forget(sb);
    (void)fault_at("rollback.answer", NULL);
    operation_end(sb, 200, NULL);
}

/* --- after a restart ------------------------------------------------------------------------------ */

void rollback_load(struct sandbox *sb)
{
    struct abx_err err;

    if (sb->state != SANDBOX_RUNNING && sb->state != SANDBOX_PAUSED) {
        sb->rollback_copy[0] = sb->rollback_to[0] = '\0';
        return;
    }
    sb->state = sb->state == SANDBOX_RUNNING ? SANDBOX_EXCHANGING : SANDBOX_EXCHANGING_PAUSED;
    sb->is_again = sb->may_be_done = true;
    lifecycle_stages_begin(sb);
    sb->t_begin_ns = sb->t_state_ns;
    /* The driver may not come. */
    (void)uv_timer_start(&sb->timer, lifecycle_on_timer, LOADED_MS, 0);
    /* Without it the next comparison may remove the copy: then the driver says what became of it. */
    if (lifecycle_keep(sb->lifecycle, sb->rollback_copy, &err) < 0)
        log_err("what a sandbox is to be rolled back to", &err);
}
