/* supervisor.c - see supervisor.h. Runs in its own process, forked from PID 1, single-threaded.
 *
 * The command itself is made by vfork: the child borrows this process's memory until exec, so it
 * reports a failure by writing to it, and does only system calls.
 */
#include "guest/init/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macro.h"
#include "base/packet.h"
#include "e2b/guest_abi.h"

#define OOM_RAISE 100 /* user code goes before the guest */
#define OOM_MAX 1000

static char command_oom[24] = "0"; /* oom_score_adj of commands */

struct start {
    int sock;
    const struct init_spawn *req;
    const char *tag;
    const char *cwd;
    char **argv;
    char **envp;
    const char *path; /* PATH of envp */
    int stdio[3];
    int held[2];
    size_t n_held;
    volatile int step; /* written by the vfork child */
    volatile int error;
};

static _Noreturn void fail(const struct start *st, int step, int error)
{
    struct init_event ev = { .kind = INIT_FAILED };

    ev.seq = st->req->seq;
    ev.step = step;
    ev.error = error;
    (void)packet_send(st->sock, &ev, sizeof(ev), NULL, 0, 0);
    _exit(1);
}

/* Sorts the descriptors and closes every other one. */
static void take_fds(struct start *st, const int *fds, size_t n_fds, int *ret_memfd)
{
    bool is_pty = st->req->flags & INIT_PTY;
    size_t n_stdio = is_pty ? 1 : 3, i = 0;

    st->n_held = is_pty ? 1 : 2;
    *ret_memfd = -EBADF;
    if (n_fds != n_stdio + st->n_held + (st->req->flags & INIT_MEMFD ? 1 : 0))
        fail(st, INIT_STEP_PREPARE, EPROTO);
    for (; i < n_stdio; i++)
        st->stdio[i] = fds[i];
    for (; i < n_stdio + st->n_held; i++)
        st->held[i - n_stdio] = fds[i];
    if (i < n_fds)
        *ret_memfd = fds[i];
    for (size_t k = n_stdio; k < 3; k++)
        st->stdio[k] = st->stdio[0];
    for (int fd = GUEST_FD_ENVD; fd <= INIT_FD_KEPT; fd++) {
        if (fd != st->sock)
            (void)close(fd);
    }
}

static char *string_next(char **at, char *end)
{
    char *s = *at, *nul = memchr(s, '\0', (size_t)(end - s));

    if (!nul)
        return NULL;
    *at = nul + 1;
    return s;
}

static char **strings_take(char **at, char *end, uint32_t n)
{
    char **list = NULL;

    if (n > (uint32_t)(end - *at) || !(list = calloc((size_t)n + 1, sizeof(*list))))
        return NULL;
    for (uint32_t i = 0; i < n; i++) {
        list[i] = string_next(at, end);
        if (!list[i])
            return NULL;
    }
    return list;
}

static void take_strings(struct start *st, const char *inlined, int memfd)
{
    size_t size = st->req->strings_size;
    char *at = NULL, *end;

    if (size == 0 || size > INIT_STRINGS_MAX)
        fail(st, INIT_STEP_PREPARE, EPROTO);
    if (memfd >= 0) {
        at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, memfd, 0);
        if (at == MAP_FAILED)
            fail(st, INIT_STEP_PREPARE, errno);
        (void)close(memfd);
    } else {
        memcpy(&at, &inlined, sizeof(at)); /* argv is char *: execve does not write to it */
    }
    end = at + size;
    st->tag = string_next(&at, end);
    st->cwd = st->tag ? string_next(&at, end) : NULL;
    st->argv = st->cwd ? strings_take(&at, end, st->req->argc) : NULL;
    st->envp = st->argv ? strings_take(&at, end, st->req->envc) : NULL;
    if (!st->envp || st->req->argc == 0)
        fail(st, INIT_STEP_PREPARE, EPROTO);
    st->path = GUEST_PATH;
    for (char **e = st->envp; *e; e++) {
        if (strncmp(*e, "PATH=", 5) == 0)
            st->path = *e + 5;
    }
}

/* oom_score_adj can only be raised here: this process's own value + OOM_RAISE. */
void supervisor_prepare(void)
{
    char own[16] = "0";
    int fd = open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, own, sizeof(own) - 1) : 0;
    long value = 0;
    bool is_negative = own[0] == '-';

    if (fd >= 0)
        (void)close(fd);
    for (ssize_t i = is_negative; i < n && own[i] >= '0' && own[i] <= '9'; i++)
        value = value * 10 + (own[i] - '0');
    value = (is_negative ? -value : value) + OOM_RAISE;
    (void)snprintf(command_oom, sizeof(command_oom), "%ld", MIN(value, (long)OOM_MAX));
}

/* --- in the vfork child: system calls only ---------------------------------------------------- */

static _Noreturn void child_fail(struct start *st, int step)
{
    st->error = errno;
    st->step = step;
    _exit(127);
}

static void child_stdio(struct start *st)
{
    if (setsid() < 0)
        child_fail(st, INIT_STEP_PREPARE);
    for (int i = 0; i < 3; i++) {
        if (dup2(st->stdio[i], i) < 0)
            child_fail(st, INIT_STEP_PREPARE);
    }
    if ((st->req->flags & INIT_PTY) && ioctl(0, TIOCSCTTY, 0) < 0)
        child_fail(st, INIT_STEP_PREPARE);
    if (syscall(SYS_close_range, 3, ~0U, 0) < 0)
        child_fail(st, INIT_STEP_PREPARE);
}

static void child_priorities(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    /* Best effort both: a sandbox without /proc, or without the right to lower a nice value. */
    if (fd >= 0) {
        (void)!write(fd, command_oom, strlen(command_oom));
        (void)close(fd);
    }
    (void)setpriority(PRIO_PROCESS, 0, 0);
}

