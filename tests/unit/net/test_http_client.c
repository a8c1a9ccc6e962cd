/* test_http_client.c - the client connection against a plain server socket. */
#include "net_test.h"

#include "net/http_client.h"

struct seen {
    unsigned heads, dones, idle_closes, writables;
    int status, code;
    bool is_reusable, is_safe, is_end;
    size_t body;
    char text[64];
};

static struct seen seen;
static struct http_conn *conn;
static int listener, server;
static struct http_conn_opts opts;

static void on_head(void *user, struct http_conn *c, const struct http1_head *head)
{
    (void)user;
    seen.heads++;
    seen.status = head->status;
    if (head->status >= 200 || head->status == 101)
        http_conn_read(c, true);
}

static void on_body(void *user, struct http_conn *c, struct slice data, bool is_end)
{
    (void)user;
    (void)c;
    if (data.n > 0 && seen.body + data.n < sizeof(seen.text))
        memcpy(seen.text + seen.body, data.p, data.n);
    seen.body += data.n;
    seen.is_end = is_end;
}

static void on_writable(void *user, struct http_conn *c)
{
    (void)user;
    (void)c;
    seen.writables++;
}

static void on_done(void *user, struct http_conn *c, const struct abx_err *err, bool is_reusable,
                    bool is_safe)
{
    (void)user;
    (void)c;
    seen.dones++;
    seen.code = err->code;
    seen.is_reusable = is_reusable;
    seen.is_safe = is_safe;
}

static void on_idle_close(void *user, struct http_conn *c)
{
    (void)user;
    (void)c;
    seen.idle_closes++;
}

static const struct http_conn_events events = { on_head, on_body, on_writable, on_done };

static int tcp_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_true(fd >= 0);
    return fd;
}

/* Begins to connect; the test accepts with take_server. */
static void start(void)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

    seen = (struct seen){ 0 };
    listener = tcp_listen();
    in.sin_port = htons(listen_port);
    opts.loop = &loop;
    opts.fd = tcp_socket();
    opts.address = (struct sockaddr *)&in;
    opts.address_len = sizeof(in);
    assert_int_equal(http_conn_new(&opts, &conn, NULL), 0);
    http_conn_set_idle_close(conn, on_idle_close, NULL);
    opts = (struct http_conn_opts){ 0 };
    server = -1;
}

