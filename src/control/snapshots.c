/* snapshots.c - see snapshots.h. */
#include "control/snapshots.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

#define TAG ":" NAME_DEFAULT_TAG

struct snapshots {
    struct store *store;
    struct lifecycle *lifecycle;
    struct snapshot *first;
};

/* One on its way to the database. */
struct adding {
    struct snapshots *snapshots;
    struct snapshot *snapshot;
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

void snapshots_free(struct snapshots *s)
{
    while (s && s->first) {
        struct snapshot *t = s->first;

        s->first = t->next;
        free(t);
    }
    free(s);
}

/* Is `text` `name`, or that with the tag? */
static bool is_called(const char *text, const char *name)
{
    size_t n = strlen(name);

    return n > 0 && strncmp(text, name, n) == 0 && (text[n] == '\0' || strcmp(text + n, TAG) == 0);
}

const struct snapshot *snapshots_find(const struct snapshots *s, const char *team, const char *text)
{
    for (const struct snapshot *t = s->first; t; t = t->next)
        if (strcmp(t->team, team) == 0 && (is_called(text, t->id) || is_called(text, t->name)))
            return t;
    return NULL;
}

const struct snapshot *snapshots_next(const struct snapshots *s, const struct snapshot *at)
{
    return at ? at->next : s->first;
}

static void on_added(void *user, const struct abx_err *failure)
{
    struct adding *a = user;

    if (failure) {
        free(a->snapshot);
    } else {
        a->snapshot->next = a->snapshots->first;
        a->snapshots->first = a->snapshot;
    }
    a->done(a->user, failure);
    free(a);
}

int snapshots_add(struct snapshots *s, const struct snapshot *snapshot, store_done_fn done,
                  void *user, struct abx_err *err)
{
    struct store_snapshot row = {
        .id = snapshot->id,
        .team = snapshot->team,
        .name = snapshot->name,
        .sandbox_id = snapshot->sandbox_id,
        .build_id = snapshot->build_id,
        .digest = snapshot->digest,
        .alias = snapshot->alias,
        .disk_mb = snapshot->disk_mb,
        .created_ms = snapshot->created_ms,
    };
    _cleanup_(freep) struct adding *a = calloc(1, sizeof(*a));
    _cleanup_(freep) struct snapshot *copy = malloc(sizeof(*copy));
    int r;

    if (!a || !copy)
        return err_oom(err);
    *copy = *snapshot;
    *a = (struct adding){ s, copy, done, user };
    r = store_snapshot_add(s->store, &row, on_added, a, err);
    if (r < 0)
        return r;
    (void)TAKE_PTR(a);
    (void)TAKE_PTR(copy);
    return 0;
}

int snapshots_remove(struct snapshots *s, const char *id, store_done_fn done, void *user,
                     struct abx_err *err)
{
    struct snapshot **at = &s->first, *t;
    int r = store_snapshot_remove(s->store, id, done, user, err);

    if (r < 0)
        return r;
    while (*at && strcmp((*at)->id, id) != 0)
        at = &(*at)->next;
    t = *at;
    if (t)
        *at = t->next;
    free(t);
    return 0;
}
