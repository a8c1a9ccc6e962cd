/* error.c - the error object of the installed API, from and to the internal one. */
#include <string.h>

#include "transport/call.h"

void error_export(const struct abx_err *err, int http_status, struct abx_error *to)
{
    size_t n = strnlen(err->msg, sizeof err->msg - 1);

    *to = (struct abx_error){
        .code = err->code, .reason = err->reason, .http_status = http_status, .sys = err->sys
    };
    memcpy(to->message, err->msg, n);
    to->message[n] = '\0';
}

int error_import(const struct abx_error *error, struct abx_err *err)
{
    if (err) {
        (void)err_set(err, error->code, "%s", error->message);
        err->reason = (enum abx_reason)error->reason;
        err->sys = error->sys;
    }
    return error->code;
}

const char *abx_error_name(int code)
{
    return err_code_name(code);
}
