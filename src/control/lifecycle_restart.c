/* lifecycle_restart.c - control's table against the database at start, and against the driver whenever
 * that is up (again). What the driver does not know has died; what has no row is killed.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "control/lifecycle_internal.h"

#define COMPARE_TRIES 5
#define UNKNOWN_END_MS 300000

static const struct change no_change;

/* --- after a restart, of this side or of the driver --------------------------------------------- */

struct compare {
    struct lifecycle *l;
    unsigned generation;
    unsigned tries;
    bool is_whole; /* stopped ones are among them */
    char after[SANDBOX_ID_SIZE];
};

static void on_listed(void *user, const struct driver_sandbox *list, size_t n, bool has_more,
                      bool is_whole, const struct abx_err *failure);

static void on_stranger_killed(void *user, bool existed, const struct abx_err *failure)
{
    (void)user;
    (void)existed;
    if (failure)
        log_err("a sandbox without a row cannot be killed", failure);
}

static struct kept **kept_at(struct lifecycle *l, const char *id)
{
    struct kept **at = &l->kept;

    while (*at && strcmp((*at)->id, id) != 0)
        at = &(*at)->next;
    return at;
}

bool lifecycle_is_kept(const struct lifecycle *l, const char *id)
{
    const struct kept *k = l->kept;

    while (k && strcmp(k->id, id) != 0)
        k = k->next;
    return k != NULL;
}

int lifecycle_keep(struct lifecycle *l, const char *id, struct abx_err *err)
{
    struct kept *k = calloc(1, sizeof(*k));

    if (!k)
        return err_oom(err);
    (void)snprintf(k->id, sizeof(k->id), "%s", id);
    k->next = l->kept;
    l->kept = k;
    return 0;
}

static void on_let_go(void *user, bool existed, const struct abx_err *failure)
{
    (void)user;
    (void)existed;
    if (failure) /* the next comparison finds it */
        log_err("a copy cannot be removed yet", failure);
}

void lifecycle_unkeep(struct lifecycle *l, const char *id)
{
    struct driver *d = l->opts.driver;
    struct kept **at = kept_at(l, id), *k = *at;
    struct abx_err err;

    if (k)
        *at = k->next;
    if (!d)
        (void)err_set(&err, ABX_UNAVAILABLE, "there is no driver yet");
    if (!d || d->ops->kill(d, id, "", on_let_go, NULL, &err) < 0)
        log_err("a copy cannot be removed yet", &err);
    free(k);
}

static void kill_stranger(struct lifecycle *l, const char *id)
{
    struct driver *d = l->opts.driver;
    struct abx_err err = { 0 };

    if (l->has_lost_rows) {
        log_warn("a sandbox without a row may be one whose row cannot be read: it stays", "id", id,
                 NULL);
        return;
    }
    log_warn("killing a sandbox without a row", "id", id, NULL);
    if (d->ops->kill(d, id, "", on_stranger_killed, NULL, &err) < 0)
        log_err("a sandbox without a row cannot be killed", &err);
}

/* The next page; frees `c` when it cannot be asked for (the driver is away: it will be up again). */
static void compare_next(struct compare *c)
{
    struct driver *d = c->l->opts.driver;

    if (c->tries++ == COMPARE_TRIES || c->generation != c->l->generation ||
        d->ops->list(d, c->after, on_listed, c, NULL) < 0)
        free(c);
}

static void on_brought_back(void *user, uint32_t us, const struct abx_err *failure)
{
    (void)user;
    (void)us;
    if (failure) /* the next comparison tries again */
        log_err("a paused sandbox could not be brought back to its state", failure);
}

/* A crash cut off a resume, or the end of a pause: the row decides. One of which nothing is left stays until it is
 * killed, so that whoever wants it back hears why not. */
static void judge_paused(struct sandbox *sb, bool is_seen, bool is_whole)
{
    struct driver *d = sb->lifecycle->opts.driver;
    struct abx_err err;
    int r = 0;

    if (!is_seen) {
        if (is_whole && !sb->is_missing) {
            sb->is_missing = true;
            lifecycle_demote(sb, LOSS_ALL);
        }
        return;
    }
    sb->is_missing = false;
    switch (sb->there) {
    case DRIVER_RUNS: /* the processes end, if they have to, by the next comparison */
        r = d->ops->freeze(d, sb->id, sb->keeps_memory ? DRIVER_FREEZE_MEMORY : DRIVER_FREEZE_FILES,
                           on_brought_back, NULL, &err);
        break;
    case DRIVER_FROZEN:
        if (!sb->keeps_memory)
            r = d->ops->stop(d, sb->id, on_brought_back, NULL, &err);
        break;
    case DRIVER_STOPPED:
        if (sb->keeps_memory)
            lifecycle_demote(sb, LOSS_MEMORY);
        break;
    }
    if (r < 0)
        log_err("a paused sandbox could not be brought back to its state", &err);
}

/* Nothing else ends a wait for a driver that does not know it any more. */
static bool is_exchanging(const struct sandbox *sb)
{
    return sb->state == SANDBOX_EXCHANGING || sb->state == SANDBOX_EXCHANGING_PAUSED;
}

/* A paused one stays, as any of which nothing is left. */
static void lose_exchanging(struct sandbox *sb)
{
    struct abx_err err;

    (void)err_set(&err, ABX_NOT_FOUND, "the engine has nothing of it any more");
    sb->call = 0; /* whose answer means nothing now */
    if (sb->state == SANDBOX_EXCHANGING)
        lifecycle_fire(sb, EV_DIED, &(struct change){ .reason = "lost" });
    else
        lifecycle_fire(sb, EV_REFUSED, &(struct change){ .failure = &err });
}

