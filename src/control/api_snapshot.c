/* api_snapshot.c - POST /sandboxes/{id}/snapshots, GET /snapshots, DELETE /templates/{id} (e2b.md 1.2, 1.4). A snapshot
 * is the files of a sandbox as they are; the sandbox runs on. Its id stands where a template's may.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "control/api_internal.h"
#include "control/listing.h"
#include "control/snapshots.h"

#define TEXT_SIZE 300
#define LIMIT_MAX 100u
#define QUERY_MAX 4096u

/* One that is being made. Its answer has more than E2B's, which its clients do not look at: mode and frozenUs. */
struct making {
    struct api_request *rq;
    uint32_t frozen_us; /* for so long the sandbox stood still */
    struct snapshot snapshot;
};

static json_t *render(const struct snapshot *t)
{
    char id[TEXT_SIZE], name[TEXT_SIZE];
    json_t *names = json_array();

    (void)snprintf(id, sizeof id, "%s:" NAME_DEFAULT_TAG, t->id);
    (void)snprintf(name, sizeof name, "%s:" NAME_DEFAULT_TAG, t->name);
    if (t->name[0] && json_array_append_new(names, json_string(name)) < 0) {
        json_decref(names);
        return NULL;
    }
    /* Not of E2B: what it holds, which its clients do not look at. */
    return json_pack("{s:s,s:o,s:s}", "snapshotID", id, "names", names, "mode", "filesystem");
}

/* --- make ---------------------------------------------------------------------------------------- */

static void making_end(struct making *m, const struct abx_err *failure)
{
    if (failure) {
        snapshots_give_up(m->rq->c->snapshots, m->snapshot.id);
        lifecycle_unkeep(m->rq->c->lifecycle, m->snapshot.id);
        api_reply_error(m->rq, failure, RETRY_NO);
    } else {
        json_t *j = render(&m->snapshot);

        (void)json_object_set_new(j, "frozenUs", json_integer(m->frozen_us));
        api_reply(m->rq, 201, j);
    }
    api_request_unref(m->rq);
    free(m);
}

static void on_added(void *user, const struct abx_err *failure)
{
    struct making *m = user;
    struct abx_err err;

    if (failure) {
        err = *failure;
        (void)err_wrap(&err, err.code, "Snapshot of sandbox \"%s\" cannot be written down",
                       m->snapshot.sandbox_id);
    }
    making_end(m, failure ? &err : NULL);
}

static void on_copied(void *user, int status, const struct abx_err *failure)
{
    struct making *m = user;
    const struct sandbox *from = lifecycle_find(m->rq->c->lifecycle, m->rq->id);
    struct abx_err err;

    (void)status;
    m->frozen_us = from ? from->driver_us : 0;
    if (failure)
        making_end(m, failure);
    else if (snapshots_add(m->rq->c->snapshots, m->snapshot.id, on_added, m, &err) < 0)
        on_added(m, &err);
}

static int parse_name(struct api_request *rq, char to[NAME_PART_SIZE], struct abx_err *err)
{
    json_t *name = json_object_get(rq->body, "name");
    const struct snapshot *other;
    struct template_ref ref;
    const char *wrong;

    to[0] = '\0';
    if (!name || json_is_null(name))
        return 0;
    if (!json_is_string(name) || strlen(json_string_value(name)) != json_string_length(name))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "Error when parsing request: 'name' has to be a string");
    wrong = template_ref_parse(slice_str(json_string_value(name)), &ref);
    if (!wrong && ref.namespace_[0] && strcmp(ref.namespace_, TEAM_SLUG) != 0)
        wrong = "the namespace is not this team's";
    if (!wrong && templates_find_id(rq->c->templates, slice_str(ref.alias)))
        wrong = "a template has it, and would not be found by it any more";
    other = wrong ? NULL : snapshots_find(rq->c->snapshots, rq->team, ref.alias);
    if (other && strcmp(other->id, ref.alias) == 0)
        wrong = "it is the id of a snapshot";
    if (!wrong && ref.tag[0] && strcmp(ref.tag, NAME_DEFAULT_TAG) != 0)
        wrong = "snapshots have no tags but 'default' on this server";
    if (wrong)
        return err_set(err, ABX_INVALID_ARGUMENT, "Invalid name: %s", wrong);
    memcpy(to, ref.alias, sizeof ref.alias);
    return 0;
}

static int parse(struct api_request *rq, char name[NAME_PART_SIZE], bool *ret_memory,
                 struct abx_err *err)
{
    int r = json_get_bool(rq->body, "memory", ret_memory, err);

    return r < 0 ? r : parse_name(rq, name, err);
}

