/* names.c - see names.h. */
#include "egress/names.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "net/sock.h"

#define DATAGRAMS_PER_TURN 32u
#define QUESTION_MAX 1024u
#define REPLY_UDP_MAX 4096u
#define STREAM_IDLE_MS 10000u
#define SERVER_PORT 53u

/* Where the answer goes. */
struct reply_to {
    struct stream *stream; /* TCP; NULL for UDP */
    struct sockaddr_storage peer;
    socklen_t peer_n;
    struct in6_addr own; /* that was asked: mapped for IPv4 */
};

/* A question under way. */
struct ask {
    struct resolver_wait wait;
    struct ask *prev, *next;
    struct names *names;
    struct dns_question question;
    struct reply_to to;
};

struct stream {
    struct sock sock;
    struct stream *prev, *next;
    struct names *names; /* NULL once it is closed */
    struct buf in;
};

struct names {
    uv_poll_t poll;
    struct box *box; /* NULL once it is closed */
    int fd;
    bool is_v4; /* the socket: a host without IPv6 */
    struct ask *asks;
    struct stream *streams;
    size_t n_asks, n_streams;
};

/* --- answers ------------------------------------------------------------------------------------ */

static void stream_close(struct stream *s);

static void send_stream(struct stream *s, struct slice message)
{
    const uint8_t prefix[2] = { (uint8_t)(message.n >> 8), (uint8_t)message.n };

    /* A client that does not read has as many answers waiting as it may ask questions. */
    if (s->sock.out.len > DNS_MESSAGE_MAX) {
        stream_close(s);
        return;
    }
    sock_write(&s->sock, (struct slice[]){ slice_of(prefix, sizeof prefix), message }, 2, true);
    sock_watch(&s->sock, SOCK_READABLE);
}

