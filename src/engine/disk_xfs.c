/* disk_xfs.c - project quotas of xfs (quotactl_fd, linux/dqblk_xfs.h).
 *
 * The project of an upper is the inode number of its folder: unique as long as the number fits into
 * 32 bits, which xfs keeps to below 1 TiB; a folder beyond that is refused a limit. Everything made
 * below inherits the project.
 */
#include <fcntl.h>
#include <linux/dqblk_xfs.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "engine/disk_internal.h"

#define BLOCK 512u /* unit of xfs quotas */

static int quota(int fd, unsigned op, uint32_t id, void *arg)
{
    return (int)syscall(SYS_quotactl_fd, (unsigned)fd, QCMD(op, PRJQUOTA), id, arg);
}

static bool can_reflink(int fd)
{
    _cleanup_(closep) int from = openat(fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    _cleanup_(closep) int to = openat(fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    return from >= 0 && to >= 0 && fd_write_all(from, "x", 1) == 0 && ioctl(to, FICLONE, from) == 0;
}

bool disk_xfs_is_usable(int fd)
{
    struct fs_quota_statv state = { .qs_version = FS_QSTATV_VERSION1 };

    return quota(fd, Q_XGETQSTATV, 0, &state) == 0 && (state.qs_flags & FS_QUOTA_PDQ_ENFD) &&
           can_reflink(fd);
}

static int project_of(int fd, uint32_t *ret, struct abx_err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(err, errno, "look at the upper");
    if (st.st_ino > UINT32_MAX)
        return err_set(err, ABX_UNIMPLEMENTED,
                       "the upper's inode number needs over 32 bits; mount "
                       "the xfs file system with inode32");
    *ret = (uint32_t)st.st_ino;
    return 0;
}

int disk_xfs_set_limit(int upper_fd, uint64_t limit_bytes, struct abx_err *err)
{
    uint64_t blocks = limit_bytes / BLOCK;
    struct fs_disk_quota q = {
        .d_version = FS_DQUOT_VERSION,
        .d_flags = FS_PROJ_QUOTA,
        .d_fieldmask = FS_DQ_BHARD,
        .d_blk_hardlimit = blocks,
    };
    struct fsxattr attr;
    uint32_t id = 0;
    int r = project_of(upper_fd, &id, err);

    if (r < 0)
        return r;
    if (ioctl(upper_fd, FS_IOC_FSGETXATTR, &attr) < 0)
        return err_sys(err, errno, "read the project of the upper");
    attr.fsx_projid = id;
    attr.fsx_xflags |= FS_XFLAG_PROJINHERIT;
    if (ioctl(upper_fd, FS_IOC_FSSETXATTR, &attr) < 0)
        return err_sys(err, errno, "set the project of the upper");
    q.d_id = id;
    if (quota(upper_fd, Q_XSETQLIM, id, &q) < 0)
        return err_sys(err, errno, "limit project %u", id);
    return 0;
}

int disk_xfs_usage(int upper_fd, uint64_t *ret_bytes, struct abx_err *err)
{
    struct fs_disk_quota q = { 0 };
    uint32_t id = 0;
    int r = project_of(upper_fd, &id, err);

    if (r < 0)
        return r;
    if (quota(upper_fd, Q_XGETQUOTA, id, &q) < 0)
        return err_sys(err, errno, "read the usage of project %u", id);
    *ret_bytes = q.d_bcount * BLOCK;
    return 0;
}
