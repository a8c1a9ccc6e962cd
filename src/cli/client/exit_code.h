/* exit_code.h - how a command of a sandbox ended, as an exit status of this process. */
#pragma once

/* The exit code, or 128 + N for an end by signal N, whose name `status` tells ("signal: killed (core dumped)", or "signal:
 * signal 34"); 255 when it names none that is known. */
int exit_code_of(int exit_code, int exited, const char *status);

/* Of a command that was not started, by the sandbox's words for it ("start 'x': No such file or directory"): 127 when
 * there is no such program (or none for its #! line), 126 when it is one that cannot be executed, 0 for anything else. */
int exit_code_of_start(const char *message);
