/* pump.h - one command of a sandbox with this process's standard input, output and error.
 *
 * Bytes pass in both directions with back pressure: at most 1 MiB of input is under way, and output that cannot be
 * written makes the sandbox wait. SIGINT, SIGTERM and SIGHUP end the command (SIGTERM, SIGKILL 2 s later; on a terminal
 * SIGKILL at once, because shells ignore SIGTERM); a second one gives up waiting. When nobody reads the output, the
 * command is ended too.
 */
#pragma once

#include "cli/client/session.h"

struct pump_opts {
    const char *line;        /* for the shell, or */
    const char *const *argv; /* program and arguments; both NULL: a login shell */
    size_t argc;
    bool is_tty;      /* on a pseudo terminal; standard input is a terminal */
    bool is_detached; /* print the pid, leave it running */
    int64_t renew_s;  /* > 0: the sandbox's time is set to this again and again */
};

/* Runs it; user, cwd, env and timeout are the session's options (`with_env` false: env is not the command's).
 * Returns the exit status: the command's, or of a failure with a message. */
int pump_run(struct session *s, abx_sandbox *sb, const struct pump_opts *opts, bool with_env);
