/* mountapi.h - the mount system calls, raw: -1 and errno on failure.
 *
 * glibc has the newer ones only since 2.36, and its <sys/mount.h> cannot be included beside the
 * kernel's header; so include this one instead. All are async-signal-safe.
 */
#pragma once

#include <fcntl.h>
#include <linux/mount.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif
#define MOUNTAPI_DETACH 2 /* MNT_DETACH */

static inline int mnt_mount(const char *source, const char *target, const char *type,
                            unsigned long flags, const char *data)
{
    return (int)syscall(SYS_mount, source, target, type, flags, data);
}

static inline int mnt_umount(const char *target, int flags)
{
    return (int)syscall(SYS_umount2, target, flags);
}

static inline int mnt_pivot_root(const char *new_root, const char *put_old)
{
    return (int)syscall(SYS_pivot_root, new_root, put_old);
}

static inline int mnt_open_tree(int dirfd, const char *path, unsigned flags)
{
    return (int)syscall(SYS_open_tree, dirfd, path, flags | OPEN_TREE_CLOEXEC);
}

/* Attaches the detached mount `fd` at `path`; a symlink as its last component is refused. */
static inline int mnt_attach(int fd, const char *path)
{
    return (int)syscall(SYS_move_mount, fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH);
}

/* Sets attributes of the mount `fd`; `userns_fd` counts when MOUNT_ATTR_IDMAP is among them. */
static inline int mnt_set(int fd, uint64_t attributes, int userns_fd)
{
    struct mount_attr a = {
        .attr_set = attributes,
        .userns_fd = attributes & MOUNT_ATTR_IDMAP ? (uint64_t)(unsigned)userns_fd : 0,
    };

    return (int)syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, &a, sizeof a);
}

static inline int mnt_fsopen(const char *type)
{
    return (int)syscall(SYS_fsopen, type, FSOPEN_CLOEXEC);
}

static inline int mnt_fs_string(int fs, const char *key, const char *value)
{
    return (int)syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, key, value, 0);
}

static inline int mnt_fs_flag(int fs, const char *key)
{
    return (int)syscall(SYS_fsconfig, fs, FSCONFIG_SET_FLAG, key, NULL, 0);
}

static inline int mnt_fs_fd(int fs, const char *key, int fd)
{
    return (int)syscall(SYS_fsconfig, fs, FSCONFIG_SET_FD, key, NULL, fd);
}

static inline int mnt_fs_create(int fs)
{
    return (int)syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
}

static inline int mnt_fsmount(int fs, unsigned attributes)
{
    return (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, attributes);
}
