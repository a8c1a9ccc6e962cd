/* flow.c - one TCP connection of a sandbox: from accept over the decision and the dial to the relay and its end.
 *
 * The sandbox's side is connected before anything was decided, so a refusal is a reset. A connection that carries
 * nothing for IDLE_MS ends; one whose bytes nobody takes for STALLED_MS, too (not while the sandbox is paused). When one
 * side fails, what it had sent before is passed on, and the other is reset when it has it: as if there were no one in
 * between.
 *
 * Where only a name can allow it, its address has to be the answer to a name that the rules have and the sandbox asked
 * for, and its first bytes, which are looked at and left where they are, have to give just such a name: the server name
 * of TLS, the host of HTTP. On ports 80 and 443 there is no other way in. On others a protocol that is neither, or whose
 * server speaks first (SERVER_FIRST_MS), may go by the address alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "egress/internal.h"
#include "egress/names.h"
#include "egress/sniff.h"
#include "egress/veil.h"
#include "egress/via.h"

#define NAME_MS 30000u /* a program on a busy machine may need some */
#define SERVER_FIRST_MS 300u
#define PRESSED_MS 10u /* looks, while the kernel is short of memory */
#define DIAL_MS 30000u
#define IDLE_MS (2u * 60u * 60u * 1000u)
#define STALLED_MS 120000u
#define LOOK_MS 30000u
#define LAST_MS 10u /* whether the last bytes have arrived; then ever more seldom */
#define LAST_MAX_MS 1000u
#define KEEPALIVE_S 300
#define HTTP_PORT 80u
#define HTTPS_PORT 443u
#define DNS_PORT 53u

enum flow_state {
    FLOW_NAME,
    FLOW_DIAL,
    FLOW_PROXY,
    FLOW_RELAY,
    FLOW_LAST, /* one side has failed */
};

/* One of the two sockets. */
struct end {
    uv_poll_t poll;
    struct flow *flow;
    int fd;
    int watched;
    bool has_poll;
    bool
        is_urgent; /* an urgent byte came: it would wake us again and again where only failures are waited for */
};

struct flow {
    struct flow *prev, *next; /* of its box */
    struct box *box;          /* NULL once it is closed */
    struct egress *egress;
    enum flow_state state;
    struct address to;
    char *name;     /* that allowed it; NULL where the address does */
    bool is_web;    /* a port where a name has to be given */
    uint64_t until; /* loop time: of the name, then of the dial */
    size_t peeked;
    struct via *via;   /* until it is connected */
    struct veil *veil; /* between `out` and the proxy, where that has TLS */

    struct end in, out;   /* the sandbox's, the world's */
    struct lane up, down; /* in -> out, out -> in */
    enum lane_state up_state, down_state;
    struct end *alive; /* LAST: the side that has not failed */
    bool is_passed;    /* the kernel has all that it is to get */
    uv_timer_t timer;
    uint64_t moved_at; /* loop time */
    unsigned n_handles;
};

struct flow *flow_next(const struct flow *f)
{
    return f->next;
}

/* --- the end ------------------------------------------------------------------------------------ */

static void on_handle_closed(uv_handle_t *handle)
{
    struct flow *f = handle->data;

    if (--f->n_handles > 0)
        return;
    free(f->name);
    free(f);
}

