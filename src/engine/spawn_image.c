/* spawn_image.c - see spawn_image.h. */
#include "engine/spawn_image.h"

#include <stdio.h>
#include <sys/sendfile.h>

#include "base/fd.h"
#include "engine/mountapi.h"

#define IMAGE_NAME "abx-guest"
#define IMAGE_MAX ((off_t)64 << 20)
#define IMAGE_MAX_TEXT "68m" /* with room for the file system's own pages */

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static int make_tmpfs(int *ret_fd, struct abx_err *err)
{
    _cleanup_(closep) int fs = mnt_fsopen("tmpfs");
    int fd;

    if (fs < 0 || mnt_fs_string(fs, "mode", "0555") < 0 ||
        mnt_fs_string(fs, "size", IMAGE_MAX_TEXT) < 0 || mnt_fs_create(fs) < 0)
        return err_sys(err, errno, "tmpfs for the guest image");
    fd = mnt_fsmount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    if (fd < 0)
        return err_sys(err, errno, "mount a tmpfs for the guest image");
    *ret_fd = fd;
    return 0;
}

static int copy(int from, off_t size, int dirfd, struct abx_err *err)
{
    _cleanup_(closep) int to =
        openat(dirfd, IMAGE_NAME, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0555);
    off_t at = 0;

    if (to < 0 || fchmod(to, 0555) < 0)
        return err_sys(err, errno, "create a copy of the guest image");
    while (at < size) {
        ssize_t n = sendfile(to, from, &at, (size_t)(size - at));

        if (n <= 0)
            return err_sys(err, n < 0 ? errno : EIO, "copy the guest image");
    }
    return 0;
}

int spawn_image_load(struct spawn_image *image, int guest_fd, struct abx_err *err)
{
    _cleanup_(closep) int tmpfs = -EBADF;
    _cleanup_(closep) int from = -EBADF;
    char path[64];
    struct stat st;
    int r, fd;

    if (fstat(guest_fd, &st) < 0)
        return err_sys(err, errno, "guest image");
    if (image->fd >= 0 && is_same(&st, &image->source))
        return 0;
    if (!S_ISREG(st.st_mode) || st.st_size > IMAGE_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "the guest image is not a file of up to %lld bytes", (long long)IMAGE_MAX);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", guest_fd);
    from = open(path, O_RDONLY | O_CLOEXEC);
    if (from < 0)
        return err_sys(err, errno, "reopen the guest image");
    r = make_tmpfs(&tmpfs, err);
    if (r == 0)
        r = copy(from, st.st_size, tmpfs, err);
    if (r < 0)
        return r;
    if (mnt_set(tmpfs, MOUNT_ATTR_RDONLY, -EBADF) < 0)
        return err_sys(err, errno, "make the guest image read-only");
    fd = openat(tmpfs, IMAGE_NAME, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "open the copy of the guest image");
    spawn_image_done(image);
    image->fd = fd;
    image->source = st;
    return 0;
}

void spawn_image_done(struct spawn_image *image)
{
    fd_close(image->fd);
    image->fd = -EBADF;
}
