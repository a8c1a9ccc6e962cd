/* rootfs.h - what a sandbox sees as its files: the root overlay, /dev, /proc, /sys.
 *
 * The spawner keeps one private mount namespace with these folders on a small tmpfs:
 *     /proc      the host's, unmasked (writes of uid maps; a new /proc inside needs one in sight)
 *     /shared    read-only, what all sandboxes share: dev/, sys/, boot/, none (empty folder)
 *     /boot      one file at a time: the boot_id of the sandbox being made
 *     /cgroup    the v2 tree, when there is one
 *     /layers    where layers are attached for a moment (mounting by string path)
 *     /root      where a child attaches its root before it moves into it
 *     ...        the kept paths, with the mounts below them
 * Parent functions return codes and fill err; child functions are async-signal-safe and return 0 or
 * -1 with errno.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "engine/spawn.h"

/* Moves this process into a new mount namespace that holds only the above. `keep` is a list of
 * absolute paths ended by NULL (may be NULL). */
int rootfs_prune(const char *const *keep, struct abx_err *err);
/* Which way of mounting layers this kernel takes; in the pruned namespace only. */
int rootfs_probe(enum mount_path *ret, struct abx_err *err);

/* Detached mounts made for one sandbox. */
struct rootfs {
    int overlay;
    int dev;
    int boot_id;
    int cgroup; /* -EBADF when there is no v2 tree */
};
#define ROOTFS_INIT { -EBADF, -EBADF, -EBADF, -EBADF }
void rootfs_done(struct rootfs *r);

/* Writes /etc/hostname, hosts and resolv.conf into the upper where it has none of them, mounts the
 * overlay and the rest. The caller's effective uid and gid are the sandbox's base. `ret_layers_us` is
 * the CLOCK_MONOTONIC time in ns when the layers were ready. */
int rootfs_mount(enum mount_path path, const struct spawn_spec *spec, struct rootfs *ret,
                 int64_t *ret_layers_ns, struct abx_err *err);

/* In the child, in this order. After the second the child's / is the overlay. */
int rootfs_child_attach(const struct rootfs *r);
int rootfs_child_proc(const struct rootfs *r);
int rootfs_child_pivot(void);
/* Needs the uid maps. */
int rootfs_child_devpts(void);
