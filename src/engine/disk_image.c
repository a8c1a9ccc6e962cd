/* disk_image.c - one sparse image with a file system of our own, mounted by loop.
 *
 * The loop device is set to free itself with its last user (autoclear), so nothing is left when
 * the mount goes. After a crash the mount is still there and is used again; a device that still
 * holds the image (mounted in another namespace) is used again too, because two devices over one
 * file would each write their own view of it.
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "engine/disk_internal.h"
#include "engine/mountinfo.h"

#define IMAGE "disk.img"
#define IMAGE_NEW "disk.img.new"
#define MOUNT_DIR "fs"
#define IMAGE_MIN ((uint64_t)256 << 20)
#define MKFS_TIMEOUT_MS 120000
#define LOOP_TRIES 64
#define LOOP_BLOCK 4096u

struct image_type {
    enum disk_kind kind;
    const char *fstype;
    const char *mkfs;
    const char *argv[10]; /* the file's path follows */
    const char *options[3];
};

/* In the order of preference. */
static const struct image_type types[] = {
    { DISK_BTRFS_IMAGE,
      "btrfs",
      "mkfs.btrfs",
      { "mkfs.btrfs", "-q", "-f", "-m", "single" },
      { "discard=async" } },
    { DISK_XFS_IMAGE,
      "xfs",
      "mkfs.xfs",
      { "mkfs.xfs", "-q", "-f", "-m", "reflink=1", "-s", "size=4096" },
      { "prjquota" } },
};

static bool kernel_has(const char *fstype)
{
    /* Loads the module where it is one. */
    _cleanup_(closep) int fs = (int)syscall(SYS_fsopen, fstype, FSOPEN_CLOEXEC);

    return fs >= 0;
}

/* What is in an existing image, by its superblock. */
static const struct image_type *type_of(int fd)
{
    char magic[8];

    if (pread(fd, magic, 8, 65536 + 64) == 8 && memcmp(magic, "_BHRfS_M", 8) == 0)
        return &types[0];
    if (pread(fd, magic, 4, 0) == 4 && memcmp(magic, "XFSB", 4) == 0)
        return &types[1];
    return NULL;
}

int disk_image_size(const char *dir, uint64_t wanted, uint64_t *ret, struct abx_err *err)
{
    bool is_given = wanted != 0;
    struct statvfs st;

    if (statvfs(dir, &st) < 0)
        return err_sys(err, errno, "look at the disk below '%s'", dir);
    if (wanted == 0)
        wanted = (uint64_t)st.f_bavail * st.f_frsize / 5 * 4;
    if (wanted < IMAGE_MIN)
        return err_set(err, ABX_FAILED_PRECONDITION,
                       "the disk image would have %llu MiB, 256 are needed: %s",
                       (unsigned long long)(wanted >> 20),
                       is_given ? "give --disk a larger size"
                                : "make room there or put the data dir on a larger disk");
    *ret = wanted / LOOP_BLOCK * LOOP_BLOCK;
    return 0;
}

static int make_image(struct disk_pool *p, const struct image_type *type, uint64_t size_bytes,
                      struct abx_err *err)
{
    const char *argv[ARRAY_SIZE(type->argv) + 2] = { NULL };
    _cleanup_(closep) int fd = -EBADF;
    char path[PATH_MAX];
    uint64_t size = 0;
    size_t n = 0;
    int r = disk_image_size(p->dir, size_bytes, &size, err);

    if (r < 0)
        return r;
    if (snprintf(path, sizeof path, "%s/%s", p->dir, IMAGE_NEW) >= (int)sizeof path)
        return err_set(err, ABX_INVALID_ARGUMENT, "the path of the data dir is too long");
    fd = openat(p->dir_fd, IMAGE_NEW, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, errno, "make '%s'", path);
    if (ftruncate(fd, (off_t)size) < 0)
        return err_sys(err, errno, "make '%s' with %llu bytes", path, (unsigned long long)size);
    for (; type->argv[n]; n++)
        argv[n] = type->argv[n];
    argv[n] = path;
    r = disk_run_tool(argv, MKFS_TIMEOUT_MS, -EBADF, err);
    /* The name appears only when there is a whole file system behind it. */
    if (r == 0 && (fsync(fd) < 0 || renameat(p->dir_fd, IMAGE_NEW, p->dir_fd, IMAGE) < 0 ||
                   fsync(p->dir_fd) < 0))
        r = err_sys(err, errno, "make '%s'", path);
    if (r < 0)
        (void)unlinkat(p->dir_fd, IMAGE_NEW, 0);
    return r;
}

