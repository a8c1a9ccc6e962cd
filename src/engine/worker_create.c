/* worker_create.c - from a prepared slot to a running sandbox. See worker.h.
 *
 * Order (what a crash leaves can then always be found): record `starting`, clone3, cgroup, record
 * `running` with the pid, go.
 */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/process.h"
#include "base/str.h"
#include "engine/worker_internal.h"

#define GUEST_NICE (-10)

struct creation {
    struct worker *w;
    struct record *record;
    struct job_result *ret;
    int64_t last_ns;
};

/* Notes the time since the stage before. */
static void stage(struct creation *c, const char *name)
{
    int64_t now = time_mono_ns();
    uint32_t n = c->ret->u.stages.n;

    if (n < JOB_STAGES_MAX) {
        struct job_stage *s = &c->ret->u.stages.list[n];

        (void)snprintf(s->name, sizeof s->name, "%s", name);
        s->us = (uint32_t)((now - c->last_ns) / 1000);
        c->ret->u.stages.n = n + 1;
    }
    c->last_ns = now;
}

static void add_stage(struct creation *c, const struct spawn_stage *s)
{
    uint32_t n = c->ret->u.stages.n;

    if (n >= JOB_STAGES_MAX)
        return;
    (void)snprintf(c->ret->u.stages.list[n].name, sizeof c->ret->u.stages.list[n].name, "%s",
                   s->name);
    c->ret->u.stages.list[n].us = s->us;
    c->ret->u.stages.n = n + 1;
}

/* Both children exist and wait; they join their cgroups by themselves. What has to answer while
 * user code burns all it can get comes before it; commands begin at 0 again (the guest sees to it). */
static int before_go(void *user, pid_t init_pid, pid_t daemon_pid, int init_pidfd,
                     struct abx_err *err)
{
    struct creation *c = user;

    (void)init_pidfd;
    /* Without CAP_SYS_NICE (a container's root) they compete like the rest. */
    (void)setpriority(PRIO_PROCESS, (id_t)init_pid, GUEST_NICE);
    (void)setpriority(PRIO_PROCESS, (id_t)daemon_pid, GUEST_NICE);
    c->record->phase = RECORD_RUNNING;
    c->record->pid = init_pid;
    c->record->start_ticks = process_start_ticks(init_pid);
    if (c->record->start_ticks == 0)
        return err_set(err, ABX_ABORTED, "the sandbox's first process is gone");
    return FAULT_STEP("start.running", err, record_write(c->w->records_fd, c->record, err));
}

static size_t split_layers(const struct job_create *j, const char **to)
{
    const char *p = j->layers, *end = j->layers + sizeof j->layers;
    size_t n = 0;

    while (n < j->n_layers && n < SPAWN_LAYERS_MAX && p < end) {
        to[n++] = p;
        p += strnlen(p, (size_t)(end - p)) + 1;
    }
    return n;
}

struct groups {
    int user[CGROUP_JOIN_MAX], guest[CGROUP_JOIN_MAX];
};

static int open_groups(struct creation *c, struct spawn_spec *s, struct groups *g,
                       struct abx_err *err)
{
    struct cgroup_tree *t = c->w->cgroups;
    const char *name = c->record->name;
    int r = cgroup_open_v2(t, name, CGROUP_USER, &s->cgroup_fd, err);

    s->join_user_fds = g->user;
    s->join_guest_fds = g->guest;
    if (r == 0)
        r = cgroup_open_v2(t, name, CGROUP_GUEST, &s->cgroup_guest_fd, err);
    if (r == 0)
        r = cgroup_open_v2(t, name, CGROUP_ROOT, &s->cgroup_root_fd, err);
    if (r == 0)
        r = cgroup_open_join(t, name, CGROUP_USER, g->user, &s->n_join_user, err);
    if (r == 0)
        r = cgroup_open_join(t, name, CGROUP_GUEST, g->guest, &s->n_join_guest, err);
    return r;
}