/* From the address that was asked. A datagram that cannot be sent is lost, as datagrams are. */
static void send_datagram(struct names *n, const struct reply_to *to, struct slice message)
{
    struct in6_pktinfo v6 = { .ipi6_addr = to->own };
    struct in_pktinfo v4 = { 0 };
    char control[CMSG_SPACE(sizeof v6)] __attribute__((aligned(8))) = { 0 };
    struct iovec iov = { (void *)(uintptr_t)message.p, message.n };
    struct msghdr msg = { .msg_name = (void *)(uintptr_t)&to->peer,
                          .msg_namelen = to->peer_n,
                          .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = control };
    struct cmsghdr *head = (struct cmsghdr *)(void *)control;

    memcpy(&v4.ipi_spec_dst, &to->own.s6_addr[12], sizeof v4.ipi_spec_dst);
    head->cmsg_level = n->is_v4 ? IPPROTO_IP : IPPROTO_IPV6;
    head->cmsg_type = n->is_v4 ? IP_PKTINFO : IPV6_PKTINFO;
    head->cmsg_len = n->is_v4 ? CMSG_LEN(sizeof v4) : CMSG_LEN(sizeof v6);
    msg.msg_controllen = n->is_v4 ? CMSG_SPACE(sizeof v4) : CMSG_SPACE(sizeof v6);
    if (n->is_v4)
        memcpy(CMSG_DATA(head), &v4, sizeof v4);
    else
        memcpy(CMSG_DATA(head), &v6, sizeof v6);
    (void)sendmsg(n->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void send_reply(struct names *n, const struct reply_to *to, struct slice message)
{
    if (to->stream)
        send_stream(to->stream, message);
    else
        send_datagram(n, to, message);
}

static void count(const struct names *n, enum count_question result)
{
    count_add(&n->box->egress->opts.counters->questions[result], 1);
}

static void reply_error(struct names *n, const struct dns_question *q, const struct reply_to *to,
                        enum dns_rcode rcode)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(QUESTION_MAX);

    if (dns_error_encode(q, rcode, &b) == BUF_OK)
        send_reply(n, to, buf_slice(&b));
}

static void reply_failed(struct names *n, const struct dns_question *q, const struct reply_to *to)
{
    count(n, COUNT_QUESTION_FAILED);
    reply_error(n, q, to, DNS_SERVFAIL);
}

static void pin(struct names *n, const struct dns_question *q, const struct dns_answer *a)
{
    uint64_t until =
        uv_now(n->box->egress->opts.loop) + MAX((uint64_t)a->ttl_s * 1000, (uint64_t)PIN_LEAST_MS);

    for (size_t i = 0; i < a->n_addresses; i++) {
        struct in6_addr ip;

        memcpy(&ip, a->addresses[i], sizeof ip);
        pins_put(&n->box->pins, &ip, q->name, until);
    }
}

static void reply(struct names *n, const struct dns_question *q, const struct reply_to *to,
                  const struct dns_answer *a, uint32_t age_s)
{
    size_t max = to->stream ? DNS_MESSAGE_MAX : MIN((size_t)q->udp_size, (size_t)REPLY_UDP_MAX);
    _cleanup_(buf_done) struct buf b = BUF_INIT(DNS_MESSAGE_MAX);

    count(n, COUNT_QUESTION_ANSWERED);
    pin(n, q, a);
    if (dns_reply_encode(q, a, age_s, max, &b) == BUF_OK)
        send_reply(n, to, buf_slice(&b));
}

/* --- asking ------------------------------------------------------------------------------------- */

static void ask_free(struct ask *a)
{
    struct names *n = a->names;

    resolver_forget(&a->wait);
    *(a->prev ? &a->prev->next : &n->asks) = a->next;
    if (a->next)
        a->next->prev = a->prev;
    n->n_asks--;
    free(a);
}

static void on_answer(struct resolver_wait *w, const struct dns_answer *answer)
{
    const struct ask a = *container_of(w, struct ask, wait);

    /* First: the answer may end its stream, and with it all that is asked there. */
    ask_free(container_of(w, struct ask, wait));
    if (answer)
        reply(a.names, &a.question, &a.to, answer, 0);
    else
        reply_failed(a.names, &a.question, &a.to);
}

static bool ask(struct names *n, const struct dns_question *q, const struct reply_to *to,
                const struct resolver_servers *servers)
{
    struct ask *a = n->n_asks < ASKS_MAX ? calloc(1, sizeof *a) : NULL;

    if (!a)
        return false;
    a->wait.done = on_answer;
    a->names = n;
    a->question = *q;
    a->to = *to;
    a->next = n->asks;
    if (a->next)
        a->next->prev = a;
    n->asks = a;
    n->n_asks++;
    if (resolver_ask(n->box->egress->resolver, q, servers, &n->box->lookups, &a->wait, NULL) == 0)
        return true;
    ask_free(a);
    return false;
}

/* The sandbox's own servers, of those that the operator lets it reach; else the operator's. */
static void find_servers(const struct box *b, struct resolver_servers *ret)
{
    const struct in6_addr *own;
    size_t n = policy_dns_servers(b->policy, &own);

    if (n == 0) {
        *ret = b->egress->servers;
        return;
    }
    *ret = (struct resolver_servers){ 0 };
    for (size_t i = 0; i < n && ret->n < RESOLVER_SERVERS_MAX; i++)
        if (!policy_reserved(&b->egress->operator_policy, &own[i]))
            ret->list[ret->n++] = (struct address){ own[i], SERVER_PORT };
}

/* Answered with nothing, although there may be something: records that would lead past the rules (keys for hiding the
 * name in TLS), and addresses that lead nowhere from here. */
static bool is_hidden(const struct box *b, const struct dns_question *q)
{
    if (q->type == DNS_AAAA)
        return !hostnet_has_ipv6(b->egress->host);
    return (q->type == DNS_SVCB || q->type == DNS_HTTPS) && !policy_allows_all_names(b->policy);
}

static void take_question(struct names *n, const struct dns_question *q, const struct reply_to *to)
{
    struct box *b = n->box;
    struct resolver_servers servers;
    struct dns_answer answer;
    uint32_t age_s;

    if (!policy_allows_all_names(b->policy) && !policy_has_name(b->policy, q->name)) {
        count(n, COUNT_QUESTION_REFUSED);
        count_add(&b->egress->opts.counters->denied[COUNT_DENIED_NAMES], 1);
        box_denied(b, "dns", q->name, "allowOut", "no rule allows the name");
        reply_error(n, q, to, DNS_REFUSED);
        return;
    }
    if (is_hidden(b, q)) {
        count(n, COUNT_QUESTION_ANSWERED);
        reply_error(n, q, to, DNS_NOERROR);
        return;
    }
    find_servers(b, &servers);
    if (resolver_find(b->egress->resolver, q, &servers, &answer, &age_s))
        reply(n, q, to, &answer, age_s);
    else if (!ask(n, q, to, &servers))
        reply_failed(n, q, to);
}

static void take_message(struct names *n, struct slice message, const struct reply_to *to)
{
    struct dns_question q;
    enum dns_rcode rcode;

    switch (dns_question_parse(message, &q, &rcode)) {
    case DNS_OK:
        take_question(n, &q, to);
        break;
    case DNS_REFUSE:
        count(n, COUNT_QUESTION_INVALID);
        reply_error(n, &q, to, rcode);
        break;
    case DNS_IGNORE:
        break;
    }
}

/* --- UDP ---------------------------------------------------------------------------------------- */

/* The address that was asked; false without one. */
static bool own_address(struct msghdr *msg, struct in6_addr *ret)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
            struct in6_pktinfo info;

            memcpy(&info, CMSG_DATA(c), sizeof info);
            *ret = info.ipi6_addr;
            return true;
        }
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info;

            memcpy(&info, CMSG_DATA(c), sizeof info);
            *ret = (struct in6_addr){ .s6_addr = { [10] = 0xff, [11] = 0xff } };
            memcpy(&ret->s6_addr[12], &info.ipi_addr, sizeof info.ipi_addr);
            return true;
        }
    }
    return false;
}

