/* cgroup_internal.h - what the files of cgroup*.c share; nobody else includes it, save the tests'
 * tool, which opens trees without a v2 part to try the v1 paths.
 *
 * All access is by directory fds opened once, so that it works on after fork and from a mount
 * namespace in which no cgroup file system is mounted.
 */
#pragma once

#include <limits.h>

#include "engine/cgroup.h"
#include "engine/cgroup_place.h"

#define CGROUP_NAME_MAX 64 /* bytes of an instance or sandbox id */
#define CGROUP_V1_MAX 5
#define CGROUP_PIDS_DEFAULT 4096u
/* What a sandbox has beyond the limit of `user`: while user code sits at its limit, every
 * allocation in its group waits for the OOM killer; the daemon's may not. */
#define CGROUP_GUEST_MEMORY (UINT64_C(64) << 20)
#define CGROUP_CPU_PERIOD_US 100000u
/* What the sandbox as a whole may take above its quota: room for the guest while `user` is
 * throttled, and no way around the quota for root inside, who may leave `user`. */
#define CGROUP_CPU_GUEST_US 20000u
#define CGROUP_GUEST_GROUPS_MAX 2048u /* groups below a sandbox's own */
#define CGROUP_GUEST_DEPTH_MAX 16u

/* One v1 hierarchy, which can carry several controllers (cpu,cpuacct). */
struct cgroup_v1 {
    unsigned controllers; /* bits */
    int host_fd;
    int sandboxes_fd;
};

struct cgroup_tree {
    char instance[CGROUP_NAME_MAX + 1];
    bool has_v2;
    bool has_memsw;
    unsigned v2_controllers;
    int v2_host_fd;
    int v2_sandboxes_fd;
    struct cgroup_v1 v1[CGROUP_V1_MAX];
    size_t n_v1;
    /* The path in /proc/<pid>/cgroup under which sandboxes are, in the v2 hierarchy or else in that
     * of `check_controller`. */
    char check_path[PATH_MAX];
    const char *check_controller;
};

struct cgroup_open_opts {
    bool without_v2;   /* leave the v2 tree alone */
    bool without_move; /* fail with EBUSY in err->sys where processes would have to move first */
};
int cgroup_tree_open_with(const char *instance, const struct cgroup_open_opts *opts,
                          struct cgroup_tree **ret, struct abx_err *err);

/* Fails with INVALID_ARGUMENT unless it is a single plain file name of at most CGROUP_NAME_MAX. */
int cgroup_check_name(const char *id, struct abx_err *err);
/* Opens a folder (O_RDONLY | O_DIRECTORY); fd or -1 with errno. */
int cgroup_open_dir(int dirfd, const char *name);
/* mkdir that accepts an existing folder, then opens it. */
int cgroup_make_dir(int dirfd, const char *name, int *ret_fd, struct abx_err *err);
/* Reads a small file into `to` as a string. */
int cgroup_read_text(int dirfd, const char *file, char *to, size_t size, struct abx_err *err);
int cgroup_read_u64(int dirfd, const char *file, uint64_t *ret, struct abx_err *err);
/* The number behind `key` in a file of "key value" lines. */
int cgroup_read_value(int dirfd, const char *file, const char *key, uint64_t *ret,
                      struct abx_err *err);
/* Calls `fn` with each line of `cgroup.procs` (a process id, not NUL-terminated; in v1 "0" for one outside of our pid
 * namespace) until it returns < 0. How many times `fn` returned 1, or that code. */
int cgroup_each_process(int dirfd, int (*fn)(void *user, struct slice pid, struct abx_err *err),
                        void *user, struct abx_err *err);
/* Makes and opens abx-<instance>, and `host` and `sandboxes` in it, for what is there already just opens it. */
int cgroup_make_tree(int base_fd, const char *instance, int *ret_top_fd, int *ret_host_fd,
                     int *ret_sandboxes_fd, struct abx_err *err);
/* pids.max (0 = CGROUP_PIDS_DEFAULT) and pids.current, which are the same in v1 and v2. */
int cgroup_set_pids(int fd, uint32_t pids, struct abx_err *err);
int cgroup_read_pids(int fd, uint32_t *ret, struct abx_err *err);
/* rmdir; missing is fine. Waits out the moment in which a group is still busy with its last task. */
int cgroup_remove_dir(int parent_fd, const char *name, struct abx_err *err);
/* Of the machine. */
uint64_t cgroup_total_memory(void);
uint32_t cgroup_total_pids(void);

/* Calls `ready` until it says 1 (0 = not yet, negative = error): spins for a moment, as freezing and
 * dying take microseconds and poll() tells up to 10 ms late, then sleeps. DEADLINE_EXCEEDED. */
int cgroup_wait(int (*ready)(int fd, struct abx_err *err), int fd, int timeout_ms,
                struct abx_err *err);

/* cgroup_swap.c */
/* Is so little swap left, or none there, that nothing more should go there? */
bool cgroup_swap_is_short(void);
/* cgroup_push_out for the group `fd`, which ends when `is_short` says so. */
int cgroup_push_in(int fd, enum cgroup_push kind, int stop_fd, int timeout_ms,
                   bool (*is_short)(void), uint64_t *ret_bytes, struct abx_err *err);

/* cgroup_v2.c; `fd` is the sandbox's folder */
int cgroup_v2_find(struct cgroup_tree *t, struct slice proc_cgroup, struct slice mounts,
                   int *ret_base_fd, unsigned *ret_controllers, struct abx_err *err);
int cgroup_v2_prepare(struct cgroup_tree *t, int base_fd, unsigned controllers, bool may_move,
                      struct abx_err *err);
int cgroup_v2_create(struct cgroup_tree *t, const char *id, uid_t uid_base, struct abx_err *err);
int cgroup_v2_set_limits(struct cgroup_tree *t, int fd, const struct cgroup_limits *limits,
                         struct abx_err *err);
int cgroup_v2_freeze(int fd, bool on, int timeout_ms, struct abx_err *err);
int cgroup_v2_kill(int fd, int timeout_ms, struct abx_err *err);
/* Removes `name` and every group below it, whoever made them. */
int cgroup_v2_remove(int parent_fd, const char *name, struct abx_err *err);
int cgroup_v2_usage(struct cgroup_tree *t, int fd, struct cgroup_usage *ret, struct abx_err *err);

/* cgroup_v1.c */
int cgroup_v1_open(struct cgroup_tree *t, struct slice proc_cgroup, struct slice mounts,
                   unsigned controllers, struct abx_err *err);
/* Is a sandbox's group in this hierarchy split (`user` below it, the daemon in it)? */
bool cgroup_v1_has_user(const struct cgroup_v1 *h);
int cgroup_v1_create(struct cgroup_tree *t, const struct cgroup_v1 *h, const char *id,
                     struct abx_err *err);
int cgroup_v1_set_limits(struct cgroup_tree *t, const struct cgroup_v1 *h, const char *id,
                         const struct cgroup_limits *limits, struct abx_err *err);
int cgroup_v1_freeze(int fd, bool on, int timeout_ms, struct abx_err *err);
int cgroup_v1_kill(int fd, int timeout_ms, struct abx_err *err);
int cgroup_v1_remove(const struct cgroup_v1 *h, const char *id, struct abx_err *err);
int cgroup_v1_usage(const struct cgroup_v1 *h, const char *id, struct cgroup_usage *ret,
                    struct abx_err *err);
/* The v1 hierarchy that carries `c`, or NULL. */
const struct cgroup_v1 *cgroup_v1_with(const struct cgroup_tree *t, enum cgroup_controller c);
