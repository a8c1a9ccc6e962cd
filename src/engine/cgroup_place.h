/* cgroup_place.h - where the tree of an instance belongs: pure functions over the text of
 * /proc/self/cgroup and /proc/self/mountinfo, and the choice of a hierarchy per controller.
 */
#pragma once

#include <limits.h>

#include "base/buf.h"

enum cgroup_controller {
    CGROUP_MEMORY,
    CGROUP_CPU,
    CGROUP_PIDS,
    CGROUP_FREEZER, /* v1 only: v2 freezes by itself */
    CGROUP_CPUACCT, /* v1 only: v2 counts by itself */
    CGROUP_CONTROLLERS_,
};

#define CGROUP_BIT(c) (1u << (c))
/* The ones that limit something. */
#define CGROUP_LIMITS (CGROUP_BIT(CGROUP_MEMORY) | CGROUP_BIT(CGROUP_CPU) | CGROUP_BIT(CGROUP_PIDS))

const char *cgroup_controller_name(enum cgroup_controller c);

/* Path of the process's group in the hierarchy of `controller` (NULL = v2). False when the text
 * has no such line or the path does not fit. */
bool cgroup_self_path(struct slice proc_cgroup, const char *controller, char *to, size_t size);

/* Cuts "/abx-<any>/host" off the end: a role that is started again, or a service started beside
 * another one, belongs next to that tree and not into it. An empty path becomes "/". */
void cgroup_base_path(char *path);

/* Where the group `path` is seen when `root` of the hierarchy is mounted on `target`; the mount
 * point itself when the group lies outside of what is mounted. False when it does not fit. */
bool cgroup_visible_path(const char *root, const char *target, const char *path, char *to,
                         size_t size);

/* Set of controllers in a space-separated cgroup.controllers. */
unsigned cgroup_parse_controllers(struct slice text);

struct cgroup_choice {
    unsigned v2; /* bits */
    unsigned v1;
    unsigned missing;
};
/* `v2`, `v1`: the controllers that each offers; `has_v2`: a v2 tree can be had, with or without. */
struct cgroup_choice cgroup_choose(bool has_v2, unsigned v2, unsigned v1);

/* What all sandboxes of a machine may take together. */
uint64_t cgroup_memory_cap(uint64_t total_bytes);
uint32_t cgroup_pids_cap(uint32_t pid_max);

/* "key value" lines, as in cpu.stat and memory.events. */
bool cgroup_find_value(struct slice text, const char *key, uint64_t *ret);
