/* entry.h - what files calls share: entries from messages, request paths; only for src/api. */
#pragma once

#include "abx/files.h"
#include "api/rpc_call.h"
#include "schema/filesystem.pb-c.h"

/* Points into `info`; without its metadata. */
void entry_borrow(const Filesystem__EntryInfo *info, struct abx_entry *ret);
/* Copies into the call's arena. Errors: out of memory. */
int entry_take(abx_call *call, const Filesystem__EntryInfo *info, struct abx_entry *ret,
               struct abx_err *err);

/* "/files?path=..&username=..": `path` NULL = none, `user` as the caller gave it. Into `b`, which the string is borrowed
 * from. Errors: out of memory, over the buffer's limit. */
int files_path(const abx_sandbox *sandbox, const char *path, const char *user, struct buf *b,
               const char **ret, struct abx_err *err);

/* A files request without effect on how it ended otherwise: 404 is ABX_REASON_FILE_NOT_FOUND. */
void files_error(struct abx_err *err);
