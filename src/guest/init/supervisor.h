/* supervisor.h - one small process per command: starts it and keeps its whole tree together.
 *
 * The supervisor is a child subreaper. Whatever the command leaves behind, double forks and new
 * sessions included, becomes its child and not PID 1's; so the descendants of a supervisor are
 * exactly the processes of one command, and can be killed as a tree without a cgroup. (A cgroup per
 * command would need clone3, which the sandbox's filter refuses, or a write to cgroup.procs, which
 * stalls for 7 to 10 ms after idle times.)
 */
#pragma once

#include <stddef.h>

#include "guest/init/protocol.h"

/* Reads, once and in PID 1, what every supervisor needs to know. */
void supervisor_prepare(void);

/* Takes over this freshly forked process: starts the command of `req`, whose inline strings are at
 * `strings`, answers over `sock`, waits for the command and for everything it left. `fds` are its
 * descriptors; all others but `sock` get closed. Never returns. */
_Noreturn void supervisor_run(int sock, const struct init_spawn *req, const char *strings,
                              const int *fds, size_t n_fds);
