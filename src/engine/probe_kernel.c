/* probe_kernel.c - checks of privileges, namespaces, seccomp and BPF. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/packet.h"
#include "base/str.h"
#include "engine/cgroup_internal.h"
#include "engine/netns.h"
#include "engine/probe_internal.h"
#include "engine/steer.h"
#include "engine/userns.h"

#define KERNEL_MAJOR 5u
#define KERNEL_MINOR 19u
#define NOT_MAPPED 255 /* exit status; those below are errno values */

struct capability {
    const char *name;
    unsigned bit;
};

/* What the engine can't do without (linux/capability.h). */
static const struct capability needed[] = {
    { "CHOWN", 0 },    { "DAC_OVERRIDE", 1 }, { "FOWNER", 3 },      { "KILL", 5 },
    { "SETGID", 6 },   { "SETUID", 7 },       { "SETPCAP", 8 },     { "NET_ADMIN", 12 },
    { "NET_RAW", 13 }, { "SYS_CHROOT", 18 },  { "SYS_PTRACE", 19 }, { "SYS_ADMIN", 21 },
    { "MKNOD", 27 },   { "SETFCAP", 31 },
};
#define CAP_BIT_SYS_RESOURCE 24

static uint64_t effective_capabilities(void)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(65536);
    const char *at;
    uint8_t raw[8];
    uint64_t set = 0;

    if (file_read(AT_FDCWD, "/proc/self/status", &text, NULL) < 0)
        return 0;
    at = strstr(buf_cstr(&text), "CapEff:\t");
    if (!at || !hex_decode(slice_of(at + 8, 16), raw, sizeof raw))
        return 0;
    for (size_t i = 0; i < sizeof raw; i++)
        set = set << 8 | raw[i];
    return set;
}

void probe_root(const struct probe_env *env, struct probe_check *ret)
{
    uint64_t have = effective_capabilities();
    char lacking[160] = "";

    if (geteuid() != 0) {
        probe_set(ret, PROBE_MISSING,
                  "the service runs as root; what only root can try was not tried",
                  "run it as root (sudo abx doctor, sudo abx serve)", "user %u", geteuid());
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
        size_t n = strlen(lacking);

        if (!(have & 1ull << needed[i].bit))
            (void)snprintf(lacking + n, sizeof lacking - n, " CAP_%s", needed[i].name);
    }
    if (lacking[0])
        probe_set(ret, PROBE_MISSING, "root is restricted here, as in a container",
                  "in a container: --privileged, or --cap-add for each of these", "root without%s",
                  lacking);
    else if (!(have & 1ull << CAP_BIT_SYS_RESOURCE))
        probe_set(ret, PROBE_OK, "", "",
                  "root; without CAP_SYS_RESOURCE, so hard limits stay as they are");
    else
        probe_set(ret, PROBE_OK, "", "", "root with all capabilities needed");
}

void probe_kernel(const struct probe_env *env, struct probe_check *ret)
{
    struct utsname u;
    uint64_t major = 0, minor = 0;
    const char *dot;

    if (uname(&u) < 0)
        return;
    dot = strchr(u.release, '.');
    if (!dot || !str_parse_u64(slice_of(u.release, (size_t)(dot - u.release)), 1000, &major) ||
        !str_parse_u64(slice_of(dot + 1, strspn(dot + 1, "0123456789")), 1000, &minor))
        probe_set(ret, PROBE_DEGRADED, "the version can't be read", "", "%s", u.release);
    else if (major < KERNEL_MAJOR || (major == KERNEL_MAJOR && minor < KERNEL_MINOR))
        probe_set(ret, PROBE_MISSING, "idmapped overlay layers came with Linux 5.19",
                  "a newer kernel: Debian 12, Ubuntu 22.04 with the HWE kernel, or later",
                  "Linux %s", u.release);
    else
        probe_set(ret, PROBE_OK, "", "", "Linux %s", u.release);
}

/* Clones with `flags` under the effective uid `base`, as the spawner does, and maps base.. in it.
 * The child calls fn and exits with what it returns. -errno, or the child's exit status. */
