/* api_fork.c - POST /sandboxes/{id}/fork: new sandboxes with the files that one has now (e2b.md 1.4). Its files
 * are copied once, so that all begin alike; then each is created with a copy of that, its own id, tokens
 * and processes. Memory is not copied here: commands do not go on in a fork, and the answer is the same.
 */
#include <stdio.h>
#include <string.h>

#include "control/api_internal.h"
#include "control/create_request.h"

#define COUNT_MAX 100
#define FORK_TIMEOUT_S 300

struct fork {
    struct api_request *rq;
    char from[SANDBOX_ID_SIZE];
    char copy_id[SANDBOX_ID_SIZE];
    int64_t timeout_ms;
    uint32_t frozen_us; /* for so long the one that it is of stood still */
    size_t n, n_left;
    json_t *results; /* in the order of the creates */
};

struct fork_one {
    struct fork *fork;
    size_t at;
};

static void fork_free(struct fork *f)
{
    api_request_unref(f->rq);
    json_decref(f->results);
    free(f);
}

/* The client has gone without its answer: nobody knows of them. */
static void kill_all(struct fork *f)
{
    json_t *result;
    size_t i;

    json_array_foreach(f->results, i, result)
    {
        const char *id =
            json_string_value(json_object_get(json_object_get(result, "sandbox"), "sandboxID"));

        if (id)
            (void)lifecycle_kill(f->rq->c->lifecycle, id, "abandoned", NULL, NULL, NULL);
    }
}

static void fork_end(struct fork *f)
{
    if (!f->rq->ex)
        kill_all(f);
    lifecycle_unkeep(f->rq->c->lifecycle, f->copy_id);
    api_reply(f->rq, 201, json_incref(f->results));
    fork_free(f);
}

static json_t *render_failure(const struct abx_err *failure)
{
    return json_pack("{s:{s:i,s:s}}", "error", "code", err_http_status(failure), "message",
                     failure->msg);
}

static void one_done(struct fork_one *one, json_t *result)
{
    struct fork *f = one->fork;

    if (!result || json_array_set_new(f->results, one->at, result) < 0)
        result = NULL; /* out of memory: null stands there */
    free(one);
    if (--f->n_left == 0)
        fork_end(f);
}

static void on_created(void *user, int status, const char *body, const struct abx_err *failure,
                       bool is_clean)
{
    const struct fork_one *one = user;
    json_t *sandbox;

    (void)status;
    (void)is_clean;
    if (failure) {
        one_done(user, render_failure(failure));
        return;
    }
    sandbox = json_loads(body, 0, NULL);
    one_done(user, sandbox ? json_pack("{s:o,s:I}", "sandbox", sandbox, "frozenUs",
                                       (json_int_t)one->fork->frozen_us)
                           : NULL);
}

static int create_one(struct fork *f, const struct sandbox *from, size_t at, struct abx_err *err)
{
    struct api_request *rq = f->rq;
    struct sandbox_spec spec = {
        .team = from->team,
        .template_id = from->template_id,
        .build_id = from->build_id,
        .digest = from->digest,
        .clone_of = f->copy_id,
        .fork_of = f->from,
        .alias = from->alias,
        .is_secure = from->is_secure,
        .timeout_ms = f->timeout_ms,
        .cpu_count = from->cpu_count,
        .memory_mb = from->memory_mb,
        .disk_mb = from->disk_mb,
        .config = from->config,
        .envs = from->envs,
        .n_envs = from->n_envs,
        .idempotency_key = "",
        .request_hash = "",
        .request_id = rq->request_id,
        .origin = rq->origin,
        .max_active = rq->c->opts.max_sandboxes,
    };
    struct fork_one *one = calloc(1, sizeof(*one));
    char id[SANDBOX_ID_SIZE];
    int r;

    if (!one)
        return err_oom(err);
    *one = (struct fork_one){ f, at };
    r = lifecycle_create(rq->c->lifecycle, &spec, on_created, one, id, err);
    if (r < 0)
        free(one);
    return r;
}

