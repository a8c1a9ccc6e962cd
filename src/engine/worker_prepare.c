/* worker_prepare.c - slots: all of a sandbox but its processes and its template, made ahead. Also the
 * uid leases, which only the prepare worker holds.
 *
 * A slot has a lease, a record, an upper, cgroups and a network namespace with the guest's two
 * listening sockets and the steering of what it dials. Any template can be started in it.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "e2b/guest_abi.h"
#include "engine/netns.h"
#include "engine/worker_internal.h"

#define ENVD_BACKLOG 128
#define FREE_LEASES_MAX 64u /* more go back to the machine */

/* --- uid leases --------------------------------------------------------------------------------- */

static struct lease *lease_find(struct worker *w, uid_t base)
{
    for (size_t i = 0; i < w->n_leases; i++)
        if (w->leases[i].base == base)
            return &w->leases[i];
    return NULL;
}

static int lease_add(struct worker *w, uid_t base, struct lease **ret, struct abx_err *err)
{
    struct lease *more = reallocarray(w->leases, w->n_leases + 1, sizeof *more);

    if (!more)
        return err_oom(err);
    w->leases = more;
    more[w->n_leases] = (struct lease){ base, -EBADF, true };
    *ret = &more[w->n_leases++];
    return 0;
}

static int note_lease(void *user, uid_t base)
{
    struct lease *l;

    return lease_add(user, base, &l, NULL);
}

static int note_record(void *user, const char *name)
{
    struct worker *w = user;
    struct record r;
    struct lease *l;

    if (record_read(w->records_fd, name, &r, NULL) < 0)
        return 0; /* not a record: the audit's business */
    l = lease_find(w, r.uid_base);
    if (l)
        l->is_free = false;
    return 0;
}

int leases_open(struct worker *w, struct abx_err *err)
{
    int r = uid_leases_open(w->o->uid_leases, w->o->instance, &w->uids, err);

    if (r == 0)
        r = uid_lease_each(w->uids, note_lease, w, err);
    return r < 0 ? r : record_each(w->records_fd, note_record, w, err);
}

/* A free one of ours, else a new one; NULL on failure. */
static struct lease *lease_take(struct worker *w, struct abx_err *err)
{
    struct lease *l = NULL;
    uid_t base;

    for (size_t i = 0; i < w->n_leases && !l; i++)
        if (w->leases[i].is_free)
            l = &w->leases[i];
    if (!l && (uid_lease_take(w->uids, &base, err) < 0 || lease_add(w, base, &l, err) < 0))
        return NULL;
    if (!l || (l->userns_fd < 0 && userns_open(l->base, &l->userns_fd, err) < 0))
        return NULL;
    l->is_free = false;
    return l;
}

/* After a rush the ranges belong to other services again. */
static int lease_trim(struct worker *w, struct abx_err *err)
{
    size_t n_free = 0;
    struct lease *last = NULL;
    int r;

    for (size_t i = 0; i < w->n_leases; i++)
        if (w->leases[i].is_free) {
            n_free++;
            last = &w->leases[i];
        }
    if (n_free <= FREE_LEASES_MAX)
        return 0;
    r = uid_lease_release(w->uids, last->base, err);
    if (r < 0)
        return r;
    fd_close(last->userns_fd);
    *last = w->leases[--w->n_leases];
    return 0;
}

int job_uid_put_run(struct worker *w, const struct job *j, struct job_result *ret)
{
    struct lease *l = lease_find(w, j->record.uid_base);

    /* Of a slot from before a while in which no engine ran: no process had a uid of it, so another service took the
     * range (userns.h). */
    if (!l) {
        log_info("a uid range belongs to another service by now", NULL);
        return 0;
    }
    l->is_free = true;
    return lease_trim(w, &ret->err);
}

/* --- slots -------------------------------------------------------------------------------------- */

static int make_network(int fds[SLOT_FDS], struct record *record, struct abx_err *err)
{
    struct stat st;
    int r = netns_create(&fds[SLOT_NETNS], err);

    if (r == 0)
        r = netns_listen_tcp(fds[SLOT_NETNS], GUEST_ENVD_PORT, ENVD_BACKLOG, &fds[SLOT_ENVD], err);
    if (r == 0)
        r = netns_listen_control(fds[SLOT_NETNS], GUEST_CONTROL_NAME, &fds[SLOT_CONTROL], err);
    if (r == 0 && fstat(fds[SLOT_NETNS], &st) < 0)
        r = err_sys(err, errno, "network namespace");
    if (r == 0)
        record->netns_ino = st.st_ino;
    return r;
}

