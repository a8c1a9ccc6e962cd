/* adopt.c - what a previous engine left, by its records. See engine.h.
 *
 * A sandbox is adopted when its record says `running` and, with the pidfd opened first, its pid
 * still is the process of then (start time, same boot), in its cgroup, in its network namespace.
 * Everything else that has a record is removed, but what is saved (saved.h) keeps its upper. Records of a
 * pool's sandboxes bear no id.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/process.h"
#include "engine/engine.h"

/* Opens pidfd and namespace if the process is the recorded one. */
static bool is_alive(struct engine *e, const struct record *r, int *ret_pidfd, int *ret_netns)
{
    _cleanup_(closep) int pidfd = -EBADF;
    _cleanup_(closep) int netns = -EBADF;
    char path[64];
    struct stat st;

    if (r->phase != RECORD_RUNNING || r->pid <= 0 || strcmp(r->boot_id, e->boot_id) != 0)
        return false;
    pidfd = (int)syscall(SYS_pidfd_open, r->pid, 0);
    if (pidfd < 0 || process_start_ticks(r->pid) != r->start_ticks ||
        !cgroup_has_process(e->cgroups, r->name, r->pid))
        return false;
    (void)snprintf(path, sizeof path, "/proc/%d/ns/net", (int)r->pid);
    netns = open(path, O_RDONLY | O_CLOEXEC);
    if (netns < 0 || fstat(netns, &st) < 0 || st.st_ino != r->netns_ino)
        return false;
    *ret_pidfd = TAKE_FD(pidfd);
    *ret_netns = TAKE_FD(netns);
    return true;
}

static enum sandbox_state state_of(const struct record *r)
{
    if (r->sandbox_id[0] == '\0')
        return SANDBOX_READY;
    return r->is_frozen ? SANDBOX_FROZEN : SANDBOX_RUNNING;
}

static int adopt_one(struct engine *e, const struct record *r, struct abx_err *err)
{
    struct sandbox *sb;
    int code = table_add(e->table, r->name, &sb, err);
    char id[RECORD_ID_SIZE];

    if (code < 0)
        return code;
    sb->engine = e;
    sb->record = *r;
    sb->record.sandbox_id[0] = '\0';
    memcpy(id, r->sandbox_id, sizeof id);
    if (id[0] != '\0' && table_set_id(e->table, sb, id, err) < 0) {
        log_err("a record is removed", err); /* two of one id: the other one came first */
        sb->state = SANDBOX_PREPARED;
        return 0;
    }
    sb->state = is_alive(e, r, &sb->pidfd, &sb->netns_fd) ? state_of(r) : SANDBOX_PREPARED;
    return sb->state == SANDBOX_PREPARED ? 0 : sandbox_watch(e, sb, err);
}

struct scan {
    struct engine *e;
    struct abx_err *err;
};

static int scan_one(void *user, const char *name)
{
    struct scan *s = user;
    struct record r;

    if (record_read(s->e->records_fd, name, &r, NULL) == 0)
        return adopt_one(s->e, &r, s->err);
    if (record_name_is_valid(name)) { /* unreadable: what it named is removed by name */
        struct sandbox *sb;

        return table_add(s->e->table, name, &sb, s->err);
    }
    log_warn("removed a stray file from the run dir", "name", name, NULL);
    return record_remove(s->e->records_fd, name, s->err);
}

int adopt_scan(struct engine *e, struct abx_err *err)
{
    struct scan s = { e, err };

    int r = record_each(e->records_fd, scan_one, &s, err);

    return r < 0 ? r : saved_scan(e, err);
}

/* At this point no slot was prepared yet: SANDBOX_PREPARED marks what is to go. */
static void finish_one(void *user, struct sandbox *sb)
{
    struct engine *e = user;
    struct abx_err err;
    int r = 0;

    if (sb->state == SANDBOX_RUNNING || sb->state == SANDBOX_FROZEN) {
        r = sockets_add(e->sockets, sb->record.sandbox_id, sb->netns_fd, sb->record.uid_base,
                        sb->steer_fds, &err);
        sockets_set_frozen(e->sockets, sb->record.sandbox_id, sb->state == SANDBOX_FROZEN);
        log_info("sandbox adopted", "id", sb->record.sandbox_id, NULL);
    }
    if (r < 0)
        log_err("a sandbox could not be adopted", &err);
    /* Whether it was paused or only on its way there can be read when the pool is there again. */
    sb->is_saved |= sb->state == SANDBOX_FROZEN && disk_pool_why_dead(e->pool)[0];
    if (sb->keeps_upper)
        sandbox_remove_keeping(e, sb);
    else if (r < 0 || sb->state == SANDBOX_PREPARED ||
             (sb->state == SANDBOX_READY && !warm_put(e, sb)))
        sandbox_remove(e, sb, 0, 0);
}

void adopt_finish(struct engine *e)
{
    table_each(e->table, finish_one, e);
}
