/* seccomp.c - the table and its compilation. See seccomp.h.
 *
 * Neighbouring numbers with the same answer become one range, and the ranges a balanced tree: about
 * 175 instructions. libseccomp makes one comparison per call, 760 instructions, which the kernel
 * takes 300 us to check, translate and try out; these take 80, and each sandbox loads them twice.
 */
#include "engine/seccomp.h"

#include <linux/audit.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64 /* x32 has numbers of its own, all beyond the table */
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#error "no system call table for this architecture"
#endif

/* clang-format off */
static const int allowed[] = {
    /* files */
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev,
    SYS_preadv2, SYS_pwritev2, SYS_openat, SYS_openat2, SYS_close, SYS_close_range, SYS_lseek,
    SYS_dup, SYS_dup3, SYS_fcntl, SYS_flock, SYS_fstat, SYS_newfstatat, SYS_statx,
    SYS_statfs, SYS_fstatfs, SYS_faccessat, SYS_faccessat2, SYS_readlinkat, SYS_getdents64,
    SYS_getcwd, SYS_chdir, SYS_fchdir, SYS_chroot, SYS_mkdirat, SYS_mknodat, SYS_linkat,
    SYS_symlinkat, SYS_unlinkat, SYS_renameat, SYS_renameat2, SYS_fchmod, SYS_fchmodat, SYS_fchown,
    SYS_fchownat, SYS_utimensat, SYS_truncate, SYS_ftruncate, SYS_fallocate, SYS_fadvise64,
    SYS_readahead, SYS_syncfs, SYS_fsync, SYS_fdatasync, SYS_sync_file_range,
    SYS_copy_file_range, SYS_sendfile, SYS_splice, SYS_tee, SYS_vmsplice, SYS_umask, SYS_pipe2,
    SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr,
    SYS_listxattr, SYS_llistxattr, SYS_flistxattr, SYS_removexattr, SYS_lremovexattr,
    SYS_fremovexattr, SYS_inotify_init1, SYS_inotify_add_watch, SYS_inotify_rm_watch,
    /* waiting */
    SYS_ppoll, SYS_pselect6, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_epoll_pwait2,
    SYS_eventfd2, SYS_signalfd4, SYS_timerfd_create, SYS_timerfd_settime, SYS_timerfd_gettime,
    SYS_nanosleep, SYS_clock_nanosleep, SYS_futex, SYS_futex_waitv, SYS_get_robust_list,
    SYS_set_robust_list, SYS_restart_syscall,
    /* memory */
    SYS_munmap, SYS_mremap, SYS_mprotect, SYS_mincore, SYS_msync, SYS_brk, SYS_mlock, SYS_mlock2,
    SYS_munlock, SYS_mlockall, SYS_munlockall, SYS_remap_file_pages, SYS_pkey_alloc, SYS_pkey_free,
    SYS_pkey_mprotect, SYS_membarrier, SYS_rseq,
    /* processes and ids */
    SYS_execve, SYS_execveat, SYS_exit, SYS_exit_group, SYS_wait4, SYS_waitid, SYS_kill, SYS_tkill,
    SYS_tgkill, SYS_pidfd_open, SYS_pidfd_send_signal, SYS_getpid, SYS_getppid, SYS_gettid,
    SYS_getpgid, SYS_setpgid, SYS_getsid, SYS_setsid, SYS_set_tid_address, SYS_getuid,
    SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getresuid, SYS_getresgid, SYS_getgroups, SYS_setuid,
    SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setgroups,
    SYS_setfsuid, SYS_setfsgid, SYS_capget, SYS_capset, SYS_getpriority, SYS_setpriority,
    SYS_ioprio_get, SYS_ioprio_set, SYS_getrlimit, SYS_getrusage, SYS_times, SYS_sysinfo,
    SYS_uname, SYS_getcpu, SYS_getrandom, SYS_process_mrelease,
    SYS_sched_yield, SYS_sched_getaffinity, SYS_sched_setaffinity, SYS_sched_getattr,
    SYS_sched_setattr, SYS_sched_getparam, SYS_sched_setparam, SYS_sched_getscheduler,
    SYS_sched_setscheduler, SYS_sched_get_priority_max, SYS_sched_get_priority_min,
    SYS_sched_rr_get_interval,
    /* debuggers */
    SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev,
    /* a process may restrict itself further */
    SYS_seccomp, SYS_landlock_create_ruleset, SYS_landlock_add_rule, SYS_landlock_restrict_self,
    /* signals and time */
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigpending, SYS_rt_sigqueueinfo, SYS_rt_sigreturn,
    SYS_rt_sigsuspend, SYS_rt_sigtimedwait, SYS_rt_tgsigqueueinfo, SYS_sigaltstack,
    SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday, SYS_getitimer, SYS_setitimer,
    SYS_timer_create, SYS_timer_delete, SYS_timer_getoverrun, SYS_timer_gettime, SYS_timer_settime,
    /* sockets (what makes them and sets their options by the arguments, below) */
    SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_connect, SYS_shutdown, SYS_getsockname,
    SYS_getpeername, SYS_getsockopt, SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg,
    SYS_sendmmsg, SYS_recvmmsg,
    /* System V and POSIX IPC */
    SYS_shmget, SYS_shmat, SYS_shmdt, SYS_shmctl, SYS_semget, SYS_semop, SYS_semtimedop, SYS_semctl,
    SYS_msgget, SYS_msgsnd, SYS_msgrcv, SYS_msgctl, SYS_mq_open, SYS_mq_unlink, SYS_mq_timedsend,
    SYS_mq_timedreceive, SYS_mq_notify, SYS_mq_getsetattr,
};

