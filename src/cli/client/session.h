/* session.h - what every client command has: its words, a client, a configuration, and one way to fail.
 *
 * Exit statuses: 0 done, 1 general failure, 2 bad usage, 3 credentials, 4 not found, 5 timeout, 6 quota or limit; 128 + N
 * when a signal N ended the command.
 */
#pragma once

#include "abx/abx.h"
#include "base/macro.h"
#include "cli/client/args.h"

struct session {
    struct args args;
    abx_client *client;
    abx_config *config;
    struct abx_error error; /* of the last failure */
    int signo;              /* that made session_wait give up, 0 = none */
    bool is_inside;         /* it talks to a sandbox now: 403 is about a file, not about the key */
};

DEFINE_CLEANUP(abx_call *, abx_call_free)
DEFINE_CLEANUP(abx_sandbox *, abx_sandbox_unref)

/* Makes client and configuration from the options. 0, or the exit status with a message printed. */
int session_open(struct session *s);
void session_close(struct session *s);

/* Waits for a call (NULL = out of memory) to its end. With signals_watch, SIGINT, SIGTERM and SIGHUP cancel it and make it
 * fail as CANCELED. 0, or the code with s->error filled. */
int session_wait(struct session *s, abx_call *call);
/* The address of a running sandbox, by what the service tells of it: its time is not changed. 0, or a code; paused is
 * FAILED_PRECONDITION. `*ret` owned. */
int session_sandbox(struct session *s, const char *id, abx_sandbox **ret);

/* Prints s->error ("abx: MESSAGE", what to do next, and with --json an object on standard output), returns the exit
 * status. */
int session_fail(struct session *s);
/* The same with words of the command before the message: "abx: copy './x': MESSAGE". */
int session_fail_at(struct session *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Fills s->error and returns its code. */
int session_set(struct session *s, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int session_set_sys(struct session *s, int sys, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Exit status of the last failure. */
int session_status(const struct session *s);
static inline bool session_is_json(const struct session *s)
{
    return s->args.number[OPT_JSON] != 0;
}
