/* rootfs_mount.c - a sandbox's overlay and its other own mounts, made in the spawner.
 *
 * Layers and upper are idmapped clones: on disk their files have the uids that the sandbox sees. The
 * overlay acts with the credentials of whoever mounts it, on an idmapped upper those of the range's
 * base; with the host's root it would fall back to read-only without an error.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "engine/mountapi.h"
#include "engine/netns.h"
#include "engine/rootfs.h"

/* Clones in use for one mount: the layers, then the upper's folder. */
struct layers {
    int fds[SPAWN_LAYERS_MAX];
    size_t n;
    int upper; /* the folder that holds u and w */
};

static void layers_done(struct layers *l)
{
    for (size_t i = 0; i < l->n; i++)
        fd_close(l->fds[i]);
    fd_close(l->upper);
}

/* `given`: a detached mount of it, which is changed then, or -EBADF. */
static int clone_idmapped(const char *path, int given, unsigned attributes, int userns_fd,
                          int *ret_fd, struct abx_err *err)
{
    _cleanup_(closep) int fd = given >= 0 ? fcntl(given, F_DUPFD_CLOEXEC, 0)
                                          : mnt_open_tree(AT_FDCWD, path, OPEN_TREE_CLONE);

    if (fd < 0)
        return err_sys(err, errno, "clone the mount of '%s'", path);
    if (mnt_set(fd, attributes | MOUNT_ATTR_IDMAP, userns_fd) < 0)
        return err_sys(err, errno, "idmap '%s' (its file system has to support that)", path);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int layers_open(const struct spawn_spec *spec, struct layers *l, struct abx_err *err)
{
    for (size_t i = 0; i < spec->n_layers; i++) {
        int given = spec->layer_fds ? spec->layer_fds[i] : -EBADF;
        int r = clone_idmapped(spec->layers[i], given, MOUNT_ATTR_RDONLY, spec->userns_fd,
                               &l->fds[i], err);

        if (r < 0)
            return r;
        l->n++;
    }
    return clone_idmapped(spec->upper, -EBADF, 0, spec->userns_fd, &l->upper, err);
}

/* ---- identity files ---- */

/* A new file in `dirfd`; one that is there is the sandbox's own by now and stays. */
static int write_new(int dirfd, const char *name, const char *text, struct abx_err *err)
{
    _cleanup_(closep) int fd =
        path_open_beneath(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644);

    if (fd < 0 && errno == EEXIST)
        return 0;
    if (fd < 0 || fd_write_all(fd, text, strlen(text)) < 0)
        return err_sys(err, errno, "write '/etc/%s' of the sandbox", name);
    return 0;
}

/* Inside everything is local to the sandbox; whichever address is asked for names, the question ends
 * at the host's steering, so one is made up of the block that nothing else uses. */
#define RESOLV_CONF "nameserver 169.254.0.53\noptions timeout:2 attempts:2\n"

static int write_identity(int upper, const char *hostname, struct abx_err *err)
{
    _cleanup_(closep) int etc = -EBADF;
    char text[512];
    int r;

    if (mkdirat(upper, "u/etc", 0755) < 0 && errno != EEXIST)
        return err_sys(err, errno, "mkdir '/etc' of the sandbox");
    etc = path_open_beneath(upper, "u/etc", O_RDONLY | O_DIRECTORY, 0);
    if (etc < 0 && (errno == ELOOP || errno == ENOTDIR))
        return 0; /* the sandbox put something else there */
    if (etc < 0)
        return err_sys(err, errno, "open '/etc' of the sandbox");
    (void)snprintf(text, sizeof text, "%s\n", hostname);
    r = write_new(etc, "hostname", text, err);
    if (r < 0)
        return r;
    (void)snprintf(text, sizeof text,
                   "127.0.0.1\tlocalhost\n127.0.1.1\t%s\n"
                   "::1\tlocalhost ip6-localhost ip6-loopback\n",
                   hostname);
    r = write_new(etc, "hosts", text, err);
    return r < 0 ? r : write_new(etc, "resolv.conf", RESOLV_CONF, err);
}

/* ---- the overlay ---- */

static int set_common(int fs)
{
    if (mnt_fs_string(fs, "source", "overlay") < 0 ||
        mnt_fs_string(fs, "redirect_dir", "on") < 0 || /* or renaming a template's folder fails */
        mnt_fs_string(fs, "index", "off") < 0 || mnt_fs_string(fs, "metacopy", "off") < 0)
        return -1;
    /* No sync through the overlay: the end of one sandbox would write back the whole pool. */
    return mnt_fs_flag(fs, "volatile");
}

static int set_by_fd(int fs, const struct layers *l)
{
    _cleanup_(closep) int u = openat(l->upper, "u", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    _cleanup_(closep) int w = openat(l->upper, "w", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (u < 0 || w < 0)
        return -1;
    for (size_t i = 0; i < l->n; i++)
        if (mnt_fs_fd(fs, "lowerdir+", l->fds[i]) < 0)
            return -1;
    return mnt_fs_fd(fs, "upperdir", u) < 0 || mnt_fs_fd(fs, "workdir", w) < 0 ? -1 : 0;
}

/* For kernels without the former: attached at /layers/0.. and /layers/u until the overlay is there. */
static int set_by_string(int fs, const struct layers *l)
{
    char lower[SPAWN_LAYERS_MAX * 16] = "";
    size_t n = 0;

    for (size_t i = 0; i < l->n; i++) {
        char path[32];

        (void)snprintf(path, sizeof path, "/layers/%zu", i);
        if ((mkdir(path, 0700) < 0 && errno != EEXIST) || mnt_attach(l->fds[i], path) < 0)
            return -1;
        n += (size_t)snprintf(lower + n, sizeof lower - n, "%s%s", i > 0 ? ":" : "", path);
    }
    if ((mkdir("/layers/u", 0700) < 0 && errno != EEXIST) || mnt_attach(l->upper, "/layers/u") < 0)
        return -1;
    if (mnt_fs_string(fs, "lowerdir", lower) < 0 ||
        mnt_fs_string(fs, "upperdir", "/layers/u/u") < 0)
        return -1;
    return mnt_fs_string(fs, "workdir", "/layers/u/w");
}

/* What the file system says about its failure, for the message. */
static void read_reason(int fs, char *to, size_t size)
{
    ssize_t n = read(fs, to, size - 1);

    to[n > 0 ? n : 0] = '\0';
    to[strcspn(to, "\n")] = '\0';
}

/* What the kernel makes of an overlay when it cannot make a folder in its work folder; only its log says
 * why. A pool without room is the one cause that is no fault of ours. */
static int overlay_read_only(const struct layers *l, struct abx_err *err)
{
    static const char text[] = "the overlay came up read-only";
    struct statvfs st;

    if (mkdirat(l->upper, "w/room", 0700) == 0)
        (void)unlinkat(l->upper, "w/room", AT_REMOVEDIR);
    else if (errno == ENOSPC || errno == EDQUOT)
        return err_sys(err, errno, "%s", text);
    /* Where room for metadata comes and goes the folder may have found some. */
    if (fstatvfs(l->upper, &st) == 0 && st.f_bavail == 0)
        return err_sys(err, ENOSPC, "%s", text);
    return err_set(err, ABX_INTERNAL, "%s (see the kernel's log)", text);
}

static int overlay_try(enum mount_path path, const struct layers *l, int *ret_fd,
                       struct abx_err *err)
{
    _cleanup_(closep) int fs = mnt_fsopen("overlay");
    _cleanup_(closep) int fd = -EBADF;
    struct statvfs st;

    if (fs < 0)
        return err_sys(err, errno, "overlay");
    if (set_common(fs) < 0 || (path == MOUNT_BY_FD ? set_by_fd(fs, l) : set_by_string(fs, l)) < 0 ||
        mnt_fs_create(fs) < 0) {
        int sys = errno;
        char reason[200];

        read_reason(fs, reason, sizeof reason);
        return err_sys(err, sys, "overlay%s%s", reason[0] ? ", " : "", reason);
    }
    fd = mnt_fsmount(fs, MOUNT_ATTR_NODEV);
    if (fd < 0 || fstatvfs(fd, &st) < 0)
        return err_sys(err, errno, "mount the overlay");
    if (st.f_flag & ST_RDONLY)
        return overlay_read_only(l, err);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* The kernel makes no volatile overlay over a file system with a write-back error that nobody was told of
 * (the host's disk was full for a moment, say), and nobody ever would be: sandboxes do not sync. */
static int overlay_make(enum mount_path path, const struct layers *l, int *ret_fd,
                        struct abx_err *err)
{
    struct abx_err why = { 0 };
    int r = overlay_try(path, l, ret_fd, &why);

    if (r < 0 && why.sys == EIO) {
        _cleanup_(closep) int dir = openat(l->upper, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (dir >= 0 && syncfs(dir) < 0)
            log_warn("writes to the pool failed earlier", "error", strerror(errno), NULL);
        r = overlay_try(path, l, ret_fd, &why);
    }
    if (r < 0 && err)
        *err = why;
    return r;
}

/* A volatile overlay refuses an upper that was one before, for data might be missing. The engine
 * syncs what it keeps, and what ran when the machine stopped is not started again. */
static int forget_volatile(int upper, struct abx_err *err)
{
    int r = path_remove_tree(upper, "w/work", err);

    return r < 0 ? err_wrap(err, r, "work folder of the overlay") : 0;
}

static int mount_overlay(enum mount_path path, const struct spawn_spec *spec, int *ret_fd,
                         int64_t *ret_layers_ns, struct abx_err *err)
{
    _cleanup_(layers_done) struct layers l = { .upper = -EBADF };
    _cleanup_(closep) int tree = -EBADF;
    struct timespec now;
    int r = FAULT_STEP("start.layers", err, layers_open(spec, &l, err));

    if (r == 0)
        r = write_identity(l.upper, spec->hostname, err);
    if (r == 0)
        r = forget_volatile(l.upper, err);
    if (r < 0)
        return r;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    *ret_layers_ns = now.tv_sec * NSEC_PER_SEC + now.tv_nsec;
    if (path == MOUNT_BY_FD)
        return FAULT_STEP("start.overlay", err, overlay_make(path, &l, ret_fd, err));
    /* All attached layers go at once with the mount that they are attached in. */
    tree = mnt_open_tree(AT_FDCWD, "/layers", OPEN_TREE_CLONE);
    if (tree < 0 || mnt_attach(tree, "/layers") < 0)
        return err_sys(err, errno, "attach '/layers'");
    r = FAULT_STEP("start.overlay", err, overlay_make(path, &l, ret_fd, err));
    if (mnt_umount("/layers", MOUNTAPI_DETACH) < 0)
        abort(); /* the next sandbox would be made of this one's layers */
    return r;
}

/* ---- the other mounts ---- */

#define BOOT_ID_FILE "/boot/boot_id"

/* A bind of a new file. The one before is unlinked first: it lives on below its own mount, while one
 * that is unlinked already could not be attached. */
static int mount_boot_id(const char *boot_id, int *ret_fd, struct abx_err *err)
{
    _cleanup_(closep) int file = -EBADF;
    _cleanup_(closep) int fd = -EBADF;
    char text[64];
    int n = snprintf(text, sizeof text, "%s\n", boot_id);

    if (unlink(BOOT_ID_FILE) < 0 && errno != ENOENT)
        return err_sys(err, errno, "unlink the last boot id");
    file = open(BOOT_ID_FILE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (file < 0 || n < 0 || fd_write_all(file, text, (size_t)n) < 0)
        return err_sys(err, errno, "write the boot id");
    fd = mnt_open_tree(AT_FDCWD, BOOT_ID_FILE, OPEN_TREE_CLONE);
    if (fd < 0 || mnt_set(fd, MOUNT_ATTR_RDONLY, -EBADF) < 0)
        return err_sys(err, errno, "mount the boot id");
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* /dev with root as owner of its nodes; tmpfs can be idmapped since 6.3, before they are nobody's. */
static int mount_dev(int userns_fd, int *ret_fd, struct abx_err *err)
{
    _cleanup_(closep) int fd = mnt_open_tree(AT_FDCWD, "/shared/dev", OPEN_TREE_CLONE);

    if (fd < 0)
        return err_sys(err, errno, "clone /dev");
    if (mnt_set(fd, MOUNT_ATTR_IDMAP, userns_fd) < 0 && errno != EINVAL)
        return err_sys(err, errno, "idmap /dev");
    *ret_fd = TAKE_FD(fd);
    return 0;
}

struct cgroup_handle {
    struct file_handle head;
    unsigned char bytes[MAX_HANDLE_SZ];
};

/* The group's folder was opened in another mount namespace, where it cannot be cloned from; its file
 * handle leads to the same folder below our own mount. */
static int mount_cgroup(int cgroup_fd, int *ret_fd, struct abx_err *err)
{
    struct cgroup_handle h = { .head.handle_bytes = sizeof h.bytes };
    _cleanup_(closep) int top = -EBADF;
    _cleanup_(closep) int folder = -EBADF;
    int mount_id, fd;

    if (name_to_handle_at(cgroup_fd, "", &h.head, &mount_id, AT_EMPTY_PATH) < 0)
        return err_sys(err, errno, "handle of the sandbox's cgroup");
    top = open("/cgroup", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0)
        return err_sys(err, errno, "open '/cgroup'");
    folder = open_by_handle_at(top, &h.head, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return err_sys(err, errno, "open the sandbox's cgroup");
    fd = mnt_open_tree(folder, "", OPEN_TREE_CLONE | AT_EMPTY_PATH);
    if (fd < 0)
        return err_sys(err, errno, "clone the sandbox's cgroup");
    *ret_fd = fd;
    return 0;
}

static int mount_others(const struct spawn_spec *spec, struct rootfs *made, struct abx_err *err)
{
    int r = mount_dev(spec->userns_fd, &made->dev, err);

    if (r == 0)
        r = mount_boot_id(spec->boot_id, &made->boot_id, err);
    if (r == 0 && spec->cgroup_root_fd >= 0)
        r = mount_cgroup(spec->cgroup_root_fd, &made->cgroup, err);
    return r;
}

int rootfs_mount(enum mount_path path, const struct spawn_spec *spec, struct rootfs *ret,
                 int64_t *ret_layers_ns, struct abx_err *err)
{
    _cleanup_(rootfs_done) struct rootfs made = ROOTFS_INIT;
    int r = mount_overlay(path, spec, &made.overlay, ret_layers_ns, err);

    if (r == 0)
        r = FAULT_STEP("start.mounts", err, mount_others(spec, &made, err));
    if (r < 0)
        return r;
    *ret = made;
    made = (struct rootfs)ROOTFS_INIT;
    return 0;
}

/* ---- probing ---- */

int rootfs_probe(enum mount_path *ret, struct abx_err *err)
{
    _cleanup_(closep) int fs = mnt_fsopen("overlay");
    _cleanup_(closep) int dir = open("/layers", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (fs < 0 || dir < 0)
        return err_sys(err, errno, "overlay");
    *ret = mnt_fs_fd(fs, "lowerdir+", dir) == 0 ? MOUNT_BY_FD : MOUNT_BY_STRING;
    return 0;
}
