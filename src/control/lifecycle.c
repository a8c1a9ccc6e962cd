/* lifecycle.c - moves sandboxes along the table of machine.h. See lifecycle.h. */
#include "control/lifecycle.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/str.h"
#include "control/lifecycle_internal.h"
#include "wire/json.h"

static void act_ignore(struct sandbox *sb, const struct change *c)
{
    (void)sb;
    (void)c;
}

static void (*const actions[ACT_COUNT_])(struct sandbox *sb, const struct change *c) = {
    [ACT_IGNORE] = act_ignore,
    [ACT_WAIT] = act_wait,
    [ACT_REFUSE] = act_refuse,
    [ACT_START] = act_start,
    [ACT_START_AGAIN] = act_start_again,
    [ACT_COMMIT] = act_commit,
    [ACT_OPEN] = act_open,
    [ACT_REFUSE_CREATE] = act_refuse_create,
    [ACT_FAIL_CREATE] = act_fail_create,
    [ACT_KILL] = act_kill,
    [ACT_KILL_LATER] = act_kill_later,
    [ACT_KILL_STARTING] = act_kill_starting,
    [ACT_DIED] = act_died,
    [ACT_DIED_EARLY] = act_died_early,
    [ACT_EXTEND] = act_extend,
    [ACT_CONFIGURE] = act_configure,
    [ACT_EXPIRE] = act_expire,
    [ACT_COPY] = act_copy,
    [ACT_COPIED] = act_copied,
    [ACT_CHECK] = act_check,
    [ACT_UNHEALTHY] = act_unhealthy,
    [ACT_DRAIN] = act_drain,
    [ACT_FREEZE] = act_freeze,
    [ACT_SAVE] = act_save,
    [ACT_STOP] = act_stop,
    [ACT_PAUSED] = act_paused,
    [ACT_PAUSE_FAILED] = act_pause_failed,
    [ACT_THAW] = act_thaw,
    [ACT_REOPEN] = act_reopen,
    [ACT_WAKE] = act_wake,
    [ACT_WAKE_FAILED] = act_wake_failed,
    [ACT_RESUME_ROW] = act_resume_row,
    [ACT_RESUMED] = act_resumed,
    [ACT_LATER] = act_later,
    [ACT_FETCH] = act_fetch,
    [ACT_CLEAR] = act_clear,
    [ACT_HALT] = act_halt,
    [ACT_NOTE] = act_note,
    [ACT_EXCHANGE] = act_exchange,
    [ACT_EXCHANGE_AGAIN] = act_exchange_again,
    [ACT_END] = act_end,
    [ACT_RESTART] = act_restart,
    [ACT_RESTART_AGAIN] = act_restart_again,
    [ACT_RESTART_FAILED] = act_restart_failed,
    [ACT_SETTLE] = act_settle,
    [ACT_PARK] = act_park,
    [ACT_ROLLED_BACK] = act_rolled_back,
    [ACT_PARKED] = act_parked,
    [ACT_ROLLBACK_FAILED] = act_rollback_failed,
    [ACT_ROLLBACK_UNDO] = act_rollback_undo,
    [ACT_KILLED] = act_killed,
    [ACT_KILL_FAILED] = act_kill_failed,
    [ACT_KILL_AGAIN] = act_kill_again,
    [ACT_START_ENDED] = act_start_ended,
    [ACT_TOLD] = act_told,
    [ACT_REMOVE] = act_remove,
    [ACT_REMOVE_AGAIN] = act_remove_again,
    [ACT_FINISH] = act_finish,
};

/* Notes how long the state lasted that ends now. */
static void note_stage(struct sandbox *sb)
{
    int64_t now = time_mono_ns();

    if (sb->n_stages < ARRAY_SIZE(sb->stages))
        sb->stages[sb->n_stages++] =
            (struct driver_stage){ machine_state(sb->state)->name,
                                   (uint32_t)MIN((now - sb->t_state_ns) / 1000,
                                                 (int64_t)UINT32_MAX) };
    sb->t_state_ns = now;
}

void lifecycle_stages_begin(struct sandbox *sb)
{
    sb->n_stages = 0;
    sb->t_state_ns = time_mono_ns();
}

enum buf_status lifecycle_stages_put(struct buf *b, const struct driver_stage *stages, size_t n)
{
    enum buf_status s = buf_append_str(b, "\"stages\":[");

    for (size_t i = 0; i < n; i++) {
        (void)buf_append_str(b, i > 0 ? ",{\"name\":" : "{\"name\":");
        (void)json_string_put(b, slice_str(stages[i].name));
        s = buf_printf(b, ",\"us\":%" PRIu32 "}", stages[i].us);
    }
    return s == BUF_OK ? buf_append_str(b, "]") : s;
}

void lifecycle_fire(struct sandbox *sb, enum lifecycle_event ev, const struct change *c)
{
    const struct machine_cell *cell = machine_cell(sb->state, ev);
    struct change with = *c;

    assert(cell->is_possible);
    with.event = ev;
    with.from = sb->state;
    with.http = cell->http;
    if (cell->next != sb->state) {
        note_stage(sb);
        sb->generation = 0; /* what the driver said before tells nothing about the new state */
    }
    sb->state = cell->next;
    actions[cell->action](sb, &with);
    if (sb->state != SANDBOX_GONE)
        lifecycle_go_on(sb);
}

void lifecycle_on_timer(uv_timer_t *t)
{
    struct sandbox *sb = container_of(t, struct sandbox, timer);

    bool is_time = sb->state == SANDBOX_RUNNING || sb->state == SANDBOX_DRAINING ||
                   sb->state == SANDBOX_CLEARING;

    lifecycle_fire(sb, is_time ? EV_EXPIRED : EV_RETRY, &(struct change){ 0 });
}

/* --- life -------------------------------------------------------------------------------------- */

int lifecycle_new(const struct lifecycle_opts *opts, struct lifecycle **ret, struct abx_err *err)
{
    _cleanup_(freep) struct lifecycle *l = calloc(1, sizeof(*l));
    int r;

    if (!l)
        return err_oom(err);
    l->opts = *opts;
    r = table_init(l, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(l);
    return 0;
}

void lifecycle_set_driver(struct lifecycle *l, struct driver *driver)
{
    l->opts.driver = driver;
}

bool lifecycle_has_driver(const struct lifecycle *l)
{
    return l->opts.driver && l->opts.driver->ops->is_up(l->opts.driver);
}

static void free_waiters(struct sandbox *sb)
{
    while (sb->creators) {
        struct create_waiter *w = sb->creators;

        sb->creators = w->next;
        free(w);
    }
    while (sb->killers) {
        struct kill_waiter *w = sb->killers;

        sb->killers = w->next;
        free(w);
    }
}

void lifecycle_free(struct lifecycle *l)
{
    if (!l)
        return;
    while (l->first) {
        struct sandbox *sb = l->first;

        table_remove(l, sb);
        free_waiters(sb);
        sandbox_free_later(sb);
    }
    while (l->unremoved) {
        struct sandbox *sb = l->unremoved;

        l->unremoved = sb->next;
        sandbox_free_later(sb);
    }
    while (l->kept) {
        struct kept *k = l->kept;

        l->kept = k->next;
        free(k);
    }
    table_done(l);
    free(l);
}
