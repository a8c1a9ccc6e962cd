/* upstream.c - connections into sandboxes.
 *
 * Per sandbox and port: connections that are idle, unconnected sockets that the engine made in the
 * sandbox's network namespace (asked for several at once), and the requests that wait for one. All
 * go when the row goes.
 */
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "gateway/internal.h"
#include "net/tls.h"

#define SOCKETS_KEPT 16
#define SOCKETS_AHEAD 4 /* asked for over what is needed now; envd only */
#define SOCKETS_ASKED_MAX 16
#define ENGINE_TIMEOUT_MS 5000
#define IDLE_MAX 256         /* for one port */
#define ENVD_IDLE_MS 300000u /* envd keeps idle connections for 620 s */
#define OTHER_IDLE_MS 4000u  /* common servers close them after 5 s */
#define CONNECT_TIMEOUT_MS 5000u

struct port {
    struct port *next;
    struct gateway *g;
    struct idle_pool idle;
    struct request *waiting, **waiting_tail;
    int fds[SOCKETS_KEPT];
    size_t n_fds;
    size_t n_asked; /* sockets that the engine has been asked for */
    uint16_t number;
};

struct ports {
    struct port *first;
};

/* A question to the engine; the row may be gone when the answer comes. */
struct asked {
    struct gateway *g;
    char id[SANDBOX_ID_SIZE];
    uint16_t port;
    size_t n;
};

static struct port *port_find(const struct row *row, uint16_t number)
{
    struct port *p = row->ports ? row->ports->first : NULL;

    while (p && p->number != number)
        p = p->next;
    return p;
}

/* Clients choose the numbers: a port that nothing is left of is forgotten, and only envd's keeps
 * sockets that nobody waits for, or asking for one port after the other would use up memory and
 * descriptors. */
static void ports_sweep(struct ports *ports)
{
    struct port **at = &ports->first;

    while (*at) {
        struct port *p = *at;

        if (p->idle.n > 0 || p->n_fds > 0 || p->n_asked > 0 || p->waiting) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        free(p);
    }
}

static void port_close_fds(struct port *p)
{
    while (p->n_fds > 0)
        fd_close(p->fds[--p->n_fds]);
}

static struct port *port_get(struct gateway *g, struct row *row, uint16_t number)
{
    struct port *p = port_find(row, number);

    if (p)
        return p;
    if (!row->ports)
        row->ports = calloc(1, sizeof(*row->ports));
    if (row->ports)
        ports_sweep(row->ports);
    p = row->ports ? calloc(1, sizeof(*p)) : NULL;
    if (!p)
        return NULL;
    p->g = g;
    p->number = number;
    p->waiting_tail = &p->waiting;
    idle_pool_init(&p->idle, &g->waits, &g->idle_limit, IDLE_MAX,
                   number == ENVD_PORT ? ENVD_IDLE_MS : OTHER_IDLE_MS);
    p->next = row->ports->first;
    row->ports->first = p;
    return p;
}

static struct request *port_shift(struct port *p)
{
    struct request *r = p->waiting;

    if (r)
        upstream_leave(r);
    return r;
}

void upstream_leave(struct request *r)
{
    struct port *p = r->port;
    struct request **at = &p->waiting;

    while (*at != r)
        at = &(*at)->row_next;
    *at = r->row_next;
    if (p->waiting_tail == &r->row_next)
        p->waiting_tail = at;
    r->row_next = NULL;
    r->port = NULL;
}

/* Those that wait: all when the engine refused, else as many as there are sockets now. */
static void port_serve(struct gateway *g, const struct asked *a, int code)
{
    struct row *row = table_find(&g->table, a->id);
    struct port *p = row ? port_find(row, a->port) : NULL;
    size_t n = p && code == 0 ? p->n_fds : SIZE_MAX;

    while (n-- > 0 && p && p->waiting) {
        request_sockets_came(port_shift(p), code);
        row = table_find(&g->table, a->id); /* a request may have made it go */
        p = row ? port_find(row, a->port) : NULL;
    }
}

static void port_ask(struct port *p, const char *id, const char *request_id);

static void on_sockets(void *user, const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                       int *fds, size_t n_fds)
{
    struct asked *a = user;
    struct gateway *g = a->g;
    struct row *row = g->is_closing ? NULL : table_find(&g->table, a->id);
    struct port *p = row ? port_find(row, a->port) : NULL;
    int code = failure ? failure->code : 0;

    if (p) {
        p->n_asked -= MIN(p->n_asked, a->n);
        for (size_t i = 0; i < n_fds && p->n_fds < SOCKETS_KEPT; i++)
            p->fds[p->n_fds++] = TAKE_FD(fds[i]);
        if (code == 0 && (!reply || n_fds == 0))
            code = ABX_RESOURCE_EXHAUSTED; /* the descriptors were lost on the way */
        port_serve(g, a, code);
        row = table_find(&g->table, a->id);
        p = row ? port_find(row, a->port) : NULL;
        if (p && p->waiting && p->n_asked == 0)
            port_ask(p, a->id, p->waiting->request_id);
        else if (p && !p->waiting && p->number != ENVD_PORT)
            port_close_fds(p);
    }
    free(a);
}

