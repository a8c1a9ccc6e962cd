/* keys.c - rows of keys, templates, teams and values of the service. See store.h. */
#include <stdio.h>

#include "base/str.h"
#include "store/rows.h"

/* --- keys -------------------------------------------------------------------------------------- */

static int run_key_add(struct op *op, struct db *d, struct abx_err *err)
{
    const struct store_key *k = &op->key;

    return db_finish(d,
                     db_bind(d, SQL_KEY_INSERT,
                             "INSERT INTO keys (id, team_id, name, hash, mask, scopes, created_ms,"
                             " last_used_ms, expires_ms, revoked_ms) VALUES ($1, $2, $3, $4, $5,"
                             " $6, $7, $8, $9, $10)",
                             err, "ttttttinnn", k->id, k->team, k->name, k->hash, k->mask,
                             k->scopes, k->created_ms, k->last_used_ms, k->expires_ms,
                             k->revoked_ms),
                     err);
}

int store_key_add(struct store *s, const struct store_key *key, store_done_fn done, void *user,
                  struct abx_err *err)
{
    _cleanup_(op_freep) struct op *op = op_new();

    if (!op)
        return err_oom(err);
    op->key = *key;
    if (!op_keep(op, &op->key.id) || !op_keep(op, &op->key.team) || !op_keep(op, &op->key.name) ||
        !op_keep(op, &op->key.hash) || !op_keep(op, &op->key.mask) || !op_keep(op, &op->key.scopes))
        return err_oom(err);
    op->run = run_key_add;
    return queue_push_durable(s, TAKE_PTR(op), done, user, err);
}

static int run_key_revoke(struct op *op, struct db *d, struct abx_err *err)
{
    return db_finish(d,
                     db_bind(d, SQL_KEY_REVOKE,
                             "UPDATE keys SET revoked_ms = $1 WHERE id = $2"
                             " AND revoked_ms IS NULL",
                             err, "it", op->when_ms, op->text),
                     err);
}

static int run_key_used(struct op *op, struct db *d, struct abx_err *err)
{
    return db_finish(d,
                     db_bind(d, SQL_KEY_USED, "UPDATE keys SET last_used_ms = $1 WHERE id = $2",
                             err, "it", op->when_ms, op->text),
                     err);
}

int store_key_revoke(struct store *s, const char *id, int64_t when_ms, store_done_fn done,
                     void *user, struct abx_err *err)
{
    struct op *op = op_about(id, run_key_revoke);

    if (!op)
        return err_oom(err);
    op->when_ms = when_ms;
    return queue_push_durable(s, op, done, user, err);
}

int store_key_used(struct store *s, const char *id, int64_t when_ms, struct abx_err *err)
{
    struct op *op = op_about(id, run_key_used);

    if (!op)
        return err_oom(err);
    op->when_ms = when_ms;
    return queue_push(s, op, true, err);
}

int store_key_load(struct store *s, void (*each)(void *user, const struct store_key *key),
                   void *user, struct abx_err *err)
{
    struct db *d = queue_db(s);
    sqlite3_stmt *q = db_bind(d, SQL_KEY_LOAD,
                              "SELECT id, team_id, name, hash, mask, scopes, created_ms,"
                              " last_used_ms, expires_ms, revoked_ms FROM keys"
                              " ORDER BY created_ms, id",
                              err, "");
    int r;

    while ((r = db_step(d, q, err)) > 0) {
        struct store_key key = {
            .id = db_text(q, 0),
            .team = db_text(q, 1),
            .name = db_text(q, 2),
            .hash = db_text(q, 3),
            .mask = db_text(q, 4),
            .scopes = db_text(q, 5),
            .created_ms = sqlite3_column_int64(q, 6),
            .last_used_ms = sqlite3_column_int64(q, 7),
            .expires_ms = sqlite3_column_int64(q, 8),
            .revoked_ms = sqlite3_column_int64(q, 9),
        };

        each(user, &key);
    }
    return r;
}

/* --- templates --------------------------------------------------------------------------------- */

