/* usage_sample.h - from the driver's counters of one sandbox to samples, and from samples to text and back. Pure.
 *
 * A counter is never trusted to go on: one that belongs to other processes (a sandbox that started again) or that has
 * become smaller begins anew, so no difference is negative, and every value is cut at what is possible.
 */
#pragma once

#include "base/buf.h"
#include "control/driver.h"

#define USAGE_EVERY_MS 5000
#define USAGE_KEPT_MAX 12 /* samples in one row of the store */

struct usage_sample {
    int64_t time_s;       /* unix time of its bucket, a multiple of 5 s */
    uint32_t cpu;         /* hundredths of a percent of all its CPUs: at most 10000 */
    uint64_t memory_used; /* without cache; bytes, as all below */
    uint64_t memory_cache;
    uint64_t disk_used;
};

/* What samples are parts of. */
struct usage_total {
    uint32_t cpu_count;
    uint32_t memory_mb;
    uint32_t disk_mb; /* 0 = without limit */
};

/* Of one sandbox, in control's memory; all zero at first. */
struct sandbox_usage {
    int64_t started_ms; /* counters as last seen, of the processes that started then */
    uint64_t at_us;
    uint64_t cpu_us;
    uint64_t disk_bytes;
    struct usage_total total;                 /* of the samples below */
    struct usage_sample last;                 /* the newest; time_s 0 = none */
    struct usage_sample kept[USAGE_KEPT_MAX]; /* not written yet, oldest first */
    size_t n_kept;
};

/* Takes in what the driver measured at `now_ms` (wall clock) for the bucket `time_s`. True when `ret` is a sample; false
 * while it is frozen, and when there is nothing yet to compare with. */
bool usage_take(struct sandbox_usage *u, const struct driver_usage *m,
                const struct usage_total *total, int64_t now_ms, int64_t time_s,
                struct usage_sample *ret);

/* One line. */
enum buf_status usage_encode(struct buf *b, const struct usage_sample *s);
/* Takes the next line off `text`; false at its end, and when the rest is damaged. */
bool usage_decode(struct slice *text, struct usage_sample *ret);
/* Appends it as SandboxMetric (e2b.md 1.6). */
enum buf_status usage_put_json(struct buf *b, const struct usage_sample *s,
                               const struct usage_total *total);
