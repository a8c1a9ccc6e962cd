/* cgroup.h - the cgroup tree of one instance, on cgroup v1, hybrid and v2.
 *
 * Tree, in every hierarchy used: <own cgroup>/abx-<instance>/{host,sandboxes/<id>/{guest,user}}.
 * Per controller (memory, cpu, pids) the v2 one is used when it is free, else the v1 one; freeze
 * and kill use the v2 tree when mounted, else the v1 freezer. `sandboxes` is capped so that the
 * host keeps max(1 GiB, 10 %) of memory and 4096 pids; the cpu quota sits on `user`.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"

struct cgroup_tree; /* opened once per engine process; safe to use after fork */

struct cgroup_limits {
    uint32_t cpu_count;    /* quota = count x 100 % on `user`; 0 = none */
    uint64_t memory_bytes; /* 0 = none */
    uint32_t pids;         /* 0 = default 16384 */
};

/* Which hierarchy each controller was found in. */
enum cgroup_mode { CGROUP_V1, CGROUP_HYBRID, CGROUP_V2 };

/* Finds or makes the tree of `instance`. `ret` is owned by the caller. Fails with
 * FAILED_PRECONDITION and says what to do when no place for it can be found. */
int cgroup_tree_open(const char *instance, struct cgroup_tree **ret, struct abx_err *err);
void cgroup_tree_free(struct cgroup_tree *t);
DEFINE_CLEANUP(struct cgroup_tree *, cgroup_tree_free)
enum cgroup_mode cgroup_tree_mode(const struct cgroup_tree *t);

/* Moves `pid` (a host role) into `host`, so that it is never inside a sandbox's limits. */
int cgroup_tree_adopt_host(struct cgroup_tree *t, pid_t pid, struct abx_err *err);

/* Makes the groups of sandbox `id` with limits. ALREADY_EXISTS when they exist. The v2 subtree is
 * delegated to `uid_base` (its cgroup.procs, cgroup.subtree_control, cgroup.threads and folders)
 * so that the guest can make a group for each command below `user`; the limits stay the host's. */
int cgroup_create(struct cgroup_tree *t, const char *id, const struct cgroup_limits *limits,
                  uid_t uid_base, struct abx_err *err);
int cgroup_set_limits(struct cgroup_tree *t, const char *id, const struct cgroup_limits *limits,
                      struct abx_err *err);

enum cgroup_part { CGROUP_ROOT, CGROUP_GUEST, CGROUP_USER };

/* Directory fd of one v2 group of the sandbox (for CLONE_INTO_CGROUP, or to mount), *ret_fd = -EBADF
 * without error when there is no v2 tree. Owned by the caller. */
int cgroup_open_v2(struct cgroup_tree *t, const char *id, enum cgroup_part part, int *ret_fd,
                   struct abx_err *err);
/* Puts PID 1 into `user` and the daemon into `guest` of the v1 hierarchies in use (memory has one
 * group for both). Both were already cloned into their v2 groups when there is a v2 tree. */
int cgroup_attach(struct cgroup_tree *t, const char *id, pid_t init_pid, pid_t daemon_pid,
                  struct abx_err *err);

/* Freezes or thaws everything in it; returns when done or after timeout_ms with
 * DEADLINE_EXCEEDED (then thawed again). */
int cgroup_freeze(struct cgroup_tree *t, const char *id, bool on, int timeout_ms,
                  struct abx_err *err);
/* Kills every process, frozen or not, and returns when none is left or after timeout_ms. */
int cgroup_kill(struct cgroup_tree *t, const char *id, int timeout_ms, struct abx_err *err);
/* Removes the groups (must be empty of processes). Missing is fine. */
int cgroup_remove(struct cgroup_tree *t, const char *id, struct abx_err *err);
bool cgroup_has_process(struct cgroup_tree *t, const char *id, pid_t pid);

struct cgroup_usage {
    uint64_t cpu_us;
    uint64_t memory_bytes;
    uint64_t cache_bytes;
    uint32_t processes;
    uint64_t oom_kills;
};
int cgroup_usage_read(struct cgroup_tree *t, const char *id, struct cgroup_usage *ret,
                      struct abx_err *err);

/* Calls `fn` for each sandbox id that has a group in any hierarchy (for the audit). */
int cgroup_each(struct cgroup_tree *t, int (*fn)(void *user, const char *id), void *user,
                struct abx_err *err);
