/* probe_files.c - checks of the file systems: idmapped mounts, overlay, disk limits. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/mount.h>
#include <linux/securebits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "engine/disk_internal.h"
#include "engine/mountinfo.h"
#include "engine/probe_internal.h"
#include "engine/userns.h"

#define UID_BASE (UID_RANGE_LAST + 1 - UID_RANGE_SIZE)
#define POOL_BYTES ((uint64_t)256 << 20)
#define LIMIT_BYTES ((uint64_t)4 << 20)
#define SPACE_MIN ((uint64_t)10 << 30)

#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif

/* Name of the file system that holds `path`, by the longest mount point above it. */
static void fstype_of(const char *path, char *to, size_t size)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(MOUNTINFO_MAX);
    struct mountinfo m;
    struct slice rest;
    size_t best = 0;

    (void)snprintf(to, size, "unknown");
    if (mountinfo_read(&text, NULL) < 0)
        return;
    rest = buf_slice(&text);
    while (mountinfo_next(&rest, &m)) {
        size_t n = strcmp(m.target, "/") == 0 ? 0 : strlen(m.target);

        if (n >= best && strncmp(path, m.target, n) == 0 && (path[n] == '/' || path[n] == '\0')) {
            best = n;
            (void)snprintf(to, size, "%s", m.fstype);
        }
    }
}

/* A detached clone of `path` mapped by the user namespace; fd, or -1 with errno. */
static int clone_idmapped(const char *path, int userns_fd)
{
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns_fd };
    _cleanup_(closep) int fd =
        (int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | O_CLOEXEC);

    if (fd < 0 || syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
        return -1;
    return TAKE_FD(fd);
}

static bool need_scratch(const struct probe_env *env, struct probe_check *ret)
{
    if (env->scratch[0])
        return true;
    probe_set(ret, PROBE_MISSING, "the data dir can't be written",
              "--data-dir on a disk of your own", "no folder can be made near %s", env->data_dir);
    return false;
}

void probe_idmap(const struct probe_env *env, struct probe_check *ret)
{
    struct abx_err err = { 0 };
    char fstype[64];
    int userns = -EBADF;

    if (!need_scratch(env, ret))
        return;
    fstype_of(env->scratch, fstype, sizeof fstype);
    if (userns_open(UID_BASE, &userns, &err) < 0)
        probe_set(ret, PROBE_MISSING, "needs user namespaces", "see user-namespaces", "%.200s",
                  err.msg);
    else if (clone_idmapped(env->scratch, userns) >= 0)
        probe_set(ret, PROBE_OK, "", "", "work on %s", fstype);
    else
        probe_set(ret, PROBE_MISSING,
                  "layers of templates are shared by sandboxes with other users",
                  "--data-dir on ext4, xfs or btrfs", "not on %s: %s", fstype, strerror(errno));
}

static int set_fd(int fs, const char *key, int fd)
{
    return (int)syscall(SYS_fsconfig, fs, FSCONFIG_SET_FD, key, NULL, fd);
}

static int set_string(int fs, const char *key, const char *value)
{
    return (int)syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, key, value, 0);
}

static bool make_dir(const char *parent, const char *name, char *to)
{
    return path_join(to, PATH_MAX, parent, name) && mkdir(to, 0755) == 0;
}

/* The folders of one try, and idmapped clones of the two that become layers. */
struct layers {
    char lower[PATH_MAX], upper[PATH_MAX], u[PATH_MAX], w[PATH_MAX];
    int lower_fd, upper_fd;
};

static bool layers_make(struct layers *l, const char *top, int userns)
{
    if (!make_dir(top, "lower", l->lower) || !make_dir(top, "upper", l->upper) ||
        !make_dir(l->upper, "u", l->u) || !make_dir(l->upper, "w", l->w))
        return false;
    l->lower_fd = clone_idmapped(l->lower, userns);
    l->upper_fd = clone_idmapped(l->upper, userns);
    return l->lower_fd >= 0 && l->upper_fd >= 0;
}

