/* rows.h - slots of the prepared statements, one enum for all files. Internal to store/. */
#pragma once

#include "store/queue.h"

enum {
    SQL_SANDBOX_INSERT,
    SQL_SANDBOX_RUN,
    SQL_SANDBOX_KILLING,
    SQL_SANDBOX_PAUSE,
    SQL_SANDBOX_EXTEND,
    SQL_SANDBOX_ROLLBACK,
    SQL_SANDBOX_CONFIGURE,
    SQL_SANDBOX_DELETE,
    SQL_SANDBOX_LOAD,
    SQL_CLAIM,
    SQL_CLAIMED,
    SQL_ANSWER,
    SQL_FORGET,
    SQL_EVENT,
    SQL_EVENT_TRIM,
    SQL_EVENTS, /* four: all or one sandbox, descending or ascending */
    SQL_EVENTS_LAST_ = SQL_EVENTS + 3,
    SQL_LOG_INSERT,
    SQL_LOG_TRIM,
    SQL_LOG_TRIM_PROCESS,
    SQL_LOGS_READ, /* two: ascending, descending */
    SQL_LOGS_READ_LAST_ = SQL_LOGS_READ + 1,
    SQL_METRICS_INSERT,
    SQL_METRICS_READ,
    SQL_PRUNE, /* two of each kind: what is old, what is too much */
    SQL_PRUNE_LAST_ = SQL_PRUNE + 2 * STORE_PRUNED_KINDS - 1,
    SQL_KEY_INSERT,
    SQL_KEY_REVOKE,
    SQL_KEY_USED,
    SQL_KEY_LOAD,
    SQL_TEMPLATE_INSERT,
    SQL_TEMPLATE_NAME,
    SQL_TEMPLATE_BUILD,
    SQL_TEMPLATE_TAG,
    SQL_TEMPLATE_LOAD,
    SQL_SNAPSHOT_INSERT,
    SQL_SNAPSHOT_DELETE,
    SQL_SNAPSHOT_LOAD,
    SQL_META_READ,
    SQL_META_WRITE,
    SQL_TEAM_READ,
    SQL_TEAM_WRITE,
    SQL_COUNT_,
};
_Static_assert(SQL_COUNT_ <= DB_STATEMENTS_MAX, "more statements than slots");

/* logs.c: writes a line, inside a transaction. */
int log_insert(struct db *d, const struct store_log *log, struct abx_err *err);
