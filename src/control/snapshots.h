/* snapshots.h - the snapshots that there are: files of sandboxes as they were, to make new ones of. To the driver
 * each is a stopped sandbox of the snapshot's id (lifecycle_keep).
 */
#pragma once

#include "control/lifecycle.h"
#include "e2b/names.h"

struct snapshot {
    struct snapshot *next; /* newest first */
    char id[SANDBOX_ID_SIZE];
    char team[UUID_SIZE];
    char name[NAME_PART_SIZE]; /* empty = none */
    char sandbox_id[SANDBOX_ID_SIZE];
    char build_id[UUID_SIZE];
    char digest[130]; /* of the template below */
    char alias[130];
    uint32_t disk_mb;
    int64_t created_ms;
};

struct snapshots;

/* Loads what the database knows, and has the lifecycle keep it: at start only. */
int snapshots_new(struct store *store, struct lifecycle *l, struct snapshots **ret,
                  struct abx_err *err);
void snapshots_free(struct snapshots *s);

/* By id or else by name, either with or without ":default" and the team's "default/"; of several with one name the
 * newest. NULL when there is none. Borrowed until the loop goes on. */
const struct snapshot *snapshots_find(const struct snapshots *s, const char *team,
                                      const char *text);
/* Walks all, newest first: NULL begins. */
const struct snapshot *snapshots_next(const struct snapshots *s, const struct snapshot *at);

/* One is being made, whose id is kept already: it counts, but nobody finds it. ABX_REASON_RATE_LIMITED when its
 * team has `max` (0 = no limit) with those. */
int snapshots_begin(struct snapshots *s, const struct snapshot *snapshot, size_t max,
                    struct abx_err *err);
/* Its files are there: so is it when `done` comes without a failure. */
int snapshots_add(struct snapshots *s, const char *id, store_done_fn done, void *user,
                  struct abx_err *err);
/* Nothing came of the one that was begun. */
void snapshots_give_up(struct snapshots *s, const char *id);
/* It is gone from here at once, from the database when `done` comes. */
int snapshots_remove(struct snapshots *s, const char *id, store_done_fn done, void *user,
                     struct abx_err *err);
