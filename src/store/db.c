/* db.c - see db.h. */
#include "store/db.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

int err_sql(struct abx_err *err, struct db *d, int result, const char *what)
{
    const char *text = d->h ? sqlite3_errmsg(d->h) : sqlite3_errstr(result);

    switch (result & 0xff) {
    case SQLITE_FULL:
        return err_reason(err, ABX_REASON_DISK_FULL, "%s: %s", what, text);
    case SQLITE_NOMEM:
        return err_oom(err);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_set(err, ABX_UNAVAILABLE, "%s: %s", what, text);
    case SQLITE_CONSTRAINT:
        return err_set(err, ABX_ALREADY_EXISTS, "%s: %s", what, text);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return err_set(
            err, ABX_DATA_LOSS,
            "%s: %s: it is damaged; put a copy of it back, or move control/abx.db* out of "
            "the data dir to begin anew (sandboxes that it knew are ended then)",
            what, text);
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
        return err_set(err, ABX_PERMISSION_DENIED, "%s: %s", what, text);
    default:
        return err_set(err, ABX_INTERNAL, "%s: %s", what, text);
    }
}

int db_script(struct db *d, const char *sql, struct abx_err *err)
{
    int r = sqlite3_exec(d->h, sql, NULL, NULL, NULL);

    return r == SQLITE_OK ? 0 : err_sql(err, d, r, "database");
}

int db_open(struct db *d, const char *path, bool is_full, struct abx_err *err)
{
    int r = sqlite3_open_v2(path, &d->h,
                            SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                                SQLITE_OPEN_EXRESCODE,
                            NULL);

    if (r != SQLITE_OK) {
        r = err_sql(err, d, r, "open the database");
        db_done(d);
        return r;
    }
    (void)sqlite3_busy_timeout(d->h, 5000);
    r = db_script(d, "PRAGMA journal_mode=WAL; PRAGMA foreign_keys=ON; PRAGMA temp_store=MEMORY;",
                  err);
    if (r == 0)
        r = db_script(d, is_full ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL", err);
    /* Checkpoints sync: they are made beside the writer (store.c), not inside a commit. */
    if (r == 0)
        r = db_script(d, "PRAGMA wal_autocheckpoint=0", err);
    if (r < 0)
        db_done(d);
    return r;
}

void db_done(struct db *d)
{
    for (size_t i = 0; i < ARRAY_SIZE(d->statements); i++) {
        (void)sqlite3_finalize(d->statements[i]);
        d->statements[i] = NULL;
    }
    (void)sqlite3_close(d->h);
    d->h = NULL;
}

static int bind_one(sqlite3_stmt *s, int at, char type, va_list *ap)
{
    if (type == 't') {
        const char *text = va_arg(*ap, const char *);

        return text ? sqlite3_bind_text(s, at, text, -1, SQLITE_STATIC) : sqlite3_bind_null(s, at);
    } else {
        int64_t v = va_arg(*ap, int64_t);

        return type == 'n' && v == 0 ? sqlite3_bind_null(s, at) : sqlite3_bind_int64(s, at, v);
    }
}

sqlite3_stmt *db_bind(struct db *d, unsigned slot, const char *sql, struct abx_err *err,
                      const char *types, ...)
{
    sqlite3_stmt *s = d->statements[slot];
    int r = SQLITE_OK;
    va_list ap;

    if (!s) {
        r = sqlite3_prepare_v3(d->h, sql, -1, SQLITE_PREPARE_PERSISTENT, &s, NULL);
        if (r != SQLITE_OK) {
            (void)err_sql(err, d, r, "prepare");
            return NULL;
        }
        d->statements[slot] = s;
    }
    assert(sqlite3_bind_parameter_count(s) == (int)strlen(types));
    va_start(ap, types);
    for (int i = 0; types[i] && r == SQLITE_OK; i++)
        r = bind_one(s, i + 1, types[i], &ap);
    va_end(ap);
    if (r != SQLITE_OK) {
        (void)err_sql(err, d, r, "bind");
        return NULL;
    }
    return s;
}

int db_step(struct db *d, sqlite3_stmt *s, struct abx_err *err)
{
    int r;

    if (!s)
        return err ? err->code : ABX_INTERNAL;
    r = sqlite3_step(s);
    if (r == SQLITE_ROW)
        return 1;
    if (r == SQLITE_DONE) {
        (void)sqlite3_reset(s);
        return 0;
    }
    r = err_sql(err, d, r, "database");
    (void)sqlite3_reset(s);
    return r;
}

int db_finish(struct db *d, sqlite3_stmt *s, struct abx_err *err)
{
    int r;

    do {
        r = db_step(d, s, err);
    } while (r > 0);
    return r;
}

const char *db_text(sqlite3_stmt *s, int column)
{
    const unsigned char *text = sqlite3_column_text(s, column);

    return text ? (const char *)text : "";
}
