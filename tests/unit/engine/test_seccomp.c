/* test_seccomp.c - the compiled filter answers each system call as the table says.
 *
 * The program is run by a small interpreter here, over every number and architecture, and once by the
 * kernel, which also checks that it accepts it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

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
#include <sys/wait.h>

#include "engine/seccomp.h"

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#else
#define NATIVE AUDIT_ARCH_AARCH64
#endif

#define ALLOW SECCOMP_RET_ALLOW
#define FAIL(error) (SECCOMP_RET_ERRNO | (error))

static uint32_t run(const struct seccomp_program *p, const struct seccomp_data *d)
{
    uint32_t acc = 0;
    size_t pc = 0, steps = 0;

    while (pc < p->n && steps++ <= p->n) {
        struct sock_filter i = p->insns[pc++];
        bool is_true = false;

        switch (i.code) {
        case BPF_LD | BPF_W | BPF_ABS:
            assert_true(i.k + 4 <= sizeof *d && i.k % 4 == 0);
            memcpy(&acc, (const char *)d + i.k, sizeof acc);
            continue;
        case BPF_ALU | BPF_AND | BPF_K:
            acc &= i.k;
            continue;
        case BPF_RET | BPF_K:
            return i.k;
        case BPF_JMP | BPF_JEQ | BPF_K:
            is_true = acc == i.k;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            is_true = acc >= i.k;
            break;
        case BPF_JMP | BPF_JSET | BPF_K:
            is_true = (acc & i.k) != 0;
            break;
        default:
            fail_msg("instruction %zu has code %u", pc - 1, i.code);
        }
        pc += is_true ? i.jt : i.jf;
    }
    fail_msg("the program has no end");
    return 0;
}

struct row {
    long nr;
    uint64_t args[4];
    uint32_t answer;
};

static const struct row rows[] = {
    { SYS_read, { 0 }, ALLOW },
    { SYS_execveat, { 0 }, ALLOW },
    { SYS_ptrace, { 0 }, ALLOW },
    { SYS_chroot, { 0 }, ALLOW },
    { SYS_seccomp, { 0 }, ALLOW },
    { SYS_mount, { 0 }, FAIL(EPERM) },
    { SYS_umount2, { 0 }, FAIL(EPERM) },
    { SYS_setns, { 0 }, FAIL(EPERM) },
    { SYS_bpf, { 0 }, FAIL(EPERM) },
    { SYS_keyctl, { 0 }, FAIL(EPERM) },
    { SYS_perf_event_open, { 0 }, FAIL(EPERM) },
    { SYS_userfaultfd, { 0 }, FAIL(EPERM) },
    { SYS_open_by_handle_at, { 0 }, FAIL(EPERM) },
    { SYS_kexec_load, { 0 }, FAIL(EPERM) },
    { SYS_finit_module, { 0 }, FAIL(EPERM) },
    { SYS_io_uring_setup, { 0 }, FAIL(ENOSYS) },
    { SYS_io_uring_enter, { 0 }, FAIL(ENOSYS) },
    { SYS_io_setup, { 0 }, FAIL(ENOSYS) },
    { SYS_clone3, { 0 }, FAIL(ENOSYS) },
    { SYS_sync, { 0 }, FAIL(0) },
    { SYS_ioctl, { 0, TCGETS }, ALLOW },
    { SYS_ioctl, { 0, TIOCSTI }, FAIL(EPERM) },
    { SYS_ioctl, { 0, UINT64_C(1) << 32 | TIOCSETD }, FAIL(EPERM) },
    { SYS_ioctl, { 0, SIOCGIFADDR }, ALLOW },
    { SYS_ioctl, { 0, SIOCGIFBR }, FAIL(EPERM) },
    { SYS_ioctl, { 0, SIOCBRADDBR }, FAIL(EPERM) },
    { SYS_ioctl, { 0, SIOCGIFVLAN }, FAIL(EPERM) },
    { SYS_kexec_file_load, { 0 }, FAIL(ENOSYS) },
    { 400, { 0 }, FAIL(ENOSYS) },
    { 511, { 0 }, FAIL(ENOSYS) },
    { 512, { 0 }, FAIL(ENOSYS) },
    { 0x40000000 + SYS_read, { 0 }, FAIL(ENOSYS) },
    { 0x7fffffff, { 0 }, FAIL(ENOSYS) },
    { SYS_clone, { SIGCHLD }, ALLOW },
    { SYS_clone, { CLONE_VM | CLONE_VFORK | SIGCHLD }, ALLOW },
    { SYS_clone, { CLONE_NEWUSER | SIGCHLD }, FAIL(EPERM) },
    { SYS_clone, { CLONE_NEWNS }, FAIL(EPERM) },
    { SYS_clone, { CLONE_NEWCGROUP }, FAIL(EPERM) },
    { SYS_clone, { CLONE_NEWPID | CLONE_VM }, FAIL(EPERM) },
    { SYS_unshare, { CLONE_FILES }, ALLOW },
    { SYS_unshare, { CLONE_NEWUSER }, FAIL(EPERM) },
    { SYS_unshare, { 0x80 /* CLONE_NEWTIME */ }, FAIL(EPERM) },
    { SYS_unshare, { UINT64_C(1) << 32 | CLONE_NEWNET }, FAIL(EPERM) },
    { SYS_socket, { AF_UNIX, SOCK_SEQPACKET, 0 }, ALLOW },
    { SYS_socket, { AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0 }, ALLOW },
    { SYS_socket, { AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK, IPPROTO_UDP }, ALLOW },
    { SYS_socket, { AF_INET, SOCK_DGRAM, IPPROTO_ICMP }, ALLOW },
    { SYS_socket, { AF_INET, SOCK_RAW, IPPROTO_ICMP }, FAIL(EPERM) },
    { SYS_socket, { AF_INET, SOCK_STREAM, IPPROTO_SCTP }, FAIL(EPROTONOSUPPORT) },
    { SYS_socket, { AF_INET, SOCK_STREAM, IPPROTO_MPTCP }, FAIL(EPROTONOSUPPORT) },
    { SYS_socket, { AF_INET, SOCK_SEQPACKET, 0 }, FAIL(ESOCKTNOSUPPORT) },
    { SYS_socket, { AF_NETLINK, SOCK_RAW, NETLINK_ROUTE }, ALLOW },
    { SYS_socket, { AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG }, ALLOW },
    { SYS_socket, { AF_NETLINK, SOCK_RAW, NETLINK_AUDIT }, FAIL(EPROTONOSUPPORT) },
    { SYS_socket, { AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER }, FAIL(EPROTONOSUPPORT) },
    { SYS_socket, { AF_PACKET, SOCK_RAW, 0 }, FAIL(EAFNOSUPPORT) },
    { SYS_socket, { AF_VSOCK, SOCK_STREAM, 0 }, FAIL(EAFNOSUPPORT) },
    { SYS_socket, { AF_ALG, SOCK_SEQPACKET, 0 }, FAIL(EAFNOSUPPORT) },
    { SYS_socket, { UINT64_C(1) << 32 | AF_VSOCK, SOCK_STREAM, 0 }, FAIL(EAFNOSUPPORT) },
    { SYS_socketpair, { AF_UNIX, SOCK_STREAM, 0 }, ALLOW },
    { SYS_socketpair, { AF_TIPC, SOCK_STREAM, 0 }, FAIL(EOPNOTSUPP) },
    { SYS_socketpair, { AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER }, FAIL(EOPNOTSUPP) },
    { SYS_socketpair, { UINT64_C(1) << 32 | AF_VSOCK, SOCK_STREAM, 0 }, FAIL(EOPNOTSUPP) },
    { SYS_setsockopt, { 0, SOL_SOCKET, SO_REUSEADDR }, ALLOW },
    { SYS_setsockopt, { 0, SOL_SOCKET, SO_ATTACH_FILTER }, FAIL(ENOPROTOOPT) },
    { SYS_setsockopt, { 0, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF }, FAIL(ENOPROTOOPT) },
    { SYS_setsockopt, { 0, IPPROTO_TCP, SO_ATTACH_FILTER }, ALLOW },
    { SYS_mmap, { 0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS }, ALLOW },
    { SYS_mmap, { 0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB }, FAIL(ENOMEM) },
    { SYS_memfd_create, { 0, MFD_CLOEXEC }, ALLOW },
    { SYS_memfd_create, { 0, MFD_CLOEXEC | MFD_HUGETLB }, FAIL(ENOMEM) },
    { SYS_madvise, { 0, 4096, MADV_DONTNEED }, ALLOW },
    { SYS_madvise, { 0, 4096, MADV_MERGEABLE }, FAIL(EINVAL) },
    { SYS_prctl, { 15 /* PR_SET_NAME */ }, ALLOW },
    { SYS_prctl, { 67 /* PR_SET_MEMORY_MERGE */, 1 }, FAIL(EINVAL) },
    { SYS_setrlimit, { RLIMIT_NOFILE }, ALLOW },
    { SYS_setrlimit, { RLIMIT_CORE }, FAIL(0) },
    { SYS_prlimit64, { 0, RLIMIT_CORE, 0 }, ALLOW },
    { SYS_prlimit64, { 0, RLIMIT_CORE, 0x7fff0000 }, FAIL(0) },
    { SYS_prlimit64, { 0, RLIMIT_CORE, UINT64_C(0x7fff) << 32 }, FAIL(0) },
    { SYS_prlimit64, { 0, UINT64_C(1) << 32 | RLIMIT_CORE, 8 }, FAIL(0) },
    { SYS_prlimit64, { 0, RLIMIT_STACK, 8 }, ALLOW },
    { SYS_personality, { PER_LINUX }, ALLOW },
    { SYS_personality, { UINT32_MAX }, ALLOW },
    { SYS_personality, { ADDR_NO_RANDOMIZE }, ALLOW },
    { SYS_personality, { READ_IMPLIES_EXEC }, FAIL(EPERM) },
