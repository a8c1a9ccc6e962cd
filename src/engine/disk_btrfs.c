/* disk_btrfs.c - subvolumes and quota groups by ioctl (linux/btrfs.h).
 *
 * Each upper is a subvolume; its level-0 quota group has the id of the subvolume. Images of our own
 * get simple quotas where the kernel has them (6.7): they count when an extent is made and need no
 * walk of back references. On a file system that is the host's, full quotas, which older kernels
 * can still mount and `btrfs quota disable` takes away again.
 */
#include <endian.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "engine/disk_internal.h"

#define QUOTA_ENABLE_SIMPLE 4 /* BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA of newer headers */
#define METADATA_MIN ((uint64_t)16 << 20)
#define METADATA_LEFT ((uint64_t)32 << 20) /* one rename has the kernel set 8 MiB aside */
#define RECLAIM_NS ((int64_t)3000000000)
#define RECLAIM_STEP_NS 10000000
#define RECLAIM_STEP_MAX_NS 160000000
#define SPACES_MAX 16u
#define SEARCH_BUF 65536
#define QGROUP_LEVEL(id) ((id) >> BTRFS_QGROUP_LEVEL_SHIFT)

int disk_btrfs_enable_quota(int fd, bool is_own, struct abx_err *err)
{
    struct btrfs_ioctl_quota_ctl_args args = { .cmd = QUOTA_ENABLE_SIMPLE };

    if (is_own && ioctl(fd, BTRFS_IOC_QUOTA_CTL, &args) == 0)
        return 0;
    if (is_own && errno != EINVAL)
        return err_sys(err, errno, "enable btrfs simple quotas");
    args = (struct btrfs_ioctl_quota_ctl_args){ .cmd = BTRFS_QUOTA_CTL_ENABLE };
    if (ioctl(fd, BTRFS_IOC_QUOTA_CTL, &args) < 0)
        return err_sys(err, errno, "enable btrfs quotas");
    return 0;
}

int disk_btrfs_grow(int fd, struct abx_err *err)
{
    struct btrfs_ioctl_vol_args args = { .name = "max" };

    if (ioctl(fd, BTRFS_IOC_RESIZE, &args) < 0)
        return err_sys(err, errno, "grow the btrfs file system");
    return 0;
}

struct space {
    uint64_t total, used; /* bytes: of the block groups, and taken in them */
};

/* All block groups of one type, or the kernel's reserve for BTRFS_SPACE_INFO_GLOBAL_RSV. */
static int space_of(int fd, uint64_t type, struct space *ret, struct abx_err *err)
{
    const uint64_t types = BTRFS_BLOCK_GROUP_TYPE_MASK | BTRFS_SPACE_INFO_GLOBAL_RSV;
    /* args ends in `spaces`, for which the other member has room. */
    union {
        struct btrfs_ioctl_space_args args;
        uint8_t room[sizeof(struct btrfs_ioctl_space_args) +
                     SPACES_MAX * sizeof(struct btrfs_ioctl_space_info)];
    } s = { .args = { .space_slots = SPACES_MAX } };
    const struct btrfs_ioctl_space_info *list = s.args.spaces;

    if (ioctl(fd, BTRFS_IOC_SPACE_INFO, &s) < 0)
        return err_sys(err, errno, "ask for the space of the btrfs file system");
    *ret = (struct space){ 0 };
    for (uint64_t i = 0; i < s.args.total_spaces && i < SPACES_MAX; i++) {
        if ((list[i].flags & types) == type) {
            ret->total += list[i].total_bytes;
            ret->used += list[i].used_bytes;
        }
    }
    return 0;
}

