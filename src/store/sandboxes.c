/* sandboxes.c - rows of sandboxes, idempotency keys and events. See store.h. */
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "store/rows.h"

#define TRIM_EVERY 16 /* events of all sandboxes */
#define TRIM_MAX 64
/* What happens to a sandbox once. */
#define ONCE "('sandbox.lifecycle.created', 'sandbox.lifecycle.killed')"

static bool keep_sandbox(struct op *op, const struct store_sandbox *sb)
{
    op->sandbox = *sb;
    return op_keep(op, &op->sandbox.id) && op_keep(op, &op->sandbox.team) &&
           op_keep(op, &op->sandbox.template_id) && op_keep(op, &op->sandbox.build_id) &&
           op_keep(op, &op->sandbox.digest) && op_keep(op, &op->sandbox.alias) &&
           op_keep(op, &op->sandbox.state) && op_keep(op, &op->sandbox.execution_id) &&
           op_keep(op, &op->sandbox.config) && op_keep(op, &op->sandbox.envs) &&
           op_keep(op, &op->sandbox.pause_mode) && op_keep(op, &op->sandbox.idempotency_key) &&
           op_keep(op, &op->sandbox.rollback_copy) && op_keep(op, &op->sandbox.rollback_to);
}

static bool keep_rest(struct op *op, const struct store_answer *answer,
                      const struct store_event *event)
{
    if (answer) {
        op->has_answer = true;
        op->answer = *answer;
        if (!op_keep(op, &op->answer.body))
            return false;
    }
    if (event)
        op->event = *event;
    return op_keep(op, &op->event.id) && op_keep(op, &op->event.type) &&
           op_keep(op, &op->event.data);
}

/* --- create ------------------------------------------------------------------------------------ */

static int claimed_read(struct op *op, struct db *d, struct abx_err *err)
{
    sqlite3_stmt *s = db_bind(d, SQL_CLAIMED,
                              "SELECT request_hash, sandbox_id, status, body FROM idempotency"
                              " WHERE team_id = $1 AND key = $2",
                              err, "tt", op->sandbox.team, op->sandbox.idempotency_key);
    int r = db_step(d, s, err);

    if (r < 0)
        return r;
    if (r == 0)
        return err_set(err, ABX_INTERNAL, "an idempotency key is neither free nor taken");
    op->result.claim = strcmp(db_text(s, 0), op->text) == 0 ? STORE_SAME : STORE_OTHER;
    op->result.sandbox_id = db_text(s, 1);
    op->result.status = sqlite3_column_int(s, 2);
    op->result.body = db_text(s, 3);
    r = op_keep(op, &op->result.sandbox_id) && op_keep(op, &op->result.body) ? 0 : err_oom(err);
    (void)sqlite3_reset(s);
    return r;
}

/* 1 = the key is ours now, 0 = it was taken (op->result says by what). */
static int claim(struct op *op, struct db *d, struct abx_err *err)
{
    const struct store_sandbox *sb = &op->sandbox;
    int r = db_finish(d,
                      db_bind(d, SQL_CLAIM,
                              "INSERT INTO idempotency (team_id, key, request_hash, sandbox_id,"
                              " status, body, created_ms) VALUES ($1, $2, $3, $4, 0, '', $5)"
                              " ON CONFLICT (team_id, key) DO NOTHING",
                              err, "tttti", sb->team, sb->idempotency_key, op->text, sb->id,
                              sb->created_ms),
                      err);

    if (r < 0)
        return r;
    if (sqlite3_changes(d->h) == 1)
        return 1;
    return claimed_read(op, d, err);
}

static int run_create(struct op *op, struct db *d, struct abx_err *err)
{
    const struct store_sandbox *sb = &op->sandbox;
    int r;

    op->result = (struct store_created){ .claim = STORE_NEW, .sandbox_id = sb->id, .body = "" };
    if (sb->idempotency_key[0]) {
        r = claim(op, d, err);
        if (r <= 0)
            return r;
    }
    r = db_finish(
        d,
        db_bind(d, SQL_SANDBOX_INSERT,
                "INSERT INTO sandboxes (id, team_id, template_id, build_id, digest, alias, state,"
                " is_secure, created_ms, started_ms, end_ms, cpu_count, memory_mb, disk_mb,"
                " execution_id, config, idempotency_key, envs) VALUES ($1, $2, $3, $4, $5, $6, $7,"
                " $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)",
                err, "tttttttiiiiiiitttt", sb->id, sb->team, sb->template_id, sb->build_id,
                sb->digest, sb->alias, sb->state, (int64_t)sb->is_secure, sb->created_ms,
                sb->started_ms, sb->end_ms, (int64_t)sb->cpu_count, (int64_t)sb->memory_mb,
                (int64_t)sb->disk_mb, sb->execution_id, sb->config,
                sb->idempotency_key[0] ? sb->idempotency_key : NULL, sb->envs),
        err);
    return r < 0 ? r : fault_at("store.create", err);
}