static bool read_datagram(struct names *n)
{
    uint8_t question[QUESTION_MAX];
    char control[CMSG_SPACE(sizeof(struct in6_pktinfo)) + CMSG_SPACE(sizeof(struct in_pktinfo))]
        __attribute__((aligned(8)));
    struct reply_to to = { 0 };
    struct iovec iov = { question, sizeof question };
    struct msghdr msg = { .msg_name = &to.peer,
                          .msg_namelen = sizeof to.peer,
                          .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = control,
                          .msg_controllen = sizeof control };
    ssize_t size = recvmsg(n->fd, &msg, MSG_DONTWAIT);

    if (size < 0)
        return errno == EINTR ||
               errno == ECONNREFUSED; /* of an earlier answer: its asker is gone */
    to.peer_n = msg.msg_namelen;
    if (!(msg.msg_flags & MSG_TRUNC) && own_address(&msg, &to.own))
        take_message(n, slice_of(question, (size_t)size), &to);
    return true;
}

static void on_datagrams(uv_poll_t *poll, int status, int events)
{
    struct names *n = container_of(poll, struct names, poll);

    (void)status;
    (void)events;
    for (unsigned i = 0; n->box && i < DATAGRAMS_PER_TURN; i++)
        if (!read_datagram(n))
            break;
    if (status < 0 && n->box) /* libuv stops watching after an error that was read meanwhile */
        (void)uv_poll_start(poll, UV_READABLE, on_datagrams);
}

/* --- TCP ---------------------------------------------------------------------------------------- */

static void on_stream_freed(struct sock *sock)
{
    struct stream *s = container_of(sock, struct stream, sock);

    buf_done(&s->in);
    free(s);
}

