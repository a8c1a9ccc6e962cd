/* http_pool.c - libcurl's multi handle in the client's loop: its sockets, its timer, idle connections.
 *
 * Sockets: libcurl asks for no events between two requests of a kept connection. The watch stays in the epoll set
 * then and is taken out only when something arrives, so that a request costs no epoll_ctl. We open and close the
 * sockets, so a forked child can close its copies without libcurl, which would say goodbye to the server.
 *
 * Idle connections: libcurl closes them only when it looks at them. Its limit follows the number of running
 * exchanges, so that at most max_idle_connections stay; when nothing ran for idle_timeout_ms a new multi
 * handle takes the place of the old one.
 */
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "transport/http_internal.h"

#define SPARE_MAX 128
#define CUT_READS 64
#define EASY_BUFFER_BYTES 65536L
#define MEM_KEPT_BYTES 65536u

/* ---- sockets ---- */

static bool has_hung_up(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLRDHUP };

    return poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

/* Something came on an idle connection that nobody asked for: libcurl would take it for the answer to the next request,
 * be it an error of a server that closes or a forged one. Under TLS it may be a session ticket as well: there only a
 * closed one is cut. What was received goes away, too: libcurl takes a TLS connection with bytes to read for alive. */
static void socket_cut(int fd)
{
    uint8_t bytes[4096];

    (void)shutdown(fd, SHUT_RDWR);
    for (int i = 0; i < CUT_READS && recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0; i++)
        continue;
}

static void pool_socket_event(void *user, unsigned events)
{
    struct http_socket *s = user;
    struct http_pool *pool = s->pool;
    int flags = 0, running;

    if (s->wanted == 0) { /* a kept connection got something */
        client_watch_clear(pool->client, &s->watch);
        if (s->is_idle && (!s->is_tls || has_hung_up(s->watch.fd)))
            socket_cut(s->watch.fd);
        return;
    }
    if (events & CLIENT_IN)
        flags |= CURL_CSELECT_IN;
    if (events & CLIENT_OUT)
        flags |= CURL_CSELECT_OUT;
    pool->in_curl = true;
    (void)curl_multi_socket_action(pool->multi, s->watch.fd, flags, &running);
    pool->in_curl = false;
    pool_settle(pool);
}

static struct http_socket *socket_get(struct http_pool *pool, int fd)
{
    struct http_socket *s;

    if ((size_t)fd >= pool->socket_count) {
        size_t want = MAX((size_t)fd + 1, pool->socket_count * 2);
        struct http_socket **more = reallocarray(pool->sockets, want, sizeof(struct http_socket *));

        if (!more)
            return NULL;
        memset(more + pool->socket_count, 0, (want - pool->socket_count) * sizeof *more);
        pool->sockets = more;
        pool->socket_count = want;
    }
    s = pool->sockets[fd];
    if (s)
        return s;
    s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->pool = pool;
    s->watch = (struct client_watch){ .fd = fd, .fn = pool_socket_event, .user = s };
    pool->sockets[fd] = s;
    return s;
}

/* Of an exchange in cleartext libcurl wants both directions only of a connection that is there, to send a request. */
static void easy_sends_on(CURL *easy, int fd)
{
    struct http_exchange *x = NULL;

    (void)curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&x);
    if (x)
        x->send_fd = fd;
}

static int pool_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *socket_user)
{
    struct http_pool *pool = user;
    struct http_socket *s = socket_get(pool, fd);

    (void)socket_user;
    if (!s)
        return -1;
    s->wanted = what == CURL_POLL_REMOVE ? 0
                                         : (what & CURL_POLL_IN ? CLIENT_IN : 0) |
                                               (what & CURL_POLL_OUT ? CLIENT_OUT : 0);
    if (what == CURL_POLL_INOUT)
        easy_sends_on(easy, fd);
    if (s->wanted == 0 && s->is_open && s->watch.events == CLIENT_IN)
        return 0;
    return client_watch_set(pool->client, &s->watch, s->wanted, NULL) < 0 ? -1 : 0;
}

static curl_socket_t pool_open(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct http_exchange *x = user;
    struct http_pool *pool = x->pool;
    _cleanup_(closep) int fd =
        socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    struct http_socket *s;

    (void)purpose;
    if (fd < 0)
        return CURL_SOCKET_BAD;
    s = socket_get(pool, fd);
    if (!s)
        return CURL_SOCKET_BAD;
    client_watch_clear(pool->client, &s->watch); /* of a descriptor that libcurl closed by itself */
    s->is_open = true;
    s->is_tls = x->is_https;
    s->opener = x;
    s->is_new = s->is_tls && !x->is_tunnel;
    s->own_port = s->port = 0;
    s->sender = NULL;
    pool->new_count += s->is_new;
    x->fd = fd;
    pool->open_count++;
    return TAKE_FD(fd);
}

