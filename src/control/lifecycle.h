/* lifecycle.h - the one state machine of sandboxes, and control's table of them.
 *
 * A sandbox is made in this order: its row `creating` is on disk, the driver makes it, the row
 * becomes `running`; only then does anyone see it. A row that is still `creating` after a restart
 * means kill. Kill wins from every state; what is being killed is gone for everyone but other
 * killers, who wait for the truth. Deadlines run on the monotonic clock and are kept as wall time in
 * the row, so that they survive a restart. machine.h is the table state x event -> state, action, answer.
 *
 * What clients ask of one sandbox (lifecycle_request) is done one after the other, in the order it came;
 * a kill overtakes.
 *
 * Everything here belongs to the loop's thread. Completions come once, never from inside the call
 * they belong to, unless that call fails.
 */
#pragma once

#include <jansson.h>
#include <uv.h>

#include "control/driver.h"
#include "control/machine.h"
#include "control/usage_sample.h"
#include "e2b/ids.h"
#include "store/store.h"

struct sandbox {
    struct sandbox *hash_next;
    struct sandbox *prev, *next; /* all, oldest first */
    uint64_t number;             /* ascending along the list */
    struct lifecycle *lifecycle;
    enum sandbox_state state;

    char id[SANDBOX_ID_SIZE];
    char team[UUID_SIZE];
    char template_id[64];
    char build_id[UUID_SIZE];
    char digest[130];
    char alias[130];
    char execution_id[64];
    char idempotency_key[256];
    char request_id[65]; /* of the create, for the log */
    char origin[160];    /* as its creator reached the service */
    char *config_text;   /* as in the row */
    json_t *config;      /* the same, parsed: metadata, network, lifecycle ... */
    json_t *
        config_next; /* what it will be when all changes are on the disk; NULL = none is under way */
    bool is_secure;
    bool is_traffic_private; /* from config */
    int64_t created_ms;
    int64_t started_ms;
    int64_t end_ms; /* wall clock; the timer below is what counts while running */
    int64_t timeout_ms;
    size_t max_active;
    uint32_t cpu_count;
    uint32_t memory_mb;
    uint32_t disk_mb;

    uv_timer_t timer; /* running: expiry; killing: next try */
    struct create_waiter *creators;
    struct kill_waiter *killers;
    struct driver_env *envs; /* kept: a start anew from its files takes them again */
    size_t n_envs;
    char *env_text;
    char *env_json; /* the same, as in the row */
    size_t env_size;
    char clone_of[SANDBOX_ID_SIZE]; /* while it is created */
    char fork_of[SANDBOX_ID_SIZE];
    bool keeps_memory;  /* pausing, paused: processes and all, else files only */
    bool has_lost_envs; /* what the row had of them could not be read */
    bool is_missing;    /* paused: the driver knows nothing of it */
    char damage[96];    /* what of the row could not be read; empty: all could */
    bool has_start;     /* a driver's create is under way */
    /* How long the driver took for its last freeze, thaw or copy (then: frozen) */
    uint32_t driver_us;
    uint64_t call;         /* number of the call that this state waits for, 0 = none */
    int64_t end_before_ms; /* pausing: in case it fails */
    /* Rolling back: the files to go to, kept (empty: it is not); the snapshot that they are of. */
    char rollback_copy[SANDBOX_ID_SIZE], rollback_to[SANDBOX_ID_SIZE];
    uint64_t due_ms; /* amid a pause, a thaw, a rollback: its end by the loop's clock; 0: end_ms */
    int64_t t_restart_ns; /* rolling back: when it was to start for the first time */
    bool is_again;        /* rolling back: what the driver has of its processes is not known */
    bool may_be_done;  /* rolling back: the driver was asked to exchange, and the answer is lost */
    bool has_no_start; /* rolling back: it could not be started */
    enum driver_state there; /* as the driver last said */
    struct sandbox_usage usage;
    char *answer; /* body for the creators, made when the row becomes running */
    char *data;   /* JSON of the `created` event */
    const char *kill_reason;
    int64_t t_begin_ns, t_written_ns, t_started_ns, t_kill_ns;
    int64_t t_over_ns;             /* its time was over since then, amid something else; 0 = no */
    int64_t t_warned_ns;           /* when it was last logged why it keeps its state */
    int warned_code;               /* and of which failure */
    int64_t t_state_ns;            /* when it came into its state */
    struct driver_stage stages[8]; /* how long the states before lasted */
    size_t n_stages;
    struct operation *operation; /* the request that is under way */
    struct operation *waiting;   /* those behind it, oldest first */
    unsigned n_waiting;
    unsigned generation; /* of the comparison it takes part in */
    unsigned seen;       /* generation in which the driver named it */
    bool wants_kill;     /* a kill came while the row was written or committed */
    bool is_starting;    /* killing: the driver's answer to create still comes */
    bool is_killing;     /* killing: a kill is at the driver */
    bool must_kill;      /* killing: one more kill is needed after that */
    bool is_killed;      /* killing: nothing of it is left at the driver */
    bool is_removing;    /* removing: the row's deletion is queued */
    bool has_no_pause; /* thawing: what failed was the pause at its end; the next try comes later */
    bool is_row_behind;    /* it was resumed or rolled back, and its row does not say so yet */
    bool is_row_coming;    /* but is being changed */
    bool is_late_rollback; /* then: it was rolled back */
    char *late_data;       /* and that is what the event of it tells */
    bool is_known;         /* a gateway that asked has heard of it before it ran */
    bool is_told;          /* killing: every gateway has dropped it */
    bool is_answered;      /* the creators have their answer */
    bool has_died;
};

