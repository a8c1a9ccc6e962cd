/* slots.c - what is made ahead: slots for any template, and warm pools of ready sandboxes. See
 * engine.h.
 *
 * Who waits comes first: slots for waiting creations are ordered at once; the stock is filled up
 * only while no create is under way, so that it costs no request its processor.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "engine/engine.h"

#define PREPARES_AHEAD 4u
#define RETRY_NS NSEC_PER_SEC

/* --- slots -------------------------------------------------------------------------------------- */

bool slot_take_fds(struct engine *e, struct sandbox *sb, const struct job_result *r, int *fds,
                   size_t n_fds)
{
    if (n_fds != SLOT_FDS && n_fds != SLOT_FDS_MAX)
        return false;
    sb->record = r->record;
    sb->state = SANDBOX_PREPARED;
    sb->userns_fd = TAKE_FD(fds[SLOT_USERNS]);
    sb->netns_fd = TAKE_FD(fds[SLOT_NETNS]);
    sb->envd_fd = TAKE_FD(fds[SLOT_ENVD]);
    sb->control_fd = TAKE_FD(fds[SLOT_CONTROL]);
    for (size_t i = 0; n_fds == SLOT_FDS_MAX && i < STEER_FDS; i++)
        sb->steer_fds[i] = TAKE_FD(fds[SLOT_FDS + i]);
    engine_note_steering(e, r->u.no_steering);
    return true;
}

static void on_prepared(void *user, const struct job_result *r, int *fds, size_t n_fds)
{
    struct sandbox *sb = user;
    struct engine *e = sb->engine;

    e->slots_coming--;
    if (r->err.code == 0 && slot_take_fds(e, sb, r, fds, n_fds)) {
        sb->next_in_pool = e->slots;
        e->slots = sb;
        e->n_slots++;
        engine_pool_works(e);
        if (sb->kill_wanted)
            sandbox_remove(e, sb, 0, 0);
        creations_go_on(e);
        slots_refill(e);
        engine_stop_if_idle(e);
        return;
    }
    log_err("a slot could not be prepared", &r->err);
    e->slots_not_before_ns = time_mono_ns() + RETRY_NS;
    engine_tick_later(e);
    sb->state = SANDBOX_PREPARED;
    sb->must_sweep = r->is_cut_off;
    sandbox_remove(e, sb, 0, 0);
    /* The oldest that waits was counting on it. */
    if (e->slots_coming < e->n_waiting)
        creation_fail_first(e, &r->err);
    engine_pool_fails(e, &r->err);
    engine_stop_if_idle(e);
}

/* A failure, for want of memory, is told to the oldest that waits; the next try is later. */
static int prepare(struct engine *e)
{
    struct job j = { .kind = JOB_PREPARE };
    struct sandbox *sb = NULL;
    char name[RECORD_NAME_SIZE];
    struct abx_err err;
    int r;

    record_name_make(name);
    r = table_add(e->table, name, &sb, &err);
    if (r == 0) {
        sb->engine = e;
        sb->state = SANDBOX_STARTING;
        sb->record.limits = e->o->defaults;
        j.record = sb->record;
        r = crew_submit(e->crew, WORKER_PREPARE, &j, NULL, 0,
                        (struct job_owner){ on_prepared, NULL, sb }, &err);
    }
    if (r < 0) {
        log_err("a slot could not be ordered", &err);
        if (sb)
            table_remove(e->table, sb);
        e->slots_not_before_ns = time_mono_ns() + RETRY_NS;
        engine_tick_later(e);
        if (e->slots_coming < e->n_waiting)
            creation_fail_first(e, &err);
        return r;
    }
    e->slots_coming++;
    return 0;
}

struct sandbox *slot_take(struct engine *e)
{
    struct sandbox *sb = e->slots;

    if (sb) {
        e->slots = sb->next_in_pool;
        sb->next_in_pool = NULL;
        e->n_slots--;
    }
    return sb;
}

/* --- warm pools --------------------------------------------------------------------------------- */

int templates_refresh(struct engine *e, struct abx_err *err)
{
    int r = templates_scan(&e->templates, e->o->templates, err);

    if (r < 0)
        return r;
    for (size_t i = 0; i < e->n_warm; i++) {
        struct warm *w = &e->warm[i];
        const struct template *t = templates_find(&e->templates, w->option->template);

        (void)snprintf(w->folder, sizeof w->folder, "%s", t ? t->folder : "");
        if (!t && !w->is_missed)
            log_warn("pool waits for a template that is not there", "template", w->option->template,
                     NULL);
        w->is_missed = !t;
    }
    return 0;
}

