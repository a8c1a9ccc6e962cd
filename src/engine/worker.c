/* worker.c - start, loop, and the short jobs. See worker.h; create, prepare and audit have files of
 * their own.
 */
#include "engine/worker.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/str.h"
#include "engine/crew.h"
#include "engine/worker_internal.h"

#define KILL_TIMEOUT_MS 10000
#define FREEZE_TIMEOUT_MS 5000
#define PUSH_TIMEOUT_MS 30000
#define MEASURE_NICE 10 /* creates come first */

static int child_event = -EBADF; /* written by the handler of SIGCHLD */

struct cgroup_limits worker_cgroup_limits(const struct record_limits *l)
{
    return (struct cgroup_limits){
        .cpu_count = l->cpu_count,
        .memory_bytes = (uint64_t)l->memory_mb << 20,
    };
}

void worker_send(const struct job_result *r, const int *fds, size_t n_fds)
{
    if (packet_send(WORKER_FD, r, job_result_size(r), fds, n_fds, 0) < 0)
        _exit(0);
}

/* --- remove ------------------------------------------------------------------------------------- */

int worker_remove_all(struct worker *w, const char *name, bool keeps_upper,
                      bool *ret_has_upper_left, struct abx_err *err)
{
    struct abx_err why;
    int r =
        FAULT_STEP("remove.processes", &why, cgroup_kill(w->cgroups, name, KILL_TIMEOUT_MS, &why));

    if (r < 0 && r != ABX_NOT_FOUND) {
        if (err)
            *err = why;
        return r;
    }
    r = FAULT_STEP("remove.groups", err, cgroup_remove(w->cgroups, name, err));
    if (r < 0)
        return r;
    *ret_has_upper_left =
        !keeps_upper && FAULT_STEP("remove.upper", &why, disk_upper_trash(w->pool, name, &why)) < 0;
    if (*ret_has_upper_left)
        log_err("an upper stays in the pool for now", &why);
    return 0;
}

static void send_oom(struct worker *w, const char *name)
{
    struct job_result event = { .magic = JOB_MAGIC, .kind = JOB_OOM };
    struct cgroup_usage u = { 0 };

    memcpy(event.record.name, name, sizeof event.record.name);
    if (cgroup_usage_read(w->cgroups, name, &u, NULL) == 0)
        event.u.oom_kills = u.oom_kills;
    worker_send(&event, NULL, 0);
}

/* It does not count as saved any more. A pool that lets nothing go does not keep a sandbox. */
static bool forget_saved(struct worker *w, const struct record *r)
{
    struct abx_err why;

    if (r->sandbox_id[0] == '\0' ||
        FAULT_STEP("remove.note", &why, saved_remove(w->pool, r->name, r->sandbox_id, &why)) == 0)
        return true;
    log_err("a sandbox that ends may stay noted as saved", &why);
    return false;
}

/* The record goes last: until then everything that is left can be found again. */
static int run_remove(struct worker *w, const struct job *j, struct job_result *ret)
{
    struct record record;
    struct abx_err why;
    bool keeps_upper, is_forgotten;
    int r;

    if (j->wants_oom)
        send_oom(w, j->record.name);
    if (record_read(w->records_fd, j->record.name, &record, NULL) == 0)
        ret->record.uid_base = record.uid_base;
    if (j->pool_works && disk_pool_why_dead(w->pool)[0] && worker_revive(w, &why) < 0)
        log_err("the pool cannot be used here", &why);
    /* First: as long as it counts as saved its upper is nobody's to take away. */
    is_forgotten = j->keeps_upper || forget_saved(w, &j->record);
    keeps_upper =
        j->keeps_upper || (j->record.sandbox_id[0] == '\0' && saved_has(w->pool, j->record.name));
    r = worker_remove_all(w, j->record.name, keeps_upper, &ret->has_upper_left, &ret->err);
    if (!is_forgotten) /* what is in the way may be gone by now */
        ret->has_note_left = !forget_saved(w, &j->record);
    if (r == 0 && j->must_sweep)
        r = record_sweep(w->records_fd, j->record.name, &ret->err);
    return r < 0 ? r
                 : FAULT_STEP("remove.record", &ret->err,
                              record_remove(w->records_fd, j->record.name, &ret->err));
}

