/* disk.h - the pool: where uppers live, with a size limit for each where the file system can.
 *
 * Kinds: the data dir itself when it is btrfs (or xfs with reflink and project quota); else one
 * sparse btrfs (else xfs) image mounted by loop below <data-dir>/pool; else a plain folder without
 * limit. <data-dir>/pool is root 0700, nosuid,nodev where it is a mount of its own.
 *
 *     <pool>/uppers/<id>/{u,w}   <pool>/trash/<random>   <pool>/saved/<id>.<sandbox id> (saved.h)
 *
 * An upper that has changed places with another one (disk_upper_exchange) also has a symbolic link `mark`.
 *
 * <pool>, disk_pool_path(), is <data-dir>/pool/fs for an image (<data-dir>/pool/disk.img), else
 * <data-dir>/pool. Files of the image belong to host root with no mapping: sandboxes see them
 * through idmapped clones. Calls take a millisecond at most unless their comment says otherwise.
 */
#pragma once

#include "base/err.h"

struct disk_pool;

enum disk_kind { DISK_PLAIN, DISK_BTRFS, DISK_BTRFS_IMAGE, DISK_XFS, DISK_XFS_IMAGE };

struct disk_opts {
    const char *data_dir; /* absolute */
    const char *instance;
    /* Of the image: made so large (sparse), grown to it when it is smaller, never shrunk. 0 = as it
     * is, and 80 % of what is free for a new one. */
    uint64_t size_bytes;
    /* Open also what cannot be used: see disk_pool_why_dead. */
    bool may_be_dead;
    /* Nothing uses the pool: an image that is mounted read-only, as the kernel makes it after an error, is
     * mounted anew. */
    bool is_unused;
    /* Of an engine that starts: what is mounted from an image that was deleted meanwhile is unmounted, and a new
     * image made. Else that is an error, as is anything that is mounted there from elsewhere, always. */
    bool may_drop;
};

/* Opens or makes the pool and mounts it if it is an image (once: what is mounted from an earlier
 * run is used). Takes a second for a new image. Refuses a pool that others can enter. With `may_be_dead`
 * it fails for want of memory only. */
int disk_pool_open(const struct disk_opts *opts, struct disk_pool **ret, struct abx_err *err);
/* Forgets the pool; what is mounted stays unless disk_pool_unmount was called. */
void disk_pool_free(struct disk_pool *p);
DEFINE_CLEANUP(struct disk_pool *, disk_pool_free)
/* Waits up to 2 s for what uses the mount, then FAILED_PRECONDITION; without an image there is nothing to do. */
int disk_pool_unmount(struct disk_pool *p, struct abx_err *err);
enum disk_kind disk_pool_kind(const struct disk_pool *p);
const char *disk_kind_name(enum disk_kind kind);
bool disk_pool_is_limited(const struct disk_pool *p);
const char *disk_pool_path(const struct disk_pool *p);
/* Why it is a plain folder and not one of the limited kinds; "" for those. Valid as long as `p`. */
const char *disk_pool_why_plain(const struct disk_pool *p);

/* Why nothing can be made or moved in it, "" when it can: a dead pool has no uppers to list, takes no
 * new ones, and what asks for more than that fails. Valid as long as `p`. */
const char *disk_pool_why_dead(const struct disk_pool *p);

/* Makes <pool>/uppers/<id>/{u,w} limited to `limit_bytes` (0 = none; in a plain folder never). */
int disk_upper_create(struct disk_pool *p, const char *id, uint64_t limit_bytes,
                      struct abx_err *err);
int disk_upper_set_limit(struct disk_pool *p, const char *id, uint64_t limit_bytes,
                         struct abx_err *err);
/* What it takes, without what was written in the last moments (btrfs counts at its commits, at most
 * 30 s apart). UNIMPLEMENTED in a plain folder. */
int disk_upper_usage(struct disk_pool *p, const char *id, uint64_t *ret_bytes, struct abx_err *err);
/* Renames the upper into trash/ (fast); missing is fine. */
int disk_upper_trash(struct disk_pool *p, const char *id, struct abx_err *err);
/* Removes it where it is, for a file system too full to rename anything; may take long. */
int disk_upper_destroy(struct disk_pool *p, const char *id, struct abx_err *err);
/* Under an eighth of it is free, and under 10 GiB. */
bool disk_pool_is_nearly_full(const struct disk_pool *p);
/* Makes the upper `id` with what the upper `from` holds: a snapshot on btrfs, else a copy, by reflinks where there
 * are some, of at most COPY_TIMEOUT_MS. Nothing is left of one that fails. Without a limit of its own yet. A copy
 * is stopped (ABORTED) when `stop_fd` is readable; -EBADF = never. */
int disk_upper_clone(struct disk_pool *p, const char *from, const char *id, int stop_fd,
                     struct abx_err *err);
/* The uppers `id` and `other` change places, whole or not at all, and the one that is `id` then bears `mark` (a file
 * name's worth of text). Has no effect when `id` bears it already. With `only_look` it may not be done.
 * FAILED_PRECONDITION or ABX_REASON_DISK_FULL: it was looked, and is not done. UNAVAILABLE: whether it was done before
 * cannot be said, the pool is dead or the upper cannot be read. Mounts of either go on with what they had. */
int disk_upper_exchange(struct disk_pool *p, const char *id, const char *other, const char *mark,
                        bool only_look, struct abx_err *err);
/* Everything that was written to the pool gets to the disk; takes as long as it takes. */
int disk_pool_sync(struct disk_pool *p, struct abx_err *err);
/* Are the upper and its folders there? DATA_LOSS says what is not. */
int disk_upper_check(struct disk_pool *p, const char *id, struct abx_err *err);
/* Makes what was removed free now and not at the file system's next commit (btrfs: half a minute) when
 * `is_full` or when it has to; takes 3 s at most. */
int disk_pool_reclaim(struct disk_pool *p, bool is_full, struct abx_err *err);
/* Removes what is in trash/; may take long, run it in a worker. */
int disk_trash_empty(struct disk_pool *p, struct abx_err *err);
int disk_upper_each(struct disk_pool *p, int (*fn)(void *user, const char *id), void *user,
                    struct abx_err *err);
