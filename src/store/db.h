/* db.h - one SQLite connection with its prepared statements. Internal to store/.
 *
 * SQL is kept to what PostgreSQL speaks too ($1 parameters, ON CONFLICT, BIGINT); only opening,
 * pragmas and the copy before a migration are SQLite's.
 */
#pragma once

#include <sqlite3.h>

#include "base/err.h"
#include "base/macro.h"

#define DB_STATEMENTS_MAX 64

struct db {
    sqlite3 *h;
    sqlite3_stmt *statements[DB_STATEMENTS_MAX];
};

/* Opens `path`, in WAL mode. `is_full`: every commit is synced, else only checkpoints are. */
int db_open(struct db *d, const char *path, bool is_full, struct abx_err *err);
void db_done(struct db *d);

/* Maps an SQLite result to an error; `what` says what was tried. */
int err_sql(struct abx_err *err, struct db *d, int result, const char *what);

/* Runs SQL text of several statements without parameters. */
int db_script(struct db *d, const char *sql, struct abx_err *err);

/* Prepares (once per connection, cached at `slot`) and binds: one letter per parameter: 't' const
 * char * (NULL allowed), 'i' int64_t, 'n' int64_t where 0 is NULL. Step it with db_step. NULL on
 * error. */
sqlite3_stmt *db_bind(struct db *d, unsigned slot, const char *sql, struct abx_err *err,
                      const char *types, ...);
/* 1 = a row, 0 = done (and reset), < 0 = error (and reset). */
int db_step(struct db *d, sqlite3_stmt *s, struct abx_err *err);
/* For statements without rows: steps to the end. */
int db_finish(struct db *d, sqlite3_stmt *s, struct abx_err *err);
/* Column as text, "" for NULL; borrowed until the next step. */
const char *db_text(sqlite3_stmt *s, int column);