static void end_close(struct end *e, bool is_reset)
{
    const struct linger now = { .l_onoff = 1 };

    if (e->has_poll)
        uv_close((uv_handle_t *)&e->poll, on_handle_closed);
    e->has_poll = false;
    if (is_reset && e->fd >= 0)
        (void)setsockopt(e->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    fd_close(TAKE_FD(e->fd));
}

static void drop_veil(struct flow *f, bool is_reset)
{
    f->egress->n_veils -= f->veil != NULL;
    veil_close(TAKE_PTR(f->veil), is_reset);
}

static void flow_close(struct flow *f, bool is_reset)
{
    struct box *b = TAKE_PTR(f->box);

    if (!b)
        return;
    if (f->prev)
        f->prev->next = f->next;
    else
        b->flows = f->next;
    if (f->next)
        f->next->prev = f->prev;
    b->n_flows--;
    f->egress->n_flows--;
    count_set(&f->egress->opts.counters->connections, f->egress->n_flows);
    lane_done(&f->up, &f->egress->pipes, &b->n_pipes);
    lane_done(&f->down, &f->egress->pipes, &b->n_pipes);
    via_free(TAKE_PTR(f->via));
    drop_veil(f, is_reset);
    end_close(&f->in, is_reset);
    end_close(&f->out, is_reset);
    uv_close((uv_handle_t *)&f->timer, on_handle_closed);
}

void flow_break(struct flow *f)
{
    flow_close(f, true);
}

static void deny(struct flow *f, const char *name, const char *rule, const char *why)
{
    char to[ADDRESS_TEXT_SIZE];

    count_add(&f->egress->opts.counters->denied[COUNT_DENIED_CONNECTIONS], 1);
    address_format(&f->to, to);
    box_denied(f->box, to, name, rule, why);
    flow_close(f, true);
}

/* --- sockets ------------------------------------------------------------------------------------ */

static void on_event(uv_poll_t *poll, int status, int events);

static int end_open(struct flow *f, struct end *e, int fd)
{
    const int one = 1;
    int r = uv_poll_init(f->egress->opts.loop, &e->poll, fd);

    if (r < 0) {
        fd_close(fd);
        return r;
    }
    /* What comes in pieces goes on in pieces, and an urgent byte like the others. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &one, sizeof one);
    e->fd = fd;
    e->flow = f;
    e->poll.data = f;
    e->has_poll = true;
    f->n_handles++;
    return 0;
}

/* `events` 0: only failures. `is_over`: nothing can come of it any more. */
static void end_watch(struct end *e, int events, bool is_over)
{
    if (!e->has_poll)
        return;
    if (events == 0)
        events = is_over || e->is_urgent ? -1 : UV_PRIORITIZED;
    else if (is_over)
        events = -1;
    if (events == e->watched)
        return;
    e->watched = events;
    if (events < 0)
        (void)uv_poll_stop(&e->poll);
    else
        (void)uv_poll_start(&e->poll, events, on_event);
}

/* --- relay -------------------------------------------------------------------------------------- */

static int wanted(enum lane_state reads, enum lane_state writes)
{
    return (reads == LANE_WANTS_READ ? UV_READABLE : 0) |
           (writes == LANE_WANTS_WRITE || writes == LANE_MORE ? UV_WRITABLE : 0);
}

/* Is there something that the side that lives has not got yet? Behind a veil it is its other side that counts. */
static bool is_arriving(const struct flow *f)
{
    int waiting = 0;

    return (ioctl(f->alive->fd, SIOCOUTQ, &waiting) == 0 && waiting > 0) ||
           (f->veil && f->alive == &f->out && veil_is_sending(f->veil));
}

/* Whether the last bytes have arrived is not told: it is looked at. */
static void on_last(uv_timer_t *timer)
{
    struct flow *f = timer->data;
    uint64_t now = uv_now(timer->loop);

    if (f->box->is_paused)
        f->moved_at = now;
    if (f->is_passed && !is_arriving(f)) {
        flow_close(f, true);
        return;
    }
    if (now - f->moved_at >= STALLED_MS)
        flow_close(f, true);
    else
        uv_timer_set_repeat(timer, MIN(2 * uv_timer_get_repeat(timer), (uint64_t)LAST_MAX_MS));
}

static void pass_last(struct flow *f)
{
    bool is_in = f->alive == &f->in;
    size_t moved;
    enum lane_state state =
        lane_pump(is_in ? &f->down : &f->up, &f->egress->pipes, &f->box->n_pipes,
                  is_in ? f->out.fd : f->in.fd, f->alive->fd, &moved);

    if (moved > 0)
        f->moved_at = uv_now(f->egress->opts.loop);
    count_add(is_in ? &f->egress->opts.counters->bytes_in : &f->egress->opts.counters->bytes_out,
              moved);
    f->is_passed = state != LANE_WANTS_WRITE && state != LANE_MORE;
    end_watch(f->alive, f->is_passed ? 0 : UV_WRITABLE, false);
    if (f->is_passed)
        on_last(&f->timer);
}

/* The veil's pair is not TCP: what becomes of it is told. */
static bool is_dead(const struct end *e)
{
    struct tcp_info info = { 0 };
    socklen_t n = sizeof info;

    return getsockopt(e->fd, IPPROTO_TCP, TCP_INFO, &info, &n) == 0 && info.tcpi_state == TCP_CLOSE;
}

static void pass_on_last(struct flow *f, bool is_in_dead)
{
    struct lane *last = is_in_dead ? &f->up : &f->down;

    f->state = FLOW_LAST;
    f->alive = is_in_dead ? &f->out : &f->in;
    end_watch(is_in_dead ? &f->in : &f->out, 0, true);
    lane_done(is_in_dead ? &f->down : &f->up, &f->egress->pipes, &f->box->n_pipes);
    last->is_cut = !last->has_end;
    f->moved_at = uv_now(f->egress->opts.loop);
    (void)uv_timer_start(&f->timer, on_last, LAST_MS, LAST_MS);
    pass_last(f);
}

/* A server that refuses what it is sent, say, answers and resets. */
static void fail(struct flow *f)
{
    bool is_in_dead = is_dead(&f->in);

    if (is_in_dead == is_dead(&f->out))
        flow_close(f, true);
    else
        pass_on_last(f, is_in_dead);
}

static void pump(struct flow *f, bool is_up, bool is_down)
{
    struct lane_pool *pool = &f->egress->pipes;
    size_t *quota = &f->box->n_pipes, up = 0, down = 0;
    bool is_in_over, is_out_over;

    if (is_up)
        f->up_state = lane_pump(&f->up, pool, quota, f->in.fd, f->out.fd, &up);
    if (is_down)
        f->down_state = lane_pump(&f->down, pool, quota, f->out.fd, f->in.fd, &down);
    if (up + down > 0) {
        f->moved_at = uv_now(f->egress->opts.loop);
        count_add(&f->egress->opts.counters->bytes_out, up);
        count_add(&f->egress->opts.counters->bytes_in, down);
    }
    if (f->up_state == LANE_BROKEN || f->down_state == LANE_BROKEN) {
        fail(f);
        return;
    }
    if (f->up_state == LANE_ENDED && f->down_state == LANE_ENDED && !f->veil) {
        flow_close(f, false);
        return;
    }
    is_in_over = f->up.has_end && f->down.is_ended;
    is_out_over = f->down.has_end && f->up.is_ended;
    end_watch(&f->in, wanted(f->up_state, f->down_state), is_in_over);
    end_watch(&f->out, wanted(f->down_state, f->up_state), is_out_over);
}

static void on_look(uv_timer_t *timer)
{
    struct flow *f = timer->data;
    uint64_t quiet = uv_now(timer->loop) - f->moved_at;
    bool is_ended = f->up.is_ended && f->down.is_ended; /* what is left is the veil's */
    bool is_stalled = is_ended || f->up.held + f->down.held > 0;

    if (f->box->is_paused)
        f->moved_at = uv_now(timer->loop);
    else if (quiet >= (is_stalled ? STALLED_MS : IDLE_MS))
        flow_close(f, true);
}

static void start_relay(struct flow *f)
{
    f->state = FLOW_RELAY;
    f->moved_at = uv_now(f->egress->opts.loop);
    (void)uv_timer_start(&f->timer, on_look, LOOK_MS, LOOK_MS);
    pump(f, true, true);
}

/* --- dial --------------------------------------------------------------------------------------- */

static void on_dial_timeout(uv_timer_t *timer);

/* The timer, and more bytes or the end. */
static void wait_for(struct flow *f, struct end *e, uv_timer_cb late)
{
    uint64_t now = uv_now(f->egress->opts.loop);

    end_watch(e, UV_READABLE | UV_DISCONNECT, false);
    (void)uv_timer_start(&f->timer, late, f->until > now ? f->until - now : 0, 0);
}

/* A kernel that is short of memory for sockets says that there is something to read although nothing came. */
static void look_soon(struct flow *f, struct end *e, uv_timer_cb look)
{
    end_watch(e, UV_DISCONNECT, false);
    (void)uv_timer_start(&f->timer, look, PRESSED_MS, 0);
}

static void on_dial_timeout(uv_timer_t *timer)
{
    struct flow *f = timer->data;

    if (f->state == FLOW_PROXY && uv_now(timer->loop) < f->until)
        wait_for(f, &f->out, on_dial_timeout);
    else
        flow_close(f, true);
}

static void connect_to(struct flow *f, const struct address *to)
{
    struct sockaddr_storage ss;
    socklen_t n = address_to_kernel(to, &ss);
    int fd = socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int one = 1, idle = KEEPALIVE_S;

    if (fd < 0 || end_open(f, &f->out, fd) < 0) {
        flow_close(f, true);
        return;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    if (connect(fd, (const struct sockaddr *)&ss, n) < 0 && errno != EINPROGRESS) {
        flow_close(f, true);
        return;
    }
    end_watch(&f->out, UV_WRITABLE, false);
}

static void on_via(void *user, const char *why)
{
    struct flow *f = user;

    if (why)
        deny(f, NULL, "egressProxy", why);
    else if (f->via)
        connect_to(f, via_first(f->via));
}

static void dial(struct flow *f)
{
    const int one = 1;

    (void)setsockopt(f->in.fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one);
    f->state = FLOW_DIAL;
    f->until = uv_now(f->egress->opts.loop) + DIAL_MS;
    (void)uv_timer_start(&f->timer, on_dial_timeout, DIAL_MS, 0);
    end_watch(&f->in, 0, false);
    if (!via_is_needed(f->box))
        connect_to(f, &f->to);
    else if (via_new(f->box, &f->to, on_via, f, &f->via) < 0)
        flow_close(f, true);
}

/* When it has passed on everything, some of that may still wait in `out`. */
static void on_veil_over(void *user, const char *why)
{
    struct flow *f = user;

    if (why && f->state == FLOW_PROXY) {
        deny(f, NULL, "egressProxy", why);
    } else if (why && f->state == FLOW_RELAY) { /* what it had from the proxy lies in `out` */
        drop_veil(f, true);
        pass_on_last(f, false);
    } else if (why) {
        flow_close(f, true);
    } else {
        drop_veil(f, false);
        if (f->up_state == LANE_ENDED && f->down_state == LANE_ENDED)
            flow_close(f, false);
    }
}

/* The veil takes the connection, and `out` becomes the plain side of it. */
static bool put_veil(struct flow *f)
{
    const char *host;
    struct tls_trust *trust = via_veil(f->via, &host);
    int secret = fcntl(f->out.fd, F_DUPFD_CLOEXEC, 0), plain, r;

    if (secret < 0 || veil_new(f->egress->opts.loop, secret, trust, host, on_veil_over, f, &f->veil,
                               &plain, NULL) < 0)
        return false;
    f->egress->n_veils++;
    f->state = FLOW_PROXY;
    end_watch(&f->out, 0, true);
    r = dup3(plain, f->out.fd, O_CLOEXEC);
    fd_close(plain);
    return r >= 0;
}

static void talk_to_proxy(struct flow *f, bool is_ended)
{
    char why[PROXY_WHY_SIZE];
    enum via_state state = via_talk(f->via, f->out.fd, why);

    if (state == VIA_VEIL) {
        if (!put_veil(f)) {
            flow_close(f, true);
            return;
        }
        state = via_talk(f->via, f->out.fd, why);
    }
    switch (state) {
    case VIA_VEIL:
    case VIA_MORE:
        f->state = FLOW_PROXY;
        wait_for(f, &f->out, on_dial_timeout);
        break;
    case VIA_NOTHING:
        if (is_ended)
            deny(f, NULL, "proxy", "the proxy ends the connection");
        else
            look_soon(f, &f->out, on_dial_timeout);
        break;
    case VIA_DONE:
        via_free(TAKE_PTR(f->via));
        start_relay(f);
        break;
    case VIA_FAILED:
        deny(f, NULL, "proxy", why);
        break;
    }
}

static void on_dialled(struct flow *f)
{
    int error = 0;
    socklen_t n = sizeof error;

    if (getsockopt(f->out.fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0 || error != 0)
        flow_close(f, true);
    else if (f->via)
        talk_to_proxy(f, false);
    else
        start_relay(f);
}

/* --- the name ----------------------------------------------------------------------------------- */

static bool is_allowed_name(void *user, const char *name)
{
    return policy_has_name(user, name);
}

/* A name of the rules that the sandbox was told this address for; NULL. */
static const char *find_pin(const struct flow *f)
{
    return pins_find(&f->box->pins, &f->to.ip, uv_now(f->egress->opts.loop), is_allowed_name,
                     f->box->policy);
}

static void allow_by_name(struct flow *f, const char *name)
{
    f->name = strdup(name);
    if (f->name)
        dial(f);
    else
        flow_close(f, true);
}

/* By its address alone: neither TLS nor HTTP was seen, on a port that is of neither. */
static void allow_by_address(struct flow *f)
{
    const char *name = f->is_web ? NULL : find_pin(f);

    if (name)
        allow_by_name(f, name);
    else
        deny(f, NULL, "allowOut", "neither TLS nor HTTP, so it gives no name");
}

static void on_no_name(uv_timer_t *timer);

static void take_name(struct flow *f, const char *name)
{
    if (!policy_has_name(f->box->policy, name))
        deny(f, name, "allowOut", "no rule allows the name that it gives");
    else if (!pins_has(&f->box->pins, &f->to.ip, name, uv_now(f->egress->opts.loop)))
        deny(f, name, "allowOut",
             "the sandbox was told another address for the name that it gives");
    else
        allow_by_name(f, name);
}

/* Woken when there is more than was seen; or its time is over, and we may have been busy. */
static void on_first_bytes(struct flow *f, bool is_woken, bool is_ended)
{
    static uint8_t head[SNIFF_MAX];
    char name[SNIFF_NAME_SIZE];
    ssize_t n = recv(f->in.fd, head, sizeof head, MSG_PEEK | MSG_DONTWAIT);
    int more = (int)MIN(n + 1, (ssize_t)SNIFF_MAX);

    if ((n < 0 && errno == EAGAIN) || (!is_woken && n > 0 && (size_t)n == f->peeked))
        return;
    if (n <= 0 || ((size_t)n == f->peeked && is_ended)) {
        flow_close(f, true);
        return;
    }
    if ((size_t)n == f->peeked) {
        look_soon(f, &f->in, on_no_name);
        return;
    }
    switch (sniff(slice_of(head, (size_t)n), name)) {
    case SNIFF_MORE:
        if (f->peeked == 0)
            f->until = uv_now(f->egress->opts.loop) + NAME_MS;
        f->peeked = (size_t)n;
        (void)setsockopt(f->in.fd, SOL_SOCKET, SO_RCVLOWAT, &more, sizeof more);
        wait_for(f, &f->in, on_no_name);
        return;
    case SNIFF_NAME:
        take_name(f, name);
        return;
    case SNIFF_HIDDEN:
        deny(f, NULL, "allowOut", "TLS or HTTP that does not give one name");
        return;
    case SNIFF_UNKNOWN:
        allow_by_address(f);
        return;
    }
}

static void on_no_name(uv_timer_t *timer)
{
    struct flow *f = timer->data;

    on_first_bytes(f, false, false);
    if (!f->box || f->state != FLOW_NAME)
        return;
    if (uv_now(timer->loop) < f->until) {
        wait_for(f, &f->in, on_no_name);
        return;
    }
    if (f->peeked == 0 && !f->is_web)
        allow_by_address(f);
    else
        deny(f, NULL, "allowOut", "it gave no name in time");
}

static void find_name(struct flow *f, const char *rule)
{
    f->is_web = f->to.port == HTTP_PORT || f->to.port == HTTPS_PORT;
    if (!find_pin(f)) {
        deny(f, NULL, rule, "no name that is allowed led the sandbox to this address");
        return;
    }
    f->state = FLOW_NAME;
    f->until = uv_now(f->egress->opts.loop) + (f->is_web ? NAME_MS : SERVER_FIRST_MS);
    wait_for(f, &f->in, on_no_name);
}

static void on_event(uv_poll_t *poll, int status, int events)
{
    struct flow *f = poll->data;
    struct end *e = container_of(poll, struct end, poll);
    bool is_in = e == &f->in, has_in = events & UV_READABLE, has_out = events & UV_WRITABLE;

    if (!f->box)
        return;
    if (events & UV_PRIORITIZED) {
        e->is_urgent = true;
        end_watch(e, 0, false);
    }
    if (status < 0)
        e->watched = -1; /* libuv has stopped */
    if (status < 0 && f->state == FLOW_RELAY)
        fail(f);
    else if (status < 0)
        flow_close(f, true);
    else if (f->state == FLOW_NAME && is_in)
        on_first_bytes(f, true, events & UV_DISCONNECT);
    else if (f->state == FLOW_DIAL && !is_in)
        on_dialled(f);
    else if (f->state == FLOW_PROXY && !is_in)
        talk_to_proxy(f, events & UV_DISCONNECT);
    else if (f->state == FLOW_RELAY)
        pump(f, is_in ? has_in : has_out, is_in ? has_out : has_in);
    else if (f->state == FLOW_LAST && e == f->alive && has_out)
        pass_last(f);
}

/* --- begin -------------------------------------------------------------------------------------- */

static bool is_room(struct flow *f)
{
    const struct box *b = f->box;

    /* Itself is counted. */
    if (b->n_flows > b->egress->opts.max_sandbox_connections) {
        deny(f, NULL, "limit", "the sandbox has as many connections as it may");
        return false;
    }
    if (!box_has_room(b)) {
        deny(f, NULL, "limit", "all sandboxes together have as many connections as they may");
        return false;
    }
    return true;
}

static enum verdict decide(const struct flow *f, char rule[POLICY_RULE_SIZE])
{
    return policy_decide(f->box->policy, &f->egress->operator_policy, &f->to.ip, rule);
}

/* One that waits for its name is held against the rules when it has come. */
void flow_recheck(struct flow *f)
{
    char rule[POLICY_RULE_SIZE];
    enum verdict v = decide(f, rule);
    bool has_name = f->name && policy_has_name(f->box->policy, f->name);

    if (v == VERDICT_DENY || (v == VERDICT_NAME && f->state != FLOW_NAME && !has_name))
        deny(f, f->name, rule, "the rules have changed");
    else if (v == VERDICT_ALLOW && f->state == FLOW_NAME)
        dial(f);
}

static struct flow *flow_new(struct box *b, int fd)
{
    struct flow *f = calloc(1, sizeof *f);

    if (!f) {
        fd_close(fd);
        return NULL;
    }
    f->egress = b->egress;
    f->in.fd = f->out.fd = -EBADF;
    f->up = f->down = (struct lane)LANE_INIT;
    if (end_open(f, &f->in, fd) < 0) {
        free(f);
        return NULL;
    }
    (void)uv_timer_init(b->egress->opts.loop, &f->timer);
    f->timer.data = f;
    f->n_handles++;
    f->box = b;
    f->next = b->flows;
    if (f->next)
        f->next->prev = f;
    b->flows = f;
    b->n_flows++;
    b->egress->n_flows++;
    count_set(&b->egress->opts.counters->connections, b->egress->n_flows);
    count_add(&b->egress->opts.counters->connections_total, 1);
    return f;
}

void flow_begin(struct box *b, int fd)
{
    struct sockaddr_storage ss;
    socklen_t n = sizeof ss;
    struct address to;
    char rule[POLICY_RULE_SIZE];
    struct flow *f;

    /* What it dialled is the local address of the accepted socket. */
    if (getsockname(fd, (struct sockaddr *)&ss, &n) < 0 || !address_from_kernel(&ss, &to)) {
        fd_close(fd);
        return;
    }
    if (to.port == DNS_PORT) {
        names_stream(b->names, fd);
        return;
    }
    f = flow_new(b, fd);
    if (!f)
        return;
    f->to = to;
    if (!is_room(f))
        return;
    switch (decide(f, rule)) {
    case VERDICT_ALLOW:
        dial(f);
        break;
    case VERDICT_NAME:
        find_name(f, rule);
        break;
    case VERDICT_DENY:
        deny(f, NULL, rule, "not allowed");
        break;
    }
}
