/* clone.c - a stopped sandbox with the files of another: what snapshots and forks are made of. See engine.h
 * and saved.h.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "engine/engine.h"

struct cloning {
    struct engine *engine;
    struct sandbox *from, *to;
    uint64_t conn, seq;
    int stop_fd; /* an eventfd: the worker's copy stops when it is set */
    bool was_running;
    uint32_t us;
    struct abx_err err; /* what the copy failed with */
};

static void reply(const struct cloning *c)
{
    Abx__Ipc__Frame f = ABX__IPC__FRAME__INIT;
    Abx__Ipc__CloneReply body = ABX__IPC__CLONE_REPLY__INIT;

    body.us = c->us;
    f.body_case = ABX__IPC__FRAME__BODY_CLONE_REPLY;
    f.clone_reply = &body;
    if (c->err.code)
        server_reply_error(c->engine, c->conn, c->seq, &c->err);
    else
        server_reply(c->engine, c->conn, c->seq, &f);
}

static void drop(void *user)
{
    struct cloning *c = user;

    fd_close(c->stop_fd);
    free(c);
}

/* As before, whatever happened to the worker meanwhile. */
static void from_done(struct cloning *c)
{
    struct engine *e = c->engine;
    struct sandbox *sb = c->from;
    struct abx_err err;

    reply(c);
    if (--sb->n_copies > 0) { /* of a stopped one several at a time */
        drop(c);
        return;
    }
    sb->is_busy = false;
    sb->record.is_frozen = !c->was_running && sb->state == SANDBOX_FROZEN;
    if (c->was_running && record_write(e->records_fd, &sb->record, &err) < 0)
        log_err("record of a sandbox that was copied", &err);
    sandbox_not_busy(e, sb);
    engine_stop_if_idle(e);
    drop(c);
}

static void on_thawed(void *user, const struct job_result *r, int *fds, size_t n_fds)
{
    struct cloning *c = user;

    (void)fds;
    (void)n_fds;
    if (r->err.code) { /* as the record says; control thaws what should run */
        log_err("a sandbox that was copied could not be thawed", &r->err);
        c->from->state = SANDBOX_FROZEN;
        c->was_running = false;
    }
    from_done(c);
}

static void to_done(struct cloning *c, bool is_made)
{
    struct sandbox *sb = c->to;

    sb->cloning = NULL;
    if (is_made && !sb->kill_wanted) {
        sb->state = SANDBOX_STOPPED;
        sb->is_saved = sb->is_noted = true;
        return;
    }
    sb->state = SANDBOX_PREPARED; /* nobody is at it any more */
    sandbox_remove(c->engine, sb, 0, 0);
}

static void on_cloned(void *user, const struct job_result *r, int *fds, size_t n_fds)
{
    struct cloning *c = user;
    struct job j = { .kind = JOB_THAW };
    struct abx_err err;

    (void)fds;
    (void)n_fds;
    c->us = r->u.us;
    c->err = r->err;
    to_done(c, r->err.code == 0);
    j.record = c->from->record;
    /* Whatever failed, it may be frozen. Nothing else may be asked of it until it is not. */
    if (c->was_running && r->err.code != 0 && !c->from->kill_wanted &&
        crew_submit(c->engine->crew, WORKER_CONTROL, &j, NULL, 0,
                    (struct job_owner){ on_thawed, drop, c }, &err) == 0)
        return;
    from_done(c);
}

static void stop(struct cloning *c)
{
    const uint64_t one = 1;

    if (write(c->stop_fd, &one, sizeof one) < 0)
        log_warn("a copy cannot be stopped", NULL);
    crew_withdraw(c->engine->crew, WORKER_SAVE, c);
}

static void stop_if_of(void *user, struct sandbox *sb)
{
    if (sb->cloning && sb->cloning->from == user)
        stop(sb->cloning);
}

void sandbox_stop_copies(struct engine *e, struct sandbox *sb)
{
    if (sb->cloning)
        stop(sb->cloning);
    /* Of one without processes the copies are finished: nobody waits for its end. */
    if (sb->n_copies > 0 && sb->state != SANDBOX_STOPPED)
        table_each(e->table, stop_if_of, sb);
}

static int check(const struct engine *e, const struct sandbox *sb, const char *new_id,
                 struct abx_err *err)
{
    if (table_find_id(e->table, new_id))
        return err_set(err, ABX_ALREADY_EXISTS, "sandbox '%.64s' exists", new_id);
    if ((sb->is_busy && (sb->n_copies == 0 || sb->state != SANDBOX_STOPPED)) || sb->keeps_upper ||
        (sb->state != SANDBOX_RUNNING && sb->state != SANDBOX_FROZEN &&
         sb->state != SANDBOX_STOPPED))
        return err_reason(err, ABX_REASON_CONFLICT, "sandbox '%s' is being changed",
                          sb->record.sandbox_id);
    return 0;
}

/* The new one, being made. */
static int target_new(struct engine *e, const struct sandbox *from, const char *new_id,
                      struct sandbox **ret, struct abx_err *err)
{
    char name[RECORD_NAME_SIZE];
    struct sandbox *to;
    int r;

    record_name_make(name);
    r = table_add(e->table, name, &to, err);
    if (r < 0)
        return r;
    to->engine = e;
    memcpy(to->record.name, name, sizeof name);
    to->record.limits = from->record.limits;
    memcpy(to->record.template, from->record.template, sizeof to->record.template);
    r = table_set_id(e->table, to, new_id, err);
    if (r < 0) {
        table_remove(e->table, to);
        return r;
    }
    to->state = SANDBOX_STARTING;
    *ret = to;
    return 0;
}

static int submit(struct cloning *c, struct abx_err *err)
{
    struct job j = { .kind = JOB_CLONE, .must_freeze = c->was_running };
    int fd, r = 0;

    c->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fd = c->stop_fd < 0 ? -EBADF : fcntl(c->stop_fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(err, errno, "eventfd");
    /* What a crash leaves counts as frozen. */
    if (c->was_running) {
        c->from->record.is_frozen = true;
        r = record_write(c->engine->records_fd, &c->from->record, err);
    }
    if (r < 0) {
        fd_close(fd);
        return r;
    }
    j.record = c->from->record;
    memcpy(j.target, c->to->record.name, sizeof j.target);
    memcpy(j.target_id, c->to->record.sandbox_id, sizeof j.target_id);
    return crew_submit(c->engine->crew, WORKER_SAVE, &j, &fd, 1,
                       (struct job_owner){ on_cloned, drop, c }, err);
}

void sandbox_clone(struct engine *e, struct sandbox *sb, const char *new_id, uint64_t conn,
                   uint64_t seq)
{
    struct cloning *c = calloc(1, sizeof *c);
    struct abx_err err;
    int r = c ? check(e, sb, new_id, &err) : err_oom(&err);

    if (r == 0) {
        *c = (struct cloning){
            .engine = e, .from = sb, .conn = conn, .seq = seq, .stop_fd = -EBADF
        };
        c->was_running = sb->state == SANDBOX_RUNNING;
        r = target_new(e, sb, new_id, &c->to, &err);
    }
    if (r < 0) {
        server_reply_error(e, conn, seq, &err);
        free(c);
        return;
    }
    c->to->cloning = c;
    sb->is_busy = true;
    sb->n_copies++;
    r = submit(c, &c->err);
    if (r == 0)
        return;
    to_done(c, false);
    from_done(c);
}
