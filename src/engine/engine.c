/* engine.c - start and stop of the engine process. See engine.h.
 *
 * Start: lock the data dir, cgroups, pool, records, workers, sockets thread, listener; then garbage
 * of the previous run is removed while requests are served already. Stop: SIGTERM keeps the
 * sandboxes (prepared slots are found by their records and removed at the next start), SIGINT ends
 * them all first.
 */
#include "engine/engine.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/str.h"

#define LOCK_WAIT_NS (10 * NSEC_PER_SEC)
#define LOCK_STEP_NS (20 * NSEC_PER_MSEC)
#define TICK_MS 500

/* --- stop --------------------------------------------------------------------------------------- */

/* Paused ones stay paused: of those that are frozen the files are kept. */
static void remove_one(void *user, struct sandbox *sb)
{
    if (sb->state == SANDBOX_FROZEN && sb->is_saved)
        sb->keeps_upper = true;
    if (sb->keeps_upper)
        sandbox_remove_keeping(user, sb);
    else if (sb->state != SANDBOX_STOPPED)
        sandbox_remove(user, sb, 0, 0);
}

static void count_left(void *user, struct sandbox *sb)
{
    unsigned *n = user;

    *n += sb->state != SANDBOX_STOPPED;
}

/* Those of which something but files is left. */
static unsigned left(const struct engine *e)
{
    unsigned n = 0;

    table_each(e->table, count_left, &n);
    return n;
}

static bool has_work(const struct engine *e)
{
    if (e->creating > 0 || crew_load(e->crew, WORKER_REMOVE) > 0 ||
        uv_is_active((const uv_handle_t *)&e->ending))
        return true;
    return e->stop_kills &&
           (left(e) > 0 || e->slots_coming > 0 || e->uids_going > 0 || e->is_trashing);
}

void engine_stop_if_idle(struct engine *e)
{
    if (e->is_stopping && !has_work(e))
        uv_stop(&e->loop);
}

static void note_kept(void *user, struct sandbox *sb)
{
    bool *is_kept = user;

    *is_kept |= sb->record.sandbox_id[0] != '\0' && sb->state != SANDBOX_STOPPED;
}

/* Is there what a stop is to keep? Stock alone is not worth staying mounted for. */
static bool has_kept(const struct engine *e)
{
    bool is_kept = e->creating > 0;

    table_each(e->table, note_kept, &is_kept);
    return is_kept;
}

static void stop(struct engine *e, bool kills)
{
    struct abx_err err;

    kills = kills || (!e->is_stopping && !has_kept(e));
    if (e->is_stopping && (!kills || e->stop_kills)) {
        uv_stop(&e->loop); /* asked a second time: now */
        return;
    }
    log_debug("stopping", "sandboxes", kills ? "kill" : "keep", NULL);
    e->is_stopping = true;
    e->stop_kills = kills;
    (void)err_reason(&err, ABX_REASON_BUSY, "the engine is stopping");
    while (e->waiting)
        creation_fail_first(e, &err);
    if (kills)
        table_each(e->table, remove_one, e);
    engine_stop_if_idle(e);
}

static void on_signal(uv_signal_t *h, int sig)
{
    struct engine *e = h->data;

    if (!e->crew) /* its start has failed, and the engine's with it */
        return;
    stop(e, e->o->on_exit == ON_EXIT_BY_SIGNAL ? sig == SIGINT : e->o->on_exit == ON_EXIT_KILL);
}

static void on_tick(uv_timer_t *t)
{
    struct engine *e = t->data;

    bool has_stuck = sandboxes_retry(e);

    slots_refill(e);
    if (has_stuck || slots_are_missing(e))
        engine_tick_later(e);
}

void engine_note_steering(struct engine *e, const char *why_not)
{
    if (strcmp(e->no_steering, why_not) == 0)
        return;
    (void)snprintf(e->no_steering, sizeof e->no_steering, "%s", why_not);
    if (why_not[0])
        log_warn("sandboxes have no network: what they dial cannot be steered", "why", why_not,
                 NULL);
    else
        log_info("sandboxes have a network again", NULL);
}

void engine_tick_later(struct engine *e)
{
    if (!uv_is_active((uv_handle_t *)&e->timer))
        (void)uv_timer_start(&e->timer, on_tick, TICK_MS, 0);
}

/* --- start -------------------------------------------------------------------------------------- */

static int supervisor_gone(struct abx_err *err)
{
    return err_set(err, ABX_FAILED_PRECONDITION, "the supervisor is gone");
}

