/* test_relay.c - client, server under test, relay, upstream: all over real sockets. */
#include "net_test.h"

#include "net/http2.h"
#include "net/relay.h"

struct seen {
    unsigned dones;
    bool has_exchange;
    struct relay_result result;
};

static void relay(struct http_exchange *ex);

static struct seen seen;
static unsigned retries; /* how often to try again what is safe */
static struct http_server *server;
static struct http_conn *conn;
static int upstream_listener, upstream, client;
static uint16_t upstream_port;

static void on_done(void *user, struct http_exchange *ex, struct http_conn *c,
                    const struct relay_result *result)
{
    (void)user;
    assert_ptr_equal(c, conn);
    seen.dones++;
    seen.has_exchange = ex != NULL;
    seen.result = *result;
    if (ex && result->is_safe_to_retry && retries > 0) {
        retries--;
        http_conn_free(TAKE_PTR(conn));
        relay(ex);
        return;
    }
    if (ex && result->err.code && !result->is_response_sent)
        http_exchange_send(ex, 502, NULL, 0, slice_str(result->err.msg));
    if (!result->is_reusable) {
        http_conn_free(c);
        conn = NULL;
    }
}

static void relay(struct http_exchange *ex)
{
    static const struct http1_field cors = { SLICE_LIT("Access-Control-Allow-Origin"),
                                             SLICE_LIT("*") };
    static struct http1_field fields[2];
    struct sockaddr_in in = { .sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                              .sin_port = htons(upstream_port) };
    const struct http1_head *head = http_exchange_head(ex);
    struct relay_opts opts = { .ex = ex,
                               .target = head->target,
                               .fields = fields,
                               .n_fields = head->is_upgrade ? 2 : 1,
                               .response_fields = &cors,
                               .n_response_fields = 1,
                               .on_done = on_done };

    fields[0] = (struct http1_field){ SLICE_LIT("Host"), head->host };
    fields[1] = (struct http1_field){ SLICE_LIT("Upgrade"), http1_head_value(head, "upgrade") };
    if (!conn) {
        struct http_conn_opts conn_opts = { .loop = &loop,
                                            .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
                                            .address = (struct sockaddr *)&in,
                                            .address_len = sizeof(in) };

        assert_int_equal(fd_set_nonblock(conn_opts.fd, true), 0);
        assert_int_equal(http_conn_new(&conn_opts, &conn, NULL), 0);
    }
    opts.conn = conn;
    assert_int_equal(relay_start(&opts, NULL), 0);
}

static void on_request(void *user, struct http_exchange *ex)
{
    (void)user;
    relay(ex);
}

static void start_with(uint32_t body_timeout_ms, uint32_t write_timeout_ms)
{
    struct http_server_opts opts = { .loop = &loop,
                                     .on_request = on_request,
                                     .protocol = &http2_protocol,
                                     .body_timeout_ms = body_timeout_ms,
                                     .write_timeout_ms = write_timeout_ms,
                                     .fin_grace_ms = 1 };

    seen = (struct seen){ 0 };
    retries = 0;
    conn = NULL;
    upstream = -1;
    upstream_listener = tcp_listen();
    upstream_port = listen_port;
    opts.listen_fd = tcp_listen();
    assert_int_equal(http_server_new(&opts, &server, NULL), 0);
    client = tcp_connect();
}

static void start(void)
{
    start_with(0, 0);
}

