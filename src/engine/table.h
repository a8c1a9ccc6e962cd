/* table.h - the sandboxes that this engine has, by internal name and by sandbox id.
 *
 * The table owns its entries' memory and nothing they point to. Entries do not move.
 */
#pragma once

#include <sys/types.h>
#include <uv.h>

#include "engine/record.h"
#include "engine/steer.h"

enum sandbox_state {
    SANDBOX_PREPARED, /* slot: upper, cgroup, network namespace, no process */
    SANDBOX_STARTING, /* a worker is at it */
    SANDBOX_READY,    /* pooled: runs without identity */
    SANDBOX_RUNNING,
    SANDBOX_FROZEN,
    SANDBOX_STOPPED,  /* paused, without processes: a name, an id and an upper */
    SANDBOX_REMOVING, /* a worker is at it */
    SANDBOX_STUCK,    /* removing failed; tried again */
};

/* Someone who waits for the end of a sandbox: a request, or a function of the engine. */
struct waiter {
    struct waiter *next;
    uint64_t conn; /* connection id, it may be gone by then; 0: `done` is called */
    uint64_t seq;
    void (*done)(void *user, const struct abx_err *failure);
    void (*drop)(void *user); /* frees it where `done` is not called any more; may be NULL */
    void *user;
};

struct sandbox {
    struct sandbox *next_by_name, *next_by_id; /* chains of the table */
    struct sandbox *next_in_pool;              /* free slots, or ready ones of a template */
    struct record record;
    enum sandbox_state state;
    unsigned n_copies; /* being made of it; it is busy for so long */
    bool is_busy;      /* freeze, thaw or resize under way; removal waits for it */
    bool is_ending;    /* while removing: its exit, or exit status, is waited for */
    bool is_died;      /* ended by itself: Died is due once the id is known to others */
    bool must_sweep;   /* a worker died while it was at it */
    bool kill_wanted;  /* asked for while starting or busy */
    bool is_told;      /* Died was sent */
    bool is_saved;     /* saved.h has it, or is about to, and it is paused or on its way there */
    bool is_noted;     /* saved.h has it; it may run again */
    bool keeps_upper;  /* what ends are its processes alone: STOPPED comes after REMOVING */
    bool has_kept;     /* while removing: the worker was told so */
    bool has_exit;     /* exit_status is known */
    bool has_oom;      /* oom_kills is known */
    int exit_status;
    uint64_t oom_kills;
    struct waiter *waiters;
    int pidfd;     /* -EBADF before it runs */
    int netns_fd;  /* owned here */
    int userns_fd; /* of a slot, until spawned */
    int envd_fd;
    int control_fd;
    int steer_fds[STEER_FDS]; /* until others may use it; -EBADF where this machine cannot steer */
    int64_t retry_ns;         /* of a stuck one; of an ending one: no more waiting then */
    uv_poll_t *exit_poll;
    struct cloning *cloning; /* clone.c's, while it is made as a copy */
    struct pushing *pushing; /* swap.c's, while its memory is pushed out */
    void *engine;
};

struct table;

int table_new(struct table **ret, struct abx_err *err);
/* Frees the entries too. */
void table_free(struct table *t);
DEFINE_CLEANUP(struct table *, table_free)

/* Adds an empty entry called `name` (all fds -EBADF). ALREADY_EXISTS when there is one. */
int table_add(struct table *t, const char *name, struct sandbox **ret, struct abx_err *err);
/* Gives an entry its sandbox id. ALREADY_EXISTS when another one has it. */
int table_set_id(struct table *t, struct sandbox *sb, const char *sandbox_id, struct abx_err *err);
/* Unlinks and frees it. */
void table_remove(struct table *t, struct sandbox *sb);
struct sandbox *table_find(const struct table *t, const char *name);
struct sandbox *table_find_id(const struct table *t, const char *sandbox_id);
size_t table_count(const struct table *t);
/* Calls `fn` for each entry; `fn` may remove that entry. */
void table_each(struct table *t, void (*fn)(void *user, struct sandbox *sb), void *user);
/* The up to `max` entries that are not being removed, whose sandbox id is not empty and comes after
 * `after`, (those that are stopped count as such already) in the order of their ids. Returns how many
 * are in `to`; *ret_more tells whether there are others behind. */
size_t table_page(const struct table *t, const char *after, const struct sandbox **to, size_t max,
                  bool *ret_more);
