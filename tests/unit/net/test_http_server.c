/* test_http_server.c - the server against plain sockets: framing, pipelining, expectations, bodies, upgrades. */
#include "http_server_test.h"

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
    opts.body_timeout_ms = 500; /* what was sent is read by then */
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

static void an_upgraded_connection_that_is_idle_ends(void **state)
{
    char got[4096] = "";
    int fd;

    (void)state;
    opts.idle_timeout_ms = 1000;
    start();
    fd = tcp_connect();
    send_str(fd, "GET /upgrade HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n");
    RUN_UNTIL(seen.ex);
    assert_int_equal(http_exchange_upgrade(seen.ex, NULL, 0, NULL), 0);
    http_exchange_read(seen.ex, true);
    send_str(fd, "x");
    RUN_UNTIL(seen.body == 1);
    assert_int_equal(seen.closes, 0);
    RUN_UNTIL(seen.closes == 1);
    assert_int_equal(seen.why, ABX_DEADLINE_EXCEEDED);
    (void)expect_end(fd, got, sizeof(got));
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
        T(collect_limits_bodies),
        T(collecting_is_canceled_when_the_server_refuses),
        T(rubbish_behind_an_answer_gets_no_second_one),
        T(unread_bodies_are_drained),
        T(upgraded_connections_are_raw),
        T(an_upgraded_connection_that_is_idle_ends),
        T(upgrade_needs_a_request_for_it),
        T(requests_that_nobody_takes_get_an_error),
        T(foreign_fields_cannot_split_the_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
