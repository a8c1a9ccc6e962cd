/* store.h - what control keeps on disk: typed queries over one SQLite database.
 *
 * Everything that is asked for often lives in control's memory and is loaded once at start; the
 * store is for what has to survive. Writes are queued to one writer thread, which commits what has
 * piled up in one transaction (each write whole or not at all) and completes on the loop, in order.
 * Sandbox writes survive a crash of the process at once and a power cut from the next checkpoint
 * on (a power cut ends those sandboxes anyway); keys and teams are synced before they complete.
 *
 * Limits: STORE_QUEUE_MAX waiting writes; over it new sandboxes and extensions are refused
 * (ABX_REASON_BUSY), while the writes that end or finish a sandbox always go in: there are at most a
 * few of them per sandbox. Every struct here borrows its strings: until return when passed in,
 * until the callback's return when passed out. NULL text counts as empty.
 */
#pragma once

#include <uv.h>

#include "base/buf.h"
#include "base/err.h"

#define STORE_QUEUE_MAX 4096u

struct store;

/* Opens <dir>/abx.db, makes or migrates it and starts the writer. Blocks: at start only. */
int store_open(uv_loop_t *loop, const char *dir, struct store **ret, struct abx_err *err);
/* Finishes what is queued, completes it (inside this call) and closes; what completions write then is refused with
 * UNAVAILABLE. The memory goes with the loop's next turn. NULL is fine. */
void store_close(struct store *s);

/* From now on the writer's thread (STORE_THREAD) adds one to `fd` (an eventfd, not blocking; borrowed until store_close) once a
 * second or more often, as long as it comes round; so does the one for checkpoints (CHECKPOINT_THREAD) to `checkpoint_fd`.
 * -1: neither. */
void store_beat(struct store *s, int fd, int checkpoint_fd);

typedef void (*store_done_fn)(void *user, const struct abx_err *failure);

/* --- at start, before anything is queued: these block ------------------------------------------ */

/* Reads a value of the service; writes `fallback` first when there is none. */
int store_meta_ensure(struct store *s, const char *name, const char *fallback, char *ret,
                      size_t size, struct abx_err *err);
/* The id of the team `slug`; makes it with `new_id` when there is none. */
int store_team_ensure(struct store *s, const char *slug, const char *new_id, char *ret, size_t size,
                      struct abx_err *err);

/* --- sandboxes --------------------------------------------------------------------------------- */

struct store_sandbox {
    const char *id;
    const char *team;
    const char *template_id;
    const char *build_id;
    const char *digest; /* what the driver knows the build as */
    const char *alias;
    const char *state; /* "creating", "running", "paused", "killing" */
    bool is_secure;
    int64_t created_ms;
    int64_t started_ms;
    int64_t end_ms;
    uint32_t cpu_count;
    uint32_t memory_mb;
    uint32_t disk_mb;
    const char *execution_id;
    const char *config;     /* JSON: metadata, network, lifecycle; no environment values */
    const char *envs;       /* JSON object of its environment, or empty: for a start anew */
    const char *pause_mode; /* "full", "filesystem", "lost" (nothing is left), empty: not paused */
    const char *idempotency_key; /* NULL or empty = none */
    const char *rollback_copy;   /* what its files are changed for at the moment; empty = nothing */
    const char *rollback_to;     /* the snapshot that those are of */
};

/* The answer to a create with an idempotency key, kept for later ones with the same key. */
struct store_answer {
    int status; /* HTTP; 0 = forget the key, a later request starts afresh */
    const char *body;
};

/* An event is a line in the sandbox's logs, too, of the logger "lifecycle". */
struct store_event {
    const char *id; /* UUID; NULL or empty = no event */
    const char *type;
    const char *data; /* JSON object */
    int64_t time_ms;
    bool is_warning; /* the line's level */
    /* Read only: what it is about, as it was then. */
    const char *sandbox_id;
    const char *team;
    const char *template_id;
    const char *build_id;
    const char *execution_id;
};

enum store_claim {
    STORE_NEW,   /* the row was written */
    STORE_SAME,  /* the key is known, with the same request: sandbox_id and the answer are set */
    STORE_OTHER, /* the key is known, with another request */
};

struct store_created {
    enum store_claim claim;
    const char *sandbox_id;
    int status; /* 0 = the first request is still running */
    const char *body;
};
typedef void (*store_created_fn)(void *user, const struct store_created *created,
                                 const struct abx_err *failure);

