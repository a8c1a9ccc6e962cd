/* api_create.c - POST /sandboxes and /v2/sandboxes: checks, the template, the create and its answer.
 * A template that is not known, or whose build the driver does not have any more, is asked for once
 * more before the answer is no.
 */
#include <stdio.h>
#include <string.h>

#include "control/api_internal.h"
#include "control/snapshots.h"

#define TEMPLATES_FRESH_MS 2000

static void start(struct api_request *rq);

static void on_refreshed(void *user, const struct abx_err *failure)
{
    struct api_request *rq = user;

    if (failure)
        api_reply_error(rq, failure, RETRY_YES);
    else if (rq->ex)
        start(rq);
    api_request_unref(rq);
}

/* Asks the driver for its templates, then starts again; once per request. */
static bool refresh(struct api_request *rq)
{
    struct abx_err err = { 0 };

    if (rq->tries++ > 0)
        return false;
    api_request_ref(rq);
    if (templates_refresh(rq->c->templates, on_refreshed, rq, &err) == 0)
        return true;
    (void)err_reason(&err, ABX_REASON_BUSY, "the engine is being restarted, try again");
    api_reply_error(rq, &err, RETRY_YES);
    api_request_unref(rq);
    return true;
}

static void on_created(void *user, int status, const char *body, const struct abx_err *failure,
                       bool is_clean)
{
    struct api_request *rq = user;
    struct abx_err err;

    if (!failure) {
        api_reply_text(rq, status, slice_str(body), NULL, 0);
    } else if (failure->code == ABX_NOT_FOUND && failure->reason == ABX_REASON_NONE && rq->ex) {
        /* The build went away after we last asked. */
        if (!refresh(rq)) {
            (void)err_set(&err, ABX_NOT_FOUND, "template '%.128s' not found",
                          rq->create.template_text);
            api_reply_error(rq, &err, RETRY_UNSAID);
        }
    } else {
        /* Nothing is left of a create that failed, whoever asks again gets a new one. */
        api_reply_error(rq, failure,
                        failure->code == ABX_UNAVAILABLE ||
                                (is_clean && failure->code != ABX_RESOURCE_EXHAUSTED)
                            ? RETRY_YES
                            : RETRY_NO);
    }
    api_request_unref(rq);
}

/* The environment as a list; freed by the caller. NULL when out of memory. */
static struct driver_env *list_envs(const struct create_request *req, size_t *ret_n)
{
    struct driver_env *envs = calloc(json_object_size(req->envs) + 1, sizeof(*envs));
    const char *name;
    json_t *value;
    size_t n = 0;

    if (!envs)
        return NULL;
    json_object_foreach((json_t *)(uintptr_t)req->envs, name, value)
    {
        envs[n].name = name;
        envs[n++].value = json_string_value(value);
    }
    *ret_n = n;
    return envs;
}

/* `snapshot` instead of the template, or NULL. */
static int submit(struct api_request *rq, const struct template_entry *t,
                  const struct snapshot *snapshot, struct abx_err *err)
{
    const struct create_request *req = &rq->create;
    size_t n_envs = 0;
    _cleanup_(freep) struct driver_env *envs = list_envs(req, &n_envs);
    struct sandbox_spec spec = {
        .team = rq->team,
        .template_id = t ? t->id : snapshot->id,
        .build_id = t ? t->build_id : snapshot->build_id,
        .digest = t ? t->digest : snapshot->digest,
        .clone_of = t ? NULL : snapshot->id,
        .alias = t                   ? t->name
                 : snapshot->name[0] ? snapshot->name
                                     : snapshot->alias,
        .is_secure = req->is_secure,
        .timeout_ms = req->timeout_s * 1000,
        .cpu_count = req->cpu_count,
        .memory_mb = req->memory_mb,
        /* What is in it has to fit. */
        .disk_mb = t ? req->disk_mb : MAX(req->disk_mb, snapshot->disk_mb),
        .config = req->config,
        .envs = envs,
        .n_envs = n_envs,
        .idempotency_key = rq->idempotency_key,
        .request_hash = rq->request_hash,
        .request_id = rq->request_id,
        .origin = rq->origin,
        .max_active = rq->c->opts.max_sandboxes,
    };
    int r;

    if (!envs || json_object_set_new(req->config, "key", json_string(rq->key_id)) < 0)
        return err_oom(err);
    api_request_ref(rq);
    r = lifecycle_create(rq->c->lifecycle, &spec, on_created, rq, rq->id, err);
    if (r < 0)
        api_request_unref(rq);
    return r;
}

static void start(struct api_request *rq)
{
    const struct snapshot *snapshot =
        snapshots_find(rq->c->snapshots, rq->team, rq->create.template_text);
    const struct template_entry *t = NULL;
    struct abx_err err;
    int r = snapshot ? 0
                     : templates_resolve(rq->c->templates, slice_str(rq->create.template_text), &t,
                                         &err);

    if (r == ABX_NOT_FOUND && refresh(rq))
        return;
    if (r == 0)
        r = submit(rq, t, snapshot, &err);
    if (r < 0) {
        api_reply_error(rq, &err, err.reason == ABX_REASON_BUSY ? RETRY_YES : RETRY_NO);
        return;
    }
    /* A rebuilt template is taken up within seconds, without waiting for it here. */
    if (templates_age_ms(rq->c->templates) > TEMPLATES_FRESH_MS)
        (void)templates_refresh(rq->c->templates, NULL, NULL, NULL);
}

void api_create(struct api_request *rq)
{
    struct abx_err err;

    if (create_request_parse(rq->body, rq->is_v2, &rq->c->opts.limits, &rq->create, &err) < 0)
        api_reply_error(rq, &err, RETRY_UNSAID);
    else
        start(rq);
}

void api_create_abandon(struct api_request *rq)
{
    if (rq->id[0])
        lifecycle_abandon(rq->c->lifecycle, rq->id);
}