static void stream_close(struct stream *s)
{
    struct names *n = TAKE_PTR(s->names);
    struct ask *next;

    if (!n)
        return;
    n->box->egress->n_streams--;
    for (struct ask *a = n->asks; a; a = next) {
        next = a->next;
        if (a->to.stream == s)
            ask_free(a);
    }
    *(s->prev ? &s->prev->next : &n->streams) = s->next;
    if (s->next)
        s->next->prev = s->prev;
    n->n_streams--;
    sock_close(&s->sock, false);
}

/* Whole messages of what came. */
static void take_stream(struct stream *s)
{
    const struct reply_to to = { .stream = s };

    while (s->names) {
        struct slice have = buf_slice(&s->in);
        size_t size;

        if (!have.p || have.n < 2)
            return;
        size = (size_t)have.p[0] << 8 | have.p[1];

        if (size > QUESTION_MAX) {
            stream_close(s);
            return;
        }
        if (have.n < size + 2)
            return;
        take_message(s->names, slice_of(have.p + 2, size), &to);
        if (s->names)
            buf_consume(&s->in, size + 2);
    }
}

static void on_stream(struct sock *sock, unsigned what)
{
    struct stream *s = container_of(sock, struct stream, sock);
    struct slice piece;
    ssize_t n;

    if (sock->error || (what & SOCK_DEADLINE)) {
        stream_close(s);
        return;
    }
    if (what & (SOCK_WRITABLE | SOCK_KICKED)) {
        sock_flush(sock);
        sock_watch(sock, SOCK_READABLE);
    }
    if (!(what & (SOCK_READABLE | SOCK_HANGUP)))
        return;
    n = sock_read(sock, &piece);
    if (n == -EAGAIN)
        return;
    if (n <= 0 || buf_append_slice(&s->in, piece) != BUF_OK) {
        stream_close(s);
        return;
    }
    sock_set_deadline(sock, sock_now(sock), STREAM_IDLE_MS);
    take_stream(s);
}

void names_stream(struct names *n, int fd)
{
    bool is_room = n->n_streams < STREAMS_MAX && box_has_room(n->box);
    struct stream *s = is_room ? calloc(1, sizeof *s) : NULL;

    if (!s) {
        fd_close(fd);
        return;
    }
    buf_init(&s->in, SOCK_READ_MAX + QUESTION_MAX + 2);
    if (sock_init(&s->sock, n->box->egress->opts.loop, fd, on_stream, on_stream_freed, NULL) < 0) {
        free(s);
        return;
    }
    s->names = n;
    s->next = n->streams;
    if (s->next)
        s->next->prev = s;
    n->streams = s;
    n->n_streams++;
    n->box->egress->n_streams++;
    sock_watch(&s->sock, SOCK_READABLE);
    sock_set_deadline(&s->sock, sock_now(&s->sock), STREAM_IDLE_MS);
}

/* --- life --------------------------------------------------------------------------------------- */

struct names *names_new(struct box *b, int fd)
{
    struct names *n = calloc(1, sizeof *n);
    int domain = 0;
    socklen_t size = sizeof domain;

    if (!n || getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) < 0 ||
        uv_poll_init(b->egress->opts.loop, &n->poll, fd) < 0) {
        free(n);
        fd_close(fd);
        return NULL;
    }
    n->is_v4 = domain == AF_INET;
    n->box = b;
    n->fd = fd;
    (void)uv_poll_start(&n->poll, UV_READABLE, on_datagrams);
    return n;
}

static void on_closed(uv_handle_t *handle)
{
    free(container_of((uv_poll_t *)(void *)handle, struct names, poll));
}

void names_close(struct names *n)
{
    if (!n)
        return;
    while (n->streams)
        stream_close(n->streams);
    while (n->asks)
        ask_free(n->asks);
    n->box = NULL;
    uv_close((uv_handle_t *)&n->poll, on_closed);
    fd_close(TAKE_FD(n->fd));
}
