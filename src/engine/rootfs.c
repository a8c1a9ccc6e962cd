/* rootfs.c - the spawner's pruned mount namespace and the child's steps. See rootfs.h. */
#include "engine/rootfs.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/fd.h"
#include "base/path.h"
#include "engine/mountapi.h"

#define KEEP_MAX 64
#define PLAIN (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)
#define MS_PLAIN (MS_NOSUID | MS_NODEV | MS_NOEXEC)

/* ---- the shared, read-only part ---- */

static const struct {
    const char *path;
    unsigned major, minor;
} devices[] = {
    { "dev/null", 1, 3 },   { "dev/zero", 1, 5 },    { "dev/full", 1, 7 },
    { "dev/random", 1, 8 }, { "dev/urandom", 1, 9 }, { "dev/tty", 5, 0 },
};

static const struct {
    const char *path, *target;
} links[] = {
    { "dev/fd", "/proc/self/fd" },       { "dev/stdin", "/proc/self/fd/0" },
    { "dev/stdout", "/proc/self/fd/1" }, { "dev/stderr", "/proc/self/fd/2" },
    { "dev/ptmx", "pts/ptmx" },
};

static const struct {
    const char *path;
    mode_t mode;
} folders[] = {
    { "none", 0555 },       { "dev", 0755 },         { "dev/pts", 0755 }, { "dev/shm", 0755 },
    { "dev/mqueue", 0755 }, { "sys", 0555 },         { "sys/fs", 0555 },  { "sys/fs/cgroup", 0555 },
    { "sys/kernel", 0555 }, { "sys/devices", 0555 },
};

static int fill_shared(int dirfd, struct abx_err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
        if (mkdirat(dirfd, folders[i].path, folders[i].mode) < 0 ||
            fchmodat(dirfd, folders[i].path, folders[i].mode, 0) < 0)
            return err_sys(err, errno, "mkdir '%s'", folders[i].path);
    for (size_t i = 0; i < ARRAY_SIZE(devices); i++)
        if (mknodat(dirfd, devices[i].path, S_IFCHR | 0666,
                    makedev(devices[i].major, devices[i].minor)) < 0 ||
            fchmodat(dirfd, devices[i].path, 0666, 0) < 0)
            return err_sys(err, errno, "mknod '%s'", devices[i].path);
    for (size_t i = 0; i < ARRAY_SIZE(links); i++)
        if (symlinkat(links[i].target, dirfd, links[i].path) < 0)
            return err_sys(err, errno, "link '%s'", links[i].path);
    return 0;
}

/* ---- pruning ---- */

/* A detached tmpfs. */
static int new_tmpfs(const char *mode, unsigned attributes, int *ret_fd, struct abx_err *err)
{
    _cleanup_(closep) int fs = mnt_fsopen("tmpfs");
    int fd;

    if (fs < 0 || mnt_fs_string(fs, "mode", mode) < 0 || mnt_fs_string(fs, "size", "4m") < 0 ||
        mnt_fs_create(fs) < 0)
        return err_sys(err, errno, "tmpfs");
    fd = mnt_fsmount(fs, attributes);
    if (fd < 0)
        return err_sys(err, errno, "mount a tmpfs");
    *ret_fd = fd;
    return 0;
}

/* A detached mount of a file system type without options; *ret_fd = -EBADF when the kernel does not
 * know the type and `is_optional`. */
static int new_mount(const char *type, bool is_optional, int *ret_fd, struct abx_err *err)
{
    _cleanup_(closep) int fs = mnt_fsopen(type);
    int fd;

    if (fs < 0 && errno == ENODEV && is_optional) {
        *ret_fd = -EBADF;
        return 0;
    }
    if (fs < 0 || mnt_fs_create(fs) < 0)
        return err_sys(err, errno, "%s", type);
    fd = mnt_fsmount(fs, PLAIN);
    if (fd < 0)
        return err_sys(err, errno, "mount %s", type);
    *ret_fd = fd;
    return 0;
}

static int attach(int fd, const char *path, struct abx_err *err)
{
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return err_sys(err, errno, "mkdir '%s'", path);
    if (mnt_attach(fd, path) < 0)
        return err_sys(err, errno, "attach '%s'", path);
    return 0;
}

