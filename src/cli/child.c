/* child.c - see child.h. The child is PID 1 of its namespace, so one SIGKILL ends all of it. */
#include "cli/child.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/sched.h>

#include "base/fd.h"

#define LINE_MAX_BYTES 4096

#if defined(__x86_64__)
#define NATIVE_AUDIT_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_AUDIT_ARCH AUDIT_ARCH_AARCH64
#else
#error "no audit architecture known"
#endif

static void interrupt_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
}

int interrupt_init(struct interrupt *in, struct abx_err *err)
{
    sigset_t set;

    interrupt_set(&set);
    *in = (struct interrupt){ .fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK) };
    if (in->fd < 0)
        return err_sys(err, errno, "signalfd");
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    return 0;
}

void interrupt_done(struct interrupt *in)
{
    sigset_t set;

    if (in->fd < 0)
        return;
    interrupt_set(&set);
    fd_close(in->fd);
    in->fd = -EBADF;
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static bool program_find(const char *name, char *to, size_t size)
{
    static const char *const dirs[] = { "/usr/sbin", "/usr/bin", "/sbin", "/bin" };

    if (name[0] == '/')
        return (size_t)snprintf(to, size, "%s", name) < size && access(to, X_OK) == 0;
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        if ((size_t)snprintf(to, size, "%s/%s", dirs[i], name) < size && access(to, X_OK) == 0)
            return true;
    }
    return false;
}

/* A filter under which every kind of sync succeeds without doing anything; inherited by all below. */
static int sync_skip(void)
{
#define SKIP(nr)                                                                                   \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, 1),                                               \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 0)
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_AUDIT_ARCH, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        SKIP(SYS_fsync),
        SKIP(SYS_fdatasync),
        SKIP(SYS_sync),
        SKIP(SYS_syncfs),
        SKIP(SYS_sync_file_range),
        SKIP(SYS_msync),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
#undef SKIP
    struct sock_fprog prog = { ARRAY_SIZE(code), code };

    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

/* In the child, between clone and exec. */
static _Noreturn void child_exec(const char *path, const struct child_opts *opts, int output)
{
    sigset_t none;

    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        _exit(126);

    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0)
        _exit(126);
    if (opts->is_sync_skipped && sync_skip() < 0)
        _exit(126);
    execve(path, (char *const *)(uintptr_t)opts->argv, (char *const *)(uintptr_t)opts->env);
    _exit(127);
}

static pid_t child_clone(int *ret_pidfd)
{
    int pidfd = -EBADF;
    struct clone_args args = {
        .flags = CLONE_PIDFD | CLONE_NEWPID | CLONE_NEWNS,
        .pidfd = (uint64_t)(uintptr_t)&pidfd,
        .exit_signal = SIGCHLD,
    };
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);

    if (pid > 0)
        *ret_pidfd = pidfd;
    return pid;
}

struct reader {
    const struct child_opts *opts;
    char line[LINE_MAX_BYTES];
    size_t n;
};

static void reader_flush(struct reader *rd)
{
    rd->line[rd->n] = '\0';
    if (rd->n > 0 && rd->opts->on_line)
        rd->opts->on_line(rd->opts->user, rd->line);
    rd->n = 0;
}

/* Takes what is in the pipe. False at its end. */
static bool reader_take(struct reader *rd, int fd)
{
    char chunk[4096];
    ssize_t n = read(fd, chunk, sizeof chunk);

    if (n < 0)
        return errno == EINTR || errno == EAGAIN;
    if (rd->opts->log_fd >= 0)
        (void)fd_write_all(rd->opts->log_fd, chunk, (size_t)n); /* the log is only for people */
    for (ssize_t i = 0; i < n; i++) {
        if (chunk[i] == '\n' || rd->n == sizeof rd->line - 1)
            reader_flush(rd);
        if (chunk[i] != '\n')
            rd->line[rd->n++] = chunk[i];
    }
    return n > 0;
}

/* Reads output until the child has ended or a signal asks to stop it. */
static void child_watch(const struct child_opts *opts, int pidfd, int output, struct interrupt *in)
{
    struct reader rd = { .opts = opts };
    struct pollfd fds[] = {
        { .fd = pidfd, .events = POLLIN },
        { .fd = output, .events = POLLIN },
        { .fd = in->fd, .events = POLLIN },
    };

    for (;;) {
        if (poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno != EINTR)
            break;
        if (fds[2].revents) {
            struct signalfd_siginfo info;
            in->is_set = read(in->fd, &info, sizeof info) > 0 || in->is_set;
            break;
        }
        if (fds[1].revents && !reader_take(&rd, output))
            fds[1].fd = -1;
        else if (!fds[1].revents && fds[0].revents)
            break;
        if (fds[1].fd < 0 && fds[0].revents)
            break;
    }
    reader_flush(&rd);
}

static int child_result(const char *name, const siginfo_t *info, const struct interrupt *in,
                        struct abx_err *err)
{
    if (in->is_set)
        return err_set(err, ABX_CANCELED, "interrupted");
    if (info->si_code != CLD_EXITED)
        return err_set(err, ABX_UNKNOWN, "%s was ended by signal %d", name, info->si_status);
    if (info->si_status != 0)
        return err_set(err, ABX_UNKNOWN, "%s failed (exit status %d)", name, info->si_status);
    return 0;
}

int child_run(const struct child_opts *opts, struct interrupt *in, struct abx_err *err)
{
    _cleanup_(closep) int readable = -EBADF;
    _cleanup_(closep) int writable = -EBADF;
    _cleanup_(closep) int pidfd = -EBADF;
    char path[256];
    int fds[2];

    if (in->is_set)
        return err_set(err, ABX_CANCELED, "interrupted");
    if (!program_find(opts->argv[0], path, sizeof path))
        return err_set(err, ABX_NOT_FOUND, "no program '%s'", opts->argv[0]);
    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(err, errno, "pipe");
    readable = fds[0];
    writable = fds[1];

    pid_t pid = child_clone(&pidfd);
    if (pid < 0)
        return err_sys(err, errno, "start '%s' in namespaces of its own", opts->argv[0]);
    if (pid == 0)
        child_exec(path, opts, writable);
    closep(&writable);
    writable = -EBADF;

    child_watch(opts, pidfd, readable, in);
    siginfo_t info = { 0 };
    (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0); /* no effect once it has ended */
    while (waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED) < 0) {
        if (errno != EINTR)
            return err_sys(err, errno, "wait for '%s'", opts->argv[0]);
    }
    return child_result(opts->argv[0], &info, in, err);
}
