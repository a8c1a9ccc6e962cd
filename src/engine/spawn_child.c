/* spawn_child.c - the steps from clone to exec. See spawn_child.h.
 *
 * Order matters: the root before the uid maps are there (the spawner writes them meanwhile), what
 * both processes share before the daemon is forked, the daemon before the filter (which has no
 * clone3) and before the cgroup namespace (a namespace root may hide the daemon's group), the filter
 * while CAP_SYS_ADMIN is still there.
 */
#include "engine/spawn_child.h"

#include <grp.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/fd.h"
#include "e2b/guest_abi.h"
#include "engine/caps.h"
#include "engine/mountapi.h"

#define FD_FIRST 3                         /* GUEST_FD_ENVD */
#define FD_END (FD_FIRST + GUEST_FD_COUNT) /* everything from here on closes on exec */

static _Noreturn void fail(const struct child *c, const char *step)
{
    struct child_failure f = { .sys = errno };
    size_t i = 0;

    for (const char *p = c->is_daemon ? "daemon: " : ""; *p && i < sizeof f.step - 1; p++)
        f.step[i++] = *p;
    for (; *step && i < sizeof f.step - 1; step++)
        f.step[i++] = *step;
    (void)!write(c->fail_fd, &f, sizeof f);
    _exit(127);
}

/* Waits for one word of the spawner; when that is gone there is nobody to report to. */
static int await(const struct child *c, char word)
{
    char got = 0;
    ssize_t n;

    do {
        n = recv(c->sync_fd, &got, 1, 0);
    } while (n < 0 && errno == EINTR);
    if (n == 0)
        _exit(126);
    if (n < 0)
        return -1;
    if (got != word) {
        errno = EPROTO;
        return -1;
    }
    return 0;
}

/* The operator's terminal stays behind; ignored signals would survive exec. */
static int do_session(struct child *c)
{
    struct sigaction dfl = { .sa_handler = SIG_DFL };
    sigset_t none;

    (void)close(c->parent_fd);
    if (setsid() < 0)
        return -1;
    for (int sig = 1; sig < SIGSYS + 1; sig++)
        if (sig != SIGKILL && sig != SIGSTOP && sigaction(sig, &dfl, NULL) < 0)
            return -1;
    (void)sigemptyset(&none);
    return sigprocmask(SIG_SETMASK, &none, NULL);
}

static int do_root(struct child *c)
{
    return rootfs_child_attach(c->rootfs);
}

static int do_proc(struct child *c)
{
    return rootfs_child_proc(c->rootfs);
}

static int do_pivot(struct child *c)
{
    return rootfs_child_pivot();
}

static int do_maps(struct child *c)
{
    return await(c, 'm');
}

static int do_identity(struct child *c)
{
    if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, 0, 0, 0) < 0)
        return -1;
    return (int)syscall(SYS_setresuid, 0, 0, 0);
}

static int do_terminals(struct child *c)
{
    return rootfs_child_devpts();
}

static int do_host_name(struct child *c)
{
    static const char none[] = "(none)"; /* not the host's domain */

    if (setdomainname(none, sizeof none - 1) < 0)
        return -1;
    return sethostname(c->spec->hostname, strlen(c->spec->hostname));
}

static int do_limits(struct child *c)
{
    const struct rlimit core = { 1, 1 }, none = { 0, 0 };

    (void)umask(022);
    if (setrlimit(RLIMIT_CORE, &core) < 0)
        return -1;
    /* No part of the operator's own right to come before everybody else. */
    if (setrlimit(RLIMIT_RTPRIO, &none) < 0 || setrlimit(RLIMIT_NICE, &none) < 0)
        return -1;
    return setrlimit(RLIMIT_NOFILE, &c->nofile);
}

static int do_privileges(struct child *c)
{
    return caps_limit_bounding(CAPS_SANDBOX);
}

static int do_channel(struct child *c)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    c->init_fd = pair[0];
    c->daemon_fd = pair[1];
    return 0;
}

static int join_groups(const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (write(fds[i], "0", 1) != 1)
            return -1;
    return 0;
}

/* The own groups, and a cgroup namespace that begins there. */
static int do_groups(struct child *c)
{
    const struct spawn_spec *s = c->spec;
    int r = c->is_daemon ? join_groups(s->join_guest_fds, s->n_join_guest)
                         : join_groups(s->join_user_fds, s->n_join_user);

    return r < 0 ? -1 : unshare(CLONE_NEWCGROUP);
}

