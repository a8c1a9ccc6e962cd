/* watcher.h - one watched folder: inotify, the tree of its folders, the queue of changes.
 *
 * Blocking: every function runs in the pool and as the user of the request, one at a time for each
 * watcher. Which changes are told how: e2b.md 4.2. Names are relative to the watched folder, "." is
 * that folder itself. What uploads do with their temporary files (target.h) is told as what it is to
 * the file that they are for.
 *
 * Every folder has a watch before it is read, and what is found in a folder that came to be after the
 * watch began is told as created: nothing made in between is missed (`mkdir -p a/b && touch a/b/f`).
 * What was written to a file in between is told too if its folder was made here; if that came by rename,
 * the file's creation stands for it.
 * Folders that the user may not read, and network mounts below, are told themselves and not looked
 * into. No folder is held open, for the kernel tells the end of a folder when nobody has it any more.
 * The end comes with the watched folder (removed, renamed, unmounted: the last event says which)
 * or with an error: the kernel's queue or ours was full, a limit of inotify was reached.
 */
#pragma once

#include "base/err.h"
#include "guest/daemon/watch_queue.h"
#include "guest/daemon/watch_tree.h"

#define WATCH_RENAMES 16 /* renames whose halves are being read at one time */

struct watch_rename {
    uint32_t cookie;
    int wd;      /* of a folder of ours, -1: a temporary file of an upload */
    bool is_new; /* that one makes a new file */
};

struct watcher {
    const char *path; /* absolute; borrowed like the budget */
    struct watch_budget *budget;
    bool is_recursive;
    bool allow_network;
    int fd; /* inotify, -1 before watcher_open */
    struct watch_tree tree;
    struct watch_queue queue;
    struct buf input; /* read from inotify, not yet looked at */
    struct watch_scan *scans;
    struct watch_scan *parked; /* could not be done yet */
    bool is_last_try;          /* for those, with all events read */
    struct watch_rename renames[WATCH_RENAMES];
    size_t rename_at;
    uint64_t handled;   /* bytes of inotify's that have been looked at */
    size_t n_seen;      /* nodes with names in a window */
    bool is_ready;      /* all that was there is watched */
    bool is_over;       /* nothing comes any more, but what is in the queue */
    struct abx_err err; /* then: why, if not in good order */
};

void watcher_init(struct watcher *w, const char *path, struct watch_budget *budget);

/* Begins to watch. NOT_FOUND, INVALID_ARGUMENT (no folder, a network mount), PERMISSION_DENIED,
 * RESOURCE_EXHAUSTED with the name of the limit. */
int watcher_open(struct watcher *w, struct abx_err *err);

/* Works until there is nothing to do or for about `budget_ns`; true when there is more. */
bool watcher_run(struct watcher *w, int64_t budget_ns);

/* Position in inotify's bytes of all that has happened until now; is all before it in the queue? */
uint64_t watcher_queued(const struct watcher *w);
bool watcher_has_done(const struct watcher *w, uint64_t position);

/* Lets go of inotify early, once is_over; `w->fd` must not be polled any more. */
void watcher_shut(struct watcher *w);

/* Frees everything; `w->fd` must not be polled any more. Any user. */
void watcher_close(struct watcher *w);

/* Is a file system of this statfs(2) type one on which others make changes that inotify is not told? */
bool watch_is_network(long type);
