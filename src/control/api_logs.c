/* api_logs.c - GET /sandboxes/{id}/logs and GET /v2/sandboxes/{id}/logs (e2b.md 1.6): what happened to a sandbox and
 * what it was refused. Lines outlive their sandbox by up to a week.
 *
 * The first version goes forward from `start` (unix ms) and has each line as JSON text, too. The second one has a
 * `cursor` (unix ms, belonging to the page), a direction, a least level and text to look for. Pages have at most 1000
 * lines; who has read up to a line goes on with its time as cursor and leaves out what it knows of that millisecond.
 */
#include <string.h>

#include "base/str.h"
#include "control/api_internal.h"
#include "control/control.h"
#include "control/listing.h"

#define QUERY_MAX 4096u
#define SEARCH_MAX 256u
#define TIME_MAX_MS UINT64_C(253402300799999) /* the last one with four digits for its year */

static const char *const levels[] = {
    [STORE_DEBUG] = "debug",
    [STORE_INFO] = "info",
    [STORE_WARN] = "warn",
    [STORE_ERROR] = "error",
};

/* A request that waits for its lines. */
struct reading {
    struct api_request *rq;
    bool is_known; /* the sandbox is there: no lines are no error */
};

/* --- answers ------------------------------------------------------------------------------------ */

static const char *level_name(enum store_level level)
{
    return (size_t)level < ARRAY_SIZE(levels) ? levels[level] : levels[STORE_ERROR];
}

/* Strings alone, as clients expect; how long stages took is for the events. */
static json_t *render_fields(const struct store_log *log)
{
    json_t *from = json_loads(log->fields, 0, NULL), *to = json_object(), *value;
    const char *name;

    json_object_foreach(from, name, value)
    {
        char *text =
            json_is_string(value) ? NULL : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);

        if (strcmp(name, "stages") != 0)
            (void)json_object_set_new(to, name, text ? json_string(text) : json_incref(value));
        free(text);
    }
    json_decref(from);
    (void)json_object_set_new(to, "logger", json_string(log->logger));
    return to;
}

static json_t *render_entry(const struct store_log *log, const char *time)
{
    return json_pack("{s:s,s:s,s:s,s:o}", "timestamp", time, "message", log->message, "level",
                     level_name(log->level), "fields", render_fields(log));
}

/* The line's text is an object, with everything in it. */
static json_t *render_line(const struct store_log *log, const char *time)
{
    json_t *all = render_fields(log), *line = NULL;
    char *text = NULL;

    if (all && json_object_set_new(all, "level", json_string(level_name(log->level))) == 0 &&
        json_object_set_new(all, "message", json_string(log->message)) == 0 &&
        json_object_set_new(all, "timestamp", json_string(time)) == 0)
        text = json_dumps(all, JSON_COMPACT);
    if (text)
        line = json_pack("{s:s,s:s}", "timestamp", time, "line", text);
    free(text);
    json_decref(all);
    return line;
}

static json_t *render_page(const struct store_log *logs, size_t n, bool is_v2)
{
    json_t *lines = json_array(), *entries = json_array(), *page;
    bool ok = lines && entries;

    for (size_t i = 0; i < n && ok; i++) {
        char time[RFC3339_SIZE];

        time_format_rfc3339(logs[i].time_ms, time);
        ok = json_array_append_new(entries, render_entry(&logs[i], time)) == 0 &&
             (is_v2 || json_array_append_new(lines, render_line(&logs[i], time)) == 0);
    }
    page = !ok     ? NULL
           : is_v2 ? json_pack("{s:O}", "logs", entries)
                   : json_pack("{s:O,s:O}", "logs", lines, "logEntries", entries);
    json_decref(lines);
    json_decref(entries);
    return page; /* NULL: out of memory, which api_reply says */
}

static void on_read(void *user, const struct store_log *logs, size_t n,
                    const struct abx_err *failure)
{
    struct reading *w = user;

    if (failure)
        api_reply_error(w->rq, failure, RETRY_YES);
    else if (n == 0 && !w->is_known)
        api_reply_not_found(w->rq, w->rq->id);
    else
        api_reply(w->rq, 200, render_page(logs, n, w->rq->is_v2));
    api_request_unref(w->rq);
    free(w);
}

/* --- questions ---------------------------------------------------------------------------------- */

