/* err.c - code and reason tables, message formatting. See err.h. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct code_row {
    const char *name;
    int http;
    int exit;
};

/* Index = wire number. HTTP column: Connect protocol, "Error codes". Exit column: 1 general, 2 usage, 3 credentials and
 * permissions, 4 not found, 5 timeout, 6 quota or limit. */
static const struct code_row codes[] = {
    [0] = { "ok", 200, 0 },
    [1] = { "canceled", 499, 1 },
    [2] = { "unknown", 500, 1 },
    [3] = { "invalid_argument", 400, 2 },
    [4] = { "deadline_exceeded", 504, 5 },
    [5] = { "not_found", 404, 4 },
    [6] = { "already_exists", 409, 1 },
    [7] = { "permission_denied", 403, 3 },
    [8] = { "resource_exhausted", 429, 6 },
    [9] = { "failed_precondition", 400, 1 },
    [10] = { "aborted", 409, 1 },
    [11] = { "out_of_range", 400, 2 },
    [12] = { "unimplemented", 501, 1 },
    [13] = { "internal", 500, 1 },
    [14] = { "unavailable", 503, 1 },
    [15] = { "data_loss", 500, 1 },
    [16] = { "unauthenticated", 401, 3 },
};

struct reason_row {
    int code;
    int http; /* 0 = the code's */
};

static const struct reason_row reasons[ABX_REASON_COUNT_] = {
    [ABX_REASON_NONE] = { ABX_UNKNOWN, 0 },
    [ABX_REASON_DISK_FULL] = { ABX_RESOURCE_EXHAUSTED, 507 },
    [ABX_REASON_TOO_LARGE] = { ABX_RESOURCE_EXHAUSTED, 413 },
    [ABX_REASON_RATE_LIMITED] = { ABX_RESOURCE_EXHAUSTED, 429 },
    [ABX_REASON_SANDBOX_GONE] = { ABX_UNAVAILABLE, 502 },
    [ABX_REASON_PORT_CLOSED] = { ABX_UNAVAILABLE, 502 },
    [ABX_REASON_METHOD] = { ABX_UNIMPLEMENTED, 405 },
    [ABX_REASON_CONFLICT] = { ABX_ABORTED, 409 },
    [ABX_REASON_BUSY] = { ABX_UNAVAILABLE, 503 },
    [ABX_REASON_UPSTREAM] = { ABX_UNAVAILABLE, 502 },
    [ABX_REASON_NOT_ACCEPTABLE] = { ABX_INVALID_ARGUMENT, 406 },
    [ABX_REASON_MEDIA_TYPE] = { ABX_INVALID_ARGUMENT, 415 },
    [ABX_REASON_RANGE] = { ABX_OUT_OF_RANGE, 416 },
    [ABX_REASON_EXPECTATION] = { ABX_INVALID_ARGUMENT, 417 },
    [ABX_REASON_SANDBOX_NOT_FOUND] = { ABX_NOT_FOUND, 404 },
    [ABX_REASON_FILE_NOT_FOUND] = { ABX_NOT_FOUND, 404 },
    [ABX_REASON_TEMPLATE_NOT_FOUND] = { ABX_NOT_FOUND, 404 },
    [ABX_REASON_TEMPLATE_TOO_OLD] = { ABX_FAILED_PRECONDITION, 0 },
    [ABX_REASON_NO_CREDENTIALS] = { ABX_UNAUTHENTICATED, 0 },
    [ABX_REASON_NAME] = { ABX_UNAVAILABLE, 0 },
    [ABX_REASON_CONNECT] = { ABX_UNAVAILABLE, 0 },
    [ABX_REASON_TLS] = { ABX_UNAVAILABLE, 0 },
    [ABX_REASON_DISCONNECTED] = { ABX_UNAVAILABLE, 0 },
    [ABX_REASON_PROTOCOL] = { ABX_INTERNAL, 0 },
    [ABX_REASON_REQUEST_TIMEOUT] = { ABX_DEADLINE_EXCEEDED, 0 },
    [ABX_REASON_COMMAND_TIMEOUT] = { ABX_DEADLINE_EXCEEDED, 0 },
    [ABX_REASON_SAVED_STATE] = { ABX_DATA_LOSS, 410 },
};

