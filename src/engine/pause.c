/* pause.c - freeze and thaw in place, stopped sandboxes of which the files are kept. See engine.h and
 * saved.h.
 *
 * A pause freezes first, whatever is kept. Frozen and noted as saved, a sandbox cannot be lost any more:
 * when its processes are killed, or the machine starts anew, it is a stopped one.
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "engine/engine.h"
#include "engine/identity.h"
#include "engine/saved.h"

/* A job about one sandbox for one request. `sb` is set when the sandbox was kept for it (is_busy). */
struct request {
    struct engine *engine;
    struct sandbox *sb;
    uint64_t conn, seq;
    bool is_kept, is_synced, is_brief;
    uint32_t us;
};

static int request_submit(struct request *q, struct sandbox *sb, enum worker_class class,
                          enum job_kind kind, job_done_fn done, struct abx_err *err)
{
    struct job j = { .kind = kind };
    int r;

    j.record = sb->record;
    j.keeps_upper = q->is_kept;
    r = crew_submit(q->engine->crew, class, &j, NULL, 0, (struct job_owner){ done, free, q }, err);
    /* Writing the whole pool, which takes as long as it takes, does not hold up a kill. */
    if (r == 0 && kind != JOB_SAVE) {
        q->sb = sb;
        sb->is_busy = true;
    }
    return r;
}

static struct request *request_new(struct engine *e, uint64_t conn, uint64_t seq,
                                   struct abx_err *err)
{
    struct request *q = calloc(1, sizeof *q);

    if (!q) {
        (void)err_oom(err);
        return NULL;
    }
    *q = (struct request){ .engine = e, .conn = conn, .seq = seq };
    return q;
}

static void reply_freeze(struct engine *e, uint64_t conn, uint64_t seq, uint32_t us)
{
    Abx__Ipc__Frame f = ABX__IPC__FRAME__INIT;
    Abx__Ipc__FreezeReply body = ABX__IPC__FREEZE_REPLY__INIT;

    body.us = us;
    f.body_case = ABX__IPC__FRAME__BODY_FREEZE_REPLY;
    f.freeze_reply = &body;
    server_reply(e, conn, seq, &f);
}

/* --- freeze and thaw ----------------------------------------------------------------------------- */

/* The record says frozen from before the freeze until after the thaw: what a crash leaves counts as
 * frozen, and thawing what runs is harmless. */
static int note_frozen(struct engine *e, struct sandbox *sb, bool on, struct abx_err *err)
{
    sb->record.is_frozen = on;
    return record_write(e->records_fd, &sb->record, err);
}

static void request_answer(struct request *q, const struct abx_err *failure)
{
    if (failure->code)
        server_reply_error(q->engine, q->conn, q->seq, failure);
    else
        reply_freeze(q->engine, q->conn, q->seq, q->us);
    free(q);
}

static void on_saved(void *user, const struct job_result *r, int *fds, size_t n_fds)
{
    struct request *q = user;
    struct engine *e = q->engine;

    (void)fds;
    (void)n_fds;
    request_answer(q, &r->err); /* the sandbox may be gone */
    engine_stop_if_idle(e);
}

static void on_background_save(void *user, const struct job_result *r, int *fds, size_t n_fds)
{
    (void)fds;
    (void)n_fds;
    if (r->err.code)
        log_err("files of a paused sandbox may not be on the disk yet", &r->err);
    engine_stop_if_idle(user);
}

/* Nobody waits for it: memory is what such a pause keeps, and that is in no file. */
static void save_later(struct engine *e)
{
    struct job j = { .kind = JOB_SAVE };
    struct abx_err err;

    if (crew_submit(e->crew, WORKER_SAVE, &j, NULL, 0,
                    (struct job_owner){ on_background_save, NULL, e }, &err) < 0)
        log_err("files of a paused sandbox may not be on the disk yet", &err);
}

