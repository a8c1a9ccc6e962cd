/* snapshots.c - rows of snapshots. See store.h. */
#include "base/fault.h"
#include "store/rows.h"

static int run_add(struct op *op, struct db *d, struct abx_err *err)
{
    const struct store_snapshot *t = &op->snapshot;
    int r =
        db_finish(d,
                  db_bind(d, SQL_SNAPSHOT_INSERT,
                          "INSERT INTO snapshots (id, team_id, name, sandbox_id, build_id, digest,"
                          " alias, disk_mb, created_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8,"
                          " $9)",
                          err, "tttttttii", t->id, t->team, t->name, t->sandbox_id, t->build_id,
                          t->digest, t->alias, (int64_t)t->disk_mb, t->created_ms),
                  err);

    return r < 0 ? r : fault_at("store.snapshot", err);
}

int store_snapshot_add(struct store *s, const struct store_snapshot *snapshot, store_done_fn done,
                       void *user, struct abx_err *err)
{
    _cleanup_(op_freep) struct op *op = op_new();
    struct store_snapshot *t = op ? &op->snapshot : NULL;

    if (!op)
        return err_oom(err);
    *t = *snapshot;
    if (!op_keep(op, &t->id) || !op_keep(op, &t->team) || !op_keep(op, &t->name) ||
        !op_keep(op, &t->sandbox_id) || !op_keep(op, &t->build_id) || !op_keep(op, &t->digest) ||
        !op_keep(op, &t->alias))
        return err_oom(err);
    op->run = run_add;
    return queue_push_durable(s, TAKE_PTR(op), done, user, err);
}

static int run_remove(struct op *op, struct db *d, struct abx_err *err)
{
    return db_finish(
        d,
        db_bind(d, SQL_SNAPSHOT_DELETE, "DELETE FROM snapshots WHERE id = $1", err, "t", op->text),
        err);
}

int store_snapshot_remove(struct store *s, const char *id, store_done_fn done, void *user,
                          struct abx_err *err)
{
    struct op *op = op_about(id, run_remove);

    return op ? queue_push_durable(s, op, done, user, err) : err_oom(err);
}

int store_snapshot_load(struct store *s, void (*each)(void *user, const struct store_snapshot *t),
                        void *user, struct abx_err *err)
{
    struct db *d = queue_db(s);
    sqlite3_stmt *q = db_bind(d, SQL_SNAPSHOT_LOAD,
                              "SELECT id, team_id, name, sandbox_id, build_id, digest, alias,"
                              " disk_mb, created_ms FROM snapshots ORDER BY created_ms, id",
                              err, "");
    int r;

    while ((r = db_step(d, q, err)) > 0) {
        struct store_snapshot t = {
            .id = db_text(q, 0),
            .team = db_text(q, 1),
            .name = db_text(q, 2),
            .sandbox_id = db_text(q, 3),
            .build_id = db_text(q, 4),
            .digest = db_text(q, 5),
            .alias = db_text(q, 6),
            .disk_mb = (uint32_t)sqlite3_column_int64(q, 7),
            .created_ms = sqlite3_column_int64(q, 8),
        };

        each(user, &t);
    }
    return r;
}
