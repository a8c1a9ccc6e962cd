/* client_fail.c - see client.h. */
#include <stdio.h>

#include "cli/client.h"
#include "cli/client/output.h"

int client_fail(const struct abx_error *error)
{
    (void)fputs("abx: ", stderr);
    output_text(stderr, error->message); /* it may quote a file of somebody else's folder */
    (void)fputc('\n', stderr);
    switch (error->code) {
    case ABX_INVALID_ARGUMENT:
    case ABX_OUT_OF_RANGE:
        return 2;
    case ABX_UNAUTHENTICATED:
    case ABX_PERMISSION_DENIED:
        return 3;
    case ABX_NOT_FOUND:
        return 4;
    case ABX_DEADLINE_EXCEEDED:
        return 5;
    case ABX_RESOURCE_EXHAUSTED:
        return 6;
    default:
        return 1;
    }
}