/* Known calls that programs try and for which "not permitted" says more than "not there". */
static const int refused[] = {
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_fspick,
    SYS_open_tree, SYS_move_mount, SYS_mount_setattr, SYS_setns, SYS_swapon, SYS_swapoff,
    SYS_quotactl, SYS_acct, SYS_sethostname, SYS_setdomainname, SYS_vhangup,
    SYS_name_to_handle_at, SYS_open_by_handle_at, SYS_fanotify_init, SYS_fanotify_mark,
    SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_reboot, SYS_syslog,
    SYS_settimeofday, SYS_clock_settime, SYS_adjtimex, SYS_clock_adjtime,
    SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_add_key, SYS_request_key, SYS_keyctl,
    SYS_kcmp, SYS_pidfd_getfd, SYS_process_madvise, SYS_mbind, SYS_set_mempolicy, SYS_get_mempolicy,
    SYS_migrate_pages, SYS_move_pages,
};
/* clang-format on */

#define NEW_NAMESPACES                                                                             \
    ((uint32_t)(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |         \
                CLONE_NEWNET | CLONE_NEWCGROUP))
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif
#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67
#endif

/* Where a jump goes: first the ends, then the calls that are judged by their arguments (the label is
 * the begin of that code), then places inside it, then nodes of the tree. */
enum label {
    TO_NEXT = 0, /* the following instruction */
    TO_ALLOW,
    TO_EPERM,
    TO_ENOSYS,
    TO_EINVAL,
    TO_ENOMEM,
    TO_ENOPROTOOPT,
    TO_CLONE,
    TO_UNSHARE,
    TO_SOCKET,
    TO_SOCKETPAIR,
    TO_SETSOCKOPT,
    TO_MMAP,
    TO_MEMFD,
    TO_MADVISE,
    TO_PRCTL,
    TO_SETRLIMIT,
    TO_PRLIMIT,
    TO_PERSONALITY,
    TO_IOCTL,
    TO_NETLINK,
    TO_INET,
    TO_STREAM,
    TO_DATAGRAM,
    TO_SOCKET_OPTION,
    TO_PRLIMIT_NEW,
    TO_PRETEND,
    TO_TREE,
};

