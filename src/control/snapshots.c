/* snapshots.c - see snapshots.h. */
#include "control/snapshots.h"

#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "control/control.h"

struct snapshots {
    struct store *store;
    struct lifecycle *lifecycle;
    struct snapshot *first;
    struct snapshot *making; /* not in the database yet */
};

/* One on its way to the database. */
struct adding {
    struct snapshots *snapshots;
    char id[SANDBOX_ID_SIZE];
    store_done_fn done;
    void *user;
};

static void load(void *user, const struct store_snapshot *row)
{
    struct snapshots *s = user;
    struct snapshot *t = calloc(1, sizeof(*t));
    struct abx_err err;

    if (!t || lifecycle_keep(s->lifecycle, row->id, &err) < 0) {
        log_error("a snapshot is skipped: out of memory", NULL);
        free(t);
        return;
    }
    (void)snprintf(t->id, sizeof t->id, "%s", row->id);
    (void)snprintf(t->team, sizeof t->team, "%s", row->team);
    (void)snprintf(t->name, sizeof t->name, "%s", row->name);
    (void)snprintf(t->sandbox_id, sizeof t->sandbox_id, "%s", row->sandbox_id);
    (void)snprintf(t->build_id, sizeof t->build_id, "%s", row->build_id);
    (void)snprintf(t->digest, sizeof t->digest, "%s", row->digest);
    (void)snprintf(t->alias, sizeof t->alias, "%s", row->alias);
    t->disk_mb = row->disk_mb;
    t->created_ms = row->created_ms;
    t->next = s->first;
    s->first = t;
}

int snapshots_new(struct store *store, struct lifecycle *l, struct snapshots **ret,
                  struct abx_err *err)
{
    struct snapshots *s = calloc(1, sizeof(*s));
    int r;

    if (!s)
        return err_oom(err);
    s->store = store;
    s->lifecycle = l;
    r = store_snapshot_load(store, load, s, err);
    if (r < 0) {
        snapshots_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

static void free_all(struct snapshot *list)
{
    while (list) {
        struct snapshot *t = list;

        list = t->next;
        free(t);
    }
}

void snapshots_free(struct snapshots *s)
{
    if (!s)
        return;
    free_all(s->first);
    free_all(s->making);
    free(s);
}

const struct snapshot *snapshots_find(const struct snapshots *s, const char *team, const char *text)
{
    const struct snapshot *named = NULL;
    struct template_ref ref;

    if (template_ref_parse(slice_str(text), &ref) != NULL ||
        (ref.namespace_[0] && strcmp(ref.namespace_, TEAM_SLUG) != 0) ||
        (ref.tag[0] && strcmp(ref.tag, NAME_DEFAULT_TAG) != 0))
        return NULL;
    for (const struct snapshot *t = s->first; t; t = t->next) {
        if (strcmp(t->team, team) != 0)
            continue;
        if (strcmp(t->id, ref.alias) == 0)
            return t; /* before one that has its id for a name */
        if (!named && strcmp(t->name, ref.alias) == 0)
            named = t;
    }
    return named;
}

const struct snapshot *snapshots_next(const struct snapshots *s, const struct snapshot *at)
{
    return at ? at->next : s->first;
}

/* Takes it off the list; NULL when it is not there. */
static struct snapshot *take(struct snapshot **list, const char *id)
{
    struct snapshot *t;

    while (*list && strcmp((*list)->id, id) != 0)
        list = &(*list)->next;
    t = *list;
    if (t)
        *list = t->next;
    return t;
}

static void put(struct snapshot **list, struct snapshot *t)
{
    t->next = *list;
    *list = t;
}

static size_t count(const struct snapshot *list, const char *team)
{
    size_t n = 0;

    for (; list; list = list->next)
        n += strcmp(list->team, team) == 0;
    return n;
}

int snapshots_begin(struct snapshots *s, const struct snapshot *snapshot, size_t max,
                    struct abx_err *err)
{
    size_t n = count(s->first, snapshot->team) + count(s->making, snapshot->team);
    struct snapshot *t;

    if (max > 0 && n >= max)
        return err_reason(
            err, ABX_REASON_RATE_LIMITED,
            "you have reached the maximum number of snapshots (%zu): delete one first", max);
    t = malloc(sizeof(*t));
    if (!t)
        return err_oom(err);
    *t = *snapshot;
    put(&s->making, t);
    return 0;
}

void snapshots_give_up(struct snapshots *s, const char *id)
{
    free(take(&s->making, id));
}

static void on_added(void *user, const struct abx_err *failure)
{
    struct adding *a = user;
    struct snapshot *t = failure ? NULL : take(&a->snapshots->making, a->id);

    if (t)
        put(&a->snapshots->first, t);
    a->done(a->user, failure);
    free(a);
}

int snapshots_add(struct snapshots *s, const char *id, store_done_fn done, void *user,
                  struct abx_err *err)
{
    _cleanup_(freep) struct adding *a = calloc(1, sizeof(*a));
    const struct snapshot *t = s->making;
    struct store_snapshot row;
    int r;

    while (t && strcmp(t->id, id) != 0)
        t = t->next;
    if (!a)
        return err_oom(err);
    if (!t)
        return err_set(err, ABX_INTERNAL, "no snapshot '%s' was begun", id);
    *a = (struct adding){ .snapshots = s, .done = done, .user = user };
    memcpy(a->id, t->id, sizeof a->id);
    row = (struct store_snapshot){
        .id = t->id,
        .team = t->team,
        .name = t->name,
        .sandbox_id = t->sandbox_id,
        .build_id = t->build_id,
        .digest = t->digest,
        .alias = t->alias,
        .disk_mb = t->disk_mb,
        .created_ms = t->created_ms,
    };
    r = fault_at("snapshot.row", err);
    if (r == 0)
        r = store_snapshot_add(s->store, &row, on_added, a, err);
    if (r == 0)
        (void)TAKE_PTR(a);
    return r;
}

int snapshots_remove(struct snapshots *s, const char *id, store_done_fn done, void *user,
                     struct abx_err *err)
{
    int r = store_snapshot_remove(s->store, id, done, user, err);

    if (r == 0)
        free(take(&s->first, id));
    return r;
}