/* --- freeze, resize, usage ---------------------------------------------------------------------- */

static int run_freeze(struct worker *w, const struct job *j, bool on, struct job_result *ret)
{
    const char *point = on ? "freeze.processes" : "thaw.processes";
    int64_t begin;
    int r = on && j->keeps_upper ? worker_revive(w, &ret->err) : 0;

    /* What can still be read in a pool that is out of use, its processes can read. */
    if (!on && j->keeps_upper && !disk_pool_why_dead(w->pool)[0])
        r = saved_check(w->pool, j->record.name, true, &ret->err);
    if (r < 0)
        return r;
    /* What a push that was cut off has left; it may have no swap when it runs. */
    if (!on && j->record.limits.memory_mb > 0)
        (void)cgroup_swap_allow(w->cgroups, j->record.name, false, NULL);
    if (!on)
        saved_unmark(w->pool, j->record.name);
    begin = time_mono_ns();
    r = FAULT_STEP(point, &ret->err,
                   cgroup_freeze(w->cgroups, j->record.name, on, FREEZE_TIMEOUT_MS, &ret->err));
    ret->u.us = (uint32_t)((time_mono_ns() - begin) / 1000);
    if (r == 0 && on && j->keeps_upper) {
        r = FAULT_STEP("freeze.note", &ret->err,
                       saved_add(w->pool, j->record.name, j->record.sandbox_id, &ret->err));
        if (r < 0)
            (void)cgroup_freeze(w->cgroups, j->record.name, false, FREEZE_TIMEOUT_MS, NULL);
    }
    return r;
}

static int run_push_out(struct worker *w, const struct job *j, const int *fds, size_t n_fds,
                        struct job_result *ret)
{
    struct pollfd stop = { .fd = n_fds > 0 ? fds[0] : -EBADF, .events = POLLIN };

    if (poll(&stop, 1, 0) > 0) /* while it waited for its turn */
        return err_set(&ret->err, ABX_ABORTED, "it was stopped");
    return cgroup_push_out(w->cgroups, j->record.name, j->record.limits.memory_mb > 0, stop.fd,
                           PUSH_TIMEOUT_MS, &ret->u.bytes, &ret->err);
}

int worker_resize(struct worker *w, const struct record *record, struct abx_err *err)
{
    const struct cgroup_limits limits = worker_cgroup_limits(&record->limits);
    int r = cgroup_set_limits(w->cgroups, record->name, &limits, err);

    if (r < 0 || !disk_pool_is_limited(w->pool))
        return r;
    return disk_upper_set_limit(w->pool, record->name, (uint64_t)record->limits.disk_mb << 20, err);
}

/* Without what its files take when the pool does not say: that is no reason to know nothing. */
static int measure(struct worker *w, const char *name, struct job_usage *ret, struct abx_err *err)
{
    struct cgroup_usage u;
    int r = cgroup_usage_read(w->cgroups, name, &u, err);

    if (r < 0)
        return r;
    *ret = (struct job_usage){
        .is_there = true,
        .processes = u.processes,
        .at_us = (uint64_t)(time_mono_ns() / 1000),
        .cpu_us = u.cpu_us,
        .memory_bytes = u.memory_bytes,
        .cache_bytes = u.cache_bytes,
    };
    ret->has_disk = disk_pool_is_limited(w->pool) &&
                    disk_upper_usage(w->pool, name, &ret->disk_bytes, NULL) == 0;
    return 0;
}

static int run_measure(struct worker *w, const struct job *j, struct job_result *ret)
{
    ret->u.measured.n = MIN(j->measure.n, (uint32_t)JOB_MEASURE_MAX);
    for (uint32_t i = 0; i < ret->u.measured.n; i++)
        (void)measure(w, j->measure.names[i], &ret->u.measured.list[i], NULL);
    return 0;
}

/* --- trash -------------------------------------------------------------------------------------- */

struct sweep {
    struct worker *w;
    struct abx_err first; /* error of what could not be removed */
};

/* Listed first, asked for its record afterwards: a record is there from before its upper is made. A full
 * btrfs renames nothing, but lets subvolumes be deleted. */
