/* cgroup.h - the cgroup tree of one instance, on cgroup v1, hybrid and v2.
 *
 * Tree: <own cgroup>/abx-<instance>/{host,sandboxes/<id>/{guest,user}}; v1 hierarchies other than
 * cpu have no groups below <id>, and that one only `user`. Per controller (memory, cpu, pids) the v2
 * one is used when it is free, else the v1 one; freeze and kill use the v2 tree, which needs no
 * controllers (an own mount of it when the host has none), else the v1 freezer. `sandboxes` is
 * capped so that the host keeps max(1 GiB, 10 %) of memory and 4096 pids; the cpu quota sits on
 * `user`.
 *
 * The ids need not be sandbox ids: groups made ahead for a pool are used under the name they have.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"

/* Opened once per engine process. It holds directory fds only: safe to use after fork, and from a
 * mount namespace where no cgroup file system is mounted. */
struct cgroup_tree;

struct cgroup_limits {
    uint32_t cpu_count;    /* quota = count x 100 % on `user`; 0 = none */
    uint64_t memory_bytes; /* 0 = none */
    uint32_t pids;         /* 0 = default 4096 */
};

/* Which hierarchy each controller was found in. */
enum cgroup_mode { CGROUP_V1, CGROUP_HYBRID, CGROUP_V2 };

/* Finds or makes the tree of `instance`. `ret` is owned by the caller. Fails with
 * FAILED_PRECONDITION and says what to do when no place for it can be found. */
int cgroup_tree_open(const char *instance, struct cgroup_tree **ret, struct abx_err *err);
void cgroup_tree_free(struct cgroup_tree *t);
DEFINE_CLEANUP(struct cgroup_tree *, cgroup_tree_free)
enum cgroup_mode cgroup_tree_mode(const struct cgroup_tree *t);
/* Which limits this host can enforce (a controller that is in no hierarchy limits nothing). */
struct cgroup_enforced {
    bool memory, cpu, pids;
};
struct cgroup_enforced cgroup_tree_enforced(const struct cgroup_tree *t);
/* Removes the tree of the instance where it is empty; FAILED_PRECONDITION while a process or a
 * sandbox is in it. */
int cgroup_tree_remove(struct cgroup_tree *t, struct abx_err *err);
/* Moves `pid` out of `host` into the group that the tree lies in, so that the tree can be removed.
 * Fails where that group may hold no process (cgroup v2 with controllers below a unit). */
int cgroup_tree_leave(struct cgroup_tree *t, pid_t pid, struct abx_err *err);

/* Moves `pid` (a host role) into `host`, so that it is never inside a sandbox's limits. */
int cgroup_tree_adopt_host(struct cgroup_tree *t, pid_t pid, struct abx_err *err);

/* Makes the groups of sandbox `id` with limits. ALREADY_EXISTS when they exist. In the v2 subtree
 * `uid_base` gets `user` (folder, cgroup.procs, cgroup.threads), so that the guest can make a group
 * for each command below it, and cgroup.procs of `guest` and of the sandbox's own group, so that it
 * can put a restarted daemon back. Everything else stays the host's, controllers included. Root inside
 * can therefore leave `user`, but the group of the sandbox has a quota too, 20 % of a cpu above that of
 * `user`. */
int cgroup_create(struct cgroup_tree *t, const char *id, const struct cgroup_limits *limits,
                  uid_t uid_base, struct abx_err *err);
int cgroup_set_limits(struct cgroup_tree *t, const char *id, const struct cgroup_limits *limits,
                      struct abx_err *err);

enum cgroup_part { CGROUP_ROOT, CGROUP_GUEST, CGROUP_USER };

/* Directory fd of one v2 group of the sandbox (for CLONE_INTO_CGROUP, or to mount), *ret_fd = -EBADF
 * without error when there is no v2 tree. Owned by the caller. */
int cgroup_open_v2(struct cgroup_tree *t, const char *id, enum cgroup_part part, int *ret_fd,
                   struct abx_err *err);
/* Puts PID 1 into `user` and the daemon (0 = none) outside of it, in the v1 hierarchies in use. Both
 * were already cloned into their v2 groups when there is a v2 tree. Moving another process takes a
 * lock of the whole kernel: about 10 ms when it was idle; see cgroup_open_join for the fast way. */
int cgroup_attach(struct cgroup_tree *t, const char *id, pid_t init_pid, pid_t daemon_pid,
                  struct abx_err *err);

#define CGROUP_JOIN_MAX 6
/* The same for a single-threaded process that joins by itself, without that lock (20 us each):
 * opens one file per v1 hierarchy, into each of which it writes "0". `part` is CGROUP_USER or
 * CGROUP_GUEST. The fds are owned by the caller; 0 of them when everything is v2. */
int cgroup_open_join(struct cgroup_tree *t, const char *id, enum cgroup_part part,
                     int ret_fds[CGROUP_JOIN_MAX], size_t *ret_n, struct abx_err *err);

/* Freezes or thaws everything in it; returns when done or after timeout_ms with
 * DEADLINE_EXCEEDED (then thawed again). NOT_FOUND, here and below, when it has no group. */
int cgroup_freeze(struct cgroup_tree *t, const char *id, bool on, int timeout_ms,
                  struct abx_err *err);
/* Kills every process, frozen or not, and returns when none is left or after timeout_ms. */
int cgroup_kill(struct cgroup_tree *t, const char *id, int timeout_ms, struct abx_err *err);
/* Removes the groups (must be empty of processes). Missing is fine. */
int cgroup_remove(struct cgroup_tree *t, const char *id, struct abx_err *err);
/* Is `pid` in any of the sandbox's groups? */
bool cgroup_has_process(struct cgroup_tree *t, const char *id, pid_t pid);

struct cgroup_usage {
    uint64_t cpu_us;
    uint64_t memory_bytes; /* all that counts against the limit, page cache included */
    uint64_t cache_bytes;  /* of it page cache of files, without tmpfs, which cannot be dropped */
    uint32_t processes;
    uint64_t oom_kills;
};
int cgroup_usage_read(struct cgroup_tree *t, const char *id, struct cgroup_usage *ret,
                      struct abx_err *err);

/* By what a host can push memory out to swap. */
enum cgroup_push {
    CGROUP_PUSH_NONE,
    CGROUP_PUSH_RECLAIM,     /* memory.reclaim of cgroup v2 */
    CGROUP_PUSH_FORCE_EMPTY, /* memory.force_empty of v1, which takes page cache too */
};
enum cgroup_push cgroup_push_kind(const struct cgroup_tree *t);
/* Pushes memory of a frozen sandbox out to swap until little is left, nothing moves any more, a tenth of the machine's swap
 * is left, `timeout_ms` is over, or `stop_fd` (-1 = none) is readable: ABORTED. `is_limited`: it has a memory limit, and so no
 * swap at other times. `*ret_bytes`: by how much its memory became less, also when it fails. Blocks; forks. */
int cgroup_push_out(struct cgroup_tree *t, const char *id, bool is_limited, int stop_fd,
                    int timeout_ms, uint64_t *ret_bytes, struct abx_err *err);
/* May a sandbox with a memory limit have memory in swap? For cgroup_push_out, and to undo what of it was cut off. */
int cgroup_swap_allow(struct cgroup_tree *t, const char *id, bool on, struct abx_err *err);

/* Calls `fn` once for each sandbox id that has a group in any hierarchy (for the audit), until it
 * returns other than 0, which is then the result. `fn` may remove the group. */
int cgroup_each(struct cgroup_tree *t, int (*fn)(void *user, const char *id), void *user,
                struct abx_err *err);
