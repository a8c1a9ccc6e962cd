/* http_server.c - listeners and registry of connections. See http_server.h, http_session.h. */
#include "net/http_server.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#include "base/fd.h"
#include "net/counters.h"
#include "net/http_session.h"

#define ACCEPTS_PER_EVENT 32
#define ACCEPT_RETRY_MS 100u
#define DEFAULT_CONNECTIONS 10000
#define DEFAULT_HEADER_MS 10000u
#define DEFAULT_IDLE_MS 620000u
#define DEFAULT_BODY_MS 60000u
#define DEFAULT_WRITE_MS 60000u
#define DEFAULT_FIN_GRACE_MS 500u

static void on_listener(uv_poll_t *poll, int status, int events);

static void listen_start(struct http_server *server)
{
    if (server->is_stopping || server->is_accepting ||
        server->n_sessions >= server->opts.max_connections)
        return;
    server->is_accepting = true;
    for (size_t i = 0; i < server->n_listeners; i++)
        if (uv_poll_start(&server->listeners[i].poll, UV_READABLE, on_listener) < 0)
            server->is_accepting = false;
}

static void listen_pause(struct http_server *server)
{
    for (size_t i = 0; server->is_accepting && i < server->n_listeners; i++)
        (void)uv_poll_stop(&server->listeners[i].poll);
    server->is_accepting = false;
}

static void on_retry(uv_timer_t *timer)
{
    listen_start(timer->data);
}

static void peer_name(const struct sockaddr_storage *address, char to[INET6_ADDRSTRLEN])
{
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
    const struct sockaddr_in *in = (const struct sockaddr_in *)address;

    if (address->ss_family == AF_INET)
        (void)inet_ntop(AF_INET, &in->sin_addr, to, INET6_ADDRSTRLEN);
    else if (address->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
        (void)inet_ntop(AF_INET, &in6->sin6_addr.s6_addr[12], to, INET6_ADDRSTRLEN);
    else if (address->ss_family == AF_INET6)
        (void)inet_ntop(AF_INET6, &in6->sin6_addr, to, INET6_ADDRSTRLEN);
    else
        (void)snprintf(to, INET6_ADDRSTRLEN, "unix");
}

static void count_connections(const struct http_server *server, uint64_t n_new)
{
    if (server->opts.n_connections)
        __atomic_store_n(server->opts.n_connections, server->n_sessions, __ATOMIC_RELAXED);
    if (server->opts.n_accepted && n_new > 0)
        count_add(server->opts.n_accepted, n_new);
}

static void on_session_free(struct sock *sock)
{
    struct session *s = container_of(sock, struct session, sock);
    struct http_server *server = s->server;

    if (s->protocol)
        s->protocol->free(s);
    http1_parser_free(s->parser);
    buf_done(&s->in);
    free(s);
    server_unref(server);
}

/* What the client has sent is read as far as it is there: else closing would reset the connection, and
 * the answer might be lost on its way. */
static void refuse(struct http_server *server, int fd, const struct sockaddr_storage *peer,
                   bool is_secure)
{
    static const char answer[] =
        "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nContent-Length: 70\r\n"
        "Should-Retry: true\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
        "{\"code\":429,\"message\":\"Too many connections from this client address\"}";
    char name[INET6_ADDRSTRLEN], scratch[4096];

    if (!is_secure) { /* a handshake for this would be what the limit is to save */
        (void)recv(fd, scratch, sizeof(scratch), MSG_DONTWAIT);
        (void)send(fd, answer, sizeof(answer) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)shutdown(fd, SHUT_WR);
    }
    fd_close(fd);
    peer_name(peer, name);
    if (server->opts.on_refused)
        server->opts.on_refused(server->opts.user, name);
}

/* NULL when there is no memory for it; the fd is closed then. */
static struct session *session_new(struct listener *l, int fd)
{
    struct http_server *server = l->server;
    struct session *s = calloc(1, sizeof(*s));
    struct sock_layer *layer = NULL;

    if (s && l->is_secure)
        layer = server->opts.open_layer(server->opts.layer_user, fd);
    if (!s || (l->is_secure && !layer)) {
        fd_close(fd);
        free(s);
        return NULL;
    }
    if (sock_init(&s->sock, server->opts.loop, fd, session_on_event, on_session_free, NULL) < 0) {
        if (layer)
            layer->ops->free(layer);
        free(s);
        return NULL;
    }
    s->sock.layer = layer;
    s->is_secure = l->is_secure;
    return s;
}

static void session_open(struct listener *l, int fd, const struct sockaddr_storage *peer)
{
    struct http_server *server = l->server;
    struct peer *counted = NULL;
    struct session *s;
    int one = 1;

    if (server->peers && !peers_enter(server->peers, peer, &counted)) {
        refuse(server, fd, peer, l->is_secure);
        return;
    }
    s = session_new(l, fd);
    if (!s) {
        if (server->peers)
            peers_leave(server->peers, counted);
        return;
    }
    s->counted = counted;
    peer_name(peer, s->peer);
    if (peer->ss_family != AF_UNIX) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    }
    s->server = server;
    s->progress_at = sock_now(&s->sock);
    buf_init(&s->in, SESSION_IN_MAX + SOCK_READ_MAX);
    s->next = server->sessions;
    if (s->next)
        s->next->prev = s;
    server->sessions = s;
    server->n_sessions++;
    count_connections(server, 1);
    server->n_refs++;
    sock_watch(&s->sock, SOCK_READABLE);
    sock_set_deadline(&s->sock, s->progress_at, server->opts.idle_timeout_ms);
}

