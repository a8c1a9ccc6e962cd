/* http_server.c - listener and registry of connections. See http_server.h, http_session.h. */
#include "net/http_server.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#include "base/fd.h"
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
    server->is_accepting = uv_poll_start(&server->poll, UV_READABLE, on_listener) == 0;
}

static void listen_pause(struct http_server *server)
{
    if (server->is_accepting)
        (void)uv_poll_stop(&server->poll);
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

static void on_session_free(struct sock *sock)
{
    struct session *s = container_of(sock, struct session, sock);
    struct http_server *server = s->server;

    http1_parser_free(s->parser);
    buf_done(&s->in);
    free(s);
    server_unref(server);
}

/* What the client has sent is read as far as it is there: else closing would reset the connection, and
 * the answer might be lost on its way. */
static void refuse(struct http_server *server, int fd, const struct sockaddr_storage *peer)
{
    static const char answer[] =
        "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nContent-Length: 70\r\n"
        "Should-Retry: true\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
        "{\"code\":429,\"message\":\"Too many connections from this client address\"}";
    char name[INET6_ADDRSTRLEN], scratch[4096];

    (void)recv(fd, scratch, sizeof(scratch), MSG_DONTWAIT);
    (void)send(fd, answer, sizeof(answer) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)shutdown(fd, SHUT_WR);
    fd_close(fd);
    peer_name(peer, name);
    if (server->opts.on_refused)
        server->opts.on_refused(server->opts.user, name);
}

static void session_open(struct http_server *server, int fd, const struct sockaddr_storage *peer)
{
    struct peer *counted = NULL;
    struct session *s;
    int one = 1;

    if (server->peers && !peers_enter(server->peers, peer, &counted)) {
        refuse(server, fd, peer);
        return;
    }
    s = calloc(1, sizeof(*s));
    if (!s ||
        sock_init(&s->sock, server->opts.loop, fd, session_on_event, on_session_free, NULL) < 0) {
        if (!s)
            fd_close(fd);
        if (server->peers)
            peers_leave(server->peers, counted);
        free(s);
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
    server->n_refs++;
    sock_watch(&s->sock, SOCK_READABLE);
    sock_set_deadline(&s->sock, s->progress_at, server->opts.idle_timeout_ms);
}

static void on_listener(uv_poll_t *poll, int status, int events)
{
    struct http_server *server = poll->data;

    (void)events;
    if (status < 0)
        server->is_accepting = false;
    for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
        struct sockaddr_storage peer = { 0 };
        socklen_t len = sizeof(peer);
        int fd;

        if (server->n_sessions >= server->opts.max_connections) {
            listen_pause(server);
            return;
        }
        fd = accept4(server->listen_fd, (struct sockaddr *)&peer, &len,
                     SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            session_open(server, fd, &peer);
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

int http_server_new(const struct http_server_opts *opts, struct http_server **ret,
                    struct abx_err *err)
{
    struct http_server *server;
    int r;

    assert(opts->on_request);
    server = calloc(1, sizeof(*server));
    if (!server) {
        fd_close(opts->listen_fd);
        return err_oom(err);
    }
    server->opts = *opts;
    server->listen_fd = opts->listen_fd;
    if (server->opts.max_connections == 0)
        server->opts.max_connections = DEFAULT_CONNECTIONS;
    set_default(&server->opts.header_timeout_ms, DEFAULT_HEADER_MS);
    set_default(&server->opts.idle_timeout_ms, DEFAULT_IDLE_MS);
    set_default(&server->opts.body_timeout_ms, DEFAULT_BODY_MS);
    set_default(&server->opts.write_timeout_ms, DEFAULT_WRITE_MS);
    set_default(&server->opts.fin_grace_ms, DEFAULT_FIN_GRACE_MS);
    if (opts->max_peer_connections > 0)
        server->peers = peers_new(opts->max_peer_connections);
    r = opts->max_peer_connections > 0 && !server->peers
            ? UV_ENOMEM
            : uv_poll_init(opts->loop, &server->poll, server->listen_fd);
    if (r < 0) {
        fd_close(server->listen_fd);
        peers_free(server->peers);
        free(server);
        return err_sys(err, -r, "watch the listening socket");
    }
    (void)uv_timer_init(opts->loop, &server->retry);
    server->poll.data = server->retry.data = server;
    server->n_refs = 3;
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

static void on_handle_closed(uv_handle_t *handle)
{
    server_unref(handle->data);
}

void http_server_stop(struct http_server *server)
{
    if (server->is_stopping)
        return;
    server->is_stopping = true;
    listen_pause(server);
    uv_close((uv_handle_t *)&server->poll, on_handle_closed);
    uv_close((uv_handle_t *)&server->retry, on_handle_closed);
    fd_close(server->listen_fd);
    server->listen_fd = -EBADF;
    for (struct session *s = server->sessions; s; s = s->next)
        sock_kick(&s->sock);
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
