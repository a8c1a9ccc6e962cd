/* templates.h - which templates there are, by name, tag, id and digest.
 *
 * The driver says what it has (name and digest); control gives each name an id and each digest a
 * build id, once, and keeps both in the database, so that they outlive restarts and rebuilds.
 */
#pragma once

#include "base/buf.h"
#include "control/driver.h"
#include "e2b/ids.h"
#include "e2b/names.h"
#include "store/store.h"

struct template_entry {
    char id[24]; /* 20 characters of [a-z0-9] */
    char team[UUID_SIZE];
    char name[NAME_PART_SIZE];
    char tag[NAME_PART_SIZE]; /* empty: an older build, found by its digest only */
    char build_id[UUID_SIZE];
    char digest[130];
    int64_t created_ms; /* of the build */
    uint64_t size_bytes;
    char suite[64];
    bool is_present;          /* the driver has it; true until it is asked */
    char written_digest[130]; /* of the database's row */
    bool is_listed;           /* by the answer that is being read */
};

struct templates;

/* Loads what the database knows: at start only. `team` owns what the driver brings. */
int templates_new(struct store *store, const char *team, const char *team_slug,
                  struct templates **ret, struct abx_err *err);
void templates_free(struct templates *t);
void templates_set_driver(struct templates *t, struct driver *driver);

/* Asks the driver again. `done` may be NULL; it comes once, from the loop, unless the call fails
 * (UNAVAILABLE: the driver is away). */
typedef void (*templates_done_fn)(void *user, const struct abx_err *failure);
int templates_refresh(struct templates *t, templates_done_fn done, void *user, struct abx_err *err);
/* Milliseconds since the driver last answered, INT64_MAX when it never did. */
int64_t templates_age_ms(const struct templates *t);

/* Finds `text` (name, namespace/name, name:tag, template id, digest). INVALID_ARGUMENT when it is
 * not well formed, NOT_FOUND with E2B's text. Borrowed until the loop goes on. */
int templates_resolve(const struct templates *t, struct slice text,
                      const struct template_entry **ret, struct abx_err *err);
/* For filters: the template id of a name or id; NULL when unknown. */
const char *templates_find_id(const struct templates *t, struct slice text);
size_t templates_count(const struct templates *t);
const struct template_entry *templates_at(const struct templates *t, size_t i);
