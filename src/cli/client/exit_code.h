/* exit_code.h - how a command of a sandbox ended, as an exit status of this process. */
#pragma once

/* The exit code, or 128 + N for an end by signal N, whose name `status` tells ("signal: killed (core dumped)", or "signal:
 * signal 34"); 255 when it names none that is known. */
int exit_code_of(int exit_code, int exited, const char *status);