static void on_listener(uv_poll_t *poll, int status, int events)
{
    struct listener *l = poll->data;
    struct http_server *server = l->server;

    (void)events;
    if (status < 0)
        listen_pause(server);
    for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
        struct sockaddr_storage peer = { 0 };
        socklen_t len = sizeof(peer);
        int fd;

        if (server->n_sessions >= server->opts.max_connections) {
            listen_pause(server);
            return;
        }
        fd = accept4(l->fd, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            session_open(l, fd, &peer);
            continue;
        }
        if (errno == ECONNABORTED || errno == EINTR)
            continue;
        if (errno != EAGAIN) {
            /* Out of descriptors or memory: those waiting stay in the backlog until there are
             * some again; polling on would spin. */
            listen_pause(server);
            (void)uv_timer_start(&server->retry, on_retry, ACCEPT_RETRY_MS, 0);
        }
        return;
    }
}

static void set_default(uint32_t *value, uint32_t fallback)
{
    if (*value == 0)
        *value = fallback;
}

/* Closes the listening sockets, those that the loop has not taken over too. */
static void close_fds(const struct http_server_opts *opts)
{
    fd_close(opts->listen_fd);
    if (opts->open_layer)
        fd_close(opts->tls_listen_fd);
}

static int add_listener(struct http_server *server, int fd, bool is_secure)
{
    struct listener *l = &server->listeners[server->n_listeners];
    int r = uv_poll_init(server->opts.loop, &l->poll, fd);

    if (r < 0)
        return r;
    l->server = server;
    l->fd = fd;
    l->is_secure = is_secure;
    l->poll.data = l;
    server->n_listeners++;
    server->n_refs++;
    return 0;
}

static void on_handle_closed(uv_handle_t *handle)
{
    server_unref(handle->data);
}

static void on_listener_closed(uv_handle_t *handle)
{
    const struct listener *l = handle->data;

    server_unref(l->server);
}

static void set_defaults(struct http_server_opts *o)
{
    if (o->max_connections == 0)
        o->max_connections = DEFAULT_CONNECTIONS;
    set_default(&o->header_timeout_ms, DEFAULT_HEADER_MS);
    set_default(&o->idle_timeout_ms, DEFAULT_IDLE_MS);
    set_default(&o->body_timeout_ms, DEFAULT_BODY_MS);
    set_default(&o->write_timeout_ms, DEFAULT_WRITE_MS);
    set_default(&o->fin_grace_ms, DEFAULT_FIN_GRACE_MS);
}

int http_server_new(const struct http_server_opts *opts, struct http_server **ret,
                    struct abx_err *err)
{
    struct http_server *server;
    int r;

