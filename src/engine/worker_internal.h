/* worker_internal.h - what worker.c and the files with its jobs share. */
#pragma once

#include "engine/cgroup.h"
#include "engine/disk.h"
#include "engine/job.h"
#include "engine/options.h"
#include "engine/saved.h"
#include "engine/spawn.h"
#include "engine/userns.h"

struct lease {
    uid_t base;
    int userns_fd; /* kept open as long as the lease: making one costs a process */
    bool is_free;
};

struct worker {
    const struct options *o;
    struct cgroup_tree *cgroups;
    struct disk_pool *pool;
    struct spawner *spawner; /* create only */
    int guest_fd;            /* create only */
    int records_fd;
    struct uid_leases *uids; /* prepare only */
    struct lease *leases;
    size_t n_leases;
    char boot_id[RECORD_UUID_SIZE];
};

struct cgroup_limits worker_cgroup_limits(const struct record_limits *l);
/* Brings the groups and the upper of `record` to its limits. */
int worker_resize(struct worker *w, const struct record *record, struct abx_err *err);
/* Sends an event or a result; a failure ends the process (the engine is gone). */
void worker_send(const struct job_result *r, const int *fds, size_t n_fds);
/* Kills and removes everything of `name` but its record, and but its upper when that is kept. A pool that refuses to let go of the upper (full,
 * read-only, gone) does not keep a sandbox: *ret_has_upper_left is set and the upper is found later, by
 * having no record. */
int worker_remove_all(struct worker *w, const char *name, bool keeps_upper,
                      bool *ret_has_upper_left, struct abx_err *err);
/* Before a job that needs them: a pool that could not be used at the start may be of use by now, and only
 * then the spawner of a create worker can be made. */
int worker_revive(struct worker *w, struct abx_err *err);

/* Jobs: fill *ret (its err on failure), may set descriptors to send along. */
int job_create_run(struct worker *w, const struct job *j, int *fds, size_t n_fds,
                   struct job_result *ret, int *ret_fds, size_t *ret_n);
int job_prepare_run(struct worker *w, const struct job *j, struct job_result *ret, int *ret_fds,
                    size_t *ret_n);
int job_uid_put_run(struct worker *w, const struct job *j, struct job_result *ret);
int job_audit_run(struct worker *w, const struct job *j, struct job_result *ret);

/* Opens the lease file and notes which of this instance's ranges no record names. */
int leases_open(struct worker *w, struct abx_err *err);
