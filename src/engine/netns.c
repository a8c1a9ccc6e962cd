/* netns.c - making network namespaces, and sockets inside them. See netns.h.
 *
 * All work inside another namespace goes through netns_inside(), which moves the calling thread and
 * brings it back; a thread that cannot go back would act for a sandbox with the host's rights, so
 * the process aborts. Route messages are built with libmnl, one request at a time.
 */
#include "engine/netns.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"

#define LO_INDEX 1
#define OWN_NETNS "/proc/thread-self/ns/net"

/* Runs `fn` in `netns_fd`, or in a new namespace when that is negative. */
static int netns_inside(int netns_fd, int (*fn)(void *user, struct abx_err *err), void *user,
                        struct abx_err *err)
{
    _cleanup_(closep) int home = open(OWN_NETNS, O_RDONLY | O_CLOEXEC);
    int r;

    if (home < 0)
        return err_sys(err, errno, "open '%s'", OWN_NETNS);
    r = netns_fd < 0 ? unshare(CLONE_NEWNET) : setns(netns_fd, CLONE_NEWNET);
    if (r < 0)
        return err_sys(err, errno,
                       netns_fd < 0 ? "new network namespace" : "enter network namespace");
    r = fn(user, err);
    if (setns(home, CLONE_NEWNET) < 0)
        abort();
    return r;
}

int netns_call(int netns_fd, int (*fn)(void *user, struct abx_err *err), void *user,
               struct abx_err *err)
{
    if (netns_fd < 0)
        return err_set(err, ABX_INVALID_ARGUMENT, "no network namespace given");
    return netns_inside(netns_fd, fn, user, err);
}

/* ---- what a new namespace gets ---- */

struct request {
    struct mnl_socket *nl;
    char bytes[512] __attribute__((aligned(8)));
    struct nlmsghdr *head;
};

static void *request_init(struct request *q, uint16_t type, uint16_t flags, size_t body)
{
    q->head = mnl_nlmsg_put_header(q->bytes);
    q->head->nlmsg_type = type;
    q->head->nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
    q->head->nlmsg_seq = type;
    return mnl_nlmsg_put_extra_header(q->head, body);
}

static int request_send(struct request *q, const char *what, struct abx_err *err)
{
    char reply[1024] __attribute__((aligned(8)));
    ssize_t n;

    if (mnl_socket_sendto(q->nl, q->head, q->head->nlmsg_len) < 0)
        return err_sys(err, errno, "netlink, %s", what);
    n = mnl_socket_recvfrom(q->nl, reply, sizeof reply);
    if (n < 0)
        return err_sys(err, errno, "netlink, %s", what);
    if (mnl_cb_run(reply, (size_t)n, q->head->nlmsg_seq, mnl_socket_get_portid(q->nl), NULL, NULL) <
        0)
        return err_sys(err, errno, "netlink, %s", what);
    return 0;
}

static int lo_up(struct request *q, struct abx_err *err)
{
    struct ifinfomsg *link = request_init(q, RTM_NEWLINK, 0, sizeof *link);

    link->ifi_family = AF_UNSPEC;
    link->ifi_index = LO_INDEX;
    link->ifi_flags = IFF_UP;
    link->ifi_change = IFF_UP;
    return request_send(q, "raise lo", err);
}

static int lo_address(struct request *q, uint32_t own, struct abx_err *err)
{
    struct ifaddrmsg *addr = request_init(q, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sizeof *addr);

    addr->ifa_family = AF_INET;
    addr->ifa_prefixlen = 32;
    addr->ifa_index = LO_INDEX;
    addr->ifa_scope = RT_SCOPE_UNIVERSE;
    mnl_attr_put_u32(q->head, IFA_LOCAL, own);
    mnl_attr_put_u32(q->head, IFA_ADDRESS, own);
    return request_send(q, "address of lo", err);
}

/* Every address is local: connections end in this namespace's own socket lookup. */
static int local_default(struct request *q, uint32_t own, struct abx_err *err)
{
    struct rtmsg *route = request_init(q, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sizeof *route);

    route->rtm_family = AF_INET;
    route->rtm_table = RT_TABLE_LOCAL;
    route->rtm_type = RTN_LOCAL;
    route->rtm_protocol = RTPROT_BOOT;
    route->rtm_scope = RT_SCOPE_HOST;
    mnl_attr_put_u32(q->head, RTA_OIF, LO_INDEX);
    mnl_attr_put_u32(q->head, RTA_PREFSRC, own);
    return request_send(q, "local default route", err);
}

