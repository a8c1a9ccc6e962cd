/* usage_sample.c - see usage_sample.h. */
#include "control/usage_sample.h"

#include <inttypes.h>
#include <string.h>

#include "base/str.h"

#define CPU_ALL 10000u

static uint64_t bytes_of(uint32_t mb)
{
    return (uint64_t)mb << 20;
}

/* Over which time how much CPU was used: since the last look, or since the start when that is not long ago. */
static bool find_span(const struct sandbox_usage *u, const struct driver_usage *m, int64_t now_ms,
                      uint64_t *ret_us, uint64_t *ret_used_us)
{
    if (m->started_ms == u->started_ms) {
        if (m->at_us <= u->at_us || m->cpu_us < u->cpu_us)
            return false;
        *ret_us = m->at_us - u->at_us;
        *ret_used_us = m->cpu_us - u->cpu_us;
        return true;
    }
    if (now_ms < m->started_ms || now_ms - m->started_ms > 2 * USAGE_EVERY_MS)
        return false;
    *ret_us = (uint64_t)MAX(now_ms - m->started_ms, INT64_C(1)) * 1000;
    *ret_used_us = m->cpu_us;
    return true;
}

static uint32_t part_of_cpus(uint64_t used_us, uint64_t us, uint32_t cpus)
{
    double part = (double)used_us / ((double)us * MAX(cpus, 1u));

    return part >= 1 ? CPU_ALL : (uint32_t)(part * CPU_ALL + 0.5);
}

bool usage_take(struct sandbox_usage *u, const struct driver_usage *m,
                const struct usage_total *total, int64_t now_ms, int64_t time_s,
                struct usage_sample *ret)
{
    uint64_t memory_max = bytes_of(total->memory_mb), disk_max = bytes_of(total->disk_mb);
    uint64_t used_us = 0, us = 0;
    bool is_sample = !m->is_frozen && find_span(u, m, now_ms, &us, &used_us);
    uint64_t cache = MIN(m->cache_bytes, m->memory_bytes);
    struct usage_sample s = { .time_s = time_s };

    u->started_ms = m->started_ms;
    u->at_us = m->at_us;
    u->cpu_us = m->cpu_us;
    if (m->has_disk)
        u->disk_bytes = m->disk_bytes;
    if (!is_sample)
        return false;
    s.cpu = part_of_cpus(used_us, us, total->cpu_count);
    s.memory_cache = MIN(cache, memory_max);
    s.memory_used = MIN(m->memory_bytes - cache, memory_max);
    s.disk_used = disk_max > 0 ? MIN(u->disk_bytes, disk_max) : u->disk_bytes;
    *ret = s;
    return true;
}

enum buf_status usage_encode(struct buf *b, const struct usage_sample *s)
{
    return buf_printf(b, "%" PRId64 " %" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", s->time_s,
                      s->cpu, s->memory_used, s->memory_cache, s->disk_used);
}

bool usage_decode(struct slice *text, struct usage_sample *ret)
{
    const uint8_t *end = text->n > 0 ? memchr(text->p, '\n', text->n) : NULL;
    struct slice line = slice_of(text->p, end ? (size_t)(end - text->p) : 0);
    uint64_t v[5];

    if (!end)
        return false;
    *text = slice_of(end + 1, text->n - line.n - 1);
    for (size_t i = 0; i < ARRAY_SIZE(v); i++) {
        const uint8_t *space = line.n > 0 ? memchr(line.p, ' ', line.n) : NULL;
        size_t n = space ? (size_t)(space - line.p) : line.n;

        if (!str_parse_u64(slice_of(line.p, n), INT64_MAX, &v[i]))
            return false;
        line = space ? slice_of(space + 1, line.n - n - 1) : slice_of(line.p, 0);
    }
    if (line.n > 0 || v[1] > CPU_ALL)
        return false;
    *ret = (struct usage_sample){ (int64_t)v[0], (uint32_t)v[1], v[2], v[3], v[4] };
    return true;
}

enum buf_status usage_put_json(struct buf *b, const struct usage_sample *s,
                               const struct usage_total *total)
{
    char time[RFC3339_SIZE];

    time_format_rfc3339(s->time_s * 1000, time);
    return buf_printf(
        b,
        "{\"timestamp\":\"%s\",\"timestampUnix\":%" PRId64 ",\"cpuCount\":%" PRIu32
        ",\"cpuUsedPct\":%u.%02u,\"memUsed\":%" PRIu64 ",\"memTotal\":%" PRIu64
        ",\"memCache\":%" PRIu64 ",\"diskUsed\":%" PRIu64 ",\"diskTotal\":%" PRIu64 "}",
        time, s->time_s, total->cpu_count, s->cpu / 100, s->cpu % 100, s->memory_used,
        bytes_of(total->memory_mb), s->memory_cache, s->disk_used, bytes_of(total->disk_mb));
}
