/* hostnet.c - see hostnet.h. Two netlink sockets: one is only told of changes, the other asks and is answered at once. */
#include "egress/hostnet.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/filter.h>
#include <linux/rtnetlink.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macro.h"

#define ADDRESSES_MAX 65536u
#define BUFFER_SIZE 32768u
#define READ_LEAST_MS 100u /* from one reading to the next */

struct list {
    struct range *ranges;
    size_t n;
    bool has_default6, has_global6;
};

struct hostnet {
    uv_poll_t poll;
    uv_timer_t timer; /* runs while a reading waits */
    unsigned n_handles;
    struct mnl_socket *news, *ask;
    struct list list;
    uint64_t read_at; /* loop time */
    bool is_main_due; /* a default route of IPv6 may have changed, too */
    void (*on_change)(void *user);
    void *user;
};

/* --- reading ------------------------------------------------------------------------------------ */

struct reading {
    struct list list;
    bool is_full;
};

static int note_attribute(const struct nlattr *attr, void *data)
{
    const struct nlattr **to = data;

    if (mnl_attr_get_type(attr) == RTA_DST)
        to[0] = attr;
    else if (mnl_attr_get_type(attr) == RTA_TABLE)
        to[1] = attr;
    return MNL_CB_OK;
}

static bool range_of(const struct rtmsg *route, const struct nlattr *dst, struct range *ret)
{
    bool is_v4 = route->rtm_family == AF_INET;
    size_t n = is_v4 ? 4 : 16;

    *ret = (struct range){ .bits = (uint8_t)(route->rtm_dst_len + (is_v4 ? 96 : 0)) };
    if (is_v4)
        ret->prefix.s6_addr[10] = ret->prefix.s6_addr[11] = 0xff;
    if (dst && mnl_attr_get_payload_len(dst) != n)
        return false;
    if (dst)
        memcpy(&ret->prefix.s6_addr[16 - n], mnl_attr_get_payload(dst), n);
    return ret->bits <= 128;
}

static int note_route(const struct nlmsghdr *head, void *data)
{
    struct reading *x = data;
    const struct rtmsg *route = mnl_nlmsg_get_payload(head);
    const struct nlattr *found[2] = { NULL, NULL };
    struct range *more;
    uint32_t table;

    if (head->nlmsg_type != RTM_NEWROUTE ||
        mnl_attr_parse(head, sizeof *route, note_attribute, found) < 0)
        return MNL_CB_OK;
    table = found[1] ? mnl_attr_get_u32(found[1]) : route->rtm_table;
    if (route->rtm_type == RTN_UNICAST && route->rtm_family == AF_INET6 && !route->rtm_dst_len)
        x->list.has_default6 = true;
    if (table != RT_TABLE_LOCAL ||
        (route->rtm_type != RTN_LOCAL && route->rtm_type != RTN_BROADCAST &&
         route->rtm_type != RTN_ANYCAST))
        return MNL_CB_OK;
    if (x->list.n == ADDRESSES_MAX) {
        x->is_full = true;
        return MNL_CB_OK;
    }
    more = reallocarray(x->list.ranges, x->list.n + 1, sizeof *more);
    if (!more) {
        x->is_full = true;
        return MNL_CB_OK;
    }
    x->list.ranges = more;
    if (!range_of(route, found[0], &more[x->list.n]))
        return MNL_CB_OK;
    if (route->rtm_family == AF_INET6 && (more[x->list.n].prefix.s6_addr[0] & 0xe0) == 0x20)
        x->list.has_global6 = true; /* 2000::/3 */
    x->list.n++;
    return MNL_CB_OK;
}

/* Asks for the routes of one family; the kernel answers without waiting for anything. */
static int dump(struct hostnet *h, uint8_t family, uint8_t table, struct reading *x,
                struct abx_err *err)
{
    static char buffer[BUFFER_SIZE] __attribute__((aligned(8)));
    struct nlmsghdr *head = mnl_nlmsg_put_header(buffer);
    unsigned port = mnl_socket_get_portid(h->ask);
    struct rtmsg *route;
    ssize_t n;
    int r;

    head->nlmsg_type = RTM_GETROUTE;
    head->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    head->nlmsg_seq = 1;
    route = mnl_nlmsg_put_extra_header(head, sizeof *route);
    route->rtm_family = family;
    route->rtm_table = table;
    if (mnl_socket_sendto(h->ask, head, head->nlmsg_len) < 0)
        return err_sys(err, errno, "ask for the host's routes");
    do {
        n = mnl_socket_recvfrom(h->ask, buffer, sizeof buffer);
        if (n < 0)
            return err_sys(err, errno, "read the host's routes");
        r = mnl_cb_run(buffer, (size_t)n, 1, port, note_route, x);
    } while (r == MNL_CB_OK);
    return r < 0 ? err_sys(err, errno, "read the host's routes") : 0;
}

/* The main table, which may be that of a big router, only when it counts. */
static int read_all(struct hostnet *h, struct abx_err *err)
{
    struct reading x = { .list.has_default6 = !h->is_main_due && h->list.has_default6 };
    int r = dump(h, AF_INET, RT_TABLE_LOCAL, &x, err);

    if (r == 0)
        r = dump(h, AF_INET6, RT_TABLE_LOCAL, &x, err);
    if (r == 0 && h->is_main_due)
        r = dump(h, AF_INET6, RT_TABLE_MAIN, &x, err);
    if (r == 0 && x.is_full)
        r = err_set(err, ABX_RESOURCE_EXHAUSTED, "the host has over %u addresses", ADDRESSES_MAX);
    if (r < 0) {
        free(x.list.ranges);
        return r;
    }
    free(h->list.ranges);
    h->list = x.list;
    h->is_main_due = false;
    return 0;
}

