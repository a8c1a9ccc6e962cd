/* spawner.h - the daemon's end of the channel to PID 1 and its supervisors.
 *
 * Starts commands and tells what becomes of them. Requests that the channel has no room for wait in
 * a bounded queue. All callbacks run on the loop, never from inside spawner_start.
 */
#pragma once

#include <sys/types.h>
#include <uv.h>

#include "base/err.h"
#include "guest/daemon/supervisors.h"
#include "guest/daemon/users.h"

struct spawner;

#define SPAWNER_QUEUE_MAX 256
/* How long a start may take, and how long when over CROWD_PROCESSES keep it from running. */
#define SPAWNER_ANSWER_MS 10000
#define SPAWNER_CROWDED_MS 600

struct spawn_opts {
    const char *tag;   /* "" for none; at most 255 bytes */
    const char *cwd;   /* absolute */
    char *const *argv; /* at least argv[0], NULL-terminated */
    char *const *envp;
    const struct user *user;
    bool is_pty;
    int child_fds[3]; /* stdin, stdout, stderr; or only [0], the terminal. Borrowed */
    int held_fds[2];  /* read ends of stdout and stderr; or only [0], the master. Borrowed */
};

/* The command runs (err->code 0) or why not. `pidfd` is owned by the callee when it runs.
 * Errors: INVALID_ARGUMENT (cwd, exec), PERMISSION_DENIED, RESOURCE_EXHAUSTED (fork). */
typedef void (*spawner_started_fn)(void *user, pid_t pid, pid_t supervisor, int pidfd,
                                   const struct abx_err *err);

/* A command that outlived a previous daemon. All fds are owned by the callee; for a terminal
 * fds[1] is the master, else fds[1] and fds[2] are the read ends of stdout and stderr. */
struct spawner_survivor {
    pid_t pid;
    pid_t supervisor;
    bool is_pty;
    char tag[256];
    int fds[3]; /* [0] = pidfd; -EBADF when missing */
};

struct spawner_events {
    /* The command ended; `status` as from waitpid. Its supervisor lives on while anything of its
     * tree does. */
    void (*on_exit)(void *user, pid_t pid, int status);
    void (*on_survivor)(void *user, const struct spawner_survivor *s);
    void *user;
};

/* `fd` (the channel) stays the caller's. Says hello to PID 1. */
int spawner_new(uv_loop_t *loop, int fd, const struct spawner_events *events, struct spawner **ret,
                struct abx_err *err);

/* For the successor of a daemon, before its loop runs: takes in what supervisors say of running commands until
 * each one that PID 1 has (`supervisors`, see supervisors.h) has said something or is gone, or
 * SPAWNER_AWAIT_MS are over (one stands still). on_survivor and on_exit are called from inside. */
#define SPAWNER_AWAIT_MS 2000
void spawner_await(struct spawner *s, struct supervisors *supervisors);

/* Starts a command; `done` follows once unless an error is returned here. */
int spawner_start(struct spawner *s, const struct spawn_opts *opts, spawner_started_fn done,
                  void *user, struct abx_err *err);