int disk_btrfs_reserve_metadata(int fd, struct abx_err *err)
{
    struct btrfs_ioctl_balance_args args = { .flags = BTRFS_BALANCE_METADATA };
    struct space metadata;
    int r = space_of(fd, BTRFS_BLOCK_GROUP_METADATA, &metadata, err);

    if (r < 0 || metadata.total >= METADATA_MIN)
        return r;
    /* Full already: it stays as it is until a mount finds room. In progress: the kernel goes on by itself
     * with one that a crash cut off. Read-only: a matter of who writes. */
    if (ioctl(fd, BTRFS_IOC_BALANCE_V2, &args) < 0 && errno != ENOSPC && errno != EINPROGRESS &&
        errno != EROFS)
        return err_sys(err, errno, "make room for metadata");
    return 0;
}

static void set_name(struct btrfs_ioctl_vol_args *args, const char *name)
{
    *args = (struct btrfs_ioctl_vol_args){ 0 };
    (void)snprintf(args->name, sizeof args->name, "%s", name);
}

int disk_btrfs_create(int dirfd, const char *name, struct abx_err *err)
{
    struct btrfs_ioctl_vol_args args;

    set_name(&args, name);
    if (ioctl(dirfd, BTRFS_IOC_SUBVOL_CREATE, &args) < 0)
        return err_sys(err, errno, "make subvolume '%s'", name);
    return 0;
}

int disk_btrfs_snapshot(int dirfd, int subvol_fd, const char *name, struct abx_err *err)
{
    struct btrfs_ioctl_vol_args_v2 args = { .fd = subvol_fd };

    (void)snprintf(args.name, sizeof args.name, "%s", name);
    if (ioctl(dirfd, BTRFS_IOC_SNAP_CREATE_V2, &args) < 0)
        return err_sys(err, errno, "snapshot as '%s'", name);
    return 0;
}

int disk_btrfs_set_limit(int subvol_fd, uint64_t limit_bytes, struct abx_err *err)
{
    /* qgroupid 0 is that of the subvolume itself, UINT64_MAX takes the limit away. */
    struct btrfs_ioctl_qgroup_limit_args args = {
        .lim = { .flags = BTRFS_QGROUP_LIMIT_MAX_RFER,
                 .max_rfer = limit_bytes ? limit_bytes : UINT64_MAX },
    };

    if (ioctl(subvol_fd, BTRFS_IOC_QGROUP_LIMIT, &args) < 0)
        return err_sys(err, errno, "limit subvolume");
    return 0;
}

static int subvol_id(int fd, uint64_t *ret, struct abx_err *err)
{
    struct btrfs_ioctl_ino_lookup_args args = { .objectid = BTRFS_FIRST_FREE_OBJECTID };

    if (ioctl(fd, BTRFS_IOC_INO_LOOKUP, &args) < 0)
        return err_sys(err, errno, "look up subvolume");
    *ret = args.treeid;
    return 0;
}

/* Calls fn for each item between the keys of `key`, whose tree, object and type ranges are set. */
static int search(int fd, const struct btrfs_ioctl_search_key *key,
                  int (*fn)(void *user, const struct btrfs_ioctl_search_header *h,
                            const void *item),
                  void *user, struct abx_err *err)
{
    _cleanup_(freep) struct btrfs_ioctl_search_args_v2 *args = calloc(1, sizeof *args + SEARCH_BUF);

    if (!args)
        return err_oom(err);
    args->key = *key;
    args->key.max_transid = UINT64_MAX;
    for (;;) {
        struct btrfs_ioctl_search_header h = { 0 };
        const uint8_t *at = (const uint8_t *)args->buf;

        args->buf_size = SEARCH_BUF;
        args->key.nr_items = 512;
        if (ioctl(fd, BTRFS_IOC_TREE_SEARCH_V2, args) < 0)
            return err_sys(err, errno, "search a btrfs tree");
        if (args->key.nr_items == 0)
            return 0;
        for (uint32_t i = 0; i < args->key.nr_items; i++) {
            int r;

            memcpy(&h, at, sizeof h);
            r = fn(user, &h, at + sizeof h);
            if (r != 0)
                return r;
            at += sizeof h + h.len;
        }
        if (h.offset == UINT64_MAX)
            return 0;
        /* One object and one type per search here: only the offset moves on. */
        args->key.min_offset = h.offset + 1;
    }
}