/* Makes the image with the first kind that this machine can make. */
static int make_any(struct disk_pool *p, uint64_t size_bytes, struct abx_err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        if (disk_has_tool(types[i].mkfs) && kernel_has(types[i].fstype))
            return make_image(p, &types[i], size_bytes, err);
    return err_set(err, ABX_UNIMPLEMENTED,
                   "no mkfs.btrfs (package btrfs-progs) or no btrfs in this kernel, and no xfs");
}

/* Is the loop device bound to the file `st`? */
static bool is_bound_to(int loop_fd, const struct stat *st)
{
    struct loop_info64 info;

    return ioctl(loop_fd, LOOP_GET_STATUS64, &info) == 0 && info.lo_inode == st->st_ino &&
           info.lo_device == st->st_dev;
}

/* Opens the device that holds the image already; -1 when none does. */
static int find_loop(const struct stat *st)
{
    _cleanup_(closedirp) DIR *d = opendir("/sys/block");
    struct dirent *e;

    while (d && (e = readdir(d)) != NULL) {
        char path[PATH_MAX];
        int fd;

        if (strncmp(e->d_name, "loop", 4) != 0)
            continue;
        (void)snprintf(path, sizeof path, "/sys/block/%s/loop", e->d_name);
        if (access(path, F_OK) < 0)
            continue; /* bound to nothing */
        (void)snprintf(path, sizeof path, "/dev/%s", e->d_name);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd >= 0 && is_bound_to(fd, st))
            return fd;
        fd_close(fd);
    }
    return -1;
}

static int open_loop_number(int number)
{
    char path[64];
    int fd;

    (void)snprintf(path, sizeof path, "/dev/loop%d", number);
    fd = open(path, O_RDWR | O_CLOEXEC);
    /* A container's /dev may lack the node. */
    if (fd < 0 && errno == ENOENT && mknod(path, S_IFBLK | 0600, makedev(7, (unsigned)number)) == 0)
        fd = open(path, O_RDWR | O_CLOEXEC);
    return fd;
}

static int bind_loop(int image_fd, const char *name, int *ret_fd, struct abx_err *err)
{
    _cleanup_(closep) int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    struct loop_config config = {
        .fd = (uint32_t)image_fd,
        .block_size = LOOP_BLOCK,
        .info = { .lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO },
    };

    if (control < 0)
        return err_sys(err, errno, "open /dev/loop-control");
    (void)snprintf((char *)config.info.lo_file_name, sizeof config.info.lo_file_name, "%s", name);
    for (int i = 0; i < LOOP_TRIES; i++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        _cleanup_(closep) int fd = number < 0 ? -EBADF : open_loop_number(number);

        if (number < 0)
            return err_sys(err, errno, "get a loop device");
        if (fd < 0)
            return err_sys(err, errno, "open /dev/loop%d", number);
        if (ioctl(fd, LOOP_CONFIGURE, &config) == 0) {
            *ret_fd = TAKE_FD(fd);
            return 0;
        }
        if (errno != EBUSY) /* else another process was faster */
            return err_sys(err, errno, "set up /dev/loop%d", number);
    }
    return err_set(err, ABX_UNAVAILABLE, "every free loop device is taken at once");
}

static int set_option(int fs, const char *option)
{
    char key[32];
    const char *eq = strchr(option, '=');

    if (!eq)
        return (int)syscall(SYS_fsconfig, fs, FSCONFIG_SET_FLAG, option, NULL, 0);
    (void)snprintf(key, sizeof key, "%.*s", (int)(eq - option), option);
    return (int)syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, key, eq + 1, 0);
}

