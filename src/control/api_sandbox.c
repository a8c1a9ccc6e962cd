/* api_sandbox.c - reading, listing, ending and prolonging sandboxes. What is still being made does not
 * exist yet, what is being killed does not exist any more: only other kills wait for its end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/api_internal.h"
#include "control/listing.h"
#include "e2b/errors.h"

#define CONNECT_V2_S 300
#define REFRESH_S 15
#define RESUME_S 15         /* as the first version of create */
#define KILL_ANSWER_MS 8000 /* a client gets an answer before it gives up */
#define LIST_REPLY_MAX (64u << 20)

/* The visible sandbox of the request's team, NULL after answering 404. */
static struct sandbox *find_visible(struct api_request *rq)
{
    struct sandbox *sb = lifecycle_find(rq->c->lifecycle, rq->id);

    if (sb && sandbox_is_visible(sb) && strcmp(sb->team, rq->team) == 0)
        return sb;
    api_reply_not_found(rq, rq->id);
    return NULL;
}

void api_get(struct api_request *rq)
{
    struct sandbox *sb = find_visible(rq);
    struct render_context c = api_render_context(rq);

    if (sb)
        api_reply(rq, 200, render_detail(&c, sb));
}

/* --- list -------------------------------------------------------------------------------------- */

static int compare_desc(const void *a, const void *b)
{
    return list_compare(*(struct sandbox *const *)a, *(struct sandbox *const *)b, false);
}

static int compare_asc(const void *a, const void *b)
{
    return list_compare(*(struct sandbox *const *)a, *(struct sandbox *const *)b, true);
}

/* All that match, in order; owned by the caller. */
static int collect(struct api_request *rq, const struct list_filter *f, struct sandbox ***ret,
                   size_t *ret_n, struct abx_err *err)
{
    struct lifecycle *l = rq->c->lifecycle;
    struct sandbox **found = calloc(lifecycle_count(l) + 1, sizeof(struct sandbox *)), *sb = NULL;
    const char *template_id = f->template_text[0]
                                  ? templates_find_id(rq->c->templates, slice_str(f->template_text))
                                  : NULL;
    size_t n = 0;

    if (!found)
        return err_oom(err);
    while ((sb = lifecycle_next(l, sb)) != NULL)
        if (strcmp(sb->team, rq->team) == 0 && list_filter_matches(f, sb, template_id))
            found[n++] = sb;
    qsort(found, n, sizeof(struct sandbox *), f->is_ascending ? compare_asc : compare_desc);
    *ret = found;
    *ret_n = n;
    return 0;
}

static void reply_page(struct api_request *rq, const struct list_filter *f, struct sandbox **found,
                       size_t n)
{
    _cleanup_(buf_done) struct buf body = BUF_INIT(LIST_REPLY_MAX);
    _cleanup_(buf_done) struct buf token = BUF_INIT(256);
    struct render_context c = api_render_context(rq);
    json_t *list = json_array();
    struct http1_field fields[2];
    size_t i = 0, taken = 0, n_fields = 0, n_running = 0;
    char total[24];
    struct abx_err err;

    for (size_t k = 0; k < n; k++)
        n_running += strcmp(machine_state(found[k]->state)->shown, "running") == 0;
    while (i < n && !list_is_after_token(f, found[i]))
        i++;
    i += MIN(f->offset, n - i);
    for (; i < n && (f->limit == 0 || taken < f->limit); i++, taken++)
        (void)json_array_append_new(list, render_listed(&c, found[i]));
    (void)snprintf(total, sizeof total, "%zu", n_running);
    fields[n_fields++] = (struct http1_field){ SLICE_LIT("X-Total-Running"), slice_str(total) };
    /* On the last page it must be absent: clients go on as long as it is there. */
    if (i < n && taken > 0 && list_token(&token, found[i - 1], f->is_ascending) == BUF_OK)
        fields[n_fields++] = (struct http1_field){ SLICE_LIT("X-Next-Token"), buf_slice(&token) };
    if (!list || json_array_size(list) != taken) {
        json_decref(list);
        list = NULL;
    }
    if (render_text(list, &body, &err) < 0)
        api_reply_error(rq, &err, RETRY_UNSAID);
    else
        api_reply_text(rq, 200, buf_slice(&body), fields, n_fields);
}

