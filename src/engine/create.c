/* create.c - a sandbox for a request: claimed from a warm pool, else started in a slot. See engine.h.
 *
 * The guest gets its identity through a listener that exists before the sandbox's processes do, so
 * that it is sent while the worker spawns, and nobody waits for the guest.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "engine/engine.h"
#include "engine/identity.h"
#include "engine/mountapi.h"

#define STAGES_EXTRA 4
#define WAITING_MAX 2000u

void creation_free(struct creation *c)
{
    if (!c)
        return;
    buf_done(&c->identity);
    free(c);
}

static void drop(void *user)
{
    creation_free(user);
}

/* --- answers ------------------------------------------------------------------------------------ */

static void log_started(const struct creation *c, int64_t now)
{
    char ms[32];

    (void)snprintf(ms, sizeof ms, "%.2f", (double)(now - c->begin_ns) / 1e6);
    log_info("sandbox started", "id", c->sandbox_id, "template", c->folder, "warm",
             c->is_warm ? "yes" : "no", "ms", ms, "request_id", c->request_id, NULL);
}

static void answer(struct creation *c, const struct job_result *result)
{
    Abx__Ipc__Frame f = ABX__IPC__FRAME__INIT;
    Abx__Ipc__CreateReply body = ABX__IPC__CREATE_REPLY__INIT;
    Abx__Ipc__Stage stages[JOB_STAGES_MAX + STAGES_EXTRA];
    Abx__Ipc__Stage *list[JOB_STAGES_MAX + STAGES_EXTRA];
    struct cgroup_enforced is = cgroup_tree_enforced(c->engine->cgroups);
    int64_t now = time_mono_ns();
    char slot_name[] = "slot", end_name[] = "rest", claim_name[] = "claim";
    uint64_t spent = 0;
    size_t n = 0;

#define ADD_STAGE(text, value)                                                                     \
    do {                                                                                           \
        abx__ipc__stage__init(&stages[n]);                                                         \
        stages[n].name = (text);                                                                   \
        stages[n].us = (uint32_t)(value);                                                          \
        list[n] = &stages[n];                                                                      \
        n++;                                                                                       \
    } while (0)
    if (c->is_warm) {
        ADD_STAGE(claim_name, (now - c->begin_ns) / 1000);
    } else {
        ADD_STAGE(slot_name, (c->sent_ns - c->begin_ns) / 1000);
        for (uint32_t i = 0; i < result->u.stages.n && i < JOB_STAGES_MAX; i++) {
            spent += result->u.stages.list[i].us;
            ADD_STAGE((char *)(uintptr_t)result->u.stages.list[i].name,
                      result->u.stages.list[i].us);
        }
        /* Ways between the processes, and what the worker did before it was our turn. */
        spent = MIN(spent, (uint64_t)(now - c->sent_ns) / 1000);
        ADD_STAGE(end_name, (uint64_t)(now - c->sent_ns) / 1000 - spent);
    }
#undef ADD_STAGE
    body.cpu_count = is.cpu ? c->limits.cpu_count : 0;
    body.memory_mb = is.memory ? c->limits.memory_mb : 0;
    body.disk_mb = disk_pool_is_limited(c->engine->pool) ? c->limits.disk_mb : 0;
    body.warm = c->is_warm;
    body.n_stages = n;
    body.stages = list;
    body.execution_id = c->sb->record.execution_id;
    f.body_case = ABX__IPC__FRAME__BODY_CREATE_REPLY;
    f.create_reply = &body;
    server_reply(c->engine, c->conn, c->seq, &f);
    log_started(c, now);
}

static void fail(struct creation *c, const struct abx_err *why)
{
    struct engine *e = c->engine;

    if (c->warm) {
        log_err("a pooled sandbox could not be started", why);
        c->warm->not_before_ns = time_mono_ns() + NSEC_PER_SEC;
        engine_tick_later(e);
    } else {
        log_warn("create failed", "id", c->sandbox_id, "error", why->msg, "request_id",
                 c->request_id, NULL);
        server_reply_error(e, c->conn, c->seq, why);
    }
    creation_free(c);
    slots_refill(e);
    engine_stop_if_idle(e);
}

/* The sandbox lives and has its identity: others may use it. */
static int open_to_others(struct creation *c, struct abx_err *err)
{
    struct engine *e = c->engine;

    c->sb->state = SANDBOX_RUNNING;
    return sockets_add(e->sockets, c->sandbox_id, c->sb->netns_fd, c->sb->record.uid_base,
                       c->sb->steer_fds, err);
}

/* --- claim -------------------------------------------------------------------------------------- */