/* Mounts the loop device on <dir>/fs. */
static int mount_loop(struct disk_pool *p, const struct image_type *type, int loop_fd,
                      struct abx_err *err)
{
    _cleanup_(closep) int fs = (int)syscall(SYS_fsopen, type->fstype, FSOPEN_CLOEXEC);
    _cleanup_(closep) int mnt = -EBADF;
    char link[64], device[64];
    ssize_t n;

    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", loop_fd);
    n = readlink(link, device, sizeof device - 1);
    if (n < 0)
        return err_sys(err, errno, "read '%s'", link);
    device[n] = '\0';
    if (fs < 0)
        return err_sys(err, errno, "this kernel has no %s", type->fstype);
    if (syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "source", device, 0) < 0)
        return err_sys(err, errno, "mount %s", device);
    for (size_t i = 0; type->options[i]; i++)
        if (set_option(fs, type->options[i]) < 0)
            return err_sys(err, errno, "%s option '%s'", type->fstype, type->options[i]);
    if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return err_sys(err, errno, "mount the %s image '%s/%s'", type->fstype, p->dir, IMAGE);
    mnt = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC,
                       MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME);
    if (mnt < 0)
        return err_sys(err, errno, "mount the image");
    if (mkdirat(p->dir_fd, MOUNT_DIR, 0700) < 0 && errno != EEXIST)
        return err_sys(err, errno, "make '%s/%s'", p->dir, MOUNT_DIR);
    if (syscall(SYS_move_mount, mnt, "", p->dir_fd, MOUNT_DIR, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return err_sys(err, errno, "mount on '%s/%s'", p->dir, MOUNT_DIR);
    return 0;
}

/* Does the loop device "/dev/loopN" hold a file that has no name any more? sysfs says so. */
static bool is_of_deleted(const char *device)
{
    static const char end[] = " (deleted)\n";
    _cleanup_(buf_done) struct buf b = BUF_INIT(PATH_MAX + sizeof end);
    const char *name = strrchr(device, '/');
    char path[PATH_MAX];

    if (!name || snprintf(path, sizeof path, "/sys/block/%s/loop/backing_file", name + 1) >=
                     (int)sizeof path)
        return false;
    return file_read(AT_FDCWD, path, &b, NULL) == 0 && b.len > sizeof end - 1 &&
           memcmp(buf_data(&b) + b.len - (sizeof end - 1), end, sizeof end - 1) == 0;
}

/* Takes a mount off <dir>/fs that is not of the image beside it. A data dir that was deleted under sandboxes leaves
 * such a one, because what is mounted cannot be deleted. Those that still run have their own ways to its files; the
 * device goes with the last of them. */
static int drop_mount(struct disk_pool *p, const struct mountinfo *m, struct abx_err *err)
{
    if (!is_of_deleted(m->source))
        return err_set(err, ABX_FAILED_PRECONDITION,
                       "'%s' is mounted from %s, but not from the image beside it: unmount it",
                       p->path, m->source);
    if (!p->may_drop)
        return err_set(err, ABX_FAILED_PRECONDITION,
                       "'%s' is mounted from an image that was deleted: start the service again",
                       p->path);
    if (umount2(p->path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
        return err_sys(err, errno, "unmount '%s', whose image was deleted", p->path);
    log_warn("the pool's image was deleted while it was mounted: unmounted", "path", p->path,
             "device", m->source, NULL);
    return 0;
}

/* 1 when <dir>/fs is mounted from our image (NULL: there is none), 0 when nothing is mounted there. */
static int is_mounted(struct disk_pool *p, const struct stat *image, struct abx_err *err)
{
    for (;;) {
        _cleanup_(buf_done) struct buf text = BUF_INIT(MOUNTINFO_MAX);
        _cleanup_(closep) int fd = -EBADF;
        struct mountinfo m;
        int r = mountinfo_read(&text, err);

        if (r < 0)
            return r;
        if (!mountinfo_find(buf_slice(&text), p->path, &m))
            return 0;
        fd = image ? open(m.source, O_RDONLY | O_CLOEXEC) : -EBADF;
        if (fd >= 0 && is_bound_to(fd, image))
            return 1;
        r = drop_mount(p, &m, err);
        if (r < 0)
            return r;
    }
}

/* Makes file, device and file system as large as `wanted` when they are smaller. */
static int grow(struct disk_pool *p, int image_fd, const struct stat *st, uint64_t wanted,
                struct abx_err *err)
{
    _cleanup_(closep) int loop = -EBADF;
    _cleanup_(closep) int fd = -EBADF;

    wanted = wanted / LOOP_BLOCK * LOOP_BLOCK;
    if (wanted <= (uint64_t)st->st_size)
        return 0;
    if (ftruncate(image_fd, (off_t)wanted) < 0)
        return err_sys(err, errno, "grow '%s/%s'", p->dir, IMAGE);
    loop = find_loop(st);
    if (loop < 0 || ioctl(loop, LOOP_SET_CAPACITY, 0) < 0)
        return err_sys(err, errno, "grow the loop device");
    if (p->kind == DISK_XFS_IMAGE)
        return disk_run_tool((const char *[]){ "xfs_growfs", "-d", p->path, NULL }, MKFS_TIMEOUT_MS,
                             -EBADF, err);
    fd = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "open '%s'", p->path);
    return disk_btrfs_grow(fd, err);
}

static int mount_image(struct disk_pool *p, const struct image_type *type, int image_fd,
                       const struct stat *st, struct abx_err *err)
{
    _cleanup_(closep) int loop = find_loop(st);

    if (loop < 0) {
        int r = bind_loop(image_fd, IMAGE, &loop, err);

        if (r < 0)
            return r;
    }
    return mount_loop(p, type, loop, err);
}

static int reserve(struct disk_pool *p, bool is_new_mount, struct abx_err *err)
{
    _cleanup_(closep) int fd = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r;

    if (fd < 0)
        return err_sys(err, errno, "open '%s'", p->path);
    r = disk_btrfs_keep_data(fd, err);
    return r == 0 && is_new_mount ? disk_btrfs_reserve_metadata(fd, err) : r;
}

/* A new image whose kind turns out not to work here is of no use. */
static int open_image(struct disk_pool *p, uint64_t size_bytes, struct abx_err *err)
{
    _cleanup_(closep) int fd = openat(p->dir_fd, IMAGE, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    const struct image_type *type;
    bool is_new_mount;
    struct stat st;
    int r;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, errno, "open '%s/%s'", p->dir, IMAGE);
    type = type_of(fd);
    if (!type)
        return err_set(err, ABX_DATA_LOSS, "'%s/%s' holds no file system of ours", p->dir, IMAGE);
    p->kind = type->kind;
    r = is_mounted(p, &st, err);
    if (r < 0)
        return r;
    is_new_mount = r == 0;
    if (is_new_mount)
        r = mount_image(p, type, fd, &st, err);
    if (r >= 0 && p->kind == DISK_BTRFS_IMAGE)
        r = reserve(p, is_new_mount, err);
    if (r < 0)
        return r;
    return grow(p, fd, &st, size_bytes, err);
}

static int set_path(struct disk_pool *p, struct abx_err *err)
{
    if (snprintf(p->path, sizeof p->path, "%s/%s", p->dir, MOUNT_DIR) >= (int)sizeof p->path)
        return err_set(err, ABX_INVALID_ARGUMENT, "the path of the data dir is too long");
    return 0;
}

int disk_image_check_none(struct disk_pool *p, struct abx_err *err)
{
    int r = set_path(p, err);

    return r < 0 ? r : is_mounted(p, NULL, err);
}

int disk_image_open(struct disk_pool *p, uint64_t size_bytes, struct abx_err *err)
{
    bool is_new = faccessat(p->dir_fd, IMAGE, F_OK, AT_SYMLINK_NOFOLLOW) < 0;
    int r = set_path(p, err);

    if (r < 0)
        return r;
    p->is_image = true;
    if (is_new) {
        r = make_any(p, size_bytes, err);
        if (r < 0)
            return r;
    }
    r = open_image(p, size_bytes, err);
    if (r < 0 && is_new) {
        (void)unlinkat(p->dir_fd, IMAGE, 0);
        return err_wrap(err, ABX_UNIMPLEMENTED, "disk image");
    }
    return r;
}

int disk_image_unmount(struct disk_pool *p, struct abx_err *err)
{
    if (umount2(p->path, UMOUNT_NOFOLLOW) < 0 && errno != EINVAL)
        return err_sys(err, errno, "unmount '%s'", p->path);
    return 0;
}
