/* lifecycle_end.c - how sandboxes end: kill, death, the end of their time. Kill wins from every state.
 */
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "control/lifecycle_internal.h"

#define KILL_RETRY_MS 500

static const struct change no_change;

/* --- killing ----------------------------------------------------------------------------------- */

static void on_removed(void *user, const struct abx_err *failure);
static void on_killed(void *user, bool existed, const struct abx_err *failure);

/* What the event of the end tells: why, and how long each stage took. NULL when out of memory. */
static char *end_data(const struct sandbox *sb)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(4096);

    (void)buf_printf(&b, "{\"reason\":\"%s\",", sb->kill_reason);
    (void)lifecycle_stages_put(&b, sb->stages, sb->n_stages);
    return buf_append_str(&b, "}") == BUF_OK && buf_cstr(&b) ? strdup(buf_cstr(&b)) : NULL;
}

/* Nobody asked for it, and nothing else says so. */
static bool ends_badly(const char *reason)
{
    static const char *const bad[] = { "oom", "signal", "lost", "died" };

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (strcmp(reason, bad[i]) == 0)
            return true;
    return false;
}

/* The row goes, and the event of the end comes. */
static int remove_row(struct sandbox *sb, store_done_fn done, struct abx_err *err)
{
    struct store_sandbox row = sandbox_row(sb, "killing");
    _cleanup_(freep) char *data = end_data(sb);
    char id[UUID_SIZE];
    struct store_event event = { .id = id,
                                 .type = "sandbox.lifecycle.killed",
                                 .data = data ? data : "{}",
                                 .time_ms = time_wall_ms(),
                                 .is_warning = ends_badly(sb->kill_reason) };
    int r = fault_at("kill.row", err);

    uuid_new(id);
    return r < 0 ? r
                 : store_sandbox_remove(sb->lifecycle->opts.store, &row,
                                        sb->started_ms > 0 ? &event : NULL, done, sb, err);
}

static void submit_remove(struct sandbox *sb)
{
    struct abx_err err;

    if (remove_row(sb, on_removed, &err) == 0)
        sb->is_removing = true;
    else
        (void)uv_timer_start(&sb->timer, lifecycle_on_timer, KILL_RETRY_MS, 0);
}

static void check_killed(struct sandbox *sb)
{
    if (sb->is_killed && sb->is_told && !sb->is_starting)
        lifecycle_fire(sb, EV_CLEARED, &no_change);
}

void act_remove(struct sandbox *sb, const struct change *c)
{
    (void)c;
    (void)uv_timer_stop(&sb->timer);
    submit_remove(sb);
}

/* One kill at a time; a failed one is tried again by timer, or when the driver is back. */
static void send_kill(struct sandbox *sb)
{
    struct driver *d = sb->lifecycle->opts.driver;
    struct abx_err err = { 0 };

    if (sb->is_killing) {
        sb->must_kill = true;
        return;
    }
    if (d && fault_at("kill.processes", &err) == 0 &&
        d->ops->kill(d, sb->id, sb->request_id, on_killed, sb, &err) == 0)
        sb->is_killing = true;
    else
        (void)uv_timer_start(&sb->timer, lifecycle_on_timer, KILL_RETRY_MS, 0);
}

void lifecycle_end(struct sandbox *sb, enum sandbox_state from, const char *reason,
                   const struct store_answer *answer)
{
    struct lifecycle *l = sb->lifecycle;
    struct store_sandbox row = sandbox_row(sb, "killing");
    bool was_visible = machine_state(from)->shown || sb->is_known;

    sb->kill_reason = reason;
    sb->t_kill_ns = time_mono_ns();
    sb->call = 0;
    (void)uv_timer_stop(&sb->timer);
    /* Not needed for safety (after a crash the row still says running, and so does the sandbox), so
     * that a full disk does not stop a kill. */
    if (fault_at("kill.note", NULL) == 0)
        (void)store_sandbox_killing(l->opts.store, &row, answer, NULL);
    sandbox_forget_envs(sb); /* the row borrows from it */
    rollback_forget(sb);
    lifecycle_refuse_all(sb);
    sb->is_told = !was_visible || !l->opts.on_drop(l->opts.user, sb);
    if (!sb->is_killed)
        send_kill(sb);
    check_killed(sb);
}

void act_kill(struct sandbox *sb, const struct change *c)
{
    lifecycle_stages_begin(sb);
    lifecycle_end(sb, c->from, c->reason, NULL);
}