int store_sandbox_create(struct store *s, const struct store_sandbox *sb, const char *request_hash,
                         store_created_fn done, void *user, struct abx_err *err)
{
    _cleanup_(op_freep) struct op *op = op_new();

    if (!op || !keep_sandbox(op, sb))
        return err_oom(err);
    op->text = request_hash;
    if (!op_keep(op, &op->text))
        return err_oom(err);
    op->run = run_create;
    op->created = done;
    op->user = user;
    return queue_push(s, TAKE_PTR(op), true, err);
}

/* --- later changes ----------------------------------------------------------------------------- */

static int put_answer(struct op *op, struct db *d, struct abx_err *err)
{
    const struct store_sandbox *sb = &op->sandbox;

    if (!op->has_answer || !sb->idempotency_key[0])
        return 0;
    if (op->answer.status == 0)
        return db_finish(d,
                         db_bind(d, SQL_FORGET,
                                 "DELETE FROM idempotency WHERE team_id = $1 AND key = $2"
                                 " AND sandbox_id = $3",
                                 err, "ttt", sb->team, sb->idempotency_key, sb->id),
                         err);
    return db_finish(d,
                     db_bind(d, SQL_ANSWER,
                             "UPDATE idempotency SET status = $1, body = $2 WHERE team_id = $3"
                             " AND key = $4 AND sandbox_id = $5",
                             err, "itttt", (int64_t)op->answer.status, op->answer.body, sb->team,
                             sb->idempotency_key, sb->id),
                     err);
}

/* "sandbox.lifecycle.killed": "Sandbox killed"; "_" is a blank there. */
static int put_event_line(const struct store_sandbox *sb, const struct store_event *e, struct db *d,
                          struct abx_err *err)
{
    const char *dot = strrchr(e->type, '.');
    char message[80];
    struct store_log line = {
        .sandbox_id = sb->id,
        .team = sb->team,
        .time_ms = e->time_ms,
        .level = e->is_warning ? STORE_WARN : STORE_INFO,
        .logger = "lifecycle",
        .message = message,
        .fields = e->data,
    };

    (void)snprintf(message, sizeof message, "Sandbox %s", dot ? dot + 1 : e->type);
    for (char *p = strchr(message, '_'); p; p = strchr(p, '_'))
        *p = ' ';
    return log_insert(d, &line, err);
}

/* A client may set timeouts, pause and resume as often as it likes. Looking for what is over costs a walk over
 * one sandbox's events. */
static int trim_events(const struct store_sandbox *sb, struct db *d, struct abx_err *err)
{
    if (sqlite3_last_insert_rowid(d->h) % TRIM_EVERY != 0)
        return 0;
    return db_finish(
        d,
        db_bind(d, SQL_EVENT_TRIM,
                "DELETE FROM events WHERE id IN (SELECT id FROM events"
                " WHERE sandbox_id = $1 AND type NOT IN " ONCE " AND time_ms <="
                " (SELECT time_ms FROM events WHERE sandbox_id = $1 AND type NOT IN " ONCE
                " ORDER BY time_ms DESC LIMIT 1 OFFSET $2) ORDER BY time_ms LIMIT $3)",
                err, "tii", sb->id, (int64_t)STORE_EVENTS_OF_ONE, (int64_t)TRIM_MAX),
        err);
}

static int put_event(struct op *op, struct db *d, struct abx_err *err)
{
    const struct store_event *e = &op->event;
    const struct store_sandbox *sb = &op->sandbox;
    int r;

    if (!e->id[0])
        return 0;
    r = db_finish(d,
                  db_bind(d, SQL_EVENT,
                          "INSERT INTO events (id, type, sandbox_id, team_id, template_id,"
                          " build_id, execution_id, data, time_ms) VALUES ($1, $2, $3, $4, $5,"
                          " $6, $7, $8, $9)",
                          err, "tttttttti", e->id, e->type, sb->id, sb->team, sb->template_id,
                          sb->build_id, sb->execution_id, e->data, e->time_ms),
                  err);
    if (r == 0)
        r = trim_events(sb, d, err);
    return r < 0 ? r : put_event_line(sb, e, d, err);
}