static void on_frozen(void *user, const struct job_result *r, int *fds, size_t n_fds)
{
    struct request *q = user;
    struct engine *e = q->engine;
    struct sandbox *sb = q->sb;
    struct abx_err err = r->err;

    (void)fds;
    (void)n_fds;
    sb->is_busy = false;
    q->us = r->u.us;
    if (err.code == 0) {
        sb->state = r->kind == JOB_FREEZE ? SANDBOX_FROZEN : SANDBOX_RUNNING;
        sb->is_saved = r->kind == JOB_FREEZE && (sb->is_saved || q->is_kept);
        sb->is_noted |= sb->is_saved;
    }
    /* Also after a failed freeze: a worker that died may have frozen it, so it stays noted. */
    if (err.code == 0 && r->kind == JOB_THAW)
        (void)note_frozen(e, sb, false, &err);
    sockets_set_frozen(e->sockets, sb->record.sandbox_id, sb->state == SANDBOX_FROZEN);
    if (err.code != 0 || !q->is_synced ||
        request_submit(q, sb, WORKER_SAVE, JOB_SAVE, on_saved, &err) < 0) {
        bool is_kept = err.code == 0 && q->is_kept && !q->is_brief && r->kind == JOB_FREEZE;
        bool is_paused = is_kept && !q->is_synced;

        if (is_kept)
            save_later(e);
        request_answer(q, &err);
        if (is_paused) /* whose memory is kept */
            sandbox_push_out(e, sb);
    }
    sandbox_not_busy(e, sb);
    engine_stop_if_idle(e);
}

/* Killed while it was frozen; the loop hears of it in a moment. */
static bool has_ended(const struct sandbox *sb)
{
    struct pollfd p = { sb->pidfd, POLLIN, 0 };

    return sb->state == SANDBOX_FROZEN && poll(&p, 1, 0) > 0;
}

static int check_idle(const struct sandbox *sb, struct abx_err *err)
{
    if (sb->is_busy || sb->state == SANDBOX_STARTING)
        return err_reason(err, ABX_REASON_CONFLICT, "sandbox '%s' is being changed",
                          sb->record.sandbox_id);
    if (sb->state == SANDBOX_STOPPED || sb->keeps_upper || has_ended(sb))
        return err_set(err, ABX_FAILED_PRECONDITION, "sandbox '%s' has no processes any more",
                       sb->record.sandbox_id);
    if (sb->state != SANDBOX_RUNNING && sb->state != SANDBOX_FROZEN)
        return err_reason(err, ABX_REASON_CONFLICT, "sandbox '%s' is ending",
                          sb->record.sandbox_id);
    return 0;
}

/* Also when the table says that it is done: what a crash left may be half of it. */
static void change(struct engine *e, struct sandbox *sb, struct request *q, bool thaw)
{
    bool was_frozen = sb->state == SANDBOX_FROZEN;
    struct abx_err err;
    int r = check_idle(sb, &err);

    if (r == 0)
        sandbox_push_stop(e, sb);
    if (r == 0 && !thaw) {
        r = note_frozen(e, sb, true, &err);
        if (r == 0) /* from here on no new connections */
            sockets_set_frozen(e->sockets, sb->record.sandbox_id, true);
    }
    if (r == 0) {
        r = request_submit(q, sb, WORKER_CONTROL, thaw ? JOB_THAW : JOB_FREEZE, on_frozen, &err);
        if (r < 0) /* as before */
            sockets_set_frozen(e->sockets, sb->record.sandbox_id, was_frozen);
    }
    if (r == 0)
        return;
    server_reply_error(e, q->conn, q->seq, &err);
    free(q);
}

void sandbox_freeze(struct engine *e, struct sandbox *sb, bool is_kept, bool is_synced,
                    bool is_brief, uint64_t conn, uint64_t seq)
{
    struct abx_err err;
    struct request *q = request_new(e, conn, seq, &err);

    if (!q) {
        server_reply_error(e, conn, seq, &err);
        return;
    }
    q->is_kept = is_kept;
    q->is_synced = is_synced;
    q->is_brief = is_brief;
    change(e, sb, q, false);
}

/* It lies in the guest's socket when that runs again, and is looked at before anything else is. */
static void tell_resumed(const struct sandbox *sb)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(64);
    struct abx_err err;

    if (resumed_encode(&b, &err) < 0 || identity_deliver(sb->netns_fd, buf_slice(&b), &err) < 0)
        log_err("a guest does not hear that it was frozen", &err);
}

void sandbox_thaw(struct engine *e, struct sandbox *sb, bool is_kept, uint64_t conn, uint64_t seq)
{
    struct abx_err err;
    struct request *q = request_new(e, conn, seq, &err);

    if (q)
        q->is_kept = is_kept;
    if (q && sb->state == SANDBOX_FROZEN && !sb->is_busy)
        tell_resumed(sb);
    if (q)
        change(e, sb, q, true);
    else
        server_reply_error(e, conn, seq, &err);
}

