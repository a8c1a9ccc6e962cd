/* supervisor_role.c - see supervisor_role.h. */
#include "cli/supervisor_role.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/supervisor_watch.h"

#define ARGS_MAX_BYTES (64u << 10)
#define BACKOFF_FIRST_NS (50 * NSEC_PER_MSEC)
#define BACKOFF_LAST_NS (5 * NSEC_PER_SEC)
#define FAILURE_SIZE sizeof(((struct abx_err *)NULL)->msg)
#define STABLE_NS (1 * NSEC_PER_SEC)

extern char **environ;

/* The size is fixed: the program cannot make it grow. */
static int failure_open(struct role *role, struct abx_err *err)
{
    role->failure_fd = memfd_create("abx-failure", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (role->failure_fd < 0 || ftruncate(role->failure_fd, FAILURE_SIZE) < 0 ||
        fcntl(role->failure_fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
        return err_sys(err, errno, "message of %s", role->name);
    role->fds[role->n_fds++] = role->failure_fd;
    return 0;
}

/* Empties it and tells the next child of it. */
static int failure_reset(const struct role *role, struct abx_err *err)
{
    static const char zeros[FAILURE_SIZE];
    char number[16];

    (void)snprintf(number, sizeof number, "%d", role->failure_fd);
    if (pwrite(role->failure_fd, zeros, sizeof zeros, 0) != (ssize_t)sizeof zeros ||
        lseek(role->failure_fd, 0, SEEK_SET) < 0 || setenv("ABX_LOG_FAILURE_FD", number, 1) < 0)
        return err_sys(err, errno, "message of %s", role->name);
    return 0;
}

void role_failure(const struct role *role, char *to, size_t size)
{
    ssize_t n = pread(role->failure_fd, to, size - 1, 0);

    to[MAX(n, 0)] = '\0';
}

int role_init(struct role *role, const char *program, struct abx_err *err)
{
    int r;

    *role = (struct role){ .name = program, .backoff_ns = BACKOFF_FIRST_NS, .failure_fd = -EBADF };
    buf_init(&role->args, ARGS_MAX_BYTES);
    r = cli_libexec(program, role->path, sizeof role->path, err);
    if (r == 0 && buf_append(&role->args, program, strlen(program) + 1) != BUF_OK)
        r = err_oom(err);
    if (r == 0)
        r = failure_open(role, err);
    return r < 0 ? r : watch_add(role, NULL, "--heartbeat-fd", false, err);
}

void role_done(struct role *role)
{
    watch_done(role);
    fd_close(TAKE_FD(role->failure_fd));
    buf_done(&role->args);
}

void role_arg(struct role *role, const char *option, const char *fmt, ...)
{
    char value[8192];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(value, sizeof value, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof value ||
        buf_append(&role->args, option, strlen(option) + 1) != BUF_OK ||
        buf_append(&role->args, value, (size_t)n + 1) != BUF_OK)
        role->is_bad = true;
}

void role_flag(struct role *role, const char *option)
{
    if (buf_append(&role->args, option, strlen(option) + 1) != BUF_OK)
        role->is_bad = true;
}

void role_arg_fd(struct role *role, const char *option, int fd)
{
    if (role->n_fds == ROLE_FDS_MAX)
        role->is_bad = true;
    else
        role->fds[role->n_fds++] = fd;
    role_arg(role, option, "%d", fd);
}

int role_finish(struct role *role, struct abx_err *err)
{
    char *p = (char *)buf_data(&role->args);
    char *end = p + role->args.len;
    size_t n = 0;

    for (; p < end && n < ROLE_ARGS_MAX; p += strlen(p) + 1)
        role->argv[n++] = p;
    if (p < end || role->is_bad)
        return err_set(err, ABX_INVALID_ARGUMENT, "too many or too long arguments for %s",
                       role->name);
    role->argv[n] = NULL;
    return 0;
}

/* Between fork and exec: only async-signal-safe calls. */
_Noreturn static void child_exec(const struct role *role, int null_fd, pid_t parent)
{
    const struct sigaction ignore = { .sa_handler = SIG_IGN };
    sigset_t blocked;

    (void)sigemptyset(&blocked);
    if (role->unblocks_signals) {
        (void)sigaddset(&blocked, SIGTERM);
        (void)sigaddset(&blocked, SIGINT);
    }
    (void)sigprocmask(SIG_SETMASK, &blocked, NULL);
    if (role->ignores_hangup)
        (void)sigaction(SIGHUP, &ignore, NULL);
    (void)setpgid(0, 0); /* Ctrl-C reaches the supervisor alone */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent) /* died before that */
        _exit(126);
    if (dup2(null_fd, STDIN_FILENO) < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        _exit(126);
    for (size_t i = 0; i < role->n_fds; i++)
        if (fd_set_cloexec(role->fds[i], false) < 0)
            _exit(126);
    (void)execve(role->path, role->argv, environ);
    _exit(127);
}

int role_start(struct role *role, struct abx_err *err)
{
    _cleanup_(closep) int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    pid_t pid, parent = getpid();

    role->restart_at_ns = time_mono_ns() + role->backoff_ns;
    watch_reset(role);
    if (null_fd < 0)
        return err_sys(err, errno, "open '/dev/null'");
    if (failure_reset(role, err) < 0)
        return err ? err->code : ABX_INTERNAL;
    pid = fork();
    if (pid < 0)
        return err_sys(err, errno, "start %s", role->name);
    if (pid == 0)
        child_exec(role, null_fd, parent);
    role->pid = pid;
    role->started_ns = time_mono_ns();
    return 0;
}

void role_ended(struct role *role, int status)
{
    int64_t now = time_mono_ns();

    role->pid = 0;
    role->status = status;
    if (now - role->started_ns >= STABLE_NS)
        role->backoff_ns = BACKOFF_FIRST_NS;
    role->restart_at_ns = now + role->backoff_ns;
    role->backoff_ns = MIN(role->backoff_ns * 2, BACKOFF_LAST_NS);
}
