/* cmd_run.c - `abx run`: a sandbox for one command. */
#include <stdio.h>
#include <unistd.h>

#include "cli/client/commands.h"
#include "cli/client/create.h"
#include "cli/client/output.h"
#include "cli/client/pump.h"

#define RENEW_S 300

int cmd_run(struct session *s)
{
    _cleanup_(abx_sandbox_unrefp) abx_sandbox *sb = NULL;
    const struct args *a = &s->args;
    struct pump_opts o = { .is_tty = a->number[OPT_TTY] != 0 };
    int status;

    if (o.is_tty && !isatty(STDIN_FILENO))
        return args_usage(a, "--tty needs a terminal on standard input");
    if (o.is_tty && session_is_json(s))
        return args_usage(a, "--tty and --json: a terminal has one stream for all; give one");
    if (a->count == 0)
        o.is_tty = isatty(STDIN_FILENO) && !session_is_json(s);
    else if (a->count == 1)
        o.line = a->values[0];
    else
        o.argv = (const char *const *)a->values;
    o.argc = a->count > 1 ? a->count : 0;
    if (create_sandbox(s, RENEW_S, &sb) < 0)
        return session_fail(s);
    if (!a->number[OPT_TIMEOUT])
        o.renew_s = RENEW_S;
    /* The environment is the sandbox's. */
    status = pump_run(s, sb, &o, false);
    if (a->number[OPT_KEEP]) {
        (void)fputs("abx: kept sandbox ", stderr);
        output_text(stderr, abx_sandbox_id(sb));
        (void)fputc('\n', stderr);
    } else if (create_undo(s, abx_sandbox_id(sb)) < 0) {
        status = status ? status : 1;
        (void)fprintf(stderr, "abx: kill sandbox %s: ", abx_sandbox_id(sb));
        output_text(stderr, s->error.message);
        (void)fputc('\n', stderr);
    }
    return status;
}