static int parse_number(struct slice value, const char *name, uint64_t min, uint64_t max,
                        uint64_t *ret, struct abx_err *err)
{
    if (str_parse_u64(value, max, ret) && *ret >= min)
        return 0;
    return err_set(err, ABX_INVALID_ARGUMENT, "Invalid %s: it is a number from %llu to %llu", name,
                   (unsigned long long)min, (unsigned long long)max);
}

static int parse_level(struct slice value, enum store_level *ret, struct abx_err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(levels); i++)
        if (slice_eq_str(value, levels[i])) {
            *ret = (enum store_level)i;
            return 0;
        }
    return err_set(err, ABX_INVALID_ARGUMENT, "Invalid level: it is debug, info, warn or error");
}

struct question {
    struct store_log_filter filter;
    bool has_cursor;
    uint64_t cursor_ms;
    char search[SEARCH_MAX + 1];
};

static int parse_v2(struct slice key, struct slice value, struct question *q, struct abx_err *err)
{
    struct store_log_filter *f = &q->filter;

    if (slice_eq_str(key, "cursor")) {
        q->has_cursor = true;
        return parse_number(value, "cursor", 0, TIME_MAX_MS, &q->cursor_ms, err);
    }
    if (slice_eq_str(key, "level"))
        return parse_level(value, &f->level, err);
    if (slice_eq_str(key, "direction")) {
        f->is_descending = slice_eq_str(value, "backward");
        return f->is_descending || slice_eq_str(value, "forward")
                   ? 0
                   : err_set(err, ABX_INVALID_ARGUMENT,
                             "Invalid direction: it is forward or backward");
    }
    if (slice_eq_str(key, "search")) {
        if (value.n > SEARCH_MAX || (value.n > 0 && memchr(value.p, '\0', value.n)))
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "Invalid search: it is text of up to %u bytes", SEARCH_MAX);
        memcpy(q->search, value.p, value.n);
        q->search[value.n] = '\0';
    }
    return 0;
}

static int parse_query(struct slice query, bool is_v2, struct question *q, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(QUERY_MAX);
    struct slice key, value;
    uint64_t limit = STORE_LOGS_PAGE;
    int r;

    while ((r = query_next(&query, &text, &key, &value)) > 0) {
        if (slice_eq_str(key, "limit"))
            r = parse_number(value, "limit", 1, STORE_LOGS_PAGE, &limit, err);
        else if (is_v2)
            r = parse_v2(key, value, q, err);
        else if (slice_eq_str(key, "start"))
            r = parse_number(value, "start", 0, TIME_MAX_MS, &q->cursor_ms, err);
        if (r < 0)
            return r;
    }
    q->filter.limit = (uint32_t)limit;
    return r == 0 ? 0
                  : err_set(err, ABX_INVALID_ARGUMENT,
                            "the query is not well percent-encoded, or over %u bytes", QUERY_MAX);
}

void api_logs(struct api_request *rq)
{
    const struct sandbox *sb = lifecycle_find(rq->c->lifecycle, rq->id);
    struct question q = { .filter = { .team = rq->team, .sandbox_id = rq->id } };
    struct store_log_filter *f = &q.filter;
    struct reading *w = calloc(1, sizeof *w);
    int64_t oldest_ms = time_wall_ms() - LOGS_KEPT_MS; /* older ones may be there for a moment */
    struct abx_err err;
    int r = w ? parse_query(http_exchange_head(rq->ex)->query, rq->is_v2, &q, &err) : err_oom(&err);

    if (r < 0) {
        free(w);
        api_reply_error(rq, &err, RETRY_UNSAID);
        return;
    }
    f->search = q.search;
    f->from_ms = f->is_descending ? oldest_ms : MAX((int64_t)q.cursor_ms, oldest_ms);
    f->to_ms = f->is_descending && q.has_cursor ? (int64_t)q.cursor_ms : INT64_MAX;
    w->rq = rq;
    w->is_known = sb && sandbox_is_visible(sb) && strcmp(sb->team, rq->team) == 0;
    api_request_ref(rq);
    if (store_logs_read(rq->c->store, f, on_read, w, &err) == 0)
        return;
    api_reply_error(rq, &err, RETRY_YES);
    api_request_unref(rq);
    free(w);
}