static void on_self_paused(void *user, int status, const struct abx_err *failure)
{
    (void)user;
    (void)status;
    if (failure) /* tried again when its time is over once more */
        log_err("a sandbox could not be paused at its end", failure);
}

void act_expire(struct sandbox *sb, const struct change *c)
{
    struct sandbox_request request = { .what = EV_PAUSE, .is_timeout = true };
    struct abx_err err;

    (void)c;
    sb->t_over_ns = 0;
    if (sandbox_pauses_itself(sb)) {
        request.drops_memory = json_is_false(json_object_get(sb->config, "autoPauseMemory"));
        if (lifecycle_request(sb->lifecycle, sb->id, &request, on_self_paused, NULL, &err) < 0) {
            log_err("a sandbox could not be paused at its end", &err);
            (void)uv_timer_start(&sb->timer, lifecycle_on_timer, KILL_RETRY_MS, 0);
        }
        return;
    }
    lifecycle_fire(sb, EV_KILL, &(struct change){ .reason = "timeout" });
}

void act_kill_starting(struct sandbox *sb, const struct change *c)
{
    struct store_answer forget = { 0, NULL };
    struct abx_err err;

    (void)err_set(&err, ABX_ABORTED, "Sandbox '%s' was killed while it was created", sb->id);
    sb->is_starting = sb->has_start;
    if (c->from == SANDBOX_STARTING)
        lifecycle_count_create(sb, &err);
    lifecycle_answer_creators(sb, 0, NULL, &err, false);
    lifecycle_end(sb, c->from, c->reason, c->from == SANDBOX_STARTING ? &forget : NULL);
}

/* While a write is on its way: first its end, then the kill. */
void act_kill_later(struct sandbox *sb, const struct change *c)
{
    sb->wants_kill = true;
    sb->kill_reason = c->reason;
}

void act_killed(struct sandbox *sb, const struct change *c)
{
    (void)c;
    sb->is_killing = false;
    if (sb->is_starting)
        return; /* the driver may still be making it: the kill after its answer counts */
    if (sb->must_kill) {
        sb->must_kill = false;
        send_kill(sb);
        return;
    }
    sb->is_killed = true;
    check_killed(sb);
}

void act_kill_failed(struct sandbox *sb, const struct change *c)
{
    if (c->failure->code != ABX_UNAVAILABLE)
        log_warn("kill failed, trying again", "id", sb->id, "error", c->failure->msg, NULL);
    sb->is_killing = false;
    sb->must_kill = false;
    (void)uv_timer_start(&sb->timer, lifecycle_on_timer, KILL_RETRY_MS, 0);
}

void act_kill_again(struct sandbox *sb, const struct change *c)
{
    (void)c;
    if (!sb->is_killing && !sb->is_killed)
        send_kill(sb);
}

/* Killing, and the driver's answer to create came: whatever it is, one kill has to follow. */
void act_start_ended(struct sandbox *sb, const struct change *c)
{
    sb->is_starting = false;
    if (c->failure && !c->was_sent && !sb->is_killing) {
        sb->is_killed = true;
        check_killed(sb);
        return;
    }
    send_kill(sb);
}

void act_told(struct sandbox *sb, const struct change *c)
{
    (void)c;
    sb->is_told = true;
    check_killed(sb);
}

void act_died(struct sandbox *sb, const struct change *c)
{
    sb->has_died = true;
    sb->is_killed = true;
    sb->is_starting = sb->has_start;
    lifecycle_stages_begin(sb);
    lifecycle_end(sb, c->from, c->reason, NULL);
}

void act_died_early(struct sandbox *sb, const struct change *c)
{
    sb->has_died = true;
    sb->kill_reason = c->reason;
}

/* Out of the table, killers hear of it. It is still there itself. */
static void finish(struct sandbox *sb)
{
    const struct lifecycle_opts *o = &sb->lifecycle->opts;
    struct kill_waiter *w = sb->killers;

    sb->killers = NULL;
    (void)uv_timer_stop(&sb->timer); /* of a try whose next one was faster: no event comes now */
    if (o->on_kill_end && sb->t_kill_ns > 0)
        o->on_kill_end(o->user, sb->kill_reason, time_mono_ns() - sb->t_kill_ns);
    table_remove(sb->lifecycle, sb);
    if (sb->started_ms > 0)
        log_info("sandbox ended", "id", sb->id, "reason", sb->kill_reason, NULL);
    while (w) {
        struct kill_waiter *next = w->next;

        w->done(w->user, w->is_first);
        free(w);
        w = next;
    }
}