/* Writes the row `creating` and, when it has an idempotency key, claims that for it in the same
 * transaction. `request_hash` tells requests with the same key apart. */
int store_sandbox_create(struct store *s, const struct store_sandbox *sb, const char *request_hash,
                         store_created_fn done, void *user, struct abx_err *err);
/* The row becomes `running` with what was enforced, started_ms, end_ms and its config (NULL or empty: as it is); the answer is
 * kept. Also for one that is resumed, then without an answer. */
int store_sandbox_run(struct store *s, const struct store_sandbox *sb,
                      const struct store_answer *answer, const struct store_event *event,
                      store_done_fn done, void *user, struct abx_err *err);
/* The row becomes `paused` with end_ms and pause_mode, synced before it completes. */
int store_sandbox_pause(struct store *s, const struct store_sandbox *sb,
                        const struct store_event *event, store_done_fn done, void *user,
                        struct abx_err *err);
/* The row becomes `killing`. `answer` only for one whose create fails. Completes without a call. */
int store_sandbox_killing(struct store *s, const struct store_sandbox *sb,
                          const struct store_answer *answer, struct abx_err *err);
/* The row gets end_ms. `event` may be NULL. */
int store_sandbox_extend(struct store *s, const struct store_sandbox *sb,
                         const struct store_event *event, store_done_fn done, void *user,
                         struct abx_err *err);
/* The row gets rollback_copy and rollback_to, synced before it completes; running and pausing take them off again.
 * `done` may be NULL. */
int store_sandbox_note_rollback(struct store *s, const struct store_sandbox *sb, store_done_fn done,
                                void *user, struct abx_err *err);
/* Another `config`. */
int store_sandbox_configure(struct store *s, const struct store_sandbox *sb, store_done_fn done,
                            void *user, struct abx_err *err);
/* Deletes the row. */
int store_sandbox_remove(struct store *s, const struct store_sandbox *sb,
                         const struct store_event *event, store_done_fn done, void *user,
                         struct abx_err *err);
/* All rows, oldest first. Blocks: at start only. */
int store_sandbox_load(struct store *s, void (*each)(void *user, const struct store_sandbox *sb),
                       void *user, struct abx_err *err);
struct store_event_filter {
    const char *team;
    const char *sandbox_id; /* empty = all of the team */
    uint32_t offset;
    uint32_t limit; /* 1 to STORE_EVENTS_MAX */
    bool is_ascending;
};
#define STORE_EVENTS_MAX 100u
typedef void (*store_events_fn)(void *user, const struct store_event *events, size_t n,
                                const struct abx_err *failure);
/* Events by time, newest first unless ascending; sees every write that was queued before. */
int store_events(struct store *s, const struct store_event_filter *filter, store_events_fn done,
                 void *user, struct abx_err *err);
/* Events of one sandbox that are kept, about, besides `created` and `killed`; the oldest go. */
#define STORE_EVENTS_OF_ONE 1000u

/* --- what is dropped ---------------------------------------------------------------------------- */

enum store_pruned {
    STORE_PRUNED_KEYS, /* idempotency keys */
    STORE_PRUNED_EVENTS,
    STORE_PRUNED_LOGS,
    STORE_PRUNED_METRICS, /* by their last sample */
    STORE_PRUNED_KINDS,
};
struct store_bound {
    int64_t before_ms; /* older ones go */
    uint32_t kept;     /* most rows of all sandboxes; the oldest go. 0 = any number */
};
struct store_pruning {
    struct store_bound of[STORE_PRUNED_KINDS];
    uint32_t step; /* the most rows to drop, of each kind and for each of the two reasons */
};
/* One step of dropping what is old, or too much: it does not hold up other writes for long. */
int store_prune(struct store *s, const struct store_pruning *what, store_done_fn done, void *user,
                struct abx_err *err);

/* --- logs -------------------------------------------------------------------------------------- */

enum store_level { STORE_DEBUG, STORE_INFO, STORE_WARN, STORE_ERROR };

struct store_log {
    const char *sandbox_id;
    const char *team;
    int64_t time_ms;
    enum store_level level;
    const char *logger; /* which part of the service it is from */
    const char *message;
    const char *fields; /* JSON object */
};
struct store_log_filter {
    const char *team;
    const char *sandbox_id;
    int64_t from_ms, to_ms; /* ends included */
    enum store_level level; /* the least */
    const char *search;     /* in the message, whatever the case of ASCII letters; empty = all */
    uint32_t limit;         /* 1 to STORE_LOGS_PAGE */
    bool is_descending;
};
#define STORE_LOGS_PAGE 1000u
#define STORE_LOGS_MAX 10000u        /* lines of one sandbox, about; the oldest go */
#define STORE_PROCESS_LOGS_MAX 5000u /* of them, those of the logger `process` */
typedef void (*store_logs_fn)(void *user, const struct store_log *logs, size_t n,
                              const struct abx_err *failure);