static int sweep_one(void *user, const char *name)
{
    struct sweep *s = user;
    struct abx_err err;

    if (faccessat(s->w->records_fd, name, F_OK, 0) == 0 || saved_has(s->w->pool, name) ||
        disk_upper_trash(s->w->pool, name, NULL) == 0)
        return 0;
    if (disk_upper_destroy(s->w->pool, name, &err) < 0 && !s->first.code)
        s->first = err;
    return 0; /* the others all the same */
}

static int run_trash(struct worker *w, const struct job *j, struct job_result *ret)
{
    struct sweep s = { .w = w };
    int r = worker_revive(w, &ret->err);
    bool is_full = j->must_sweep || disk_pool_is_nearly_full(w->pool);
    struct abx_err why;

    if (r == 0 && j->must_sweep)
        r = disk_upper_each(w->pool, sweep_one, &s, &ret->err);
    if (r == 0)
        r = disk_trash_empty(w->pool, &ret->err);
    if (disk_pool_reclaim(w->pool, is_full, &why) < 0 && !s.first.code)
        s.first = why;
    if (r == 0 && s.first.code) {
        ret->err = s.first;
        r = s.first.code;
    }
    return r;
}

static int run_save(struct worker *w, struct job_result *ret)
{
    int r = worker_revive(w, &ret->err);

    return r < 0 ? r : FAULT_STEP("save.sync", &ret->err, disk_pool_sync(w->pool, &ret->err));
}

/* The copy under way has a record like any upper that is being made; when it is whole, the note that it is
 * saved takes over. */
static int clone_upper(struct worker *w, const struct job *j, int stop_fd, uint32_t *ret_us,
                       struct abx_err *err)
{
    struct record target = { .phase = RECORD_PREPARED, .limits = j->record.limits };
    int64_t begin;
    int r;

    memcpy(target.name, j->target, sizeof target.name);
    memcpy(target.sandbox_id, j->target_id, sizeof target.sandbox_id);
    memcpy(target.boot_id, w->boot_id, sizeof target.boot_id);
    r = FAULT_STEP("clone.record", err, record_write(w->records_fd, &target, err));
    begin = time_mono_ns();
    if (r == 0 && j->must_freeze)
        r = FAULT_STEP("clone.freeze", err,
                       cgroup_freeze(w->cgroups, j->record.name, true, FREEZE_TIMEOUT_MS, err));
    if (r == 0)
        r = FAULT_STEP("clone.files", err,
                       disk_upper_clone(w->pool, j->record.name, j->target, stop_fd, err));
    if (j->must_freeze) {
        struct abx_err *why = r == 0 ? err : NULL;
        int thawed =
            FAULT_STEP("clone.thaw", why,
                       cgroup_freeze(w->cgroups, j->record.name, false, FREEZE_TIMEOUT_MS, why));

        r = r == 0 ? thawed : r;
        *ret_us = (uint32_t)((time_mono_ns() - begin) / 1000);
    }
    if (r == 0)
        r = FAULT_STEP("clone.note", err, saved_add(w->pool, j->target, j->target_id, err));
    return r;
}

static int run_clone(struct worker *w, const struct job *j, const int *fds, size_t n_fds,
                     struct job_result *ret)
{
    struct pollfd stop = { .fd = n_fds > 0 ? fds[0] : -EBADF, .events = POLLIN };
    int r = worker_revive(w, &ret->err);

    if (r == 0 && poll(&stop, 1, 0) > 0) /* while it waited for its turn */
        r = err_set(&ret->err, ABX_ABORTED, "it was stopped");

    if (r == 0)
        r = clone_upper(w, j, stop.fd, &ret->u.us, &ret->err);
    /* Of a failure the record stays: a removal follows. */
    return r < 0 ? r : record_remove(w->records_fd, j->target, &ret->err);
}

static int run_exchange(struct worker *w, const struct job *j, struct job_result *ret)
{
    int r = worker_revive(w, &ret->err);
    int64_t begin = time_mono_ns();

    if (r == 0)
        r = FAULT_STEP("exchange.uppers", &ret->err,
                       disk_upper_exchange(w->pool, j->record.name, j->target, j->target_id,
                                           j->only_look, &ret->err));
    else /* nobody could look */
        r = ret->err.code = ABX_UNAVAILABLE;
    if (r == 0)
        (void)fault_at("exchange.done", NULL);
    ret->u.us = (uint32_t)((time_mono_ns() - begin) / 1000);
    return r;
}

