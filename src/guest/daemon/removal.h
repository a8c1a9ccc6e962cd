/* removal.h - removing what a request names. Blocking: pool only, as the user. */
#pragma once

#include "base/err.h"

/* Removes `name` in `dirfd` with everything below it, contents before folders and each under its own
 * name, so that a watcher is told what goes. Symlinks are not followed and mounts not crossed (one in
 * the tree is an error). Folders deeper than REMOVAL_DEPTH go by path_remove_tree, which moves them.
 * Missing is fine. */
#define REMOVAL_DEPTH 32
int removal_run(int dirfd, const char *name, struct abx_err *err);