static void on_info(void *user, const struct driver_info *info, const struct abx_err *failure)
{
    struct api_request *rq = user;
    struct abx_err err;

    if (failure)
        (void)err_reason(&err, ABX_REASON_BUSY,
                         "memory: true: the engine does not say whether it could: %s",
                         failure->msg);
    else if (info->can_checkpoint)
        (void)err_set(&err, ABX_UNIMPLEMENTED,
                      "memory: true needs checkpoints of processes, which this release does not "
                      "make, though this machine could (%s); without it a snapshot holds the files",
                      info->checkpoint);
    else
        (void)err_set(
            &err, ABX_UNIMPLEMENTED,
            "memory: true needs checkpoints of processes; what is missing on this machine "
            "is %s; without it a snapshot holds the files",
            info->checkpoint[0] ? info->checkpoint : "not known yet");
    api_reply_error(rq, &err, failure ? RETRY_YES : RETRY_UNSAID);
    api_request_unref(rq);
}

/* Nobody makes them: what this machine lacks for it? */
static void refuse_memory(struct api_request *rq)
{
    struct driver *d = rq->c->driver;
    struct abx_err err;

    api_request_ref(rq);
    if (!d)
        (void)err_set(&err, ABX_UNAVAILABLE, "there is no engine");
    if (!d || d->ops->info(d, on_info, rq, &err) < 0)
        on_info(rq, NULL, &err);
}

static void fill(struct snapshot *t, const struct sandbox *sb, const char *name)
{
    sandbox_id_new(t->id);
    uuid_new(t->build_id);
    (void)snprintf(t->team, sizeof t->team, "%s", sb->team);
    (void)snprintf(t->name, sizeof t->name, "%s", name);
    (void)snprintf(t->sandbox_id, sizeof t->sandbox_id, "%s", sb->id);
    (void)snprintf(t->digest, sizeof t->digest, "%s", sb->digest);
    (void)snprintf(t->alias, sizeof t->alias, "%s", sb->alias);
    t->disk_mb = sb->disk_mb;
    t->created_ms = time_wall_ms();
}

void api_snapshot(struct api_request *rq)
{
    struct lifecycle *l = rq->c->lifecycle;
    struct sandbox *sb = lifecycle_find(l, rq->id);
    struct sandbox_request request = { .what = EV_COPY, .is_snapshot = true };
    char name[NAME_PART_SIZE];
    bool memory = false;
    struct making *m;
    struct abx_err err;

    if (parse(rq, name, &memory, &err) < 0) {
        api_reply_error(rq, &err, RETRY_UNSAID);
        return;
    }
    if (!sb || strcmp(sb->team, rq->team) != 0) {
        api_reply_not_found(rq, rq->id);
        return;
    }
    if (memory) {
        refuse_memory(rq);
        return;
    }
    m = calloc(1, sizeof(*m));
    if (m)
        fill(&m->snapshot, sb, name);
    if (!m || lifecycle_keep(l, m->snapshot.id, &err) < 0) {
        (void)err_oom(&err);
        api_reply_error(rq, &err, RETRY_YES);
        free(m);
        return;
    }
    m->rq = rq;
    api_request_ref(rq);
    if (snapshots_begin(rq->c->snapshots, &m->snapshot, rq->c->opts.max_snapshots, &err) < 0) {
        making_end(m, &err);
        return;
    }
    memcpy(request.copy_id, m->snapshot.id, sizeof request.copy_id);
    if (lifecycle_request(l, rq->id, &request, on_copied, m, &err) < 0)
        on_copied(m, 0, &err);
}

/* --- list ---------------------------------------------------------------------------------------- */

struct filter {
    char sandbox_id[TEXT_SIZE], name[TEXT_SIZE], token[TEXT_SIZE];
    uint64_t limit;
    bool is_name; /* of this team: a snapshot may have it */
};

/* The same spellings as where one is made or used. */
static void read_name(struct filter *f)
{
    struct template_ref ref;

    f->is_name = template_ref_parse(slice_str(f->name), &ref) == NULL &&
                 (!ref.namespace_[0] || strcmp(ref.namespace_, TEAM_SLUG) == 0);
    if (f->is_name)
        memcpy(f->name, ref.alias, sizeof ref.alias);
}

static int take_text(struct slice value, const char *name, char to[TEXT_SIZE], struct abx_err *err)
{
    if (value.n >= TEXT_SIZE || (value.n > 0 && memchr(value.p, 0, value.n)))
        return err_set(err, ABX_INVALID_ARGUMENT, "Invalid %s: it is too long", name);
    if (value.n > 0)
        memcpy(to, value.p, value.n);
    to[value.n] = '\0';
    return 0;
}

static int parse_filter(struct slice query, struct filter *f, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(QUERY_MAX);
    struct slice key, value;
    int r, next;

    *f = (struct filter){ .limit = LIMIT_MAX };
    for (r = 0; r == 0 && (next = query_next(&query, &text, &key, &value)) > 0;) {
        if (slice_eq_str(key, "sandboxID"))
            r = take_text(value, "sandboxID", f->sandbox_id, err);
        else if (slice_eq_str(key, "name"))
            r = take_text(value, "name", f->name, err);
        else if (slice_eq_str(key, "nextToken"))
            r = take_text(value, "nextToken", f->token, err);
        else if (slice_eq_str(key, "limit") &&
                 (!str_parse_u64(value, LIMIT_MAX, &f->limit) || f->limit == 0))
            r = err_set(err, ABX_INVALID_ARGUMENT, "Invalid limit: it is a number from 1 to %u",
                        LIMIT_MAX);
    }
    if (r == 0 && next < 0)
        r = err_set(err, ABX_INVALID_ARGUMENT,
                    "the query is not well percent-encoded, or over %u bytes", QUERY_MAX);
    read_name(f);
    return r;
}