/* --- loop --------------------------------------------------------------------------------------- */

static int run_by_kind(struct worker *w, const struct job *j, int *fds, size_t n_fds,
                       struct job_result *ret, int *ret_fds, size_t *ret_n)
{
    switch (j->kind) {
    case JOB_CREATE:
        return job_create_run(w, j, fds, n_fds, ret, ret_fds, ret_n);
    case JOB_PREPARE:
        return job_prepare_run(w, j, ret, ret_fds, ret_n);
    case JOB_UID_PUT:
        return job_uid_put_run(w, j, ret);
    case JOB_REMOVE:
        return run_remove(w, j, ret);
    case JOB_FREEZE:
    case JOB_THAW:
        return run_freeze(w, j, j->kind == JOB_FREEZE, ret);
    case JOB_RESIZE:
        return FAULT_STEP("claim.resize", &ret->err, worker_resize(w, &j->record, &ret->err));
    case JOB_USAGE:
        return measure(w, j->record.name, &ret->u.usage, &ret->err);
    case JOB_MEASURE:
        return run_measure(w, j, ret);
    case JOB_PUSH_OUT:
        return run_push_out(w, j, fds, n_fds, ret);
    case JOB_CHECKPOINT:
        checkpoint_probe(&ret->u.checkpoint);
        return 0;
    case JOB_AUDIT:
        return job_audit_run(w, j, ret);
    case JOB_TRASH:
        return run_trash(w, j, ret);
    case JOB_SAVE:
        return run_save(w, ret);
    case JOB_CLONE:
        return run_clone(w, j, fds, n_fds, ret);
    case JOB_EXCHANGE:
        return run_exchange(w, j, ret);
    case JOB_READY:
    case JOB_EXIT:
    case JOB_OOM:
        break;
    }
    return err_set(&ret->err, ABX_INTERNAL, "not a job");
}

static void run_job(struct worker *w, const struct job *j, int *fds, size_t n_fds)
{
    struct job_result ret = { .magic = JOB_MAGIC, .kind = j->kind, .id = j->id };
    int send_fds[PACKET_FDS_MAX];
    size_t n_send = 0;
    int r;

    ret.record = j->record;
    /* What a call noted in passing is no failure, and a failure without a word is one. */
    r = run_by_kind(w, j, fds, n_fds, &ret, send_fds, &n_send);
    if (r == 0)
        ret.err = (struct abx_err){ 0 };
    else if (ret.err.code == 0)
        (void)err_set(&ret.err, r, "job %d failed", (int)j->kind);
    worker_send(&ret, send_fds, n_send);
    packet_close_fds(send_fds, n_send);
}

/* Sandboxes are children of the create worker that made them. */
static void reap(void)
{
    struct job_result event = { .magic = JOB_MAGIC, .kind = JOB_EXIT };
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        event.record.pid = pid;
        event.u.status = status;
        worker_send(&event, NULL, 0);
    }
}

static int loop(struct worker *w)
{
    struct pollfd p[2] = { { WORKER_FD, POLLIN, 0 }, { child_event, POLLIN, 0 } };
    static struct job job; /* 5 KB, zeroed once: short messages leave the rest alone */
    int fds[PACKET_FDS_MAX];
    size_t n_fds;
    uint64_t count;

    for (;;) {
        ssize_t n;

        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return 1;
        if (read(child_event, &count, sizeof count) > 0)
            reap();
        if (p[0].revents == 0)
            continue;
        n = packet_receive(WORKER_FD, &job, sizeof job, fds, &n_fds, 0);
        if (n == 0)
            return 0;
        if (n < (ssize_t)offsetof(struct job, create) || job.magic != JOB_MAGIC)
            return 1;
        run_job(w, &job, fds, n_fds);
        packet_close_fds(fds, n_fds);
    }
}

/* --- start -------------------------------------------------------------------------------------- */

static void on_sigchld(int sig)
{
    int keep = errno;
    const uint64_t one = 1;

    (void)sig;
    (void)!write(child_event, &one, sizeof one);
    errno = keep;
}

static void on_ignored(int sig)
{
    (void)sig;
}

