/* spawn.c - the spawner and its side of starting a sandbox. See spawn.h, spawn_child.h. */
#include "engine/spawn.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/keyctl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "engine/caps.h"
#include "engine/netns.h"
#include "engine/rootfs.h"
#include "engine/seccomp.h"
#include "engine/spawn_child.h"
#include "engine/spawn_image.h"

#define SPAWN_DEADLINE_NS (5 * NSEC_PER_SEC)
#define NOFILE_SOFT 65536
#define NOFILE_HARD 524288
#define HOSTNAME_MAX 63

struct spawner {
    enum mount_path path;
    struct spawn_image image;
    struct seccomp_program filter;
    struct child_clock *clock;
    struct rlimit nofile;
};

static int64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NSEC_PER_SEC + now.tv_nsec;
}

/* ---- the spawner ---- */

static int choose_path(enum mount_path wanted, enum mount_path *ret, struct abx_err *err)
{
    enum mount_path found;
    int r = rootfs_probe(&found, err);

    if (r < 0)
        return r;
    if (wanted == MOUNT_BY_FD && found != MOUNT_BY_FD)
        return err_set(err, ABX_UNIMPLEMENTED, "this kernel does not take overlay layers by fd");
    *ret = wanted == MOUNT_AUTO ? found : wanted;
    return 0;
}

static int find_limits(struct rlimit *ret, struct abx_err *err)
{
    struct rlimit own;

    if (getrlimit(RLIMIT_NOFILE, &own) < 0)
        return err_sys(err, errno, "limit of open files");
    ret->rlim_max = MIN(own.rlim_max, (rlim_t)NOFILE_HARD);
    ret->rlim_cur = MIN(ret->rlim_max, (rlim_t)NOFILE_SOFT);
    return 0;
}

/* Sandboxes inherit the session keyring: an empty one instead of the operator's. A kernel without
 * keys has none to inherit. */
static int leave_keyring(struct abx_err *err)
{
    if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS)
        return err_sys(err, errno, "new session keyring");
    return 0;
}

int spawner_new(const struct spawner_opts *opts, struct spawner **ret, struct abx_err *err)
{
    _cleanup_(spawner_freep) struct spawner *s = calloc(1, sizeof *s);
    void *clock;
    int r;

    if (!s)
        return err_oom(err);
    clock = mmap(NULL, sizeof *s->clock, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (clock == MAP_FAILED)
        return err_sys(err, errno, "shared page");
    s->clock = clock;
    s->image.fd = -EBADF;
    r = rootfs_prune(opts->keep_paths, err);
    if (r < 0)
        return err_wrap(err, r, "the spawner's mounts");
    r = choose_path(opts->mount_path, &s->path, err);
    if (r == 0)
        r = seccomp_program_build(&s->filter, err);
    if (r == 0)
        r = find_limits(&s->nofile, err);
    if (r == 0)
        r = leave_keyring(err);
    if (r == 0 && caps_keep_over_setuid() < 0)
        r = err_sys(err, errno, "securebits");
    if (r < 0)
        return r;
    *ret = TAKE_PTR(s);
    return 0;
}

void spawner_free(struct spawner *s)
{
    if (!s)
        return;
    if (s->clock)
        (void)munmap(s->clock, sizeof *s->clock);
    seccomp_program_done(&s->filter);
    spawn_image_done(&s->image);
    free(s);
}

enum mount_path spawner_mount_path(const struct spawner *s)
{
    return s->path;
}

/* ---- one sandbox ---- */

struct attempt {
    struct spawner *s;
    const struct spawn_spec *spec;
    struct rootfs rootfs;
    struct child child;
    int sync_fd; /* our end */
    int fail_fd; /* the pipe's reading end */
    int pidfd;
    pid_t pid, daemon_pid;
    int64_t deadline;
    int64_t began, layers, mounted, cloned, mapped, announced, went;
};

static void attempt_done(struct attempt *a)
{
    rootfs_done(&a->rootfs);
    fd_close(a->child.sync_fd);
    fd_close(a->child.fail_fd);
    fd_close(a->sync_fd);
    fd_close(a->fail_fd);
    fd_close(a->pidfd);
}

static int spec_check(const struct spawn_spec *spec, struct abx_err *err)
{
    size_t n = strlen(spec->hostname);

    if (spec->n_layers == 0 || spec->n_layers > SPAWN_LAYERS_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "%zu layers, not 1 to %d", spec->n_layers,
                       SPAWN_LAYERS_MAX);
    if (n == 0 || n > HOSTNAME_MAX ||
        strspn(spec->hostname, "abcdefghijklmnopqrstuvwxyz"
                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                               "0123456789.-") != n)
        return err_set(err, ABX_INVALID_ARGUMENT, "host name of %zu bytes", n);
    if (strlen(spec->boot_id) != 36)
        return err_set(err, ABX_INVALID_ARGUMENT, "boot id '%.40s'", spec->boot_id);
    return 0;
}

/* Our effective ids: what namespaces, and the objects counted in them, are charged to. Raw calls, for
 * this thread only; capabilities stay because of the securebits. */
static void become(uid_t id)
{
    if (syscall(SYS_setresgid, -1, id, -1) < 0 || syscall(SYS_setresuid, -1, id, -1) < 0)
        abort(); /* what follows would act as the wrong user */
}

static int make_channels(struct attempt *a, struct abx_err *err)
{
    int pair[2], fail_pipe[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, errno, "sync socket");
    a->sync_fd = pair[0];
    a->child.parent_fd = pair[0];
    a->child.sync_fd = pair[1];
    if (setsockopt(a->sync_fd, SOL_SOCKET, SO_PASSCRED, &(int){ 1 }, sizeof(int)) < 0)
        return err_sys(err, errno, "SO_PASSCRED");
    if (pipe2(fail_pipe, O_CLOEXEC) < 0)
        return err_sys(err, errno, "pipe");
    a->fail_fd = fail_pipe[0];
    a->child.fail_fd = fail_pipe[1];
    return 0;
}

/* Runs inside the sandbox's network namespace, which the child inherits. */
static int do_clone(void *user, struct abx_err *err)
{
    struct attempt *a = user;
    struct clone_args args = {
        .flags =
            CLONE_PIDFD | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC,
        .pidfd = (uint64_t)(uintptr_t)&a->pidfd,
        .exit_signal = SIGCHLD,
    };
    long pid;

    if (a->spec->cgroup_fd >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)a->spec->cgroup_fd;
    }
    pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0)
        child_run(&a->child);
    if (pid < 0)
        return err_sys(err, errno, "clone");
    a->pid = (pid_t)pid;
    return 0;
}