static int run_in_userns(uint64_t flags, uid_t base, int (*fn)(void))
{
    struct clone_args args = { .flags = flags | CLONE_NEWUSER, .exit_signal = SIGCHLD };
    int sync[2], status, saved;
    char path[64], byte;
    long pid;

    if (pipe2(sync, O_CLOEXEC) < 0)
        return -errno;
    (void)prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP);
    if (syscall(SYS_setresuid, -1, base, -1) < 0)
        return -errno;
    pid = syscall(SYS_clone3, &args, sizeof args);
    saved = errno;
    if (pid == 0) {
        fd_close(sync[1]);
        if (read(sync[0], &byte, 1) != 1 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
            _exit(NOT_MAPPED);
        _exit(fn());
    }
    if (syscall(SYS_setresuid, -1, 0, -1) < 0)
        return -errno;
    if (pid < 0)
        return -saved;
    (void)snprintf(path, sizeof path, "/proc/%ld/uid_map", pid);
    if (file_printf(AT_FDCWD, path, NULL, "0 %u %u", base, UID_RANGE_SIZE) == 0) {
        (void)snprintf(path, sizeof path, "/proc/%ld/gid_map", pid);
        if (file_printf(AT_FDCWD, path, NULL, "0 %u %u", base, UID_RANGE_SIZE) == 0)
            (void)fd_write_all(sync[1], "g", 1);
    }
    fd_close(sync[0]);
    fd_close(sync[1]);
    if (waitpid((pid_t)pid, &status, 0) < 0)
        return -errno;
    if (!WIFEXITED(status) || WEXITSTATUS(status) == NOT_MAPPED)
        return -EPERM;
    return WEXITSTATUS(status);
}

static int mount_tmpfs(void)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return errno;
    return mount("tmpfs", "/tmp", "tmpfs", 0, "size=4k") < 0 ? errno : 0;
}

static int mount_proc(void)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return errno;
    return mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 ? errno : 0;
}

static void read_number(const char *path, char *to, size_t size)
{
    if (cgroup_read_text(AT_FDCWD, path, to, size, NULL) < 0)
        (void)snprintf(to, size, "-");
    to[strcspn(to, "\n")] = '\0';
}

void probe_userns(const struct probe_env *env, struct probe_check *ret)
{
    int r = run_in_userns(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC,
                          UID_RANGE_LAST + 1 - UID_RANGE_SIZE, mount_tmpfs);
    char most[32], restricted[32];

    read_number("/proc/sys/user/max_user_namespaces", most, sizeof most);
    read_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", restricted,
                sizeof restricted);
    if (r == 0)
        probe_set(ret, PROBE_OK, "", "", "work (at most %s)", most);
    else if (strcmp(most, "0") == 0 || r == -ENOSPC)
        probe_set(ret, PROBE_MISSING, "sandboxes live in user namespaces",
                  "sysctl -w user.max_user_namespaces=65536", "forbidden (at most %s)", most);
    else if (restricted[0] == '1')
        probe_set(
            ret, PROBE_MISSING, "AppArmor takes all rights away from new user namespaces",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile "
            "with `userns,` for abx-engine",
            "restricted by AppArmor: %s", strerror(r < 0 ? -r : r));
    else if (r == -EPERM) /* to root: a filter, or in a chroot */
        probe_set(ret, PROBE_MISSING, "sandboxes live in user namespaces",
                  "in a container: --privileged; in a chroot there are none: run it outside",
                  "refused: %s", strerror(-r));
    else
        probe_set(ret, PROBE_MISSING, "sandboxes live in user namespaces",
                  "a kernel with CONFIG_USER_NS", "fail: %s", strerror(r < 0 ? -r : r));
}

void probe_proc(const struct probe_env *env, struct probe_check *ret)
{
    int r =
        run_in_userns(CLONE_NEWNS | CLONE_NEWPID, UID_RANGE_LAST + 1 - UID_RANGE_SIZE, mount_proc);

    if (r == 0)
        probe_set(ret, PROBE_OK, "", "", "a sandbox can have its own /proc");
    else
        probe_set(
            ret, PROBE_MISSING,
            "the kernel gives a new namespace no /proc while the only one here is partly covered",
            "in a container: --privileged, or --security-opt systempaths=unconfined",
            "mount of proc in a new namespace fails: %s", strerror(r < 0 ? -r : r));
}