void lifecycle_finish(struct sandbox *sb)
{
    finish(sb);
    sandbox_free_later(sb);
}

static void keep_unremoved(struct sandbox *sb)
{
    struct lifecycle *l = sb->lifecycle;

    sb->next = l->unremoved;
    l->unremoved = sb;
}

void act_finish(struct sandbox *sb, const struct change *c)
{
    (void)fault_at("kill.answer", NULL);
    finish(sb);
    if (!c->failure) {
        sandbox_free_later(sb);
        return;
    }
    /* The sandbox is gone all the same, and a restart would take the row for one more kill. */
    log_err("row of a dead sandbox cannot be deleted yet", c->failure);
    keep_unremoved(sb);
}

static void on_removed_at_last(void *user, const struct abx_err *failure)
{
    struct sandbox *sb = user;

    if (failure)
        keep_unremoved(sb);
    else
        sandbox_free_later(sb);
}

void lifecycle_remove_rows(struct lifecycle *l)
{
    struct sandbox *list = TAKE_PTR(l->unremoved);
    struct abx_err err;

    while (list) {
        struct sandbox *sb = list;

        list = sb->next;
        if (remove_row(sb, on_removed_at_last, &err) < 0)
            keep_unremoved(sb);
    }
}

void act_remove_again(struct sandbox *sb, const struct change *c)
{
    (void)c;
    if (!sb->is_removing)
        submit_remove(sb);
}

/* --- completions ------------------------------------------------------------------------------- */

static void on_killed(void *user, bool existed, const struct abx_err *failure)
{
    (void)existed;
    lifecycle_fire(user, failure ? EV_FAILED : EV_DONE, &(struct change){ .failure = failure });
}

static void on_removed(void *user, const struct abx_err *failure)
{
    lifecycle_fire(user, failure ? EV_FAILED : EV_DONE, &(struct change){ .failure = failure });
}

/* --- calls ------------------------------------------------------------------------------------- */

void lifecycle_abandon(struct lifecycle *l, const char *id)
{
    struct sandbox *sb = lifecycle_find(l, id);

    if (sb && !sb->idempotency_key[0])
        lifecycle_fire(sb, EV_KILL, &(struct change){ .reason = "abandoned" });
}

int lifecycle_kill(struct lifecycle *l, const char *id, const char *reason, sandbox_killed_fn done,
                   void *user, struct abx_err *err)
{
    struct sandbox *sb = lifecycle_find(l, id);
    struct kill_waiter *w, **end;

    if (!sb)
        return err_set(err, ABX_NOT_FOUND,
                       "Sandbox \"%s\" doesn't exist or you don't have access to it", id);
    if (done) {
        w = calloc(1, sizeof(*w));
        if (!w)
            return err_oom(err);
        w->done = done;
        w->user = user;
        w->is_first = sb->state < SANDBOX_KILLING && !sb->wants_kill && !sb->has_died;
        for (end = &sb->killers; *end;)
            end = &(*end)->next;
        *end = w;
    }
    lifecycle_fire(sb, EV_KILL, &(struct change){ .reason = reason });
    return 0;
}

void lifecycle_held(struct lifecycle *l, const char *id)
{
    struct sandbox *sb = lifecycle_find(l, id);

    if (sb)
        lifecycle_fire(sb, EV_HELD, &no_change);
}

void lifecycle_told(struct lifecycle *l, const char *id)
{
    struct sandbox *sb = lifecycle_find(l, id);

    if (sb)
        lifecycle_fire(sb, EV_TOLD, &no_change);
}

void lifecycle_died(struct lifecycle *l, const char *id, const char *reason)
{
    static const char *const known[] = { "exit", "oom", "signal", "lost" };
    struct sandbox *sb = lifecycle_find(l, id);
    const char *kept = "died";

    /* The reason outlives the message that brought it. */
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (strcmp(known[i], reason) == 0)
            kept = known[i];
    if (sb)
        lifecycle_fire(sb, EV_DIED, &(struct change){ .reason = kept });
}

void lifecycle_stopped(struct lifecycle *l)
{
    struct sandbox *sb = l->first;

    while (sb) {
        struct sandbox *next = sb->next;

        if ((sb->state >= SANDBOX_RUNNING && sb->state <= SANDBOX_DRAINING) ||
            sb->state == SANDBOX_FETCHING || sb->state == SANDBOX_CLEARING)
            lifecycle_fire(sb, EV_DIED, &(struct change){ .reason = "stopped" });
        sb = next;
    }
}
