/* lifecycle.c - the end of sandboxes. See engine.h. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "engine/engine.h"

#define STUCK_RETRY_NS (5 * NSEC_PER_SEC)
#define ENDING_NS (100 * NSEC_PER_MSEC)
#define ENDING_STEP_MS 20

/* --- death -------------------------------------------------------------------------------------- */

static void on_exit_closed(uv_handle_t *h)
{
    free(h);
}

void sandbox_unwatch(struct sandbox *sb)
{
    if (!sb->exit_poll)
        return;
    uv_close((uv_handle_t *)sb->exit_poll, on_exit_closed);
    sb->exit_poll = NULL;
}

static void submit_remove(struct engine *e, struct sandbox *sb);

static void on_exited(uv_poll_t *h, int status, int events)
{
    struct sandbox *sb = h->data;

    (void)status;
    (void)events;
    sandbox_unwatch(sb);
    if (sb->is_ending) {
        submit_remove(sb->engine, sb);
        return;
    }
    /* Paused, and its processes were killed from outside (the kernel was out of memory): its files are kept. */
    if (sb->state == SANDBOX_FROZEN && sb->is_saved)
        sb->keeps_upper = true;
    else
        sb->is_died = true;
    sandbox_remove_keeping(sb->engine, sb);
}

int sandbox_watch(struct engine *e, struct sandbox *sb, struct abx_err *err)
{
    uv_poll_t *h = calloc(1, sizeof *h);
    int r;

    if (!h)
        return err_oom(err);
    r = uv_poll_init(&e->loop, h, sb->pidfd);
    if (r < 0) {
        free(h);
        return err_sys(err, -r, "watch the sandbox");
    }
    h->data = sb;
    sb->engine = e;
    sb->exit_poll = h;
    r = uv_poll_start(h, UV_READABLE, on_exited);
    return r < 0 ? err_sys(err, -r, "watch the sandbox") : 0;
}

static const char *reason_of(const struct sandbox *sb)
{
    if (sb->has_oom && sb->oom_kills > 0 && (!sb->has_exit || WIFSIGNALED(sb->exit_status)))
        return "oom";
    return sb->has_exit && WIFSIGNALED(sb->exit_status) ? "signal" : "exit";
}

/* Once, when both facts are there or will not come any more. */
static void tell_died(struct engine *e, struct sandbox *sb, bool is_last_chance)
{
    const char *id = sb->record.sandbox_id;
    int status = sb->has_exit ? sb->exit_status : -1;

    if (!sb->is_died || sb->is_told || id[0] == '\0' ||
        (!is_last_chance && !(sb->has_exit && sb->has_oom)))
        return;
    sb->is_told = true;
    server_send_died(e, id, reason_of(sb), status);
    sockets_send_died(e->sockets, id, reason_of(sb), status);
    log_info("sandbox died", "id", id, "reason", reason_of(sb), NULL);
}

struct event_target {
    const struct job_result *event;
    struct sandbox *found;
};

static void match_pid(void *user, struct sandbox *sb)
{
    struct event_target *t = user;

    if (sb->record.pid == t->event->record.pid && sb->pidfd >= 0 && !sb->has_exit)
        t->found = sb;
}

void sandbox_on_event(void *user, const struct job_result *event)
{
    struct engine *e = user;
    struct event_target t = { event, NULL };

    if (event->kind == JOB_READY) {
        if (event->u.mount_path != MOUNT_AUTO)
            e->mount_path = (enum mount_path)event->u.mount_path;
        return;
    }
    if (event->kind == JOB_OOM)
        t.found = table_find(e->table, event->record.name);
    else
        table_each(e->table, match_pid, &t);
    if (!t.found)
        return;
    if (event->kind == JOB_OOM) {
        t.found->has_oom = true;
        t.found->oom_kills = event->u.oom_kills;
    } else {
        t.found->has_exit = true;
        t.found->exit_status = event->u.status;
        if (t.found->is_died && t.found->is_ending)
            submit_remove(e, t.found);
    }
    tell_died(e, t.found, false);
}

/* --- removal ------------------------------------------------------------------------------------ */

void sandbox_add_waiter(struct sandbox *sb, struct waiter waiter)
{
    struct waiter *w = calloc(1, sizeof *w);

    if (!w)
        return; /* its deadline ends it */
    waiter.next = sb->waiters;
    *w = waiter;
    sb->waiters = w;
}