static int set_up_process(struct engine *e, struct abx_err *err)
{
    struct rlimit n;

    e->supervisor = getppid();
    if (geteuid() != 0)
        return err_set(err, ABX_FAILED_PRECONDITION, "the engine has to run as root");
    /* An engine without its supervisor would hold the lock against the next one. */
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != e->supervisor)
        return supervisor_gone(err);
    if (prctl(PR_SET_DUMPABLE, 0) < 0)
        return err_sys(err, errno, "dumpable");
    if (getrlimit(RLIMIT_NOFILE, &n) < 0)
        return err_sys(err, errno, "descriptor limit");
    n.rlim_cur = n.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &n) < 0)
        return err_sys(err, errno, "descriptor limit");
    if (n.rlim_cur < ENGINE_FDS_MIN)
        return err_set(err, ABX_FAILED_PRECONDITION,
                       "at least %u descriptors are needed (ulimit -n)", ENGINE_FDS_MIN);
    e->fd_limit = n.rlim_cur;
    e->own_uts_fd = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);
    e->exe_fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (e->own_uts_fd < 0 || e->exe_fd < 0)
        return err_sys(err, errno, "open /proc/self");
    return host_boot_id(e->boot_id, err);
}

/* Waits for the workers of an engine that was killed, not for one that runs. Whose supervisor dies meanwhile is not told (its
 * signals are blocked until it can stop in good order), and would have its turn after the last successor's. */
static int take_lock(struct engine *e, struct abx_err *err)
{
    const struct timespec step = { 0, LOCK_STEP_NS };
    int64_t end = time_mono_ns() + LOCK_WAIT_NS;
    char path[4096];

    if (mkdir(e->o->data_dir, 0711) < 0 && errno != EEXIST)
        return err_sys(err, errno, "make '%s'", e->o->data_dir);
    if (!path_join(path, sizeof path, e->o->data_dir, "engine.lock"))
        return err_set(err, ABX_INVALID_ARGUMENT, "data dir path too long");
    e->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (e->lock_fd < 0 && errno == EROFS)
        e->lock_fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (e->lock_fd < 0)
        return err_sys(err, errno, "open '%s'", path);
    while (flock(e->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK)
            return err_sys(err, errno, "lock '%s'", path);
        if (time_mono_ns() > end)
            return err_set(
                err, ABX_FAILED_PRECONDITION,
                "another engine serves '%s', or the kernel holds a worker of the last one",
                e->o->data_dir);
        if (getppid() != e->supervisor)
            break;
        (void)nanosleep(&step, NULL);
    }
    return getppid() == e->supervisor ? 0 : supervisor_gone(err);
}

static int open_records(struct engine *e, struct abx_err *err)
{
    char path[4096];
    int r;

    if (!path_join(path, sizeof path, e->o->run_dir, "sandboxes"))
        return err_set(err, ABX_INVALID_ARGUMENT, "run dir path too long");
    r = path_mkdirs(AT_FDCWD, path, 0755, err);
    if (r < 0)
        return r;
    e->records_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (e->records_fd < 0 || fchmod(e->records_fd, 0700) < 0)
        return err_sys(err, errno, "open '%s'", path);
    return 0;
}

static int stop_at_record(void *user, const char *name)
{
    (void)user;
    return record_name_is_valid(name);
}

static int open_pool(struct engine *e, bool may_be_dead, bool is_unused, bool may_drop,
                     struct abx_err *err)
{
    const struct disk_opts disk = { e->o->data_dir, e->o->instance, e->o->disk_bytes,
                                    may_be_dead,    is_unused,      may_drop };

    return disk_pool_open(&disk, &e->pool, err);
}

void engine_pool_works(struct engine *e)
{
    struct disk_pool *dead = e->pool;
    struct abx_err err;

    if (!disk_pool_why_dead(dead)[0])
        return;
    if (open_pool(e, false, false, false, &err) < 0) {
        log_err("the pool", &err);
        return;
    }
    disk_pool_free(dead);
    log_info("the pool can be used again", NULL);
    if (saved_scan(e, &err) < 0)
        log_err("paused sandboxes", &err);
    e->has_trash = e->has_upper_left = true;
    trash_empty(e);
}

static int open_facilities(struct engine *e, struct abx_err *err)
{
    bool has_records;
    int r = cgroup_tree_open(e->o->instance, &e->cgroups, err);

    if (r == 0)
        r = cgroup_tree_adopt_host(e->cgroups, getpid(), err);
    /* Sandboxes that run have to end when they are told to, with or without a pool. */
    has_records = r == 0 && record_each(e->records_fd, stop_at_record, NULL, NULL) != 0;
    if (r == 0)
        r = open_pool(e, has_records, !has_records, true, err);
    if (r == 0 && disk_pool_why_dead(e->pool)[0])
        log_warn("the pool cannot be used: sandboxes can be ended and not made", "why",
                 disk_pool_why_dead(e->pool), NULL);
    if (r == 0)
        r = table_new(&e->table, err);
    for (size_t i = 0; i < e->o->n_pools; i++)
        e->warm[e->n_warm++].option = &e->o->pools[i];
    if (r == 0)
        r = templates_refresh(e, err);
    if (r == 0 && e->templates.n == 0)
        log_warn("no template yet: 'abx template build-base' makes one", "looked_in",
                 e->o->templates, NULL);
    return r;
}