static void judge(struct sandbox *sb, bool is_seen, bool is_whole)
{
    if (is_exchanging(sb)) {
        if (!is_seen && is_whole)
            lose_exchanging(sb);
        return;
    }
    if (sb->state == SANDBOX_PAUSED)
        judge_paused(sb, is_seen, is_whole);
    else if (!is_seen)
        lifecycle_fire(sb, EV_DIED, &(struct change){ .reason = "lost" });
    else if (sb->there ==
             DRIVER_STOPPED) /* it ran when the machine stopped; what is left goes too */
        lifecycle_fire(sb, EV_KILL, &(struct change){ .reason = "lost" });
    else if (sb->there == DRIVER_FROZEN)
        lifecycle_fire(sb, EV_FROZEN, &no_change);
}

static void compare_end(struct compare *c)
{
    struct sandbox *sb = c->l->first;

    while (sb) {
        struct sandbox *next = sb->next;

        /* A change of state since the comparison began has reset its generation. */
        if (sb->generation == c->generation)
            judge(sb, sb->seen == c->generation, c->is_whole);
        sb = next;
    }
    c->l->compared = c->generation;
    free(c);
}

bool lifecycle_is_compared(const struct lifecycle *l)
{
    return l->generation > 0 && l->compared == l->generation;
}

static void on_listed(void *user, const struct driver_sandbox *list, size_t n, bool has_more,
                      bool is_whole, const struct abx_err *failure)
{
    struct compare *c = user;

    if (failure) {
        compare_next(c);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        struct sandbox *sb = lifecycle_find(c->l, list[i].id);

        if (sb) {
            sb->seen = c->generation;
            sb->there = list[i].state;
        } else if (!lifecycle_is_kept(c->l, list[i].id)) {
            kill_stranger(c->l, list[i].id);
        }
    }
    c->is_whole &= is_whole;
    if (!has_more || n == 0) {
        compare_end(c);
        return;
    }
    c->tries = 0;
    (void)snprintf(c->after, sizeof c->after, "%s", list[n - 1].id);
    compare_next(c);
}

void lifecycle_driver_up(struct lifecycle *l)
{
    struct compare *c = calloc(1, sizeof(*c));
    struct sandbox *sb = l->first;

    lifecycle_remove_rows(l);
    lifecycle_write_rows(l);
    l->generation++;
    while (sb) {
        struct sandbox *next = sb->next;

        /* Only what the driver must know by now: later ones may miss the list rightly. */
        if (machine_state(sb->state)->exit == EXIT_REST || is_exchanging(sb))
            sb->generation = l->generation;
        lifecycle_fire(sb, EV_RETRY, &no_change);
        sb = next;
    }
    if (!c) {
        log_error("no memory to compare with the driver", NULL);
        return;
    }
    c->l = l;
    c->generation = l->generation;
    c->is_whole = true;
    compare_next(c);
}

/* A row whose state cannot be read may be anyone's: paused it stays, whatever there is of it. */
static void load_state(struct sandbox *sb, const char *state)
{
    static const struct {
        const char *name;
        enum sandbox_state state;
    } states[] = {
        { "creating", SANDBOX_WRITING },
        { "killing", SANDBOX_WRITING },
        { "running", SANDBOX_RUNNING },
        { "paused", SANDBOX_PAUSED },
    };

    sb->wants_kill = strcmp(state, "killing") == 0;
    for (size_t i = 0; i < ARRAY_SIZE(states); i++)
        if (strcmp(state, states[i].name) == 0) {
            sb->state = states[i].state;
            return;
        }
    sb->state = SANDBOX_PAUSED;
    (void)snprintf(sb->damage, sizeof sb->damage, "in the database its state is damaged");
}

/* Rows that are not running wait in the table until all are read: ending them writes, and the
 * database is still being read here. */
static void load_row(void *user, const struct store_sandbox *row)
{
    struct lifecycle *l = user;
    struct abx_err err = { 0 };
    struct sandbox *sb = sandbox_new(l, &err);

    if (!sb || sandbox_from_row(sb, row, &err) < 0 || table_add(l, sb, &err) < 0) {
        log_err("row is skipped", &err);
        l->has_lost_rows = true;
        if (sb)
            sandbox_free_later(sb);
        return;
    }
    load_state(sb, row->state);
    if (sb->damage[0] || sb->has_lost_envs)
        log_warn("the row of a sandbox is damaged", "id", sb->id, "what",
                 sb->damage[0] ? sb->damage : "its envs are", NULL);
    if (sb->rollback_copy[0])
        rollback_load(sb);
}

/* Killed or paused at once is what nobody wants of one whose time cannot be read. */
static int64_t left_ms(struct sandbox *sb, int64_t now)
{
    if (sb->end_ms <= 0)
        sb->end_ms = now + UNKNOWN_END_MS;
    return MAX(sb->end_ms - now, INT64_C(0));
}

int lifecycle_load(struct lifecycle *l, struct abx_err *err)
{
    struct store_answer forget = { 0, NULL };
    int r = store_sandbox_load(l->opts.store, load_row, l, err);
    int64_t now = time_wall_ms();

    for (struct sandbox *sb = l->first; sb && r == 0; sb = sb->next) {
        if (sb->state == SANDBOX_RUNNING) {
            (void)uv_timer_start(&sb->timer, lifecycle_on_timer, (uint64_t)left_ms(sb, now), 0);
        } else if (sb->state != SANDBOX_PAUSED && !sb->rollback_copy[0]) {
            /* creating: nobody was told of it, a repeated request starts afresh. killing: someone
             * was promised its end. */
            sb->state = SANDBOX_KILLING;
            lifecycle_stages_begin(sb);
            lifecycle_end(sb, SANDBOX_WRITING, "restart", sb->wants_kill ? NULL : &forget);
        }
    }
    return r;
}
