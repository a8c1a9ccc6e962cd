/* usage.h - measuring all sandboxes every 5 s: what GET /sandboxes/{id}/metrics shows.
 *
 * One pass at each multiple of 5 s asks the driver page by page, so a sandbox has its first bucket within 5 s. Samples
 * are written to the store at once while there are few sandboxes, and up to a minute's together when there are many
 * (one row per sandbox and minute instead of twelve); a crash of this process loses those.
 */
#pragma once

#include <uv.h>

#include "control/lifecycle.h"

struct usage;

/* All is borrowed for good. */
int usage_new(uv_loop_t *loop, struct lifecycle *lifecycle, struct driver *driver,
              struct store *store, struct usage **ret, struct abx_err *err);
/* Writes what is not written yet and frees itself from the loop. NULL is fine. */
void usage_close(struct usage *u);
/* Queues what is not written yet of `sb`: before it ends, pauses, or is read. */
void usage_flush(struct usage *u, struct sandbox *sb);
