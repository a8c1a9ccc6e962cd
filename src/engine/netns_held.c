/* netns_held.c - which network namespaces the descriptors of a process keep alive. See netns.h.
 *
 * A namespace lives as long as a process, a mount, a handle or a socket of it. Only a copy of a socket
 * tells where it belongs (pidfd_getfd, then SIOCGSKNS), so this takes one and lets it go again.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "engine/netns.h"

struct search {
    int pidfd;
    int fds_fd; /* /proc/<pid>/fd */
    ino_t own;
    int (*fn)(void *user, int fd, int netns_fd, ino_t inode);
    void *user;
};

static int bind_own_address(void *user, struct abx_err *err)
{
    struct sockaddr_in a = { .sin_family = AF_INET };
    _cleanup_(closep) int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    (void)user;
    if (fd < 0 || inet_pton(AF_INET, NETNS_OWN_ADDRESS, &a.sin_addr) != 1 ||
        bind(fd, (const struct sockaddr *)&a, sizeof a) < 0)
        return err_sys(err, errno, "bind '%s'", NETNS_OWN_ADDRESS);
    return 0;
}

bool netns_is_ours(int netns_fd)
{
    return netns_call(netns_fd, bind_own_address, NULL, NULL) == 0;
}

/* What may keep a namespace alive: "socket:[N]" and "net:[N]". */
static bool is_of_interest(int fds_fd, const char *name, bool *ret_is_socket)
{
    char target[64];
    ssize_t n = readlinkat(fds_fd, name, target, sizeof target - 1);

    target[MAX(n, 0)] = '\0';
    *ret_is_socket = strncmp(target, "socket:", 7) == 0;
    return *ret_is_socket || strncmp(target, "net:", 4) == 0;
}

static int look_at(const struct search *s, const char *name, struct abx_err *err)
{
    _cleanup_(closep) int copy = -EBADF;
    _cleanup_(closep) int of_socket = -EBADF;
    bool is_socket;
    struct stat st;
    uint64_t fd;

    if (!str_parse_u64(slice_str(name), INT32_MAX, &fd) ||
        !is_of_interest(s->fds_fd, name, &is_socket))
        return 0;
    copy = (int)syscall(SYS_pidfd_getfd, s->pidfd, (int)fd, 0);
    if (copy < 0 && (errno == EBADF || errno == ESRCH))
        return 0; /* closed meanwhile */
    if (copy < 0)
        return err_sys(err, errno, "take a copy of a descriptor");
    if (is_socket) {
        of_socket = ioctl(copy, SIOCGSKNS);
        if (of_socket < 0)
            return err_sys(err, errno, "ask for a socket's network namespace");
    }
    if (fstat(is_socket ? of_socket : copy, &st) < 0)
        return err_sys(err, errno, "network namespace");
    if (st.st_ino == s->own)
        return 0;
    return s->fn(s->user, (int)fd, is_socket ? of_socket : copy, st.st_ino);
}

static int look_at_all(struct search *s, struct abx_err *err)
{
    _cleanup_(closedirp) DIR *d = fdopendir(s->fds_fd);
    struct dirent *e;
    int r = 0;

    if (!d) {
        fd_close(s->fds_fd);
        return err_oom(err);
    }
    while (r == 0 && (errno = 0, e = readdir(d)) != NULL)
        r = look_at(s, e->d_name, err);
    /* It ended while it was read. */
    return r == 0 && errno != 0 && errno != ENOENT && errno != ESRCH
               ? err_sys(err, errno, "list descriptors")
               : r;
}

int netns_each_held(pid_t pid, int (*fn)(void *user, int fd, int netns_fd, ino_t inode), void *user,
                    struct abx_err *err)
{
    _cleanup_(closep) int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct search s = { .pidfd = pidfd, .fn = fn, .user = user };
    struct abx_err why = { 0 };
    char path[64];
    struct stat st;
    int r;

    if (pidfd < 0)
        return errno == ESRCH ? 0 : err_sys(err, errno, "open process %d", (int)pid);
    if (stat("/proc/thread-self/ns/net", &st) < 0)
        return err_sys(err, errno, "own network namespace");
    s.own = st.st_ino;
    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    s.fds_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s.fds_fd < 0)
        return errno == ENOENT || errno == ESRCH ? 0 : err_sys(err, errno, "open '%s'", path);
    r = look_at_all(&s, &why);
    if (r < 0 && why.code != 0) {
        if (err)
            *err = why;
        return err_wrap(err, r, "process %d", (int)pid);
    }
    return r;
}