/* --- following ---------------------------------------------------------------------------------- */

/* Without a list that holds nobody is let out, so a failure ends the process; its successor tries again. */
static void read_again(struct hostnet *h)
{
    struct abx_err err;

    if (read_all(h, &err) < 0) {
        log_err("the host's addresses cannot be followed", &err);
        abort();
    }
    h->read_at = uv_now(h->poll.loop);
    h->on_change(h->user);
}

static void on_timer(uv_timer_t *timer)
{
    read_again(container_of(timer, struct hostnet, timer));
}

/* Of what passes the filter, what is not about the local table is about a default route of IPv6. */
static int note_news(const struct nlmsghdr *head, void *data)
{
    struct hostnet *h = data;
    const struct rtmsg *route = mnl_nlmsg_get_payload(head);

    h->is_main_due |=
        mnl_nlmsg_get_payload_len(head) < sizeof *route || route->rtm_table != RT_TABLE_LOCAL;
    return MNL_CB_OK;
}

/* All that is there. Some may have been lost: then anything may have changed. */
static void take_news(struct hostnet *h)
{
    static char buffer[BUFFER_SIZE] __attribute__((aligned(8)));

    for (;;) {
        ssize_t n = recv(mnl_socket_get_fd(h->news), buffer, sizeof buffer, MSG_DONTWAIT);

        if (n > 0) {
            (void)mnl_cb_run(buffer, (size_t)n, 0, 0, note_news, h);
        } else if (n < 0 && errno == ENOBUFS) {
            h->is_main_due = true;
        } else if (n == 0 || errno != EINTR) {
            return;
        }
    }
}

/* What exactly the news say does not matter: everything is read again, at once or, when that was just done, soon. */
static void on_news(uv_poll_t *poll, int status, int events)
{
    struct hostnet *h = container_of(poll, struct hostnet, poll);
    uint64_t quiet = uv_now(poll->loop) - h->read_at;

    (void)events;
    take_news(h);
    if (status < 0) { /* libuv stops watching after an error: news were lost */
        h->is_main_due = true;
        (void)uv_poll_start(poll, UV_READABLE, on_news);
    }
    if (uv_is_active((uv_handle_t *)&h->timer))
        return;
    if (quiet >= READ_LEAST_MS)
        read_again(h);
    else
        (void)uv_timer_start(&h->timer, on_timer, READ_LEAST_MS - quiet, 0);
}

/* The kernel then queues what is about the local table or a default route of IPv6, and not each route that a router
 * learns. One message is one packet. */
static int filter_news(int fd)
{
    const unsigned at = sizeof(struct nlmsghdr);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, at + offsetof(struct rtmsg, rtm_table)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RT_TABLE_LOCAL, 4, 0),
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, at + offsetof(struct rtmsg, rtm_family)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 3),
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, at + offsetof(struct rtmsg, rtm_dst_len)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    const struct sock_fprog program = { ARRAY_SIZE(code), code };

    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

static int open_sockets(struct hostnet *h, struct abx_err *err)
{
    const unsigned groups = RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE;
    const int one = 1;

    h->news = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC | SOCK_NONBLOCK);
    h->ask = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
    if (!h->news || !h->ask || filter_news(mnl_socket_get_fd(h->news)) < 0 ||
        mnl_socket_bind(h->news, groups, MNL_SOCKET_AUTOPID) < 0 ||
        mnl_socket_bind(h->ask, 0, MNL_SOCKET_AUTOPID) < 0)
        return err_sys(err, errno, "netlink socket");
    /* The kernel then sends that one table, not every route of a big router. */
    if (mnl_socket_setsockopt(h->ask, NETLINK_GET_STRICT_CHK, (void *)(uintptr_t)&one, sizeof one) <
        0)
        return err_sys(err, errno, "netlink socket");
    return 0;
}

static void free_all(struct hostnet *h)
{
    if (h->news)
        (void)mnl_socket_close(h->news);
    if (h->ask)
        (void)mnl_socket_close(h->ask);
    free(h->list.ranges);
    free(h);
}

int hostnet_open(uv_loop_t *loop, void (*on_change)(void *user), void *user, struct hostnet **ret,
                 struct abx_err *err)
{
    struct hostnet *h = calloc(1, sizeof *h);
    int r;

    if (!h)
        return err_oom(err);
    h->on_change = on_change;
    h->user = user;
    h->is_main_due = true;
    r = open_sockets(h, err);
    if (r == 0)
        r = read_all(h, err);
    if (r == 0) {
        r = uv_poll_init(loop, &h->poll, mnl_socket_get_fd(h->news));
        if (r < 0)
            r = err_sys(err, -r, "watch netlink");
    }
    if (r < 0) {
        free_all(h);
        return r;
    }
    (void)uv_timer_init(loop, &h->timer);
    h->n_handles = 2;
    (void)uv_poll_start(&h->poll, UV_READABLE, on_news);
    *ret = h;
    return 0;
}

bool hostnet_has(const struct hostnet *h, const struct in6_addr *ip)
{
    for (size_t i = 0; i < h->list.n; i++)
        if (range_contains(&h->list.ranges[i], ip))
            return true;
    return false;
}

bool hostnet_has_ipv6(const struct hostnet *h)
{
    return h->list.has_default6 && h->list.has_global6;
}

static void on_closed(uv_handle_t *handle)
{
    struct hostnet *h = handle->data;

    if (--h->n_handles == 0)
        free_all(h);
}

void hostnet_close(struct hostnet *h)
{
    if (!h)
        return;
    h->poll.data = h->timer.data = h;
    uv_close((uv_handle_t *)&h->poll, on_closed);
    uv_close((uv_handle_t *)&h->timer, on_closed);
}