static int run_run(struct op *op, struct db *d, struct abx_err *err)
{
    const struct store_sandbox *sb = &op->sandbox;
    int r = db_finish(
        d,
        db_bind(d, SQL_SANDBOX_RUN,
                "UPDATE sandboxes SET state = 'running', started_ms = $1,"
                " end_ms = $2, cpu_count = $3, memory_mb = $4, disk_mb = $5,"
                " execution_id = $6, pause_mode = '', rollback_copy = '', rollback_to = '',"
                " config = CASE WHEN $7 = '' THEN config ELSE $7 END WHERE id = $8",
                err, "iiiiittt", sb->started_ms, sb->end_ms, (int64_t)sb->cpu_count,
                (int64_t)sb->memory_mb, (int64_t)sb->disk_mb, sb->execution_id, sb->config, sb->id),
        err);

    if (r == 0 && sqlite3_changes(d->h) != 1)
        r = err_set(err, ABX_INTERNAL, "no row of sandbox '%s'", sb->id);
    if (r == 0)
        r = put_answer(op, d, err);
    if (r == 0)
        r = fault_at("store.run", err);
    return r < 0 ? r : put_event(op, d, err);
}

static int run_remove(struct op *op, struct db *d, struct abx_err *err)
{
    int r = db_finish(d,
                      db_bind(d, SQL_SANDBOX_DELETE, "DELETE FROM sandboxes WHERE id = $1", err,
                              "t", op->sandbox.id),
                      err);

    if (r == 0)
        r = fault_at("store.remove", err);
    return r < 0 ? r : put_event(op, d, err);
}

/* Queues a change of one sandbox. */
static int push_change(struct store *s, const struct store_sandbox *sb,
                       const struct store_answer *answer, const struct store_event *event,
                       int (*run)(struct op *, struct db *, struct abx_err *), store_done_fn done,
                       void *user, bool is_bounded, struct abx_err *err)
{
    _cleanup_(op_freep) struct op *op = op_new();

    if (!op || !keep_sandbox(op, sb) || !keep_rest(op, answer, event))
        return err_oom(err);
    op->run = run;
    op->done = done;
    op->user = user;
    return queue_push(s, TAKE_PTR(op), is_bounded, err);
}

/* The same, and it is on the disk when it completes. */
static int push_durable(struct store *s, const struct store_sandbox *sb,
                        const struct store_event *event,
                        int (*run)(struct op *, struct db *, struct abx_err *), store_done_fn done,
                        void *user, struct abx_err *err)
{
    _cleanup_(op_freep) struct op *op = op_new();

    if (!op || !keep_sandbox(op, sb) || !keep_rest(op, NULL, event))
        return err_oom(err);
    op->run = run;
    op->done = done;
    op->user = user;
    op->is_durable = true;
    return queue_push(s, TAKE_PTR(op), false, err);
}

int store_sandbox_run(struct store *s, const struct store_sandbox *sb,
                      const struct store_answer *answer, const struct store_event *event,
                      store_done_fn done, void *user, struct abx_err *err)
{
    return push_change(s, sb, answer, event, run_run, done, user, false, err);
}

int store_sandbox_remove(struct store *s, const struct store_sandbox *sb,
                         const struct store_event *event, store_done_fn done, void *user,
                         struct abx_err *err)
{
    return push_change(s, sb, NULL, event, run_remove, done, user, false, err);
}

static int run_pause(struct op *op, struct db *d, struct abx_err *err)
{
    const struct store_sandbox *sb = &op->sandbox;
    int r = db_finish(d,
                      db_bind(d, SQL_SANDBOX_PAUSE,
                              "UPDATE sandboxes SET state = 'paused', end_ms = $1, pause_mode = $2,"
                              " rollback_copy = '', rollback_to = '' WHERE id = $3",
                              err, "itt", sb->end_ms, sb->pause_mode, sb->id),
                      err);

    if (r == 0 && sqlite3_changes(d->h) != 1)
        r = err_set(err, ABX_INTERNAL, "no row of sandbox '%s'", sb->id);
    if (r == 0)
        r = fault_at("store.pause", err);
    return r < 0 ? r : put_event(op, d, err);
}

int store_sandbox_pause(struct store *s, const struct store_sandbox *sb,
                        const struct store_event *event, store_done_fn done, void *user,
                        struct abx_err *err)
{
    return push_durable(s, sb, event, run_pause, done, user, err);
}