/* --- stopped ------------------------------------------------------------------------------------- */

void sandbox_stopped(struct engine *e, struct sandbox *sb)
{
    sb->state = SANDBOX_STOPPED;
    sb->record.phase = RECORD_PREPARED;
    sb->record.pid = 0;
    sb->record.is_frozen = false;
    sb->is_saved = sb->is_noted = true;
    sb->keeps_upper = sb->has_kept = sb->kill_wanted = sb->must_sweep = false;
    sb->is_died = sb->is_told = sb->has_exit = sb->has_oom = false;
    /* Whoever has sockets of its network name space lets go of them. */
    sockets_send_died(e->sockets, sb->record.sandbox_id, "stopped", -1);
    log_info("sandbox stopped, its files are kept", "id", sb->record.sandbox_id, NULL);
}

static void reply_stop(struct request *q, const struct abx_err *failure)
{
    Abx__Ipc__Frame f = ABX__IPC__FRAME__INIT;
    Abx__Ipc__StopReply body = ABX__IPC__STOP_REPLY__INIT;

    f.body_case = ABX__IPC__FRAME__BODY_STOP_REPLY;
    f.stop_reply = &body;
    if (failure)
        server_reply_error(q->engine, q->conn, q->seq, failure);
    else
        server_reply(q->engine, q->conn, q->seq, &f);
    free(q);
}

static void on_stopped(void *user, const struct abx_err *failure)
{
    reply_stop(user, failure);
}

void sandbox_stop(struct engine *e, struct sandbox *sb, uint64_t conn, uint64_t seq)
{
    struct abx_err err;
    struct request *q = request_new(e, conn, seq, &err);
    int r;

    if (!q) {
        server_reply_error(e, conn, seq, &err);
        return;
    }
    if (sb->state == SANDBOX_STOPPED) {
        reply_stop(q, NULL);
        return;
    }
    r = sb->state == SANDBOX_REMOVING && sb->keeps_upper ? 0 : check_idle(sb, &err);
    if (r == 0 && !sb->is_saved)
        r = err_set(&err, ABX_FAILED_PRECONDITION, "sandbox '%s' was not frozen to be kept",
                    sb->record.sandbox_id);
    if (r < 0) {
        reply_stop(q, &err);
        return;
    }
    sandbox_add_waiter(sb, (struct waiter){ .done = on_stopped, .drop = free, .user = q });
    sb->keeps_upper = true;
    sandbox_remove_keeping(e, sb);
}

struct scan {
    struct engine *e;
    struct abx_err *err;
};

static int scan_one(void *user, const char *name, const char *sandbox_id)
{
    struct scan *s = user;
    struct sandbox *sb = table_find(s->e->table, name);
    struct abx_err why;
    int r = 0;

    if (sb)
        sb->is_noted = true;
    if (sb && sb->state == SANDBOX_RUNNING)
        return 0;
    if (!sb) {
        r = table_add(s->e->table, name, &sb, s->err);
        if (r < 0)
            return r;
        sb->engine = s->e;
        (void)snprintf(sb->record.name, sizeof sb->record.name, "%s", name);
        sb->state = SANDBOX_STOPPED;
    }
    if (sb->record.sandbox_id[0] == '\0' && table_set_id(s->e->table, sb, sandbox_id, &why) < 0) {
        log_err("what is kept of a sandbox belongs to no one", &why);
        return 0;
    }
    sb->is_saved = sb->is_noted = true;
    if (sb->state == SANDBOX_PREPARED)
        sb->keeps_upper = true; /* it goes, its upper stays */
    return 0;
}

/* Noted, or not paused at all. */
static bool is_settled(void *user, const char *name)
{
    const struct engine *e = user;
    const struct sandbox *sb = table_find(e->table, name);

    return sb && (sb->is_saved || (sb->state != SANDBOX_FROZEN && sb->state != SANDBOX_PREPARED));
}

int saved_scan(struct engine *e, struct abx_err *err)
{
    struct scan s = { e, err };
    int r = saved_each(e->pool, scan_one, &s, err);

    if (r == 0)
        r = saved_restore(e->pool, is_settled, e, err);
    return r < 0 ? r : saved_each(e->pool, scan_one, &s, err);
}
