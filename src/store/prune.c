/* prune.c - dropping what is old, or too much. See store.h.
 *
 * The oldest rows of a table go first, a bounded number each time. How many there are is found by a walk over the index of
 * their times: about 13 ms for a million.
 */
#include "store/rows.h"

#define OLD(table, time)                                                                           \
    "DELETE FROM " table " WHERE rowid IN (SELECT rowid FROM " table " WHERE " time                \
    " < $1 ORDER BY " time " LIMIT $2)"
#define OVER(table, time, but)                                                                     \
    "DELETE FROM " table " WHERE rowid IN (SELECT rowid FROM " table " WHERE " time                \
    " <= (SELECT " time " FROM " table " ORDER BY " time " DESC LIMIT 1 OFFSET $1)" but            \
    " ORDER BY " time " LIMIT $2)"

static const struct {
    const char *old, *over;
} kinds[STORE_PRUNED_KINDS] = {
    /* The first request of a key may still run: its answer has to find its place. */
    [STORE_PRUNED_KEYS] = { OLD("idempotency", "created_ms"),
                            OVER("idempotency", "created_ms", " AND status != 0") },
    [STORE_PRUNED_EVENTS] = { OLD("events", "time_ms"), OVER("events", "time_ms", "") },
    [STORE_PRUNED_LOGS] = { OLD("logs", "time_ms"), OVER("logs", "time_ms", "") },
    [STORE_PRUNED_METRICS] = { OLD("metrics", "last_ms"), OVER("metrics", "last_ms", "") },
};

static int run_prune(struct op *op, struct db *d, struct abx_err *err)
{
    int64_t step = op->pruning.step;
    int r = 0;

    for (unsigned i = 0; i < STORE_PRUNED_KINDS && r == 0; i++) {
        const struct store_bound *b = &op->pruning.of[i];

        r = db_finish(d, db_bind(d, SQL_PRUNE + 2 * i, kinds[i].old, err, "ii", b->before_ms, step),
                      err);
        if (r == 0 && b->kept > 0)
            r = db_finish(
                d,
                db_bind(d, SQL_PRUNE + 2 * i + 1, kinds[i].over, err, "ii", (int64_t)b->kept, step),
                err);
    }
    return r;
}

int store_prune(struct store *s, const struct store_pruning *what, store_done_fn done, void *user,
                struct abx_err *err)
{
    struct op *op = op_new();

    if (!op)
        return err_oom(err);
    op->pruning = *what;
    op->run = run_prune;
    op->done = done;
    op->user = user;
    return queue_push(s, op, true, err);
}
