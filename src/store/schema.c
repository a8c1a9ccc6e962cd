/* schema.c - see schema.h. */
#include "store/schema.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static const char *const steps_sql[] = {
    /* 0 -> 1. Teams, names, tags and builds are tables of their own from the start. */
    "CREATE TABLE teams ("
    " id TEXT PRIMARY KEY, slug TEXT NOT NULL UNIQUE, name TEXT NOT NULL,"
    " created_ms BIGINT NOT NULL);"
    "CREATE TABLE keys ("
    " id TEXT PRIMARY KEY, team_id TEXT NOT NULL REFERENCES teams(id), name TEXT NOT NULL,"
    " hash TEXT NOT NULL UNIQUE, mask TEXT NOT NULL, scopes TEXT NOT NULL,"
    " created_ms BIGINT NOT NULL, last_used_ms BIGINT, expires_ms BIGINT, revoked_ms BIGINT);"
    "CREATE TABLE templates ("
    " id TEXT PRIMARY KEY, team_id TEXT NOT NULL REFERENCES teams(id), is_public INTEGER NOT NULL,"
    " created_ms BIGINT NOT NULL, updated_ms BIGINT NOT NULL);"
    "CREATE TABLE template_names ("
    " team_id TEXT NOT NULL REFERENCES teams(id), name TEXT NOT NULL,"
    " template_id TEXT NOT NULL REFERENCES templates(id), PRIMARY KEY (team_id, name));"
    "CREATE TABLE template_builds ("
    " id TEXT PRIMARY KEY, template_id TEXT NOT NULL REFERENCES templates(id),"
    " digest TEXT NOT NULL, status TEXT NOT NULL, created_ms BIGINT NOT NULL,"
    " UNIQUE (template_id, digest));"
    "CREATE TABLE template_tags ("
    " template_id TEXT NOT NULL REFERENCES templates(id), tag TEXT NOT NULL,"
    " build_id TEXT NOT NULL REFERENCES template_builds(id), created_ms BIGINT NOT NULL,"
    " PRIMARY KEY (template_id, tag));"
    /* No references: a sandbox may outlive its template. */
    "CREATE TABLE sandboxes ("
    " id TEXT PRIMARY KEY, team_id TEXT NOT NULL, template_id TEXT NOT NULL,"
    " build_id TEXT NOT NULL, digest TEXT NOT NULL, alias TEXT NOT NULL, state TEXT NOT NULL,"
    " is_secure INTEGER NOT NULL, created_ms BIGINT NOT NULL, started_ms BIGINT NOT NULL,"
    " end_ms BIGINT NOT NULL, cpu_count BIGINT NOT NULL, memory_mb BIGINT NOT NULL,"
    " disk_mb BIGINT NOT NULL, execution_id TEXT NOT NULL, config TEXT NOT NULL,"
    " idempotency_key TEXT);"
    "CREATE TABLE idempotency ("
    " team_id TEXT NOT NULL, key TEXT NOT NULL, request_hash TEXT NOT NULL,"
    " sandbox_id TEXT NOT NULL, status INTEGER NOT NULL, body TEXT NOT NULL,"
    " created_ms BIGINT NOT NULL, PRIMARY KEY (team_id, key));"
    "CREATE INDEX idempotency_created ON idempotency (created_ms);"
    "CREATE TABLE events ("
    " id TEXT PRIMARY KEY, type TEXT NOT NULL, sandbox_id TEXT NOT NULL, team_id TEXT NOT NULL,"
    " template_id TEXT NOT NULL, build_id TEXT NOT NULL, execution_id TEXT NOT NULL,"
    " data TEXT NOT NULL, time_ms BIGINT NOT NULL);"
    "CREATE INDEX events_time ON events (time_ms);"
    "CREATE INDEX events_sandbox ON events (sandbox_id, time_ms);",
    /* 1 -> 2. Paused sandboxes; the environment is needed again when one starts anew from its files. */
    "ALTER TABLE sandboxes ADD COLUMN pause_mode TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE sandboxes ADD COLUMN envs TEXT NOT NULL DEFAULT '';",
    /* 2 -> 3. What sandboxes used. One row has several samples, of the same sizes: see store.h. */
    "CREATE TABLE metrics ("
    " sandbox_id TEXT NOT NULL, first_ms BIGINT NOT NULL, last_ms BIGINT NOT NULL,"
    " team_id TEXT NOT NULL, cpu_count BIGINT NOT NULL, memory_mb BIGINT NOT NULL,"
    " disk_mb BIGINT NOT NULL, samples TEXT NOT NULL, PRIMARY KEY (sandbox_id, first_ms));"
    "CREATE INDEX metrics_last ON metrics (last_ms);",
    /* 3 -> 4. */
    "CREATE TABLE snapshots ("
    " id TEXT PRIMARY KEY, team_id TEXT NOT NULL, name TEXT NOT NULL, sandbox_id TEXT NOT NULL,"
    " build_id TEXT NOT NULL, digest TEXT NOT NULL, alias TEXT NOT NULL, disk_mb BIGINT NOT NULL,"
    " created_ms BIGINT NOT NULL);",
    /* 4 -> 5. What can be read as a sandbox's logs. `level`: enum store_level. */
    "CREATE TABLE logs ("
    " seq INTEGER PRIMARY KEY, sandbox_id TEXT NOT NULL, team_id TEXT NOT NULL,"
    " time_ms BIGINT NOT NULL, level INTEGER NOT NULL, logger TEXT NOT NULL,"
    " message TEXT NOT NULL, fields TEXT NOT NULL);"
    "CREATE INDEX logs_sandbox ON logs (sandbox_id, time_ms);"
    "CREATE INDEX logs_time ON logs (time_ms);",
    /* 5 -> 6. A sandbox on its way to the files of a snapshot: see store.h. */
    "ALTER TABLE sandboxes ADD COLUMN rollback_copy TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE sandboxes ADD COLUMN rollback_to TEXT NOT NULL DEFAULT '';",
};

