/* disk.h - the pool: where uppers live, with a size limit for each where the file system can.
 *
 * Kinds: the data dir itself when it is btrfs (or xfs with reflink and project quota); else one
 * sparse btrfs (else xfs) image mounted by loop below <data-dir>/pool; else a plain folder without
 * limit. The pool is root 0700, nosuid,nodev where it is a mount of its own.
 *
 *     <pool>/uppers/<id>/{u,w}   <pool>/trash/<random>
 */
#pragma once

#include "base/err.h"

struct disk_pool;

enum disk_kind { DISK_PLAIN, DISK_BTRFS, DISK_BTRFS_IMAGE, DISK_XFS, DISK_XFS_IMAGE };

struct disk_opts {
    const char *data_dir; /* absolute */
    const char *instance;
    uint64_t size_bytes; /* of the image when one is made; 0 = 80 % of what is free, sparse */
};

/* Opens or makes the pool and mounts it if it is an image. Refuses a pool that others can enter. */
int disk_pool_open(const struct disk_opts *opts, struct disk_pool **ret, struct abx_err *err);
/* Forgets the pool; what is mounted stays unless disk_pool_unmount was called. */
void disk_pool_free(struct disk_pool *p);
DEFINE_CLEANUP(struct disk_pool *, disk_pool_free)
int disk_pool_unmount(struct disk_pool *p, struct abx_err *err);
enum disk_kind disk_pool_kind(const struct disk_pool *p);
const char *disk_kind_name(enum disk_kind kind);
bool disk_pool_is_limited(const struct disk_pool *p);
const char *disk_pool_path(const struct disk_pool *p);

/* Makes <pool>/uppers/<id>/{u,w} limited to `limit_bytes` (0 = none). */
int disk_upper_create(struct disk_pool *p, const char *id, uint64_t limit_bytes,
                      struct abx_err *err);
int disk_upper_set_limit(struct disk_pool *p, const char *id, uint64_t limit_bytes,
                         struct abx_err *err);
int disk_upper_usage(struct disk_pool *p, const char *id, uint64_t *ret_bytes, struct abx_err *err);
/* Renames the upper into trash/ (fast); missing is fine. */
int disk_upper_trash(struct disk_pool *p, const char *id, struct abx_err *err);
/* Removes what is in trash/; may take long, run it in a worker. */
int disk_trash_empty(struct disk_pool *p, struct abx_err *err);
int disk_upper_each(struct disk_pool *p, int (*fn)(void *user, const char *id), void *user,
                    struct abx_err *err);
