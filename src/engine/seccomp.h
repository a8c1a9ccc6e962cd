/* seccomp.h - the sandbox's system call filter: an allow list, everything else is ENOSYS.
 *
 * The table with reasons is in docs/threat-model.md. Compiled once per spawner, then loaded by each
 * child before it gives up CAP_SYS_ADMIN (no_new_privs stays off, or sudo would not work).
 */
#pragma once

#include <linux/filter.h>

#include "base/err.h"

struct seccomp_program {
    struct sock_filter *insns; /* owned */
    unsigned short n;
};

int seccomp_program_build(struct seccomp_program *ret, struct abx_err *err);
void seccomp_program_done(struct seccomp_program *p);
/* Loads it into the calling thread. Async-signal-safe: 0, or -1 with errno. */
int seccomp_program_load(const struct seccomp_program *p);

/* System call numbers that are allowed, or answered EPERM, on this architecture only (legacy calls
 * and such). Ended by -1. In seccomp_<architecture>.c. */
extern const int seccomp_arch_allowed[];
extern const int seccomp_arch_refused[];
