/* via.c - see via.h. */
#include "egress/via.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define HOPS_MAX 2u
#define OUT_MAX 2048u
#define VEILED_MAX 512u /* of an answer behind TLS: SOCKS5 has up to 262 bytes */

struct hop {
    struct proxy proxy;
    struct address at;
    struct tls_trust *trust; /* NULL: without TLS */
};

struct via {
    struct resolver_wait wait;
    struct box *box;
    struct address to;
    void (*ready)(void *user, const char *why);
    void *user;
    struct hop hops[HOPS_MAX];
    size_t n, i;
    struct proxy_talk talk;
    bool is_begun, is_veiled;
    size_t n_seen;            /* waits in the socket and was looked at */
    uint8_t have[VEILED_MAX]; /* came through the veil */
    size_t n_have;
};

bool via_is_needed(const struct box *b)
{
    return b->egress->opts.proxy.kind != PROXY_NONE || policy_proxy(b->policy);
}

const struct address *via_first(const struct via *v)
{
    return &v->hops[0].at;
}

/* The address of the sandbox's own proxy is known. */
static const char *check_own(const struct via *v)
{
    return policy_reserved(&v->box->egress->operator_policy, &v->hops[v->n - 1].at.ip)
               ? "the sandbox's proxy has an address that is reserved"
               : NULL;
}

static const char *take_answer(struct via *v, const struct dns_answer *a)
{
    if (!a || a->n_addresses == 0)
        return "the sandbox's proxy has no address";
    memcpy(&v->hops[v->n - 1].at.ip, a->addresses[0], sizeof v->hops[v->n - 1].at.ip);
    return check_own(v);
}

static void on_answer(struct resolver_wait *w, const struct dns_answer *answer)
{
    struct via *v = container_of(w, struct via, wait);

    v->ready(v->user, take_answer(v, answer));
}

/* A question of our own, as if it came from a client. */
static bool make_question(const char *name, struct dns_question *ret)
{
    uint8_t message[12 + DNS_QUESTION_MAX] = { [5] = 1 };
    size_t n = 12, label;
    enum dns_rcode rcode;

    for (const char *p = name; *p; p += label + (p[label] == '.')) {
        label = strcspn(p, ".");
        if (label == 0 || label > 63 || n + label + 6 > sizeof message)
            return false;
        message[n++] = (uint8_t)label;
        memcpy(message + n, p, label);
        n += label;
    }
    message[n + 2] = DNS_A;
    message[n + 4] = 1;
    return dns_question_parse(slice_of(message, n + 5), ret, &rcode) == DNS_OK;
}

/* NULL, or why not. */
static const char *find_trust(struct via *v)
{
    struct hop *own = &v->hops[v->n - 1];
    struct tls_trust *trust;
    bool is_own = policy_proxy_trust(v->box->policy, &trust);

    if (!own->proxy.tls_name[0])
        return NULL;
    if (!is_own)
        trust = egress_host_trust(v->box->egress);
    if (!trust)
        return is_own ? "the caCert of the sandbox's proxy cannot be read"
                      : "the host has no certificates to believe the sandbox's proxy by";
    own->trust = tls_trust_ref(trust);
    return NULL;
}

static void find_own(struct via *v)
{
    struct hop *own = &v->hops[v->n - 1];
    struct egress *e = v->box->egress;
    struct dns_question q;
    struct dns_answer a;
    uint32_t age_s;
    const char *why = find_trust(v);

    own->at.port = own->proxy.port;
    if (why)
        v->ready(v->user, why);
    else if (ip_parse(own->proxy.host, &own->at.ip))
        v->ready(v->user, check_own(v));
    else if (!make_question(own->proxy.host, &q))
        v->ready(v->user, "the sandbox's proxy has a name that is none");
    else if (resolver_find(e->resolver, &q, &e->servers, &a, &age_s))
        v->ready(v->user, take_answer(v, &a));
    else if (resolver_ask(e->resolver, &q, &e->servers, &v->box->lookups, &v->wait, NULL) < 0)
        v->ready(v->user, "the name of the sandbox's proxy cannot be asked for");
}

int via_new(struct box *b, const struct address *to, void (*ready)(void *user, const char *why),
            void *user, struct via **ret)
{
    const struct proxy *own = policy_proxy(b->policy);
    struct via *v = calloc(1, sizeof *v);

    if (!v)
        return ABX_RESOURCE_EXHAUSTED;
    v->wait.done = on_answer;
    v->n_seen = SIZE_MAX;
    v->box = b;
    v->to = *to;
    v->ready = ready;
    v->user = user;
    if (b->egress->opts.proxy.kind != PROXY_NONE)
        v->hops[v->n++] = (struct hop){ b->egress->opts.proxy, b->egress->opts.proxy_at };
    if (own)
        v->hops[v->n++] = (struct hop){ .proxy = *own };
    *ret = v;
    if (own)
        find_own(v);
    else
        ready(user, NULL);
    return 0;
}

