/* supervisor_listen.c - see supervisor_listen.h. */
#include "cli/supervisor_listen.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/process.h"
#include "base/str.h"
#include "net/port_holder.h"

#define BACKLOG 4096
#define SYSTEMD_FIRST_FD 3

int listen_address_parse(const char *option, const char *text, struct listen_address *ret,
                         struct abx_err *err)
{
    const char *colon = strrchr(text, ':');
    const char *host = text;
    size_t n = colon ? (size_t)(colon - text) : 0;
    struct in6_addr probe;
    uint64_t port;
    bool is_v6 = false;

    if (!colon || !str_parse_u64(slice_str(colon + 1), 65535, &port))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "%s '%s' is not HOST:PORT with a port up to 65535", option, text);
    if (n >= 2 && host[0] == '[' && host[n - 1] == ']') {
        host++;
        n -= 2;
        is_v6 = true;
    }
    if (n >= sizeof ret->host)
        return err_set(err, ABX_INVALID_ARGUMENT, "%s: host is over %zu bytes", option,
                       sizeof ret->host - 1);
    memcpy(ret->host, host, n);
    ret->host[n] = '\0';
    if (n == 0)
        (void)snprintf(ret->host, sizeof ret->host, "0.0.0.0");
    else if (strcmp(ret->host, "localhost") == 0)
        (void)snprintf(ret->host, sizeof ret->host, "127.0.0.1");
    if (inet_pton(is_v6 ? AF_INET6 : AF_INET, ret->host, &probe) != 1)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "%s: '%s' is not an address (names are not looked up; IPv6 in brackets)",
                       option, ret->host);
    ret->port = (uint16_t)port;
    return 0;
}

static socklen_t address_fill(const struct listen_address *a, struct sockaddr_storage *ss)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)ss;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ss;

    memset(ss, 0, sizeof *ss);
    if (inet_pton(AF_INET, a->host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(a->port);
        return sizeof *v4;
    }
    (void)inet_pton(AF_INET6, a->host, &v6->sin6_addr);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(a->port);
    return sizeof *v6;
}

bool listen_address_is_loopback(const struct listen_address *a)
{
    return strncmp(a->host, "127.", 4) == 0 || strcmp(a->host, "::1") == 0;
}

/* Where a listening TCP socket is reached. */
static int address_of_socket(int fd, struct listen_address *ret, struct abx_err *err)
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof ss;

    if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0)
        return err_sys(err, errno, "getsockname");
    if (ss.ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)&ss;

        (void)inet_ntop(AF_INET, &v4->sin_addr, ret->host, sizeof ret->host);
        ret->port = ntohs(v4->sin_port);
    } else if (ss.ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&ss;

        (void)inet_ntop(AF_INET6, &v6->sin6_addr, ret->host, sizeof ret->host);
        ret->port = ntohs(v6->sin6_port);
    } else {
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "the socket passed by the service manager is not a TCP socket");
    }
    return 0;
}