/* What a create asks for; strings are copied. */
struct sandbox_spec {
    const char *team;
    const char *template_id;
    const char *build_id;
    const char *digest;
    const char *clone_of; /* NULL or empty: the template's files, else those of this kept id */
    const char *fork_of;  /* then: the sandbox that they were of, for the event */
    const char *alias;
    bool is_secure;
    int64_t timeout_ms;
    uint32_t cpu_count;
    uint32_t memory_mb;
    uint32_t disk_mb;
    json_t *config; /* borrowed */
    const struct driver_env *envs;
    size_t n_envs;
    const char *idempotency_key; /* empty = none */
    const char *request_hash;
    const char *request_id;
    const char *origin;
    size_t max_active; /* of the team, 0 = no limit; over it: ABX_REASON_RATE_LIMITED */
};

/* One answer: success has status 201 and `body`; a failure has `failure`, and `is_clean` when the
 * request certainly had no effect. */
typedef void (*sandbox_created_fn)(void *user, int status, const char *body,
                                   const struct abx_err *failure, bool is_clean);
/* `existed`: this kill was the one that ended it. */
typedef void (*sandbox_killed_fn)(void *user, bool existed);

struct sandbox_request {
    enum lifecycle_event what; /* EV_PAUSE to EV_REFRESH */
    /* Its end is set to now + timeout_ms; of one that runs EV_EXTEND alone may shorten it. */
    int64_t timeout_ms;
    /* EV_PAUSE: the processes are ended, only files are kept. Of a paused one EV_RESUME, EV_CONNECT: it starts
     * anew although its memory was kept. */
    bool drops_memory;
    bool is_timeout;      /* EV_PAUSE: its time was over */
    bool must_be_healthy; /* EV_PAUSE: refused with BUSY unless its guest answers that it is well */
    size_t max_active;    /* what starts again counts: as in sandbox_spec */
    bool is_snapshot;     /* EV_COPY: not for a fork; words of the refusal */
    char copy_id[SANDBOX_ID_SIZE];     /* EV_COPY: of the copy, in lifecycle_keep */
    char snapshot_id[SANDBOX_ID_SIZE]; /* EV_ROLLBACK */
    /* EV_NETWORK, EV_RESUME: members of its configuration that are replaced, null = removed; the others stay. NULL = all stay.
     * Referenced. */
    json_t *config;
};
/* `status` by the table (machine.h), or a failure. */
typedef void (*sandbox_requested_fn)(void *user, int status, const struct abx_err *failure);
#define LIFECYCLE_WAITING_MAX 64u /* requests for one sandbox */

struct lifecycle_opts {
    uv_loop_t *loop;
    struct store *store;
    struct driver *driver; /* may be set later by lifecycle_set_driver */
    const uint8_t *seed;   /* TOKEN_SEED_SIZE bytes, borrowed for good */
    /* It became visible or its entry changed: tell the gateways. */
    void (*on_visible)(void *user, struct sandbox *sb);
    /* Ask whether its guest is healthy, with a deadline: `done` once, from the loop, `failure` says why it is not, or why it
     * could not be asked. May be NULL: nobody can be asked. */
    int (*on_check)(void *user, struct sandbox *sb, store_done_fn done, void *done_user,
                    struct abx_err *err);
    /* Tell the gateways to hold its requests; lifecycle_held follows later, once. False: nobody to tell. */
    bool (*on_hold)(void *user, struct sandbox *sb);
    /* Tell the gateways to drop it; lifecycle_told follows later, once. False: nobody to tell. */
    bool (*on_drop)(void *user, struct sandbox *sb);
    /* Appends the JSON body that its create is answered with (before on_visible). */
    int (*render)(void *user, const struct sandbox *sb, struct buf *body);
    /* For the counters, may be NULL: a create is over (NULL = the sandbox runs), after `ns`; a sandbox ended
     * `ns` after that was decided. */
    void (*on_create_end)(void *user, const struct abx_err *failure, int64_t ns);
    void (*on_kill_end)(void *user, const char *reason, int64_t ns);
    void *user;
};