static struct btrfs_ioctl_search_key key_of(uint64_t tree, uint64_t object, uint32_t type)
{
    return (struct btrfs_ioctl_search_key){ .tree_id = tree,
                                            .min_objectid = object,
                                            .max_objectid = object,
                                            .min_type = type,
                                            .max_type = type,
                                            .max_offset = UINT64_MAX };
}

static int take_referenced(void *user, const struct btrfs_ioctl_search_header *h, const void *item)
{
    struct btrfs_qgroup_info_item info;
    uint64_t *ret = user;

    if (h->len < sizeof info)
        return 0;
    memcpy(&info, item, sizeof info);
    *ret = le64toh(info.rfer);
    return 1;
}

int disk_btrfs_usage(int subvol_fd, uint64_t *ret_bytes, struct abx_err *err)
{
    struct btrfs_ioctl_search_key key = key_of(BTRFS_QUOTA_TREE_OBJECTID, 0, BTRFS_QGROUP_INFO_KEY);
    uint64_t id, bytes = 0;
    int r = subvol_id(subvol_fd, &id, err);

    if (r < 0)
        return r;
    key.min_offset = key.max_offset = id;
    r = search(subvol_fd, &key, take_referenced, &bytes, err);
    if (r < 0)
        return r;
    if (r == 0)
        return err_set(err, ABX_DATA_LOSS, "the subvolume has no quota group");
    *ret_bytes = bytes;
    return 0;
}

bool disk_btrfs_is_subvol(int dirfd, const char *name)
{
    struct stat st;

    return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) &&
           st.st_ino == BTRFS_FIRST_FREE_OBJECTID;
}

int disk_btrfs_destroy(int dirfd, const char *name, struct abx_err *err)
{
    struct btrfs_ioctl_vol_args args;

    set_name(&args, name);
    if (ioctl(dirfd, BTRFS_IOC_SNAP_DESTROY, &args) < 0)
        return err_sys(err, errno, "remove subvolume '%s'", name);
    return 0;
}

/* --- space of what is gone ---------------------------------------------------------------------- */

