/* api_events.c - GET /events/sandboxes and /events/sandboxes/{id}: what happened to sandboxes, with the
 * names of e2b.md 1.10. Events outlive their sandbox by a week (control.c); their `eventData` is ours: the
 * reason of an end, and how long each stage took.
 */
#include <stdio.h>

#include "base/str.h"
#include "control/api_internal.h"
#include "control/listing.h"

#define LIMIT_DEFAULT 10u
#define OFFSET_MAX 1000000u
#define QUERY_MAX 4096u

static json_t *render_event(const struct store_event *e)
{
    char time[RFC3339_SIZE];
    json_t *data = json_loads(e->data, 0, NULL);

    time_format_rfc3339(e->time_ms, time);
    return json_pack("{s:s,s:s,s:s,s:o,s:s,s:s,s:s,s:s,s:s,s:s}", "version", "v1", "id", e->id,
                     "type", e->type, "eventData", data ? data : json_null(), "sandboxBuildId",
                     e->build_id, "sandboxExecutionId", e->execution_id, "sandboxId", e->sandbox_id,
                     "sandboxTeamId", e->team, "sandboxTemplateId", e->template_id, "timestamp",
                     time);
}

static void on_listed(void *user, const struct store_event *events, size_t n,
                      const struct abx_err *failure)
{
    struct api_request *rq = user;
    json_t *list = json_array();
    size_t done = 0;

    while (!failure && done < n && json_array_append_new(list, render_event(&events[done])) == 0)
        done++;
    if (failure) {
        api_reply_error(rq, failure, RETRY_YES);
        json_decref(list);
    } else {
        if (done < n) { /* out of memory: api_reply says so */
            json_decref(list);
            list = NULL;
        }
        api_reply(rq, 200, list);
    }
    api_request_unref(rq);
}

static int parse_number(struct slice value, const char *name, uint64_t min, uint64_t max,
                        uint32_t *ret, struct abx_err *err)
{
    uint64_t v;

    if (!str_parse_u64(value, max, &v) || v < min)
        return err_set(err, ABX_INVALID_ARGUMENT, "Invalid %s: it is a number from %u to %u", name,
                       (unsigned)min, (unsigned)max);
    *ret = (uint32_t)v;
    return 0;
}

static int parse_query(struct slice query, struct store_event_filter *f, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(QUERY_MAX);
    struct slice key, value;
    int r;

    while ((r = query_next(&query, &text, &key, &value)) > 0) {
        if (slice_eq_str(key, "offset"))
            r = parse_number(value, "offset", 0, OFFSET_MAX, &f->offset, err);
        else if (slice_eq_str(key, "limit"))
            r = parse_number(value, "limit", 1, STORE_EVENTS_MAX, &f->limit, err);
        else if (slice_eq_str(key, "orderAsc")) {
            f->is_ascending = slice_eq_str(value, "true");
            if (!f->is_ascending && !slice_eq_str(value, "false"))
                r = err_set(err, ABX_INVALID_ARGUMENT, "Invalid orderAsc: it is true or false");
        }
        if (r < 0)
            return r;
    }
    return r < 0 ? err_set(err, ABX_INVALID_ARGUMENT,
                           "the query is not well percent-encoded, or over %u bytes", QUERY_MAX)
                 : 0;
}

void api_events(struct api_request *rq)
{
    struct store_event_filter filter = { .team = rq->team,
                                         .sandbox_id = rq->id,
                                         .limit = LIMIT_DEFAULT };
    struct abx_err err;

    if (parse_query(http_exchange_head(rq->ex)->query, &filter, &err) < 0) {
        api_reply_error(rq, &err, RETRY_UNSAID);
        return;
    }
    api_request_ref(rq);
    if (store_events(rq->c->store, &filter, on_listed, rq, &err) < 0) {
        api_reply_error(rq, &err, RETRY_YES);
        api_request_unref(rq);
    }
}