static int do_filter(struct child *c)
{
    if (seccomp_program_load(c->filter) < 0)
        return -1;
    return caps_set(CAPS_SANDBOX);
}

/* Moves every fd that is kept out of the way first: their numbers may be each other's targets. */
static int do_fds(struct child *c)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    const int wanted[GUEST_FD_COUNT] = { c->spec->envd_fd, c->spec->control_fd, c->init_fd,
                                         c->daemon_fd, c->self_fd };
    int high[GUEST_FD_COUNT];
    int *own[] = { &c->sync_fd, &c->fail_fd };

    if (null < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
        *own[i] = fcntl(*own[i], F_DUPFD_CLOEXEC, FD_END);
        if (*own[i] < 0)
            return -1;
    }
    for (int i = 0; i < GUEST_FD_COUNT; i++) {
        high[i] = fcntl(wanted[i], F_DUPFD_CLOEXEC, FD_END);
        if (high[i] < 0)
            return -1;
    }
    for (int i = 0; i < 3; i++)
        if (dup2(null, i) < 0)
            return -1;
    for (int i = 0; i < GUEST_FD_COUNT; i++)
        if (dup2(high[i], FD_FIRST + i) < 0)
            return -1;
    if (syscall(SYS_close_range, FD_END, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
        return -1;
    if (!c->is_daemon)
        return 0;
    /* The daemon must not hold PID 1's end, or it would never see PID 1 close it. */
    return fd_set_cloexec(GUEST_FD_INIT, true) < 0 ? -1 : fd_set_cloexec(GUEST_FD_SELF, true);
}

static int do_go(struct child *c)
{
    return await(c, 'g');
}

static int do_exec(struct child *c)
{
    static char init_name[] = "init", daemon_name[] = "daemon", image[] = "abx-guest";
    static char path[] = "PATH=" GUEST_PATH;
    char *const argv[] = { image, c->is_daemon ? daemon_name : init_name, NULL };
    char *const envp[] = { path, NULL };

    return (int)syscall(SYS_execveat, GUEST_FD_SELF, "", argv, envp, AT_EMPTY_PATH);
}

static int do_daemon(struct child *c);

static const struct {
    const char *name;
    int (*run)(struct child *c);
} steps[STEP_COUNT_] = {
    [STEP_SESSION] = { "new session", do_session },
    [STEP_ROOT] = { "mounts of the root", do_root },
    [STEP_PROC] = { "mounts of /proc", do_proc },
    [STEP_PIVOT] = { "change of root", do_pivot },
    [STEP_MAPS] = { "wait for uid maps", do_maps },
    [STEP_IDENTITY] = { "change of identity", do_identity },
    [STEP_TERMINALS] = { "mount of /dev/pts", do_terminals },
    [STEP_HOST_NAME] = { "host name", do_host_name },
    [STEP_LIMITS] = { "resource limits", do_limits },
    [STEP_PRIVILEGES] = { "bounding set", do_privileges },
    [STEP_CHANNEL] = { "channel to the daemon", do_channel },
    [STEP_DAEMON] = { "start of the daemon", do_daemon },
    [STEP_GROUPS] = { "control groups", do_groups },
    [STEP_FILTER] = { "system call filter", do_filter },
    [STEP_FDS] = { "descriptors", do_fds },
    [STEP_GO] = { "wait for go", do_go },
    [STEP_EXEC] = { "exec", do_exec },
};

static _Noreturn void run_from(struct child *c, enum child_step first)
{
    for (enum child_step i = first; i < STEP_COUNT_; i++) {
        struct timespec now;

        if (steps[i].run(c) < 0)
            fail(c, steps[i].name);
        if (c->is_daemon)
            continue;
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        c->clock->done_ns[i] = now.tv_sec * NSEC_PER_SEC + now.tv_nsec;
    }
    _exit(125); /* exec does not return without failing */
}

/* Forks the daemon into its group. Its first word tells the spawner its pid on the host: the kernel
 * adds it, as the spawner asked for credentials. */
static int do_daemon(struct child *c)
{
    struct clone_args args = { .exit_signal = SIGCHLD };
    long pid;

    if (c->spec->cgroup_guest_fd >= 0) {
        args.flags = CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)c->spec->cgroup_guest_fd;
    }
    pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid != 0)
        return pid < 0 ? -1 : 0;
    c->is_daemon = true;
    if (send(c->sync_fd, "d", 1, MSG_NOSIGNAL) != 1)
        fail(c, "announcement");
    run_from(c, STEP_DAEMON + 1);
}

void child_run(struct child *c)
{
    run_from(c, STEP_SESSION);
}