static void take_upstream(void)
{
    RUN_UNTIL((upstream = accept4(upstream_listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >=
              0);
}

static void stop(void)
{
    http_server_free(server);
    http_conn_free(conn);
    fd_close(client);
    fd_close(upstream);
    fd_close(upstream_listener);
    turns(4);
}

static void passes_requests_and_answers(void **state)
{
    char got[2048] = "";

    (void)state;
    start();
    send_str(client, "POST /a?b=c HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody");
    take_upstream();
    expect_part(upstream, got, sizeof(got), "body");
    assert_string_equal(got, "POST /a?b=c HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody");
    send_str(upstream, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Made\r\nX-A: 1\r\nX-Gone: 1\r\n"
                       "Connection: keep-alive, x-gone\r\nKeep-Alive: timeout=5\r\n"
                       "Content-Length: 2\r\n\r\nok");
    got[0] = '\0';
    expect_part(client, got, sizeof(got), "\r\n\r\nok");
    assert_memory_equal(got, "HTTP/1.1 201 Created\r\nX-A: 1\r\n", 30);
    assert_non_null(strstr(got, "Access-Control-Allow-Origin: *\r\n"));
    assert_non_null(strstr(got, "Content-Length: 2\r\n"));
    assert_null(strstr(got, "X-Gone"));
    assert_null(strstr(got, "Keep-Alive"));
    assert_int_equal(seen.dones, 1);
    assert_int_equal(seen.result.err.code, 0);
    assert_true(seen.result.is_reusable && seen.has_exchange);
    /* Again over both connections, chunked both ways; the server's own CORS field wins. */
    send_str(client, "PUT /2 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                     "3\r\nabc\r\n0\r\n\r\n");
    got[0] = '\0';
    expect_part(upstream, got, sizeof(got), "3\r\nabc\r\n0\r\n\r\n");
    send_str(upstream, "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: a.b\r\n"
                       "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n");
    got[0] = '\0';
    expect_part(client, got, sizeof(got), "1\r\nx\r\n0\r\n\r\n");
    assert_non_null(strstr(got, "Access-Control-Allow-Origin: a.b\r\n"));
    assert_null(strstr(got, "Origin: *"));
    stop();
}

static void passes_the_length_of_head(void **state)
{
    char got[2048] = "";

    (void)state;
    start();
    send_str(client, "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
    take_upstream();
    expect_part(upstream, got, sizeof(got), "\r\n\r\n");
    send_str(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n");
    got[0] = '\0';
    expect_part(client, got, sizeof(got), "\r\n\r\n");
    assert_non_null(strstr(got, "Content-Length: 77\r\n"));
    assert_true(seen.result.is_reusable);
    /* One that does not tell it: nobody knows it. */
    send_str(client, "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
    expect_part(upstream, got, sizeof(got), "\r\n\r\n");
    send_str(upstream, "HTTP/1.1 200 OK\r\nX-Last: 1\r\n\r\n");
    got[0] = '\0';
    expect_part(client, got, sizeof(got), "\r\n\r\n");
    assert_null(strstr(got, "Content-Length"));
    assert_null(strstr(got, "Transfer-Encoding"));
    assert_true(seen.dones == 2 && seen.result.is_reusable);
    stop();
}

/* `from` sends `total` bytes to `to`, which first does not read: `from` has to stop. Then all
 * comes through. */
static void pour_through(int from, int to, size_t total)
{
    static const char piece[65536];
    static char waste[1 << 18];
    size_t sent = 0, got = 0;
    int quiet = 0;
    int64_t give_up = time_mono_ns() + TEST_PATIENCE_NS;

    while (quiet < 50 && sent < total) {
        ssize_t n = send(from, piece, MIN(sizeof(piece), total - sent), MSG_NOSIGNAL);

        sent += n > 0 ? (size_t)n : 0;
        quiet = n > 0 ? 0 : quiet + 1;
        turn();
    }
    assert_true(sent < total / 2);
    while ((sent < total || got < total) && time_mono_ns() < give_up) {
        ssize_t n =
            sent < total ? send(from, piece, MIN(sizeof(piece), total - sent), MSG_NOSIGNAL) : 0;

        sent += n > 0 ? (size_t)n : 0;
        turn();
        n = recv(to, waste, sizeof(waste), 0);
        got += n > 0 ? (size_t)n : 0;
    }
    assert_true(got >= total);
}

static void pushes_back_in_both_directions(void **state)
{
    size_t total = 60u << 20;
    char got[2048] = "";

    (void)state;
    start();
    send_str(client, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 62914560\r\n\r\n");
    take_upstream();
    expect_part(upstream, got, sizeof(got), "\r\n\r\n");
    pour_through(client, upstream, total);
    send_str(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 62914560\r\n\r\n");
    pour_through(upstream, client, total);
    RUN_UNTIL(seen.dones == 1);
    assert_int_equal(seen.result.err.code, 0);
    assert_true(seen.result.is_reusable);
    stop();
}

static void upstream_break_resets_the_client(void **state)
{
    char got[2048] = "";

    (void)state;
    start();
    send_str(client, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    take_upstream();
    expect_part(upstream, got, sizeof(got), "\r\n\r\n");
    send_str(upstream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    got[0] = '\0';
    expect_part(client, got, sizeof(got), "3\r\nabc\r\n");
    fd_close(TAKE_FD(upstream));
    assert_int_equal(expect_end(client, got, sizeof(got)), ECONNRESET);
    assert_null(strstr(got, "0\r\n\r\n"));
    assert_int_equal(seen.dones, 1);
    assert_int_equal(seen.result.err.code, ABX_UNAVAILABLE);
    assert_true(seen.result.is_response_sent);
    stop();
}

static void upstream_break_before_the_head_is_the_callers(void **state)
{
    char got[2048] = "";

    (void)state;
    start();
    send_str(client, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    take_upstream();
    expect_part(upstream, got, sizeof(got), "\r\n\r\n");
    fd_close(TAKE_FD(upstream));
    got[0] = '\0';
    expect_part(client, got, sizeof(got), "HTTP/1.1 502 ");
    assert_false(seen.result.is_response_sent);
    assert_false(seen.result.is_safe_to_retry);
    stop();
}

/* A refused connection has consumed nothing of the body: safe to try again. */
static void refused_uploads_are_safe_to_retry(void **state)
{
    char got[2048] = "";

    (void)state;
    start();
    fd_close(TAKE_FD(upstream_listener));
    send_str(client, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody");
    expect_part(client, got, sizeof(got), "HTTP/1.1 502 ");
    assert_true(seen.result.is_safe_to_retry);
    stop();
}

/* The first try has taken the end of the body, which does not come again. */
static void empty_chunked_bodies_are_sent_again(void **state)
{
    char got[2048] = "";

    (void)state;
    start();
    send_str(client, "GET /1 HTTP/1.1\r\nHost: h\r\n\r\n");
    take_upstream();
    expect_part(upstream, got, sizeof(got), "\r\n\r\n");
    send_str(upstream, "HTTP/1.1 204 None\r\n\r\n");
    RUN_UNTIL(seen.dones == 1);
    retries = 1;
    send_str(client, "GET /2 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    expect_part(upstream, got, sizeof(got), "0\r\n\r\n");
    fd_close(TAKE_FD(upstream));
    take_upstream();
    got[0] = '\0';
    expect_part(upstream, got, sizeof(got), "\r\n\r\n");
    assert_string_equal(got, "GET /2 HTTP/1.1\r\nHost: h\r\n\r\n");
    send_str(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    got[0] = '\0';
    expect_part(client, got, sizeof(got), "ok");
    assert_true(seen.dones == 3 && seen.result.is_reusable);
    stop();
}

static void leaving_clients_drop_the_upstream(void **state)
{
    char got[2048] = "";

    (void)state;
    start();
    send_str(client, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    take_upstream();
    expect_part(upstream, got, sizeof(got), "\r\n\r\n");
    send_str(upstream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    RUN_UNTIL(recv(client, got, sizeof(got), 0) > 0);
    fd_close(TAKE_FD(client));
    RUN_UNTIL(seen.dones == 1);
    assert_int_equal(seen.result.err.code, ABX_CANCELED);
    assert_false(seen.has_exchange);
    assert_int_equal(expect_end(upstream, NULL, 0), ECONNRESET);
    stop();
}

static void early_answers_end_uploads(void **state)
{
    static const char piece[65536];
    char got[2048] = "";
    int quiet = 0;

    (void)state;
    start();
    send_str(client, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 62914560\r\n\r\n");
    take_upstream();
    while (quiet < 20) {
        quiet = send(client, piece, sizeof(piece), MSG_NOSIGNAL) > 0 ? 0 : quiet + 1;
        turn();
    }
    send_str(upstream, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig");
    expect_part(client, got, sizeof(got), "\r\n\r\nbig");
    assert_int_equal(seen.result.err.code, 0);
    assert_false(seen.result.is_reusable);
    stop();
}

#define UPGRADE "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

static void upgrades_join_raw_connections(void **state)
{
    char got[2048] = "";

    (void)state;
    start();
    send_str(client, UPGRADE "early");
    take_upstream();
    expect_part(upstream, got, sizeof(got), "\r\n\r\n");
    assert_non_null(strstr(got, "Upgrade: websocket\r\nConnection: Upgrade\r\n"));
    send_str(upstream, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                       "Connection: Upgrade\r\nSec-WebSocket-Accept: k\r\n\r\nfrom-server");
    expect_part(upstream, got, sizeof(got), "early");
    got[0] = '\0';
    expect_part(client, got, sizeof(got), "from-server");
    assert_non_null(strstr(got, "Sec-WebSocket-Accept: k\r\n"));
    pour_through(client, upstream, 60u << 20);
    pour_through(upstream, client, 60u << 20);
    fd_close(TAKE_FD(upstream));
    assert_int_equal(expect_end(client, NULL, 0), 0);
    assert_int_equal(shutdown(client, SHUT_WR), 0);
    RUN_UNTIL(seen.dones == 1);
    assert_int_equal(seen.result.err.code, 0);
    stop();
}

/* Docker's API does so: the protocols are switched behind the body. */
static void upgrades_of_requests_with_a_body_join_too(void **state)
{
    static const char *const heads[] = { "Content-Length: 2\r\n\r\n{}",
                                         "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
                                         "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
        char got[2048] = "";

        start();
        send_str(client,
                 "POST /exec HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n");
        send_str(client, heads[i]);
        take_upstream();
        expect_part(upstream, got, sizeof(got), i == 0 ? "{}" : "0\r\n\r\n");
        assert_non_null(strstr(got, "Upgrade: tcp\r\n"));
        send_str(upstream, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: tcp\r\n"
                           "Connection: Upgrade\r\n\r\nfrom-server");
        got[0] = '\0';
        expect_part(client, got, sizeof(got), "from-server");
        send_str(client, "from-client");
        got[0] = '\0';
        expect_part(upstream, got, sizeof(got), "from-client");
        assert_int_equal(shutdown(client, SHUT_WR), 0);
        assert_int_equal(expect_end(upstream, NULL, 0), 0);
        send_str(upstream, "last");
        expect_part(client, got, sizeof(got), "last");
        fd_close(TAKE_FD(upstream));
        RUN_UNTIL(seen.dones == 1);
        assert_int_equal(seen.result.err.code, 0);
        stop();
    }
}

/* A server that does not wait for the body: nobody can say where that ends and what follows the switch begins. */
static void upgrades_amid_the_body_are_no_answer(void **state)
{
    char got[2048] = "";

    (void)state;
    start();
    send_str(client, "POST /exec HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
                     "Content-Length: 4\r\n\r\nbo");
    take_upstream();
    expect_part(upstream, got, sizeof(got), "\r\n\r\nbo");
    send_str(upstream, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: tcp\r\n"
                       "Connection: Upgrade\r\n\r\nfrom-server");
    send_str(client, "dymore");
    got[0] = '\0';
    expect_part(client, got, sizeof(got), "HTTP/1.1 502 ");
    assert_int_equal(seen.result.err.code, ABX_ABORTED);
    assert_true(seen.has_exchange);
    assert_false(seen.result.is_response_sent || seen.result.is_safe_to_retry);
    assert_int_equal(expect_end(upstream, NULL, 0), ECONNRESET);
    stop();
}

static size_t queued(void)
{
    return HTTP_OUT_MAX - http_conn_room(conn);
}

static void send_chunk(size_t n)
{
    static const char bytes[65536];
    char line[16];

    send_all(client, line, (size_t)snprintf(line, sizeof(line), "%zx\r\n", n));
    send_all(client, bytes, n);
    send_str(client, "\r\n");
    turns(8);
}

/* Its queue is at the mark, and the end of the body takes it beyond. */
static void upgrades_wait_until_the_body_is_sent(void **state)
{
    enum { PIECE = 30000, HALF = HTTP_OUT_MAX / 2 };
    static char raw[60000], got[65536];
    char head[2048] = "";
    bool is_raw = false;

    (void)state;
    start();
    send_str(client, "POST /exec HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
                     "Transfer-Encoding: chunked\r\n\r\n");
    take_upstream();
    while (queued() < HALF - PIECE - 4096)
        send_chunk(PIECE - 100);
    while (queued() < HALF - 1500)
        send_chunk(500);
    send_chunk(HALF - queued() - 7); /* with the size's line and the chunk's end */
    assert_int_equal(queued(), HALF);
    send_str(client, "0\r\n\r\n");
    turns(8);
    memset(raw, 'r', sizeof(raw));
    send_all(client, raw, sizeof(raw));
    turns(8);
    assert_true(queued() > HALF);
    send_str(upstream, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: tcp\r\n"
                       "Connection: Upgrade\r\n\r\n");
    expect_part(client, head, sizeof(head), "\r\n\r\n");
    turns(8);
    assert_true(queued() < HALF + 100);
    while (!is_raw) {
        ssize_t n = -1;

        RUN_UNTIL((n = recv(upstream, got, sizeof(got), 0)) > 0);
        is_raw = got[n - 1] == 'r';
    }
    stop();
}

static void refused_upgrades_are_plain_answers(void **state)
{
    char got[2048] = "";

    (void)state;
    start();
    send_str(client, UPGRADE);
    take_upstream();
    expect_part(upstream, got, sizeof(got), "\r\n\r\n");
    send_str(upstream, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    got[0] = '\0';
    expect_part(client, got, sizeof(got), "\r\n\r\nno");
    assert_int_equal(seen.result.err.code, 0);
    stop();
}

static void upgraded_upstreams_are_dropped_with_the_client(void **state)
{
    struct linger now = { .l_onoff = 1 };
    char got[2048] = "";

    (void)state;
    start();
    send_str(client, UPGRADE);
    take_upstream();
    expect_part(upstream, got, sizeof(got), "\r\n\r\n");
    send_str(upstream, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                       "Connection: Upgrade\r\n\r\n");
    got[0] = '\0';
    expect_part(client, got, sizeof(got), "\r\n\r\n");
    assert_int_equal(setsockopt(client, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    fd_close(TAKE_FD(client));
    RUN_UNTIL(seen.dones == 1);
    assert_int_equal(seen.result.err.code, ABX_CANCELED);
    assert_int_equal(expect_end(upstream, NULL, 0), ECONNRESET);
    stop();
}

#define T(f) cmocka_unit_test_setup_teardown(f, loop_setup, loop_teardown)

/* Receives until a frame of this type has come whole. */
static void expect_frame(uint8_t type)
{
    uint8_t got[4096];
    size_t have = 0, at = 0;
    bool is_found = false;

    while (!is_found) {
        ssize_t n = -1;

        RUN_UNTIL((n = recv(client, got + have, sizeof(got) - have, 0)) > 0);
        have += (size_t)n;
        while (!is_found && have - at >= 9) {
            size_t whole = 9 + ((size_t)got[at] << 16 | (size_t)got[at + 1] << 8 | got[at + 2]);

            if (have - at < whole)
                break;
            is_found = got[at + 3] == type;
            at += whole;
        }
    }
}

/* What a client with a window of 0 is sent, a body or only the end of one, ends with its time. */
static void answers_that_nobody_takes_end(void **state)
{
    static const char request[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                                  /* SETTINGS: windows of 0 */
                                  "\0\0\6\4\0\0\0\0\0"
                                  "\0\4\0\0\0\0"
                                  /* HEADERS of a GET of / from h */
                                  "\0\0\6\1\5\0\0\0\1"
                                  "\x82\x86\x84\1\1h";
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        char got[2048] = "";

        start_with(0, 50);
        send_all(client, request, sizeof(request) - 1);
        take_upstream();
        expect_part(upstream, got, sizeof(got), "\r\n\r\n");
        send_str(upstream, answers[i]);
        expect_frame(3);
        assert_int_equal(seen.dones, 1);
        assert_int_equal(seen.result.err.code, 0);
        stop();
    }
}

/* A stream whose answer does not fit into the client's window outlives that answer. */
static void late_answers_to_late_bodies_are_dropped(void **state)
{
    static const char request[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                                  /* SETTINGS: windows of 0 */
                                  "\0\0\6\4\0\0\0\0\0"
                                  "\0\4\0\0\0\0"
                                  /* HEADERS of a POST of / to h, and no body */
                                  "\0\0\6\1\4\0\0\0\1"
                                  "\x83\x86\x84\1\1h";
    static const char late[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    char got[2048] = "";

    (void)state;
    start_with(1, 0);
    send_all(client, request, sizeof(request) - 1);
    take_upstream();
    expect_part(upstream, got, sizeof(got), "\r\n\r\n");
    expect_frame(1); /* 408; its text stays behind */
    (void)send(upstream, late, sizeof(late) - 1, MSG_NOSIGNAL);
    RUN_UNTIL(seen.dones == 1);
    assert_false(seen.has_exchange);
    assert_int_equal(seen.result.err.code, ABX_DEADLINE_EXCEEDED);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(passes_requests_and_answers),
        T(passes_the_length_of_head),
        T(pushes_back_in_both_directions),
        T(upstream_break_resets_the_client),
        T(upstream_break_before_the_head_is_the_callers),
        T(refused_uploads_are_safe_to_retry),
        T(empty_chunked_bodies_are_sent_again),
        T(leaving_clients_drop_the_upstream),
        T(early_answers_end_uploads),
        T(upgrades_join_raw_connections),
        T(upgrades_of_requests_with_a_body_join_too),
        T(upgrades_amid_the_body_are_no_answer),
        T(upgrades_wait_until_the_body_is_sent),
        T(refused_upgrades_are_plain_answers),
        T(upgraded_upstreams_are_dropped_with_the_client),
        T(late_answers_to_late_bodies_are_dropped),
        T(answers_that_nobody_takes_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