static const struct code_row *row_of(int code)
{
    if (code > ABX_CANCELED || code < ABX_UNAUTHENTICATED)
        return code == 0 ? &codes[0] : &codes[2];
    return &codes[-code - 1000];
}

/* Appends as much of `more` as fits. */
static void text_append(char text[ABX_ERR_MSG_MAX], const char *more)
{
    size_t n = strlen(text), k = strnlen(more, ABX_ERR_MSG_MAX - 1 - n);

    memcpy(text + n, more, k);
    text[n + k] = '\0';
}

/* Formats aside first: an argument may be err->msg itself. */
_printf_(3, 0) static void err_vset(struct abx_err *err, int code, const char *fmt, va_list ap)
{
    char text[ABX_ERR_MSG_MAX];

    if (!err)
        return;
    (void)vsnprintf(text, sizeof text, fmt, ap);
    err->code = code;
    err->reason = ABX_REASON_NONE;
    err->sys = 0;
    memcpy(err->msg, text, sizeof text);
}

int err_set(struct abx_err *err, int code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    err_vset(err, code, fmt, ap);
    va_end(ap);
    return code;
}

int err_reason(struct abx_err *err, enum abx_reason reason, const char *fmt, ...)
{
    va_list ap;
    int code = reasons[reason].code;

    va_start(ap, fmt);
    err_vset(err, code, fmt, ap);
    va_end(ap);
    if (err)
        err->reason = reason;
    return code;
}

int err_code_from_errno(int sys)
{
    switch (sys) {
    case ENOENT:
    case ESRCH:
        return ABX_NOT_FOUND;
    case EEXIST:
        return ABX_ALREADY_EXISTS;
    case EACCES:
    case EPERM:
    case EROFS:
        return ABX_PERMISSION_DENIED;
    case EINVAL:
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
    case EXDEV:
        return ABX_INVALID_ARGUMENT;
    case ENOTEMPTY:
    case EBUSY:
    case EADDRINUSE:
        return ABX_FAILED_PRECONDITION;
    case ENOMEM:
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case EAGAIN:
    case EUSERS:
        return ABX_RESOURCE_EXHAUSTED;
    case ETIMEDOUT:
        return ABX_DEADLINE_EXCEEDED;
    case ECANCELED:
        return ABX_CANCELED;
    case ENOSYS:
    case EOPNOTSUPP:
        return ABX_UNIMPLEMENTED;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case EHOSTUNREACH:
    case ENETUNREACH:
        return ABX_UNAVAILABLE;
    default:
        return ABX_INTERNAL;
    }
}

int err_sys(struct abx_err *err, int sys, const char *fmt, ...)
{
    va_list ap;
    int code = err_code_from_errno(sys);

    if (!err)
        return code;
    va_start(ap, fmt);
    err_vset(err, code, fmt, ap);
    va_end(ap);
    err->sys = sys;
    if (sys == ENOSPC || sys == EDQUOT)
        err->reason = ABX_REASON_DISK_FULL;
    text_append(err->msg, ": ");
    text_append(err->msg, strerror(sys));
    return code;
}

int err_oom(struct abx_err *err)
{
    return err_set(err, ABX_RESOURCE_EXHAUSTED, "out of memory");
}

int err_wrap(struct abx_err *err, int code, const char *fmt, ...)
{
    char text[ABX_ERR_MSG_MAX];
    va_list ap;

    if (!err)
        return code;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    text_append(text, ": ");
    text_append(text, err->msg);
    memcpy(err->msg, text, sizeof text);
    return code;
}

const char *err_code_name(int code)
{
    return row_of(code)->name;
}

int err_code_from_name(const char *name)
{
    for (size_t i = 1; i < ARRAY_SIZE(codes); i++)
        if (strcmp(codes[i].name, name) == 0)
            return -1000 - (int)i;
    return ABX_UNKNOWN;
}

int err_code_http_status(int code)
{
    return row_of(code)->http;
}

int err_http_status(const struct abx_err *err)
{
    if (reasons[err->reason].http != 0)
        return reasons[err->reason].http;
    return err_code_http_status(err->code);
}

int err_exit_status(const struct abx_err *err)
{
    return row_of(err->code)->exit;
}
