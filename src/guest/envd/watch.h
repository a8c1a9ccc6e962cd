/* watch.h - WatchDir, CreateWatcher, GetWatcherEvents, RemoveWatcher.
 *
 * At most WATCHES_MAX watchers in a sandbox, streams included. A stream ends with its client, with
 * Connect-Timeout-Ms, after the last event of a watched folder that has gone, or with an error
 * (RESOURCE_EXHAUSTED: changes came faster than they were read). One that is asked by GetWatcherEvents
 * ends by RemoveWatcher or when nobody asks for WATCH_IDLE_S; the request field Abx-Watcher-Idle at its
 * creation sets another time in seconds. Its events are kept until they are asked for, within the
 * bounds of watch_queue.h; after an error every call is answered with that. Watchers end with the
 * daemon: after a crash their ids are NOT_FOUND.
 */
#pragma once

#include "guest/envd/call.h"

#define WATCHES_MAX 64
#define WATCH_IDLE_S 600
#define WATCH_IDLE_MAX_S 86400

/* All watchers of a sandbox. */
struct watches;
int watches_new(struct watches **ret, struct abx_err *err);

void watch_dir_handle(struct call *c);
void watcher_create_handle(struct call *c);
void watcher_events_handle(struct call *c);
void watcher_remove_handle(struct call *c);
