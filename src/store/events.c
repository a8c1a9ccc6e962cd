/* events.c - reading what happened to sandboxes. See store.h. */
#include "store/rows.h"

#define COLUMNS                                                                                    \
    "SELECT id, type, data, time_ms, sandbox_id, team_id, template_id, build_id, execution_id"     \
    " FROM events WHERE team_id = $1"
#define ONE " AND sandbox_id = $2"
#define ANY " AND $2 = ''" /* the parameters stay the same */

static const char *const queries[] = {
    COLUMNS ANY " ORDER BY time_ms DESC, rowid DESC LIMIT $3 OFFSET $4",
    COLUMNS ANY " ORDER BY time_ms ASC, rowid ASC LIMIT $3 OFFSET $4",
    COLUMNS ONE " ORDER BY time_ms DESC, rowid DESC LIMIT $3 OFFSET $4",
    COLUMNS ONE " ORDER BY time_ms ASC, rowid ASC LIMIT $3 OFFSET $4",
};

static bool keep_event(struct op *op, sqlite3_stmt *q)
{
    struct store_event *e = &op->events[op->n_events++];

    *e = (struct store_event){
        .id = db_text(q, 0),
        .type = db_text(q, 1),
        .data = db_text(q, 2),
        .time_ms = sqlite3_column_int64(q, 3),
        .sandbox_id = db_text(q, 4),
        .team = db_text(q, 5),
        .template_id = db_text(q, 6),
        .build_id = db_text(q, 7),
        .execution_id = db_text(q, 8),
    };
    return op_keep(op, &e->id) && op_keep(op, &e->type) && op_keep(op, &e->data) &&
           op_keep(op, &e->sandbox_id) && op_keep(op, &e->team) && op_keep(op, &e->template_id) &&
           op_keep(op, &e->build_id) && op_keep(op, &e->execution_id);
}

static int run_events(struct op *op, struct db *d, struct abx_err *err)
{
    const struct store_event_filter *f = &op->filter;
    unsigned which = (f->sandbox_id[0] ? 2u : 0u) + (f->is_ascending ? 1u : 0u);
    sqlite3_stmt *q = db_bind(d, SQL_EVENTS + which, queries[which], err, "ttii", f->team,
                              f->sandbox_id, (int64_t)f->limit, (int64_t)f->offset);
    int r;

    while ((r = db_step(d, q, err)) > 0) {
        if (op->n_events < f->limit && keep_event(op, q))
            continue;
        (void)sqlite3_reset(q);
        return err_oom(err);
    }
    return r;
}

int store_events(struct store *s, const struct store_event_filter *filter, store_events_fn done,
                 void *user, struct abx_err *err)
{
    _cleanup_(op_freep) struct op *op = op_new();

    if (!op)
        return err_oom(err);
    op->filter = *filter;
    op->filter.limit = MIN(filter->limit, STORE_EVENTS_MAX);
    op->events = calloc(op->filter.limit + 1, sizeof(*op->events));
    if (!op->events || !op_keep(op, &op->filter.team) || !op_keep(op, &op->filter.sandbox_id))
        return err_oom(err);
    op->run = run_events;
    op->listed = done;
    op->user = user;
    return queue_push(s, TAKE_PTR(op), true, err);
}