#define CALLS_MAX 512 /* numbers from here on are ENOSYS */
#define INSNS_MAX 400
#define LABELS_MAX (TO_TREE + CALLS_MAX)
#define JUMP_MAX 255 /* of a conditional jump */

struct compiler {
    uint8_t answer[CALLS_MAX]; /* enum label for each number */
    struct sock_filter insns[INSNS_MAX];
    uint16_t jump_true[INSNS_MAX], jump_false[INSNS_MAX]; /* labels */
    size_t n;
    size_t at[LABELS_MAX]; /* where each label is */
    uint16_t next_label;
    bool is_too_long;
};

static void answer_all(struct compiler *c, const int *list, size_t n, enum label to)
{
    for (size_t i = 0; i < n && list[i] >= 0; i++)
        if (list[i] < CALLS_MAX)
            c->answer[list[i]] = (uint8_t)to;
}

static void put(struct compiler *c, uint16_t code, uint32_t k, uint16_t jump_true,
                uint16_t jump_false)
{
    if (c->n == INSNS_MAX) {
        c->is_too_long = true;
        return;
    }
    c->insns[c->n] = (struct sock_filter){ .code = code, .k = k };
    c->jump_true[c->n] = jump_true;
    c->jump_false[c->n] = jump_false;
    c->n++;
}

static void put_label(struct compiler *c, uint16_t label)
{
    c->at[label] = c->n;
}

static void put_load(struct compiler *c, uint32_t offset)
{
    put(c, BPF_LD | BPF_W | BPF_ABS, offset, TO_NEXT, TO_NEXT);
}

/* The low half of an argument: all that the kernel looks at where it takes an int. Both supported
 * architectures are little-endian. */
static void put_load_arg(struct compiler *c, unsigned i)
{
    put_load(c, (uint32_t)(offsetof(struct seccomp_data, args) + 8 * i));
}

static void put_if_equal(struct compiler *c, uint32_t value, uint16_t to)
{
    put(c, BPF_JMP | BPF_JEQ | BPF_K, value, to, TO_NEXT);
}

static void put_return(struct compiler *c, uint32_t action)
{
    put(c, BPF_RET | BPF_K, action, TO_NEXT, TO_NEXT);
}

static void put_errno(struct compiler *c, int error)
{
    put_return(c, SECCOMP_RET_ERRNO | (uint32_t)error);
}

/* ---- the tree ---- */

struct range {
    uint32_t first;
    uint16_t answer;
};

static size_t make_ranges(const struct compiler *c, struct range *to)
{
    size_t n = 0;

    for (uint32_t nr = 0; nr < CALLS_MAX; nr++)
        if (n == 0 || to[n - 1].answer != c->answer[nr])
            to[n++] = (struct range){ .first = nr, .answer = c->answer[nr] };
    if (to[n - 1].answer != TO_ENOSYS)
        to[n++] = (struct range){ .first = CALLS_MAX, .answer = TO_ENOSYS };
    return n;
}

/* The tree over ranges [from, to), at least two; depth is the logarithm of their number. */
static void put_tree(struct compiler *c, const struct range *ranges, size_t from, size_t to)
{
    size_t mid = from + (to - from) / 2;
    bool left_is_leaf = mid - from == 1, right_is_leaf = to - mid == 1;
    uint16_t right = right_is_leaf ? ranges[mid].answer : c->next_label++;

    put(c, BPF_JMP | BPF_JGE | BPF_K, ranges[mid].first, right,
        left_is_leaf ? ranges[from].answer : TO_NEXT);
    if (!left_is_leaf)
        put_tree(c, ranges, from, mid);
    if (!right_is_leaf) {
        put_label(c, right);
        put_tree(c, ranges, mid, to);
    }
}

/* ---- calls judged by their arguments ---- */

/* Processes and threads, but no namespaces. clone3 passes its flags in memory, where a filter cannot
 * look: it stays ENOSYS, and every libc then falls back to clone. */
