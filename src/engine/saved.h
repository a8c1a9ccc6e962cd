/* saved.h - which sandboxes outlive their processes: an empty file <pool>/saved/<name>.<sandbox id> for each
 * one that is paused. As long as it is there nobody takes its upper away: no removal of a record, no sweep,
 * no audit, no next engine, not after the machine was started anew either. Being empty it can neither be
 * damaged nor cut short; all else that a start takes comes with the request for it.
 */
#pragma once

#include "engine/disk.h"
#include "engine/record.h"

/* FAILED_PRECONDITION while the pool cannot be used. Not synced: see disk_pool_sync. */
int saved_add(struct disk_pool *p, const char *name, const char *sandbox_id, struct abx_err *err);
/* Missing is fine. */
int saved_remove(struct disk_pool *p, const char *name, const char *sandbox_id,
                 struct abx_err *err);
/* Is the upper `name` to be kept? Also true when that cannot be found out. */
bool saved_has(struct disk_pool *p, const char *name);
/* Calls `fn` for each until it returns other than 0, which is then the result. Nothing to list in a pool
 * that cannot be used. */
int saved_each(struct disk_pool *p, int (*fn)(void *user, const char *name, const char *sandbox_id),
               void *user, struct abx_err *err);