static void child_user(struct start *st)
{
    const struct init_spawn *req = st->req;

    /* The raw calls: glibc's set*id would want to tell other threads, of which there are none. */
    if (syscall(SYS_setgroups, (long)req->n_groups, req->groups) < 0 ||
        syscall(SYS_setresgid, (long)req->gid, (long)req->gid, (long)req->gid) < 0 ||
        syscall(SYS_setresuid, (long)req->uid, (long)req->uid, (long)req->uid) < 0)
        child_fail(st, INIT_STEP_USER);
}

/* PID 1 has every signal at its default but SIGCHLD, which exec resets. */
static void child_signals(void)
{
    struct sigaction dfl = { .sa_handler = SIG_DFL }, ignore = { .sa_handler = SIG_IGN };
    sigset_t none;

    /* One of these may be pending since before setsid: ignoring drops it. */
    (void)sigaction(SIGUSR1, &ignore, NULL);
    (void)sigaction(SIGUSR1, &dfl, NULL);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* execvpe without its fallback to a shell: an ENOEXEC is told. */
static void child_exec(struct start *st)
{
    const char *file = st->argv[0], *dir = st->path;
    size_t file_len = strlen(file);
    int error = ENOENT;
    char full[PATH_MAX];

    if (strchr(file, '/')) {
        (void)execve(file, st->argv, st->envp);
        return;
    }
    while (file_len > 0) {
        size_t dir_len = strcspn(dir, ":");
        if (dir_len + 1 + file_len + 1 <= sizeof(full)) {
            memcpy(full, dir, dir_len);
            full[dir_len] = '/';
            memcpy(full + dir_len + (dir_len > 0), file, file_len + 1);
            (void)execve(full, st->argv, st->envp);
            if (errno == EACCES)
                error = EACCES; /* remembered: a later folder may have it */
            else if (errno != ENOENT && errno != ENOTDIR)
                return;
        }
        if (dir[dir_len] == '\0')
            break;
        dir += dir_len + 1;
    }
    errno = error;
}

static _Noreturn void child_run(struct start *st)
{
    child_stdio(st);
    child_priorities();
    child_user(st);
    (void)umask(022);
    if (chdir(st->cwd) < 0)
        child_fail(st, INIT_STEP_CWD);
    child_signals();
    child_exec(st);
    child_fail(st, INIT_STEP_EXEC);
}

/* --- the supervisor itself --------------------------------------------------------------------- */

static void report(const struct start *st, uint32_t kind, pid_t pid)
{
    struct init_event ev = { .kind = kind };
    int fds[3] = { (int)syscall(SYS_pidfd_open, pid, 0), st->held[0], st->held[1] };

    ev.seq = st->req->seq;
    ev.flags = st->req->flags & INIT_PTY;
    ev.pid = pid;
    ev.supervisor = getpid();
    memcpy(ev.tag, st->tag, strnlen(st->tag, sizeof(ev.tag) - 1));
    if (fds[0] < 0) {
        int error = errno;
        (void)kill(pid, SIGKILL); /* unreaped, so the number is still its own */
        fail(st, INIT_STEP_PREPARE, error);
    }
    (void)packet_send(st->sock, &ev, sizeof(ev), fds, kind == INIT_RUNNING ? 1 + st->n_held : 1, 0);
    (void)close(fds[0]);
}

static void report_idle(const struct start *st)
{
    struct init_event ev = { .kind = INIT_IDLE };

    ev.supervisor = getpid();
    (void)packet_send(st->sock, &ev, sizeof(ev), NULL, 0, 0);
}

static void ended(struct start *st, pid_t pid, int status)
{
    struct init_event ev = { .kind = INIT_EXITED };

    ev.pid = pid;
    ev.status = status;
    ev.supervisor = getpid();
    (void)packet_send(st->sock, &ev, sizeof(ev), NULL, 0, 0);
    /* What it left running must see a broken pipe once the daemon stops reading. */
    for (size_t i = 0; i < st->n_held; i++)
        (void)close(st->held[i]);
}

static _Noreturn void watch(struct start *st, pid_t command)
{
    sigset_t set;
    int status, sig;
    pid_t pid;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigaddset(&set, SIGUSR1);
    for (;;) {
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
            if (pid != command)
                continue;
            ended(st, pid, status);
            command = -1;
        }
        if (pid < 0 && errno == ECHILD)
            _exit(0);
        sig = sigwaitinfo(&set, NULL);
        if (sig != SIGUSR1)
            continue;
        if (command > 0)
            report(st, INIT_RUNNING, command);
        else
            report_idle(st);
    }
}

_Noreturn void supervisor_run(int sock, const struct init_spawn *req, const char *strings,
                              const int *fds, size_t n_fds)
{
    static struct start st;
    int memfd;
    pid_t pid;

    st.sock = sock;
    st.req = req;
    take_fds(&st, fds, n_fds, &memfd);
    if (req->n_groups > INIT_GROUPS_MAX)
        fail(&st, INIT_STEP_PREPARE, EPROTO);
    take_strings(&st, strings, memfd);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
        fail(&st, INIT_STEP_PREPARE, errno);
    (void)prctl(PR_SET_NAME, "abx-supervisor", 0, 0, 0);
    pid = vfork();
    if (pid == 0)
        child_run(&st);
    if (pid < 0)
        fail(&st, INIT_STEP_FORK, errno);
    if (st.error) {
        (void)waitpid(pid, NULL, 0);
        fail(&st, st.step, st.error);
    }
    for (size_t i = 0; i < (req->flags & INIT_PTY ? 1 : 3); i++)
        (void)close(st.stdio[i]);
    report(&st, INIT_SPAWNED, pid);
    watch(&st, pid);
}