void probe_seccomp(const struct probe_env *env, struct probe_check *ret)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { .len = ARRAY_SIZE(code), .filter = code };

    /* Without no_new_privs, as for sandboxes, which keep their setuid programs. */
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0 &&
        syscall(SYS_getppid) == -1 && errno == ENOSYS)
        probe_set(ret, PROBE_OK, "", "", "filters work");
    else
        probe_set(ret, PROBE_MISSING, "system calls of sandboxes must be filtered",
                  "a kernel with CONFIG_SECCOMP_FILTER", "no filter can be loaded: %s",
                  strerror(errno));
}

void probe_clone3(const struct probe_env *env, struct probe_check *ret)
{
    struct cgroup_open_opts opts = { .without_move = true };
    struct cgroup_limits limits = { 0 };
    struct clone_args args = { .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD };
    struct cgroup_tree *t = NULL;
    char instance[32];
    int fd = -EBADF, e = 0;
    long pid = -1;

    (void)snprintf(instance, sizeof instance, "probe%d", (int)getpid());
    if (cgroup_tree_open_with(instance, &opts, &t, NULL) < 0) {
        probe_set(ret, PROBE_INFO, "", "", "not tried: see cgroup-limits");
        return;
    }
    if (cgroup_create(t, "p", &limits, 0, NULL) == 0 &&
        cgroup_open_v2(t, "p", CGROUP_USER, &fd, NULL) == 0 && fd >= 0) {
        args.cgroup = (uint64_t)fd;
        pid = syscall(SYS_clone3, &args, sizeof args);
        e = errno;
        if (pid == 0)
            _exit(0);
        if (pid > 0)
            (void)waitpid((pid_t)pid, NULL, 0);
    }
    (void)cgroup_remove(t, "p", NULL);
    (void)cgroup_tree_remove(t, NULL);
    if (pid > 0)
        probe_set(ret, PROBE_OK, "", "", "works");
    else
        probe_set(ret, PROBE_DEGRADED,
                  "processes are moved after their start, which can take 10 ms", "a cgroup v2 tree",
                  "%s", fd < 0 ? "no cgroup v2 tree" : strerror(e));
}

void probe_netns(const struct probe_env *env, struct probe_check *ret)
{
    struct abx_err err = { 0 };
    int fd = -EBADF, sock = -EBADF;

    if (netns_create(&fd, &err) == 0 && netns_listen_tcp(fd, 80, 8, &sock, &err) == 0)
        probe_set(ret, PROBE_OK, "", "", "work");
    else
        probe_set(ret, PROBE_MISSING, "every sandbox has a network of its own",
                  "a kernel with CONFIG_NET_NS; in a container: --privileged", "%.200s", err.msg);
}

/* What is dialled in the namespace has to come to our socket. */
static int dial_inside(void *user, struct abx_err *err)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(443) };
    _cleanup_(closep) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)user;
    (void)inet_pton(AF_INET, "192.0.2.1", &to.sin_addr);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&to, sizeof to) < 0)
        return err_sys(err, errno, "dial where steering leads");
    return 0;
}

static const char *steering_fix(const struct abx_err *err)
{
    if (err->sys == EPERM || err->sys == EACCES)
        return "CAP_BPF (or CAP_SYS_ADMIN) and CAP_NET_ADMIN for the service, and a seccomp "
               "profile that lets it call "
               "bpf(2); in a container: --privileged";
    if (err->sys == ENOSYS || err->sys == EINVAL || err->sys == EOPNOTSUPP)
        return "a kernel with CONFIG_BPF_SYSCALL, CONFIG_BPF_JIT, CONFIG_NET_SOCK_MSG (sockmap) "
               "and CONFIG_INET";
    return "in a container: --privileged";
}

void probe_steering(const struct probe_env *env, struct probe_check *ret)
{
    _cleanup_(closep) int netns = -EBADF;
    struct abx_err err = { 0 };
    int fds[STEER_FDS];
    int r = netns_create(&netns, &err);

    if (r == 0)
        r = steer_open(netns, fds, &err);
    if (r == 0) {
        r = netns_call(netns, dial_inside, NULL, &err);
        packet_close_fds(fds, STEER_FDS);
    }
    if (r == 0)
        probe_set(ret, PROBE_OK, "", "", "what sandboxes dial can be steered (sk_lookup)");
    else
        probe_set(ret, PROBE_DEGRADED, "sandboxes have no network; everything else works",
                  steering_fix(&err), "%.200s", err.msg);
}