/* The same for IPv6, where there is no own address: the kernel takes ::1 as the source. A host without
 * IPv6 does without. */
static int local_default6(struct request *q, struct abx_err *err)
{
    struct rtmsg *route = request_init(q, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sizeof *route);
    struct abx_err why = { 0 };
    int r;

    route->rtm_family = AF_INET6;
    route->rtm_table = RT_TABLE_LOCAL;
    route->rtm_type = RTN_LOCAL;
    route->rtm_protocol = RTPROT_BOOT;
    route->rtm_scope = RT_SCOPE_UNIVERSE;
    mnl_attr_put_u32(q->head, RTA_OIF, LO_INDEX);
    r = request_send(q, "local default route of IPv6", &why);
    if (r == 0 || access("/proc/sys/net/ipv6", F_OK) < 0)
        return 0;
    if (err)
        *err = why;
    return r;
}

static void mnl_closep(struct mnl_socket **nl)
{
    if (*nl)
        (void)mnl_socket_close(*nl);
}

static int configure_lo(struct abx_err *err)
{
    _cleanup_(mnl_closep) struct mnl_socket *nl = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
    struct request q = { .nl = nl };
    uint32_t own;
    int r;

    if (!nl || mnl_socket_bind(nl, 0, MNL_SOCKET_AUTOPID) < 0)
        return err_sys(err, errno, "netlink socket");
    if (inet_pton(AF_INET, NETNS_OWN_ADDRESS, &own) != 1)
        return err_set(err, ABX_INTERNAL, "address '%s'", NETNS_OWN_ADDRESS);
    r = lo_up(&q, err);
    if (r == 0)
        r = lo_address(&q, own, err);
    if (r == 0)
        r = local_default(&q, own, err);
    return r < 0 ? r : local_default6(&q, err);
}

/* The group range covers every sandbox's host gids: a pooled namespace does not know its range yet.
 * Echo replies are off because the kernel would answer for every address as its own. Whatever congestion control the host
 * has, connections in here never leave it: what paces them (bbr) would only cost time. Each kernel has reno. */
static const struct {
    const char *path;
    const char *value;
    bool is_optional; /* the kernel may lack IPv6 */
} sysctls[] = {
    { "/proc/sys/net/ipv4/ip_unprivileged_port_start", "0", false },
    { "/proc/sys/net/ipv4/ping_group_range", "0 2147483647", false },
    { "/proc/sys/net/ipv4/icmp_echo_ignore_all", "1", false },
    { "/proc/sys/net/ipv6/icmp/echo_ignore_all", "1", true },
    { "/proc/sys/net/ipv4/tcp_congestion_control", "reno", false },
};

static int configure_sysctls(struct abx_err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(sysctls); i++) {
        struct abx_err why = { 0 };
        int r = file_write_once(AT_FDCWD, sysctls[i].path, sysctls[i].value,
                                strlen(sysctls[i].value), &why);

        if (r < 0 && !(sysctls[i].is_optional && why.sys == ENOENT)) {
            if (err)
                *err = why;
            return r;
        }
    }
    return 0;
}

static int configure(void *user, struct abx_err *err)
{
    int *ret_fd = user;
    int r = configure_lo(err);
    int fd;

    if (r == 0)
        r = configure_sysctls(err);
    if (r < 0)
        return r;
    fd = open(OWN_NETNS, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "open '%s'", OWN_NETNS);
    *ret_fd = fd;
    return 0;
}

int netns_create(int *ret_fd, struct abx_err *err)
{
    return netns_inside(-1, configure, ret_fd, err);
}

/* ---- sockets ---- */

struct socket_job {
    int domain;
    int type;
    int protocol;
    int fd;
};

static int make_socket(void *user, struct abx_err *err)
{
    struct socket_job *job = user;

    job->fd = socket(job->domain, job->type | SOCK_NONBLOCK | SOCK_CLOEXEC, job->protocol);
    return job->fd < 0 ? err_sys(err, errno, "socket") : 0;
}

int netns_socket(int netns_fd, int domain, int type, int protocol, int *ret_fd, struct abx_err *err)
{
    struct socket_job job = { .domain = domain, .type = type, .protocol = protocol };
    int r = netns_call(netns_fd, make_socket, &job, err);

    if (r < 0)
        return r;
    *ret_fd = job.fd;
    return 0;
}

/* A socket stays in the namespace it was made in, so bind, listen and connect need no second visit. */