static int socket_port(struct http_socket *s)
{
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } own = { 0 };
    socklen_t n = sizeof own;

    if (s->port == 0 && getsockname(s->watch.fd, &own.any, &n) == 0)
        s->port = ntohs(own.any.sa_family == AF_INET6 ? own.in6.sin6_port : own.in.sin_port);
    return s->port;
}

void pool_sends(const struct http_exchange *x, int own_port)
{
    const struct http_pool *pool = x->pool;

    for (size_t i = 0; i < pool->socket_count; i++) {
        struct http_socket *s = pool->sockets[i];

        if (s && s->sender == x)
            s->sender = NULL;
        if (!s || !s->is_open || socket_port(s) != own_port)
            continue;
        s->is_idle = false;
        s->sender = x;
    }
}

void pool_sent(const struct http_exchange *x)
{
    const struct http_pool *pool = x->pool;

    for (size_t i = 0; i < pool->socket_count; i++) {
        struct http_socket *s = pool->sockets[i];

        if (!s || s->sender != x)
            continue;
        s->sender = NULL;
        if (!s->is_open || s->wanted != 0 || x->is_tunnel || x->head.version >= 20 ||
            (!x->has_head && !x->is_discarding))
            continue;
        s->is_idle = client_watch_set(pool->client, &s->watch, CLIENT_IN, NULL) >= 0;
    }
}

/* The open socket that was made for it, or NULL. */
static struct http_socket *own_socket(const struct http_exchange *x)
{
    struct http_socket *s = x->fd >= 0 ? x->pool->sockets[x->fd] : NULL;

    return s && s->is_open && s->opener == x ? s : NULL;
}

bool pool_is_connected(const struct http_exchange *x)
{
    struct sockaddr_storage to;
    socklen_t n = sizeof to;

    return own_socket(x) && getpeername(x->fd, (struct sockaddr *)&to, &n) == 0;
}

bool pool_is_full(const struct http_pool *pool)
{
    return pool->open_count >= pool->max_connections;
}

/* ---- new connections ---- */

static void socket_known(struct http_socket *s)
{
    struct http_pool *pool = s->pool;

    if (!s->is_new)
        return;
    s->is_new = false;
    pool->new_count--;
    for (struct http_exchange *x = pool->live; x; x = x->next_live)
        exchange_hold_end(x);
}

