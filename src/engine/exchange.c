/* exchange.c - a sandbox gets the files of a stopped one, which gets its: what a rollback is made of. See engine.h
 * and job.h.
 *
 * One rename exchanges the two uppers. The sandbox's processes, if it has some, are frozen and stay so until they
 * are ended: they have the old files. The new upper bears the copy's id as a mark, so that a request whose
 * answer was lost can be made again, also to the next engine.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/engine.h"

struct exchange {
    struct engine *engine;
    struct sandbox *sb,
        *copy; /* kept for it (is_busy); copy NULL: it may only be looked whether it is done */
    uint64_t conn, seq;
    bool is_synced;
    uint32_t us;
};

static void answer(struct exchange *x, const struct abx_err *failure)
{
    Abx__Ipc__Frame f = ABX__IPC__FRAME__INIT;
    Abx__Ipc__ExchangeReply body = ABX__IPC__EXCHANGE_REPLY__INIT;

    body.us = x->us;
    f.body_case = ABX__IPC__FRAME__BODY_EXCHANGE_REPLY;
    f.exchange_reply = &body;
    if (failure)
        server_reply_error(x->engine, x->conn, x->seq, failure);
    else
        server_reply(x->engine, x->conn, x->seq, &f);
    free(x);
}

/* It is done whatever the disk says; a pool that cannot write is told by all that comes next. */
static void on_synced(void *user, const struct job_result *r, int *fds, size_t n_fds)
{
    struct exchange *x = user;
    struct engine *e = x->engine;

    (void)fds;
    (void)n_fds;
    if (r->err.code)
        log_err("files that a sandbox was given may not be on the disk yet", &r->err);
    answer(x, NULL);
    engine_stop_if_idle(e);
}

static int sync_pool(struct exchange *x, struct abx_err *err)
{
    struct job j = { .kind = JOB_SAVE };

    return crew_submit(x->engine->crew, WORKER_SAVE, &j, NULL, 0,
                       (struct job_owner){ on_synced, free, x }, err);
}

static void on_exchanged(void *user, const struct job_result *r, int *fds, size_t n_fds)
{
    struct exchange *x = user;
    struct engine *e = x->engine;
    struct sandbox *sb = x->sb, *copy = x->copy;
    struct abx_err err;

    (void)fds;
    (void)n_fds;
    x->us = r->u.us;
    sb->is_busy = false;
    if (copy)
        copy->is_busy = false;
    if (r->err.code == 0)
        log_info("sandbox has other files", "id", sb->record.sandbox_id, NULL);
    if (r->err.code)
        answer(x, &r->err);
    else if (!x->is_synced || sync_pool(x, &err) < 0)
        answer(x, NULL);
    sandbox_not_busy(e, sb);
    if (copy)
        sandbox_not_busy(e, copy);
    engine_stop_if_idle(e);
}

static bool is_stopped(const struct sandbox *sb)
{
    return sb->state == SANDBOX_STOPPED && !sb->is_busy && !sb->kill_wanted;
}

/* What is being changed, ends or starts is another thing in a moment; of others it may be done already. */
static int check(struct exchange *x, const char *copy_id, struct abx_err *err)
{
    struct sandbox *sb = x->sb, *copy = table_find_id(x->engine->table, copy_id);
    bool can_change = sb->state == SANDBOX_STOPPED || (sb->state == SANDBOX_FROZEN && sb->is_saved);

    if (copy == sb)
        return err_set(err, ABX_INVALID_ARGUMENT, "sandbox '%.64s' is no copy of itself", copy_id);
    if (sb->is_busy || (!can_change && sb->state != SANDBOX_RUNNING))
        return err_reason(err, ABX_REASON_CONFLICT, "sandbox '%s' is being changed",
                          sb->record.sandbox_id);
    if (copy && can_change && !is_stopped(copy))
        return err_reason(err, ABX_REASON_CONFLICT, "sandbox '%.64s' is being changed", copy_id);
    x->copy = can_change ? copy : NULL;
    return 0;
}

static int submit(struct exchange *x, const char *copy_id, struct abx_err *err)
{
    struct job j = { .kind = JOB_EXCHANGE, .only_look = !x->copy };

    j.record = x->sb->record;
    if (x->copy)
        memcpy(j.target, x->copy->record.name, sizeof j.target);
    (void)snprintf(j.target_id, sizeof j.target_id, "%s", copy_id);
    return crew_submit(x->engine->crew, WORKER_CONTROL, &j, NULL, 0,
                       (struct job_owner){ on_exchanged, free, x }, err);
}

void sandbox_exchange(struct engine *e, struct sandbox *sb, const char *copy_id, bool is_synced,
                      uint64_t conn, uint64_t seq)
{
    struct exchange *x = calloc(1, sizeof *x);
    struct abx_err err;
    int r;

    if (!x) {
        (void)err_oom(&err);
        server_reply_error(e, conn, seq, &err);
        return;
    }
    *x = (struct exchange){
        .engine = e, .sb = sb, .conn = conn, .seq = seq, .is_synced = is_synced
    };
    r = check(x, copy_id, &err);
    if (r == 0)
        r = submit(x, copy_id, &err);
    if (r < 0) {
        answer(x, &err);
        return;
    }
    sb->is_busy = true;
    if (x->copy)
        x->copy->is_busy = true;
}