static int bind_listen(int fd, const void *address, socklen_t n, int backlog, const char *what,
                       struct abx_err *err)
{
    if (bind(fd, address, n) < 0)
        return err_sys(err, errno, "bind %s", what);
    if (listen(fd, backlog) < 0)
        return err_sys(err, errno, "listen on %s", what);
    return 0;
}

static int listen_tcp4(int netns_fd, uint16_t port, int backlog, int *ret_fd, struct abx_err *err)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
    _cleanup_(closep) int fd = -EBADF;
    int r = netns_socket(netns_fd, AF_INET, SOCK_STREAM, 0, &fd, err);

    if (r == 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int)) < 0)
        r = err_sys(err, errno, "SO_REUSEADDR");
    if (r == 0)
        r = bind_listen(fd, &a, sizeof a, backlog, "0.0.0.0", err);
    if (r < 0)
        return r;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int netns_listen_tcp(int netns_fd, uint16_t port, int backlog, int *ret_fd, struct abx_err *err)
{
    struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    _cleanup_(closep) int fd = -EBADF;
    struct abx_err why = { 0 };
    int r = netns_socket(netns_fd, AF_INET6, SOCK_STREAM, 0, &fd, &why);

    if (r < 0 && why.sys == EAFNOSUPPORT)
        return listen_tcp4(netns_fd, port, backlog, ret_fd, err);
    if (r < 0) {
        if (err)
            *err = why;
        return r;
    }
    if (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){ 0 }, sizeof(int)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int)) < 0)
        return err_sys(err, errno, "options of a listening socket");
    r = bind_listen(fd, &a, sizeof a, backlog, "[::]", err);
    if (r < 0)
        return r;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* The length to pass with the address; 0 when `name` does not fit. */
static socklen_t abstract_address(const char *name, struct sockaddr_un *a)
{
    size_t n = strlen(name);

    *a = (struct sockaddr_un){ .sun_family = AF_UNIX };
    if (n == 0 || n > sizeof a->sun_path - 1)
        return 0;
    memcpy(a->sun_path + 1, name, n);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

/* A socket of the namespace, and the address that it is to be bound or connected to. */
static int abstract_socket(int netns_fd, const char *name, int type, struct sockaddr_un *ret_a,
                           socklen_t *ret_n, int *ret_fd, struct abx_err *err)
{
    *ret_n = abstract_address(name, ret_a);
    if (*ret_n == 0)
        return err_set(err, ABX_INVALID_ARGUMENT, "abstract name '%.32s' has not 1 to 107 bytes",
                       name);
    return netns_socket(netns_fd, AF_UNIX, type, 0, ret_fd, err);
}

int netns_listen_control(int netns_fd, const char *name, int *ret_fd, struct abx_err *err)
{
    struct sockaddr_un a;
    _cleanup_(closep) int fd = -EBADF;
    socklen_t n;
    int r = abstract_socket(netns_fd, name, SOCK_SEQPACKET, &a, &n, &fd, err);

    if (r == 0)
        r = bind_listen(fd, &a, n, 16, name, err);
    if (r < 0)
        return r;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int netns_connect_control(int netns_fd, const char *name, int *ret_fd, struct abx_err *err)
{
    struct sockaddr_un a;
    _cleanup_(closep) int fd = -EBADF;
    socklen_t n;
    int r = abstract_socket(netns_fd, name, SOCK_SEQPACKET, &a, &n, &fd, err);

    if (r < 0)
        return r;
    if (connect(fd, (const struct sockaddr *)&a, n) < 0) {
        if (errno == EAGAIN)
            return err_set(err, ABX_UNAVAILABLE, "control channel '%s' has a full backlog", name);
        return err_sys(err, errno, "connect to control channel '%s'", name);
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int netns_bind_datagrams(int netns_fd, const char *name, int *ret_fd, struct abx_err *err)
{
    struct sockaddr_un a;
    _cleanup_(closep) int fd = -EBADF;
    socklen_t n;
    int r = abstract_socket(netns_fd, name, SOCK_DGRAM, &a, &n, &fd, err);

    if (r < 0)
        return r;
    if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &(int){ 1 }, sizeof(int)) < 0)
        return err_sys(err, errno, "SO_PASSCRED");
    if (bind(fd, (const struct sockaddr *)&a, n) < 0)
        return err_sys(err, errno, "bind '%s'", name);
    *ret_fd = TAKE_FD(fd);
    return 0;
}
