/* log.h - one line per event to stderr, key=value or JSON.
 *
 * Library code logs nothing above debug; the edge of each program logs once. Never log keys, tokens,
 * bodies or environment values. Values are quoted, control characters escaped, values over 1000
 * bytes cut; pairs that do not fit into a line of 8 KiB are left out. errno is kept.
 *
 *     log_info("sandbox started", "id", id, "ms", "12", NULL);
 */
#pragma once

#include "base/err.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Role name (static string) in every line; level and format from ABX_LOG_LEVEL (error, warn, info,
 * debug; default info) and ABX_LOG_FORMAT (text, json; default text). */
void log_init(const char *role);
void log_set_level(enum log_level level);
bool log_is_on(enum log_level level);

/* `msg`, then pairs of const char * key and value, then NULL. A NULL value ends the list too. */
void log_event(enum log_level level, const char *msg, ...) __attribute__((__sentinel__));

#define log_error(...) log_event(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_event(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_event(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_event(LOG_DEBUG, __VA_ARGS__)

/* Logs `err` at error level under `msg`. */
void log_err(const char *msg, const struct abx_err *err);
/* The same for what ends the program at its start. Whoever started it gets the error's text, too, when the
 * environment's ABX_LOG_FAILURE_FD named an inherited descriptor to log_init (which takes both away from
 * the program's children). */
void log_start_failure(const char *msg, const struct abx_err *err);
