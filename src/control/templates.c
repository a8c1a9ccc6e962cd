/* templates.c - see templates.h. */
#include "control/templates.h"

#include <stdio.h>

#include "base/log.h"
#include "base/str.h"
#include "e2b/tokens.h"

#define ENTRIES_MAX 10000u

struct waiter {
    struct waiter *next;
    templates_done_fn done;
    void *user;
};

struct templates {
    struct store *store;
    struct driver *driver;
    char team[UUID_SIZE];
    char team_slug[NAME_PART_SIZE];
    struct template_entry *entries;
    size_t n, cap;
    struct waiter *waiters; /* of the question that is under way */
    bool is_asking;
    int64_t asked_ns; /* 0 = never answered */
};

static struct template_entry *append(struct templates *t)
{
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 16;
        struct template_entry *more =
            t->n < ENTRIES_MAX ? reallocarray(t->entries, cap, sizeof(*more)) : NULL;

        if (!more)
            return NULL;
        t->entries = more;
        t->cap = cap;
    }
    t->entries[t->n] = (struct template_entry){ .is_present = true };
    return &t->entries[t->n++];
}

static void load_row(void *user, const struct store_template *row)
{
    struct templates *t = user;
    struct template_entry *e = append(t);

    if (!e) {
        log_error("no memory for a template", "name", row->name, NULL);
        return;
    }
    (void)snprintf(e->id, sizeof e->id, "%s", row->id);
    (void)snprintf(e->team, sizeof e->team, "%s", row->team);
    (void)snprintf(e->name, sizeof e->name, "%s", row->name);
    (void)snprintf(e->tag, sizeof e->tag, "%s", row->tag);
    (void)snprintf(e->build_id, sizeof e->build_id, "%s", row->build_id);
    (void)snprintf(e->digest, sizeof e->digest, "%s", row->digest);
    (void)snprintf(e->written_digest, sizeof e->written_digest, "%s", row->digest);
    e->created_ms = row->created_ms;
}

int templates_new(struct store *store, const char *team, const char *team_slug,
                  struct templates **ret, struct abx_err *err)
{
    struct templates *t = calloc(1, sizeof(*t));
    int r;

    if (!t)
        return err_oom(err);
    t->store = store;
    (void)snprintf(t->team, sizeof t->team, "%s", team);
    (void)snprintf(t->team_slug, sizeof t->team_slug, "%s", team_slug);
    r = store_template_load(store, load_row, t, err);
    if (r < 0) {
        templates_free(t);
        return r;
    }
    *ret = t;
    return 0;
}

void templates_set_driver(struct templates *t, struct driver *driver)
{
    t->driver = driver;
}

void templates_free(struct templates *t)
{
    if (!t)
        return;
    while (t->waiters) {
        struct waiter *w = t->waiters;

        t->waiters = w->next;
        free(w);
    }
    free(t->entries);
    free(t);
}

/* --- asking the driver ------------------------------------------------------------------------- */

static void on_put(void *user, const struct abx_err *failure)
{
    (void)user;
    if (failure)
        log_err("a template's ids cannot be written down", failure);
}

static struct template_entry *find_tag(const struct templates *t, const char *name, const char *tag)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->entries[i].name, name) == 0 && strcmp(t->entries[i].tag, tag) == 0)
            return &t->entries[i];
    return NULL;
}

static void put_row(struct templates *t, const struct template_entry *e)
{
    struct store_template row = {
        .id = e->id,
        .team = e->team,
        .name = e->name,
        .tag = e->tag,
        .build_id = e->build_id,
        .digest = e->digest,
        .created_ms = e->created_ms,
    };
    struct abx_err err = { 0 };

    if (store_template_put(t->store, &row, on_put, NULL, &err) < 0)
        on_put(NULL, &err);
}

/* A build id follows from template and digest, so that a template that goes back to an older build
 * has that build's id again. */
