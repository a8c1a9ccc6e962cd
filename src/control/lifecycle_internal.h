/* lifecycle_internal.h - shared by lifecycle.c (the state machine), lifecycle_restart.c (comparing
 * after a restart) and sandbox_table.c (the objects and their table). Not for others.
 */
#pragma once

#include "control/lifecycle.h"

struct create_waiter {
    struct create_waiter *next;
    sandbox_created_fn done;
    void *user;
};

struct kill_waiter {
    struct kill_waiter *next;
    sandbox_killed_fn done;
    void *user;
    bool is_first; /* began the kill */
};

struct lifecycle {
    struct lifecycle_opts opts;
    struct sandbox **buckets;
    size_t n_buckets;
    size_t count;
    struct sandbox *first, *last;
    uint64_t last_number;
    unsigned generation; /* of the newest comparison with the driver; 0 = none began */
    unsigned compared;   /* the newest one that ended */
};

enum lifecycle_event {
    EV_WRITTEN,
    EV_WRITE_FAILED,
    EV_STARTED,
    EV_START_FAILED,
    EV_COMMITTED,
    EV_COMMIT_FAILED,
    EV_KILL, /* someone wants it killed, or its time is over */
    EV_DIED, /* it ended by itself */
    EV_KILLED,
    EV_KILL_FAILED,
    EV_RETRY, /* the driver is back, or it is time to try again */
    EV_TOLD,
    EV_REMOVED,
    EV_COUNT_,
};

/* What comes with an event. */
struct change {
    const struct abx_err *failure;
    const struct driver_created *created;
    bool was_sent;
    const char *reason;
};

/* Runs the action of the sandbox's state for an event. */
void lifecycle_fire(struct sandbox *sb, enum lifecycle_event ev, const struct change *c);
/* Into the state `killing`; `answer` for a create that fails. `reason` is static text. */
void lifecycle_enter_killing(struct sandbox *sb, const char *reason,
                             const struct store_answer *answer);
void lifecycle_on_timer(uv_timer_t *t);

int table_init(struct lifecycle *l, struct abx_err *err);
void table_done(struct lifecycle *l);
/* Adds to hash and list. */
int table_add(struct lifecycle *l, struct sandbox *sb, struct abx_err *err);
void table_remove(struct lifecycle *l, struct sandbox *sb);

/* A new object that is not in the table. */
struct sandbox *sandbox_new(struct lifecycle *l, struct abx_err *err);
/* Closes its timer, then frees it from the loop. */
void sandbox_free_later(struct sandbox *sb);
/* Sets config_text and what follows from it; `config` is borrowed. */
int sandbox_set_config(struct sandbox *sb, json_t *config, struct abx_err *err);
/* Copies the environment until the driver has it. */
int sandbox_keep_envs(struct sandbox *sb, const struct driver_env *envs, size_t n,
                      struct abx_err *err);
void sandbox_forget_envs(struct sandbox *sb);
int sandbox_from_spec(struct sandbox *sb, const struct sandbox_spec *spec, struct abx_err *err);
int sandbox_from_row(struct sandbox *sb, const struct store_sandbox *row, struct abx_err *err);
/* Borrows from `sb`. */
struct store_sandbox sandbox_row(const struct sandbox *sb, const char *state);