/* What is kept of the old namespace, cloned while it can still be seen. */
struct kept {
    const char *paths[KEEP_MAX];
    int fds[KEEP_MAX];
    size_t n;
};

static void kept_done(struct kept *k)
{
    for (size_t i = 0; i < k->n; i++)
        fd_close(k->fds[i]);
}

static bool is_below(const char *path, const char *top)
{
    size_t n = strlen(top);

    while (n > 0 && top[n - 1] == '/')
        n--;
    return strncmp(path, top, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static int keep_clone(const char *const *keep, struct kept *k, struct abx_err *err)
{
    for (size_t i = 0; keep && keep[i]; i++) {
        bool is_seen = false;
        int fd;

        if (keep[i][0] != '/' || keep[i][1] == '\0')
            return err_set(err, ABX_INVALID_ARGUMENT, "kept path '%s' is not absolute", keep[i]);
        for (size_t j = 0; keep[j]; j++)
            if (j != i && is_below(keep[i], keep[j]) && (j < i || !is_below(keep[j], keep[i])))
                is_seen = true; /* with the one above it */
        if (is_seen)
            continue;
        if (k->n == KEEP_MAX)
            return err_set(err, ABX_INVALID_ARGUMENT, "more than %d kept paths", KEEP_MAX);
        fd = mnt_open_tree(AT_FDCWD, keep[i], OPEN_TREE_CLONE | AT_RECURSIVE);
        if (fd < 0)
            return err_sys(err, errno, "clone the mounts of '%s'", keep[i]);
        k->paths[k->n] = keep[i];
        k->fds[k->n++] = fd;
    }
    return 0;
}

static int keep_attach(const struct kept *k, struct abx_err *err)
{
    for (size_t i = 0; i < k->n; i++) {
        int r = path_mkdirs(AT_FDCWD, k->paths[i], 0755, err);

        if (r == 0 && mnt_attach(k->fds[i], k->paths[i]) < 0)
            r = err_sys(err, errno, "attach '%s'", k->paths[i]);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Enters the tmpfs `fd` as the new root and drops the old one. /proc exists in every namespace that
 * this can run in, so it is where the new root is attached first. */
static int switch_root(int fd, struct abx_err *err)
{
    if (mnt_attach(fd, "/proc") < 0)
        return err_sys(err, errno, "attach the new root");
    if (fchdir(fd) < 0 || mnt_pivot_root(".", ".") < 0)
        return err_sys(err, errno, "pivot_root");
    if (mnt_umount(".", MOUNTAPI_DETACH) < 0 || chdir("/") < 0)
        return err_sys(err, errno, "leave the old root");
    return 0;
}

static int attach_shared(struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    int r = new_tmpfs("0555", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, &fd, err);

    if (r == 0)
        r = fill_shared(fd, err);
    if (r == 0 && mnt_set(fd, MOUNT_ATTR_RDONLY, -EBADF) < 0)
        r = err_sys(err, errno, "make the shared part read-only");
    return r < 0 ? r : attach(fd, "/shared", err);
}

static int attach_cgroup(struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    int r = new_mount("cgroup2", true, &fd, err);

    return r < 0 || fd < 0 ? r : attach(fd, "/cgroup", err);
}

static int attach_own(struct abx_err *err)
{
    _cleanup_(closep) int proc = -EBADF;
    _cleanup_(closep) int boot = -EBADF;
    int r = new_mount("proc", false, &proc, err);

    if (r == 0)
        r = attach(proc, "/proc", err);
    if (r == 0)
        r = attach_shared(err);
    if (r == 0)
        r = new_tmpfs("0755", PLAIN, &boot, err);
    if (r == 0)
        r = attach(boot, "/boot", err);
    if (r == 0)
        r = attach_cgroup(err);
    if (r == 0 && (mkdir("/root", 0755) < 0 || mkdir("/layers", 0755) < 0))
        r = err_sys(err, errno, "mkdir");
    return r;
}

int rootfs_prune(const char *const *keep, struct abx_err *err)
{
    _cleanup_(kept_done) struct kept kept = { .n = 0 };
    _cleanup_(closep) int root = -EBADF;
    int r;

    (void)umask(022);
    if (unshare(CLONE_NEWNS) < 0 || mnt_mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return err_sys(err, errno, "private mount namespace");
    r = keep_clone(keep, &kept, err);
    if (r == 0)
        r = new_tmpfs("0755", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, &root, err);
    if (r == 0)
        r = switch_root(root, err);
    if (r == 0)
        r = attach_own(err);
    if (r == 0)
        r = keep_attach(&kept, err);
    return r;
}

/* ---- in the child ---- */

/* A folder of the root that something is mounted on: made when the template lacks it; a link in its
 * place would lead the mount elsewhere. */
static int need_folder(const char *name, mode_t mode)
{
    struct stat st;

    if (fstatat(AT_FDCWD, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        if (S_ISDIR(st.st_mode))
            return 0;
        errno = ENOTDIR;
        return -1;
    }
    return errno == ENOENT ? mkdir(name, mode) : -1;
}

int rootfs_child_attach(const struct rootfs *r)
{
    if (mnt_attach(r->overlay, "/root") < 0 || chdir("/root") < 0)
        return -1;
    if (need_folder("proc", 0555) < 0 || need_folder("dev", 0755) < 0 ||
        need_folder("sys", 0555) < 0)
        return -1;
    if (mnt_attach(r->dev, "dev") < 0 || mnt_mount("/shared/sys", "sys", NULL, MS_BIND, NULL) < 0)
        return -1;
    if (r->cgroup >= 0 && mnt_attach(r->cgroup, "sys/fs/cgroup") < 0)
        return -1;
    if (mnt_mount("shm", "dev/shm", "tmpfs", MS_NOSUID | MS_NODEV,
                  "mode=1777,size=512m,nr_inodes=65536") < 0)
        return -1;
    return mnt_mount("mqueue", "dev/mqueue", "mqueue", MS_PLAIN, NULL);
}

/* Hidden: an empty file or folder in their place. What the kernel does not have is passed over. */
static const struct {
    const char *path, *with;
} masks[] = {
    { "proc/kcore", "/shared/dev/null" },
    { "proc/kallsyms", "/shared/dev/null" },
    { "proc/keys", "/shared/dev/null" },
    { "proc/timer_list", "/shared/dev/null" },
    { "proc/sysrq-trigger", "/shared/dev/null" },
    { "proc/latency_stats", "/shared/dev/null" },
    { "proc/sched_debug", "/shared/dev/null" },
    { "proc/cmdline", "/shared/dev/null" },
    { "proc/locks", "/shared/dev/null" }, /* locks of files have no pid, so they show everywhere */
    { "proc/irq", "/shared/none" },
    { "proc/bus", "/shared/none" },
    { "proc/acpi", "/shared/none" },
    { "proc/scsi", "/shared/none" },
    { "proc/fs", "/shared/none" },
    { "proc/pressure", "/shared/none" },
};

int rootfs_child_proc(const struct rootfs *r)
{
    if (mnt_mount("proc", "proc", "proc", MS_PLAIN, NULL) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(masks); i++)
        if (mnt_mount(masks[i].with, masks[i].path, NULL, MS_BIND, NULL) < 0 && errno != ENOENT)
            return -1;
    if (mnt_mount("proc/sys", "proc/sys", NULL, MS_BIND, NULL) < 0 ||
        mnt_mount(NULL, "proc/sys", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_PLAIN, NULL) < 0)
        return -1;
    return mnt_attach(r->boot_id, "proc/sys/kernel/random/boot_id");
}

int rootfs_child_pivot(void)
{
    if (mnt_pivot_root(".", ".") < 0 || mnt_umount(".", MOUNTAPI_DETACH) < 0)
        return -1;
    return chdir("/");
}

int rootfs_child_devpts(void)
{
    /* The kernel has some 3000 terminals for all sandboxes together: 256 each. */
    return mnt_mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
                     "newinstance,ptmxmode=0666,mode=0620,gid=5,max=256");
}

void rootfs_done(struct rootfs *r)
{
    fd_close(r->overlay);
    fd_close(r->dev);
    fd_close(r->boot_id);
    fd_close(r->cgroup);
    *r = (struct rootfs)ROOTFS_INIT;
}