/* Handlers and not SIG_IGN or a mask: a sandbox would inherit those through exec. */
static int catch_signals(struct abx_err *err)
{
    struct sigaction child = { .sa_handler = on_sigchld, .sa_flags = SA_RESTART | SA_NOCLDSTOP };
    struct sigaction ignored = { .sa_handler = on_ignored, .sa_flags = SA_RESTART };

    child_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (child_event < 0)
        return err_sys(err, errno, "eventfd");
    if (sigaction(SIGCHLD, &child, NULL) < 0 || sigaction(SIGINT, &ignored, NULL) < 0 ||
        sigaction(SIGTERM, &ignored, NULL) < 0)
        return err_sys(err, errno, "sigaction");
    return 0;
}

static int open_records(struct worker *w, struct abx_err *err)
{
    char path[4096];

    if (!path_join(path, sizeof path, w->o->run_dir, "sandboxes"))
        return err_set(err, ABX_INVALID_ARGUMENT, "run dir path too long");
    w->records_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return w->records_fd < 0 ? err_sys(err, errno, "open '%s'", path) : 0;
}

/* Templates come as mounts with each job: the pool is all that has to be seen once the mounts are pruned. */
static int make_spawner(struct worker *w, struct abx_err *err)
{
    const char *keep[] = { disk_pool_path(w->pool), NULL };
    const struct spawner_opts spawn = { .mount_path = w->o->mount_path, .keep_paths = keep };

    return spawner_new(&spawn, &w->spawner, err);
}

/* Killing and removing must go on without a pool. */
static int open_pool(struct worker *w, bool may_be_dead, struct abx_err *err)
{
    const struct disk_opts disk = { w->o->data_dir, w->o->instance, w->o->disk_bytes,
                                    may_be_dead,    false,          false };

    return disk_pool_open(&disk, &w->pool, err);
}

int worker_revive(struct worker *w, struct abx_err *err)
{
    struct disk_pool *dead = w->pool;
    int r = 0;

    if (disk_pool_why_dead(w->pool)[0]) {
        r = open_pool(w, false, err);
        if (r < 0)
            return r;
        disk_pool_free(dead);
    }
    if (w->o->worker == WORKER_CREATE && !w->spawner)
        r = make_spawner(w, err);
    return r;
}

static int start(struct worker *w, struct abx_err *err)
{
    int r = catch_signals(err);

    if (r == 0)
        r = fd_set_cloexec(WORKER_FD, true) < 0 || fd_set_cloexec(WORKER_LOCK_FD, true) < 0
                ? err_sys(err, errno, "worker descriptors")
                : 0;
    if (r == 0)
        r = host_boot_id(w->boot_id, err);
    if (r == 0)
        r = open_records(w, err);
    if (r == 0)
        r = cgroup_tree_open(w->o->instance, &w->cgroups, err);
    if (r == 0)
        r = open_pool(w, true, err);
    if (r == 0 && w->o->worker == WORKER_PREPARE)
        r = leases_open(w, err);
    if (r < 0 || w->o->worker != WORKER_CREATE)
        return r;
    w->guest_fd = open(w->o->guest, O_RDONLY | O_CLOEXEC);
    if (w->guest_fd < 0)
        return err_sys(err, errno, "open guest '%s'", w->o->guest);
    return disk_pool_why_dead(w->pool)[0] ? 0 : make_spawner(w, err);
}

int worker_main(const struct options *o)
{
    static struct worker w = { .guest_fd = -EBADF, .records_fd = -EBADF };
    struct job_result ready = { .magic = JOB_MAGIC, .kind = JOB_READY };

    w.o = o;
    if (o->worker == WORKER_MEASURE)
        (void)setpriority(PRIO_PROCESS, 0, MEASURE_NICE);
    (void)prctl(PR_SET_NAME, "abx-engine-work");
    if (prctl(PR_SET_DUMPABLE, 0) < 0)
        (void)err_sys(&ready.err, errno, "dumpable");
    else
        (void)start(&w, &ready.err);
    if (w.spawner)
        ready.u.mount_path = (int)spawner_mount_path(w.spawner);
    worker_send(&ready, NULL, 0);
    return ready.err.code ? 1 : loop(&w);
}