static int make_upper(struct worker *w, const struct record *record, bool is_kept,
                      struct abx_err *err)
{
    uint64_t limit_bytes = (uint64_t)record->limits.disk_mb << 20;
    int r;

    if (!is_kept)
        return disk_upper_create(w->pool, record->name, limit_bytes, err);
    r = saved_check(w->pool, record->name, false, err);
    if (r < 0 || !disk_pool_is_limited(w->pool))
        return r;
    return disk_upper_set_limit(w->pool, record->name, limit_bytes, err); /* a clone has none yet */
}

static int make_slot(struct worker *w, struct record *record, bool keeps_upper, int fds[SLOT_FDS],
                     struct abx_err *err)
{
    const struct cgroup_limits limits = worker_cgroup_limits(&record->limits);
    int r = FAULT_STEP("prepare.network", err, make_network(fds, record, err));
    bool has_upper_left;

    /* Groups of its first life, when the record of that was lost. */
    if (r == 0 && keeps_upper)
        r = worker_remove_all(w, record->name, true, &has_upper_left, err);
    /* A namespace that only descriptors hold goes with them; the record comes before what stays. */
    if (r == 0)
        r = FAULT_STEP("prepare.record", err, record_write(w->records_fd, record, err));
    if (r == 0)
        r = FAULT_STEP("prepare.upper", err, make_upper(w, record, keeps_upper, err));
    if (r == 0)
        r = FAULT_STEP("prepare.groups", err,
                       cgroup_create(w->cgroups, record->name, &limits, record->uid_base, err));
    return r;
}

/* Not the fault of what was kept: it can be tried again when the pool is in order. */
static int pool_trouble(struct abx_err *err)
{
    int r = err_reason(err, ABX_REASON_BUSY, "%s", err->msg);

    return err_wrap(err, r, "the pool cannot be written to");
}

int job_prepare_run(struct worker *w, const struct job *j, struct job_result *ret, int *ret_fds,
                    size_t *ret_n)
{
    int fds[SLOT_FDS_MAX];
    struct record *record = &ret->record;
    struct lease *lease;
    bool has_upper_left;
    int r = worker_revive(w, &ret->err);
    struct abx_err why = { 0 };
    bool is_steered;

    if (r < 0)
        return j->keeps_upper ? pool_trouble(&ret->err) : r;
    lease = fault_at("prepare.uids", &ret->err) == 0 ? lease_take(w, &ret->err) : NULL;
    if (!lease)
        return fault_name_step(ret->err.code, "prepare.uids", &ret->err);
    for (size_t i = 0; i < SLOT_FDS_MAX; i++)
        fds[i] = -EBADF;
    record->phase = RECORD_PREPARED;
    memcpy(record->boot_id, w->boot_id, sizeof record->boot_id);
    record->uid_base = lease->base;
    r = make_slot(w, record, j->keeps_upper, fds, &ret->err);
    if (r == 0) {
        fds[SLOT_USERNS] = fcntl(lease->userns_fd, F_DUPFD_CLOEXEC, 0);
        if (fds[SLOT_USERNS] < 0)
            r = err_sys(&ret->err, errno, "user namespace");
    }
    if (r == 0) {
        /* Without it the sandbox has no way out, which is said; the rest of it works. */
        is_steered = steer_open(fds[SLOT_NETNS], fds + SLOT_FDS, &why) == 0;
        if (!is_steered)
            (void)snprintf(ret->u.no_steering, sizeof ret->u.no_steering, "%.150s", why.msg);
        /* All of them: in a new namespace no name is taken. */
        *ret_n = is_steered ? SLOT_FDS_MAX : SLOT_FDS;
        memcpy(ret_fds, fds, *ret_n * sizeof fds[0]);
        return 0;
    }
    packet_close_fds(fds, SLOT_FDS);
    if (j->keeps_upper && ret->err.sys == EROFS)
        r = pool_trouble(&ret->err);
    if (worker_remove_all(w, j->record.name, j->keeps_upper, &has_upper_left, NULL) == 0 &&
        record_remove(w->records_fd, j->record.name, NULL) == 0)
        lease->is_free = true;
    return r; /* if that failed the record stays, and the audit finds it */
}
