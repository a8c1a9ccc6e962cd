/* cgroup_swap.c - pushes the memory of a frozen sandbox out to swap. See cgroup.h.
 *
 * v2 has memory.reclaim (Linux 5.19), v1 memory.force_empty. Either is one call that takes as long as the swap is slow and that
 * only a signal ends; so a child process makes them, in steps where it can, and this one watches the deadline, who wants it to
 * stop, and how much swap is left, and kills the child.
 *
 * A v2 sandbox with a memory limit may not use swap (or it would be a way around the limit). It may while this runs, when none
 * of its processes does; what is out there by then counts as before.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "engine/cgroup_internal.h"

#define STEP_BYTES (UINT64_C(16) << 20)
#define LITTLE_BYTES (UINT64_C(1) << 20) /* not worth a step */
#define WATCH_MS 100
#define CHILD_NICE 10
/* Swap is the machine's: the last tenth of it stays for others. */
#define SWAP_KEPT 10u

/* --- the child ---------------------------------------------------------------------------------- */

/* Of anonymous memory alone where the kernel can tell it apart (6.14, 6.9): page cache of a template's files is other sandboxes'
 * too. */
static int reclaim(int fd, uint64_t bytes)
{
    static const char *const words[] = { " swappiness=max", " swappiness=200", "" };
    struct abx_err err = { .sys = EINVAL };

    for (size_t i = 0; i < ARRAY_SIZE(words) && err.sys == EINVAL; i++)
        if (file_printf(fd, "memory.reclaim", &err, "%llu%s", (unsigned long long)bytes,
                        words[i]) == 0)
            return 0;
    return err.sys;
}

/* Until as much was asked for as there was, nothing moves any more or little is left. 0 or an errno. */
static int push_by_reclaim(int fd, uint64_t bytes)
{
    unsigned failures = 0;

    for (uint64_t asked = 0; asked < bytes && failures < 2; asked += STEP_BYTES) {
        uint64_t before = 0, now = 0;
        int e;

        if (cgroup_read_u64(fd, "memory.current", &before, NULL) < 0 || before < LITTLE_BYTES)
            return 0;
        e = reclaim(fd, MIN(before, STEP_BYTES));
        if (e != 0 && e != EAGAIN) /* EAGAIN: less than was asked for */
            return e;
        (void)cgroup_read_u64(fd, "memory.current", &now, NULL);
        failures = now + LITTLE_BYTES > before ? failures + 1 : 0;
    }
    return 0;
}

static int push(int fd, enum cgroup_push kind, uint64_t bytes)
{
    struct abx_err err = { 0 };

    switch (kind) {
    case CGROUP_PUSH_RECLAIM:
        return push_by_reclaim(fd, bytes);
    case CGROUP_PUSH_FORCE_EMPTY:
        (void)file_write_once(fd, "memory.force_empty", "0", 1, &err);
        return err.sys;
    case CGROUP_PUSH_NONE:
        break;
    }
    return ENOSYS;
}

/* --- the one that watches ------------------------------------------------------------------------ */

bool cgroup_swap_is_short(void)
{
    struct sysinfo info;

    return sysinfo(&info) < 0 || info.freeswap <= info.totalswap / SWAP_KEPT;
}

/* Waits for the child's end. 0: it came, or the time is over; ABORTED when it was stopped. */
static int watch(pid_t pid, int stop_fd, int timeout_ms, bool (*is_short)(void),
                 struct abx_err *err)
{
    _cleanup_(closep) int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd p[] = { { pidfd, POLLIN, 0 }, { stop_fd, POLLIN, 0 } };
    int64_t deadline = time_mono_ns() + timeout_ms * NSEC_PER_MSEC;

    if (pidfd < 0)
        return err_sys(err, errno, "pidfd_open");
    while (!is_short() && time_mono_ns() < deadline) {
        if (poll(p, 2, WATCH_MS) < 0 && errno != EINTR)
            return err_sys(err, errno, "poll");
        if (p[0].revents)
            return 0;
        if (p[1].revents)
            return err_set(err, ABX_ABORTED, "it was stopped");
    }
    return 0;
}

static const char *usage_file(enum cgroup_push kind)
{
    return kind == CGROUP_PUSH_RECLAIM ? "memory.current" : "memory.usage_in_bytes";
}

