/* watch_queue.h - changes of files that a client has not taken yet, packed into one buffer.
 *
 * Bounded by itself (WATCH_QUEUE_*) and, with all others of a sandbox, by a budget; used by one thread
 * at a time, the budget by all. An empty queue holds no memory.
 */
#pragma once

#include <stdatomic.h>

#include "base/buf.h"

#define WATCH_QUEUE_EVENTS_MAX 65536
#define WATCH_QUEUE_BYTES_MAX (4u << 20)
#define WATCH_BUDGET_BYTES (16u << 20) /* of all queues */
#define WATCH_BUDGET_DIRS 32768        /* folders watched by all watchers */

struct watch_budget {
    atomic_long bytes; /* left */
    atomic_long dirs;
};
void watch_budget_init(struct watch_budget *b);
/* Takes `n` out of one of the two; false, and nothing taken, when it is not there. */
bool watch_budget_take(atomic_long *left, size_t n);
void watch_budget_give(atomic_long *left, size_t n);

/* Numbers of filesystem.EventType. */
enum watch_op { WATCH_CREATE = 1, WATCH_WRITE, WATCH_REMOVE, WATCH_RENAME, WATCH_CHMOD };

struct watch_queue {
    struct watch_budget *budget; /* borrowed */
    struct buf records;          /* struct record, name, padding */
    size_t n;
    size_t last; /* size of the newest record */
};

void watch_queue_init(struct watch_queue *q, struct watch_budget *budget);
void watch_queue_done(struct watch_queue *q);
/* Adds one. A write or change of attributes of the file that the newest one is about already is the
 * same one. BUF_LIMIT when the queue or the budget is full. */
enum buf_status watch_queue_push(struct watch_queue *q, enum watch_op op, const char *name,
                                 size_t name_n);
/* Oldest one; `ret_name` is NUL-terminated and borrowed until the next call. False when empty. */
bool watch_queue_peek(struct watch_queue *q, enum watch_op *ret_op, const char **ret_name);
void watch_queue_pop(struct watch_queue *q);