static int run_template(struct op *op, struct db *d, struct abx_err *err)
{
    const struct store_template *t = &op->tpl;
    int r = db_finish(d,
                      db_bind(d, SQL_TEMPLATE_INSERT,
                              "INSERT INTO templates (id, team_id, is_public, created_ms,"
                              " updated_ms) VALUES ($1, $2, 1, $3, $3)"
                              " ON CONFLICT (id) DO UPDATE SET updated_ms = excluded.updated_ms",
                              err, "tti", t->id, t->team, t->created_ms),
                      err);

    if (r == 0)
        r = db_finish(d,
                      db_bind(d, SQL_TEMPLATE_NAME,
                              "INSERT INTO template_names (team_id, name, template_id)"
                              " VALUES ($1, $2, $3) ON CONFLICT (team_id, name) DO NOTHING",
                              err, "ttt", t->team, t->name, t->id),
                      err);
    if (r == 0)
        r = db_finish(d,
                      db_bind(d, SQL_TEMPLATE_BUILD,
                              "INSERT INTO template_builds (id, template_id, digest, status,"
                              " created_ms) VALUES ($1, $2, $3, 'ready', $4)"
                              " ON CONFLICT (template_id, digest) DO NOTHING",
                              err, "ttti", t->build_id, t->id, t->digest, t->created_ms),
                      err);
    if (r < 0)
        return r;
    return db_finish(d,
                     db_bind(d, SQL_TEMPLATE_TAG,
                             "INSERT INTO template_tags (template_id, tag, build_id, created_ms)"
                             " VALUES ($1, $2, (SELECT id FROM template_builds WHERE template_id ="
                             " $1 AND digest = $3), $4) ON CONFLICT (template_id, tag) DO UPDATE"
                             " SET build_id = excluded.build_id, created_ms = excluded.created_ms",
                             err, "ttti", t->id, t->tag, t->digest, t->created_ms),
                     err);
}

int store_template_put(struct store *s, const struct store_template *t, store_done_fn done,
                       void *user, struct abx_err *err)
{
    _cleanup_(op_freep) struct op *op = op_new();

    if (!op)
        return err_oom(err);
    op->tpl = *t;
    if (!op_keep(op, &op->tpl.id) || !op_keep(op, &op->tpl.team) || !op_keep(op, &op->tpl.name) ||
        !op_keep(op, &op->tpl.tag) || !op_keep(op, &op->tpl.build_id) ||
        !op_keep(op, &op->tpl.digest))
        return err_oom(err);
    op->run = run_template;
    return queue_push_durable(s, TAKE_PTR(op), done, user, err);
}

int store_template_load(struct store *s, void (*each)(void *user, const struct store_template *t),
                        void *user, struct abx_err *err)
{
    struct db *d = queue_db(s);
    sqlite3_stmt *q =
        db_bind(d, SQL_TEMPLATE_LOAD,
                "SELECT n.template_id, n.team_id, n.name, g.tag, b.id, b.digest, b.created_ms"
                " FROM template_names n JOIN template_tags g ON g.template_id = n.template_id"
                " JOIN template_builds b ON b.id = g.build_id ORDER BY n.name, g.tag",
                err, "");
    int r;

    while ((r = db_step(d, q, err)) > 0) {
        struct store_template t = {
            .id = db_text(q, 0),
            .team = db_text(q, 1),
            .name = db_text(q, 2),
            .tag = db_text(q, 3),
            .build_id = db_text(q, 4),
            .digest = db_text(q, 5),
            .created_ms = sqlite3_column_int64(q, 6),
        };

        each(user, &t);
    }
    return r;
}

/* --- values and teams -------------------------------------------------------------------------- */

/* Copies the first column of the only row, if there is one. */
static int read_one(struct db *d, sqlite3_stmt *read, char *ret, size_t size, bool *ret_found,
                    struct abx_err *err)
{
    int r = db_step(d, read, err);

    *ret_found = r > 0;
    if (r <= 0)
        return r;
    if (snprintf(ret, size, "%s", db_text(read, 0)) >= (int)size)
        r = err_set(err, ABX_DATA_LOSS, "a value in the database is too long");
    (void)sqlite3_reset(read);
    return r < 0 ? r : 0;
}

int store_meta_ensure(struct store *s, const char *name, const char *fallback, char *ret,
                      size_t size, struct abx_err *err)
{
    struct db *d = queue_db(s);
    bool found;
    int r;

    r = db_finish(d,
                  db_bind(d, SQL_META_WRITE,
                          "INSERT INTO meta (name, value) VALUES ($1, $2)"
                          " ON CONFLICT (name) DO NOTHING",
                          err, "tt", name, fallback),
                  err);
    if (r == 0)
        r = read_one(
            d, db_bind(d, SQL_META_READ, "SELECT value FROM meta WHERE name = $1", err, "t", name),
            ret, size, &found, err);
    return r < 0 ? r : (found ? 0 : err_set(err, ABX_INTERNAL, "no value '%s'", name));
}

int store_team_ensure(struct store *s, const char *slug, const char *new_id, char *ret, size_t size,
                      struct abx_err *err)
{
    struct db *d = queue_db(s);
    bool found;
    int r;

    r = db_finish(d,
                  db_bind(d, SQL_TEAM_WRITE,
                          "INSERT INTO teams (id, slug, name, created_ms) VALUES ($1, $2, $2, $3)"
                          " ON CONFLICT (slug) DO NOTHING",
                          err, "tti", new_id, slug, time_wall_ms()),
                  err);
    if (r == 0)
        r = read_one(
            d, db_bind(d, SQL_TEAM_READ, "SELECT id FROM teams WHERE slug = $1", err, "t", slug),
            ret, size, &found, err);
    return r < 0 ? r : (found ? 0 : err_set(err, ABX_INTERNAL, "no team '%s'", slug));
}
