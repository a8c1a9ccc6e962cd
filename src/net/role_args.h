/* role_args.h - the command line of an unprivileged role: what all of them take, and a table of what one takes besides.
 *
 * The supervisor writes it, so nothing here is friendly; but what is wrong is named. Texts are borrowed from argv.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "net/confine.h"

#define ROLE_ARGS_USAGE                                                                            \
    "  --table-sock PATH --engine-sock PATH  SEQPACKET sockets of control and engine\n"            \
    "  --root DIR                 root folder; all paths are as seen inside it\n"                  \
    "  --uid N --gid N            user and group to become\n"                                      \
    "  --heartbeat-fd N           eventfd on which the loop beats\n"

/* Of every role. */
struct role_args {
    struct confine_opts confine; /* all but its parent */
    const char *table_path, *engine_path;
    int heartbeat_fd; /* -1: none */
};

/* What an option is, and so what lies at its offset. */
enum role_arg_kind {
    ROLE_ARG_TEXT,  /* const char * */
    ROLE_ARG_FLAG,  /* bool; takes no value */
    ROLE_ARG_FD,    /* int */
    ROLE_ARG_U32,   /* uint32_t, uid_t, gid_t */
    ROLE_ARG_SIZE,  /* size_t */
    ROLE_ARG_PARSE, /* nothing: `parse` takes it */
};

struct role_option {
    const char *name; /* without dashes */
    enum role_arg_kind kind;
    size_t at; /* in the struct of the role's own */
    int (*parse)(void *own, const char *value, struct abx_err *err);
};

#define ROLE_OPTIONS_MAX 32 /* those of every role among them */

/* Reads argv[1...] into `ret` and, for the `n` options of `own`, into `ret_own`, which holds the defaults.
 * INVALID_ARGUMENT for what is in neither table, for a number that is none or over INT32_MAX, and without --table-sock
 * or --engine-sock. */
int role_args_parse(int argc, char **argv, const struct role_option *own, size_t n, void *ret_own,
                    struct role_args *ret, struct abx_err *err);