    assert(opts->on_request);
    server = calloc(1, sizeof(*server));
    if (!server) {
        close_fds(opts);
        return err_oom(err);
    }
    server->opts = *opts;
    server->n_refs = 1;
    set_defaults(&server->opts);
    if (opts->max_peer_connections > 0)
        server->peers = peers_new(opts->max_peer_connections);
    if (opts->max_peer_connections > 0 && !server->peers) {
        close_fds(opts);
        free(server);
        return err_oom(err);
    }
    (void)uv_timer_init(opts->loop, &server->retry);
    server->retry.data = server;
    server->n_refs++;
    r = add_listener(server, opts->listen_fd, false);
    if (r == 0 && opts->open_layer)
        r = add_listener(server, opts->tls_listen_fd, true);
    if (r < 0) {
        if (server->n_listeners == 0)
            fd_close(opts->listen_fd);
        if (opts->open_layer)
            fd_close(opts->tls_listen_fd);
        http_server_free(server); /* the memory goes with the handles, from the loop */
        return err_sys(err, -r, "watch the listening socket");
    }
    listen_start(server);
    *ret = server;
    return 0;
}

void server_unref(struct http_server *server)
{
    if (--server->n_refs > 0)
        return;
    while (server->n_parsers > 0)
        http1_parser_free(server->parsers[--server->n_parsers]);
    peers_free(server->peers);
    free(server);
}

void http_server_stop(struct http_server *server)
{
    if (server->is_stopping)
        return;
    server->is_stopping = true;
    listen_pause(server);
    uv_close((uv_handle_t *)&server->retry, on_handle_closed);
    for (size_t i = 0; i < server->n_listeners; i++) {
        struct listener *l = &server->listeners[i];

        uv_close((uv_handle_t *)&l->poll, on_listener_closed);
        fd_close(TAKE_FD(l->fd));
    }
    for (struct session *s = server->sessions; s; s = s->next)
        sock_kick(&s->sock);
}

static bool has_hung_up(int fd)
{
    struct pollfd p = { fd, POLLRDHUP, 0 };

    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

static void drop_waiting(struct listener *l)
{
    struct sockaddr_storage peer = { 0 };
    socklen_t len = sizeof(peer);
    int fd;

    while (l->server->n_sessions < l->server->opts.max_connections &&
           (fd = accept4(l->fd, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK)) >=
               0) {
        if (has_hung_up(fd))
            fd_close(fd);
        else
            session_open(l, fd, &peer);
        len = sizeof(peer);
    }
}

void http_server_drop_closed(struct http_server *server)
{
    struct session *s = server->sessions;

    for (size_t i = 0; i < server->n_listeners && !server->is_stopping; i++)
        drop_waiting(&server->listeners[i]);
    while (s) {
        if (!has_hung_up(s->sock.fd)) {
            s = s->next;
            continue;
        }
        session_gone(s, 0);
        s = server->sessions; /* whatever its end took with it */
    }
}

void http_server_free(struct http_server *server)
{
    struct abx_err why = { 0 };

    if (!server)
        return;
    http_server_stop(server);
    (void)err_set(&why, ABX_UNAVAILABLE, "the server is stopping");
    while (server->sessions)
        session_fail(server->sessions, &why, true);
    server_unref(server);
}

size_t http_server_connections(const struct http_server *server)
{
    return server->n_sessions;
}

void server_forget(struct session *s)
{
    struct http_server *server = s->server;

    if (s->prev)
        s->prev->next = s->next;
    else
        server->sessions = s->next;
    if (s->next)
        s->next->prev = s->prev;
    s->prev = s->next = NULL;
    if (server->peers)
        peers_leave(server->peers, TAKE_PTR(s->counted));
    server->n_sessions--;
    count_connections(server, 0);
    listen_start(server);
}

struct http1_parser *server_take_parser(struct http_server *server)
{
    if (server->n_parsers > 0)
        return server->parsers[--server->n_parsers];
    return http1_parser_new(HTTP1_REQUEST);
}

void server_give_parser(struct http_server *server, struct http1_parser *parser)
{
    if (!parser)
        return;
    if (http1_parser_is_idle(parser) && server->n_parsers < PARSERS_KEPT) {
        http1_parser_shrink(parser);
        server->parsers[server->n_parsers++] = parser;
        return;
    }
    http1_parser_free(parser);
}

const char *server_date(struct http_server *server)
{
    time_t now = time(NULL);

    if (now != server->date_at) {
        server->date_at = now;
        http_date_format(now, server->date);
    }
    return server->date;
}
