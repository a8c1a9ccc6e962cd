/* swap.c - memory of paused sandboxes goes to swap, where there is some. See engine.h, cgroup.h.
 *
 * It begins when the pause is answered, in a worker of its own, and stops at once when the sandbox goes on or ends; neither
 * waits for it. What is out there then comes back page by page.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "engine/engine.h"

struct pushing {
    struct engine *engine;
    char name[RECORD_NAME_SIZE]; /* of a sandbox that may be gone by the end */
    char id[RECORD_ID_SIZE];
    int stop_fd; /* an eventfd: the worker stops when it is set */
    int64_t begin_ns;
};

static void drop(void *user)
{
    struct pushing *p = user;

    fd_close(p->stop_fd);
    free(p);
}

bool swap_is_usable(const struct engine *e)
{
    struct sysinfo info;

    return sysinfo(&info) == 0 && info.totalswap > 0 &&
           cgroup_push_kind(e->cgroups) != CGROUP_PUSH_NONE;
}

static void tell(const struct pushing *p, uint64_t bytes, const struct abx_err *failure)
{
    char mib[24], ms[24];

    (void)snprintf(mib, sizeof mib, "%llu", (unsigned long long)(bytes >> 20));
    (void)snprintf(ms, sizeof ms, "%lld",
                   (long long)((time_mono_ns() - p->begin_ns) / NSEC_PER_MSEC));
    if (failure->code == 0 || failure->code == ABX_ABORTED)
        log_info("memory of a paused sandbox went to swap", "id", p->id, "mib", mib, "ms", ms,
                 "stopped", failure->code ? "true" : "false", NULL);
    else if (failure->code != ABX_NOT_FOUND) /* it has ended meanwhile */
        log_warn("memory of a paused sandbox stays where it is", "id", p->id, "mib", mib, "error",
                 failure->msg, NULL);
}

static void on_pushed(void *user, const struct job_result *r, int *fds, size_t n_fds)
{
    struct pushing *p = user;
    struct engine *e = p->engine;
    struct sandbox *sb = table_find(e->table, p->name);

    (void)fds;
    (void)n_fds;
    if (sb && sb->pushing == p)
        sb->pushing = NULL;
    tell(p, r->is_cut_off ? 0 : r->u.bytes, &r->err);
    drop(p);
    engine_stop_if_idle(e);
}

static int submit(struct pushing *p, struct sandbox *sb, struct abx_err *err)
{
    struct job j = { .kind = JOB_PUSH_OUT, .record = sb->record };
    int fd;

    p->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fd = p->stop_fd < 0 ? -EBADF : fcntl(p->stop_fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(err, errno, "eventfd");
    return crew_submit(p->engine->crew, WORKER_SWAP, &j, &fd, 1,
                       (struct job_owner){ on_pushed, drop, p }, err);
}

void sandbox_push_out(struct engine *e, struct sandbox *sb)
{
    struct pushing *p;
    struct abx_err err;

    if (!e->can_push || sb->pushing || e->is_stopping)
        return;
    p = calloc(1, sizeof *p);
    if (!p) {
        (void)err_oom(&err);
    } else {
        *p = (struct pushing){ .engine = e, .stop_fd = -EBADF, .begin_ns = time_mono_ns() };
        memcpy(p->name, sb->record.name, sizeof p->name);
        memcpy(p->id, sb->record.sandbox_id, sizeof p->id);
        sb->pushing = p;
        if (submit(p, sb, &err) == 0)
            return;
        sb->pushing = NULL;
        drop(p);
    }
    log_err("memory of a paused sandbox stays where it is", &err);
}

void sandbox_push_stop(struct engine *e, struct sandbox *sb)
{
    struct pushing *p = TAKE_PTR(sb->pushing);
    const uint64_t one = 1;

    if (!p)
        return;
    if (write(p->stop_fd, &one, sizeof one) < 0)
        log_warn("pushing memory out cannot be stopped", "id", p->id, NULL);
    crew_withdraw(e->crew, WORKER_SWAP, p);
}