static int claim(struct creation *c, struct abx_err *err)
{
    struct engine *e = c->engine;
    struct sandbox *sb = c->sb;
    int r;

    /* First the record: whatever comes next, the sandbox belongs to this id. */
    r = FAULT_STEP("claim.record", err, record_write(e->records_fd, &sb->record, err));
    /* The name before the identity: what the guest does on its claim sees it. */
    if (r == 0)
        r = FAULT_STEP("claim.name", err, hostname_set(sb->pidfd, e->own_uts_fd, c->hostname, err));
    if (r == 0)
        r = FAULT_STEP("claim.identity", err,
                       identity_deliver(sb->netns_fd, buf_slice(&c->identity), err));
    return r < 0 ? r : open_to_others(c, err);
}

static void claim_finish(struct creation *c)
{
    struct sandbox *sb = c->sb;
    struct engine *e = c->engine;
    struct abx_err err = c->err;

    if (err.code == 0 && (sb->is_died || sb->kill_wanted))
        (void)err_set(&err, ABX_ABORTED, "the sandbox ended while it was claimed");
    if (err.code == 0)
        (void)claim(c, &err);
    if (err.code) {
        sandbox_remove(e, sb, 0, 0);
        fail(c, &err);
        return;
    }
    answer(c, NULL);
    creation_free(c);
    slots_refill(e);
}

static void on_resized(void *user, const struct job_result *r, int *fds, size_t n_fds)
{
    struct creation *c = user;

    (void)fds;
    (void)n_fds;
    c->sb->is_busy = false;
    c->err = r->err;
    claim_finish(c);
}

static void claim_begin(struct creation *c)
{
    struct sandbox *sb = c->sb;
    struct job j = { .kind = JOB_RESIZE };
    bool is_same = memcmp(&sb->record.limits, &c->limits, sizeof c->limits) == 0;

    c->is_warm = true;
    if (table_set_id(c->engine->table, sb, c->sandbox_id, &c->err) < 0 || is_same) {
        claim_finish(c);
        return;
    }
    sb->record.limits = c->limits;
    j.record = sb->record;
    sb->is_busy = true;
    if (crew_submit(c->engine->crew, WORKER_CONTROL, &j, NULL, 0,
                    (struct job_owner){ on_resized, drop, c }, &c->err) < 0) {
        sb->is_busy = false;
        claim_finish(c);
    }
}

/* --- cold start --------------------------------------------------------------------------------- */

static int take_result(struct creation *c, const struct job_result *r, int *fds, size_t n_fds,
                       struct abx_err *err)
{
    struct sandbox *sb = c->sb;

    if (r->err.code || c->err.code) {
        *err = r->err.code ? r->err : c->err;
        return err->code;
    }
    if (n_fds != 1)
        return err_set(err, ABX_INTERNAL, "the worker sent no pidfd");
    sb->pidfd = TAKE_FD(fds[0]);
    sb->record = r->record;
    if (sb->kill_wanted)
        return err_set(err, ABX_ABORTED, "killed while it was created");
    return sandbox_watch(c->engine, sb, err);
}

static void on_created(void *user, const struct job_result *r, int *fds, size_t n_fds)
{
    struct creation *c = user;
    struct engine *e = c->engine;
    struct abx_err err = { 0 };
    int code = take_result(c, r, fds, n_fds, &err);

    e->creating--;
    c->sb->must_sweep = r->is_cut_off;
    if (c->warm)
        c->warm->n_coming--;
    if (code == 0 && c->warm) {
        c->sb->state = SANDBOX_READY;
        if (!warm_put(e, c->sb))
            sandbox_remove(e, c->sb, 0, 0);
        creation_free(c);
        creations_go_on(e); /* one may have begun to wait for just this */
        slots_refill(e);
        engine_stop_if_idle(e);
        return;
    }
    if (code == 0)
        code = open_to_others(c, &err);
    if (code < 0) {
        if (c->sb->state == SANDBOX_STARTING)
            c->sb->state = SANDBOX_RUNNING; /* nobody is at it any more */
        sandbox_remove_keeping(e, c->sb);
        fail(c, &err);
        return;
    }
    c->sb->is_saved = c->sb->keeps_upper = false;
    answer(c, r);
    creation_free(c);
    slots_refill(e);
    engine_stop_if_idle(e);
}