static int run_killing(struct op *op, struct db *d, struct abx_err *err)
{
    int r = db_finish(d,
                      db_bind(d, SQL_SANDBOX_KILLING,
                              "UPDATE sandboxes SET state = 'killing' WHERE id = $1", err, "t",
                              op->sandbox.id),
                      err);

    if (r == 0)
        r = fault_at("store.killing", err);
    return r < 0 ? r : put_answer(op, d, err);
}

int store_sandbox_killing(struct store *s, const struct store_sandbox *sb,
                          const struct store_answer *answer, struct abx_err *err)
{
    return push_change(s, sb, answer, NULL, run_killing, NULL, NULL, false, err);
}

static int run_extend(struct op *op, struct db *d, struct abx_err *err)
{
    int r =
        db_finish(d,
                  db_bind(d, SQL_SANDBOX_EXTEND, "UPDATE sandboxes SET end_ms = $1 WHERE id = $2",
                          err, "it", op->sandbox.end_ms, op->sandbox.id),
                  err);

    return r < 0 ? r : put_event(op, d, err);
}

int store_sandbox_extend(struct store *s, const struct store_sandbox *sb,
                         const struct store_event *event, store_done_fn done, void *user,
                         struct abx_err *err)
{
    return push_change(s, sb, NULL, event, run_extend, done, user, true, err);
}

static int run_note_rollback(struct op *op, struct db *d, struct abx_err *err)
{
    const struct store_sandbox *sb = &op->sandbox;
    int r = db_finish(d,
                      db_bind(d, SQL_SANDBOX_ROLLBACK,
                              "UPDATE sandboxes SET rollback_copy = $1, rollback_to = $2"
                              " WHERE id = $3",
                              err, "ttt", sb->rollback_copy, sb->rollback_to, sb->id),
                      err);

    if (r == 0 && sqlite3_changes(d->h) != 1)
        r = err_set(err, ABX_INTERNAL, "no row of sandbox '%s'", sb->id);
    if (r == 0)
        r = fault_at("store.rollback", err);
    return r;
}

int store_sandbox_note_rollback(struct store *s, const struct store_sandbox *sb, store_done_fn done,
                                void *user, struct abx_err *err)
{
    return push_durable(s, sb, NULL, run_note_rollback, done, user, err);
}

static int run_configure(struct op *op, struct db *d, struct abx_err *err)
{
    return db_finish(d,
                     db_bind(d, SQL_SANDBOX_CONFIGURE,
                             "UPDATE sandboxes SET config = $1 WHERE id = $2", err, "tt",
                             op->sandbox.config, op->sandbox.id),
                     err);
}

int store_sandbox_configure(struct store *s, const struct store_sandbox *sb, store_done_fn done,
                            void *user, struct abx_err *err)
{
    return push_change(s, sb, NULL, NULL, run_configure, done, user, true, err);
}

/* --- at start ---------------------------------------------------------------------------------- */

int store_sandbox_load(struct store *s, void (*each)(void *user, const struct store_sandbox *sb),
                       void *user, struct abx_err *err)
{
    struct db *d = queue_db(s);
    sqlite3_stmt *q = db_bind(d, SQL_SANDBOX_LOAD,
                              "SELECT id, team_id, template_id, build_id, digest, alias, state,"
                              " is_secure, created_ms, started_ms, end_ms, cpu_count, memory_mb,"
                              " disk_mb, execution_id, config, idempotency_key, envs, pause_mode,"
                              " rollback_copy, rollback_to"
                              " FROM sandboxes"
                              " ORDER BY created_ms, id",
                              err, "");
    int r;

    while ((r = db_step(d, q, err)) > 0) {
        struct store_sandbox sb = {
            .id = db_text(q, 0),
            .team = db_text(q, 1),
            .template_id = db_text(q, 2),
            .build_id = db_text(q, 3),
            .digest = db_text(q, 4),
            .alias = db_text(q, 5),
            .state = db_text(q, 6),
            .is_secure = sqlite3_column_int(q, 7) != 0,
            .created_ms = sqlite3_column_int64(q, 8),
            .started_ms = sqlite3_column_int64(q, 9),
            .end_ms = sqlite3_column_int64(q, 10),
            .cpu_count = (uint32_t)sqlite3_column_int64(q, 11),
            .memory_mb = (uint32_t)sqlite3_column_int64(q, 12),
            .disk_mb = (uint32_t)sqlite3_column_int64(q, 13),
            .execution_id = db_text(q, 14),
            .config = db_text(q, 15),
            .idempotency_key = db_text(q, 16),
            .envs = db_text(q, 17),
            .pause_mode = db_text(q, 18),
            .rollback_copy = db_text(q, 19),
            .rollback_to = db_text(q, 20),
        };

        each(user, &sb);
    }
    return r;
}
