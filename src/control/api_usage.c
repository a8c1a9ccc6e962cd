/* api_usage.c - GET /sandboxes/{id}/metrics and GET /sandboxes/metrics (e2b.md 1.6): what sandboxes used, in buckets of
 * 5 s, and the newest bucket of several. Samples outlive their sandbox until their time is over.
 */
#include <string.h>

#include "base/str.h"
#include "control/api_internal.h"
#include "control/listing.h"
#include "control/usage.h"
#include "e2b/errors.h"

#define QUERY_MAX 16384u
#define BODY_MAX (16u << 20)
#define IDS_MAX 100u
#define TIME_MAX 253402300799u /* the last second with four digits for its year */

/* A request that waits for its rows. */
struct reading {
    struct api_request *rq;
    int64_t from_s, to_s;
    bool is_known; /* the sandbox is there: no rows are no error */
};

static void put_row(struct buf *b, const struct reading *w, const struct store_metrics *row)
{
    const struct usage_total total = { row->cpu_count, row->memory_mb, row->disk_mb };
    struct slice text = slice_str(row->samples);
    struct usage_sample s;

    while (usage_decode(&text, &s)) {
        if (s.time_s < w->from_s || s.time_s > w->to_s)
            continue;
        if (b->len > 1)
            (void)buf_append_str(b, ",");
        (void)usage_put_json(b, &s, &total);
    }
}

static void on_read(void *user, const struct store_metrics *rows, size_t n,
                    const struct abx_err *failure)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(BODY_MAX);
    struct reading *w = user;
    struct abx_err err;

    if (failure) {
        api_reply_error(w->rq, failure, RETRY_YES);
    } else if (n == 0 && !w->is_known) {
        api_reply_not_found(w->rq, w->rq->id);
    } else {
        (void)buf_append_str(&b, "[");
        for (size_t i = 0; i < n; i++)
            put_row(&b, w, &rows[i]);
        if (buf_append_str(&b, "]") == BUF_OK) {
            api_reply_text(w->rq, 200, buf_slice(&b), NULL, 0);
        } else {
            (void)err_oom(&err);
            api_reply_error(w->rq, &err, RETRY_YES);
        }
    }
    api_request_unref(w->rq);
    free(w);
}

static int parse_time(struct slice value, const char *name, int64_t *ret, struct abx_err *err)
{
    uint64_t v;

    if (!str_parse_u64(value, TIME_MAX, &v))
        return err_set(err, ABX_INVALID_ARGUMENT, "Invalid %s: it is a unix time in seconds", name);
    *ret = (int64_t)v;
    return 0;
}

static int parse_window(struct slice query, struct reading *w, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(QUERY_MAX);
    struct slice key, value;
    int r;

    w->to_s = (int64_t)TIME_MAX;
    while ((r = query_next(&query, &text, &key, &value)) > 0) {
        if (slice_eq_str(key, "start"))
            r = parse_time(value, "start", &w->from_s, err);
        else if (slice_eq_str(key, "end"))
            r = parse_time(value, "end", &w->to_s, err);
        if (r < 0)
            return r;
    }
    if (r < 0)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "the query is not well percent-encoded, or over %u bytes", QUERY_MAX);
    return w->from_s <= w->to_s
               ? 0
               : err_set(err, ABX_INVALID_ARGUMENT, "Invalid start: it comes after end");
}

/* The sandbox when the request's team may see it, else NULL. */
static struct sandbox *find(const struct api_request *rq, const char *id)
{
    struct sandbox *sb = lifecycle_find(rq->c->lifecycle, id);

    return sb && sandbox_is_visible(sb) && strcmp(sb->team, rq->team) == 0 ? sb : NULL;
}

void api_usage(struct api_request *rq)
{
    struct reading *w = calloc(1, sizeof *w);
    struct store_metrics_filter f = { .team = rq->team, .sandbox_id = rq->id };
    struct sandbox *sb = find(rq, rq->id);
    struct abx_err err;
    int r = w ? parse_window(http_exchange_head(rq->ex)->query, w, &err) : err_oom(&err);

    if (r < 0) {
        free(w);
        api_reply_error(rq, &err, RETRY_UNSAID);
        return;
    }
    w->rq = rq;
    w->is_known = sb != NULL;
    if (sb)
        usage_flush(rq->c->usage, sb); /* written before it is read */
    f.from_ms = w->from_s * 1000;
    f.to_ms = w->to_s * 1000;
    api_request_ref(rq);
    if (store_metrics_read(rq->c->store, &f, on_read, w, &err) == 0)
        return;
    api_reply_error(rq, &err, RETRY_YES);
    api_request_unref(rq);
    free(w);
}

/* --- of several --------------------------------------------------------------------------------- */

struct ids {
    char list[IDS_MAX][SANDBOX_ID_SIZE];
    size_t n;
};

static int take_ids(struct slice value, struct ids *ids, struct abx_err *err)
{
    while (value.n > 0) {
        const uint8_t *comma = memchr(value.p, ',', value.n);
        size_t n = comma ? (size_t)(comma - value.p) : value.n;

        if (ids->n == IDS_MAX)
            return err_set(err, ABX_INVALID_ARGUMENT, "Invalid sandbox_ids: over %u of them",
                           IDS_MAX);
        if (!sandbox_id_parse(slice_of(value.p, n), ids->list[ids->n]))
            return err_set(err, ABX_INVALID_ARGUMENT, "%s", E2B_TEXT_BAD_ID);
        ids->n++;
        value = comma ? slice_of(comma + 1, value.n - n - 1) : slice_of(NULL, 0);
    }
    return 0;
}

static int parse_ids(struct slice query, struct ids *ids, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(QUERY_MAX);
    struct slice key, value;
    int r;

    while ((r = query_next(&query, &text, &key, &value)) > 0) {
        r = slice_eq_str(key, "sandbox_ids") ? take_ids(value, ids, err) : 0;
        if (r < 0)
            return r;
    }
    if (r < 0)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "the query is not well percent-encoded, or over %u bytes", QUERY_MAX);
    return ids->n > 0
               ? 0
               : err_set(err, ABX_INVALID_ARGUMENT, "sandbox_ids is missing: ids separated by ','");
}

static bool is_repeated(const struct ids *ids, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(ids->list[k], ids->list[i]) == 0)
            return true;
    return false;
}

void api_usage_list(struct api_request *rq)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(1u << 20);
    struct ids ids = { .n = 0 };
    struct abx_err err;
    bool is_first = true;

    if (parse_ids(http_exchange_head(rq->ex)->query, &ids, &err) < 0) {
        api_reply_error(rq, &err, RETRY_UNSAID);
        return;
    }
    (void)buf_append_str(&b, "{\"sandboxes\":{");
    for (size_t i = 0; i < ids.n; i++) {
        const struct sandbox *sb = find(rq, ids.list[i]);

        if (!sb || sb->usage.last.time_s == 0 || is_repeated(&ids, i))
            continue;
        (void)buf_printf(&b, "%s\"%s\":", is_first ? "" : ",", sb->id);
        (void)usage_put_json(&b, &sb->usage.last, &sb->usage.total);
        is_first = false;
    }
    if (buf_append_str(&b, "}}") == BUF_OK) {
        api_reply_text(rq, 200, buf_slice(&b), NULL, 0);
        return;
    }
    (void)err_oom(&err);
    api_reply_error(rq, &err, RETRY_YES);
}
