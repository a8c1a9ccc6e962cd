/* crew.h - the engine's side of its workers: starts them, queues jobs per class, hands each result
 * to its job, and starts a worker again that died.
 *
 * Workers are this program executed again with "--worker CLASS" before the engine's own arguments;
 * the job socket is descriptor WORKER_FD, the lock of the data dir WORKER_LOCK_FD (so that a new
 * engine waits until the last worker of the old one is gone). A worker that died fails the jobs
 * given to it with UNAVAILABLE.
 *
 * Each kind of job has a deadline. A worker over it is killed, its job fails with DEADLINE_EXCEEDED,
 * and another takes its place; so do jobs that wait while their class answers nothing. A killed worker
 * that the kernel holds (uninterruptible sleep) is reaped whenever it ends and does not count as a
 * worker any more; while eight are held, none is started.
 */
#pragma once

#include <uv.h>

#include "engine/job.h"

#define WORKER_FD 3
#define WORKER_LOCK_FD 4

struct crew;

/* `result` (err.code set on failure; is_cut_off when its worker died or was killed at it) and `fds` are borrowed
 * until return; take descriptors with TAKE_FD. */
typedef void (*job_done_fn)(void *user, const struct job_result *result, int *fds, size_t n_fds);

struct crew_opts {
    uv_loop_t *loop;
    int exe_fd;  /* the engine's image */
    int lock_fd; /* inherited by the workers */
    char *const *argv;
    unsigned count[WORKER_CLASSES_];
    /* JOB_EXIT, JOB_OOM, and the JOB_READY of each start that went well. */
    void (*on_event)(void *user, const struct job_result *event);
    /* A worker ended long after it was killed: what its last call made may have no owner. */
    void (*on_late)(void *user);
    void *user;
};

/* Whose a job is. `done` is called once, from the loop, and takes `user` over; where it is not called any more, after crew_stop,
 * crew_free calls `drop`, which may only free. NULL: there is nothing to free. */
struct job_owner {
    job_done_fn done;
    void (*drop)(void *user);
    void *user;
};

/* Starts all workers and waits (blocking, at most 30 s) until each said that it can work. */
int crew_start(const struct crew_opts *opts, struct crew **ret, struct abx_err *err);
/* Queues a copy of `job` (its id is set here) with `fds`, which are closed when sent or failed. `owner` takes its `user` over
 * when this succeeds. */
int crew_submit(struct crew *c, enum worker_class class, const struct job *job, int *fds,
                size_t n_fds, struct job_owner owner, struct abx_err *err);
/* The jobs of `user` that no worker has yet fail with ABORTED, within a second, from the loop. */
void crew_withdraw(struct crew *c, enum worker_class class, const void *user);
/* Jobs of a class that wait or are under way. */
unsigned crew_load(const struct crew *c, enum worker_class class);
/* The workers' pids, up to `max`; how many. */
size_t crew_pids(const struct crew *c, pid_t *to, size_t max);
/* Closes the sockets, kills and reaps the workers. Blocks until they are gone, at most 5 s; false when
 * the kernel still holds one. Handles close from the loop. */
bool crew_stop(struct crew *c);
/* After the loop has ended. */
void crew_free(struct crew *c);
DEFINE_CLEANUP(struct crew *, crew_free)
