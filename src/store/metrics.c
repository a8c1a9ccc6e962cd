/* metrics.c - rows of what sandboxes used. See store.h. */
#include "store/rows.h"

#define ROWS_FIRST 64u

static int run_add(struct op *op, struct db *d, struct abx_err *err)
{
    const struct store_metrics *m = &op->metrics;

    return db_finish(
        d,
        db_bind(d, SQL_METRICS_INSERT,
                "INSERT INTO metrics (sandbox_id, first_ms, last_ms, team_id, cpu_count, memory_mb,"
                " disk_mb, samples) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
                " ON CONFLICT (sandbox_id, first_ms) DO NOTHING",
                err, "tiitiiit", m->sandbox_id, m->first_ms, m->last_ms, m->team,
                (int64_t)m->cpu_count, (int64_t)m->memory_mb, (int64_t)m->disk_mb, m->samples),
        err);
}

int store_metrics_add(struct store *s, const struct store_metrics *row, struct abx_err *err)
{
    _cleanup_(op_freep) struct op *op = op_new();

    if (!op)
        return err_oom(err);
    op->metrics = *row;
    if (!op_keep(op, &op->metrics.sandbox_id) || !op_keep(op, &op->metrics.team) ||
        !op_keep(op, &op->metrics.samples))
        return err_oom(err);
    op->run = run_add;
    return queue_push(s, TAKE_PTR(op), true, err);
}

/* A place for one more row; NULL without memory. */
static struct store_metrics *next_row(struct op *op)
{
    size_t n = op->n_metrics_rows;
    bool is_full = n >= ROWS_FIRST ? (n & (n - 1)) == 0 : n == 0;

    if (is_full) { /* at 0, 64, 128, 256 ... */
        size_t room = MAX(2 * n, (size_t)ROWS_FIRST);
        struct store_metrics *rows = realloc(op->metrics_rows, room * sizeof(*rows));

        if (!rows)
            return NULL;
        op->metrics_rows = rows;
    }
    return &op->metrics_rows[op->n_metrics_rows++];
}

static void reverse(struct store_metrics *rows, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        struct store_metrics other = rows[i];

        rows[i] = rows[n - 1 - i];
        rows[n - 1 - i] = other;
    }
}

static int run_read(struct op *op, struct db *d, struct abx_err *err)
{
    const struct store_metrics_filter *f = &op->metrics_filter;
    sqlite3_stmt *q = db_bind(d, SQL_METRICS_READ,
                              "SELECT first_ms, last_ms, cpu_count, memory_mb, disk_mb, samples"
                              " FROM metrics WHERE sandbox_id = $1 AND team_id = $2"
                              " AND last_ms >= $3 AND first_ms <= $4"
                              " ORDER BY first_ms DESC LIMIT $5",
                              err, "ttiii", f->sandbox_id, f->team, f->from_ms, f->to_ms,
                              (int64_t)STORE_METRICS_MAX);
    int r;

    while ((r = db_step(d, q, err)) > 0) {
        struct store_metrics *row = next_row(op);

        if (row) {
            *row = (struct store_metrics){
                .sandbox_id = f->sandbox_id,
                .team = f->team,
                .first_ms = sqlite3_column_int64(q, 0),
                .last_ms = sqlite3_column_int64(q, 1),
                .cpu_count = (uint32_t)sqlite3_column_int64(q, 2),
                .memory_mb = (uint32_t)sqlite3_column_int64(q, 3),
                .disk_mb = (uint32_t)sqlite3_column_int64(q, 4),
                .samples = db_text(q, 5),
            };
            if (op_keep(op, &row->samples))
                continue;
        }
        (void)sqlite3_reset(q);
        return err_oom(err);
    }
    if (r == 0)
        reverse(op->metrics_rows, op->n_metrics_rows);
    return r;
}

int store_metrics_read(struct store *s, const struct store_metrics_filter *filter,
                       store_metrics_fn done, void *user, struct abx_err *err)
{
    _cleanup_(op_freep) struct op *op = op_new();

    if (!op)
        return err_oom(err);
    op->metrics_filter = *filter;
    if (!op_keep(op, &op->metrics_filter.team) || !op_keep(op, &op->metrics_filter.sandbox_id))
        return err_oom(err);
    op->run = run_read;
    op->measured = done;
    op->user = user;
    return queue_push(s, TAKE_PTR(op), true, err);
}