static void put_clone(struct compiler *c)
{
    put_label(c, TO_CLONE);
    put_load_arg(c, 0);
    put(c, BPF_JMP | BPF_JSET | BPF_K, NEW_NAMESPACES, TO_EPERM, TO_ALLOW);
    put_label(c, TO_UNSHARE);
    put_load_arg(c, 0);
    put(c, BPF_JMP | BPF_JSET | BPF_K, NEW_NAMESPACES | CLONE_NEWTIME, TO_EPERM, TO_ALLOW);
}

static void put_protocols(struct compiler *c, uint16_t label, const int *protocols, size_t n)
{
    put_label(c, label);
    put_load_arg(c, 2);
    for (size_t i = 0; i < n; i++)
        put_if_equal(c, (uint32_t)protocols[i], TO_ALLOW);
    /* libaudit, and so sudo, take this answer to mean a kernel without audit. */
    put_errno(c, EPROTONOSUPPORT);
}

/* Protocols that a sandbox has a use for: no SCTP, DCCP, MPTCP, L2TP, none of which the kernel
 * should even load a module for. */
static void put_socket(struct compiler *c)
{
    static const int netlink[] = { NETLINK_ROUTE, NETLINK_SOCK_DIAG };
    static const int stream[] = { 0, IPPROTO_TCP };
    static const int datagram[] = { 0, IPPROTO_UDP, IPPROTO_ICMP, IPPROTO_ICMPV6 };

    put_label(c, TO_SOCKET);
    put_load_arg(c, 0);
    put_if_equal(c, AF_UNIX, TO_ALLOW);
    put_if_equal(c, AF_INET, TO_INET);
    put_if_equal(c, AF_INET6, TO_INET);
    put_if_equal(c, AF_NETLINK, TO_NETLINK);
    put_errno(c, EAFNOSUPPORT);
    put_label(c, TO_INET);
    put_load_arg(c, 1);
    put(c, BPF_ALU | BPF_AND | BPF_K, 0xf, TO_NEXT, TO_NEXT); /* the rest are flags */
    put_if_equal(c, SOCK_STREAM, TO_STREAM);
    put_if_equal(c, SOCK_DGRAM, TO_DATAGRAM);
    put_if_equal(c, SOCK_RAW, TO_EPERM);
    put_errno(c, ESOCKTNOSUPPORT);
    put_protocols(c, TO_NETLINK, netlink, ARRAY_SIZE(netlink));
    put_protocols(c, TO_STREAM, stream, ARRAY_SIZE(stream));
    put_protocols(c, TO_DATAGRAM, datagram, ARRAY_SIZE(datagram));
    /* The kernel makes both sockets, and loads what they need, before it asks whether there are pairs
     * of that kind. */
    put_label(c, TO_SOCKETPAIR);
    put_load_arg(c, 0);
    put_if_equal(c, AF_UNIX, TO_ALLOW);
    put_errno(c, EOPNOTSUPP);
}

/* Filters of sockets become machine code, of which the whole machine has a fixed amount
 * (net.core.bpf_jit_limit) that no limit of a sandbox counts. When it is used up not even the filter of
 * the next sandbox loads. Their use is with packet sockets. */
static void put_setsockopt(struct compiler *c)
{
    static const uint32_t options[] = { SO_ATTACH_FILTER, SO_ATTACH_REUSEPORT_CBPF };

    put_label(c, TO_SETSOCKOPT);
    put_load_arg(c, 1);
    put(c, BPF_JMP | BPF_JEQ | BPF_K, SOL_SOCKET, TO_SOCKET_OPTION, TO_ALLOW);
    put_label(c, TO_SOCKET_OPTION);
    put_load_arg(c, 2);
    for (size_t i = 0; i < ARRAY_SIZE(options); i++)
        put_if_equal(c, options[i], TO_ENOPROTOOPT);
    put_return(c, SECCOMP_RET_ALLOW);
}

/* Huge pages that the host has set aside are its own: they count for no limit of memory. Merging of equal
 * pages, where the host does that, tells what others have in theirs. */
