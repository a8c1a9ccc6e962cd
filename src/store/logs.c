/* logs.c - lines of sandboxes' logs. See store.h. */
#include <stdio.h>
#include <string.h>

#include "store/rows.h"

#define TRIM_EVERY                                                                                 \
    16 /* lines of all sandboxes: looking for what is over costs a walk over one sandbox's */
#define PATTERN_MAX 1024u

/* What the sandbox says itself must not push out what the service says of it. */
static int trim(struct db *d, const struct store_log *log, struct abx_err *err)
{
#define OVER_LIMIT(which)                                                                          \
    "DELETE FROM logs WHERE sandbox_id = $1" which " AND time_ms <= (SELECT time_ms FROM logs"     \
    " WHERE sandbox_id = $1" which " ORDER BY time_ms DESC LIMIT 1 OFFSET $2)"
    int r = db_finish(d,
                      db_bind(d, SQL_LOG_TRIM_PROCESS, OVER_LIMIT(" AND logger = 'process'"), err,
                              "ti", log->sandbox_id, (int64_t)STORE_PROCESS_LOGS_MAX),
                      err);

    return r < 0 ? r
                 : db_finish(d,
                             db_bind(d, SQL_LOG_TRIM, OVER_LIMIT(""), err, "ti", log->sandbox_id,
                                     (int64_t)STORE_LOGS_MAX),
                             err);
}

int log_insert(struct db *d, const struct store_log *log, struct abx_err *err)
{
    int r = db_finish(d,
                      db_bind(d, SQL_LOG_INSERT,
                              "INSERT INTO logs (sandbox_id, team_id, time_ms, level, logger,"
                              " message, fields) VALUES ($1, $2, $3, $4, $5, $6, $7)",
                              err, "ttiittt", log->sandbox_id, log->team, log->time_ms,
                              (int64_t)log->level, log->logger, log->message, log->fields),
                      err);

    if (r < 0 || sqlite3_last_insert_rowid(d->h) % TRIM_EVERY != 0)
        return r;
    return trim(d, log, err);
}

static int run_add(struct op *op, struct db *d, struct abx_err *err)
{
    return log_insert(d, &op->log, err);
}

static bool keep_log(struct op *op, struct store_log *log)
{
    return op_keep(op, &log->sandbox_id) && op_keep(op, &log->team) && op_keep(op, &log->logger) &&
           op_keep(op, &log->message) && op_keep(op, &log->fields);
}

int store_log_add(struct store *s, const struct store_log *log, struct abx_err *err)
{
    _cleanup_(op_freep) struct op *op = op_new();

    if (!op)
        return err_oom(err);
    op->log = *log;
    if (!keep_log(op, &op->log))
        return err_oom(err);
    op->run = run_add;
    return queue_push(s, TAKE_PTR(op), true, err);
}

/* --- reading ------------------------------------------------------------------------------------ */

/* LIKE's pattern for text that contains `search`. */
static int make_pattern(const char *search, char to[PATTERN_MAX], struct abx_err *err)
{
    size_t n = 0;

    to[n++] = '%';
    for (const char *c = search; *c; c++) {
        if (n > PATTERN_MAX - 4)
            return err_set(err, ABX_INVALID_ARGUMENT, "text to look for is too long");
        if (strchr("%_!", *c))
            to[n++] = '!';
        to[n++] = *c;
    }
    to[n++] = '%';
    to[n] = '\0';
    return 0;
}

static bool take_row(struct op *op, sqlite3_stmt *q)
{
    struct store_log *log = &op->logs[op->n_logs++];

    *log = (struct store_log){
        .sandbox_id = op->log_filter.sandbox_id,
        .team = op->log_filter.team,
        .time_ms = sqlite3_column_int64(q, 0),
        .level = (enum store_level)sqlite3_column_int(q, 1),
        .logger = db_text(q, 2),
        .message = db_text(q, 3),
        .fields = db_text(q, 4),
    };
    return op_keep(op, &log->logger) && op_keep(op, &log->message) && op_keep(op, &log->fields);
}

static int run_read(struct op *op, struct db *d, struct abx_err *err)
{
#define SELECT_LOGS                                                                                \
    "SELECT time_ms, level, logger, message, fields FROM logs WHERE sandbox_id = $1"               \
    " AND time_ms >= $2 AND time_ms <= $3 AND team_id = $4 AND level >= $5"                        \
    " AND message LIKE $6 ESCAPE '!'"
    static const char *const queries[] = {
        SELECT_LOGS " ORDER BY time_ms ASC, seq ASC LIMIT $7",
        SELECT_LOGS " ORDER BY time_ms DESC, seq DESC LIMIT $7",
    };
    const struct store_log_filter *f = &op->log_filter;
    char pattern[PATTERN_MAX];
    sqlite3_stmt *q;
    int r = make_pattern(f->search, pattern, err);

    if (r < 0)
        return r;
    q = db_bind(d, SQL_LOGS_READ + (f->is_descending ? 1u : 0u), queries[f->is_descending], err,
                "tiititi", f->sandbox_id, f->from_ms, f->to_ms, f->team, (int64_t)f->level, pattern,
                (int64_t)f->limit);
    while ((r = db_step(d, q, err)) > 0) {
        if (op->n_logs < f->limit && take_row(op, q))
            continue;
        (void)sqlite3_reset(q);
        return err_oom(err);
    }
    return r;
}

int store_logs_read(struct store *s, const struct store_log_filter *filter, store_logs_fn done,
                    void *user, struct abx_err *err)
{
    _cleanup_(op_freep) struct op *op = op_new();
    struct store_log_filter *f;

    if (!op)
        return err_oom(err);
    f = &op->log_filter;
    *f = *filter;
    f->limit = MIN(filter->limit, STORE_LOGS_PAGE);
    op->logs = calloc(f->limit + 1, sizeof(*op->logs));
    if (!op->logs || !op_keep(op, &f->team) || !op_keep(op, &f->sandbox_id) ||
        !op_keep(op, &f->search))
        return err_oom(err);
    op->run = run_read;
    op->logged = done;
    op->user = user;
    return queue_push(s, TAKE_PTR(op), true, err);
}
