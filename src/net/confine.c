/* confine.c - see confine.h. */
#include "net/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

/* A sanitizer looks for leaks by way of /proc: its build's root folder has one, in a mount namespace
 * in which there is nothing else. */
static int enter_root_with_proc(const char *root, struct abx_err *err)
{
    char proc[4200];

    (void)snprintf(proc, sizeof proc, "%s/proc", root);
    if (mkdir(proc, 0755) < 0 && errno != EEXIST)
        return err_sys(err, errno, "mkdir '%s'", proc);
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount(root, root, NULL, MS_BIND, NULL) < 0 ||
        mount("/proc", proc, NULL, MS_BIND, NULL) < 0 || chdir(root) < 0 ||
        syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return err_sys(err, errno, "make '%s' the root folder, with /proc", root);
    return 0;
}

static int enter_root(const char *root, struct abx_err *err)
{
    if (IS_SANITIZED)
        return enter_root_with_proc(root, err);
    if (chroot(root) < 0 || chdir("/") < 0)
        return err_sys(err, errno, "make '%s' the root folder", root);
    return 0;
}

static int drop_uid(const struct confine_opts *opts, struct abx_err *err)
{
    if (setgroups(0, NULL) < 0)
        return err_sys(err, errno, "drop supplementary groups");
    if (setresgid(opts->gid, opts->gid, opts->gid) < 0)
        return err_sys(err, errno, "become group %u", opts->gid);
    if (setresuid(opts->uid, opts->uid, opts->uid) < 0)
        return err_sys(err, errno, "become user %u", opts->uid);
    if (opts->uid != 0 && setuid(0) == 0)
        return err_set(err, ABX_INTERNAL, "user %u can become root again", opts->uid);
    return 0;
}

int confine_identity(const struct confine_opts *opts, struct abx_err *err)
{
    int r = opts->root ? enter_root(opts->root, err) : 0;

    if (r == 0 && opts->uid != 0)
        r = drop_uid(opts, err);
    if (r < 0)
        return r;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(err, errno, "set no_new_privs");
    if (!IS_SANITIZED && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return err_sys(err, errno, "become undumpable");
    /* Behind the change of user, which clears it. The parent may have died before. */
    if (opts->parent != 0 && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return err_sys(err, errno, "die with the supervisor");
    if (opts->parent != 0 && getppid() != opts->parent)
        return err_set(err, ABX_ABORTED, "the supervisor is gone");
    return 0;
}

static const int network_calls[] = {
    /* the loop and its sockets */
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(readv),
    SCMP_SYS(writev),
    SCMP_SYS(close),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendto),
    SCMP_SYS(sendmsg),
    SCMP_SYS(accept),
    SCMP_SYS(accept4),
    SCMP_SYS(connect),
    SCMP_SYS(getsockopt),
    SCMP_SYS(setsockopt),
    SCMP_SYS(getsockname),
    SCMP_SYS(getpeername),
    SCMP_SYS(shutdown),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(epoll_create1),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(eventfd2),
    SCMP_SYS(pipe2),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(dup),
    SCMP_SYS(lseek),
    /* memory */
    SCMP_SYS(brk),
    SCMP_SYS(munmap),
    SCMP_SYS(madvise),
    SCMP_SYS(futex),
    SCMP_SYS(membarrier),
    SCMP_SYS(rseq),
    /* time, randomness, signals, the end */
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_getres),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(nanosleep),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(getrandom),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(getppid),
    SCMP_SYS(getuid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getegid),
    SCMP_SYS(tgkill),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(uname),
    SCMP_SYS(prlimit64),
    SCMP_SYS(getrlimit),
    SCMP_SYS(getrusage),
    SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity),
};

static const int file_calls[] = {
    SCMP_SYS(openat),         SCMP_SYS(open),
    SCMP_SYS(stat),           SCMP_SYS(lstat),
    SCMP_SYS(statx),          SCMP_SYS(statfs),
    SCMP_SYS(fstatfs),        SCMP_SYS(access),
    SCMP_SYS(faccessat),      SCMP_SYS(faccessat2),
    SCMP_SYS(readlink),       SCMP_SYS(readlinkat),
    SCMP_SYS(getdents64),     SCMP_SYS(pread64),
    SCMP_SYS(pwrite64),       SCMP_SYS(preadv),
    SCMP_SYS(pwritev),        SCMP_SYS(ftruncate),
    SCMP_SYS(fallocate),      SCMP_SYS(fsync),
    SCMP_SYS(fdatasync),      SCMP_SYS(rename),
    SCMP_SYS(renameat),       SCMP_SYS(renameat2),
    SCMP_SYS(unlink),         SCMP_SYS(unlinkat),
    SCMP_SYS(mkdir),          SCMP_SYS(mkdirat),
    SCMP_SYS(rmdir),          SCMP_SYS(fchmod),
    SCMP_SYS(fchown),         SCMP_SYS(fchmodat),
    SCMP_SYS(flock),          SCMP_SYS(umask),
    SCMP_SYS(getcwd),         SCMP_SYS(utimensat),
    SCMP_SYS(fadvise64),      SCMP_SYS(msync),
    SCMP_SYS(sysinfo),        SCMP_SYS(set_robust_list),
    SCMP_SYS(sched_getparam), SCMP_SYS(sched_getscheduler),
    SCMP_SYS(bind),           SCMP_SYS(listen),
};