static bool matches(const struct filter *f, const struct snapshot *t)
{
    return (!f->sandbox_id[0] || strcmp(f->sandbox_id, t->sandbox_id) == 0) &&
           (!f->name[0] || (f->is_name && strcmp(f->name, t->name) == 0));
}

/* The token is when the last one of the page before was made, and its id; it may be deleted by now. */
static bool parse_token(const char *token, int64_t *ret_ms, const char **ret_id)
{
    const char *dot = strchr(token, '.');
    uint64_t ms;

    if (!dot || !str_parse_u64(slice_of(token, (size_t)(dot - token)), INT64_MAX, &ms))
        return false;
    *ret_ms = (int64_t)ms;
    *ret_id = dot + 1;
    return true;
}

static bool is_listed(const struct snapshots *s, const char *id)
{
    const struct snapshot *t = NULL;

    while ((t = snapshots_next(s, t)) != NULL)
        if (strcmp(t->id, id) == 0)
            return true;
    return false;
}

static int list(struct api_request *rq, const struct filter *f, json_t *to, char next[TEXT_SIZE],
                struct abx_err *err)
{
    const struct snapshot *t = NULL, *last = NULL;
    bool is_after = f->token[0] == '\0', is_there;
    const char *id = "";
    int64_t ms = 0;

    if (!is_after && !parse_token(f->token, &ms, &id))
        return err_set(err, ABX_INVALID_ARGUMENT, "Invalid next token");
    is_there = is_listed(rq->c->snapshots, id);
    while ((t = snapshots_next(rq->c->snapshots, t)) != NULL) {
        if (strcmp(t->team, rq->team) != 0)
            continue;
        if (!is_after && is_there) {
            is_after = strcmp(t->id, id) == 0;
            continue;
        }
        is_after |= t->created_ms < ms;
        if (!is_after || !matches(f, t))
            continue;
        if (json_array_size(to) == f->limit) {
            (void)snprintf(next, TEXT_SIZE, "%" PRId64 ".%s", last->created_ms, last->id);
            return 0;
        }
        if (json_array_append_new(to, render(t)) < 0)
            return err_oom(err);
        last = t;
    }
    return 0;
}

void api_snapshots(struct api_request *rq)
{
    _cleanup_(buf_done) struct buf body = BUF_INIT(1u << 20);
    json_t *found = json_array();
    char next[TEXT_SIZE] = "";
    struct http1_field field;
    struct filter f;
    struct abx_err err;
    int r = parse_filter(http_exchange_head(rq->ex)->query, &f, &err);

    if (r == 0)
        r = list(rq, &f, found, next, &err);
    if (r < 0)
        json_decref(found);
    else
        r = render_text(found, &body, &err);
    if (r < 0) {
        api_reply_error(rq, &err, RETRY_UNSAID);
        return;
    }
    field = (struct http1_field){ SLICE_LIT("X-Next-Token"), slice_str(next) };
    api_reply_text(rq, 200, buf_slice(&body), &field, next[0] ? 1 : 0);
}

/* --- delete -------------------------------------------------------------------------------------- */

static void on_deleted(void *user, const struct abx_err *failure)
{
    struct api_request *rq = user;

    if (failure) {
        api_reply_error(rq, failure, RETRY_NO);
    } else {
        lifecycle_unkeep(rq->c->lifecycle, rq->id);
        api_reply_empty(rq, 204);
    }
    api_request_unref(rq);
}

void api_template_delete(struct api_request *rq)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(TEXT_SIZE);
    const struct template_entry *template;
    const struct snapshot *t = NULL;
    struct abx_err err;

    if (!percent_decode(&text, rq->match.params[0], false) || !buf_cstr(&text)) {
        (void)err_set(&err, ABX_INVALID_ARGUMENT, "Invalid template id");
        api_reply_error(rq, &err, RETRY_UNSAID);
        return;
    }
    t = snapshots_find(rq->c->snapshots, rq->team, buf_cstr(&text));
    if (!t) {
        if (templates_resolve(rq->c->templates, buf_slice(&text), &template, NULL) == 0)
            (void)err_set(&err, ABX_UNIMPLEMENTED,
                          "This endpoint deletes snapshots on this server, no other templates");
        else
            (void)err_set(&err, ABX_NOT_FOUND, "template '%.128s' not found", buf_cstr(&text));
        api_reply_error(rq, &err, RETRY_UNSAID);
        return;
    }
    memcpy(rq->id, t->id, sizeof rq->id);
    api_request_ref(rq);
    if (snapshots_remove(rq->c->snapshots, rq->id, on_deleted, rq, &err) < 0)
        on_deleted(rq, &err);
}
