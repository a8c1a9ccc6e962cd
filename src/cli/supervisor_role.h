/* supervisor_role.h - one child program: its arguments, its inherited sockets, its restarts. */
#pragma once

#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

#define ROLE_ARGS_MAX 96
#define ROLE_FDS_MAX 16
#define ROLE_BEATS_MAX 3

/* What one thread of a role says of itself; supervisor_watch.h's. */
struct role_beat {
    int fd;
    const char *thread; /* its name; NULL: the main one */
    bool may_wait;      /* for the disk, as long as that takes */
    bool has_beaten;
    int64_t silent_ns, sampled_ns;
    int64_t cpu_ns; /* of it at sampled_ns; -1 = not taken */
};

struct role {
    const char *name; /* program in libexec */
    char path[4096];
    struct buf args;               /* NUL-separated */
    char *argv[ROLE_ARGS_MAX + 1]; /* into args, after role_finish */
    int fds[ROLE_FDS_MAX];         /* borrowed; stay open in the child under the same numbers */
    size_t n_fds;
    bool is_bad; /* an argument did not fit */
    /* SIGTERM and SIGINT stay blocked until the program is ready for them. */
    bool unblocks_signals;
    bool ignores_hangup; /* until the program has a handler for SIGHUP */
    pid_t pid;           /* 0 = not running */
    int status;          /* of the last process, as from waitpid */
    int64_t started_ns, restart_at_ns, backoff_ns;
    int failure_fd; /* memfd: why it did not start, in its words (log_start_failure) */
    struct role_beat beats[ROLE_BEATS_MAX];
    size_t n_beats;
    bool is_hung; /* supervisor_watch.h's */
};

int role_init(struct role *role, const char *program, struct abx_err *err);
void role_done(struct role *role);
/* Adds an option and its formatted value. */
void role_arg(struct role *role, const char *option, const char *fmt, ...) _printf_(3, 4);
/* Adds an option without value. */
void role_flag(struct role *role, const char *option);
/* Adds an option with an fd number that the child inherits. */
void role_arg_fd(struct role *role, const char *option, int fd);
/* After the last argument; an argument list that did not fit fails here. */
int role_finish(struct role *role, struct abx_err *err);

/* Forks and executes it; sets the time of the next try when that fails. */
int role_start(struct role *role, struct abx_err *err);
/* What the last process said about why it did not start, "" when nothing. Untrusted text, NUL-terminated. */
void role_failure(const struct role *role, char *to, size_t size);
/* Its process was reaped with `status`: plans the restart. */
void role_ended(struct role *role, int status);
