/* command_end.c - how a command ended, in the words that envd's clients know. */
#include <stdio.h>
#include <sys/wait.h>

#include "guest/daemon/command.h"

/* As Go's os package names them; others are "signal N". */
static const char *const signal_names[] = {
    [1] = "hangup",
    [2] = "interrupt",
    [3] = "quit",
    [4] = "illegal instruction",
    [5] = "trace/breakpoint trap",
    [6] = "aborted",
    [7] = "bus error",
    [8] = "floating point exception",
    [9] = "killed",
    [10] = "user defined signal 1",
    [11] = "segmentation fault",
    [12] = "user defined signal 2",
    [13] = "broken pipe",
    [14] = "alarm clock",
    [15] = "terminated",
};

void command_end_of(int wait_status, struct command_end *ret)
{
    int sig = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
    const char *core = sig && WCOREDUMP(wait_status) ? " (core dumped)" : "";

    ret->is_exited = sig == 0;
    ret->exit_code = sig ? -1 : WEXITSTATUS(wait_status);
    if (sig == 0)
        (void)snprintf(ret->status, sizeof(ret->status), "exit status %d", ret->exit_code);
    else if (sig < (int)ARRAY_SIZE(signal_names) && signal_names[sig])
        (void)snprintf(ret->status, sizeof(ret->status), "signal: %s%s", signal_names[sig], core);
    else
        (void)snprintf(ret->status, sizeof(ret->status), "signal: signal %d%s", sig, core);
}