static int write_maps(struct attempt *a, struct abx_err *err)
{
    static const char *const maps[] = { "uid_map", "gid_map" };

    for (size_t i = 0; i < ARRAY_SIZE(maps); i++) {
        char path[64];
        int r;

        (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)a->pid, maps[i]);
        r = file_printf(AT_FDCWD, path, err, "0 %u 65536", (unsigned)a->spec->uid_base);
        if (r < 0)
            return r;
    }
    return 0;
}

static int say(struct attempt *a, char word, struct abx_err *err)
{
    if (send(a->sync_fd, &word, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
        return err_sys(err, errno, "word to the child");
    return 0;
}

/* Reads what the children report. 0 = they have all exec'd or died (end of file). */
static int read_failure(struct attempt *a, struct abx_err *err)
{
    struct child_failure f;
    ssize_t n = read(a->fail_fd, &f, sizeof f);

    if (n == 0)
        return 0;
    if (n != (ssize_t)sizeof f)
        return err_set(err, ABX_INTERNAL, "broken report of the child");
    f.step[sizeof f.step - 1] = '\0';
    return err_sys(err, f.sys, "in the sandbox, %s", f.step);
}

/* Waits until `fd` or the failure pipe has something. 1 = `fd` has, 0 = the pipe ended. */
static int wait_for(struct attempt *a, int fd, struct abx_err *err)
{
    for (;;) {
        struct pollfd fds[] = {
            { .fd = a->fail_fd, .events = POLLIN },
            { .fd = fd, .events = POLLIN },
        };
        int64_t left = a->deadline - now_ns();
        int n = poll(fds, ARRAY_SIZE(fds), left > 0 ? (int)(left / NSEC_PER_MSEC) : 0);

        if (n < 0 && errno != EINTR)
            return err_sys(err, errno, "poll");
        if (n == 0)
            return err_set(err, ABX_DEADLINE_EXCEEDED, "the sandbox did not start in 5 s");
        if (n > 0 && fds[0].revents)
            return read_failure(a, err);
        if (n > 0 && fds[1].revents)
            return 1;
    }
}

/* The daemon's first word, with its pid as the kernel translates it for us. */
static int await_daemon(struct attempt *a, struct abx_err *err)
{
    char word;
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct iovec iov = { &word, 1 };
    struct msghdr m = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof control,
    };
    struct cmsghdr *h;
    struct ucred who;
    int r = wait_for(a, a->sync_fd, err);

    if (r <= 0)
        return r < 0 ? r : err_set(err, ABX_INTERNAL, "the sandbox died while it was set up");
    if (recvmsg(a->sync_fd, &m, MSG_CMSG_CLOEXEC) != 1)
        return err_set(err, ABX_INTERNAL, "the sandbox died while it was set up");
    h = CMSG_FIRSTHDR(&m);
    if (!h || h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_CREDENTIALS)
        return err_set(err, ABX_INTERNAL, "no credentials with the daemon's word");
    memcpy(&who, CMSG_DATA(h), sizeof who);
    if (who.pid <= 0)
        return err_set(err, ABX_INTERNAL, "the daemon has no pid here");
    a->daemon_pid = who.pid;
    return 0;
}

/* End of the pipe: all have exec'd, or PID 1 was killed (by the memory limit, for one). */
static int await_exec(struct attempt *a, struct abx_err *err)
{
    struct pollfd gone = { .fd = a->pidfd, .events = POLLIN };
    int r = wait_for(a, -1, err);

    if (r < 0)
        return r;
    if (poll(&gone, 1, 0) != 0)
        return err_set(err, ABX_INTERNAL, "the sandbox ended at its start");
    return 0;
}

/* Everything in the new pid namespace ends with its PID 1. */
static void kill_attempt(struct attempt *a)
{
    siginfo_t si;

    if (a->pidfd < 0)
        return;
    (void)syscall(SYS_pidfd_send_signal, a->pidfd, SIGKILL, NULL, 0);
    while (waitid(P_PIDFD, (id_t)a->pidfd, &si, WEXITED) < 0 && errno == EINTR)
        ;
}

/* What is made and done as the sandbox's owner. */
static int start_as_owner(struct attempt *a, struct abx_err *err)
{
    int r;

    become(a->spec->uid_base);
    r = rootfs_mount(a->s->path, a->spec, &a->rootfs, &a->layers, err);
    a->mounted = now_ns();
    if (r == 0)
        r = FAULT_STEP("start.clone", err, netns_call(a->spec->netns_fd, do_clone, a, err));
    become(0);
    a->cloned = now_ns();
    return r;
}

/* A child that failed is seen first as a closed socket; its own report says more. */
static int explain(struct attempt *a, int r, struct abx_err *err)
{
    struct pollfd report = { .fd = a->fail_fd, .events = POLLIN };
    int said = 0;

    if (poll(&report, 1, 0) == 1 && (report.revents & POLLIN))
        said = read_failure(a, err);
    return said < 0 ? said : r;
}

static int drive(struct attempt *a, struct abx_err *err)
{
    int r = start_as_owner(a, err);

    if (r < 0)
        return r;
    /* From here on only the children hold their ends. */
    fd_close(TAKE_FD(a->child.sync_fd));
    fd_close(TAKE_FD(a->child.fail_fd));
    r = FAULT_STEP("start.maps", err, write_maps(a, err));
    if (r == 0)
        r = say(a, 'm', err);
    a->mapped = now_ns();
    if (r == 0)
        r = await_daemon(a, err);
    a->announced = now_ns();
    if (r == 0 && a->spec->before_go)
        r = a->spec->before_go(a->spec->user, a->pid, a->daemon_pid, a->pidfd, err);
    if (r == 0)
        r = say(a, 'g', err);
    if (r == 0)
        r = say(a, 'g', err);
    a->went = now_ns();
    return r < 0 ? r : FAULT_STEP("start.exec", err, await_exec(a, err));
}

/* The time line: the spawner's up to the clone, then PID 1's. */
static void fill_stages(const struct attempt *a, struct spawn_result *ret)
{
    const int64_t *step = a->s->clock->done_ns;
    const struct {
        const char *name;
        int64_t until;
    } line[] = {
        { "layers", a->layers },
        { "overlay", a->mounted },
        { "clone", a->cloned },
        { "root", step[STEP_ROOT] },
        { "proc", step[STEP_PROC] },
        { "pivot", step[STEP_PIVOT] },
        { "identity", step[STEP_PRIVILEGES] },
        { "daemon", step[STEP_DAEMON] },
        { "filter", step[STEP_FDS] },
        { "go", step[STEP_GO] },
        { "exec", now_ns() },
    };
    int64_t from = a->began;

    ret->n_stages = 0;
    for (size_t i = 0; i < ARRAY_SIZE(line) && ret->n_stages < SPAWN_STAGES_MAX; i++) {
        int64_t ns = MAX(line[i].until - from, INT64_C(0));

        ret->stages[ret->n_stages].name = line[i].name;
        ret->stages[ret->n_stages++].us = (uint32_t)(ns / 1000);
        from = MAX(line[i].until, from);
    }
}

int spawn_sandbox(struct spawner *s, const struct spawn_spec *spec, struct spawn_result *ret,
                  struct abx_err *err)
{
    _cleanup_(attempt_done) struct attempt a = {
        .s = s,
        .spec = spec,
        .rootfs = ROOTFS_INIT,
        .child = { .sync_fd = -EBADF, .fail_fd = -EBADF },
        .sync_fd = -EBADF,
        .fail_fd = -EBADF,
        .pidfd = -EBADF,
        .began = now_ns(),
    };
    int r = spec_check(spec, err);

    if (r == 0)
        r = spawn_image_load(&s->image, spec->guest_fd, err);
    if (r == 0)
        r = make_channels(&a, err);
    if (r < 0)
        return r;
    a.deadline = a.began + SPAWN_DEADLINE_NS;
    a.child.spec = spec;
    a.child.rootfs = &a.rootfs;
    a.child.filter = &s->filter;
    a.child.clock = s->clock;
    a.child.self_fd = s->image.fd;
    a.child.nofile = s->nofile;
    memset(s->clock, 0, sizeof *s->clock);
    r = drive(&a, err);
    if (r < 0) {
        r = a.pidfd >= 0 ? explain(&a, r, err) : r;
        kill_attempt(&a);
        return err_wrap(err, r, "sandbox '%s'", spec->id);
    }
    fill_stages(&a, ret);
    ret->pid = a.pid;
    ret->pidfd = TAKE_FD(a.pidfd);
    return 0;
}
