/* cgroup_v1.c - v1 hierarchies: limits where v2 has no controller, freeze and kill where there is no
 * v2 tree at all.
 *
 * Files by kernel: Documentation/admin-guide/cgroup-v1. Nothing of v1 is delegated: the guest sees
 * none of it.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "engine/cgroup_internal.h"
#include "engine/mountinfo.h"

#define HOST_SHARES 8192u /* 1024 is the default, which `sandboxes` keeps */
#define KILL_ROUND_MS 20

const struct cgroup_v1 *cgroup_v1_with(const struct cgroup_tree *t, enum cgroup_controller c)
{
    for (size_t i = 0; i < t->n_v1; i++)
        if (t->v1[i].controllers & CGROUP_BIT(c))
            return &t->v1[i];
    return NULL;
}

static bool has(const struct cgroup_v1 *h, enum cgroup_controller c)
{
    return h->controllers & CGROUP_BIT(c);
}

/* Caps of all sandboxes together and the host's greater share of cpu time. */
static int set_caps(const struct cgroup_v1 *h, struct abx_err *err)
{
    int r = 0;

    if (has(h, CGROUP_MEMORY))
        r = file_printf(h->sandboxes_fd, "memory.limit_in_bytes", err, "%llu",
                        (unsigned long long)cgroup_memory_cap(cgroup_total_memory()));
    if (r == 0 && has(h, CGROUP_PIDS))
        r = cgroup_set_pids(h->sandboxes_fd, cgroup_pids_cap(cgroup_total_pids()), err);
    if (r == 0 && has(h, CGROUP_CPU))
        r = file_printf(h->host_fd, "cpu.shares", err, "%u", HOST_SHARES);
    return r;
}

/* Makes the tree in the hierarchy that is mounted as `m`. */
static int open_one(struct cgroup_tree *t, const struct mountinfo *m, struct slice proc_cgroup,
                    unsigned controllers, struct abx_err *err)
{
    _cleanup_(closep) int base = -EBADF, top = -EBADF;
    struct cgroup_v1 *h = &t->v1[t->n_v1];
    char path[PATH_MAX], at[PATH_MAX];
    const char *any = cgroup_controller_name((enum cgroup_controller)__builtin_ctz(controllers));
    int r;

    if (!cgroup_self_path(proc_cgroup, any, path, sizeof path))
        return err_set(err, ABX_FAILED_PRECONDITION, "no own group in the '%s' hierarchy", any);
    cgroup_base_path(path);
    if (!cgroup_visible_path(m->root, m->target, path, at, sizeof at))
        return err_set(err, ABX_FAILED_PRECONDITION, "the path of cgroup '%.80s' is too long",
                       path);
    base = cgroup_open_dir(AT_FDCWD, at);
    if (base < 0)
        return err_sys(err, errno, "open cgroup '%s'", at);
    r = cgroup_make_tree(base, t->instance, &top, &h->host_fd, &h->sandboxes_fd, err);
    if (r < 0)
        return err_wrap(err, r, "cgroup '%s'", at);
    h->controllers = controllers;
    t->n_v1++;
    if (!t->has_v2 && has(h, CGROUP_FREEZER)) {
        t->check_controller = cgroup_controller_name(CGROUP_FREEZER);
        if (snprintf(t->check_path, sizeof t->check_path, "%s/abx-%s/sandboxes",
                     path[1] ? path : "", t->instance) >= (int)sizeof t->check_path)
            return err_set(err, ABX_FAILED_PRECONDITION, "the path of this cgroup is too long");
    }
    if (has(h, CGROUP_MEMORY))
        t->has_memsw = faccessat(h->sandboxes_fd, "memory.memsw.limit_in_bytes", F_OK, 0) == 0;
    return set_caps(h, err);
}

