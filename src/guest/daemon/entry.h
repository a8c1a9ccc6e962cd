/* entry.h - EntryInfo messages from what lies in the file system (e2b.md 4.2). Blocking: pool only. */
#pragma once

#include "guest/daemon/users.h"
#include "schema/filesystem.pb-c.h"

#define ENTRY_LIST_MAX 200000 /* entries in one listing */
#define ENTRY_XATTR_PREFIX "user.e2b."

/* Describes `path` (absolute, clean). NOT_FOUND when there is nothing. Owned by the caller:
 * entry_free. */
int entry_make(const struct user_names *names, const char *path, Filesystem__EntryInfo **ret,
               struct abx_err *err);
/* Copy of a name as a protobuf string has to be: what is not UTF-8 becomes U+FFFD, byte by byte. NULL
 * when out of memory. Owned by the caller. */
char *entry_text(const char *s);
void entry_free(Filesystem__EntryInfo *e);

/* Everything below `path` down to `depth` levels, each folder before its contents, names in byte
 * order; symlinks are not followed but for `path` itself. What the user may not see below the first
 * level is left out. NOT_FOUND, INVALID_ARGUMENT (no folder),
 * RESOURCE_EXHAUSTED over ENTRY_LIST_MAX. `ret` is filled in; entry_list_done. */
int entry_list(const struct user_names *names, const char *path, uint32_t depth,
               Filesystem__ListDirResponse *ret, struct abx_err *err);
void entry_list_done(Filesystem__ListDirResponse *l);

/* mkdir -p of an absolute clean path, mode 0755. INVALID_ARGUMENT when a part is no folder. */
int entry_make_dirs(const char *path, struct abx_err *err);