#if defined(__x86_64__)
    { SYS_open, { 0 }, ALLOW },
    { SYS_vfork, { 0 }, ALLOW },
    { SYS_arch_prctl, { 0 }, ALLOW },
    { SYS_iopl, { 0 }, FAIL(EPERM) },
    { SYS_modify_ldt, { 0 }, FAIL(EPERM) },
    { SYS_create_module, { 0 }, FAIL(ENOSYS) },
#endif
};

static int setup(void **state)
{
    struct seccomp_program *p = calloc(1, sizeof *p);
    struct abx_err err = { 0 };

    assert_non_null(p);
    if (seccomp_program_build(p, &err) < 0)
        fail_msg("%s", err.msg);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    seccomp_program_done(*state);
    free(*state);
    return 0;
}

static void calls_are_answered_by_the_table(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct seccomp_data d = { .nr = (int)rows[i].nr, .arch = NATIVE };
        uint32_t answer;

        memcpy(d.args, rows[i].args, sizeof rows[i].args);
        answer = run(*state, &d);
        if (answer != rows[i].answer)
            fail_msg("row %zu, call %ld: %08x, not %08x", i, rows[i].nr, answer, rows[i].answer);
    }
}

static void foreign_architectures_have_no_calls(void **state)
{
    static const uint32_t foreign[] = { AUDIT_ARCH_I386, AUDIT_ARCH_ARM, AUDIT_ARCH_RISCV64, 0 };

    for (size_t a = 0; a < ARRAY_SIZE(foreign); a++)
        for (int nr = 0; nr < 600; nr++) {
            const struct seccomp_data d = { .nr = nr, .arch = foreign[a] };

            assert_int_equal(run(*state, &d), FAIL(ENOSYS));
        }
}

