/* probe_limits.c - checks of cgroups and of the machine's own limits. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "engine/cgroup_internal.h"
#include "engine/options.h"
#include "engine/probe_internal.h"

#define GIB ((uint64_t)1 << 30)
#define MEMORY_MIN (GIB + GIB / 2)
#define PIDS_MIN 16384u
#define NOFILE_MIN 16384u
/* Descriptors of the engine, which holds most: for a sandbox, and for itself with slots and reserve. */
#define NOFILE_EACH 2u
#define NOFILE_OWN 512u
/* Open files of the machine for an idle sandbox, measured: sockets, pidfds, what its daemon has open. */
#define FILES_EACH 16u
/* One open file takes 192 to 256 bytes of the kernel's memory: what a sandbox of the default size can hold. */
#define FILES_OF_A_SANDBOX (GIB / 256)
#define WAIT_MS 1000
#define PUSHED_BYTES ((size_t)8 << 20)
#define PAGE_STEP 4096u /* or less than a page */

static int open_tree(struct cgroup_tree **ret, struct abx_err *err)
{
    struct cgroup_open_opts opts = { .without_move = true };
    char instance[32];

    (void)snprintf(instance, sizeof instance, "probe%d", (int)getpid());
    return cgroup_tree_open_with(instance, &opts, ret, err);
}

static const char *where(const struct cgroup_tree *t, enum cgroup_controller c)
{
    if (t->v2_controllers & CGROUP_BIT(c))
        return "v2";
    return cgroup_v1_with(t, c) ? "v1" : "none";
}

static void describe(struct cgroup_tree *t, struct probe_check *ret)
{
    struct cgroup_enforced e = cgroup_tree_enforced(t);
    char value[128];

    (void)snprintf(value, sizeof value, "memory %s, cpu %s, pids %s", where(t, CGROUP_MEMORY),
                   where(t, CGROUP_CPU), where(t, CGROUP_PIDS));
    if (!e.memory || !e.pids)
        probe_set(
            ret, PROBE_DEGRADED, "one sandbox can take all memory or processes of the machine",
            "boot with cgroup_enable=memory, or, in a container, give it its cgroup controllers",
            "%s", value);
    else if (!e.cpu)
        probe_set(ret, PROBE_DEGRADED, "sandboxes share the processors without a limit",
                  "a cpu controller for the group that the service is started in", "%s", value);
    else
        probe_set(ret, PROBE_OK, "", "", "%s", value);
}

void probe_cgroup(const struct probe_env *env, struct probe_check *ret)
{
    struct cgroup_limits limits = { .cpu_count = 1, .memory_bytes = 64 << 20, .pids = 16 };
    struct cgroup_tree *t = NULL;
    struct abx_err err = { 0 };
    int r = open_tree(&t, &err);

    if (r < 0 && err.sys == EBUSY) {
        probe_set(ret, PROBE_OK, "", "",
                  "v2; the service will move the processes of this group to a leaf of its own");
        return;
    }
    if (r == 0)
        r = cgroup_create(t, "p", &limits, 0, &err);
    if (r == 0)
        describe(t, ret);
    else
        probe_set(ret, PROBE_MISSING, "sandboxes can be neither limited nor killed as a whole",
                  "a systemd unit with Delegate=yes; in a container, a writable /sys/fs/cgroup "
                  "(--privileged --cgroupns=private)",
                  "%.200s", err.msg);
    if (t) {
        (void)cgroup_remove(t, "p", NULL);
        (void)cgroup_tree_remove(t, NULL);
    }
}

/* A process in the group; it writes to `dirty` bytes of its memory when it is told to, by a byte on `*ret_fd`, and says so by
 * closing its end. */
static int start_process(struct cgroup_tree *t, size_t dirty, pid_t *ret_pid, int *ret_fd,
                         struct abx_err *err)
{
    _cleanup_(closep) int group = -EBADF;
    int r = cgroup_open_v2(t, "p", CGROUP_USER, &group, err), ends[2];
    pid_t pid;

    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return err_sys(err, errno, "socketpair");
    pid = fork();
    if (pid == 0) {
        volatile char *memory = malloc(dirty + 1);
        char byte;

        (void)close(ends[0]);
        if (memory && read(ends[1], &byte, 1) == 1)
            for (size_t i = 0; i < dirty; i += PAGE_STEP)
                memory[i] = 1;
        (void)close(ends[1]);
        for (;;)
            (void)pause();
    }
    fd_close(ends[1]);
    *ret_fd = ends[0];
    if (pid < 0)
        return err_sys(err, errno, "fork");
    *ret_pid = pid;
    if (group >= 0)
        r = file_printf(group, "cgroup.procs", err, "%d", (int)pid);
    return r < 0 ? r : cgroup_attach(t, "p", pid, 0, err);
}

