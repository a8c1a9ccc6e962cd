/* cgroup_v2.c - the v2 tree: its place, delegation, limits, freeze, kill, removal.
 *
 * The tree is used for freezing and killing even when every controller is bound to v1. When the
 * host has it mounted nowhere, a mount of our own that is attached to no folder does as well.
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "engine/cgroup_internal.h"
#include "engine/mountinfo.h"

#define MOVE_ROUNDS 20
#define HOST_WEIGHT 800u /* of 1..10000; 100 is the default, which `sandboxes` keeps */

/* Opens the group `path` by a mount that the host has; -1 when none shows it. */
static int open_mounted(struct slice mounts, const char *path)
{
    struct mountinfo m;
    char at[PATH_MAX];

    while (mountinfo_next(&mounts, &m)) {
        int fd;

        if (strcmp(m.fstype, "cgroup2") != 0 ||
            !cgroup_visible_path(m.root, m.target, path, at, sizeof at))
            continue;
        fd = cgroup_open_dir(AT_FDCWD, at);
        if (fd >= 0)
            return fd;
    }
    return -1;
}

static int open_detached(const char *path)
{
    _cleanup_(closep) int fs = (int)syscall(SYS_fsopen, "cgroup2", FSOPEN_CLOEXEC);
    _cleanup_(closep) int mnt = -EBADF;

    if (fs < 0 || syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -1;
    mnt = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC,
                       MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    if (mnt < 0)
        return -1;
    return cgroup_open_dir(mnt, path[1] ? path + 1 : ".");
}

static int open_group(struct slice mounts, const char *path)
{
    int fd = open_mounted(mounts, path);

    return fd >= 0 ? fd : open_detached(path);
}

/* systemd marks what it gave away (Delegate=yes); it may undo what is made anywhere else. */
static bool is_delegated(int fd)
{
    char value[8];
    ssize_t n = fgetxattr(fd, "trusted.delegate", value, sizeof value);

    if (n < 0)
        n = fgetxattr(fd, "user.delegate", value, sizeof value);
    return n == 1 && value[0] == '1';
}

int cgroup_v2_find(struct cgroup_tree *t, struct slice proc_cgroup, struct slice mounts,
                   int *ret_base_fd, unsigned *ret_controllers, struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    char path[PATH_MAX], text[512];
    int r;

    if (!cgroup_self_path(proc_cgroup, NULL, path, sizeof path))
        return 0;
    cgroup_base_path(path);
    fd = open_group(mounts, path);
    if (fd < 0)
        return 0;
    /* A login session's scope or a unit without Delegate= is systemd's own: like other runtimes,
     * stay clear of it with a group at the top. */
    if (path[1] && access("/run/systemd/system", F_OK) == 0 && !is_delegated(fd)) {
        int root = open_group(mounts, "/");

        if (root >= 0) {
            fd_close(fd);
            fd = root;
            path[1] = '\0';
        }
    }
    r = cgroup_read_text(fd, "cgroup.controllers", text, sizeof text, err);
    if (r < 0)
        return r;
    if (snprintf(t->check_path, sizeof t->check_path, "%s/abx-%s/sandboxes", path[1] ? path : "",
                 t->instance) >= (int)sizeof t->check_path)
        return err_set(err, ABX_FAILED_PRECONDITION, "the path of this cgroup is too long");
    t->has_v2 = true;
    *ret_controllers = cgroup_parse_controllers(slice_str(text));
    *ret_base_fd = TAKE_FD(fd);
    return 0;
}

static int move_one(void *user, struct slice pid, struct abx_err *err)
{
    const int *leaf = user;
    int r = file_write_once(*leaf, "cgroup.procs", pid.p, pid.n, err);

    if (r < 0 && r != ABX_NOT_FOUND) /* it may have ended meanwhile */
        return err_wrap(err, r, "move process %.*s", (int)pid.n, (const char *)pid.p);
    return r == 0;
}

/* Enables `c` for the children of `fd`. A group with processes can't (but for the machine's root):
 * then those go to `leaf` first, when one is given. */
static int enable(int fd, enum cgroup_controller c, int leaf, struct abx_err *err)
{
    struct abx_err e;
    int r = file_printf(fd, "cgroup.subtree_control", &e, "+%s", cgroup_controller_name(c));

    for (int i = 0; i < MOVE_ROUNDS && r < 0 && e.sys == EBUSY && leaf >= 0; i++) {
        r = cgroup_each_process(fd, move_one, &leaf, err);
        if (r < 0)
            return r;
        r = file_printf(fd, "cgroup.subtree_control", &e, "+%s", cgroup_controller_name(c));
    }
    if (r < 0 && e.sys == EBUSY) {
        r = err_set(
            err, ABX_FAILED_PRECONDITION,
            "this cgroup keeps processes of its own, so that it can't hand controller '%s' "
            "on; start the service in a group of its own (a systemd unit with Delegate=yes, "
            "or a container with a private cgroup namespace)",
            cgroup_controller_name(c));
        if (err)
            err->sys = EBUSY;
        return r;
    }
    if (r < 0 && err)
        *err = e;
    return r;
}

static int set_weight_and_caps(struct cgroup_tree *t, struct abx_err *err)
{
    int r = 0;

    if (t->v2_controllers & CGROUP_BIT(CGROUP_CPU))
        r = file_printf(t->v2_host_fd, "cpu.weight", err, "%u", HOST_WEIGHT);
    if (r == 0 && (t->v2_controllers & CGROUP_BIT(CGROUP_MEMORY)))
        r = file_printf(t->v2_sandboxes_fd, "memory.max", err, "%llu",
                        (unsigned long long)cgroup_memory_cap(cgroup_total_memory()));
    if (r == 0 && (t->v2_controllers & CGROUP_BIT(CGROUP_PIDS)))
        r = cgroup_set_pids(t->v2_sandboxes_fd, cgroup_pids_cap(cgroup_total_pids()), err);
    return r;
}

int cgroup_v2_prepare(struct cgroup_tree *t, int base_fd, unsigned controllers, bool may_move,
                      struct abx_err *err)
{
    _cleanup_(closep) int top = -EBADF;
    int r = cgroup_make_tree(base_fd, t->instance, &top, &t->v2_host_fd, &t->v2_sandboxes_fd, err);

    if (r == ABX_PERMISSION_DENIED)
        return err_wrap(err, ABX_FAILED_PRECONDITION,
                        "the cgroup tree can't be written; in a container, mount /sys/fs/cgroup "
                        "writable");
    for (int c = 0; c < CGROUP_CONTROLLERS_ && r == 0; c++) {
        if (!(controllers & CGROUP_BIT(c)))
            continue;
        r = enable(base_fd, (enum cgroup_controller)c, may_move ? t->v2_host_fd : -EBADF, err);
        if (r == 0)
            r = enable(top, (enum cgroup_controller)c, -EBADF, err);
        if (r == 0)
            r = enable(t->v2_sandboxes_fd, (enum cgroup_controller)c, -EBADF, err);
        if (r == 0)
            t->v2_controllers |= CGROUP_BIT(c);
        /* Not to be had here (cpu with realtime tasks is EINVAL): cgroup_tree_enforced says so. */
        if (r == ABX_INVALID_ARGUMENT || r == ABX_NOT_FOUND || r == ABX_UNIMPLEMENTED)
            r = 0;
    }
    return r < 0 ? r : set_weight_and_caps(t, err);
}

/* What the guest may do itself; see cgroup_create. No controllers for groups of its own: in one with next to
 * no cpu time, kernels before 6.18 let killed processes wait for it, too, and the sandbox would not end. */
static const char *const delegated[] = {
    "cgroup.procs", "guest/cgroup.procs", "user", "user/cgroup.procs", "user/cgroup.threads",
};

static int fill(struct cgroup_tree *t, int fd, uid_t uid_base, struct abx_err *err)
{
    int r = file_printf(fd, "cgroup.max.descendants", err, "%u", CGROUP_GUEST_GROUPS_MAX);

    if (r == 0)
        r = file_printf(fd, "cgroup.max.depth", err, "%u", CGROUP_GUEST_DEPTH_MAX);
    if (r == 0 && (t->v2_controllers & CGROUP_BIT(CGROUP_CPU)))
        r = enable(fd, CGROUP_CPU, -EBADF, err);
    if (r == 0 && (t->v2_controllers & CGROUP_BIT(CGROUP_MEMORY)))
        r = enable(fd, CGROUP_MEMORY, -EBADF, err);
    if (r < 0)
        return r;
    if (mkdirat(fd, "guest", 0755) < 0 || mkdirat(fd, "user", 0755) < 0)
        return err_sys(err, errno, "make the groups of the guest");
    for (size_t i = 0; i < ARRAY_SIZE(delegated); i++)
        if (fchownat(fd, delegated[i], uid_base, uid_base, AT_SYMLINK_NOFOLLOW) < 0)
            return err_sys(err, errno, "delegate '%s'", delegated[i]);
    return 0;
}

int cgroup_v2_create(struct cgroup_tree *t, const char *id, uid_t uid_base, struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    int r;

    if (mkdirat(t->v2_sandboxes_fd, id, 0755) < 0)
        return err_sys(err, errno, "make group");
    fd = cgroup_open_dir(t->v2_sandboxes_fd, id);
    r = fd < 0 ? err_sys(err, errno, "open group") : fill(t, fd, uid_base, err);
    if (r < 0)
        (void)cgroup_v2_remove(t->v2_sandboxes_fd, id, NULL);
    return r;
}

static int set_memory(int fd, uint64_t bytes, struct abx_err *err)
{
    struct abx_err e;
    int r = bytes ? file_printf(fd, "memory.max", err, "%llu", (unsigned long long)bytes)
                  : file_write_once(fd, "memory.max", "max", 3, err);

    if (r < 0)
        return r;
    /* A host's swap is no way around the limit. Kernels without swap lack the file. */
    r = file_write_once(fd, "memory.swap.max", bytes ? "0" : "max", bytes ? 1 : 3, &e);
    if (r < 0 && e.sys != ENOENT) {
        if (err)
            *err = e;
        return r;
    }
    return 0;
}

/* `user` gets the limit, the whole a little more. */
static int set_memories(int fd, uint64_t bytes, struct abx_err *err)
{
    _cleanup_(closep) int user = cgroup_open_dir(fd, "user");
    int r;

    if (user < 0)
        return err_sys(err, errno, "open group 'user'");
    r = set_memory(fd, bytes ? bytes + CGROUP_GUEST_MEMORY : 0, err);
    return r < 0 ? r : set_memory(user, bytes, err);
}

static int set_quota(int fd, const char *file, uint64_t quota_us, struct abx_err *err)
{
    if (quota_us == 0)
        return file_printf(fd, file, err, "max %u", CGROUP_CPU_PERIOD_US);
    return file_printf(fd, file, err, "%llu %u", (unsigned long long)quota_us,
                       CGROUP_CPU_PERIOD_US);
}

int cgroup_v2_set_limits(struct cgroup_tree *t, int fd, const struct cgroup_limits *limits,
                         struct abx_err *err)
{
    uint64_t quota = (uint64_t)limits->cpu_count * CGROUP_CPU_PERIOD_US;
    int r = 0;

    if (t->v2_controllers & CGROUP_BIT(CGROUP_MEMORY))
        r = set_memories(fd, limits->memory_bytes, err);
    if (r == 0 && (t->v2_controllers & CGROUP_BIT(CGROUP_PIDS)))
        r = cgroup_set_pids(fd, limits->pids, err);
    if (r == 0 && (t->v2_controllers & CGROUP_BIT(CGROUP_CPU))) {
        r = set_quota(fd, "cpu.max", quota ? quota + CGROUP_CPU_GUEST_US : 0, err);
        if (r == 0)
            r = set_quota(fd, "user/cpu.max", quota, err);
    }
    return r;
}

/* `fd` is an open cgroup.events. */
static int event_is(int fd, const char *key, uint64_t wanted, struct abx_err *err)
{
    char text[256];
    uint64_t value;
    ssize_t n = pread(fd, text, sizeof text, 0);

    if (n < 0)
        return err_sys(err, errno, "read cgroup.events");
    if (!cgroup_find_value(slice_of(text, (size_t)n), key, &value))
        return err_set(err, ABX_UNIMPLEMENTED, "cgroup.events has no '%s'", key);
    return value == wanted;
}

static int is_frozen(int fd, struct abx_err *err)
{
    return event_is(fd, "frozen", 1, err);
}

static int is_thawed(int fd, struct abx_err *err)
{
    return event_is(fd, "frozen", 0, err);
}

static int is_empty(int fd, struct abx_err *err)
{
    return event_is(fd, "populated", 0, err);
}

int cgroup_v2_freeze(int fd, bool on, int timeout_ms, struct abx_err *err)
{
    _cleanup_(closep) int events = openat(fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
    int r;

    if (events < 0)
        return err_sys(err, errno, "open cgroup.events");
    r = file_write_once(fd, "cgroup.freeze", on ? "1" : "0", 1, err);
    if (r == 0)
        r = cgroup_wait(on ? is_frozen : is_thawed, events, timeout_ms, err);
    if (r < 0 && on)
        (void)file_write_once(fd, "cgroup.freeze", "0", 1, NULL);
    return r;
}

int cgroup_v2_kill(int fd, int timeout_ms, struct abx_err *err)
{
    _cleanup_(closep) int events = openat(fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
    int r;

    if (events < 0)
        return err_sys(err, errno, "open cgroup.events");
    r = file_write_once(fd, "cgroup.kill", "1", 1, err);
    if (r < 0)
        return r;
    return cgroup_wait(is_empty, events, timeout_ms, err);
}

/* Depth is bounded by cgroup.max.depth, and each level holds one fd. */
static int remove_below(int fd, unsigned depth, struct abx_err *err)
{
    _cleanup_(closedirp) DIR *d = NULL;
    struct dirent *e;
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (copy < 0)
        return errno == ENOENT ? 0 : err_sys(err, errno, "open cgroup");
    d = fdopendir(copy);
    if (!d) {
        fd_close(copy);
        return err_oom(err);
    }
    while ((e = readdir(d)) != NULL) {
        _cleanup_(closep) int sub = -EBADF;
        int r = 0;

        if (e->d_type != DT_DIR || e->d_name[0] == '.')
            continue;
        if (depth > CGROUP_GUEST_DEPTH_MAX)
            return err_set(err, ABX_INTERNAL, "cgroups are nested too deep");
        sub = cgroup_open_dir(fd, e->d_name);
        if (sub >= 0)
            r = remove_below(sub, depth + 1, err);
        if (r == 0)
            r = cgroup_remove_dir(fd, e->d_name, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int cgroup_v2_remove(int parent_fd, const char *name, struct abx_err *err)
{
    _cleanup_(closep) int fd = cgroup_open_dir(parent_fd, name);
    int r;

    if (fd < 0)
        return errno == ENOENT ? 0 : err_sys(err, errno, "open cgroup '%s'", name);
    r = remove_below(fd, 0, err);
    return r < 0 ? r : cgroup_remove_dir(parent_fd, name, err);
}

int cgroup_v2_usage(struct cgroup_tree *t, int fd, struct cgroup_usage *ret, struct abx_err *err)
{
    uint64_t shmem = 0;
    int r = cgroup_read_value(fd, "cpu.stat", "usage_usec", &ret->cpu_us, err);

    if (r == 0 && (t->v2_controllers & CGROUP_BIT(CGROUP_MEMORY))) {
        r = cgroup_read_u64(fd, "memory.current", &ret->memory_bytes, err);
        if (r == 0)
            r = cgroup_read_value(fd, "memory.stat", "file", &ret->cache_bytes, err);
        if (r == 0)
            r = cgroup_read_value(fd, "memory.stat", "shmem", &shmem, err);
        ret->cache_bytes -= MIN(shmem, ret->cache_bytes);
        if (r == 0)
            r = cgroup_read_value(fd, "memory.events", "oom_kill", &ret->oom_kills, err);
    }
    if (r == 0 && (t->v2_controllers & CGROUP_BIT(CGROUP_PIDS)))
        r = cgroup_read_pids(fd, &ret->processes, err);
    return r;
}