static void make_build_id(struct template_entry *e)
{
    char text[sizeof e->id + sizeof e->digest + 1], hash[TOKEN_SIZE];

    (void)snprintf(text, sizeof text, "%s:%s", e->id, e->digest);
    sha256_hex(slice_str(text), hash);
    hash[12] = '8'; /* version: by a hash of our own (RFC 9562 5.8) */
    hash[16] = "89ab"[hash[16] % 4];
    (void)snprintf(e->build_id, sizeof e->build_id, "%.8s-%.4s-%.4s-%.4s-%.12s", hash, hash + 8,
                   hash + 12, hash + 16, hash + 20);
}

static struct template_entry *find_older(const struct templates *t, const char *name,
                                         const char *digest)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->entries[i].tag[0] == '\0' && strcmp(t->entries[i].name, name) == 0 &&
            strcmp(t->entries[i].digest, digest) == 0)
            return &t->entries[i];
    return NULL;
}

static void fill(struct template_entry *e, const struct driver_template *d)
{
    e->is_present = true;
    e->is_listed = true;
    e->created_ms = d->created_ms;
    e->size_bytes = d->size_bytes;
    (void)snprintf(e->suite, sizeof e->suite, "%s", d->suite);
    (void)snprintf(e->digest, sizeof e->digest, "%s", d->digest);
    make_build_id(e);
}

/* Of several builds of one name the newest has the tag; the others are found by digest only. `e` has
 * been filled from this listing already. True when `d` is to take its place. */
static bool is_newer(const struct template_entry *e, const struct driver_template *d)
{
    return d->created_ms != e->created_ms ? d->created_ms > e->created_ms
                                          : strcmp(d->digest, e->digest) > 0;
}

static void keep_older(struct templates *t, const char *id, const char *name,
                       const struct driver_template *d)
{
    struct template_entry *e = find_older(t, name, d->digest);

    if (!e)
        e = append(t);
    if (!e) {
        log_error("no memory for a template", "name", d->name, NULL);
        return;
    }
    (void)snprintf(e->id, sizeof e->id, "%s", id);
    memcpy(e->team, t->team, sizeof e->team);
    (void)snprintf(e->name, sizeof e->name, "%s", name);
    fill(e, d);
}

/* One template of the driver: a new name gets an id. */
static void take_in(struct templates *t, const struct driver_template *d)
{
    struct template_ref ref;
    struct template_entry *e;

    if (template_ref_parse(slice_str(d->name), &ref) != NULL || ref.namespace_[0] || ref.tag[0] ||
        strlen(d->digest) >= sizeof e->digest) {
        log_warn("the driver has a template with a name that is none", "name", d->name, NULL);
        return;
    }
    e = find_tag(t, ref.alias, NAME_DEFAULT_TAG);
    if (!e) {
        e = append(t);
        if (!e) {
            log_error("no memory for a template", "name", d->name, NULL);
            return;
        }
        id_random(e->id, 20);
        memcpy(e->team, t->team, sizeof e->team);
        memcpy(e->name, ref.alias, sizeof e->name);
        (void)snprintf(e->tag, sizeof e->tag, "%s", NAME_DEFAULT_TAG);
    }
    if (e->is_listed) {
        struct template_entry was = *e;
        struct driver_template older = { was.name, was.digest, was.created_ms, was.size_bytes,
                                         was.suite };

        if (!is_newer(e, d)) {
            keep_older(t, was.id, was.name, d);
            return;
        }
        fill(e, d);
        keep_older(t, was.id, was.name, &older);
        return;
    }
    fill(e, d);
}

static void end_asking(struct templates *t, const struct abx_err *failure)
{
    struct waiter *w = t->waiters;

    t->waiters = NULL;
    t->is_asking = false;
    for (size_t i = 0; i < t->n && !failure; i++) {
        struct template_entry *e = &t->entries[i];

        e->is_present = e->is_listed;
        /* In the database only tagged ones, and only when they changed. */
        if (e->tag[0] && strcmp(e->written_digest, e->digest) != 0) {
            put_row(t, e);
            memcpy(e->written_digest, e->digest, sizeof e->digest);
        }
    }
    if (!failure)
        t->asked_ns = time_mono_ns();
    while (w) {
        struct waiter *next = w->next;

        w->done(w->user, failure);
        free(w);
        w = next;
    }
}

