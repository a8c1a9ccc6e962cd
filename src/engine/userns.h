/* userns.h - leases of host uid ranges, and user namespaces that map them.
 *
 * Ranges of 65,536 host uids from 1879048192 up to 2147352575, minus /etc/subuid and /etc/subgid,
 * leased in one flock-ed host-wide file (/run/abx/uid-ranges) so that several services share a
 * machine. A range is given out again only when no process has a uid of it.
 *
 * An instance is alive while a process has its struct uid_leases open (a lock in the file, shared by
 * forked copies). When all ranges are held, those of instances that are not, and that no process
 * has a uid of, are taken back: an instance that was down must look with uid_lease_each which ranges
 * it still has.
 */
#pragma once

#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

#define UID_RANGE_SIZE 65536u
#define UID_RANGE_FIRST 1879048192u
#define UID_RANGE_LAST 2147352575u

struct uid_leases;

/* `path` is the lease file (made when missing, with its folder). Leases of `instance` (1 to 55
 * bytes) from before stay its own. FAILED_PRECONDITION when the file is not root's or not ours.
 * Usable by several processes after fork and by one thread of each. */
int uid_leases_open(const char *path, const char *instance, struct uid_leases **ret,
                    struct abx_err *err);
void uid_leases_free(struct uid_leases *l);
DEFINE_CLEANUP(struct uid_leases *, uid_leases_free)
/* RESOURCE_EXHAUSTED when all ranges are held. */
int uid_lease_take(struct uid_leases *l, uid_t *ret_base, struct abx_err *err);
/* Gives back a range of this instance; NOT_FOUND when it holds no such range. */
int uid_lease_release(struct uid_leases *l, uid_t base, struct abx_err *err);
/* Calls `fn` for each range that this instance holds. */
int uid_lease_each(struct uid_leases *l, int (*fn)(void *user, uid_t base), void *user,
                   struct abx_err *err);

/* Ranges in all; slot i is UID_RANGE_FIRST + i * UID_RANGE_SIZE. */
#define UID_RANGE_COUNT ((UID_RANGE_LAST + 1u - UID_RANGE_FIRST) / UID_RANGE_SIZE)

/* Sets `taken[slot]` for each range that a line of subuid(5) `text` overlaps; what is not such a
 * line is skipped, as the tools that read these files do. */
void uid_ranges_mark_subids(struct slice text, bool taken[UID_RANGE_COUNT]);

/* A user namespace that maps 0..65535 to `base`.., for idmapped mounts. fd owned by the caller. */
int userns_open(uid_t base, int *ret_fd, struct abx_err *err);

/* Reads the beginning of /proc/<pid>/status into `to`, with a NUL: names, state and uids are in it. Not
 * the whole: the line of groups behind them is as long as a tenant likes. `procfd` is /proc. 0, or -1
 * with errno. */
#define PROCESS_STATUS_HEAD 1024
int process_status_head(int procfd, const char *pid, char to[PROCESS_STATUS_HEAD]);