static void answer_waiters(struct engine *e, struct sandbox *sb, const struct abx_err *failure)
{
    while (sb->waiters) {
        struct waiter *w = sb->waiters;
        Abx__Ipc__Frame f = ABX__IPC__FRAME__INIT;
        Abx__Ipc__KillReply body = ABX__IPC__KILL_REPLY__INIT;

        sb->waiters = w->next;
        body.existed = true;
        f.body_case = ABX__IPC__FRAME__BODY_KILL_REPLY;
        f.kill_reply = &body;
        if (w->conn == 0)
            w->done(w->user, failure);
        else if (failure)
            server_reply_error(e, w->conn, w->seq, failure);
        else
            server_reply(e, w->conn, w->seq, &f);
        free(w);
    }
}

static void on_uid_put(void *user, const struct job_result *r, int *fds, size_t n_fds)
{
    struct engine *e = user;

    (void)fds;
    (void)n_fds;
    e->uids_going--;
    if (r->err.code)
        log_err("uid range", &r->err);
    engine_stop_if_idle(e);
}

void uid_put(struct engine *e, uid_t base)
{
    struct job j = { .kind = JOB_UID_PUT };
    struct abx_err err;

    j.record.uid_base = base;
    if (base == 0)
        return;
    if (crew_submit(e->crew, WORKER_PREPARE, &j, NULL, 0, (struct job_owner){ on_uid_put, NULL, e },
                    &err) < 0)
        log_err("uid range", &err); /* the audit finds it */
    else
        e->uids_going++;
}

static void put_off(struct engine *e, struct sandbox *sb, const struct abx_err *why)
{
    log_err("a sandbox could not be removed", why);
    sb->state = SANDBOX_STUCK;
    sb->retry_ns = time_mono_ns() + STUCK_RETRY_NS;
    answer_waiters(e, sb, why);
    engine_tick_later(e);
    engine_stop_if_idle(e);
}

static void on_removed(void *user, const struct job_result *r, int *fds, size_t n_fds)
{
    struct sandbox *sb = user;
    struct engine *e = sb->engine;

    (void)fds;
    (void)n_fds;
    sb->must_sweep |= r->is_cut_off;
    /* The worker died, not the job. One that hung in it would again: later. */
    if (r->is_cut_off && r->err.code == ABX_UNAVAILABLE && !e->is_stopping) {
        submit_remove(e, sb);
        return;
    }
    tell_died(e, sb, true);
    if (r->err.code) {
        put_off(e, sb, &r->err);
        return;
    }
    uid_put(e, r->record.uid_base);
    sb->record.uid_base = 0;
    if (sb->has_kept) {
        fd_close(TAKE_FD(sb->pidfd));
        if (!sb->keeps_upper) { /* killed meanwhile */
            submit_remove(e, sb);
            return;
        }
        sandbox_stopped(e, sb);
        answer_waiters(e, sb, NULL);
        slots_refill(e);
        engine_stop_if_idle(e);
        return;
    }
    answer_waiters(e, sb, NULL);
    fd_close(TAKE_FD(sb->pidfd));
    if (sb->record.sandbox_id[0] != '\0')
        log_info("sandbox removed", "id", sb->record.sandbox_id, NULL);
    if (r->has_note_left && sb->is_noted)
        /* Control has no row of it by now: each of its comparisons tries once more to remove the rest. */
        sandbox_stopped(e, sb);
    else
        table_remove(e->table, sb);
    e->has_trash = true;
    e->has_upper_left |= r->has_upper_left;
    trash_empty(e);
    slots_refill(e);
    engine_stop_if_idle(e);
}

static void submit_remove(struct engine *e, struct sandbox *sb)
{
    struct job j = { .kind = JOB_REMOVE };
    struct abx_err err;

    sandbox_unwatch(sb);
    sb->is_ending = false;
    j.record = sb->record;
    j.must_sweep = sb->must_sweep;
    j.wants_oom = sb->is_died;
    j.keeps_upper = sb->has_kept = sb->keeps_upper;
    j.pool_works = !disk_pool_why_dead(e->pool)[0];
    sb->state = SANDBOX_REMOVING;
    if (crew_submit(e->crew, WORKER_REMOVE, &j, NULL, 0, (struct job_owner){ on_removed, NULL, sb },
                    &err) < 0)
        put_off(e, sb, &err);
}

/* Kills PID 1, and with it all of its namespace, and has its exit waited for, so that the worker finds
 * an empty group and need not look again and again. For one that ended by itself its exit status is
 * waited for, which comes from the worker that is its parent. False: nothing to wait for. */