int cgroup_v1_open(struct cgroup_tree *t, struct slice proc_cgroup, struct slice mounts,
                   unsigned controllers, struct abx_err *err)
{
    struct mountinfo m;

    while (controllers && mountinfo_next(&mounts, &m)) {
        unsigned here = 0;
        int r;

        if (strcmp(m.fstype, "cgroup") != 0)
            continue;
        for (int c = 0; c < CGROUP_CONTROLLERS_; c++)
            if (mountinfo_has_word(m.super_options, cgroup_controller_name(c)))
                here |= CGROUP_BIT(c) & controllers;
        if (!here)
            continue;
        r = open_one(t, &m, proc_cgroup, here, err);
        if (r < 0)
            return r;
        controllers &= ~here; /* mounted twice is used once */
    }
    return 0;
}

bool cgroup_v1_has_user(const struct cgroup_v1 *h)
{
    return has(h, CGROUP_CPU) || has(h, CGROUP_MEMORY);
}

int cgroup_v1_create(struct cgroup_tree *t, const struct cgroup_v1 *h, const char *id,
                     struct abx_err *err)
{
    char path[CGROUP_NAME_MAX + 8];

    if (mkdirat(h->sandboxes_fd, id, 0755) < 0)
        return err_sys(err, errno, "make v1 group");
    if (!cgroup_v1_has_user(h))
        return 0;
    (void)snprintf(path, sizeof path, "%s/user", id);
    if (mkdirat(h->sandboxes_fd, path, 0755) < 0) {
        int saved = errno;

        (void)unlinkat(h->sandboxes_fd, id, AT_REMOVEDIR);
        return err_sys(err, saved, "make v1 group 'user'");
    }
    return 0;
}

/* Memory with swap may not be set below memory alone, so the order depends on the direction. */
static int set_memory(struct cgroup_tree *t, int fd, uint64_t bytes, struct abx_err *err)
{
    static const char *const files[] = { "memory.limit_in_bytes", "memory.memsw.limit_in_bytes" };
    size_t n = t->has_memsw ? 2 : 1;
    uint64_t now = UINT64_MAX;
    bool grows;
    int r = cgroup_read_u64(fd, files[0], &now, err);

    if (r < 0)
        return r;
    grows = bytes == 0 || bytes > now;
    for (size_t i = 0; i < n && r == 0; i++) {
        const char *file = files[grows ? n - 1 - i : i];

        r = bytes ? file_printf(fd, file, err, "%llu", (unsigned long long)bytes)
                  : file_write_once(fd, file, "-1", 2, err);
    }
    return r;
}

/* `user` gets the limit, the whole a little more. */
static int set_memories(struct cgroup_tree *t, int fd, uint64_t bytes, struct abx_err *err)
{
    _cleanup_(closep) int user = cgroup_open_dir(fd, "user");
    uint64_t whole = bytes ? bytes + CGROUP_GUEST_MEMORY : 0;
    int r;

    if (user < 0)
        return err_sys(err, errno, "open v1 group 'user'");
    r = set_memory(t, fd, whole, err);
    return r < 0 ? r : set_memory(t, user, bytes, err);
}

static int set_quota(int fd, uint32_t cpu_count, struct abx_err *err)
{
    /* The period is 100 ms already, the kernel's default. */
    return file_printf(fd, "user/cpu.cfs_quota_us", err, "%lld",
                       cpu_count ? (long long)cpu_count * CGROUP_CPU_PERIOD_US : -1LL);
}

int cgroup_v1_set_limits(struct cgroup_tree *t, const struct cgroup_v1 *h, const char *id,
                         const struct cgroup_limits *limits, struct abx_err *err)
{
    _cleanup_(closep) int fd = cgroup_open_dir(h->sandboxes_fd, id);
    int r = 0;

    if (fd < 0)
        return err_sys(err, errno, "open v1 group");
    if (has(h, CGROUP_MEMORY))
        r = set_memories(t, fd, limits->memory_bytes, err);
    if (r == 0 && has(h, CGROUP_PIDS))
        r = cgroup_set_pids(fd, limits->pids, err);
    if (r == 0 && has(h, CGROUP_CPU))
        r = set_quota(fd, limits->cpu_count, err);
    return r;
}

/* `fd` is an open freezer.state; reading it also makes the kernel look again. */
static int state_is(int fd, const char *state, struct abx_err *err)
{
    char text[32];
    ssize_t n = pread(fd, text, sizeof text, 0);

    if (n < 0)
        return err_sys(err, errno, "read freezer.state");
    return slice_starts_with(slice_of(text, (size_t)n), state);
}

