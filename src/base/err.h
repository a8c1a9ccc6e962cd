/* err.h - the one error type of the project.
 *
 * A fallible function returns 0 or one of the codes below and takes `struct abx_err *err` last
 * (NULL allowed). Codes are the 16 Connect/gRPC codes at -1000 - wire number, so that they never
 * equal -errno. The reason is finer than the code and decides HTTP status and CLI exit; when no
 * reason is given it follows from the code. The message is inline: nothing to free.
 */
#pragma once

#include "abx/error.h"
#include "base/macro.h"

/* The codes and `enum abx_reason` are those of the installed API. */
#define ABX_ERR_MSG_MAX 480

struct abx_err {
    int code;               /* one of the codes above, 0 = no error */
    enum abx_reason reason; /* ABX_REASON_NONE = by code */
    int sys;                /* errno of the failed call, 0 = none */
    char msg[ABX_ERR_MSG_MAX];
};

/* Sets `err` (may be NULL) to `code` with a formatted message; returns `code`. */
int err_set(struct abx_err *err, int code, const char *fmt, ...) _printf_(3, 4);

/* Like err_set with a reason; the code is the reason's own. Returns that code. */
int err_reason(struct abx_err *err, enum abx_reason reason, const char *fmt, ...) _printf_(3, 4);

/* Maps errno value `sys` to a code, keeps it in err->sys and appends ": <strerror>". Returns the
 * code. ENOSPC and EDQUOT get ABX_REASON_DISK_FULL. */
int err_sys(struct abx_err *err, int sys, const char *fmt, ...) _printf_(3, 4);

/* Out of memory: ABX_RESOURCE_EXHAUSTED with a fixed text. */
int err_oom(struct abx_err *err);

/* Prefixes the message of an already set `err` with "<fmt>: " and returns `code` unchanged. */
int err_wrap(struct abx_err *err, int code, const char *fmt, ...) _printf_(3, 4);

/* Code for an errno value (positive). Never 0. */
int err_code_from_errno(int sys);

/* Connect name of a code ("not_found"), "unknown" for anything else. Static. */
const char *err_code_name(int code);

/* Code for a Connect name; ABX_UNKNOWN when there is none. */
int err_code_from_name(const char *name);

/* HTTP status by Connect's table (e2b.md 3.1): not_found 404, resource_exhausted 429 ... */
int err_code_http_status(int code);

/* HTTP status of an error: its reason's if set, else its code's. */
int err_http_status(const struct abx_err *err);

/* Exit status of the CLI for an error: 1 general, 2 usage, 3 credentials or permissions, 4 not found, 5 timeout, 6 quota or
 * limit. */
int err_exit_status(const struct abx_err *err);