static bool end(struct engine *e, struct sandbox *sb)
{
    if (sb->is_died ? sb->has_exit : !sb->exit_poll || sb->state == SANDBOX_FROZEN)
        return false;
    if (!sb->is_died && syscall(SYS_pidfd_send_signal, sb->pidfd, SIGKILL, NULL, 0) < 0)
        return false;
    sb->state = SANDBOX_REMOVING;
    sb->is_ending = true;
    sb->retry_ns = time_mono_ns() + ENDING_NS;
    if (!uv_is_active((uv_handle_t *)&e->ending))
        (void)uv_timer_start(&e->ending, sandboxes_end, ENDING_STEP_MS, ENDING_STEP_MS);
    return true;
}

struct ending {
    struct engine *engine;
    int64_t now;
    bool has_more;
};

static void end_one(void *user, struct sandbox *sb)
{
    struct ending *x = user;

    if (!sb->is_ending)
        return;
    if (x->now >= sb->retry_ns)
        submit_remove(x->engine, sb); /* the cgroup is killed as a whole now */
    else
        x->has_more = true;
}

void sandboxes_end(uv_timer_t *t)
{
    struct ending x = { t->data, time_mono_ns(), false };

    table_each(x.engine->table, end_one, &x);
    if (!x.has_more)
        (void)uv_timer_stop(t);
    engine_stop_if_idle(x.engine);
}

/* Ends it; what `sb->keeps_upper` says then decides about its files. */
static void remove_it(struct engine *e, struct sandbox *sb)
{
    sb->engine = e;
    if (sb->state == SANDBOX_REMOVING)
        return;
    sandbox_push_stop(e, sb);
    if (sb->record.sandbox_id[0] != '\0')
        sockets_remove(e->sockets, sb->record.sandbox_id);
    if (sb->state == SANDBOX_STARTING || sb->is_busy) {
        sb->kill_wanted = true;
        sandbox_stop_copies(e, sb);
        return;
    }
    pool_unlink(e, sb);
    fd_close(TAKE_FD(sb->netns_fd));
    fd_close(TAKE_FD(sb->userns_fd));
    fd_close(TAKE_FD(sb->envd_fd));
    fd_close(TAKE_FD(sb->control_fd));
    packet_close_fds(sb->steer_fds, STEER_FDS);
    if (!end(e, sb))
        submit_remove(e, sb);
}

void sandbox_remove(struct engine *e, struct sandbox *sb, uint64_t conn, uint64_t seq)
{
    if (conn != 0)
        sandbox_add_waiter(sb, (struct waiter){ .conn = conn, .seq = seq });
    sb->keeps_upper = false;
    remove_it(e, sb);
}

void sandbox_remove_keeping(struct engine *e, struct sandbox *sb)
{
    remove_it(e, sb);
}

void sandbox_remove_then(struct engine *e, struct sandbox *sb,
                         void (*done)(void *user, const struct abx_err *failure), void *user)
{
    sandbox_add_waiter(sb, (struct waiter){ .done = done, .user = user });
    sandbox_remove(e, sb, 0, 0);
}

struct retry {
    struct engine *engine;
    bool has_stuck;
};

static void retry_one(void *user, struct sandbox *sb)
{
    struct retry *r = user;

    if (sb->state != SANDBOX_STUCK)
        return;
    if (time_mono_ns() >= sb->retry_ns)
        submit_remove(r->engine, sb);
    else
        r->has_stuck = true;
}

bool sandboxes_retry(struct engine *e)
{
    struct retry r = { e, false };

    table_each(e->table, retry_one, &r);
    return r.has_stuck;
}

void sandbox_not_busy(struct engine *e, struct sandbox *sb)
{
    if (sb->kill_wanted)
        remove_it(e, sb);
}

/* --- trash -------------------------------------------------------------------------------------- */

static void on_trash_emptied(void *user, const struct job_result *r, int *fds, size_t n_fds)
{
    struct engine *e = user;

    (void)fds;
    (void)n_fds;
    e->is_trashing = false;
    if (r->err.code) {
        e->has_upper_left = true; /* perhaps; looking is cheap */
        log_err("the trash could not be emptied", &r->err);
    }
    trash_empty(e);
    engine_stop_if_idle(e);
}

void trash_empty(struct engine *e)
{
    struct job j = { .kind = JOB_TRASH };
    struct abx_err err;

    if (e->is_trashing || !e->has_trash || (e->is_stopping && !e->stop_kills))
        return;
    e->has_trash = false;
    j.must_sweep = e->has_upper_left;
    e->has_upper_left = false;
    if (crew_submit(e->crew, WORKER_TRASH, &j, NULL, 0,
                    (struct job_owner){ on_trash_emptied, NULL, e }, &err) < 0)
        log_err("the trash could not be emptied", &err);
    else
        e->is_trashing = true;
}
