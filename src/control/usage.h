/* usage.h - what sandboxes use over time: one sample of each that runs every USAGE_EVERY_MS, the newest
 * USAGE_KEPT of them in memory. A service that is started anew begins afresh.
 */
#pragma once

#include <uv.h>

#include "control/lifecycle.h"

#define USAGE_EVERY_MS 5000u
#define USAGE_KEPT 720u /* an hour */

struct usage_sample {
    int64_t time_ms;
    double cpu_pct;        /* of all its processors, 0 to 100 */
    uint64_t memory_bytes; /* without page cache */
    uint64_t cache_bytes;
    uint64_t disk_bytes;
};

/* Of one sandbox; belongs to struct sandbox. */
struct usage_log;
void usage_log_free(struct usage_log *u);
/* Adds what the driver said at `now_ms`. Counters that went back (a start anew) count from zero; nothing
 * is ever negative or over what there is. The log is made when *u is NULL. */
int usage_log_add(struct usage_log **u, const struct sandbox *sb, const struct driver_usage *now,
                  int64_t now_ms, struct abx_err *err);
/* The samples from `start_ms` to `end_ms`, oldest first; calls `each` for them. `u` may be NULL. */
void usage_log_each(const struct usage_log *u, int64_t start_ms, int64_t end_ms,
                    void (*each)(void *user, const struct usage_sample *s), void *user);
/* NULL when there is none. */
const struct usage_sample *usage_log_newest(const struct usage_log *u);

/* The one that asks. */
struct usage;
int usage_new(uv_loop_t *loop, struct lifecycle *l, struct driver *d, struct usage **ret,
              struct abx_err *err);
/* Asks no more; the memory goes with its last answer. NULL is fine. */
void usage_close(struct usage *u);