static bool configure_by_fd(int fs, const struct layers *l)
{
    int u = openat(l->upper_fd, "u", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int w = openat(l->upper_fd, "w", O_PATH | O_DIRECTORY | O_CLOEXEC);

    return set_fd(fs, "lowerdir+", l->lower_fd) == 0 && set_fd(fs, "upperdir", u) == 0 &&
           set_fd(fs, "workdir", w) == 0;
}

/* This process has a mount namespace of its own: the clones are mounted over their folders. */
static bool configure_by_path(int fs, const struct layers *l)
{
    return syscall(SYS_move_mount, l->lower_fd, "", AT_FDCWD, l->lower, MOVE_MOUNT_F_EMPTY_PATH) ==
               0 &&
           syscall(SYS_move_mount, l->upper_fd, "", AT_FDCWD, l->upper, MOVE_MOUNT_F_EMPTY_PATH) ==
               0 &&
           set_string(fs, "lowerdir", l->lower) == 0 && set_string(fs, "upperdir", l->u) == 0 &&
           set_string(fs, "workdir", l->w) == 0;
}

/* Makes the overlay as the first user of the range, as the spawner does, and a file in it: with a wrong
 * user the kernel makes a read-only one without a word. */
static bool try_overlay(const struct layers *l, bool (*configure)(int, const struct layers *))
{
    _cleanup_(closep) int fs = (int)syscall(SYS_fsopen, "overlay", FSOPEN_CLOEXEC);
    int mnt = -EBADF, file = -EBADF;

    if (fs < 0 || !configure(fs, l) || set_string(fs, "redirect_dir", "on") < 0)
        return false;
    (void)setfsgid(UID_BASE);
    (void)setfsuid(UID_BASE);
    if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
        mnt = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, 0);
    if (mnt >= 0)
        file = openat(mnt, "file", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    (void)setfsuid(0);
    (void)setfsgid(0);
    return file >= 0;
}

void probe_overlay(const struct probe_env *env, struct probe_check *ret)
{
    struct layers first, second;
    char a[PATH_MAX], b[PATH_MAX];
    int userns = -EBADF;

    if (!need_scratch(env, ret))
        return;
    /* Keeps the capabilities while the file system user id changes. */
    if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) < 0 || unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        userns_open(UID_BASE, &userns, NULL) < 0 || !make_dir(env->scratch, "a", a) ||
        !make_dir(env->scratch, "b", b) || !layers_make(&first, a, userns) ||
        !layers_make(&second, b, userns))
        probe_set(ret, PROBE_MISSING, "the root of a sandbox is an overlay of idmapped layers",
                  "see idmapped-mounts and user-namespaces", "not tried: %s", strerror(errno));
    else if (try_overlay(&first, configure_by_fd))
        probe_set(ret, PROBE_OK, "", "", "layers by file descriptor");
    else if (try_overlay(&second, configure_by_path))
        probe_set(ret, PROBE_OK, "", "", "layers by path");
    else
        probe_set(ret, PROBE_MISSING, "the root of a sandbox is an overlay of idmapped layers",
                  "a kernel with CONFIG_OVERLAY_FS, and --data-dir on ext4, xfs or btrfs",
                  "no overlay: %s", strerror(errno));
}

/* Writes past the limit of an upper; true when that failed as it should. */
static bool is_limited(struct disk_pool *pool)
{
    static const char block[65536] = "x";
    _cleanup_(closep) int fd = -EBADF;
    char path[PATH_MAX];
    size_t n = 0;

    if (disk_upper_create(pool, "probe", LIMIT_BYTES, NULL) < 0 ||
        snprintf(path, sizeof path, "%s/uppers/probe/u/file", disk_pool_path(pool)) >=
            (int)sizeof path)
        return false;
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    while (fd >= 0 && n < 2 * LIMIT_BYTES) {
        ssize_t k = write(fd, block, sizeof block);

        if (k < 0)
            return n <= LIMIT_BYTES && (errno == EDQUOT || errno == ENOSPC);
        n += (size_t)k;
    }
    return false;
}