int cgroup_push_in(int fd, enum cgroup_push kind, int stop_fd, int timeout_ms,
                   bool (*is_short)(void), uint64_t *ret_bytes, struct abx_err *err)
{
    uint64_t before = 0, after = 0;
    int status = 0, r = cgroup_read_u64(fd, usage_file(kind), &before, err);
    pid_t parent = getpid(), pid;

    if (r < 0)
        return r;
    pid = fork();
    if (pid < 0)
        return err_sys(err, errno, "fork");
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)setpriority(PRIO_PROCESS, 0, CHILD_NICE);
        _exit(getppid() == parent ? push(fd, kind, before) : 1);
    }
    r = watch(pid, stop_fd, timeout_ms, is_short, err);
    (void)kill(pid, SIGKILL);
    if (waitpid(pid, &status, 0) < 0)
        return err_sys(err, errno, "wait for what pushes memory out");
    if (r == 0 && WIFEXITED(status) && WEXITSTATUS(status) != 0)
        r = err_sys(err, WEXITSTATUS(status), "push memory out");
    if (cgroup_read_u64(fd, usage_file(kind), &after, NULL) == 0)
        *ret_bytes = before > after ? before - after : 0;
    return r;
}

/* --- a sandbox's -------------------------------------------------------------------------------- */

enum cgroup_push cgroup_push_kind(const struct cgroup_tree *t)
{
    const struct cgroup_v1 *h = cgroup_v1_with(t, CGROUP_MEMORY);

    if ((t->v2_controllers & CGROUP_BIT(CGROUP_MEMORY)) &&
        faccessat(t->v2_sandboxes_fd, "memory.reclaim", F_OK, 0) == 0)
        return CGROUP_PUSH_RECLAIM;
    return h && faccessat(h->sandboxes_fd, "memory.force_empty", F_OK, 0) == 0
               ? CGROUP_PUSH_FORCE_EMPTY
               : CGROUP_PUSH_NONE;
}

int cgroup_swap_allow(struct cgroup_tree *t, const char *id, bool on, struct abx_err *err)
{
    static const char *const files[] = { "memory.swap.max", "user/memory.swap.max" };
    _cleanup_(closep) int fd = -EBADF;
    int r = 0;

    if (!(t->v2_controllers & CGROUP_BIT(CGROUP_MEMORY)))
        return 0; /* v1 limits memory and swap together */
    r = cgroup_open_v2(t, id, CGROUP_ROOT, &fd, err);
    for (size_t i = 0; i < ARRAY_SIZE(files) && r == 0; i++)
        if (faccessat(fd, files[i], F_OK, 0) == 0) /* not in kernels without swap */
            r = file_write_once(fd, files[i], on ? "max" : "0", on ? 3 : 1, err);
    return r;
}

static int open_group(struct cgroup_tree *t, const char *id, enum cgroup_push kind, int *ret_fd,
                      struct abx_err *err)
{
    if (kind == CGROUP_PUSH_RECLAIM)
        return cgroup_open_v2(t, id, CGROUP_ROOT, ret_fd, err);
    *ret_fd = cgroup_open_dir(cgroup_v1_with(t, CGROUP_MEMORY)->sandboxes_fd, id);
    return *ret_fd < 0 ? err_sys(err, errno, "memory cgroup of sandbox '%s'", id) : 0;
}

int cgroup_push_out(struct cgroup_tree *t, const char *id, bool is_limited, int stop_fd,
                    int timeout_ms, uint64_t *ret_bytes, struct abx_err *err)
{
    enum cgroup_push kind = cgroup_push_kind(t);
    _cleanup_(closep) int fd = -EBADF;
    int r = cgroup_check_name(id, err);

    *ret_bytes = 0;
    if (r == 0 && kind == CGROUP_PUSH_NONE)
        r = err_set(err, ABX_UNIMPLEMENTED, "no memory controller that can push memory out");
    if (r == 0)
        r = open_group(t, id, kind, &fd, err);
    if (r == 0 && is_limited)
        r = cgroup_swap_allow(t, id, true, err);
    if (r < 0)
        return r;
    r = cgroup_push_in(fd, kind, stop_fd, timeout_ms, cgroup_swap_is_short, ret_bytes, err);
    if (is_limited && cgroup_swap_allow(t, id, false, r == 0 ? err : NULL) < 0 && r == 0)
        r = err ? err->code : ABX_INTERNAL;
    return r;
}