static void on_templates(void *user, const struct driver_template *rows, size_t n, bool has_more,
                         const struct abx_err *failure)
{
    struct templates *t = user;
    struct abx_err err = { 0 };

    if (failure) {
        end_asking(t, failure);
        return;
    }
    for (size_t i = 0; i < n; i++)
        take_in(t, &rows[i]);
    if (!has_more || n == 0)
        end_asking(t, NULL);
    else if (t->driver->ops->templates(t->driver, rows[n - 1].name, on_templates, t, &err) < 0)
        end_asking(t, &err);
}

int templates_refresh(struct templates *t, templates_done_fn done, void *user, struct abx_err *err)
{
    struct waiter *w = NULL;
    int r = 0;

    if (done) {
        w = calloc(1, sizeof(*w));
        if (!w)
            return err_oom(err);
        *w = (struct waiter){ t->waiters, done, user };
    }
    if (!t->is_asking) {
        for (size_t i = 0; i < t->n; i++)
            t->entries[i].is_listed = false;
        r = t->driver ? t->driver->ops->templates(t->driver, "", on_templates, t, err)
                      : err_set(err, ABX_UNAVAILABLE, "there is no driver");
    }
    if (r < 0) {
        free(w);
        return r;
    }
    t->is_asking = true;
    if (w)
        t->waiters = w;
    return 0;
}

int64_t templates_age_ms(const struct templates *t)
{
    return t->asked_ns == 0 ? INT64_MAX : (time_mono_ns() - t->asked_ns) / NSEC_PER_MSEC;
}

/* --- finding ----------------------------------------------------------------------------------- */

/* By template id or digest, as text. */
static const struct template_entry *find_exact(const struct templates *t, struct slice text)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct template_entry *e = &t->entries[i];

        if (e->is_present &&
            ((e->tag[0] && slice_eq_str(text, e->id)) || slice_eq_str(text, e->digest)))
            return e;
    }
    return NULL;
}

int templates_resolve(const struct templates *t, struct slice text,
                      const struct template_entry **ret, struct abx_err *err)
{
    const struct template_entry *e = find_exact(t, text);
    struct template_ref ref;
    const char *wrong, *tag;
    bool has_name = false;

    if (e) {
        *ret = e;
        return 0;
    }
    wrong = template_ref_parse(text, &ref);
    if (wrong)
        return err_set(err, ABX_INVALID_ARGUMENT, "Invalid template reference: %s", wrong);
    tag = ref.tag[0] ? ref.tag : NAME_DEFAULT_TAG;
    for (size_t i = 0; i < t->n; i++) {
        e = &t->entries[i];
        if (!e->is_present || !e->tag[0] ||
            (ref.namespace_[0] && strcmp(ref.namespace_, t->team_slug) != 0) ||
            (strcmp(e->name, ref.alias) != 0 && strcmp(e->id, ref.alias) != 0))
            continue;
        has_name = true;
        if (strcmp(e->tag, tag) == 0) {
            *ret = e;
            return 0;
        }
    }
    if (has_name)
        return err_set(err, ABX_NOT_FOUND, "tag '%s' does not exist for template '%s'", tag,
                       ref.alias);
    return err_set(err, ABX_NOT_FOUND, "template '%s%s%s' not found", ref.namespace_,
                   ref.namespace_[0] ? "/" : "", ref.alias);
}

const char *templates_find_id(const struct templates *t, struct slice text)
{
    struct template_ref ref;

    if (template_ref_parse(text, &ref) != NULL)
        return NULL;
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->entries[i].id, ref.alias) == 0 || strcmp(t->entries[i].name, ref.alias) == 0)
            return t->entries[i].id;
    return NULL;
}

size_t templates_count(const struct templates *t)
{
    return t->n;
}

const struct template_entry *templates_at(const struct templates *t, size_t i)
{
    return &t->entries[i];
}