/* A process in the group is frozen, thawed, frozen again and killed so. */
static int freeze_and_kill(struct cgroup_tree *t, struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    pid_t pid = 0;
    int r = start_process(t, 0, &pid, &fd, err);

    if (r == 0)
        r = cgroup_freeze(t, "p", true, WAIT_MS, err);
    if (r == 0)
        r = cgroup_freeze(t, "p", false, WAIT_MS, err);
    if (r == 0)
        r = cgroup_freeze(t, "p", true, WAIT_MS, err);
    if (r == 0)
        r = cgroup_kill(t, "p", WAIT_MS, err);
    if (pid > 0) {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, r == 0 ? 0 : WNOHANG);
    }
    return r;
}

void probe_freeze(const struct probe_env *env, struct probe_check *ret)
{
    struct cgroup_limits limits = { 0 };
    struct cgroup_tree *t = NULL;
    struct abx_err err = { 0 };
    int r = open_tree(&t, &err);

    if (r < 0 && err.sys == EBUSY) {
        probe_set(ret, PROBE_OK, "", "", "v2");
        return;
    }
    if (r == 0)
        r = cgroup_create(t, "p", &limits, 0, &err);
    if (r == 0)
        r = freeze_and_kill(t, &err);
    if (r == 0)
        probe_set(ret, PROBE_OK, "", "", "%s",
                  t->has_v2 ? "v2 tree" : "v1 freezer (a kill takes longer than with a v2 tree)");
    else
        probe_set(ret, PROBE_MISSING, "sandboxes can't be paused or killed as a whole",
                  "see cgroup-limits", "%.200s", err.msg);
    if (t) {
        (void)cgroup_remove(t, "p", NULL);
        (void)cgroup_tree_remove(t, NULL);
    }
}

/* Memory of a frozen process goes to swap: by how much there is less of it. */
static int push_out(struct cgroup_tree *t, uint64_t *ret_bytes, struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    pid_t pid = 0;
    char byte = 0;
    int r = start_process(t, PUSHED_BYTES, &pid, &fd, err);

    /* Its end of file is the sign that all is written to. */
    if (r == 0 && (write(fd, &byte, 1) != 1 || read(fd, &byte, 1) != 0))
        r = err_sys(err, errno, "the process does not write to its memory");
    if (r == 0)
        r = cgroup_freeze(t, "p", true, WAIT_MS, err);
    if (r == 0)
        r = cgroup_push_out(t, "p", true, -EBADF, WAIT_MS, ret_bytes, err);
    if (pid > 0) {
        (void)cgroup_kill(t, "p", WAIT_MS, NULL);
        (void)waitpid(pid, NULL, WNOHANG);
    }
    return r;
}

static const char *push_name(const struct cgroup_tree *t)
{
    switch (cgroup_push_kind(t)) {
    case CGROUP_PUSH_RECLAIM:
        return "memory.reclaim";
    case CGROUP_PUSH_FORCE_EMPTY:
        return "memory.force_empty";
    case CGROUP_PUSH_NONE:
        break;
    }
    return "nothing";
}

void probe_swap(const struct probe_env *env, struct probe_check *ret)
{
    struct cgroup_limits limits = { .memory_bytes = 64 << 20 };
    struct cgroup_tree *t = NULL;
    struct abx_err err = { 0 };
    struct sysinfo info;
    uint64_t bytes = 0;
    double gib;
    int r;

    if (sysinfo(&info) < 0)
        return;
    gib = (double)info.totalswap * info.mem_unit / (double)GIB;
    if (info.totalswap == 0) {
        probe_set(ret, PROBE_INFO, "", "", "none: paused sandboxes keep their memory");
        return;
    }
    r = open_tree(&t, &err);
    if (r < 0 && err.sys == EBUSY) {
        probe_set(ret, PROBE_INFO, "", "",
                  "%.1f GiB; where the service runs memory of paused sandboxes may go there", gib);
        return;
    }
    if (r == 0)
        r = cgroup_create(t, "p", &limits, 0, &err);
    if (r == 0)
        r = push_out(t, &bytes, &err);
    if (r == 0 && bytes >= PUSHED_BYTES / 2)
        probe_set(ret, PROBE_INFO, "", "", "%.1f GiB; memory of paused sandboxes goes there (%s)",
                  gib, push_name(t));
    else
        probe_set(ret, PROBE_INFO, "paused sandboxes keep their memory", "", "%.1f GiB, but %.150s",
                  gib, r < 0 ? err.msg : "nothing goes there when it should (is it full?)");
    if (t) {
        (void)cgroup_remove(t, "p", NULL);
        (void)cgroup_tree_remove(t, NULL);
    }
}