static int is_frozen(int fd, struct abx_err *err)
{
    return state_is(fd, "FROZEN", err);
}

static int is_thawed(int fd, struct abx_err *err)
{
    return state_is(fd, "THAWED", err);
}

int cgroup_v1_freeze(int fd, bool on, int timeout_ms, struct abx_err *err)
{
    _cleanup_(closep) int state = openat(fd, "freezer.state", O_RDONLY | O_CLOEXEC);
    int r;

    if (state < 0)
        return err_sys(err, errno, "open freezer.state");
    r = file_write_once(fd, "freezer.state", on ? "FROZEN" : "THAWED", 6, err);
    if (r == 0)
        r = cgroup_wait(on ? is_frozen : is_thawed, state, timeout_ms, err);
    if (r < 0 && on)
        (void)file_write_once(fd, "freezer.state", "THAWED", 6, NULL);
    return r;
}

static int signal_one(void *user, struct slice text, struct abx_err *err)
{
    uint64_t pid;

    (void)user;
    (void)err;
    /* 0 is a process outside of our pid namespace; kill(0) would be ourselves. */
    if (!str_parse_u64(text, INT32_MAX, &pid) || pid == 0)
        return 0;
    (void)kill((pid_t)pid, SIGKILL);
    return 1;
}

int cgroup_v1_kill(int fd, int timeout_ms, struct abx_err *err)
{
    int64_t deadline = time_mono_ns() + timeout_ms * NSEC_PER_MSEC;

    for (;;) {
        struct timespec pause = { 0, 200000 };
        int n;

        /* Frozen, nothing forks away and no pid is given out again between read and signal. What
         * can't be frozen in that time is signalled all the same. */
        (void)cgroup_v1_freeze(fd, true, KILL_ROUND_MS, NULL);
        n = cgroup_each_process(fd, signal_one, NULL, err);
        (void)file_write_once(fd, "freezer.state", "THAWED", 6, NULL);
        if (n <= 0)
            return n;
        if (time_mono_ns() >= deadline)
            return err_set(err, ABX_DEADLINE_EXCEEDED, "%d processes are left after %d ms", n,
                           timeout_ms);
        (void)nanosleep(&pause, NULL);
    }
}

int cgroup_v1_remove(const struct cgroup_v1 *h, const char *id, struct abx_err *err)
{
    char path[CGROUP_NAME_MAX + 8];
    int r = 0;

    (void)snprintf(path, sizeof path, "%s/user", id);
    if (cgroup_v1_has_user(h))
        r = cgroup_remove_dir(h->sandboxes_fd, path, err);
    return r < 0 ? r : cgroup_remove_dir(h->sandboxes_fd, id, err);
}

int cgroup_v1_usage(const struct cgroup_v1 *h, const char *id, struct cgroup_usage *ret,
                    struct abx_err *err)
{
    _cleanup_(closep) int fd = cgroup_open_dir(h->sandboxes_fd, id);
    uint64_t n, shmem = 0;
    int r = 0;

    if (fd < 0)
        return err_sys(err, errno, "cgroup of sandbox '%s'", id);
    if (has(h, CGROUP_MEMORY)) {
        r = cgroup_read_u64(fd, "memory.usage_in_bytes", &ret->memory_bytes, err);
        if (r == 0)
            r = cgroup_read_value(fd, "memory.stat", "total_cache", &ret->cache_bytes, err);
        if (r == 0)
            r = cgroup_read_value(fd, "memory.stat", "total_shmem", &shmem, err);
        ret->cache_bytes -= MIN(shmem, ret->cache_bytes);
        if (r == 0)
            r = cgroup_read_value(fd, "user/memory.oom_control", "oom_kill", &ret->oom_kills, err);
    }
    if (r == 0 && has(h, CGROUP_PIDS))
        r = cgroup_read_pids(fd, &ret->processes, err);
    if (r == 0 && has(h, CGROUP_CPUACCT)) {
        r = cgroup_read_u64(fd, "cpuacct.usage", &n, err);
        if (r == 0)
            ret->cpu_us = n / 1000;
    }
    return r;
}