static const int relaxed_refused[] = {
    SCMP_SYS(mount),
    SCMP_SYS(bpf),
    SCMP_SYS(kexec_load),
    SCMP_SYS(init_module),
};

static int allow_all(scmp_filter_ctx f, const int *calls, size_t n)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < n; i++)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, calls[i], 0);
    return r;
}

#define GROWS_FROM 131072u

/* Calls of which only some arguments are fine. */
static int allow_some(scmp_filter_ctx f)
{
    static const int fcntl_commands[] = { F_GETFL, F_SETFL, F_GETFD, F_SETFD, F_DUPFD_CLOEXEC };
    int r = 0;

    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(fcntl_commands); i++)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1,
                             SCMP_A1(SCMP_CMP_EQ, (scmp_datum_t)fcntl_commands[i]));
    if (r == 0)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
    if (r == 0)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(socketpair), 1,
                             SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
    if (r == 0)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, SCMP_A1(SCMP_CMP_EQ, FIONBIO));
    if (r == 0) /* memory is never made executable */
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
                             SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    if (r == 0)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1,
                             SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    /* What realloc grows is of 128 KiB and more. A smaller mapping could be the own block of the counters, which would grow
     * over those of others. */
    if (r == 0)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mremap), 1,
                             SCMP_A1(SCMP_CMP_GE, GROWS_FROM));
    return r;
}

/* Threads, record locks: what a role with a database needs besides the calls on files. */
static int allow_files(scmp_filter_ctx f)
{
    static const int locks[] = {
        F_GETLK, F_SETLK, F_SETLKW, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW
    };
    int r = allow_all(f, file_calls, ARRAY_SIZE(file_calls));

    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(locks); i++)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1,
                             SCMP_A1(SCMP_CMP_EQ, (scmp_datum_t)locks[i]));
    if (r == 0)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
                             SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
    if (r == 0) /* glibc falls back to clone, whose flags a filter can see */
        r = seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    if (r == 0)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(prctl), 1,
                             SCMP_A0(SCMP_CMP_EQ, PR_SET_NAME));
    return r;
}

/* Sockets of the internet, what passes bytes on between them, and a file that is read again. */
static int allow_egress(scmp_filter_ctx f)
{
    static const int families[] = { AF_INET, AF_INET6 }, types[] = { SOCK_STREAM, SOCK_DGRAM };
    int r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(splice), 0);

    if (r == 0)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1,
                             SCMP_A1(SCMP_CMP_EQ, F_SETPIPE_SZ));
    if (r == 0)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, SCMP_A1(SCMP_CMP_EQ, SIOCOUTQ));
    if (r == 0) /* veil.c */
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(dup3), 0);
    for (size_t i = 0; i < ARRAY_SIZE(families); i++)
        for (size_t j = 0; r == 0 && j < ARRAY_SIZE(types); j++)
            r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(socket), 2,
                                 SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)families[i]),
                                 SCMP_A1(SCMP_CMP_MASKED_EQ, 0xf, (scmp_datum_t)types[j]));
    if (r == 0)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(openat), 1,
                             SCMP_A2(SCMP_CMP_MASKED_EQ, O_ACCMODE | O_CREAT | O_TRUNC, O_RDONLY));
    return r;
}

static int fill_strict(scmp_filter_ctx f, enum confine_filter filter)
{
    int r = allow_all(f, network_calls, ARRAY_SIZE(network_calls));

    if (r == 0)
        r = allow_some(f);
    if (r == 0 && filter == CONFINE_FILES)
        r = allow_files(f);
    if (r == 0 && filter == CONFINE_EGRESS)
        r = allow_egress(f);
    return r;
}

static int fill_relaxed(scmp_filter_ctx f)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(relaxed_refused); i++)
        r = seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), relaxed_refused[i], 0);
    return r;
}

int confine_syscalls(enum confine_filter filter, struct abx_err *err)
{
    scmp_filter_ctx f = seccomp_init(IS_SANITIZED ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPERM));
    int r;

    if (!f)
        return err_oom(err);
    r = IS_SANITIZED ? fill_relaxed(f) : fill_strict(f, filter);
    if (r == 0 && filter == CONFINE_FILES) /* its threads run already */
        r = seccomp_attr_set(f, SCMP_FLTATR_CTL_TSYNC, 1);
    if (r == 0)
        r = seccomp_load(f);
    seccomp_release(f);
    return r < 0 ? err_sys(err, -r, "load the seccomp filter") : 0;
}
