/* child.h - running a program to its end, interruptible and without leftovers.
 *
 * The program gets its own PID and mount namespace: when it is stopped, everything it started and
 * mounted is gone before child_run returns. Needs root.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* SIGINT, SIGTERM and SIGHUP held back as long as this lives, so that they stop a child instead of
 * this program. One per process, in a program without other threads. */
struct interrupt {
    int fd; /* signalfd; -EBADF when not started */
    bool is_set;
};

int interrupt_init(struct interrupt *in, struct abx_err *err);
/* Gives the signals their old meaning; one that came meanwhile and was not taken acts now. */
void interrupt_done(struct interrupt *in);

struct child_opts {
    const char *const *argv; /* argv[0] is a name looked up in /usr/sbin:/usr/bin:/sbin:/bin */
    const char *const *env;  /* whole environment, ends with NULL */
    bool is_sync_skipped;    /* fsync and its kin return at once: for trees that are synced later */
    int log_fd;              /* gets all output; -1 = none */
    /* Called for each line of stdout and stderr (without newline, at most 4 KiB); may be NULL. */
    void (*on_line)(void *user, const char *line);
    void *user;
};

/* Runs it and waits. 0 when it exits with 0; ABX_CANCELED after a signal; ABX_NOT_FOUND when there
 * is no such program; ABX_UNKNOWN when it exits otherwise. */
int child_run(const struct child_opts *opts, struct interrupt *in, struct abx_err *err);