/* When the question cannot be sent, those that wait are told from here. */
static void port_ask(struct port *p, const char *id, const char *request_id)
{
    struct ipc_conn *conn = p->g->engine ? ipc_client_conn(p->g->engine) : NULL;
    struct asked *a = calloc(1, sizeof(*a));
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    Abx__Ipc__Socket question = ABX__IPC__SOCKET__INIT;
    size_t n = p->number == ENVD_PORT ? SOCKETS_AHEAD : 0;
    int r;

    for (const struct request *w = p->waiting; w && n < SOCKETS_ASKED_MAX; w = w->row_next)
        n++;
    if (a) {
        *a = (struct asked){ .g = p->g, .port = p->number, .n = n };
        memcpy(a->id, id, strnlen(id, SANDBOX_ID_MAX));
    }
    question.sandbox_id = (char *)(uintptr_t)id;
    question.port = p->number;
    question.count = (uint32_t)n;
    frame.request_id = (char *)(uintptr_t)request_id;
    frame.body_case = ABX__IPC__FRAME__BODY_SOCKET;
    frame.socket = &question;
    r = conn && a ? ipc_conn_request(conn, &frame, ENGINE_TIMEOUT_MS, on_sockets, a, NULL)
                  : ABX_UNAVAILABLE;
    if (r == 0) {
        p->n_asked += n;
        return;
    }
    if (a)
        port_serve(p->g, a, ABX_UNAVAILABLE);
    free(a);
}

/* With TLS the name asked for is localhost, as a certificate made for a server on this port would have it. */
struct http_conn *upstream_connect(struct gateway *g, int fd, uint16_t port, bool is_second,
                                   bool is_tls)
{
    struct sockaddr_in in = { .sin_family = AF_INET,
                              .sin_port = htons(port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    struct http_conn_opts opts = { .loop = g->opts.loop,
                                   .fd = fd,
                                   .address = (struct sockaddr *)&in,
                                   .address_len = sizeof(in),
                                   .connect_timeout_ms = CONNECT_TIMEOUT_MS,
                                   /* Or a server that reads nothing would hold the connection of a
                                    * client that has long gone. */
                                   .write_timeout_ms = STREAM_TIMEOUT_MS };
    int domain = 0, off = 0;
    socklen_t len = sizeof(domain);
    struct http_conn *conn = NULL;

    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_INET6) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
        if (is_second) {
            in6.sin6_addr = in6addr_loopback;
        } else { /* ::ffff:127.0.0.1 */
            in6.sin6_addr.s6_addr[10] = in6.sin6_addr.s6_addr[11] = 0xff;
            memcpy(&in6.sin6_addr.s6_addr[12], &in.sin_addr, sizeof(in.sin_addr));
        }
        opts.address = (struct sockaddr *)&in6;
        opts.address_len = sizeof(in6);
    }
    if (is_tls) {
        opts.layer = tls_client_open(fd, "localhost");
        if (!opts.layer) {
            fd_close(fd);
            return NULL;
        }
    }
    return http_conn_new(&opts, &conn, NULL) < 0 ? NULL : conn;
}

enum upstream upstream_open(struct request *r, struct row *row, struct http_conn **ret)
{
    struct port *p = port_get(r->g, row, r->route.port);
    struct http_conn *conn;

    if (!p)
        return UPSTREAM_FAILED;
    conn = idle_pool_take(&p->idle);
    if (!conn && p->n_fds > 0) {
        conn = upstream_connect(r->g, p->fds[--p->n_fds], p->number, r->is_second_address,
                                table_row_is_https(row, p->number));
        if (!conn)
            return UPSTREAM_FAILED;
    }
    if (conn) {
        *ret = conn;
        return UPSTREAM_READY;
    }
    if (!r->g->engine || !ipc_client_conn(r->g->engine))
        return UPSTREAM_NO_ENGINE;
    r->row_next = NULL;
    *p->waiting_tail = r;
    p->waiting_tail = &r->row_next;
    r->port = p;
    request_wait_socket(r);
    if (p->n_asked == 0)
        port_ask(p, row->id, r->request_id);
    return UPSTREAM_LATER;
}

void upstream_put_back(struct request *r, struct row *row, struct http_conn *conn)
{
    struct port *p =
        row->is_in_table && row->state == ROW_RUNNING ? port_get(r->g, row, r->route.port) : NULL;

    if (p)
        idle_pool_put(&p->idle, conn);
    else
        http_conn_free(conn);
}

void upstream_clear(struct row *row, int code)
{
    struct ports *ports = TAKE_PTR(row->ports);

    while (ports && ports->first) {
        struct port *p = ports->first;

        ports->first = p->next;
        idle_pool_clear(&p->idle);
        port_close_fds(p);
        while (p->waiting)
            request_sockets_came(port_shift(p), code);
        free(p);
    }
    free(ports);
}
