/* disk_internal.h - what the files of disk*.c share. */
#pragma once

#include <limits.h>
#include <sys/types.h>

#include "engine/disk.h"

#define DISK_NAME_MAX 64 /* bytes of a sandbox id */
#define DISK_WHY_MAX 256

struct disk_pool {
    enum disk_kind kind;
    bool is_image;
    bool may_drop;       /* disk_opts */
    char dir[PATH_MAX];  /* <data-dir>/pool */
    char path[PATH_MAX]; /* where uppers/ and trash/ are */
    char why_plain[DISK_WHY_MAX];
    char why_dead[DISK_WHY_MAX];
    int dir_fd;
    int fd; /* of path */
    int uppers_fd;
    int trash_fd;
    int saved_fd;
};

/* Runs a tool of the system with no input; fails with its last words when it fails, and kills it after
 * timeout_ms. `argv[0]` is looked for in the system's folders only. */
int disk_run_tool(const char *const *argv, int timeout_ms, int stop_fd, struct abx_err *err);
/* The same; `words` gets the first line of what it said, without its end, cut at `size`. */
int disk_ask_tool(const char *const *argv, int timeout_ms, char *words, size_t size,
                  struct abx_err *err);
bool disk_has_tool(const char *name);

/* disk_image.c */
/* Mounts <dir>/disk.img on <dir>/fs, making what is missing; sets kind. UNIMPLEMENTED when this
 * machine can make no image; then nothing is left behind. */
int disk_image_open(struct disk_pool *p, uint64_t size_bytes, struct abx_err *err);
/* Bytes of a new image in the folder `dir` when `wanted` are asked for, 0 = most of what is free there.
 * FAILED_PRECONDITION when that is less than an image needs. */
int disk_image_size(const char *dir, uint64_t wanted, uint64_t *ret, struct abx_err *err);
int disk_image_unmount(struct disk_pool *p, struct abx_err *err);
/* Where there is no image: nothing may be mounted on <dir>/fs. See disk_opts.may_drop. */
int disk_image_check_none(struct disk_pool *p, struct abx_err *err);

/* disk_btrfs.c; `fd` is any folder of the file system */
int disk_btrfs_enable_quota(int fd, bool is_own, struct abx_err *err);
int disk_btrfs_grow(int fd, struct abx_err *err);
int disk_btrfs_create(int dirfd, const char *name, struct abx_err *err);
/* A writable snapshot; data that is not on the disk yet is in it. */
int disk_btrfs_snapshot(int dirfd, int subvol_fd, const char *name, struct abx_err *err);
int disk_btrfs_set_limit(int subvol_fd, uint64_t limit_bytes, struct abx_err *err);
int disk_btrfs_usage(int subvol_fd, uint64_t *ret_bytes, struct abx_err *err);
/* Is the folder a subvolume? */
bool disk_btrfs_is_subvol(int dirfd, const char *name);
/* A new file system has 8 MiB of metadata, and most of that is the kernel's own reserve; more is made
 * when it runs out, which is too late where data took all the rest: then no subvolume can be made or
 * renamed, whatever was freed. This moves what there is (little) into a block group of usual size. */
int disk_btrfs_reserve_metadata(int fd, struct abx_err *err);
/* Writes one block of data that stays, unless it is there or nothing can be written: the kernel refuses to
 * balance data in a file system that holds none and has no room for one more block group of it. */
int disk_btrfs_keep_data(int fd, struct abx_err *err);
/* Starts a commit of the running transaction and returns its number. */
int disk_btrfs_commit(int fd, uint64_t *ret_transaction, struct abx_err *err);
/* Of an image of our own: waits until removed subvolumes are really gone and committed, at most 3 s, and has
 * empty block groups of data given back when metadata needs them. Mounted with discard=async the kernel
 * keeps an emptied group for 10 s more before it can become one of metadata. Does nothing when neither
 * `is_full` nor metadata is short. */
int disk_btrfs_reclaim(int fd, bool is_full, struct abx_err *err);
int disk_btrfs_destroy(int dirfd, const char *name, struct abx_err *err);
/* Drops the quota groups of subvolumes that are gone (kernels before 6.10 keep them). */
int disk_btrfs_prune(int fd, struct abx_err *err);

/* disk.c */
/* INVALID_ARGUMENT: it can't be the name of an upper, or of a mark. */
int disk_check_id(const char *id, struct abx_err *err);
/* The folder of an upper, to be closed by the caller. NOT_FOUND: there is none. FAILED_PRECONDITION: the pool is dead. */
int disk_open_upper(struct disk_pool *p, const char *id, int *ret_fd, struct abx_err *err);

/* disk_xfs.c */
/* Are project quotas enforced and reflinks possible below `fd`? */
bool disk_xfs_is_usable(int fd);
int disk_xfs_set_limit(int upper_fd, uint64_t limit_bytes, struct abx_err *err);
int disk_xfs_usage(int upper_fd, uint64_t *ret_bytes, struct abx_err *err);
