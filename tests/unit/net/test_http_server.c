/* test_http_server.c - the server against plain sockets: framing, pipelining, back pressure, close. */
#include "net_test.h"

#include <sys/resource.h>
#include <time.h>

#include "net/http_server.h"

struct seen {
    unsigned requests, closes;
    int why; /* code of the last on_close */
    size_t body;
    size_t written, to_write;
    size_t queued_max;
    bool is_end;
    struct http_exchange *ex; /* the one that is held */
    char paths[256];
};

static struct seen seen;
static struct http_server *server;
static struct http_server_opts opts;

static void on_close(void *user, struct http_exchange *ex, const struct abx_err *why)
{
    (void)user;
    seen.closes++;
    seen.why = why->code;
    if (seen.ex == ex)
        seen.ex = NULL;
}

static void on_body(void *user, struct http_exchange *ex, struct slice data, bool is_end)
{
    (void)user;
    (void)ex;
    seen.body += data.n;
    seen.is_end = is_end;
}

/* Writes zero bytes up to seen.to_write as far as the server takes them. */
static void pour(void *user, struct http_exchange *ex)
{
    static const uint8_t zeros[40000];

    (void)user;
    while (seen.written < seen.to_write) {
        size_t want = MIN(sizeof(zeros), seen.to_write - seen.written);
        size_t n = http_exchange_write(ex, slice_of(zeros, want));

        seen.queued_max = MAX(seen.queued_max, HTTP_OUT_MAX - http_exchange_room(ex));
        seen.written += n;
        if (n < want)
            return;
    }
    http_exchange_end(ex);
}

static const struct http_exchange_events events = { on_body, pour, on_close };

static void on_collected(void *user, struct http_exchange *ex, struct slice body,
                         const struct abx_err *err)
{
    (void)user;
    seen.why = err->code;
    if (err->code == ABX_CANCELED)
        return;
    if (err->code)
        http_exchange_send(ex, err_http_status(err), NULL, 0, slice_str(err->msg));
    else
        http_exchange_send(ex, 200, NULL, 0, body);
}

static void on_request(void *user, struct http_exchange *ex)
{
    const struct http1_head *head = http_exchange_head(ex);
    size_t have = strlen(seen.paths);

    (void)user;
    seen.requests++;
    (void)snprintf(seen.paths + have, sizeof(seen.paths) - have, "%.*s ", (int)head->path.n,
                   (const char *)head->path.p);
    if (slice_eq_str(head->path, "/echo")) {
        http_exchange_collect(ex, 1000, on_collected, NULL);
        return;
    }
    if (slice_eq_str(head->path, "/nobody"))
        return;
    http_exchange_begin(ex, &events, NULL);
    if (slice_starts_with(head->path, "/hello")) {
        http_exchange_send(ex, 200, NULL, 0, SLICE_LIT("hello"));
    } else if (slice_starts_with(head->path, "/pour")) {
        bool is_known = slice_eq_str(head->path, "/pour-known");

        assert_int_equal(http_exchange_respond(ex, 200, NULL, 0,
                                               is_known ? seen.to_write : HTTP_LENGTH_UNKNOWN,
                                               NULL),
                         0);
        pour(NULL, ex);
    } else { /* /hold, /read, /upgrade */
        seen.ex = ex;
        if (slice_eq_str(head->path, "/read"))
            http_exchange_read(ex, true);
    }
}

static void start(void)
{
    seen = (struct seen){ 0 };
    opts.loop = &loop;
    opts.listen_fd = tcp_listen();
    opts.on_request = on_request;
    assert_int_equal(http_server_new(&opts, &server, NULL), 0);
    opts = (struct http_server_opts){ 0 };
}

