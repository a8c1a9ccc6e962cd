/* spawn_child.h - between spawn.c and spawn_child.c: what the new processes do until exec.
 *
 * Everything here runs in a copy of the spawner after clone and uses prepared data and
 * async-signal-safe calls only. Each step that fails is reported by name through a pipe that closes
 * on exec; the spawner's words are `m` (uid maps are written) and `g` (go, one for each process).
 */
#pragma once

#include <sys/resource.h>

#include "engine/rootfs.h"
#include "engine/seccomp.h"

enum child_step {
    STEP_SESSION,
    STEP_ROOT,
    STEP_PROC,
    STEP_PIVOT,
    STEP_MAPS,
    STEP_IDENTITY,
    STEP_TERMINALS,
    STEP_HOST_NAME,
    STEP_LIMITS,
    STEP_PRIVILEGES,
    STEP_CHANNEL,
    STEP_DAEMON,
    STEP_GROUPS,
    STEP_FILTER,
    STEP_FDS,
    STEP_GO,
    STEP_EXEC,
    STEP_COUNT_,
};

/* Shared between spawner and child (an anonymous shared page): when each step of PID 1 was done. */
struct child_clock {
    int64_t done_ns[STEP_COUNT_];
};

/* A failed step; written as one message to the pipe. */
struct child_failure {
    char step[48];
    int sys;
};

struct child {
    const struct spawn_spec *spec;
    const struct rootfs *rootfs;
    const struct seccomp_program *filter;
    struct child_clock *clock;
    struct rlimit nofile;
    int sync_fd;   /* the child's end */
    int parent_fd; /* the spawner's end, to be closed */
    int fail_fd;
    int self_fd; /* the image, O_PATH */
    /* set by the child */
    bool is_daemon;
    int init_fd, daemon_fd;
};

/* Becomes PID 1 of the sandbox. Does not return. */
_Noreturn void child_run(struct child *c);