static void fill_job(struct creation *c, struct job *j)
{
    const struct sandbox *sb = c->sb;

    j->kind = JOB_CREATE;
    j->keeps_upper = c->is_resume;
    j->create.must_resize = memcmp(&sb->record.limits, &c->limits, sizeof c->limits) != 0;
    j->record = sb->record;
    j->record.limits = c->limits;
    (void)snprintf(j->record.template, sizeof j->record.template, "%s", c->folder);
    uuid_make(j->record.execution_id);
    uuid_make(j->create.boot_id);
    (void)snprintf(j->create.hostname, sizeof j->create.hostname, "%s", c->hostname);
    j->create.n_layers = 1;
    (void)snprintf(j->create.layers, sizeof j->create.layers, "%s", c->rootfs);
}

/* A detached mount of the template as it is now. NOT_FOUND when it was removed since the last look. */
static int open_template(struct creation *c, int *ret_fd, struct abx_err *err)
{
    int sys, r;

    *ret_fd = mnt_open_tree(AT_FDCWD, c->rootfs, OPEN_TREE_CLONE);
    if (*ret_fd >= 0)
        return 0;
    sys = errno;
    r = sys == ENOENT ? templates_refresh(c->engine, err) : 0;
    if (r < 0)
        return r;
    if (!templates_find(&c->engine->templates, c->folder))
        return err_set(err, ABX_NOT_FOUND, "template '%s' not found", c->folder);
    return err_sys(err, sys, "clone the mount of '%s'", c->rootfs);
}

static int submit(struct creation *c, struct abx_err *err)
{
    struct sandbox *sb = c->sb;
    static struct job j; /* 5 KB; only one is made at a time */
    int fds[CREATE_FDS] = { TAKE_FD(sb->userns_fd), -EBADF, TAKE_FD(sb->envd_fd),
                            TAKE_FD(sb->control_fd), -EBADF };
    int r = open_template(c, &fds[CREATE_LAYER], err);

    memset(&j, 0, sizeof j);
    fill_job(c, &j);
    if (r == 0) {
        fds[SLOT_NETNS] = fcntl(sb->netns_fd, F_DUPFD_CLOEXEC, 0);
        if (fds[SLOT_NETNS] < 0)
            r = err_sys(err, errno, "network namespace");
    }
    if (r < 0) {
        packet_close_fds(fds, CREATE_FDS);
        return r;
    }
    return crew_submit(c->engine->crew, WORKER_CREATE, &j, fds, CREATE_FDS,
                       (struct job_owner){ on_created, drop, c }, err);
}

void creation_start(struct creation *c, struct sandbox *sb)
{
    struct engine *e = c->engine;
    struct abx_err err;
    int r = 0;

    c->sb = sb;
    c->slot_ns = time_mono_ns();
    if (!c->warm && !c->is_resume)
        r = table_set_id(e->table, sb, c->sandbox_id, &err);
    if (r == 0) {
        c->sent_ns = time_mono_ns();
        r = submit(c, &err);
    }
    if (r < 0) {
        if (c->warm)
            c->warm->n_coming--;
        sandbox_remove_keeping(e, sb);
        fail(c, &err);
        return;
    }
    sb->state = SANDBOX_STARTING;
    e->creating++;
    /* The worker is at it meanwhile. */
    if (!c->warm)
        (void)FAULT_STEP("start.identity", &c->err,
                         identity_deliver(sb->netns_fd, buf_slice(&c->identity), &c->err));
}

/* --- begin -------------------------------------------------------------------------------------- */

/* 256 descriptors stay free: at the limit the kernel drops passed ones without a word. */
static int check_room(const struct engine *e, struct abx_err *err)
{
    size_t n_ready = 0;
    size_t used = 2 * table_count(e->table) + sockets_held(e->sockets) + 64 + e->creating +
                  (SLOT_FDS_MAX - 1) * (size_t)(e->n_slots + e->slots_coming);

    for (size_t i = 0; i < e->n_warm; i++)
        n_ready += e->warm[i].n_ready;
    used += STEER_FDS * n_ready;
    if (used + FDS_RESERVE > e->fd_limit)
        return err_reason(err, ABX_REASON_BUSY,
                          "this machine has no descriptors left for a sandbox");
    if (e->n_waiting >= WAITING_MAX)
        return err_reason(err, ABX_REASON_BUSY, "too many sandboxes are being created");
    return 0;
}

static bool is_waiting(const struct engine *e, const char *sandbox_id)
{
    for (const struct creation *c = e->waiting; c; c = c->next)
        if (strcmp(c->sandbox_id, sandbox_id) == 0)
            return true;
    return false;
}

/* --- a stopped one starts again ------------------------------------------------------------------ */