int disk_btrfs_keep_data(int fd, struct abx_err *err)
{
    static const uint8_t block[4096] = { 1 }; /* a smaller one would lie in metadata */
    _cleanup_(closep) int file =
        openat(fd, "kept", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat st;

    if (file >= 0 && fstat(file, &st) == 0 && st.st_size >= (off_t)sizeof block)
        return 0;
    if (file < 0 || pwrite(file, block, sizeof block, 0) < 0 || fdatasync(file) < 0)
        return errno == ENOSPC || errno == EROFS
                   ? 0
                   : err_sys(err, errno, "write the first block of the pool");
    return 0;
}

static int found_one(void *user, const struct btrfs_ioctl_search_header *h, const void *item)
{
    return 1;
}

int disk_btrfs_commit(int fd, uint64_t *ret_transaction, struct abx_err *err)
{
    /* Wakes the cleaner as well, and writes back no data of sandboxes, as BTRFS_IOC_SYNC would. */
    if (ioctl(fd, BTRFS_IOC_START_SYNC, ret_transaction) < 0)
        return err_sys(err, errno, "commit the btrfs file system");
    return 0;
}

/* Makes sure that there is something to commit: only then does the kernel wake its cleaner. Too full for
 * it: then the kernel has tried a commit itself. */
static int commit_something(int fd, uint64_t *ret_transaction, struct abx_err *err)
{
    if (futimens(fd, NULL) < 0 && errno != ENOSPC)
        return err_sys(err, errno, "touch the pool");
    return disk_btrfs_commit(fd, ret_transaction, err);
}

/* Until the kernel's cleaner is through with all subvolumes that were removed (each has an orphan item
 * until then), and what it freed is committed. One that is still mounted somewhere comes to the cleaner
 * when that mount is gone, and nothing wakes the cleaner then. 1: there are still some. */
static int wait_for_cleaner(int fd, int64_t deadline_ns, struct abx_err *err)
{
    struct btrfs_ioctl_search_key key =
        key_of(BTRFS_ROOT_TREE_OBJECTID, BTRFS_ORPHAN_OBJECTID, BTRFS_ORPHAN_ITEM_KEY);
    struct timespec step = { .tv_nsec = RECLAIM_STEP_NS };
    uint64_t transaction;

    for (;;) {
        int r = commit_something(fd, &transaction, err);

        if (r == 0 && ioctl(fd, BTRFS_IOC_WAIT_SYNC, &transaction) < 0)
            r = err_sys(err, errno, "wait for a commit of the btrfs file system");
        if (r == 0)
            r = search(fd, &key, found_one, NULL, err);
        if (r <= 0 || time_mono_ns() > deadline_ns)
            return r;
        (void)nanosleep(&step, NULL);
        step.tv_nsec = MIN(2 * step.tv_nsec, RECLAIM_STEP_MAX_NS);
    }
}

/* 1 when metadata may run out and could not grow because data has all the rest and does not need it. */
static int is_short_of_metadata(int fd, struct abx_err *err)
{
    struct btrfs_ioctl_dev_info_args device = { .devid = 1 };
    struct space data, metadata, reserve;
    uint64_t left;
    int r = space_of(fd, BTRFS_BLOCK_GROUP_DATA, &data, err);

    if (r == 0)
        r = space_of(fd, BTRFS_BLOCK_GROUP_METADATA, &metadata, err);
    if (r == 0)
        r = space_of(fd, BTRFS_SPACE_INFO_GLOBAL_RSV, &reserve, err);
    if (r < 0)
        return r;
    if (ioctl(fd, BTRFS_IOC_DEV_INFO, &device) < 0)
        return err_sys(err, errno, "ask for the size of the btrfs file system");
    left = metadata.total - metadata.used + device.total_bytes - device.bytes_used;
    return left < reserve.total + METADATA_LEFT && data.total - data.used >= METADATA_LEFT;
}

/* Has empty block groups of data given back. 1: to be tried again. */
static int shrink_data(int fd, struct abx_err *err)
{
    struct btrfs_ioctl_balance_args args = {
        .flags = BTRFS_BALANCE_DATA,
        .data = { .flags = BTRFS_BALANCE_ARGS_USAGE, .usage = 0 },
    };

    if (ioctl(fd, BTRFS_IOC_BALANCE_V2, &args) == 0)
        return 0;
    /* Others are balancing, or there is no room even for this before the next commit. */
    if (errno == EINPROGRESS || errno == ENOSPC)
        return 1;
    return err_sys(err, errno, "give back empty block groups of the btrfs file system");
}

int disk_btrfs_reclaim(int fd, bool is_full, struct abx_err *err)
{
    int64_t deadline_ns = time_mono_ns() + RECLAIM_NS;
    const struct timespec step = { .tv_nsec = RECLAIM_STEP_NS };
    int r = is_short_of_metadata(fd, err);

    if (r < 0 || (r == 0 && !is_full))
        return r;
    r = wait_for_cleaner(fd, deadline_ns, err);
    if (r >= 0)
        r = is_short_of_metadata(fd, err);
    while (r == 1) {
        r = shrink_data(fd, err);
        if (r != 1 || time_mono_ns() > deadline_ns)
            break;
        (void)nanosleep(&step, NULL);
    }
    return MIN(r, 0);
}

#define PRUNE_MAX 1024u

/* BTRFS_QGROUP_STATUS_FLAG_SIMPLE_MODE of newer headers. */
#define QGROUP_STATUS_SIMPLE (1u << 3)

struct stale {
    int fd;
    uint64_t newest; /* subvolume when the search began */
    size_t n;
    uint64_t ids[PRUNE_MAX];
};

static int note_stale(void *user, const struct btrfs_ioctl_search_header *h, const void *item)
{
    struct stale *s = user;
    struct btrfs_ioctl_search_key key =
        key_of(BTRFS_ROOT_TREE_OBJECTID, h->offset, BTRFS_ROOT_ITEM_KEY);
    int r;

    if (QGROUP_LEVEL(h->offset) != 0 || h->offset < BTRFS_FIRST_FREE_OBJECTID ||
        h->offset > s->newest)
        return 0;
    r = search(s->fd, &key, found_one, NULL, NULL);
    if (r < 0)
        return r;
    if (r == 0 && s->n < PRUNE_MAX)
        s->ids[s->n++] = h->offset;
    return s->n == PRUNE_MAX;
}

/* Ids only grow, and uppers are made one at a time (all in one folder). A subvolume in the making has
 * its quota group before it can be found itself, under an id above all that can: such a group must
 * not be taken for one whose subvolume is gone. */
static int find_newest(int fd, uint64_t *ret, struct abx_err *err)
{
    _cleanup_(freep) struct btrfs_ioctl_search_args_v2 *args = calloc(1, sizeof *args + SEARCH_BUF);

    if (!args)
        return err_oom(err);
    args->key = key_of(BTRFS_ROOT_TREE_OBJECTID, BTRFS_FIRST_FREE_OBJECTID, BTRFS_ROOT_ITEM_KEY);
    args->key.max_objectid = BTRFS_LAST_FREE_OBJECTID;
    args->key.max_transid = UINT64_MAX;
    for (*ret = 0;; args->key.min_objectid = *ret + 1) {
        const uint8_t *at = (const uint8_t *)args->buf;

        args->buf_size = SEARCH_BUF;
        args->key.nr_items = 512;
        if (ioctl(fd, BTRFS_IOC_TREE_SEARCH_V2, args) < 0)
            return err_sys(err, errno, "search a btrfs tree");
        if (args->key.nr_items == 0)
            return 0;
        for (uint32_t i = 0; i < args->key.nr_items; i++) {
            struct btrfs_ioctl_search_header h;

            memcpy(&h, at, sizeof h);
            *ret = MAX(*ret, (uint64_t)h.objectid);
            at += sizeof h + h.len;
        }
    }
}

static int take_is_simple(void *user, const struct btrfs_ioctl_search_header *h, const void *item)
{
    struct btrfs_qgroup_status_item status;
    bool *ret = user;

    if (h->len < offsetof(struct btrfs_qgroup_status_item, rescan))
        return 0;
    memcpy(&status, item, offsetof(struct btrfs_qgroup_status_item, rescan));
    *ret = (le64toh(status.flags) & QGROUP_STATUS_SIMPLE) != 0;
    return 1;
}

int disk_btrfs_prune(int fd, struct abx_err *err)
{
    struct btrfs_ioctl_search_key status =
        key_of(BTRFS_QUOTA_TREE_OBJECTID, 0, BTRFS_QGROUP_STATUS_KEY);
    bool is_simple = false;
    struct btrfs_ioctl_search_key key = key_of(BTRFS_QUOTA_TREE_OBJECTID, 0, BTRFS_QGROUP_INFO_KEY);
    _cleanup_(freep) struct stale *s = calloc(1, sizeof *s);
    int r;

    if (!s)
        return err_oom(err);
    s->fd = fd;
    /* Simple quotas: each extent that the cleaner still frees is taken off its group, and the kernel
     * aborts the transaction (the pool turns read-only) when the group is missing. There is no sign
     * from outside that it freed the last one, and newer kernels drop the group themselves. */
    r = search(fd, &status, take_is_simple, &is_simple, err);
    if (r < 0 || is_simple)
        return MIN(r, 0);
    r = find_newest(fd, &s->newest, err);
    if (r < 0)
        return r;
    r = search(fd, &key, note_stale, s, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < s->n; i++) {
        struct btrfs_ioctl_qgroup_create_args args = { .create = 0, .qgroupid = s->ids[i] };

        /* EBUSY while extents of it are still being dropped: the next round takes it. */
        if (ioctl(fd, BTRFS_IOC_QGROUP_CREATE, &args) < 0 && errno != EBUSY && errno != ENOENT)
            return err_sys(err, errno, "drop the quota group of a removed subvolume");
    }
    return 0;
}
