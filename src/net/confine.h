/* confine.h - what an unprivileged role gives up before it takes its first byte: root folder, uid,
 * new privileges, core dumps and ptrace by its own uid, and the system calls that it has no use for.
 *
 * A library of its own: the engine and the guest do not link it.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"

struct confine_opts {
    const char
        *root; /* NULL: stays where it is. Else chroot; paths used later are as seen inside */
    uid_t uid; /* 0: stays who it is */
    gid_t gid;
    pid_t parent; /* the supervisor, asked for before anything else; 0: lives on without one */
};

/* Gives up root folder and identity, in that order; the role dies with its parent from then on.
 * Sets no_new_privs and makes the process not dumpable. */
int confine_identity(const struct confine_opts *opts, struct abx_err *err);

enum confine_filter {
    CONFINE_NETWORK = 0, /* a loop with sockets that it was given, and unix sockets of its own */
    CONFINE_FILES = 1,   /* also files, locks and threads (a role with a database); holds for the
                            threads that run already as well */
    CONFINE_EGRESS =
        2, /* CONFINE_NETWORK and TCP and UDP sockets of its own, splice, files to read */
};

/* Loads the seccomp filter: other calls fail with EPERM. Sanitizer builds get the relaxed form,
 * which leaves ptrace and the symbolizer usable. Last, after everything is opened. */
int confine_syscalls(enum confine_filter filter, struct abx_err *err);