static void every_number_has_one_of_the_answers(void **state)
{
    size_t allowed = 0;

    for (int nr = 0; nr < 1000; nr++) {
        const struct seccomp_data d = { .nr = nr, .arch = NATIVE };
        uint32_t answer = run(*state, &d);

        allowed += answer == ALLOW;
        assert_true(answer == ALLOW || (answer & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO);
    }
    assert_in_range(allowed, 200, 330); /* a slip in the tree would move whole ranges */
}

/* Exit status 0 when the kernel answers as expected under the filter. */
static int under_the_filter(const struct seccomp_program *p)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || seccomp_program_load(p) < 0)
        return 1;
    if (syscall(SYS_io_uring_setup, 1, NULL) >= 0 || errno != ENOSYS)
        return 2;
    if (syscall(SYS_unshare, CLONE_NEWUSER) >= 0 || errno != EPERM)
        return 3;
    if (socket(AF_VSOCK, SOCK_STREAM, 0) >= 0 || errno != EAFNOSUPPORT)
        return 4;
    if (setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }) < 0)
        return 5;
    if (syscall(SYS_clone3, NULL, 0) >= 0 || errno != ENOSYS)
        return 6;
    return fork() < 0 ? 7 : 0;
}

static void the_kernel_takes_the_program(void **state)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0)
        _exit(under_the_filter(*state));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_answered_by_the_table),
        cmocka_unit_test(foreign_architectures_have_no_calls),
        cmocka_unit_test(every_number_has_one_of_the_answers),
        cmocka_unit_test(the_kernel_takes_the_program),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