int64_t pool_hold_ms(struct http_exchange *x, int own_port)
{
    struct http_pool *pool = x->pool;
    struct http_socket *own = own_socket(x);
    int64_t now_ns;

    if (pool->new_count == 0)
        return 0;
    now_ns = time_mono_ns();
    if (own && own->is_new) {
        own->own_port = own_port;
        own->hold_until_ns = now_ns + HTTP_HOLD_MS * NSEC_PER_MSEC;
        return 0;
    }
    for (size_t i = 0; i < pool->socket_count; i++) {
        struct http_socket *s = pool->sockets[i];

        if (!s || !s->is_new || s->own_port != own_port)
            continue;
        if (now_ns < s->hold_until_ns)
            return (s->hold_until_ns - now_ns + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC;
        socket_known(s);
    }
    return 0;
}

void pool_answered(struct http_exchange *x)
{
    struct http_socket *s = own_socket(x);

    if (s)
        socket_known(s);
}

static int pool_close(void *user, curl_socket_t fd)
{
    struct http_pool *pool = user;

    if ((size_t)fd < pool->socket_count && pool->sockets[fd]) {
        struct http_socket *s = pool->sockets[fd];

        client_watch_clear(pool->client, &s->watch);
        if (s->is_open)
            pool->open_count--;
        socket_known(s);
        s->sender = NULL;
        s->is_open = s->is_idle = false;
        s->wanted = 0;
    }
    return close(fd);
}

void pool_forget_socket(struct http_pool *pool, int fd)
{
    if (fd >= 0 && (size_t)fd < pool->socket_count && pool->sockets[fd])
        client_watch_clear(pool->client, &pool->sockets[fd]->watch);
}

/* ---- the timer ---- */

static int pool_timer(CURLM *multi, long timeout_ms, void *user)
{
    struct http_pool *pool = user;

    (void)multi;
    if (timeout_ms < 0)
        client_timer_clear(pool->client, &pool->curl_timer);
    else
        client_timer_set(pool->client, &pool->curl_timer,
                         time_mono_ns() + timeout_ms * NSEC_PER_MSEC);
    return 0;
}

static void pool_timer_due(void *user)
{
    struct http_pool *pool = user;
    int running;

    pool->in_curl = true;
    (void)curl_multi_socket_action(pool->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    pool->in_curl = false;
    pool_settle(pool);
}

/* ---- exchanges ---- */

/* How many connections libcurl keeps in all: those in use, without the one that comes back, and the idle. */
static void pool_limit(struct http_pool *pool)
{
    long keep = pool->max_idle + MAX(pool->running_count - 1, 0);

    (void)curl_multi_setopt(pool->multi, CURLMOPT_MAXCONNECTS, MAX(keep, 1L));
}

/* ---- the queue ---- */

/* HTTP/2 shares connections and tunnels leave the pool: those are libcurl's to count. */
static bool needs_a_connection(const struct http_exchange *x)
{
    return !x->is_https && !x->is_tunnel;
}

bool pool_enqueue(struct http_pool *pool, struct http_exchange *x)
{
    if (!needs_a_connection(x) || pool->counted < pool->max_connections)
        return false;
    x->is_queued = true;
    x->next_queue = NULL;
    x->prev_queue = pool->queue_last;
    if (pool->queue_last)
        pool->queue_last->next_queue = x;
    else
        pool->queue = x;
    pool->queue_last = x;
    return true;
}

void pool_dequeue(struct http_pool *pool, struct http_exchange *x)
{
    if (!x->is_queued)
        return;
    if (x->prev_queue)
        x->prev_queue->next_queue = x->next_queue;
    else
        pool->queue = x->next_queue;
    if (x->next_queue)
        x->next_queue->prev_queue = x->prev_queue;
    else
        pool->queue_last = x->prev_queue;
    x->prev_queue = x->next_queue = NULL;
    x->is_queued = false;
}

static void pool_queue_run(void *user)
{
    struct http_pool *pool = user;

    while (pool->queue && pool->counted < pool->max_connections) {
        struct http_exchange *x = pool->queue;

        pool_dequeue(pool, x);
        exchange_admit(x);
    }
}

static void pool_uncount(struct http_pool *pool, struct http_exchange *x)
{
    if (!x->is_counted)
        return;
    x->is_counted = false;
    pool->counted--;
    if (pool->queue)
        client_task_add(pool->client, &pool->queue_task);
}

/* ---- exchanges in libcurl's hands ---- */

int pool_add(struct http_pool *pool, struct http_exchange *x, struct abx_err *err)
{
    CURLMcode r;

    client_timer_clear(pool->client, &pool->idle_timer);
    r = curl_multi_add_handle(pool->multi, x->easy);
    if (r == CURLM_OUT_OF_MEMORY)
        return err_oom(err);
    if (r != CURLM_OK)
        return err_set(err, ABX_INTERNAL, "libcurl: %s", curl_multi_strerror(r));
    x->state = EXCHANGE_RUNNING;
    pool->running_count++;
    x->is_counted = needs_a_connection(x);
    pool->counted += x->is_counted;
    pool_limit(pool);
    return 0;
}

void pool_remove(struct http_pool *pool, struct http_exchange *x)
{
    if (client_is_forked(pool->client))
        return; /* it would speak on the parent's connections */
    pool->in_curl = true;
    (void)curl_multi_remove_handle(pool->multi, x->easy);
    pool->in_curl = false;
    pool->running_count--;
    pool_uncount(pool, x);
    pool_limit(pool);
    if (pool->running_count == 0)
        client_timer_set(pool->client, &pool->idle_timer, time_mono_ns() + pool->idle_timeout_ns);
}

void pool_unpause(struct http_pool *pool, struct http_exchange *x)
{
    int bits = (x->recv_paused ? CURLPAUSE_RECV : 0) | (x->send_paused ? CURLPAUSE_SEND : 0);

    pool->in_curl = true;
    (void)curl_easy_pause(x->easy, bits);
    pool->in_curl = false;
    pool_settle(pool);
}

void pool_settle(struct http_pool *pool)
{
    CURLMsg *msg;
    int left;

    if (pool->in_curl)
        return;
    while (pool->doomed) {
        struct http_exchange *x = pool->doomed;

        pool->doomed = x->next;
        pool_remove(pool, x);
        exchange_release(x);
    }
    while ((msg = curl_multi_info_read(pool->multi, &left)) != NULL) {
        struct http_exchange *x = NULL;
        CURLcode result = msg->data.result;

        if (msg->msg != CURLMSG_DONE)
            continue;
        (void)curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&x);
        pool_sent(x);
        exchange_finished(x, result);
    }
}

/* ---- easy handles ---- */

#define SET(easy, option, value)                                                                   \
    do {                                                                                           \
        if (curl_easy_setopt((easy), (option), (value)) != CURLE_OK)                               \
            return false;                                                                          \
    } while (0)

/* What is the same for each request of a handle. */
static bool easy_prepare(struct http_pool *pool, struct http_exchange *x)
{
    CURL *e = x->easy;

    SET(e, CURLOPT_PRIVATE, x);
    SET(e, CURLOPT_NOSIGNAL, 1L);
    SET(e, CURLOPT_ERRORBUFFER, x->error_text);
    SET(e, CURLOPT_WRITEFUNCTION, exchange_on_body);
    SET(e, CURLOPT_WRITEDATA, x);
    SET(e, CURLOPT_HEADERFUNCTION, exchange_on_header);
    SET(e, CURLOPT_HEADERDATA, x);
    SET(e, CURLOPT_READFUNCTION, exchange_on_read);
    SET(e, CURLOPT_READDATA, x);
    SET(e, CURLOPT_SEEKFUNCTION, exchange_on_seek);
    SET(e, CURLOPT_SEEKDATA, x);
    SET(e, CURLOPT_PREREQFUNCTION, exchange_on_send);
    SET(e, CURLOPT_PREREQDATA, x);
    SET(e, CURLOPT_DEBUGFUNCTION, exchange_on_debug);
    SET(e, CURLOPT_DEBUGDATA, x);
    SET(e, CURLOPT_OPENSOCKETFUNCTION, pool_open);
    SET(e, CURLOPT_OPENSOCKETDATA, x);
    SET(e, CURLOPT_CLOSESOCKETFUNCTION, pool_close);
    SET(e, CURLOPT_CLOSESOCKETDATA, pool);
    SET(e, CURLOPT_PATH_AS_IS, 1L);
    SET(e, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    SET(e, CURLOPT_NOPROXY, pool->no_proxy ? pool->no_proxy : "");
    SET(e, CURLOPT_TCP_KEEPALIVE, 1L);
    SET(e, CURLOPT_BUFFERSIZE, EASY_BUFFER_BYTES);
    SET(e, CURLOPT_MAXAGE_CONN, pool->max_age_s);
    SET(e, CURLOPT_CONNECTTIMEOUT_MS, (long)HTTP_CONNECT_TIMEOUT_MS);
#if LIBCURL_VERSION_NUM >= 0x075700
    /* A name server that does not answer must not hold up a cancel. */
    SET(e, CURLOPT_QUICK_EXIT, 1L);
#endif
    return true;
}

static void exchange_destroy(struct http_exchange *x)
{
    curl_easy_cleanup(x->easy);
    buf_done(&x->mem);
    head_done(&x->head);
    free(x);
}

struct http_exchange *pool_take(struct http_pool *pool)
{
    struct http_exchange *x = pool->spare;

    if (x) {
        pool->spare = x->next;
        pool->spare_count--;
        x->next = NULL;
        return x;
    }
    x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->pool = pool;
    buf_init(&x->mem, 1u << 20);
    head_init(&x->head);
    x->easy = curl_easy_init();
    if (!x->easy || !easy_prepare(pool, x)) {
        exchange_destroy(x);
        return NULL;
    }
    return x;
}

void pool_give(struct http_pool *pool, struct http_exchange *x)
{
    if (pool->spare_count >= SPARE_MAX || x->is_spent || exchange_spends(x)) {
        exchange_destroy(x);
        return;
    }
    if (x->mem.cap > MEM_KEPT_BYTES)
        buf_done(&x->mem);
    if (x->head.mem.cap > MEM_KEPT_BYTES)
        buf_done(&x->head.mem);
    x->state = EXCHANGE_FREE;
    x->next = pool->spare;
    pool->spare = x;
    pool->spare_count++;
}

/* ---- life ---- */

static CURLM *multi_open(struct http_pool *pool)
{
    CURLM *m = curl_multi_init();

    if (!m)
        return NULL;
    (void)curl_multi_setopt(m, CURLMOPT_SOCKETFUNCTION, pool_socket);
    (void)curl_multi_setopt(m, CURLMOPT_SOCKETDATA, pool);
    (void)curl_multi_setopt(m, CURLMOPT_TIMERFUNCTION, pool_timer);
    (void)curl_multi_setopt(m, CURLMOPT_TIMERDATA, pool);
    (void)curl_multi_setopt(m, CURLMOPT_PIPELINING, (long)CURLPIPE_MULTIPLEX);
    (void)curl_multi_setopt(m, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)pool->max_connections);
    return m;
}

static void multi_close(struct http_pool *pool, CURLM *multi)
{
    client_timer_clear(pool->client, &pool->curl_timer);
    pool->in_curl = true;
    (void)curl_multi_cleanup(multi);
    pool->in_curl = false;
    client_timer_clear(pool->client, &pool->curl_timer);
}

static void pool_idle_due(void *user)
{
    struct http_pool *pool = user;
    CURLM *fresh;

    if (pool->running_count > 0)
        return;
    fresh = multi_open(pool);
    if (!fresh) { /* no memory: the connections stay until the next time */
        client_timer_set(pool->client, &pool->idle_timer, time_mono_ns() + pool->idle_timeout_ns);
        return;
    }
    multi_close(pool, pool->multi);
    pool->multi = fresh;
}

static bool env_take(const char *name, char **to)
{
    const char *value = getenv(name);

    if (*to || !value || !value[0])
        return true;
    *to = strdup(value);
    return *to != NULL;
}

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_ready = CURLE_FAILED_INIT;

static void curl_start(void)
{
    curl_ready = curl_global_init(CURL_GLOBAL_DEFAULT);
}

int http_pool_new(abx_client *c, const struct abx_client_opts *opts, struct http_pool **ret,
                  struct abx_err *err)
{
    _cleanup_(http_pool_freep) struct http_pool *pool = NULL;
    int idle_ms = opts->idle_timeout_ms > 0 ? opts->idle_timeout_ms : 30000;

    (void)pthread_once(&curl_once, curl_start);
    if (curl_ready != CURLE_OK)
        return err_set(err, ABX_INTERNAL, "libcurl: %s", curl_easy_strerror(curl_ready));
    pool = calloc(1, sizeof *pool);
    if (!pool)
        return err_oom(err);
    pool->client = c;
    pool->max_connections = opts->max_connections > 0 ? opts->max_connections : 100;
    pool->max_idle = opts->max_idle_connections > 0 ? opts->max_idle_connections : 20;
    pool->idle_timeout_ns = idle_ms * NSEC_PER_MSEC;
    pool->max_age_s = MAX(idle_ms / 1000, 1);
    pool->curl_timer = (struct client_timer){ .fn = pool_timer_due, .user = pool };
    pool->queue_task = (struct client_task){ .fn = pool_queue_run, .user = pool };
    pool->idle_timer = (struct client_timer){ .fn = pool_idle_due, .user = pool };
    pool->ca_default = curl_version_info(CURLVERSION_NOW)->cainfo;
    /* Read in 7.88. Later ones (8.7) insist on being given each byte of the length that they were told. */
    pool->can_go_past = curl_version_info(CURLVERSION_NOW)->version_num < 0x080000;
    if (!env_take("no_proxy", &pool->no_proxy) || !env_take("NO_PROXY", &pool->no_proxy) ||
        !env_take("SSL_CERT_FILE", &pool->ca_file) || !env_take("SSL_CERT_DIR", &pool->ca_dir))
        return err_oom(err);
    pool->multi = multi_open(pool);
    if (!pool->multi)
        return err_oom(err);
    *ret = TAKE_PTR(pool);
    return 0;
}

/* In a forked child: libcurl's memory stays (its cleanup would write to the parent's connections), the
 * child's copies of the sockets are closed. */
static void pool_abandon(struct http_pool *pool)
{
    for (size_t fd = 0; fd < pool->socket_count; fd++)
        if (pool->sockets[fd] && pool->sockets[fd]->is_open)
            (void)close((int)fd);
}

void http_pool_free(struct http_pool *pool)
{
    if (!pool)
        return;
    if (client_is_forked(pool->client)) {
        pool_abandon(pool);
        return;
    }
    while (pool->live)
        http_cancel(pool->live);
    client_task_remove(pool->client, &pool->queue_task);
    if (pool->multi)
        multi_close(pool, pool->multi);
    client_timer_clear(pool->client, &pool->idle_timer);
    while (pool->spare) {
        struct http_exchange *x = pool->spare;

        pool->spare = x->next;
        exchange_destroy(x);
    }
    for (size_t fd = 0; fd < pool->socket_count; fd++)
        free(pool->sockets[fd]);
    free(pool->sockets);
    free(pool->no_proxy);
    free(pool->ca_file);
    free(pool->ca_dir);
    free(pool);
}
