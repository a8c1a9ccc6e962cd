/* saved.h - which sandboxes outlive their processes: an empty file <pool>/saved/<name>.<sandbox id> for each
 * one that was paused. As long as it is there nobody takes its upper away: no removal of a record, no sweep,
 * no audit, no next engine, not after the machine was started anew either. Being empty it can neither be
 * damaged nor cut short; all else that a start takes comes with the request for it. It stays while the sandbox runs
 * again, until its end: only control knows when a resume has become true, and may be gone when this is to be asked.
 * What ran when its machine stopped is then a stopped one, which control ends.
 *
 * The upper of a paused one bears a mark besides (an extended attribute): whose it is, should the file be gone, and what
 * it held when it was noted, so that files that were taken away meanwhile are missed. A pool that cannot take the mark
 * (full) does without.
 */
#pragma once

#include "engine/disk.h"
#include "engine/record.h"

/* FAILED_PRECONDITION while the pool cannot be used. Not synced: see disk_pool_sync. Its processes do nothing
 * meanwhile, or there are none. */
int saved_add(struct disk_pool *p, const char *name, const char *sandbox_id, struct abx_err *err);
/* It is about to run again, or does: what it holds changes from now on. The file stays. */
void saved_unmark(struct disk_pool *p, const char *name);
/* Missing is fine. */
int saved_remove(struct disk_pool *p, const char *name, const char *sandbox_id,
                 struct abx_err *err);
/* Is the upper `name` to be kept? Also true when that cannot be found out. */
bool saved_has(struct disk_pool *p, const char *name);
/* Is the upper there and, as far as a look can tell, what was noted? `is_mounted`: processes have it mounted, so it has
 * to be the very folder. DATA_LOSS says what is missing. */
int saved_check(struct disk_pool *p, const char *name, bool is_mounted, struct abx_err *err);
/* Calls `fn` for each until it returns other than 0, which is then the result. Nothing to list in a pool
 * that cannot be used. */
int saved_each(struct disk_pool *p, int (*fn)(void *user, const char *name, const char *sandbox_id),
               void *user, struct abx_err *err);
/* Writes the files anew for uppers that bear a mark and have none. `is_other` tells which are not to be looked at. */
int saved_restore(struct disk_pool *p, bool (*is_other)(void *user, const char *name), void *user,
                  struct abx_err *err);