static void close_groups(struct spawn_spec *s, struct groups *g)
{
    fd_close(s->cgroup_fd);
    fd_close(s->cgroup_guest_fd);
    fd_close(s->cgroup_root_fd);
    packet_close_fds(g->user, s->n_join_user);
    packet_close_fds(g->guest, s->n_join_guest);
}

static int spawn(struct creation *c, const struct job *j, const int *fds, int *ret_pidfd,
                 struct abx_err *err)
{
    const char *layers[SPAWN_LAYERS_MAX];
    char upper[4096];
    struct spawn_result result;
    struct groups groups;
    struct spawn_spec s = {
        .id = c->record->name,
        .hostname = j->create.hostname,
        .boot_id = j->create.boot_id,
        .layers = layers,
        .layer_fds = fds + CREATE_LAYER,
        .n_layers = split_layers(&j->create, layers),
        .upper = upper,
        .uid_base = c->record->uid_base,
        .userns_fd = fds[SLOT_USERNS],
        .netns_fd = fds[SLOT_NETNS],
        .cgroup_fd = -EBADF,
        .cgroup_guest_fd = -EBADF,
        .cgroup_root_fd = -EBADF,
        .before_go = before_go,
        .user = c,
        .guest_fd = c->w->guest_fd,
        .envd_fd = fds[SLOT_ENVD],
        .control_fd = fds[SLOT_CONTROL],
    };
    int r;

    (void)snprintf(upper, sizeof upper, "%s/uppers/%s", disk_pool_path(c->w->pool),
                   c->record->name);
    r = FAULT_STEP("start.groups", err, open_groups(c, &s, &groups, err));
    stage(c, "groups");
    if (r == 0)
        r = spawn_sandbox(c->w->spawner, &s, &result, err);
    close_groups(&s, &groups);
    if (r < 0)
        return r;
    for (size_t i = 0; i < result.n_stages; i++)
        add_stage(c, &result.stages[i]);
    c->last_ns = time_mono_ns();
    *ret_pidfd = result.pidfd;
    return 0;
}

static int create(struct creation *c, const struct job *j, const int *fds, int *ret_pidfd,
                  struct abx_err *err)
{
    struct stat st;
    int r;

    if (fstat(fds[SLOT_NETNS], &st) < 0)
        return err_sys(err, errno, "network namespace");
    c->record->netns_ino = st.st_ino;
    memcpy(c->record->boot_id, c->w->boot_id, sizeof c->record->boot_id);
    c->record->phase = RECORD_STARTING;
    c->record->started_ms = time_wall_ms();
    r = FAULT_STEP("start.record", err, record_write(c->w->records_fd, c->record, err));
    stage(c, "record");
    if (r == 0 && j->create.must_resize) {
        r = FAULT_STEP("start.resize", err, worker_resize(c->w, c->record, err));
        stage(c, "resize");
    }
    return r < 0 ? r : spawn(c, j, fds, ret_pidfd, err);
}

int job_create_run(struct worker *w, const struct job *j, int *fds, size_t n_fds,
                   struct job_result *ret, int *ret_fds, size_t *ret_n)
{
    struct creation c = { w, &ret->record, ret, time_mono_ns() };
    int pidfd = -EBADF;
    int r;

    if (n_fds != CREATE_FDS || j->create.n_layers != CREATE_FDS - CREATE_LAYER)
        return err_set(&ret->err, ABX_INTERNAL, "create came with %zu descriptors", n_fds);
    r = worker_revive(w, &ret->err);
    if (r < 0)
        return r;
    r = create(&c, j, fds, &pidfd, &ret->err);
    if (r < 0)
        return r;
    if (j->keeps_upper)
        saved_unmark(w->pool, j->record.name);
    ret_fds[(*ret_n)++] = pidfd;
    return r; /* a failure is followed by a JOB_REMOVE from the engine */
}