static struct warm *warm_find(struct engine *e, const char *folder)
{
    for (size_t i = 0; i < e->n_warm; i++)
        if (folder[0] != '\0' && strcmp(e->warm[i].folder, folder) == 0)
            return &e->warm[i];
    return NULL;
}

struct sandbox *warm_take(struct engine *e, const char *folder)
{
    struct warm *w = warm_find(e, folder);
    struct sandbox *sb = w ? w->ready : NULL;

    if (sb)
        pool_unlink(e, sb);
    return sb;
}

bool warm_put(struct engine *e, struct sandbox *sb)
{
    struct warm *w = warm_find(e, sb->record.template);
    bool is_default = memcmp(&sb->record.limits, &e->o->defaults, sizeof sb->record.limits) == 0;

    if (!w || !is_default || w->n_ready >= w->option->n || e->is_stopping ||
        disk_pool_why_dead(e->pool)[0])
        return false;
    sb->next_in_pool = w->ready;
    w->ready = sb;
    w->n_ready++;
    return true;
}

static bool unlink_from(struct sandbox **list, struct sandbox *sb)
{
    for (; *list; list = &(*list)->next_in_pool)
        if (*list == sb) {
            *list = sb->next_in_pool;
            sb->next_in_pool = NULL;
            return true;
        }
    return false;
}

void pool_unlink(struct engine *e, struct sandbox *sb)
{
    if (sb->state == SANDBOX_PREPARED) {
        e->n_slots -= unlink_from(&e->slots, sb) ? 1 : 0;
        return;
    }
    for (size_t i = 0; i < e->n_warm; i++)
        e->warm[i].n_ready -= unlink_from(&e->warm[i].ready, sb) ? 1 : 0;
}

void pools_count(const struct engine *e, unsigned *ret_ready)
{
    *ret_ready = 0;
    for (size_t i = 0; i < e->n_warm; i++)
        *ret_ready += e->warm[i].n_ready;
}

static bool make_warm(struct engine *e, struct warm *w)
{
    const struct template *t = templates_find(&e->templates, w->folder);
    struct creation *c;

    if (!t || e->n_slots == 0)
        return false;
    c = calloc(1, sizeof *c);
    if (!c)
        return false;
    c->engine = e;
    c->warm = w;
    buf_init(&c->identity, 0);
    (void)snprintf(c->folder, sizeof c->folder, "%s", t->folder);
    (void)snprintf(c->rootfs, sizeof c->rootfs, "%s", t->rootfs);
    (void)snprintf(c->hostname, sizeof c->hostname, "sandbox");
    c->limits = e->o->defaults;
    c->begin_ns = time_mono_ns();
    w->n_coming++;
    creation_start(c, slot_take(e));
    return true;
}

/* Ready sandboxes of a template that was built anew are of no use. */
static void drop_stale(struct engine *e, struct warm *w)
{
    struct sandbox *sb = w->ready, *next;

    for (; sb; sb = next) {
        next = sb->next_in_pool;
        if (strcmp(sb->record.template, w->folder) != 0)
            sandbox_remove(e, sb, 0, 0);
    }
}

static unsigned warm_missing(const struct warm *w, int64_t now)
{
    unsigned have = w->n_ready + w->n_coming;

    return w->folder[0] != '\0' && now >= w->not_before_ns && have < w->option->n
               ? w->option->n - have
               : 0;
}

bool slots_are_missing(const struct engine *e)
{
    for (size_t i = 0; i < e->n_warm; i++)
        if (warm_missing(&e->warm[i], INT64_MAX) > 0)
            return true;
    return e->n_slots + e->slots_coming < e->o->slots;
}

void slots_refill(struct engine *e)
{
    int64_t now = time_mono_ns();
    bool is_quiet = e->n_waiting == 0 && e->creating == 0;
    unsigned wanted = e->n_waiting;

    if (e->is_stopping)
        return;
    for (size_t i = 0; i < e->n_warm && e->n_waiting == 0; i++) {
        drop_stale(e, &e->warm[i]);
        if (warm_missing(&e->warm[i], now) > 0 && e->creating < e->o->workers)
            (void)make_warm(e, &e->warm[i]);
    }
    if (is_quiet && now >= e->slots_not_before_ns)
        wanted = MAX(e->o->slots, e->n_warm > 0 ? 1u : 0u);
    while (e->n_slots + e->slots_coming < wanted && e->slots_coming < PREPARES_AHEAD)
        if (prepare(e) < 0)
            return;
}
