/* watch_scan.h - part of watcher.c: watching folders and reading what is in them. */
#pragma once

#include "guest/daemon/watcher.h"

enum watch_scan_kind {
    WATCH_SCAN_FIRST, /* was there when the watch began: nothing is told */
    WATCH_SCAN_MOVED, /* came by rename: what is in it was created here, but not written */
    WATCH_SCAN_NEW,   /* made since: what is in it was made since too */
};

/* Folder `name` of `parent` is to be watched and read; `parent` NULL and name "": the watched folder.
 * What goes wrong goes to w->err. */
void watch_scan_push(struct watcher *w, struct watch_node *parent, const char *name,
                     enum watch_scan_kind kind);
/* Does the one that was pushed last. */
void watch_scan_next(struct watcher *w);
void watch_scan_clear(struct watcher *w);
/* Takes up again what could not be done, now that a rename is known. */
void watch_scan_unpark(struct watcher *w);
/* `node` leaves the tree: so does what was to be done in it. */
void watch_scan_forget(struct watcher *w, const struct watch_node *node);

/* watcher.c's: queues one event, or sets w->err. */
void watcher_tell(struct watcher *w, const struct watch_node *node, const char *name,
                  enum watch_op op);
