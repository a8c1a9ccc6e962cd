/* watch_seen.h - names that a scan of a new folder has reported, while the kernel's own word about
 * them may be on its way.
 *
 * A folder is watched first and then read. What came between both is told twice, by the scan and by
 * inotify, unless the second is left out. The window ends at a position in the stream of inotify's
 * bytes: what was queued when the scan ended.
 */
#pragma once

#include "base/buf.h"

struct watch_seen;

/* Empty list; NULL when out of memory. */
struct watch_seen *watch_seen_new(void);
void watch_seen_free(struct watch_seen *s);
/* `is_written`: a write was reported too. False when out of memory. */
bool watch_seen_add(struct watch_seen *s, const char *name, bool is_written);
/* All names are in; the window ends at byte `until`. False when out of memory. */
bool watch_seen_close(struct watch_seen *s, uint64_t until);
bool watch_seen_is_over(const struct watch_seen *s, uint64_t at);

enum watch_seen_what { WATCH_SEEN_CREATE, WATCH_SEEN_WRITE, WATCH_SEEN_GONE };
/* Was this told by the scan already? A name that goes is forgotten: what follows is new. */
bool watch_seen_take(struct watch_seen *s, const char *name, enum watch_seen_what what);
