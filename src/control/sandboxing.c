/* sandboxing.c - see sandboxing.h. */
#include "control/sandboxing.h"

#include <grp.h>
#include <seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

int privileges_drop(const char *dir, bool is_chroot, uid_t uid, gid_t gid, struct abx_err *err)
{
    if (is_chroot && (chroot(dir) < 0 || chdir("/") < 0))
        return err_sys(err, errno, "chroot to '%s'", dir);
    if (geteuid() == 0 && uid != 0) {
        if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
            return err_sys(err, errno, "become uid %u", (unsigned)uid);
    } else if (geteuid() != uid) {
        return err_set(err, ABX_PERMISSION_DENIED, "to run as uid %u it has to be started as root",
                       (unsigned)uid);
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) /* last: setuid clears it */
        return err_sys(err, errno, "prctl");
    return 0;
}

/* By what they are for; names that this architecture lacks are skipped. */
static const char *const allowed[] = {
    /* memory, threads, end */
    "brk",
    "mmap",
    "munmap",
    "mremap",
    "mprotect",
    "madvise",
    "futex",
    "set_robust_list",
    "rseq",
    "sched_yield",
    "exit",
    "exit_group",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sigaltstack",
    "tgkill",
    "gettid",
    "getpid",
    "getppid",
    "restart_syscall",
    /* clocks, randomness, limits */
    "clock_gettime",
    "clock_getres",
    "clock_nanosleep",
    "nanosleep",
    "gettimeofday",
    "getrandom",
    "prlimit64",
    "getrlimit",
    "uname",
    "sysinfo",
    "sched_getaffinity",
    "getuid",
    "geteuid",
    "getgid",
    "getegid",
    /* loop */
    "epoll_create1",
    "epoll_ctl",
    "epoll_wait",
    "epoll_pwait",
    "poll",
    "ppoll",
    "eventfd2",
    "pipe2",
    "read",
    "write",
    "readv",
    "writev",
    "close",
    "fcntl",
    "ioctl",
    "dup",
    "dup3",
    /* sockets; their families below */
    "connect",
    "accept4",
    "accept",
    "sendmsg",
    "recvmsg",
    "sendto",
    "recvfrom",
    "shutdown",
    "getsockopt",
    "setsockopt",
    "getsockname",
    "getpeername",
    /* the database */
    "open",
    "openat",
    "stat",
    "lstat",
    "fstat",
    "newfstatat",
    "fstatat64",
    "statx",
    "access",
    "faccessat",
    "faccessat2",
    "lseek",
    "pread64",
    "pwrite64",
    "ftruncate",
    "fallocate",
    "fsync",
    "fdatasync",
    "unlink",
    "unlinkat",
    "getcwd",
    "readlink",
    "readlinkat",
    "fchmod",
    "fchown",
    "geteuid",
    "flock",
};
static const char *const deadly[] = { "execve", "execveat", "ptrace",  "fork",  "vfork",
                                      "mount",  "bpf",      "unshare", "setns", "chroot" };

/* Sanitizers trace their own process at its end and make calls of their own. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static int add(scmp_filter_ctx ctx, uint32_t action, const char *name)
{
    int nr = seccomp_syscall_resolve_name(name);

    return nr == __NR_SCMP_ERROR ? 0 : seccomp_rule_add(ctx, action, nr, 0);
}

int seccomp_load_filter(struct abx_err *err)
{
    scmp_filter_ctx ctx = seccomp_init(SANITIZED ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPERM));
    int r = ctx ? 0 : -ENOMEM;

    for (size_t i = 0; i < ARRAY_SIZE(allowed) && r == 0 && !SANITIZED; i++)
        r = add(ctx, SCMP_ACT_ALLOW, allowed[i]);
    for (size_t i = 0; i < ARRAY_SIZE(deadly) && r == 0; i++)
        if (!SANITIZED || strcmp(deadly[i], "ptrace") != 0)
            r = add(ctx, SCMP_ACT_KILL_PROCESS, deadly[i]);
    if (r == 0 && !SANITIZED)
        r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1,
                             SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
    /* All threads: the writers run already. */
    if (r == 0)
        r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1);
    if (r == 0)
        r = seccomp_load(ctx);
    if (ctx)
        seccomp_release(ctx);
    return r < 0 ? err_sys(err, -r, "load the system call filter") : 0;
}
