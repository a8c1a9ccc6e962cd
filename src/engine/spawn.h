/* spawn.h - from a specification to a running sandbox: mounts, namespaces, privileges, exec.
 *
 * A struct spawner lives in a worker process with a pruned private mount namespace. It holds what
 * all sandboxes share: the compiled seccomp filter, the /dev template, the masked-proc sources, the
 * mount path that this kernel takes (layers by fd, or by string path). spawn_sandbox blocks for
 * about a millisecond and must only be called from that process.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"

struct spawner;

enum mount_path { MOUNT_AUTO, MOUNT_BY_FD, MOUNT_BY_STRING };

struct spawner_opts {
    enum mount_path mount_path; /* AUTO probes */
    /* Absolute paths, ended by NULL, that stay visible with the mounts below them as they are at
     * spawner_new: the pool. Uppers, and layers given by path, are found below these. May be NULL. */
    const char *const *keep_paths;
};

#define SPAWN_LAYERS_MAX 16

struct spawn_spec {
    const char *id;
    const char *hostname;
    const char *boot_id;       /* 36 characters; what the sandbox sees as its boot_id */
    const char *const *layers; /* absolute host paths, topmost first */
    /* Detached mounts of the layers, borrowed and changed; `layers` only names them then. NULL: they are looked
     * for by path. */
    const int *layer_fds;
    size_t n_layers;
    const char *upper; /* absolute: folder that holds u/ and w/ */
    uid_t uid_base;
    int userns_fd; /* of userns_open(uid_base) */
    int netns_fd;
    int cgroup_fd;       /* v2 group `user` for CLONE_INTO_CGROUP of PID 1, or -EBADF */
    int cgroup_guest_fd; /* v2 group `guest` for the daemon, or -EBADF */
    int cgroup_root_fd;  /* v2 group of the sandbox, mounted as /sys/fs/cgroup, or -EBADF */
    /* Of cgroup_open_join: files of v1 groups that PID 1 and the daemon join by themselves. They
     * get their cgroup namespaces afterwards; what before_go attaches shows as outside of them. */
    const int *join_user_fds;
    size_t n_join_user;
    const int *join_guest_fds;
    size_t n_join_guest;
    /* Called in the parent after clone3, before the children may go on (record on tmpfs); pids as
     * the host sees them. May be NULL. A failure kills the sandbox. */
    int (*before_go)(void *user, pid_t init_pid, pid_t daemon_pid, int init_pidfd,
                     struct abx_err *err);
    void *user;
    int guest_fd;   /* the guest image, opened on the host */
    int envd_fd;    /* becomes GUEST_FD_ENVD (guest_abi.h) */
    int control_fd; /* becomes GUEST_FD_CONTROL */
};

/* Where the time went, in order; each stage ends where the next begins. */
struct spawn_stage {
    const char *name; /* static */
    uint32_t us;
};
#define SPAWN_STAGES_MAX 12

struct spawn_result {
    pid_t pid;
    int pidfd; /* owned by the caller */
    struct spawn_stage stages[SPAWN_STAGES_MAX];
    size_t n_stages;
};

/* Unshares the mount namespace of this process, prunes it and prepares the shared parts; the process
 * has to have one thread. It becomes the parent of every PID 1, so it has to reap them: by the
 * pidfds of the results, or with SIGCHLD ignored. Its descriptors of files elsewhere stay usable. */
int spawner_new(const struct spawner_opts *opts, struct spawner **ret, struct abx_err *err);
void spawner_free(struct spawner *s);
DEFINE_CLEANUP(struct spawner *, spawner_free)
enum mount_path spawner_mount_path(const struct spawner *s);

/* Starts one sandbox; returns after its exec succeeded. On failure, also when it took more than 5 s,
 * nothing of it is left running and the error names the step of the child that failed. The upper
 * must not be in use; /etc/hostname, hosts and resolv.conf are written where it has none yet. */
int spawn_sandbox(struct spawner *s, const struct spawn_spec *spec, struct spawn_result *ret,
                  struct abx_err *err);