void probe_memory(const struct probe_env *env, struct probe_check *ret)
{
    uint64_t total = cgroup_total_memory();
    double gib = (double)total / (double)GIB, all = (double)cgroup_memory_cap(total) / (double)GIB;

    if (total < MEMORY_MIN)
        probe_set(ret, PROBE_DEGRADED, "a few small sandboxes only", "2 GiB or more",
                  "%.1f GiB, %.1f of it for sandboxes", gib, all);
    else
        probe_set(ret, PROBE_OK, "", "", "%.1f GiB, %.1f of it for sandboxes", gib, all);
}

void probe_pids(const struct probe_env *env, struct probe_check *ret)
{
    uint32_t total = cgroup_total_pids();

    if (total < PIDS_MIN)
        probe_set(ret, PROBE_DEGRADED, "few processes for all sandboxes together",
                  "sysctl -w kernel.pid_max=4194304 kernel.threads-max=200000",
                  "%u, %u of them for sandboxes", total, cgroup_pids_cap(total));
    else
        probe_set(ret, PROBE_OK, "", "", "%u, %u of them for sandboxes", total,
                  cgroup_pids_cap(total));
}

static unsigned long long sandboxes_for(rlim_t descriptors)
{
    return descriptors > NOFILE_OWN ? (descriptors - NOFILE_OWN) / NOFILE_EACH : 0;
}

void probe_nofile(const struct probe_env *env, struct probe_check *ret)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    if (limit.rlim_max < NOFILE_MIN)
        probe_set(ret, limit.rlim_max < ENGINE_FDS_MIN ? PROBE_MISSING : PROBE_DEGRADED,
                  limit.rlim_max < ENGINE_FDS_MIN
                      ? "the engine does not start with less than 1024"
                      : "creates over that are refused; a gateway has room for fewer "
                        "connections, too",
                  "LimitNOFILE=1048576 in the unit, or ulimit -Hn as root",
                  "at most %llu for a process, enough for %llu sandboxes",
                  (unsigned long long)limit.rlim_max, sandboxes_for(limit.rlim_max));
    else
        probe_set(ret, PROBE_OK, "", "", "at most %llu for a process, enough for %llu sandboxes",
                  (unsigned long long)limit.rlim_max, sandboxes_for(limit.rlim_max));
}

void probe_file_max(const struct probe_env *env, struct probe_check *ret)
{
    uint64_t most = 0, in_use = 0, left;
    char text[128];

    if (cgroup_read_u64(AT_FDCWD, "/proc/sys/fs/file-max", &most, NULL) < 0 ||
        cgroup_read_text(AT_FDCWD, "/proc/sys/fs/file-nr", text, sizeof text, NULL) < 0 ||
        !str_parse_u64(slice_of(text, strcspn(text, "\t\n")), UINT64_MAX, &in_use)) {
        probe_set(ret, PROBE_INFO, "", "", "unknown");
        return;
    }
    left = most > in_use ? most - in_use : 0;
    if (left < FILES_OF_A_SANDBOX)
        probe_set(ret, PROBE_DEGRADED,
                  "one sandbox of 1 GiB can use them up, and the others fail with ENFILE",
                  "sysctl -w fs.file-max=9223372036854775807, as systemd does at boot",
                  "%llu of %llu left, enough for %llu idle sandboxes", (unsigned long long)left,
                  (unsigned long long)most, (unsigned long long)(left / FILES_EACH));
    else
        probe_set(ret, PROBE_OK, "", "", "%llu of %llu left", (unsigned long long)left,
                  (unsigned long long)most);
}

void probe_inotify(const struct probe_env *env, struct probe_check *ret)
{
    uint64_t instances = 0, watches = 0;

    if (cgroup_read_u64(AT_FDCWD, "/proc/sys/fs/inotify/max_user_instances", &instances, NULL) <
            0 ||
        cgroup_read_u64(AT_FDCWD, "/proc/sys/fs/inotify/max_user_watches", &watches, NULL) < 0)
        probe_set(ret, PROBE_DEGRADED, "watching files does not work in sandboxes",
                  "a kernel with CONFIG_INOTIFY_USER", "none");
    else
        probe_set(ret, PROBE_INFO, "", "", "%llu instances and %llu watches for each sandbox",
                  (unsigned long long)instances, (unsigned long long)watches);
}