void api_list(struct api_request *rq)
{
    _cleanup_(freep) struct sandbox **found = NULL;
    _cleanup_(list_filter_done) struct list_filter f;
    struct abx_err err;
    size_t n = 0;
    int r = list_filter_parse(http_exchange_head(rq->ex)->query, rq->is_v2, &f, &err);

    if (r == 0)
        r = collect(rq, &f, &found, &n, &err);
    if (r < 0)
        api_reply_error(rq, &err, RETRY_UNSAID);
    else
        reply_page(rq, &f, found, n);
}

/* --- kill -------------------------------------------------------------------------------------- */

static void on_timer_closed(uv_handle_t *h)
{
    api_request_unref(container_of((uv_timer_t *)(void *)h, struct api_request, timer));
}

static void stop_timer(struct api_request *rq)
{
    if (!rq->has_timer)
        return;
    rq->has_timer = false;
    uv_close((uv_handle_t *)&rq->timer, on_timer_closed);
}

static void on_kill_timer(uv_timer_t *t)
{
    struct api_request *rq = container_of(t, struct api_request, timer);
    struct abx_err err;

    (void)err_reason(&err, ABX_REASON_BUSY,
                     "Sandbox \"%s\" is being killed, the engine does not answer yet", rq->id);
    api_reply_error(rq, &err, RETRY_NO);
    stop_timer(rq);
}

static void on_killed(void *user, bool existed)
{
    struct api_request *rq = user;

    if (existed)
        api_reply_empty(rq, 204);
    else
        api_reply_not_found(rq, rq->id);
    stop_timer(rq);
    api_request_unref(rq);
}

static void kill_and_answer(struct api_request *rq, const char *reason)
{
    struct abx_err err;

    api_request_ref(rq);
    if (lifecycle_kill(rq->c->lifecycle, rq->id, reason, on_killed, rq, &err) < 0) {
        api_reply_error(rq, &err, RETRY_UNSAID);
        api_request_unref(rq);
        return;
    }
    (void)uv_timer_init(rq->c->loop, &rq->timer);
    (void)uv_timer_start(&rq->timer, on_kill_timer, KILL_ANSWER_MS, 0);
    rq->has_timer = true;
    api_request_ref(rq);
}

void api_kill(struct api_request *rq)
{
    struct sandbox *sb = lifecycle_find(rq->c->lifecycle, rq->id);

    if (sb && strcmp(sb->team, rq->team) == 0)
        kill_and_answer(rq, "request");
    else
        api_reply_not_found(rq, rq->id);
}

/* --- time -------------------------------------------------------------------------------------- */

static void on_requested(void *user, int status, const struct abx_err *failure)
{
    struct api_request *rq = user;
    struct render_context c = api_render_context(rq);
    struct sandbox *sb;

    if (failure) {
        api_reply_error(rq, failure, failure->reason == ABX_REASON_BUSY ? RETRY_YES : RETRY_NO);
    } else if (status == 204) {
        api_reply_empty(rq, status);
    } else {
        sb = find_visible(rq);
        if (sb)
            api_reply(rq, status, render_sandbox(&c, sb));
    }
    api_request_unref(rq);
}

/* The sandbox of the request's team in any state, NULL after answering 404. */
static struct sandbox *find_any(struct api_request *rq)
{
    struct sandbox *sb = lifecycle_find(rq->c->lifecycle, rq->id);

    if (sb && strcmp(sb->team, rq->team) == 0)
        return sb;
    api_reply_not_found(rq, rq->id);
    return NULL;
}

static void submit(struct api_request *rq, const struct sandbox_request *request)
{
    struct abx_err err;

    api_request_ref(rq);
    if (lifecycle_request(rq->c->lifecycle, rq->id, request, on_requested, rq, &err) < 0)
        on_requested(rq, 0, &err);
}

/* A member of the body in seconds; `fallback` < 0 = it has to be there. */
static int get_seconds(struct api_request *rq, const char *name, int64_t fallback, int64_t *ret,
                       struct abx_err *err)
{
    int r;

    *ret = fallback;
    r = json_get_int(rq->body, name, ret, err);
    if (r == 0 && fallback < 0)
        return err_set(err, ABX_INVALID_ARGUMENT, "Error when parsing request: '%s' is required",
                       name);
    return r < 0 ? r : 0;
}

static int parse_pause(struct api_request *rq, struct sandbox_request *request, struct abx_err *err)
{
    bool memory = true;
    int r = json_get_bool(rq->body, "memory", &memory, err);

    *request = (struct sandbox_request){ .what = EV_PAUSE };
    if (r >= 0)
        r = json_get_bool(rq->body, "requireHealthyGuest", &request->must_be_healthy, err);
    request->drops_memory = !memory;
    return MIN(r, 0);
}