const struct schema_steps schema_steps = { steps_sql, ARRAY_SIZE(steps_sql) };

static int read_version(struct db *d, unsigned *ret, struct abx_err *err)
{
    sqlite3_stmt *s = NULL;
    int r = sqlite3_prepare_v2(d->h, "SELECT value FROM meta WHERE name = 'schema'", -1, &s, NULL);

    if (r != SQLITE_OK)
        return err_sql(err, d, r, "read the database's version");
    r = sqlite3_step(s);
    *ret = r == SQLITE_ROW ? (unsigned)sqlite3_column_int(s, 0) : 0;
    (void)sqlite3_finalize(s);
    if (r != SQLITE_ROW && r != SQLITE_DONE)
        return err_sql(err, d, r, "read the database's version");
    return 0;
}

static int copy_before(struct db *d, const char *path, unsigned version, struct abx_err *err)
{
    char name[4096];
    sqlite3_stmt *s = NULL;
    int r;

    if (snprintf(name, sizeof name, "%s.before-%u", path, version) >= (int)sizeof name)
        return err_set(err, ABX_INVALID_ARGUMENT, "path of the database is too long");
    /* What an interrupted run left would make VACUUM INTO refuse. */
    (void)unlink(name);
    r = sqlite3_prepare_v2(d->h, "VACUUM INTO $1", -1, &s, NULL);
    if (r == SQLITE_OK)
        r = sqlite3_bind_text(s, 1, name, -1, SQLITE_STATIC);
    if (r == SQLITE_OK)
        r = sqlite3_step(s);
    (void)sqlite3_finalize(s);
    if (r != SQLITE_DONE)
        return err_sql(err, d, r, "copy the database before its migration");
    return 0;
}

static int run_step(struct db *d, const char *sql, unsigned version, struct abx_err *err)
{
    char set[128];
    int r = db_script(d, "BEGIN", err);

    if (r < 0)
        return r;
    (void)snprintf(set, sizeof set,
                   "DELETE FROM meta WHERE name = 'schema';"
                   "INSERT INTO meta (name, value) VALUES ('schema', '%u')",
                   version);
    r = db_script(d, sql, err);
    if (r == 0)
        r = db_script(d, set, err);
    if (r == 0)
        r = db_script(d, "COMMIT", err);
    if (r < 0)
        (void)db_script(d, "ROLLBACK", NULL);
    return r;
}

int schema_migrate(struct db *d, const char *path, const struct schema_steps *steps,
                   struct abx_err *err)
{
    unsigned version;
    int r = db_script(
        d, "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)", err);

    if (r == 0)
        r = read_version(d, &version, err);
    if (r < 0)
        return r;
    if (version > steps->n)
        return err_set(err, ABX_FAILED_PRECONDITION,
                       "the database has version %u, this release knows %u: use a newer release",
                       version, steps->n);
    if (version > 0 && version < steps->n) {
        r = copy_before(d, path, steps->n, err);
        if (r < 0)
            return r;
    }
    for (; version < steps->n && r == 0; version++)
        r = run_step(d, steps->sql[version], version + 1, err);
    return r < 0 ? err_wrap(err, r, "migration to version %u", version) : 0;
}