static void on_copied(void *user, int status, const struct abx_err *failure)
{
    struct fork *f = user;
    struct sandbox *from = lifecycle_find(f->rq->c->lifecycle, f->from);
    struct abx_err err;

    (void)status;
    if (!failure && !from) {
        (void)err_reason(&err, ABX_REASON_CONFLICT, "Sandbox \"%s\" was killed meanwhile", f->from);
        failure = &err;
    }
    if (failure) {
        lifecycle_unkeep(f->rq->c->lifecycle, f->copy_id);
        api_reply_error(f->rq, failure, RETRY_NO);
        fork_free(f);
        return;
    }
    f->frozen_us = from->driver_us;
    f->n_left = f->n + 1; /* ours: a create may fail at once */
    for (size_t i = 0; i < f->n; i++)
        if (create_one(f, from, i, &err) < 0) {
            (void)json_array_set_new(f->results, i, render_failure(&err));
            f->n_left--;
        }
    if (--f->n_left == 0)
        fork_end(f);
}

static int parse(struct api_request *rq, int64_t *timeout_s, int64_t *count, struct abx_err *err)
{
    /* Left out in silence, they would leave open what was to be closed. */
    static const char *const inherited[] = { "network", "allow_internet_access",
                                             "allowInternetAccess" };
    int r;

    *timeout_s = FORK_TIMEOUT_S;
    for (size_t i = 0; i < ARRAY_SIZE(inherited); i++)
        if (json_object_get(rq->body, inherited[i]))
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "'%s' is not taken here: a fork begins with its parent's rules, and "
                           "PUT /sandboxes/{id}/network changes them",
                           inherited[i]);
    *count = 1;
    r = json_get_int(rq->body, "timeout", timeout_s, err);
    if (r >= 0)
        r = json_get_int(rq->body, "count", count, err);
    if (r >= 0)
        r = timeout_check(*timeout_s, rq->c->opts.limits.max_timeout_s, err);
    if (r >= 0 && *count < 1)
        r = err_set(err, ABX_INVALID_ARGUMENT, "Count must be at least 1");
    if (r >= 0 && *count > COUNT_MAX)
        r = err_set(err, ABX_INVALID_ARGUMENT, "Count cannot be greater than %d", COUNT_MAX);
    return MIN(r, 0);
}

static struct fork *fork_new(struct api_request *rq, int64_t timeout_s, int64_t count)
{
    struct fork *f = calloc(1, sizeof(*f));
    int r = 0;

    if (!f)
        return NULL;
    f->results = json_array();
    for (int64_t i = 0; i < count && r == 0; i++)
        r = json_array_append_new(f->results, json_null());
    if (!f->results || r < 0) {
        json_decref(f->results);
        free(f);
        return NULL;
    }
    f->rq = rq;
    f->n = (size_t)count;
    f->timeout_ms = timeout_s * 1000;
    memcpy(f->from, rq->id, sizeof(f->from));
    sandbox_id_new(f->copy_id);
    api_request_ref(rq);
    return f;
}

void api_fork(struct api_request *rq)
{
    struct lifecycle *l = rq->c->lifecycle;
    struct sandbox_request request = { .what = EV_COPY };
    struct sandbox *sb = lifecycle_find(l, rq->id);
    int64_t timeout_s, count;
    struct abx_err err;
    struct fork *f;

    if (parse(rq, &timeout_s, &count, &err) < 0) {
        api_reply_error(rq, &err, RETRY_UNSAID);
        return;
    }
    if (!sb || strcmp(sb->team, rq->team) != 0) {
        api_reply_not_found(rq, rq->id);
        return;
    }
    if (sandbox_check_row(sb, true, &err) < 0) {
        api_reply_error(rq, &err, RETRY_UNSAID);
        return;
    }
    f = fork_new(rq, timeout_s, count);
    if (!f || lifecycle_keep(l, f->copy_id, &err) < 0) {
        (void)err_oom(&err);
        api_reply_error(rq, &err, RETRY_YES);
        if (f)
            fork_free(f);
        return;
    }
    memcpy(request.copy_id, f->copy_id, sizeof(request.copy_id));
    if (lifecycle_request(l, rq->id, &request, on_copied, f, &err) < 0)
        on_copied(f, 0, &err);
}