struct lifecycle;

int lifecycle_new(const struct lifecycle_opts *opts, struct lifecycle **ret, struct abx_err *err);
void lifecycle_set_driver(struct lifecycle *l, struct driver *driver);
/* Takes over the rows: at start, before anything else. */
int lifecycle_load(struct lifecycle *l, struct abx_err *err);
/* Frees everything that no completion still comes for; the loop must have run out before. */
void lifecycle_free(struct lifecycle *l);

/* Starts a create. `ret_id` gets the id when the call succeeds. */
int lifecycle_create(struct lifecycle *l, const struct sandbox_spec *spec, sandbox_created_fn done,
                     void *user, char ret_id[SANDBOX_ID_SIZE], struct abx_err *err);
/* Nobody waits for the create `id` any more: without an idempotency key it is undone. */
void lifecycle_abandon(struct lifecycle *l, const char *id);
/* Ends a sandbox in any state. NOT_FOUND when there is none. `done` may be NULL. */
int lifecycle_kill(struct lifecycle *l, const char *id, const char *reason, sandbox_killed_fn done,
                   void *user, struct abx_err *err);
/* Asks for a change. What takes effect is on disk when `done` comes; a refusal may come inside of the
 * call. NOT_FOUND when there is no such sandbox, BUSY when too many wait. */
int lifecycle_request(struct lifecycle *l, const char *id, const struct sandbox_request *request,
                      sandbox_requested_fn done, void *user, struct abx_err *err);

/* Any sandbox by id, NULL if there is none. Borrowed until the loop goes on. */
struct sandbox *lifecycle_find(const struct lifecycle *l, const char *id);
/* `id` is known to the driver and no sandbox: a comparison leaves it alone. */
int lifecycle_keep(struct lifecycle *l, const char *id, struct abx_err *err);
bool lifecycle_is_kept(const struct lifecycle *l, const char *id);
/* It is not kept any more: the driver removes it, now or after a comparison. */
void lifecycle_unkeep(struct lifecycle *l, const char *id);
/* Does it pause when its time is over, and does traffic wake it then? */
bool sandbox_pauses_itself(const struct sandbox *sb);
bool sandbox_wakes_itself(const struct sandbox *sb);
/* Can it be started again, as far as its row goes? `starts_anew`: without what its processes have. SAVED_STATE says what
 * is damaged. */
int sandbox_check_row(const struct sandbox *sb, bool starts_anew, struct abx_err *err);
/* Walks all, oldest first: NULL begins; NULL at the end. */
struct sandbox *lifecycle_next(const struct lifecycle *l, const struct sandbox *sb);
/* First one with a number above `number`, NULL at the end. */
struct sandbox *lifecycle_after(const struct lifecycle *l, uint64_t number);
size_t lifecycle_count(const struct lifecycle *l);
/* Sandboxes of a team that count against its limit, creating and running, made before `sb` (NULL =
 * all). */
size_t lifecycle_count_active(const struct lifecycle *l, const char *team,
                              const struct sandbox *sb);
/* Seen by clients: running or paused. */
bool sandbox_is_visible(const struct sandbox *sb);

/* Events from outside. */
void lifecycle_held(struct lifecycle *l, const char *id);
void lifecycle_told(struct lifecycle *l, const char *id);
void lifecycle_died(struct lifecycle *l, const char *id, const char *reason);
/* All that ran were ended with the service, on purpose: they died of "stopped". */
void lifecycle_stopped(struct lifecycle *l);
/* Does the driver answer? Without one, what needs it fails at once. */
bool lifecycle_has_driver(const struct lifecycle *l);
/* Is what the table says of the driver's sandboxes compared with the driver since it came up? Until
 * then a row may be of a sandbox that ended while this process was away. */
bool lifecycle_is_compared(const struct lifecycle *l);
/* The driver is up: compares both sides, goes on with what waits for it. */
void lifecycle_driver_up(struct lifecycle *l);
