/* userns.h - leases of host uid ranges, and user namespaces that map them.
 *
 * Ranges of 65,536 host uids from 1879048192 up to 2147352575, minus /etc/subuid and /etc/subgid,
 * leased in one flock-ed host-wide file (/run/abx/uid-ranges) so that several services share a
 * machine. A range is given out again only when no process has a uid of it.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"

#define UID_RANGE_SIZE 65536u
#define UID_RANGE_FIRST 1879048192u
#define UID_RANGE_LAST 2147352575u

struct uid_leases;

/* `path` is the lease file (made when missing). Leases of `instance` from before stay its own. */
int uid_leases_open(const char *path, const char *instance, struct uid_leases **ret,
                    struct abx_err *err);
void uid_leases_free(struct uid_leases *l);
DEFINE_CLEANUP(struct uid_leases *, uid_leases_free)
int uid_lease_take(struct uid_leases *l, uid_t *ret_base, struct abx_err *err);
int uid_lease_release(struct uid_leases *l, uid_t base, struct abx_err *err);
/* Calls `fn` for each range that this instance holds. */
int uid_lease_each(struct uid_leases *l, int (*fn)(void *user, uid_t base), void *user,
                   struct abx_err *err);

/* A user namespace that maps 0..65535 to `base`.., for idmapped mounts. fd owned by the caller. */
int userns_open(uid_t base, int *ret_fd, struct abx_err *err);
