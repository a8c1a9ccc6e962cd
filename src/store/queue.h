/* queue.h - the writer thread and its queue. Internal to store/.
 *
 * A write (struct op) is made and completed on the loop's thread and run on the writer's. Its
 * strings are copied into the op. Two connections: one syncs at checkpoints only, one at every
 * commit (op->is_durable). A third thread moves the log into the database when it has grown, so
 * that its syncs delay no commit.
 */
#pragma once

#include "store/db.h"
#include "store/store.h"

struct op_chunk;

struct op {
    struct op *next;
    struct op_chunk *chunks;
    /* On the writer's thread, inside a transaction. */
    int (*run)(struct op *op, struct db *d, struct abx_err *err);
    bool is_durable;
    struct abx_err err;

    struct store_sandbox sandbox;
    struct store_answer answer;
    struct store_event event;
    struct store_key key;
    struct store_template tpl;
    struct store_snapshot snapshot;
    const char *text;
    int64_t when_ms;
    struct store_pruning pruning;
    bool has_answer;
    struct store_created result;
    struct store_event_filter filter;
    struct store_event *events; /* what was read; freed with the op */
    size_t n_events;
    struct store_log log;
    struct store_log_filter log_filter;
    struct store_log *logs; /* what was read; freed with the op */
    size_t n_logs;
    struct store_metrics metrics;
    struct store_metrics_filter metrics_filter;
    struct store_metrics *metrics_rows; /* what was read; freed with the op */
    size_t n_metrics_rows;

    store_done_fn done;
    store_created_fn created;
    store_events_fn listed;
    store_logs_fn logged;
    store_metrics_fn measured;
    void *user;
};

struct op *op_new(void);
void op_free(struct op *op);
DEFINE_CLEANUP(struct op *, op_free)
/* One about the row `id`, which is copied into op->text; NULL when out of memory. */
struct op *op_about(const char *id, int (*run)(struct op *op, struct db *d, struct abx_err *err));
/* Copies a string into the op; NULL becomes "". False when out of memory. */
bool op_keep(struct op *op, const char **text);

/* Queues `op` (owned from here on, freed on failure too). `is_bounded` = refuse when full. */
int queue_push(struct store *s, struct op *op, bool is_bounded, struct abx_err *err);
/* The same of a write that is synced before it completes, and bounded. */
int queue_push_durable(struct store *s, struct op *op, store_done_fn done, void *user,
                       struct abx_err *err);
/* The connection for blocking calls at start. */
struct db *queue_db(struct store *s);
