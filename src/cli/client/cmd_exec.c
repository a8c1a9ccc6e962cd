/* cmd_exec.c - `abx sandbox exec` and `shell`. */
#include <stdio.h>
#include <unistd.h>

#include "cli/client/commands.h"
#include "cli/client/pump.h"

static int need_terminal(struct session *s)
{
    if (!isatty(STDIN_FILENO))
        return args_usage(&s->args, "--tty needs a terminal on standard input");
    if (session_is_json(s))
        return args_usage(&s->args,
                          "--tty and --json: a terminal has one stream for all; give one");
    return 0;
}

/* One word is a line for the shell, several are a program and its arguments. */
static void set_command(struct pump_opts *o, char **words, size_t count)
{
    if (count == 1) {
        o->line = words[0];
    } else if (count > 1) {
        o->argv = (const char *const *)words;
        o->argc = count;
    }
}

int cmd_sandbox_exec(struct session *s)
{
    _cleanup_(abx_sandbox_unrefp) abx_sandbox *sb = NULL;
    struct pump_opts o = { .is_tty = s->args.number[OPT_TTY] != 0,
                           .is_detached = s->args.number[OPT_DETACH] != 0 };
    int status = o.is_tty ? need_terminal(s) : 0;

    if (o.is_tty && o.is_detached)
        return args_usage(&s->args, "--tty and --detach: give one");
    if (status != 0)
        return status;
    set_command(&o, s->args.values + 1, s->args.count - 1);
    if (session_sandbox(s, s->args.values[0], &sb) < 0)
        return session_fail(s);
    return pump_run(s, sb, &o, true);
}

int cmd_sandbox_shell(struct session *s)
{
    _cleanup_(abx_sandbox_unrefp) abx_sandbox *sb = NULL;
    struct pump_opts o = { .is_tty = isatty(STDIN_FILENO) && !session_is_json(s) };

    set_command(&o, s->args.values + 1, s->args.count - 1);
    if (session_sandbox(s, s->args.values[0], &sb) < 0)
        return session_fail(s);
    if (!o.is_tty && !session_is_json(s))
        (void)fputs("abx: standard input is no terminal: the shell reads commands from it and has "
                    "no terminal either\n",
                    stderr);
    return pump_run(s, sb, &o, true);
}