static void stop(int fd)
{
    fd_close(fd);
    http_server_free(server);
    turns(3);
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"

static void answers_and_keeps_the_connection(void **state)
{
    char got[4096] = "";
    int fd;

    (void)state;
    start();
    fd = tcp_connect();
    send_str(fd, GET("/hello"));
    expect_part(fd, got, sizeof(got), "\r\n\r\nhello");
    assert_non_null(strstr(got, "HTTP/1.1 200 OK\r\n"));
    assert_non_null(strstr(got, "Content-Length: 5\r\n"));
    assert_non_null(strstr(got, "Date: "));
    assert_null(strstr(got, "Connection:"));
    got[0] = '\0';
    send_str(fd, GET("/hello"));
    expect_part(fd, got, sizeof(got), "\r\n\r\nhello");
    assert_int_equal(seen.closes, 2);
    assert_int_equal(seen.why, 0);
    assert_int_equal(http_server_connections(server), 1);
    stop(fd);
}

static void answers_what_comes_byte_by_byte(void **state)
{
    static const char request[] =
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
        "\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nT: v\r\n\r\n" GET("/hello");
    char got[4096] = "";
    int fd;

    (void)state;
    start();
    fd = tcp_connect();
    for (size_t i = 0; i < sizeof(request) - 1; i++)
        send_all(fd, request + i, 1);
    expect_part(fd, got, sizeof(got), "\r\n\r\nhello");
    assert_non_null(strstr(got, "\r\n\r\nabcdefg"));
    stop(fd);
}

static void answers_pipelined_requests_in_order(void **state)
{
    char got[8192] = "";
    int fd;

    (void)state;
    start();
    fd = tcp_connect();
    send_str(fd,
             GET("/hello1") "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody" GET(
                 "/hello2") "GET /hello3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_int_equal(expect_end(fd, got, sizeof(got)), 0);
    assert_string_equal(seen.paths, "/hello1 /echo /hello2 /hello3 ");
    assert_non_null(strstr(got, "\r\n\r\nbodyHTTP/1.1 200 OK"));
    assert_non_null(strstr(got, "Connection: close\r\n"));
    assert_int_equal(seen.requests, 4);
    stop(fd);
}

static void pipelined_requests_wait_for_the_answer_before(void **state)
{
    char got[8192] = "";
    int fd;

    (void)state;
    start();
    fd = tcp_connect();
    send_str(fd, GET("/hold") GET("/hello"));
    RUN_UNTIL(seen.ex);
    turns(20);
    assert_int_equal(seen.requests, 1);
    http_exchange_send(seen.ex, 204, NULL, 0, (struct slice){ 0 });
    expect_part(fd, got, sizeof(got), "\r\n\r\nhello");
    assert_non_null(strstr(got, "HTTP/1.1 204 No Content\r\n"));
    stop(fd);
}

static void errors_of_the_codec_are_answered_and_close(void **state)
{
    static const struct {
        const char *request, *status;
    } cases[] = {
        { "GET / HTTP/1.1\r\nHost : x\r\n\r\n", "HTTP/1.1 400 " },
        { "GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 " },
        { "GET / HTTP/3.0\r\nHost: x\r\n\r\n", "HTTP/1.1 505 " },
        { "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
          "HTTP/1.1 400 " },
        { "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
          "HTTP/1.1 400 " },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char got[4096] = "", code[32];
        int fd;

        start();
        fd = tcp_connect();
        send_str(fd, cases[i].request);
        assert_int_equal(expect_end(fd, got, sizeof(got)), 0);
        assert_memory_equal(got, cases[i].status, strlen(cases[i].status));
        (void)snprintf(code, sizeof(code), "{\"code\":%.3s,\"message\":\"", got + 9);
        assert_non_null(strstr(got, code));
        assert_non_null(strstr(got, "Connection: close\r\n"));
        assert_non_null(strstr(got, "Content-Type: application/json\r\n"));
        stop(fd);
    }
}

static void too_long_heads_are_refused(void **state)
{
    static char big[HTTP1_HEAD_MAX + 100];
    char got[4096] = "";
    int fd;

    (void)state;
    start();
    fd = tcp_connect();
    memset(big, 'a', sizeof(big) - 1);
    send_str(fd, "GET / HTTP/1.1\r\nHost: x\r\nX: ");
    send_str(fd, big);
    assert_int_equal(expect_end(fd, got, sizeof(got)), 0);
    assert_memory_equal(got, "HTTP/1.1 431 ", 13);
    stop(fd);
}

static void old_clients_get_a_body_until_close(void **state)
{
    char got[4096] = "";
    int fd;

    (void)state;
    start();
    seen.to_write = 300;
    fd = tcp_connect();
    send_str(fd, "GET /pour HTTP/1.0\r\n\r\n");
    assert_int_equal(expect_end(fd, got, sizeof(got) - 1), 0);
    assert_non_null(strstr(got, "Connection: close\r\n"));
    assert_null(strstr(got, "Transfer-Encoding"));
    assert_int_equal(seen.why, 0);
    fd_close(fd);
    fd = tcp_connect();
    got[0] = '\0';
    send_str(fd, "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    expect_part(fd, got, sizeof(got), "\r\n\r\nhello");
    assert_non_null(strstr(got, "Connection: keep-alive\r\n"));
    stop(fd);
}

static void head_requests_get_no_body(void **state)
{
    char got[4096] = "";
    int fd;

    (void)state;
    start();
    seen.to_write = 100000;
    fd = tcp_connect();
    send_str(fd, "HEAD /pour-known HTTP/1.1\r\nHost: x\r\n\r\nHEAD /pour HTTP/1.1\r\nHost: x\r\n"
                 "Connection: close\r\n\r\n");
    assert_int_equal(expect_end(fd, got, sizeof(got)), 0);
    assert_non_null(strstr(got, "Content-Length: 100000\r\n"));
    assert_null(strstr(got, "chunked"));
    assert_true(strlen(got) < 400);
    assert_memory_equal(got + strlen(got) - 4, "\r\n\r\n", 4);
    stop(fd);
}

static void expect_is_answered_when_the_handler_reads(void **state)
{
    char got[4096] = "";
    int fd;

    (void)state;
    start();
    fd = tcp_connect();
    send_str(fd, "POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n"
                 "\r\n");
    RUN_UNTIL(seen.ex);
    turns(20);
    assert_int_equal(recv(fd, got, 1, 0), -1);
    http_exchange_read(seen.ex, true);
    expect_part(fd, got, sizeof(got), "HTTP/1.1 100 Continue\r\n\r\n");
    send_str(fd, "abc");
    RUN_UNTIL(seen.is_end);
    assert_int_equal(seen.body, 3);
    http_exchange_send(seen.ex, 200, NULL, 0, SLICE_LIT("done"));
    expect_part(fd, got, sizeof(got), "\r\n\r\ndone");
    assert_null(strstr(got, "Connection: close"));
    stop(fd);
}

static void expect_without_reading_closes(void **state)
{
    char got[4096] = "";
    int fd;

    (void)state;
    start();
    fd = tcp_connect();
    send_str(fd, "POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n"
                 "\r\n");
    assert_int_equal(expect_end(fd, got, sizeof(got)), 0);
    assert_null(strstr(got, "100 Continue"));
    assert_non_null(strstr(got, "Connection: close\r\n"));
    stop(fd);
}

/* A reader that does not read stops the writer at the queue's bound; later everything arrives. */
static void slow_readers_push_back(void **state)
{
    size_t total = 0;
    static char waste[1 << 18];
    int fd;
    int64_t give_up = time_mono_ns() + TEST_PATIENCE_NS;

    (void)state;
    start();
    seen.to_write = 40u << 20;
    fd = tcp_connect();
    send_str(fd, GET("/pour-known"));
    turns(200);
    assert_true(seen.written < seen.to_write);
    assert_true(seen.queued_max <= HTTP_OUT_MAX);
    assert_int_equal(seen.closes, 0);
    while (seen.closes == 0 && time_mono_ns() < give_up) {
        ssize_t n = recv(fd, waste, sizeof(waste), 0);

        total += n > 0 ? (size_t)n : 0;
        turn();
    }
    assert_int_equal(seen.closes, 1);
    assert_int_equal(seen.why, 0);
    assert_int_equal(seen.written, seen.to_write);
    while (total < seen.to_write && time_mono_ns() < give_up) {
        ssize_t n = recv(fd, waste, sizeof(waste), 0);

        total += n > 0 ? (size_t)n : 0;
    }
    assert_true(total > seen.to_write && total < seen.to_write + 400); /* the head too */
    assert_true(seen.queued_max <= HTTP_OUT_MAX);
    stop(fd);
}

/* A handler that does not read stops the client: only kernel buffers fill. */
static void slow_handlers_push_back(void **state)
{
    static const char chunk[65536];
    size_t sent = 0, limit = 64u << 20;
    int quiet = 0;
    int fd;

    (void)state;
    start();
    fd = tcp_connect();
    send_str(fd, "POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 67108864\r\n\r\n");
    while (quiet < 50 && sent < limit) {
        ssize_t n = send(fd, chunk, sizeof(chunk), MSG_NOSIGNAL);

        sent += n > 0 ? (size_t)n : 0;
        quiet = n > 0 ? 0 : quiet + 1;
        turn();
    }
    assert_true(sent < limit);
    assert_int_equal(seen.body, 0);
    http_exchange_read(seen.ex, true);
    while (sent < limit) {
        size_t n = MIN(sizeof(chunk), limit - sent);

        send_all(fd, chunk, n);
        sent += n;
    }
    RUN_UNTIL(seen.is_end);
    assert_int_equal(seen.body, limit);
    http_exchange_send(seen.ex, 200, NULL, 0, SLICE_LIT("ok"));
    RUN_UNTIL(seen.closes == 1);
    assert_int_equal(seen.why, 0);
    stop(fd);
}

static void abort_resets_without_a_last_chunk(void **state)
{
    char got[4096] = "";
    int fd;

    (void)state;
    start();
    fd = tcp_connect();
    send_str(fd, GET("/hold"));
    RUN_UNTIL(seen.ex);
    assert_int_equal(http_exchange_respond(seen.ex, 200, NULL, 0, HTTP_LENGTH_UNKNOWN, NULL), 0);
    assert_int_equal(http_exchange_write(seen.ex, SLICE_LIT("part")), 4);
    expect_part(fd, got, sizeof(got), "4\r\npart\r\n");
    http_exchange_abort(seen.ex);
    assert_int_equal(seen.closes, 0);
    assert_int_equal(expect_end(fd, got, sizeof(got)), ECONNRESET);
    assert_null(strstr(got, "0\r\n\r\n"));
    assert_int_equal(seen.closes, 1);
    assert_int_equal(seen.why, ABX_ABORTED);
    stop(fd);
}

static void short_bodies_do_not_look_complete(void **state)
{
    char got[4096] = "";
    int fd;

    (void)state;
    start();
    fd = tcp_connect();
    send_str(fd, GET("/hold"));
    RUN_UNTIL(seen.ex);
    assert_int_equal(http_exchange_respond(seen.ex, 200, NULL, 0, 10, NULL), 0);
    (void)http_exchange_write(seen.ex, SLICE_LIT("part"));
    http_exchange_end(seen.ex);
    assert_int_equal(expect_end(fd, got, sizeof(got)), ECONNRESET);
    assert_int_equal(seen.why, ABX_ABORTED);
    stop(fd);
}

static void closing_clients_cancel(void **state)
{
    int fd;

    (void)state;
    opts.fin_grace_ms = 1;
    start();
    fd = tcp_connect();
    send_str(fd, GET("/hold"));
    RUN_UNTIL(seen.ex);
    fd_close(fd);
    RUN_UNTIL(seen.closes == 1);
    assert_int_equal(seen.why, ABX_CANCELED);
    assert_int_equal(http_server_connections(server), 0);
    stop(-1);
}

/* printf ... | nc: the answer reaches a client that has only shut down its sending side. */
static void half_closed_clients_get_their_answer(void **state)
{
    char got[4096] = "";
    int fd;

    (void)state;
    start();
    fd = tcp_connect();
    send_str(fd, GET("/hold"));
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    RUN_UNTIL(seen.ex);
    turns(10);
    assert_int_equal(seen.closes, 0);
    http_exchange_send(seen.ex, 200, NULL, 0, SLICE_LIT("late"));
    assert_int_equal(expect_end(fd, got, sizeof(got)), 0);
    assert_non_null(strstr(got, "\r\n\r\nlate"));
    assert_int_equal(seen.why, 0);
    stop(fd);
}

static void resets_are_noticed_while_the_body_is_not_read(void **state)
{
    struct linger now = { .l_onoff = 1 };
    int fd;

    (void)state;
    start();
    fd = tcp_connect();
    send_str(fd, "POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
    RUN_UNTIL(seen.ex);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    fd_close(fd);
    RUN_UNTIL(seen.closes == 1);
    assert_int_equal(seen.why, ABX_CANCELED);
    stop(-1);
}

static void cut_bodies_cancel(void **state)
{
    int fd;

    (void)state;
    start();
    fd = tcp_connect();
    send_str(fd, "POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
    RUN_UNTIL(seen.body == 3);
    fd_close(fd);
    RUN_UNTIL(seen.closes == 1);
    assert_int_equal(seen.why, ABX_CANCELED);
    assert_false(seen.is_end);
    stop(-1);
}

static void collect_limits_bodies(void **state)
{
    char got[4096] = "";
    int fd;

    (void)state;
    start();
    fd = tcp_connect();
    send_str(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n"
                 "Expect: 100-continue\r\n\r\n");
    assert_int_equal(expect_end(fd, got, sizeof(got)), 0);
    assert_memory_equal(got, "HTTP/1.1 413 ", 13);
    assert_null(strstr(got, "100 Continue"));
    fd_close(fd);
    fd = tcp_connect();
    got[0] = '\0';
    send_str(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n");
    for (int i = 0; i < 1001; i++)
        send_all(fd, "x", 1);
    expect_part(fd, got, sizeof(got), "HTTP/1.1 413 ");
    stop(fd);
}

static unsigned count_of(const char *text, const char *part)
{
    unsigned n = 0;

    for (; (text = strstr(text, part)) != NULL; text++)
        n++;
    return n;
}

static void rubbish_behind_an_answer_gets_no_second_one(void **state)
{
    char got[4096] = "";
    int fd;

    (void)state;
    start();
    fd = tcp_connect();
    send_str(fd, "POST /hello HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    expect_part(fd, got, sizeof(got), "\r\n\r\nhello");
    send_str(fd, "xyz\r\n");
    assert_int_equal(expect_end(fd, got, sizeof(got)), 0);
    assert_int_equal(count_of(got, "HTTP/1.1 "), 1);
    stop(fd);
}

/* The server answers by itself then; an answer of the handler's would be a second one. */
static void collecting_is_canceled_when_the_server_refuses(void **state)
{
    char got[4096] = "";
    int fd;

    (void)state;
    opts.body_timeout_ms = 30;
    start();
    fd = tcp_connect();
    send_str(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n");
    assert_int_equal(expect_end(fd, got, sizeof(got)), 0);
    assert_int_equal(seen.why, ABX_CANCELED);
    assert_memory_equal(got, "HTTP/1.1 400 ", 13);
    assert_int_equal(count_of(got, "HTTP/1.1 "), 1);
    fd_close(fd);
    fd = tcp_connect();
    memset(got, 0, sizeof(got));
    seen.why = 0;
    send_str(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabc");
    assert_int_equal(expect_end(fd, got, sizeof(got)), 0);
    assert_int_equal(seen.why, ABX_CANCELED);
    assert_memory_equal(got, "HTTP/1.1 408 ", 13);
    assert_int_equal(count_of(got, "HTTP/1.1 "), 1);
    opts.body_timeout_ms = 0;
    stop(fd);
}

/* Up to 256 KiB of unread body are swallowed and the connection goes on; with more it ends. */
static void unread_bodies_are_drained(void **state)
{
    static const char body[100000];
    char got[4096] = "";
    int fd;

    (void)state;
    start();
    fd = tcp_connect();
    send_str(fd, "POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n");
    send_all(fd, body, sizeof(body));
    send_str(fd, GET("/hello2"));
    RUN_UNTIL(seen.requests == 2);
    fd_close(fd);
    fd = tcp_connect();
    send_str(fd, "POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n");
    send_all(fd, body, sizeof(body));
    assert_int_equal(expect_end(fd, got, sizeof(got)), 0);
    assert_non_null(strstr(got, "\r\n\r\nhello"));
    stop(fd);
}

static void upgraded_connections_are_raw(void **state)
{
    static const struct http1_field accept = { SLICE_LIT("Sec-WebSocket-Accept"), SLICE_LIT("k") };
    char got[4096] = "";
    int fd;

    (void)state;
    start();
    fd = tcp_connect();
    send_str(fd, "GET /upgrade HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                 "\r\nfirst");
    RUN_UNTIL(seen.ex);
    assert_int_equal(http_exchange_upgrade(seen.ex, &accept, 1, NULL), 0);
    http_exchange_read(seen.ex, true);
    RUN_UNTIL(seen.body == 5);
    expect_part(fd, got, sizeof(got), "Sec-WebSocket-Accept: k\r\n");
    assert_non_null(strstr(got, "HTTP/1.1 101 Switching Protocols\r\n"));
    assert_non_null(strstr(got, "Upgrade: websocket\r\n"));
    assert_non_null(strstr(got, "Connection: Upgrade\r\n"));
    assert_int_equal(http_exchange_write(seen.ex, SLICE_LIT("raw")), 3);
    expect_part(fd, got, sizeof(got), "\r\n\r\nraw");
    send_str(fd, "GET / HTTP/9.9\r\n");
    RUN_UNTIL(seen.body == 5 + 16);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    RUN_UNTIL(seen.is_end);
    assert_int_equal(seen.closes, 0);
    http_exchange_end(seen.ex);
    assert_int_equal(expect_end(fd, got, sizeof(got)), 0);
    assert_int_equal(seen.closes, 1);
    assert_int_equal(seen.why, 0);
    stop(fd);
}

static void upgrade_needs_a_request_for_it(void **state)
{
    int fd;

    (void)state;
    start();
    fd = tcp_connect();
    send_str(fd, GET("/hold"));
    RUN_UNTIL(seen.ex);
    assert_int_equal(http_exchange_upgrade(seen.ex, NULL, 0, NULL), ABX_FAILED_PRECONDITION);
    stop(fd);
}

static void deadlines_end_slow_clients(void **state)
{
    char got[4096] = "";
    int fd;

    (void)state;
    opts.header_timeout_ms = 20;
    opts.idle_timeout_ms = 40;
    opts.body_timeout_ms = 20;
    start();
    fd = tcp_connect(); /* nothing at all */
    assert_int_equal(expect_end(fd, got, sizeof(got)), 0);
    assert_string_equal(got, "");
    fd_close(fd);
    fd = tcp_connect();
    send_str(fd, "GET / HT"); /* half a head */
    assert_int_equal(expect_end(fd, got, sizeof(got)), 0);
    assert_memory_equal(got, "HTTP/1.1 408 ", 13);
    fd_close(fd);
    fd = tcp_connect();
    got[0] = '\0';
    send_str(fd, "POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc");
    assert_int_equal(expect_end(fd, got, sizeof(got)), 0);
    assert_memory_equal(got, "HTTP/1.1 408 ", 13);
    assert_int_equal(seen.why, ABX_DEADLINE_EXCEEDED);
    fd_close(fd);
    fd = tcp_connect();
    got[0] = '\0';
    send_str(fd, GET("/hello"));
    assert_int_equal(expect_end(fd, got, sizeof(got)), 0);
    assert_non_null(strstr(got, "\r\n\r\nhello"));
    stop(fd);
}

static void readers_without_progress_are_cut(void **state)
{
    int fd;

    (void)state;
    opts.write_timeout_ms = 30;
    start();
    seen.to_write = 40u << 20;
    fd = tcp_connect();
    send_str(fd, GET("/pour-known"));
    RUN_UNTIL(seen.closes == 1);
    assert_int_equal(seen.why, ABX_DEADLINE_EXCEEDED);
    stop(fd);
}

static void connections_over_the_limit_wait(void **state)
{
    char got[4096] = "";
    int first, second;

    (void)state;
    opts.max_connections = 1;
    start();
    first = tcp_connect();
    send_str(first, GET("/hello"));
    expect_part(first, got, sizeof(got), "hello");
    second = tcp_connect();
    send_str(second, GET("/hello"));
    turns(50);
    assert_int_equal(seen.requests, 1);
    fd_close(first);
    got[0] = '\0';
    expect_part(second, got, sizeof(got), "\r\n\r\nhello");
    stop(second);
}

/* Out of descriptors: who waits is served later, and the loop does not spin meanwhile. */
static void connections_wait_while_descriptors_are_short(void **state)
{
    char got[4096] = "";
    struct rlimit old, low;
    int fd, next;
    clock_t cpu;
    int64_t until;

    (void)state;
    start();
    fd = tcp_connect();
    send_str(fd, GET("/hello"));
    RUN_UNTIL(seen.requests == 1);
    fd_close(fd);
    RUN_UNTIL(http_server_connections(server) == 0);
    fd = tcp_connect();
    next = dup(fd);
    fd_close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = (struct rlimit){ (rlim_t)next, old.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    cpu = clock();
    until = time_mono_ns() + 150 * NSEC_PER_MSEC;
    while (time_mono_ns() < until)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_true(clock() - cpu < CLOCKS_PER_SEC / 20);
    assert_int_equal(http_server_connections(server), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    send_str(fd, GET("/hello"));
    expect_part(fd, got, sizeof(got), "\r\n\r\nhello");
    stop(fd);
}

static void requests_that_nobody_takes_get_an_error(void **state)
{
    char got[4096] = "";
    int fd;

    (void)state;
    start();
    fd = tcp_connect();
    send_str(fd, GET("/nobody"));
    assert_int_equal(expect_end(fd, got, sizeof(got)), 0);
    assert_memory_equal(got, "HTTP/1.1 500 ", 13);
    stop(fd);
}

static void foreign_fields_cannot_split_the_answer(void **state)
{
    static const struct http1_field bad[] = {
        { SLICE_LIT("X"), SLICE_LIT("a\r\nSet-Cookie: b") },
        { SLICE_LIT("Transfer-Encoding"), SLICE_LIT("chunked") },
        { SLICE_LIT("Content-Length"), SLICE_LIT("3") },
    };
    char got[4096] = "";
    int fd;

    (void)state;
    start();
    fd = tcp_connect();
    send_str(fd, GET("/hold"));
    RUN_UNTIL(seen.ex);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(http_exchange_respond(seen.ex, 200, &bad[i], 1, 0, NULL),
                         ABX_INVALID_ARGUMENT);
    http_exchange_send(seen.ex, 204, NULL, 0, (struct slice){ 0 });
    expect_part(fd, got, sizeof(got), "\r\n\r\n");
    assert_memory_equal(got, "HTTP/1.1 204 ", 13);
    assert_null(strstr(got, "Content-Length"));
    stop(fd);
}

static void stop_lets_requests_finish(void **state)
{
    char got[4096] = "";
    int fd, idle;

    (void)state;
    start();
    idle = tcp_connect();
    send_str(idle, GET("/hello"));
    expect_part(idle, got, sizeof(got), "hello");
    fd = tcp_connect();
    send_str(fd, GET("/hold"));
    RUN_UNTIL(seen.ex);
    http_server_stop(server);
    assert_int_equal(expect_end(idle, NULL, 0), 0);
    assert_int_equal(seen.closes, 1);
    got[0] = '\0';
    http_exchange_send(seen.ex, 200, NULL, 0, SLICE_LIT("last"));
    assert_int_equal(expect_end(fd, got, sizeof(got)), 0);
    assert_non_null(strstr(got, "\r\n\r\nlast"));
    fd_close(idle);
    stop(fd);
}

static void free_closes_what_is_open(void **state)
{
    int fd;

    (void)state;
    start();
    fd = tcp_connect();
    send_str(fd, GET("/hold"));
    RUN_UNTIL(seen.ex);
    http_server_free(server);
    assert_int_equal(seen.closes, 1);
    assert_int_equal(seen.why, ABX_UNAVAILABLE);
    turns(3);
    fd_close(fd);
}

#define T(f) cmocka_unit_test_setup_teardown(f, loop_setup, loop_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(answers_and_keeps_the_connection),
        T(answers_what_comes_byte_by_byte),
        T(answers_pipelined_requests_in_order),
        T(pipelined_requests_wait_for_the_answer_before),
        T(errors_of_the_codec_are_answered_and_close),
        T(too_long_heads_are_refused),
        T(old_clients_get_a_body_until_close),
        T(head_requests_get_no_body),
        T(expect_is_answered_when_the_handler_reads),
        T(expect_without_reading_closes),
        T(slow_readers_push_back),
        T(slow_handlers_push_back),
        T(abort_resets_without_a_last_chunk),
        T(short_bodies_do_not_look_complete),
        T(closing_clients_cancel),
        T(half_closed_clients_get_their_answer),
        T(resets_are_noticed_while_the_body_is_not_read),
        T(cut_bodies_cancel),
        T(collect_limits_bodies),
        T(collecting_is_canceled_when_the_server_refuses),
        T(rubbish_behind_an_answer_gets_no_second_one),
        T(unread_bodies_are_drained),
        T(upgraded_connections_are_raw),
        T(upgrade_needs_a_request_for_it),
        T(deadlines_end_slow_clients),
        T(readers_without_progress_are_cut),
        T(connections_over_the_limit_wait),
        T(connections_wait_while_descriptors_are_short),
        T(requests_that_nobody_takes_get_an_error),
        T(foreign_fields_cannot_split_the_answer),
        T(stop_lets_requests_finish),
        T(free_closes_what_is_open),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
