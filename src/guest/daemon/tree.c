/* tree.c - see tree.h. A supervisor is a subreaper, so parent links alone make the tree.
 *
 * Everything is stopped first, in passes until no running one is found: a stopped process does not
 * fork, so even a fork bomb comes to rest. Then everything is killed. Each process is held by a pidfd
 * while its parent is read again, so that a recycled number is never hit.
 */
#include "guest/daemon/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

struct proc {
    pid_t pid;
    pid_t parent;
    char state;
    bool is_in_tree;
};

struct procs {
    struct proc *list;
    size_t n;
    size_t cap;
};

static void procs_done(struct procs *p)
{
    free(p->list);
}

/* "<pid> (<name>) <state> <ppid> ...": the name may hold anything, so look for the last ')'. */
static bool stat_read(int proc_fd, pid_t pid, struct proc *ret)
{
    char path[32], text[512];
    _cleanup_(closep) int fd = -EBADF;
    const char *end;
    uint64_t parent;
    ssize_t n;
    size_t digits;

    (void)snprintf(path, sizeof(path), "%d/stat", pid);
    fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
    n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (n <= 0)
        return false;
    text[n] = '\0';
    end = strrchr(text, ')');
    if (!end || end[1] != ' ' || end[2] == '\0' || end[3] != ' ')
        return false;
    digits = strcspn(end + 4, " ");
    if (!str_parse_u64(slice_of(end + 4, digits), INT32_MAX, &parent))
        return false;
    *ret = (struct proc){ .pid = pid, .parent = (pid_t)parent, .state = end[2] };
    return true;
}

static int by_pid(const void *a, const void *b)
{
    const struct proc *x = a, *y = b;

    return (x->pid > y->pid) - (x->pid < y->pid);
}

static void procs_read(int proc_fd, struct procs *ps)
{
    int fd = openat(proc_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *e;
    uint64_t pid;

    ps->n = 0;
    if (!dir) {
        fd_close(fd);
        return;
    }
    while ((e = readdir(dir))) {
        if (!str_parse_u64(slice_str(e->d_name), INT32_MAX, &pid))
            continue;
        if (ps->n == ps->cap) {
            size_t cap = MAX((size_t)64, ps->cap * 2);
            struct proc *list = reallocarray(ps->list, cap, sizeof(*list));
            if (!list)
                break; /* those found so far are handled; the next pass finds the others */
            ps->list = list;
            ps->cap = cap;
        }
        if (stat_read(proc_fd, (pid_t)pid, &ps->list[ps->n]))
            ps->n++;
    }
    (void)closedir(dir);
    if (ps->n > 0)
        qsort(ps->list, ps->n, sizeof(ps->list[0]), by_pid);
}

static struct proc *procs_find(const struct procs *ps, pid_t pid)
{
    struct proc key = { .pid = pid };

    return ps->n ? bsearch(&key, ps->list, ps->n, sizeof(key), by_pid) : NULL;
}

/* Marks the descendants of `root`: each process walks up until a marked one, `root` or the top. */
static void tree_mark(struct procs *ps, pid_t root)
{
    bool changed = true;

    while (changed) {
        changed = false;
        for (size_t i = 0; i < ps->n; i++) {
            struct proc *p = &ps->list[i], *parent;
            if (p->is_in_tree)
                continue;
            parent = procs_find(ps, p->parent);
            if (p->parent == root || (parent && parent->is_in_tree)) {
                p->is_in_tree = true;
                changed = true;
            }
        }
    }
}

static void send(int proc_fd, const struct proc *p, int sig)
{
    _cleanup_(closep) int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
    struct proc again;

    /* Same number, same parent, held by the pidfd: the same process, or another one of the tree. */
    if (fd >= 0 && stat_read(proc_fd, p->pid, &again) && again.parent == p->parent)
        (void)syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0);
}

/* One pass; returns how many got the signal. */
static int pass(int proc_fd, struct procs *ps, pid_t root, int sig)
{
    int n = 0;

    procs_read(proc_fd, ps);
    tree_mark(ps, root);
    for (size_t i = 0; i < ps->n; i++) {
        const struct proc *p = &ps->list[i];
        if (!p->is_in_tree || p->state == 'Z' || p->state == 'X' ||
            (sig == SIGSTOP && (p->state == 'T' || p->state == 't')))
            continue;
        send(proc_fd, p, sig);
        n++;
    }
    return n;
}

int tree_kill(pid_t supervisor, int timeout_ms)
{
    _cleanup_(closep) int proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    _cleanup_(procs_done) struct procs ps = { 0 };
    int64_t end = time_mono_ns() + timeout_ms * NSEC_PER_MSEC;
    struct timespec pause = { .tv_nsec = 200000 };
    int n;

    if (proc_fd < 0)
        return -1;
    /* The common small tree: killed in one pass, looked at once more. */
    n = pass(proc_fd, &ps, supervisor, SIGKILL);
    for (int i = 0; n > 0 && i < 3; i++) {
        (void)nanosleep(&pause, NULL);
        n = pass(proc_fd, &ps, supervisor, SIGKILL);
    }
    while (n > 0 && time_mono_ns() < end) {
        for (int i = 0; i < 50 && pass(proc_fd, &ps, supervisor, SIGSTOP) > 0; i++) {
        }
        n = pass(proc_fd, &ps, supervisor, SIGKILL);
        (void)nanosleep(&pause, NULL);
    }
    return n;
}