static void on_late_worker(void *user)
{
    audit_begin(user, true, 0, 0);
}

static int start_crew(struct engine *e, char *const *argv, struct abx_err *err)
{
    const struct crew_opts opts = {
        .loop = &e->loop,
        .exe_fd = e->exe_fd,
        .lock_fd = e->lock_fd,
        .argv = argv,
        .count = {
            [WORKER_CREATE] = e->o->workers,
            [WORKER_REMOVE] = 2,
            [WORKER_CONTROL] = 1,
            [WORKER_PREPARE] = 1,
            [WORKER_TRASH] = 1,
            [WORKER_SAVE] = 1,
            [WORKER_MEASURE] = 1,
            [WORKER_SWAP] = e->can_push,
        },
        .on_event = sandbox_on_event,
        .on_late = on_late_worker,
        .user = e,
    };

    return crew_start(&opts, &e->crew, err);
}

/* An inherited listening socket, or one of our own in the run dir. */
static int listening(const struct engine *e, int inherited, const char *name, int *ret_fd,
                     struct abx_err *err)
{
    char path[4096];

    if (inherited >= 0) {
        *ret_fd = inherited;
        return 0;
    }
    if (!path_join(path, sizeof path, e->o->run_dir, name))
        return err_set(err, ABX_INVALID_ARGUMENT, "run dir path too long");
    return ipc_listen(path, 0600, ret_fd, err);
}

static int start_sockets(struct engine *e, struct abx_err *err)
{
    struct sockets_opts s = {
        .gateway_uid = e->o->gateway_uid,
        .egress_uid = e->o->egress_uid,
        .instance = e->o->instance,
        .boot_id = e->boot_id,
        .heartbeat_fd = e->o->sockets_heartbeat_fd,
    };
    int fd = -EBADF;
    int r = listening(e, e->o->gateway_fd, "engine-gateway.sock", &s.gateway_fd, err);

    if (r == 0)
        r = listening(e, e->o->egress_fd, "engine-egress.sock", &s.egress_fd, err);
    if (r == 0)
        r = sockets_start(&s, &e->sockets, err);
    if (r == 0)
        r = listening(e, e->o->control_fd, "engine.sock", &fd, err);
    return r < 0 ? r : server_start(e, fd, err);
}

static int start_handles(struct engine *e, struct abx_err *err)
{
    sigset_t set;
    int r = uv_signal_init(&e->loop, &e->on_term);

    if (r == 0)
        r = uv_signal_init(&e->loop, &e->on_int);
    if (r == 0)
        r = uv_timer_init(&e->loop, &e->timer);
    if (r == 0)
        r = uv_timer_init(&e->loop, &e->ending);
    e->on_term.data = e->on_int.data = e->timer.data = e->ending.data = e;
    if (r == 0)
        r = uv_signal_start(&e->on_term, on_signal, SIGTERM);
    if (r == 0)
        r = uv_signal_start(&e->on_int, on_signal, SIGINT);
    if (r < 0)
        return err_sys(err, -r, "event loop");
    /* The supervisor blocked them, so that one that came earlier waits for this moment. */
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    if (sigprocmask(SIG_UNBLOCK, &set, NULL) < 0)
        return err_sys(err, errno, "unblock signals");
    return 0;
}

static int start(struct engine *e, char *const *argv, struct abx_err *err)
{
    int r = set_up_process(e, err);

    /* Of the supervisor's descriptors ours are the listening sockets only; nothing of them may
     * reach a worker. */
    if (r == 0 && ((e->o->control_fd >= 0 && fd_set_cloexec(e->o->control_fd, true) < 0) ||
                   (e->o->gateway_fd >= 0 && fd_set_cloexec(e->o->gateway_fd, true) < 0) ||
                   (e->o->egress_fd >= 0 && fd_set_cloexec(e->o->egress_fd, true) < 0)))
        r = err_sys(err, errno, "inherited listening socket");
    if (r == 0)
        r = heartbeat_start(&e->heartbeat, &e->loop, e->o->heartbeat_fd, err);
    if (r == 0)
        r = take_lock(e, err);
    if (r == 0)
        r = open_records(e, err);
    if (r == 0)
        r = open_facilities(e, err);
    if (r == 0)
        r = start_handles(e, err);
    if (r == 0)
        r = adopt_scan(e, err);
    e->can_push = r == 0 && swap_is_usable(e);
    if (r == 0)
        r = start_crew(e, argv, err);
    return r < 0 ? r : start_sockets(e, err);
}

