/* api_usage.c - GET /sandboxes/{id}/metrics and /sandboxes/metrics: what sandboxes use (e2b.md 1.6). */
#include <string.h>

#include "base/str.h"
#include "control/api_internal.h"
#include "control/listing.h"
#include "control/usage.h"

#define IDS_MAX 100u
#define TIME_MAX UINT64_C(32503680000) /* the year 3000, in seconds */
#define QUERY_MAX 8192u

static json_t *render_sample(const struct sandbox *sb, const struct usage_sample *s)
{
    char time[RFC3339_SIZE];

    time_format_rfc3339(s->time_ms, time);
    return json_pack("{s:s,s:I,s:I,s:f,s:I,s:I,s:I,s:I,s:I}", "timestamp", time, "timestampUnix",
                     (json_int_t)(s->time_ms / 1000), "cpuCount", (json_int_t)sb->cpu_count,
                     "cpuUsedPct", s->cpu_pct, "memUsed", (json_int_t)s->memory_bytes, "memTotal",
                     (json_int_t)sb->memory_mb << 20, "memCache", (json_int_t)s->cache_bytes,
                     "diskUsed", (json_int_t)s->disk_bytes, "diskTotal",
                     (json_int_t)sb->disk_mb << 20);
}

struct list {
    const struct sandbox *sb;
    json_t *array;
    bool has_failed;
};

static void add(void *user, const struct usage_sample *s)
{
    struct list *l = user;

    if (json_array_append_new(l->array, render_sample(l->sb, s)) < 0)
        l->has_failed = true;
}

struct span {
    int64_t start_ms, end_ms;
};

static int parse_span(struct slice query, struct span *ret, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(QUERY_MAX);
    struct slice key, value;
    uint64_t v;
    int r;

    *ret = (struct span){ 0, INT64_MAX };
    while ((r = query_next(&query, &text, &key, &value)) > 0) {
        bool is_start = slice_eq_str(key, "start");

        if (!is_start && !slice_eq_str(key, "end"))
            continue;
        if (!str_parse_u64(value, TIME_MAX, &v))
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "Invalid %s: it is a time in seconds since 1970",
                           is_start ? "start" : "end");
        if (is_start)
            ret->start_ms = (int64_t)v * 1000;
        else
            ret->end_ms = (int64_t)v * 1000 + 999;
    }
    if (r < 0)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "the query is not well percent-encoded, or over %u bytes", QUERY_MAX);
    if (ret->start_ms > ret->end_ms)
        return err_set(err, ABX_INVALID_ARGUMENT, "Invalid start: it is after end");
    return 0;
}

static struct sandbox *find(struct api_request *rq, const char *id)
{
    struct sandbox *sb = lifecycle_find(rq->c->lifecycle, id);

    return sb && sandbox_is_visible(sb) && strcmp(sb->team, rq->team) == 0 ? sb : NULL;
}

void api_usage(struct api_request *rq)
{
    struct list l = { .sb = find(rq, rq->id) };
    struct abx_err err;
    struct span span;

    if (!l.sb) {
        api_reply_not_found(rq, rq->id);
        return;
    }
    if (parse_span(http_exchange_head(rq->ex)->query, &span, &err) < 0) {
        api_reply_error(rq, &err, RETRY_UNSAID);
        return;
    }
    l.array = json_array();
    usage_log_each(l.sb->usage, span.start_ms, span.end_ms, add, &l);
    if (l.has_failed) {
        json_decref(l.array);
        l.array = NULL;
    }
    api_reply(rq, 200, l.array);
}

/* The newest sample of each; what is not there, or has none yet, is left out. */
static int add_newest(struct api_request *rq, json_t *to, struct slice ids, struct abx_err *err)
{
    size_t n = 0;

    while (ids.n > 0) {
        const uint8_t *comma = memchr(ids.p, ',', ids.n);
        struct slice one = slice_of(ids.p, comma ? (size_t)(comma - ids.p) : ids.n);
        const struct usage_sample *s;
        struct sandbox *sb;
        char id[SANDBOX_ID_SIZE];

        ids = slice_of(ids.p + one.n + (comma ? 1 : 0), ids.n - one.n - (comma ? 1 : 0));
        if (++n > IDS_MAX)
            return err_set(err, ABX_INVALID_ARGUMENT, "Invalid sandbox_ids: over %u of them",
                           IDS_MAX);
        if (!sandbox_id_parse(one, id))
            return err_set(err, ABX_INVALID_ARGUMENT, "Invalid sandbox_ids: '%.*s' is no id",
                           (int)MIN(one.n, (size_t)40), (const char *)one.p);
        sb = find(rq, id);
        s = sb ? usage_log_newest(sb->usage) : NULL;
        if (s && json_object_set_new(to, id, render_sample(sb, s)) < 0)
            return err_oom(err);
    }
    return 0;
}

void api_usage_list(struct api_request *rq)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(QUERY_MAX);
    struct slice query = http_exchange_head(rq->ex)->query, key, value;
    json_t *found = json_object();
    struct abx_err err;
    bool has_ids = false;
    int r = found ? 0 : err_oom(&err), next = 0;

    while (r == 0 && (next = query_next(&query, &text, &key, &value)) > 0)
        if (slice_eq_str(key, "sandbox_ids")) {
            has_ids = true;
            r = add_newest(rq, found, value, &err);
        }
    if (r == 0 && next < 0)
        r = err_set(&err, ABX_INVALID_ARGUMENT,
                    "the query is not well percent-encoded, or over %u bytes", QUERY_MAX);
    if (r == 0 && !has_ids)
        r = err_set(&err, ABX_INVALID_ARGUMENT, "sandbox_ids is required");
    if (r < 0) {
        json_decref(found);
        api_reply_error(rq, &err, RETRY_UNSAID);
        return;
    }
    api_reply(rq, 200, json_pack("{s:o}", "sandboxes", found));
}