/* Completes without a call. Refused when the queue is full. */
int store_log_add(struct store *s, const struct store_log *log, struct abx_err *err);
/* In the order of time, and of writing within a millisecond; sees every write that was queued before. */
int store_logs_read(struct store *s, const struct store_log_filter *filter, store_logs_fn done,
                    void *user, struct abx_err *err);

/* --- metrics ----------------------------------------------------------------------------------- */

/* Samples of one sandbox, at least one, oldest first. `samples` is text that the caller makes and reads. */
struct store_metrics {
    const char *sandbox_id;
    const char *team;
    int64_t first_ms, last_ms; /* times of the first and the last sample */
    uint32_t cpu_count;        /* sizes of the sandbox meanwhile */
    uint32_t memory_mb;
    uint32_t disk_mb;
    const char *samples;
};
struct store_metrics_filter {
    const char *team;
    const char *sandbox_id;
    int64_t from_ms, to_ms; /* rows with samples in between, ends included */
};
#define STORE_METRICS_MAX 20000u /* rows of one answer, the newest */
typedef void (*store_metrics_fn)(void *user, const struct store_metrics *rows, size_t n,
                                 const struct abx_err *failure);
/* Completes without a call. Refused when the queue is full. */
int store_metrics_add(struct store *s, const struct store_metrics *row, struct abx_err *err);
/* Oldest first; sees every write that was queued before. */
int store_metrics_read(struct store *s, const struct store_metrics_filter *filter,
                       store_metrics_fn done, void *user, struct abx_err *err);

/* --- snapshots ---------------------------------------------------------------------------------- */

struct store_snapshot {
    const char *id; /* what the driver keeps it as */
    const char *team;
    const char *name; /* empty = none */
    const char *sandbox_id;
    const char *build_id; /* UUID */
    const char *digest;   /* of the template below it */
    const char *alias;    /* of that template */
    uint32_t disk_mb;
    int64_t created_ms;
};

/* Synced before it completes. */
int store_snapshot_add(struct store *s, const struct store_snapshot *snapshot, store_done_fn done,
                       void *user, struct abx_err *err);
int store_snapshot_remove(struct store *s, const char *id, store_done_fn done, void *user,
                          struct abx_err *err);
/* All, oldest first. Blocks: at start only. */
int store_snapshot_load(struct store *s, void (*each)(void *user, const struct store_snapshot *t),
                        void *user, struct abx_err *err);

/* --- keys -------------------------------------------------------------------------------------- */

struct store_key {
    const char *id; /* UUID */
    const char *team;
    const char *name;
    const char *hash;   /* hex SHA-256 of the key */
    const char *mask;   /* "e2b_1234...cdef" */
    const char *scopes; /* names separated by spaces */
    int64_t created_ms;
    int64_t last_used_ms; /* 0 = never */
    int64_t expires_ms;   /* 0 = never */
    int64_t revoked_ms;   /* 0 = not */
};

int store_key_add(struct store *s, const struct store_key *key, store_done_fn done, void *user,
                  struct abx_err *err);
int store_key_revoke(struct store *s, const char *id, int64_t when_ms, store_done_fn done,
                     void *user, struct abx_err *err);
/* Completes without a call; a use that is not written down is no harm. */
int store_key_used(struct store *s, const char *id, int64_t when_ms, struct abx_err *err);
int store_key_load(struct store *s, void (*each)(void *user, const struct store_key *key),
                   void *user, struct abx_err *err);

/* --- templates --------------------------------------------------------------------------------- */

/* One build under one name and tag, as a join of the five tables. */
struct store_template {
    const char *id; /* template id */
    const char *team;
    const char *name;
    const char *tag;
    const char *build_id; /* UUID */
    const char *digest;
    int64_t created_ms; /* of the build */
};

/* Adds what is missing of template, name, build and tag; the tag moves to this build. */
int store_template_put(struct store *s, const struct store_template *t, store_done_fn done,
                       void *user, struct abx_err *err);
int store_template_load(struct store *s, void (*each)(void *user, const struct store_template *t),
                        void *user, struct abx_err *err);
