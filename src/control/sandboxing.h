/* sandboxing.h - what the control process gives up: root folder, uid, system calls. */
#pragma once

#include <sys/types.h>

#include "base/err.h"

/* As root: locks itself into `dir` when `is_chroot`, then becomes uid and gid without groups. Not
 * as root: checks that it is that user already. Sets no_new_privs, a parent-death signal and
 * dumpable 0 in any case. */
int privileges_drop(const char *dir, bool is_chroot, uid_t uid, gid_t gid, struct abx_err *err);

/* Loads the system call filter: what the loop, SQLite and the writer threads use; everything else
 * fails with EPERM, programs and traces kill the process. After the threads were started. */
int seccomp_load_filter(struct abx_err *err);