void api_pause(struct api_request *rq)
{
    struct sandbox_request request;
    struct abx_err err;

    if (parse_pause(rq, &request, &err) < 0)
        api_reply_error(rq, &err, RETRY_UNSAID);
    else if (find_any(rq))
        submit(rq, &request);
}

/* connect and resume; `config` as in the request, may be NULL. */
static void wake(struct api_request *rq, enum lifecycle_event what, int64_t timeout_s, bool memory,
                 json_t *config)
{
    submit(rq, &(struct sandbox_request){ .what = what,
                                          .timeout_ms = timeout_s * 1000,
                                          .drops_memory = !memory,
                                          .max_active = rq->c->opts.max_sandboxes,
                                          .config = config });
}

/* What of its configuration says that it pauses, or ends, when its time is over; NULL when out of memory. */
static json_t *make_on_timeout(const struct sandbox *sb, bool pauses)
{
    return json_pack("{s:{s:b,s:s}}", "lifecycle", "autoResume", sandbox_wakes_itself(sb),
                     "onTimeout", pauses ? "pause" : "kill");
}

void api_resume(struct api_request *rq)
{
    struct abx_err err;
    struct sandbox *sb;
    int64_t timeout_s;
    bool memory = true, pauses_itself = false;
    json_t *config = NULL;
    int has_auto = 0;
    int r = get_seconds(rq, "timeout", RESUME_S, &timeout_s, &err);

    if (r == 0)
        r = json_get_bool(rq->body, "memory", &memory, &err);
    if (r >= 0)
        r = has_auto = json_get_bool(rq->body, "autoPause", &pauses_itself, &err);
    if (r >= 0)
        r = timeout_check(timeout_s, rq->c->opts.limits.max_timeout_s, &err);
    if (r < 0) {
        api_reply_error(rq, &err, RETRY_UNSAID);
        return;
    }
    sb = find_any(rq);
    if (!sb)
        return;
    if (has_auto > 0)
        config = make_on_timeout(sb, pauses_itself);
    if (has_auto > 0 && !config) {
        (void)err_oom(&err);
        api_reply_error(rq, &err, RETRY_YES);
        return;
    }
    wake(rq, EV_RESUME, timeout_s, memory, config);
    json_decref(config);
}

void api_connect(struct api_request *rq)
{
    struct abx_err err;
    int64_t timeout_s;
    bool memory = true;
    int r = get_seconds(rq, "timeout", rq->is_v2 ? CONNECT_V2_S : -1, &timeout_s, &err);

    if (r == 0)
        r = json_get_bool(rq->body, "memory", &memory, &err);
    if (r >= 0)
        r = timeout_check(timeout_s, rq->c->opts.limits.max_timeout_s, &err);
    if (r < 0)
        api_reply_error(rq, &err, RETRY_UNSAID);
    else if (find_any(rq))
        wake(rq, EV_CONNECT, timeout_s, memory, NULL);
}

void api_timeout(struct api_request *rq)
{
    struct abx_err err;
    int64_t timeout_s = 0;
    int r = json_get_int(rq->body, "timeout", &timeout_s, &err);

    if (r == 0)
        r = err_set(&err, ABX_INVALID_ARGUMENT,
                    "Error when parsing request: 'timeout' is required");
    if (r > 0 && timeout_s > 0)
        r = timeout_check(timeout_s, rq->c->opts.limits.max_timeout_s, &err);
    if (r < 0)
        api_reply_error(rq, &err, RETRY_UNSAID);
    else if (timeout_s > 0 && find_any(rq))
        submit(rq, &(struct sandbox_request){ EV_EXTEND, timeout_s * 1000 });
    else if (timeout_s <= 0 && find_visible(rq))
        kill_and_answer(rq, "timeout");
}

void api_refresh(struct api_request *rq)
{
    struct abx_err err;
    int64_t duration_s;
    int r = get_seconds(rq, "duration", REFRESH_S, &duration_s, &err);

    if (r == 0)
        r = timeout_check(duration_s, rq->c->opts.limits.max_timeout_s, &err);
    if (r < 0)
        api_reply_error(rq, &err, RETRY_UNSAID);
    else if (find_any(rq))
        submit(rq, &(struct sandbox_request){ EV_REFRESH, duration_s * 1000 });
}