static void describe_pool(struct disk_pool *pool, struct probe_check *ret)
{
    if (!disk_pool_is_limited(pool))
        probe_set(ret, PROBE_DEGRADED, "one sandbox can fill the disk of all",
                  "apt-get install btrfs-progs and a kernel with btrfs and loop devices, or "
                  "--data-dir on btrfs, or on xfs with prjquota",
                  "plain folder: %.180s", disk_pool_why_plain(pool));
    else if (!is_limited(pool))
        probe_set(ret, PROBE_DEGRADED, "one sandbox can fill the disk of all",
                  "a newer kernel, or --data-dir on btrfs", "the limit of %s does not hold",
                  disk_kind_name(disk_pool_kind(pool)));
    else
        probe_set(ret, PROBE_OK, "", "", "%s holds its limit",
                  disk_kind_name(disk_pool_kind(pool)));
}

/* Has the data dir a pool already, which takes no new room? */
static bool has_pool(const char *data_dir)
{
    static const char *const parts[] = { "pool/disk.img", "pool/uppers" };
    char path[PATH_MAX];

    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        if (path_join(path, sizeof path, data_dir, parts[i]) && access(path, F_OK) == 0)
            return true;
    return false;
}

static bool is_image(const struct disk_pool *pool)
{
    enum disk_kind kind = disk_pool_kind(pool);

    return kind == DISK_BTRFS_IMAGE || kind == DISK_XFS_IMAGE;
}

static void no_room(struct probe_check *ret, const struct abx_err *err)
{
    probe_set(ret, PROBE_MISSING, "there is no place for the files of sandboxes",
              "make room there, or --data-dir on a disk with free space", "%.200s", err->msg);
}

void probe_disk(const struct probe_env *env, struct probe_check *ret)
{
    struct disk_opts opts = { .data_dir = env->scratch,
                              .instance = "probe",
                              .size_bytes = POOL_BYTES };
    struct disk_pool *pool = NULL;
    struct abx_err err = { 0 }, too_small = { 0 };
    uint64_t size;
    int r;

    if (!need_scratch(env, ret))
        return;
    /* Mounts end with this process. */
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        probe_set(ret, PROBE_MISSING, "", "see root", "not tried: %s", strerror(errno));
        return;
    }
    /* The image that is tried is smaller than the one that a service makes. */
    if (!has_pool(env->data_dir))
        (void)disk_image_size(env->scratch, 0, &size, &too_small);
    r = disk_pool_open(&opts, &pool, &err);
    if (r < 0) {
        no_room(ret, too_small.code != 0 ? &too_small : &err);
        return;
    }
    if (too_small.code != 0 && is_image(pool))
        no_room(ret, &too_small);
    else
        describe_pool(pool, ret);
    (void)disk_upper_trash(pool, "probe", NULL);
    (void)disk_trash_empty(pool, NULL);
    (void)disk_pool_unmount(pool, NULL);
}

void probe_space(const struct probe_env *env, struct probe_check *ret)
{
    struct statvfs st;
    uint64_t free_bytes;

    if (!need_scratch(env, ret) || statvfs(env->scratch, &st) < 0)
        return;
    free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
    if (free_bytes < SPACE_MIN)
        probe_set(ret, PROBE_DEGRADED, "room for the base template and a few sandboxes only",
                  "--data-dir on a larger disk", "%.1f GiB free", (double)free_bytes / (1 << 30));
    else
        probe_set(ret, PROBE_OK, "", "", "%.1f GiB free", (double)free_bytes / (1 << 30));
}

void probe_runtime_dir(const struct probe_env *env, struct probe_check *ret)
{
    struct statfs st;

    if (statfs("/run", &st) == 0 && (st.f_type == TMPFS_MAGIC || st.f_type == RAMFS_MAGIC))
        probe_set(ret, PROBE_OK, "", "", "/run is in memory");
    else
        probe_set(
            ret, PROBE_INFO, "", "",
            "/run is on a disk: records of running sandboxes are checked against the boot id");
}