static void take_server(void)
{
    RUN_UNTIL((server = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0);
}

static void stop(void)
{
    http_conn_free(conn);
    fd_close(server);
    fd_close(listener);
    turns(3);
}

static void request(const char *method, uint64_t length)
{
    static const struct http1_field host = { SLICE_LIT("Host"), SLICE_LIT("h") };

    assert_int_equal(http_conn_request(conn, slice_str(method), SLICE_LIT("/x"), &host, 1, length,
                                       &events, NULL, NULL),
                     0);
    if (length == 0)
        http_conn_end(conn);
}

static void exchange_once(void)
{
    char got[1024] = "";
    unsigned before = seen.dones;

    request("GET", 0);
    if (server < 0)
        take_server();
    expect_part(server, got, sizeof(got), "\r\n\r\n");
    send_str(server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    RUN_UNTIL(seen.dones == before + 1);
    assert_int_equal(seen.code, 0);
    assert_true(seen.is_reusable);
}

static void requests_follow_each_other_on_one_connection(void **state)
{
    char got[1024] = "";

    (void)state;
    start();
    request("POST", 4);
    take_server();
    RUN_UNTIL(seen.writables == 1);
    assert_true(http_conn_is_connected(conn));
    assert_int_equal(http_conn_write(conn, SLICE_LIT("body")), 4);
    http_conn_end(conn);
    expect_part(server, got, sizeof(got), "\r\n\r\nbody");
    assert_string_equal(got, "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody");
    send_str(server, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
                     "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n");
    RUN_UNTIL(seen.body == 2);
    assert_int_equal(seen.heads, 2);
    assert_int_equal(seen.status, 201);
    assert_int_equal(seen.dones, 0);
    assert_false(http_conn_is_idle(conn));
    send_str(server, "0\r\n\r\n");
    RUN_UNTIL(seen.dones == 1);
    assert_true(seen.is_end && seen.is_reusable && http_conn_is_idle(conn));
    seen = (struct seen){ 0 };
    exchange_once();
    assert_memory_equal(seen.text, "ok", 2);
    stop();
}

static void unknown_lengths_are_chunked(void **state)
{
    char got[1024] = "";

    (void)state;
    start();
    request("POST", HTTP_LENGTH_UNKNOWN);
    take_server();
    assert_int_equal(http_conn_write(conn, SLICE_LIT("body")), 4);
    http_conn_end(conn);
    expect_part(server, got, sizeof(got), "0\r\n\r\n");
    assert_string_equal(got, "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                             "4\r\nbody\r\n0\r\n\r\n");
    stop();
}

#define INTERIM_4                                                                                  \
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n"                                \
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"
#define INTERIM_16 INTERIM_4 INTERIM_4 INTERIM_4 INTERIM_4
#define INTERIM_32 INTERIM_16 INTERIM_16

static void bodies_end_as_the_response_says(void **state)
{
    static const struct {
        const char *method, *response;
        size_t body;
        bool closes, is_reusable;
    } cases[] = {
        { "GET", "HTTP/1.1 204 No Content\r\n\r\n", 0, false, true },
        { "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 0, false, true },
        { "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", 0, false, true },
        { "GET", "HTTP/1.1 200 OK\r\n\r\nabc", 3, true, false },
        { "GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc", 3, false,
          false },
        { "GET", "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", 3, false, false },
        { "GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcmore", 3, false, false },
        { "GET", INTERIM_32 "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", 3, false, true },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char got[1024] = "";

        start();
        request(cases[i].method, 0);
        take_server();
        expect_part(server, got, sizeof(got), "\r\n\r\n");
        send_str(server, cases[i].response);
        if (cases[i].closes) {
            assert_int_equal(seen.dones, 0);
            fd_close(TAKE_FD(server));
        }
        RUN_UNTIL(seen.dones == 1);
        assert_int_equal(seen.code, 0);
        assert_true(seen.is_end);
        assert_int_equal(seen.body, cases[i].body);
        assert_int_equal(seen.is_reusable, cases[i].is_reusable);
        stop();
    }
}

static void cut_and_bad_responses_fail(void **state)
{
    static const struct {
        const char *response;
        int code;
    } cases[] = {
        { "", ABX_UNAVAILABLE },
        { "HTTP/1.1 200 OK\r\nContent-Le", ABX_UNAVAILABLE },
        { "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", ABX_UNAVAILABLE },
        { "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", ABX_UNAVAILABLE },
        { "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", 0 },
        { "SSH-2.0-OpenSSH_9.2\r\n", 0 },
        { "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 0 },
        { INTERIM_32 "HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char got[1024] = "";

        start();
        request("GET", 0);
        take_server();
        expect_part(server, got, sizeof(got), "\r\n\r\n");
        send_str(server, cases[i].response);
        fd_close(TAKE_FD(server));
        RUN_UNTIL(seen.dones == 1);
        assert_true(cases[i].code ? seen.code == cases[i].code : seen.code != 0);
        assert_false(seen.is_reusable);
        assert_false(seen.is_safe); /* a connection made for it: the server may have acted */
        assert_false(seen.is_end);
        stop();
    }
}

static void refused_connections_are_safe_to_retry(void **state)
{
    (void)state;
    start();
    fd_close(TAKE_FD(listener)); /* resets what waits in the backlog */
    request("POST", 4);
    RUN_UNTIL(seen.dones == 1);
    http_conn_free(conn);
    seen = (struct seen){ 0 };
    {
        struct sockaddr_in in = { .sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons(listen_port) };

        opts = (struct http_conn_opts){ &loop, tcp_socket(), (struct sockaddr *)&in, sizeof(in) };
        assert_int_equal(http_conn_new(&opts, &conn, NULL), 0);
        opts = (struct http_conn_opts){ 0 };
    }
    request("POST", 4);
    RUN_UNTIL(seen.dones == 1);
    assert_int_equal(seen.code, ABX_UNAVAILABLE);
    assert_true(seen.is_safe);
    assert_false(seen.is_reusable);
    stop();
}

/* A listener whose backlog is full answers nothing: the deadline ends it. */
static void connecting_has_a_deadline(void **state)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(in);
    int fill[4];

    (void)state;
    seen = (struct seen){ 0 };
    server = -1;
    listener = tcp_socket();
    assert_int_equal(bind(listener, (struct sockaddr *)&in, sizeof(in)), 0);
    assert_int_equal(listen(listener, 0), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&in, &len), 0);
    for (size_t i = 0; i < ARRAY_SIZE(fill); i++) {
        fill[i] = tcp_socket();
        (void)connect(fill[i], (struct sockaddr *)&in, sizeof(in));
    }
    opts = (struct http_conn_opts){ .loop = &loop,
                                    .fd = tcp_socket(),
                                    .address = (struct sockaddr *)&in,
                                    .address_len = sizeof(in),
                                    .connect_timeout_ms = 30 };
    assert_int_equal(http_conn_new(&opts, &conn, NULL), 0);
    opts = (struct http_conn_opts){ 0 };
    request("POST", 3);
    RUN_UNTIL(seen.dones == 1);
    assert_int_equal(seen.code, ABX_DEADLINE_EXCEEDED);
    assert_true(seen.is_safe);
    assert_int_equal(seen.writables, 0);
    for (size_t i = 0; i < ARRAY_SIZE(fill); i++)
        fd_close(fill[i]);
    stop();
}

static void silent_servers_have_a_deadline(void **state)
{
    (void)state;
    opts.head_timeout_ms = 500;
    start();
    request("GET", 0);
    take_server();
    RUN_UNTIL(seen.dones == 1);
    assert_int_equal(seen.code, ABX_DEADLINE_EXCEEDED);
    assert_false(seen.is_safe);
    stop();
}

static void servers_that_do_not_read_have_a_deadline(void **state)
{
    static const char zeros[65536];

    (void)state;
    opts.write_timeout_ms = 500;
    start();
    request("POST", HTTP_LENGTH_UNKNOWN);
    take_server();
    RUN_UNTIL(http_conn_is_connected(conn));
    /* As long as something gets through, the time begins anew. */
    while (seen.dones == 0 && http_conn_room(conn) > 0) {
        (void)http_conn_write(conn, slice_of(zeros, sizeof(zeros)));
        turn();
    }
    assert_int_equal(seen.dones, 0);
    RUN_UNTIL(seen.dones == 1);
    assert_int_equal(seen.code, ABX_DEADLINE_EXCEEDED);
    assert_false(seen.is_safe);
    stop();
}

static void idle_connections_tell_their_end(void **state)
{
    (void)state;
    start();
    exchange_once();
    fd_close(TAKE_FD(server));
    RUN_UNTIL(seen.idle_closes == 1);
    assert_false(http_conn_is_idle(conn));
    stop();
    start();
    exchange_once();
    send_str(server, "HTTP/1.1 408 Request Timeout\r\n\r\n");
    RUN_UNTIL(seen.idle_closes == 1);
    assert_false(http_conn_is_idle(conn));
    stop();
}

/* The peer closed, the loop has not noticed: the request is refused before anything is sent. */
static void stale_connections_take_no_request(void **state)
{
    (void)state;
    start();
    exchange_once();
    fd_close(TAKE_FD(server));
    assert_int_equal(
        http_conn_request(conn, SLICE_LIT("POST"), SLICE_LIT("/"), NULL, 0, 3, &events, NULL, NULL),
        ABX_UNAVAILABLE);
    stop();
}

/* One that may be repeated is sent without looking, and said to be safe. */
static void stale_connections_fail_gets_safely(void **state)
{
    (void)state;
    start();
    exchange_once();
    fd_close(TAKE_FD(server));
    request("GET", 0);
    RUN_UNTIL(seen.dones == 2);
    assert_int_equal(seen.code, ABX_UNAVAILABLE);
    assert_true(seen.is_safe);
    stop();
}

/* What a reused connection may retry when it ends without a response. */
static void only_certain_failures_are_safe_to_retry(void **state)
{
    enum { BEFORE_SEND, AFTER_READ };
    static const struct {
        const char *method;
        uint64_t length;
        int when;
        bool is_safe;
    } cases[] = {
        { "GET", 0, BEFORE_SEND, true },   { "POST", 0, BEFORE_SEND, true },
        { "POST", 3, BEFORE_SEND, false }, { "GET", 0, AFTER_READ, true },
        { "POST", 0, AFTER_READ, false },  { "POST", 3, AFTER_READ, false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char got[1024] = "";

        start();
        exchange_once();
        request(cases[i].method, cases[i].length);
        if (cases[i].length > 0)
            (void)http_conn_write(conn, SLICE_LIT("abc"));
        if (cases[i].when == AFTER_READ)
            expect_part(server, got, sizeof(got), cases[i].length ? "abc" : "\r\n\r\n");
        fd_close(TAKE_FD(server));
        RUN_UNTIL(seen.dones == 2);
        assert_int_equal(seen.code, ABX_UNAVAILABLE);
        if (seen.is_safe != cases[i].is_safe)
            fail_msg("case %zu: safe %d", i, seen.is_safe);
        stop();
    }
}

static void queue_is_bounded_and_pushes_back(void **state)
{
    static const uint8_t piece[50000];
    size_t written = 0, total = 40u << 20, got = 0;
    unsigned stuck = 0;
    int64_t give_up = time_mono_ns() + TEST_PATIENCE_NS;

    (void)state;
    start();
    request("POST", HTTP_LENGTH_UNKNOWN);
    take_server();
    RUN_UNTIL(http_conn_is_connected(conn));
    while (stuck < 20) {
        size_t n = http_conn_write(conn, slice_of(piece, sizeof(piece)));

        assert_true(HTTP_OUT_MAX - http_conn_room(conn) <= HTTP_OUT_MAX);
        stuck = n == 0 ? stuck + 1 : 0;
        written += n;
        turn();
    }
    assert_true(written < total);
    seen.writables = 0;
    while ((written < total || got < total) && time_mono_ns() < give_up) {
        static char waste[1 << 18];
        ssize_t n = recv(server, waste, sizeof(waste), 0);

        got += n > 0 ? (size_t)n : 0;
        if (written < total)
            written += http_conn_write(conn, slice_of(piece, MIN(sizeof(piece), total - written)));
        turn();
    }
    assert_true(got >= total && seen.writables > 0);
    stop();
}

static void paused_readers_push_back(void **state)
{
    static const char piece[65536];
    char got[1024] = "";
    size_t sent = 0, total = 40u << 20;
    int quiet = 0;

    (void)state;
    start();
    request("GET", 0);
    take_server();
    expect_part(server, got, sizeof(got), "\r\n\r\n");
    send_str(server, "HTTP/1.1 200 OK\r\nContent-Length: 41943040\r\n\r\n");
    RUN_UNTIL(seen.heads == 1);
    http_conn_read(conn, false);
    while (quiet < 50 && sent < total) {
        ssize_t n = send(server, piece, sizeof(piece), MSG_NOSIGNAL);

        sent += n > 0 ? (size_t)n : 0;
        quiet = n > 0 ? 0 : quiet + 1;
        turn();
    }
    assert_true(sent < total);
    assert_int_equal(seen.body, 0);
    http_conn_read(conn, true);
    while (sent < total) {
        size_t n = MIN(sizeof(piece), total - sent);

        send_all(server, piece, n);
        sent += n;
    }
    RUN_UNTIL(seen.dones == 1);
    assert_int_equal(seen.body, total);
    assert_true(seen.is_reusable);
    stop();
}

/* The end of a response is not lost when the server closes while the reader pauses. */
static void close_behind_a_paused_response_is_not_lost(void **state)
{
    char got[1024] = "";

    (void)state;
    start();
    request("GET", 0);
    take_server();
    expect_part(server, got, sizeof(got), "\r\n\r\n");
    send_str(server, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n");
    RUN_UNTIL(seen.heads == 1);
    http_conn_read(conn, false);
    turns(3);
    send_str(server, "abcdef");
    fd_close(TAKE_FD(server));
    turns(20);
    assert_int_equal(seen.dones, 0);
    http_conn_read(conn, true);
    RUN_UNTIL(seen.dones == 1);
    assert_int_equal(seen.code, 0);
    assert_int_equal(seen.body, 6);
    assert_false(seen.is_reusable);
    stop();
}

/* 413 while the request is still being sent, then close: the answer is what counts. */
static void early_answers_win_over_broken_uploads(void **state)
{
    static const uint8_t piece[60000];
    char got[1024] = "";

    (void)state;
    start();
    request("POST", 100u << 20);
    take_server();
    RUN_UNTIL(http_conn_is_connected(conn));
    (void)http_conn_write(conn, slice_of(piece, sizeof(piece)));
    expect_part(server, got, sizeof(got), "\r\n\r\n");
    send_str(server, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig");
    fd_close(TAKE_FD(server));
    while (seen.dones == 0) {
        (void)http_conn_write(conn, slice_of(piece, sizeof(piece)));
        turn();
    }
    assert_int_equal(seen.code, 0);
    assert_int_equal(seen.status, 413);
    assert_false(seen.is_reusable);
    stop();
}

static void upgraded_connections_are_raw(void **state)
{
    static const struct http1_field fields[] = { { SLICE_LIT("Host"), SLICE_LIT("h") },
                                                 { SLICE_LIT("Upgrade"), SLICE_LIT("websocket") } };
    char got[1024] = "";

    (void)state;
    start();
    assert_int_equal(http_conn_request(conn, SLICE_LIT("GET"), SLICE_LIT("/ws"), fields, 2, 0,
                                       &events, NULL, NULL),
                     0);
    take_server();
    expect_part(server, got, sizeof(got), "\r\n\r\n");
    assert_non_null(strstr(got, "Upgrade: websocket\r\nConnection: Upgrade\r\n"));
    send_str(server, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
                     "Upgrade: websocket\r\n\r\nraw");
    RUN_UNTIL(seen.body == 3);
    assert_int_equal(seen.status, 101);
    assert_int_equal(http_conn_write(conn, SLICE_LIT("up")), 2);
    got[0] = '\0';
    expect_part(server, got, sizeof(got), "up");
    http_conn_end(conn);
    assert_int_equal(expect_end(server, NULL, 0), 0);
    send_str(server, "more");
    RUN_UNTIL(seen.body == 7);
    assert_int_equal(seen.dones, 0);
    fd_close(TAKE_FD(server));
    RUN_UNTIL(seen.dones == 1);
    assert_int_equal(seen.code, 0);
    assert_true(seen.is_end);
    stop();
}

static void hop_by_hop_fields_are_refused(void **state)
{
    static const struct http1_field bad[] = { { SLICE_LIT("Connection"), SLICE_LIT("close") },
                                              { SLICE_LIT("Content-Length"), SLICE_LIT("1") },
                                              { SLICE_LIT("TE"), SLICE_LIT("trailers") },
                                              { SLICE_LIT("A"), SLICE_LIT("b\nc") } };

    (void)state;
    start();
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(http_conn_request(conn, SLICE_LIT("GET"), SLICE_LIT("/"), &bad[i], 1, 0,
                                           &events, NULL, NULL),
                         ABX_INVALID_ARGUMENT);
    assert_int_equal(http_conn_request(conn, SLICE_LIT("GET"), SLICE_LIT("/ b"), NULL, 0, 0,
                                       &events, NULL, NULL),
                     ABX_INVALID_ARGUMENT);
    exchange_once();
    stop();
}

static void aborting_completes_the_exchange(void **state)
{
    char got[1024] = "";

    (void)state;
    start();
    request("GET", 0);
    take_server();
    expect_part(server, got, sizeof(got), "\r\n\r\n");
    http_conn_abort(conn);
    assert_int_equal(seen.dones, 0);
    RUN_UNTIL(seen.dones == 1);
    assert_int_equal(seen.code, ABX_ABORTED);
    assert_false(seen.is_safe);
    http_conn_free(TAKE_PTR(conn));
    assert_int_equal(expect_end(server, NULL, 0), ECONNRESET);
    stop();
}

static void freeing_resets_a_running_exchange(void **state)
{
    char got[1024] = "";

    (void)state;
    start();
    request("GET", 0);
    take_server();
    expect_part(server, got, sizeof(got), "\r\n\r\n");
    http_conn_free(conn);
    turns(3);
    assert_int_equal(expect_end(server, NULL, 0), ECONNRESET);
    assert_int_equal(seen.dones, 0);
    fd_close(server);
    fd_close(listener);
}

#define T(f) cmocka_unit_test_setup_teardown(f, loop_setup, loop_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(requests_follow_each_other_on_one_connection),
        T(unknown_lengths_are_chunked),
        T(bodies_end_as_the_response_says),
        T(cut_and_bad_responses_fail),
        T(refused_connections_are_safe_to_retry),
        T(connecting_has_a_deadline),
        T(silent_servers_have_a_deadline),
        T(servers_that_do_not_read_have_a_deadline),
        T(idle_connections_tell_their_end),
        T(stale_connections_take_no_request),
        T(stale_connections_fail_gets_safely),
        T(only_certain_failures_are_safe_to_retry),
        T(queue_is_bounded_and_pushes_back),
        T(paused_readers_push_back),
        T(close_behind_a_paused_response_is_not_lost),
        T(early_answers_win_over_broken_uploads),
        T(upgraded_connections_are_raw),
        T(hop_by_hop_fields_are_refused),
        T(aborting_completes_the_exchange),
        T(freeing_resets_a_running_exchange),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