void via_free(struct via *v)
{
    if (!v)
        return;
    resolver_forget(&v->wait);
    for (size_t i = 0; i < v->n; i++)
        tls_trust_unref(v->hops[i].trust);
    explicit_bzero(v->hops, sizeof v->hops);
    free(v);
}

/* --- talking ------------------------------------------------------------------------------------ */

static void begin_hop(struct via *v)
{
    v->talk = (struct proxy_talk){ .proxy = &v->hops[v->i].proxy,
                                   .to = v->i + 1 < v->n ? v->hops[v->i + 1].at : v->to };
    v->is_begun = true;
}

/* Requests are small, and the socket has sent nothing yet that it could still hold. */
static bool send_all(int fd, struct slice s)
{
    return send(fd, s.p, s.n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)s.n;
}

/* Such a socket cannot wait for more than was looked at, so what comes is taken, byte by byte: none too many. */
static enum proxy_step step_veiled(struct via *v, int fd, char why[PROXY_WHY_SIZE])
{
    for (;;) {
        _cleanup_(buf_done) struct buf out = BUF_INIT(OUT_MAX);
        size_t used;
        enum proxy_step s = proxy_next(&v->talk, slice_of(v->have, v->n_have), &used, &out, why);
        ssize_t n;

        v->n_have -= used;
        memmove(v->have, v->have + used, v->n_have);
        if (s == PROXY_SEND && !send_all(fd, buf_slice(&out)))
            return PROXY_FAILED;
        if (s != PROXY_MORE)
            return s;
        if (v->n_have == sizeof v->have)
            return PROXY_FAILED;
        n = recv(fd, v->have + v->n_have, 1, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN)) {
            (void)snprintf(why, PROXY_WHY_SIZE, "the proxy ends the connection");
            return PROXY_FAILED;
        }
        if (n < 0)
            return PROXY_MORE;
        v->n_have++;
    }
}

/* One step with what has come. Only what belongs to the proxies is taken from the socket. */
static enum proxy_step step(struct via *v, int fd, bool reads, size_t *ret_n,
                            char why[PROXY_WHY_SIZE])
{
    static uint8_t in[PROXY_ANSWER_MAX];
    _cleanup_(buf_done) struct buf out = BUF_INIT(OUT_MAX);
    ssize_t n = reads ? recv(fd, in, sizeof in, MSG_PEEK | MSG_DONTWAIT) : 0;
    enum proxy_step s;
    size_t used;

    *ret_n = n > 0 ? (size_t)n : 0;
    if (reads && (n == 0 || (n < 0 && errno != EAGAIN))) {
        (void)snprintf(why, PROXY_WHY_SIZE, "the proxy ends the connection");
        return PROXY_FAILED;
    }
    s = proxy_next(&v->talk, slice_of(in, *ret_n), &used, &out, why);
    if (used > 0 && recv(fd, in, used, MSG_DONTWAIT) != (ssize_t)used)
        return PROXY_FAILED;
    if (s == PROXY_SEND && !send_all(fd, buf_slice(&out)))
        return PROXY_FAILED;
    return s;
}

struct tls_trust *via_veil(const struct via *v, const char **ret_host)
{
    *ret_host = v->hops[v->i].proxy.tls_name;
    return v->hops[v->i].trust;
}

enum via_state via_talk(struct via *v, int fd, char ret_why[PROXY_WHY_SIZE])
{
    bool reads = v->is_begun;
    size_t n = 0;

    (void)snprintf(ret_why, PROXY_WHY_SIZE, "the proxy cannot be talked to");
    for (;;) {
        size_t n_seen;
        int more;

        if (!v->is_begun && v->hops[v->i].trust && !v->is_veiled) {
            v->is_veiled = true; /* the last one: there is none behind a sandbox's own */
            return VIA_VEIL;
        }
        if (!v->is_begun)
            begin_hop(v);
        n_seen = v->n_seen;
        v->n_seen = SIZE_MAX;
        switch (v->is_veiled ? step_veiled(v, fd, ret_why) : step(v, fd, reads, &n, ret_why)) {
        case PROXY_SEND:
            reads = true;
            break;
        case PROXY_MORE:
            more = (int)n + 1;
            if (n >= PROXY_ANSWER_MAX)
                return VIA_FAILED;
            (void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &more, sizeof more);
            v->n_seen = n;
            return n == n_seen && !v->is_veiled ? VIA_NOTHING : VIA_MORE;
        case PROXY_DONE:
            more = 1;
            (void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &more, sizeof more);
            if (++v->i == v->n)
                return VIA_DONE;
            v->is_begun = reads = false;
            break;
        case PROXY_FAILED:
            return VIA_FAILED;
        }
    }
}
