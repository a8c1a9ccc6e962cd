/* guest_tool.c - runs abx-guest as an engine would, in a cheap private environment, for tests.
 *
 * usage: guest_tool IMAGE PORT CONTROL-NAME DIR
 *
 * New pid, mount, ipc and uts namespaces; own /proc; DIR/passwd and DIR/group over those of the
 * host; fresh tmpfs on /run, /home (with /home/user and /home/other) and, 2 MiB, /mnt. envd listens on
 * 127.0.0.1:PORT, the control channel on the abstract name. Prints "ready" when both processes have
 * been made. Ends, with everything in the namespace, when it is killed or its stdin closes.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/str.h"
#include "e2b/guest_abi.h"

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    perror(what);
    _exit(1);
}

static int listen_tcp(uint16_t port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    check(bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, 512) == 0, "listen");
    return fd;
}

static int listen_control(const char *name)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    size_t n = strlen(name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);

    check(n < sizeof(a.sun_path) - 1, "control name");
    memcpy(a.sun_path + 1, name, n);
    check(bind(fd, (struct sockaddr *)&a,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) == 0 &&
              listen(fd, 8) == 0,
          "control channel");
    return fd;
}

static void bind_over(const char *dir, const char *name)
{
    char from[4096], to[64];

    (void)snprintf(from, sizeof(from), "%s/%s", dir, name);
    (void)snprintf(to, sizeof(to), "/etc/%s", name);
    check(mount(from, to, NULL, MS_BIND, NULL) == 0, to);
}

static void make_home(const char *path, uid_t uid)
{
    check(mkdir(path, 0755) == 0 && chown(path, uid, uid) == 0, path);
}

static void make_mounts(const char *dir)
{
    check(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "private mounts");
    check(mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0, "/proc");
    check(mount("tmpfs", "/run", "tmpfs", 0, "mode=755") == 0, "/run");
    check(mount("tmpfs", "/home", "tmpfs", 0, "mode=755") == 0, "/home");
    check(mount("tmpfs", "/mnt", "tmpfs", 0, "mode=1777,size=2m") == 0, "/mnt");
    make_home("/home/user", 1000);
    make_home("/home/other", 1001);
    bind_over(dir, "passwd");
    bind_over(dir, "group");
}

static void run_image(const char *role)
{
    static const char *const passed[] = { "ASAN_OPTIONS", "UBSAN_OPTIONS" }; /* of the test run */
    char image[] = "abx-guest", what[16], path[] = "PATH=" GUEST_PATH, options[2][1024];
    char *argv[] = { image, what, NULL }, *envp[4] = { path };

    (void)snprintf(what, sizeof(what), "%s", role);
    for (size_t i = 0, n = 1; i < 2; i++) {
        if (!getenv(passed[i]))
            continue;
        (void)snprintf(options[i], sizeof(options[i]), "%s=%s", passed[i], getenv(passed[i]));
        envp[n++] = options[i];
    }
    (void)fexecve(GUEST_FD_SELF, argv, envp);
    perror("exec");
    _exit(1);
}

static void run_init(const int fds[GUEST_FD_COUNT], const char *dir)
{
    pid_t pid;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setsid();
    make_mounts(dir);
    for (int i = 0; i < GUEST_FD_COUNT; i++)
        check(dup2(fds[i], GUEST_FD_ENVD + i) >= 0, "dup2");
    pid = fork();
    check(pid >= 0, "fork");
    run_image(pid == 0 ? "daemon" : "init");
}

int main(int argc, char **argv)
{
    int fds[GUEST_FD_COUNT], pair[2], status = 0;
    uint64_t port;
    char byte;
    pid_t pid;

    if (argc != 5 || !str_parse_u64(slice_str(argv[2]), 65535, &port)) {
        fprintf(stderr, "usage: guest_tool IMAGE PORT CONTROL-NAME DIR\n");
        return 2;
    }
    check(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0, "socketpair");
    fds[0] = listen_tcp((uint16_t)port);
    fds[1] = listen_control(argv[3]);
    fds[2] = pair[0];
    fds[3] = pair[1];
    fds[4] = open(argv[1], O_PATH);
    check(fds[4] >= 0, argv[1]);
    for (int i = 0; i < GUEST_FD_COUNT; i++)
        fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 64); /* out of the way of their final numbers */
    for (int fd = 3; fd < 64; fd++)
        (void)close(fd);
    check(unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS) == 0, "unshare");
    pid = fork();
    check(pid >= 0, "fork");
    if (pid == 0)
        run_init(fds, argv[4]);
    printf("ready %d\n", pid);
    (void)fflush(stdout);
    while (read(0, &byte, 1) > 0) {
    }
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
    _exit(0); /* not through a leak check, which cannot run in front of the namespace */
}