static void put_memory(struct compiler *c)
{
    put_label(c, TO_MMAP);
    put_load_arg(c, 3);
    put(c, BPF_JMP | BPF_JSET | BPF_K, MAP_HUGETLB, TO_ENOMEM, TO_ALLOW);
    put_label(c, TO_MEMFD);
    put_load_arg(c, 1);
    put(c, BPF_JMP | BPF_JSET | BPF_K, MFD_HUGETLB, TO_ENOMEM, TO_ALLOW);
    put_label(c, TO_MADVISE);
    put_load_arg(c, 2);
    put(c, BPF_JMP | BPF_JEQ | BPF_K, MADV_MERGEABLE, TO_EINVAL, TO_ALLOW);
    put_label(c, TO_PRCTL);
    put_load_arg(c, 0);
    put(c, BPF_JMP | BPF_JEQ | BPF_K, PR_SET_MEMORY_MERGE, TO_EINVAL, TO_ALLOW);
}

/* RLIMIT_CORE stays 1: with 0 a piped core_pattern would run a program of the host for every crash.
 * Nothing is dumped either way, so programs that switch dumps off are told that it worked. */
static void put_rlimit(struct compiler *c)
{
    put_label(c, TO_SETRLIMIT);
    put_load_arg(c, 0);
    put(c, BPF_JMP | BPF_JEQ | BPF_K, RLIMIT_CORE, TO_PRETEND, TO_ALLOW);
    put_label(c, TO_PRLIMIT);
    put_load_arg(c, 1);
    put(c, BPF_JMP | BPF_JEQ | BPF_K, RLIMIT_CORE, TO_PRLIMIT_NEW, TO_ALLOW);
    put_label(c, TO_PRLIMIT_NEW); /* a null pointer to the new limit only asks */
    put_load_arg(c, 2);
    put(c, BPF_JMP | BPF_JEQ | BPF_K, 0, TO_NEXT, TO_PRETEND);
    put_load(c, (uint32_t)(offsetof(struct seccomp_data, args) + 8 * 2 + 4));
    put(c, BPF_JMP | BPF_JEQ | BPF_K, 0, TO_ALLOW, TO_PRETEND);
    put_label(c, TO_PRETEND);
    put_errno(c, 0);
}

static void put_personality(struct compiler *c)
{
    static const uint32_t values[] = {
        PER_LINUX, ADDR_NO_RANDOMIZE, PER_LINUX32, UNAME26, PER_LINUX32 | UNAME26, UINT32_MAX,
    };

    put_label(c, TO_PERSONALITY);
    put_load_arg(c, 0);
    for (size_t i = 0; i < ARRAY_SIZE(values); i++)
        put_if_equal(c, values[i], TO_ALLOW);
    put_errno(c, EPERM);
}

/* Line disciplines are kernel modules that opening a terminal should not load, and so are bridges and
 * VLANs, which any socket may ask for; the two others of terminals put words into their input. */
static void put_ioctl(struct compiler *c)
{
    static const uint32_t requests[] = {
        TIOCSETD,    TIOCSTI,     TIOCLINUX,   SIOCGIFBR,   SIOCSIFBR,
        SIOCBRADDBR, SIOCBRDELBR, SIOCGIFVLAN, SIOCSIFVLAN,
    };

    put_label(c, TO_IOCTL);
    put_load_arg(c, 1);
    for (size_t i = 0; i < ARRAY_SIZE(requests); i++)
        put_if_equal(c, requests[i], TO_EPERM);
    put_return(c, SECCOMP_RET_ALLOW);
}

/* ---- all of it ---- */