static void on_prepared(void *user, const struct job_result *r, int *fds, size_t n_fds)
{
    struct creation *c = user;
    struct sandbox *sb = c->sb;
    struct abx_err err = r->err;

    sb->state = SANDBOX_PREPARED;
    sb->must_sweep = r->is_cut_off;
    if (err.code == 0 && !slot_take_fds(c->engine, sb, r, fds, n_fds))
        (void)err_set(&err, ABX_INTERNAL, "the worker sent no descriptors");
    if (err.code == 0 && sb->kill_wanted)
        (void)err_set(&err, ABX_ABORTED, "killed while it was resumed");
    if (err.code == 0) {
        creation_start(c, sb);
        return;
    }
    sandbox_remove_keeping(c->engine, sb);
    fail(c, &err);
}

static int resume_begin(struct creation *c, struct abx_err *err);

/* Its processes have ended by now. */
static void on_stopped(void *user, const struct abx_err *failure)
{
    struct creation *c = user;
    struct abx_err err = { 0 };

    if (failure)
        fail(c, failure);
    else if (resume_begin(c, &err) < 0)
        fail(c, &err);
}

/* The upper is what it was, all else is made anew; whatever fails, the upper stays unless it is killed. */
static int resume_begin(struct creation *c, struct abx_err *err)
{
    struct engine *e = c->engine;
    struct sandbox *sb = table_find_id(e->table, c->sandbox_id);
    struct job j = { .kind = JOB_PREPARE, .keeps_upper = true };
    int r;

    if (!sb && disk_pool_why_dead(e->pool)[0])
        return err_reason(err, ABX_REASON_BUSY, "the pool cannot be used: %s",
                          disk_pool_why_dead(e->pool));
    if (!sb)
        return err_set(err, ABX_DATA_LOSS, "nothing is left of what was kept of it");
    if (sb->state == SANDBOX_REMOVING && sb->keeps_upper) {
        sandbox_add_waiter(sb, (struct waiter){ .done = on_stopped, .drop = drop, .user = c });
        return 0;
    }
    if (sb->state != SANDBOX_STOPPED || sb->is_busy)
        return err_reason(err, ABX_REASON_CONFLICT, "sandbox '%s' is not stopped", c->sandbox_id);
    sb->record.limits = c->limits;
    j.record = sb->record;
    r = crew_submit(e->crew, WORKER_PREPARE, &j, NULL, 0,
                    (struct job_owner){ on_prepared, drop, c }, err);
    if (r < 0)
        return r;
    c->sb = sb;
    sb->state = SANDBOX_STARTING;
    sb->keeps_upper = true;
    return 0;
}

void creation_begin(struct creation *c)
{
    struct engine *e = c->engine;
    struct abx_err err = { 0 };

    if (c->is_resume && !e->is_stopping) {
        if (check_room(e, &err) < 0 || resume_begin(c, &err) < 0)
            fail(c, &err);
        return;
    }
    if (e->is_stopping)
        (void)err_reason(&err, ABX_REASON_BUSY, "the engine is stopping");
    else if (table_find_id(e->table, c->sandbox_id) || is_waiting(e, c->sandbox_id))
        (void)err_set(&err, ABX_ALREADY_EXISTS, "sandbox '%s' exists", c->sandbox_id);
    else
        (void)check_room(e, &err);
    if (err.code) {
        fail(c, &err);
        return;
    }
    c->sb = warm_take(e, c->folder);
    if (c->sb) {
        claim_begin(c);
        return;
    }
    c->next = NULL;
    *e->waiting_tail = c;
    e->waiting_tail = &c->next;
    e->n_waiting++;
    creations_go_on(e);
    slots_refill(e);
}

static struct creation *waiting_take(struct engine *e)
{
    struct creation *c = e->waiting;

    e->waiting = c->next;
    if (!e->waiting)
        e->waiting_tail = &e->waiting;
    e->n_waiting--;
    return c;
}

void creations_go_on(struct engine *e)
{
    struct sandbox *sb;

    while (e->waiting && (sb = slot_take(e)) != NULL)
        creation_start(waiting_take(e), sb);
}

bool creation_cancel(struct engine *e, const char *sandbox_id)
{
    for (struct creation **at = &e->waiting; *at; at = &(*at)->next) {
        struct creation *c = *at;
        struct abx_err err;

        if (strcmp(c->sandbox_id, sandbox_id) != 0)
            continue;
        *at = c->next;
        if (e->waiting_tail == &c->next)
            e->waiting_tail = at;
        e->n_waiting--;
        (void)err_set(&err, ABX_ABORTED, "killed while it was created");
        fail(c, &err);
        return true;
    }
    return false;
}

void creation_fail_first(struct engine *e, const struct abx_err *why)
{
    if (e->waiting)
        fail(waiting_take(e), why);
}
