/* probe_internal.h - the checks of probe_*.c. Each runs in a child process of its own, as root, may
 * change that process as it likes and need not clean memory up; its files and groups it removes.
 */
#pragma once

#include "engine/probe.h"

struct probe_env {
    const char *data_dir;
    const char *scratch; /* empty folder on the file system of the data dir, for this check alone */
};

typedef void probe_fn(const struct probe_env *env, struct probe_check *ret);

/* Fills a check. `meaning` and `fix` may be "". */
void probe_set(struct probe_check *c, enum probe_status status, const char *meaning,
               const char *fix, const char *value_fmt, ...) _printf_(5, 6);

/* probe_kernel.c */
probe_fn probe_root, probe_kernel, probe_userns, probe_clone3, probe_proc, probe_seccomp;
probe_fn probe_netns, probe_steering;
/* probe_files.c */
probe_fn probe_idmap, probe_overlay, probe_disk, probe_space, probe_runtime_dir;
/* probe_limits.c */
probe_fn probe_cgroup, probe_freeze, probe_swap, probe_memory, probe_pids, probe_nofile;
probe_fn probe_file_max, probe_inotify;
/* probe_host.c */
probe_fn probe_port, probe_tools, probe_kvm, probe_criu, probe_lsm;