static int listen_once(struct listen_address *a, bool is_shared, int *ret_fd, struct abx_err *err)
{
    struct sockaddr_storage ss;
    socklen_t len = address_fill(a, &ss);
    _cleanup_(closep) int fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int one = 1;

    if (fd < 0)
        return err_sys(err, errno, "socket");
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
        (is_shared && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) < 0))
        return err_sys(err, errno, "socket options");
    if (bind(fd, (struct sockaddr *)&ss, len) < 0 || listen(fd, BACKLOG) < 0)
        return err_sys(err, errno, "listen on %s port %u", a->host, a->port);
    if (a->port == 0) {
        int r = address_of_socket(fd, a, err);

        if (r < 0)
            return r;
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* Does a process that goes on living listen there? Seen twice: between its SIGKILL and the mark of its end, and while
 * it becomes a role that is to be killed, one looks alive for a moment. */
static bool is_held(const struct listen_address *a, char holder[PORT_HOLDER_SIZE])
{
    static const struct timespec pause = { .tv_nsec = 10 * NSEC_PER_MSEC };
    pid_t pid = port_holder_find(a->host, a->port, holder, PORT_HOLDER_SIZE);

    if (pid == 0 || process_is_ending(pid))
        return false;
    (void)nanosleep(&pause, NULL);
    return port_holder_find(a->host, a->port, holder, PORT_HOLDER_SIZE) == pid &&
           !process_is_ending(pid);
}

static int listen_one(struct listen_address *a, bool is_shared, struct predecessor *predecessor,
                      int *ret_fd, struct abx_err *err)
{
    char what[sizeof a->host + 32], holder[PORT_HOLDER_SIZE];
    struct abx_err why = { 0 };

    (void)snprintf(what, sizeof what, "port %u on %s", a->port, a->host);
    while (listen_once(a, is_shared, ret_fd, &why) < 0) {
        if (why.sys != EADDRINUSE) {
            if (err)
                *err = why;
            return why.code;
        }
        if (is_held(a, holder) || !predecessor_wait(predecessor, what))
            return err_set(err, ABX_FAILED_PRECONDITION,
                           "%s is taken by %s: stop it or choose another address", what, holder);
    }
    return 0;
}

/* The socket that systemd passed (sd_listen_fds(3)), -EBADF when it passed none. */
static int systemd_fd(void)
{
    const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
    uint64_t v, n;

    if (!pid || !fds || !str_parse_u64(slice_str(pid), UINT32_MAX, &v) || v != (uint64_t)getpid() ||
        !str_parse_u64(slice_str(fds), 1024, &n) || n < 1)
        return -EBADF;
    return SYSTEMD_FIRST_FD;
}

int listen_shared(struct listen_address *address, size_t n, struct predecessor *predecessor,
                  int *ret_fds, struct abx_err *err)
{
    int first = -EBADF;
    int r;

    /* A first try without SO_REUSEPORT: two services of one uid would share the port in silence. */
    r = listen_one(address, false, predecessor, &first, err);
    if (r < 0)
        return r;
    fd_close(first);
    for (size_t i = 0; i < n; i++) {
        r = listen_one(address, true, predecessor, &ret_fds[i], err);
        if (r < 0)
            return r;
    }
    return 0;
}

int listen_public(struct listen_address *address, size_t n, struct predecessor *predecessor,
                  int *ret_fds, struct abx_err *err)
{
    int inherited = systemd_fd();
    int r;

    for (size_t i = 0; i < n; i++)
        ret_fds[i] = -EBADF;
    if (inherited < 0)
        return listen_shared(address, n, predecessor, ret_fds, err);
    r = address_of_socket(inherited, address, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++) {
        ret_fds[i] = fcntl(inherited, F_DUPFD_CLOEXEC, SYSTEMD_FIRST_FD);
        if (ret_fds[i] < 0)
            return err_sys(err, errno, "socket passed by systemd");
    }
    return 0;
}

int listen_unix(int dirfd, const char *name, int type, uid_t uid, int *ret_fd, struct abx_err *err)
{
    _cleanup_(closep) int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un un = { .sun_family = AF_UNIX };

    if (fd < 0)
        return err_sys(err, errno, "socket");
    /* By the folder's fd: a data dir's path may be longer than sun_path. */
    if (snprintf(un.sun_path, sizeof un.sun_path, "/proc/self/fd/%d/%s", dirfd, name) >=
        (int)sizeof un.sun_path)
        return err_set(err, ABX_INTERNAL, "socket name '%s' is too long", name);
    if (unlinkat(dirfd, name, 0) < 0 && errno != ENOENT)
        return err_sys(err, errno, "remove '%s'", name);
    if (bind(fd, (struct sockaddr *)&un, sizeof un) < 0 || listen(fd, BACKLOG) < 0)
        return err_sys(err, errno, "listen on '%s'", name);
    if (fchownat(dirfd, name, uid, uid, AT_SYMLINK_NOFOLLOW) < 0 ||
        fchmodat(dirfd, name, 0600, 0) < 0)
        return err_sys(err, errno, "owner of '%s'", name);
    *ret_fd = TAKE_FD(fd);
    return 0;
}