static void close_one(uv_handle_t *h, void *user)
{
    (void)user;
    if (!uv_is_closing(h))
        uv_close(h, NULL);
}

static void stop_watching(void *user, struct sandbox *sb)
{
    (void)user;
    sandbox_unwatch(sb);
}

/* What is in use stays, and where the last process may not leave it, an empty one does, too: for the next start. */
static void remove_tree(struct engine *e)
{
    if (cgroup_tree_leave(e->cgroups, getpid(), NULL) == 0)
        (void)cgroup_tree_remove(e->cgroups, NULL);
}

/* A start has failed: workers would end with us, but too late for their groups. */
static void abandon(struct engine *e)
{
    if (e->crew)
        (void)crew_stop(e->crew);
    if (e->cgroups)
        remove_tree(e);
}

/* The workers' mount namespaces hold the pool's mount: they go first. */
static void finish(struct engine *e)
{
    struct abx_err err;
    bool is_empty = (e->stop_kills && left(e) == 0) || e->must_restart;

    heartbeat_stop(&e->heartbeat);
    server_stop(e);
    /* The kernel finishes at most the one call that such a worker is in: no reason to keep the next
     * engine waiting, and what the call makes is found by the audit at its start or after. */
    if (!crew_stop(e->crew) && flock(e->lock_fd, LOCK_UN) < 0)
        log_warn("the data dir stays locked until the last worker has ended", NULL);
    sockets_stop(e->sockets);
    if (is_empty && disk_pool_unmount(e->pool, &err) < 0)
        log_err("the pool stays mounted", &err);
    table_each(e->table, stop_watching, NULL);
    for (int i = 0; i < 100 && uv_run(&e->loop, UV_RUN_NOWAIT) != 0; i++)
        if (i == 50)
            uv_walk(&e->loop, close_one, NULL);
    if (is_empty)
        remove_tree(e);
    crew_free(e->crew);
    audits_drop(e);
    table_free(e->table);
    templates_done(&e->templates);
    disk_pool_free(e->pool);
    cgroup_tree_free(e->cgroups);
}

static void note_used(void *user, struct sandbox *sb)
{
    bool *is_used = user;

    *is_used |= sb->record.sandbox_id[0] != '\0';
}

void engine_pool_fails(struct engine *e, const struct abx_err *why)
{
    bool is_used = e->n_waiting > 0 || e->creating > 0 || e->is_stopping;

    table_each(e->table, note_used, &is_used);
    if (why->sys != EROFS || is_used)
        return;
    log_err("the pool is read-only and holds nothing: starting again to mount it anew", why);
    e->must_restart = true;
    uv_stop(&e->loop);
}

static void on_checkpoint(void *user, const struct job_result *r, int *fds, size_t n_fds)
{
    struct engine *e = user;

    (void)fds;
    (void)n_fds;
    if (r->err.code)
        log_err("it is not known whether this machine can make checkpoints", &r->err);
    else
        e->checkpoint = r->u.checkpoint;
    engine_stop_if_idle(e);
}

/* By the worker that everybody can wait for. */
static void look_for_checkpoints(struct engine *e)
{
    const struct job j = { .kind = JOB_CHECKPOINT };
    struct abx_err err;

    if (crew_submit(e->crew, WORKER_MEASURE, &j, NULL, 0,
                    (struct job_owner){ on_checkpoint, NULL, e }, &err) < 0)
        log_err("it is not known whether this machine can make checkpoints", &err);
}

int engine_run(const struct options *o, char *const *argv)
{
    static struct engine e;
    struct abx_err err = { 0 };
    int r;

    e.o = o;
    e.waiting_tail = &e.waiting;
    r = uv_loop_init(&e.loop);
    r = r < 0 ? err_sys(&err, -r, "event loop") : start(&e, argv, &err);
    if (r < 0) {
        log_start_failure("the engine cannot start", &err);
        abandon(&e);
        return 1;
    }
    adopt_finish(&e);
    e.has_trash = true;
    trash_empty(&e);
    audit_begin(&e, true, 0, 0);
    slots_refill(&e);
    look_for_checkpoints(&e);
    log_info("engine ready", "instance", o->instance, NULL);
    server_log_limits(&e);
    (void)uv_run(&e.loop, UV_RUN_DEFAULT);
    finish(&e);
    if (e.must_restart)
        return 1;
    log_debug("engine ended", NULL);
    return 0;
}