static void fill_answers(struct compiler *c)
{
    memset(c->answer, TO_ENOSYS, sizeof c->answer);
    answer_all(c, allowed, ARRAY_SIZE(allowed), TO_ALLOW);
    answer_all(c, seccomp_arch_allowed, SIZE_MAX, TO_ALLOW);
    answer_all(c, refused, ARRAY_SIZE(refused), TO_EPERM);
    answer_all(c, seccomp_arch_refused, SIZE_MAX, TO_EPERM);
    c->answer[SYS_clone] = TO_CLONE;
    c->answer[SYS_unshare] = TO_UNSHARE;
    c->answer[SYS_socket] = TO_SOCKET;
    c->answer[SYS_socketpair] = TO_SOCKETPAIR;
    c->answer[SYS_setsockopt] = TO_SETSOCKOPT;
    c->answer[SYS_mmap] = TO_MMAP;
    c->answer[SYS_memfd_create] = TO_MEMFD;
    c->answer[SYS_madvise] = TO_MADVISE;
    c->answer[SYS_prctl] = TO_PRCTL;
    c->answer[SYS_setrlimit] = TO_SETRLIMIT;
    c->answer[SYS_prlimit64] = TO_PRLIMIT;
    c->answer[SYS_personality] = TO_PERSONALITY;
    c->answer[SYS_ioctl] = TO_IOCTL;
    /* It would write back every file system of the host; a sandbox's own files need no sync, as
     * they are gone with it when the machine stops, and the engine syncs what it keeps. */
    c->answer[SYS_sync] = TO_PRETEND;
}

static void compile(struct compiler *c)
{
    struct range ranges[CALLS_MAX + 1];
    size_t n = make_ranges(c, ranges);

    c->next_label = TO_TREE;
    put_load(c, offsetof(struct seccomp_data, arch));
    put(c, BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, TO_NEXT, TO_ENOSYS);
    put_load(c, offsetof(struct seccomp_data, nr));
    put_tree(c, ranges, 0, n);
    put_clone(c);
    put_socket(c);
    put_setsockopt(c);
    put_memory(c);
    put_rlimit(c);
    put_personality(c);
    put_ioctl(c);
    put_label(c, TO_ALLOW);
    put_return(c, SECCOMP_RET_ALLOW);
    put_label(c, TO_EPERM);
    put_errno(c, EPERM);
    put_label(c, TO_ENOSYS);
    put_errno(c, ENOSYS);
    put_label(c, TO_EINVAL);
    put_errno(c, EINVAL);
    put_label(c, TO_ENOMEM);
    put_errno(c, ENOMEM);
    put_label(c, TO_ENOPROTOOPT);
    put_errno(c, ENOPROTOOPT);
}

/* Labels to distances; false when one is too far. */
static bool link_jumps(struct compiler *c)
{
    for (size_t i = 0; i < c->n; i++) {
        size_t t = c->jump_true[i] == TO_NEXT ? 0 : c->at[c->jump_true[i]] - i - 1;
        size_t f = c->jump_false[i] == TO_NEXT ? 0 : c->at[c->jump_false[i]] - i - 1;

        if (t > JUMP_MAX || f > JUMP_MAX)
            return false;
        c->insns[i].jt = (uint8_t)t;
        c->insns[i].jf = (uint8_t)f;
    }
    return true;
}

int seccomp_program_build(struct seccomp_program *ret, struct abx_err *err)
{
    _cleanup_(freep) struct compiler *c = calloc(1, sizeof *c);
    struct sock_filter *insns;

    if (!c)
        return err_oom(err);
    fill_answers(c);
    compile(c);
    if (c->is_too_long || !link_jumps(c))
        return err_set(err, ABX_INTERNAL, "the system call filter has become too long");
    insns = calloc(c->n, sizeof *insns);
    if (!insns)
        return err_oom(err);
    memcpy(insns, c->insns, c->n * sizeof *insns);
    *ret = (struct seccomp_program){ .insns = insns, .n = (unsigned short)c->n };
    return 0;
}

void seccomp_program_done(struct seccomp_program *p)
{
    free(p->insns);
    *p = (struct seccomp_program){ 0 };
}

int seccomp_program_load(const struct seccomp_program *p)
{
    const struct sock_fprog prog = { .len = p->n, .filter = p->insns };

    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog);
}
