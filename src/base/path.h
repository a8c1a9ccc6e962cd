/* path.h - opening paths that a guest can influence, and removing trees.
 *
 * Everything here is dirfd-relative and uses openat2, so that no symlink, `..` or rename race
 * leaves the given directory.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "base/macro.h"

/* openat2 with RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS. fd, or -1 with errno. */
int path_open_beneath(int dirfd, const char *path, int flags, mode_t mode);

/* mkdir -p below `dirfd` for a relative path without "..": existing folders are fine, symlinks and
 * everything else in the way are an error. With AT_FDCWD an absolute path is taken too: that one is
 * the operator's, symlinks in it are followed. The umask applies to `mode`. */
int path_mkdirs(int dirfd, const char *path, mode_t mode, struct abx_err *err);

/* Removes `name` in `dirfd` with everything below it without following symlinks or crossing mounts
 * (a mount in the tree is an error). Any depth is done with a few open fds and no recursion: folders
 * that are not empty are moved up, so an interrupted removal leaves a flatter tree. The tree may be
 * hostile, but no one may write to it meanwhile. Missing is fine. */
int path_remove_tree(int dirfd, const char *name, struct abx_err *err);

/* Calls fn with the name of each entry of the folder but "." and "..", in no order, until it returns other than 0, which is
 * returned. `what` is the folder's name in errors. */
int path_each(int dirfd, const char *what, int (*fn)(void *user, const char *name), void *user,
              struct abx_err *err);

/* Joins into `to`; false when it does not fit into `size` bytes. */
bool path_join(char *to, size_t size, const char *a, const char *b);
