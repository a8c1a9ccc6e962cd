/* api_rollback.c - POST /sandboxes/{id}/rollback {"snapshotID": ...}: the sandbox's files as a snapshot has them, in place.
 * Not in E2B. Id, tokens, time, network rules and metadata stay; the processes end, and one that runs starts anew. Any
 * snapshot of the team will do that is of the same template, whose files lie below, and needs no larger disk: also one of
 * a fork. Answered with 200 and the sandbox, as GET has it, and what was done in `rollback`.
 */
#include <string.h>

#include "control/api_internal.h"
#include "control/snapshots.h"

/* One that is under way. */
struct rollback {
    struct api_request *rq;
    char snapshot_id[SANDBOX_ID_SIZE];
};

static json_t *render_stages(const struct sandbox *sb)
{
    json_t *all = json_array();

    for (size_t i = 0; all && i < sb->n_stages; i++)
        if (json_array_append_new(all, json_pack("{s:s,s:I}", "name", sb->stages[i].name, "us",
                                                 (json_int_t)sb->stages[i].us)) < 0) {
            json_decref(all);
            all = NULL;
        }
    return all;
}

static json_t *render(const struct rollback *x, const struct sandbox *sb)
{
    struct render_context c = api_render_context(x->rq);
    json_t *j = render_detail(&c, sb);
    json_t *done = json_pack("{s:s+,s:s,s:o}", "snapshotID", x->snapshot_id, ":" NAME_DEFAULT_TAG,
                             "mode", "filesystem", "stages", render_stages(sb));

    if (j && done && json_object_set(j, "rollback", done) == 0) {
        json_decref(done);
        return j;
    }
    json_decref(done);
    json_decref(j);
    return NULL;
}

static void on_rolled_back(void *user, int status, const struct abx_err *failure)
{
    struct rollback *x = user;
    struct api_request *rq = x->rq;
    struct sandbox *sb = lifecycle_find(rq->c->lifecycle, rq->id);

    if (failure)
        api_reply_error(rq, failure, failure->reason == ABX_REASON_BUSY ? RETRY_YES : RETRY_NO);
    else if (sb)
        api_reply(rq, status, render(x, sb));
    else
        api_reply_not_found(rq, rq->id);
    api_request_unref(rq);
    free(x);
}

static int take_snapshot(struct api_request *rq, const struct sandbox *sb,
                         const struct snapshot **ret, struct abx_err *err)
{
    const char *text = json_string_value(json_object_get(rq->body, "snapshotID"));
    const struct snapshot *t;

    if (!text || text[0] == '\0')
        return err_set(
            err, ABX_INVALID_ARGUMENT,
            "Error when parsing request: 'snapshotID' is required and has to be the id or "
            "the name of a snapshot");
    t = snapshots_find(rq->c->snapshots, rq->team, text);
    if (!t)
        return err_set(err, ABX_NOT_FOUND, "snapshot '%.128s' not found", text);
    if (strcmp(t->digest, sb->digest) != 0)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "snapshotID: snapshot '%.128s' is not of the template that sandbox '%s' was "
                       "made of",
                       text, sb->id);
    if (sb->disk_mb > 0 && t->disk_mb > sb->disk_mb)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "snapshotID: snapshot '%.128s' needs a disk of %u MiB, sandbox '%s' has %u",
                       text, t->disk_mb, sb->id, sb->disk_mb);
    *ret = t;
    return 0;
}

void api_rollback(struct api_request *rq)
{
    struct sandbox *sb = lifecycle_find(rq->c->lifecycle, rq->id);
    struct sandbox_request request = { .what = EV_ROLLBACK };
    const struct snapshot *snapshot = NULL;
    struct rollback *x;
    struct abx_err err;

    if (!sb || strcmp(sb->team, rq->team) != 0) {
        api_reply_not_found(rq, rq->id);
        return;
    }
    if (take_snapshot(rq, sb, &snapshot, &err) < 0) {
        api_reply_error(rq, &err, RETRY_UNSAID);
        return;
    }
    x = calloc(1, sizeof(*x));
    if (!x) {
        (void)err_oom(&err);
        api_reply_error(rq, &err, RETRY_YES);
        return;
    }
    x->rq = rq;
    memcpy(x->snapshot_id, snapshot->id, sizeof x->snapshot_id);
    memcpy(request.snapshot_id, snapshot->id, sizeof request.snapshot_id);
    api_request_ref(rq);
    if (lifecycle_request(rq->c->lifecycle, rq->id, &request, on_rolled_back, x, &err) < 0)
        on_rolled_back(x, 0, &err);
}
