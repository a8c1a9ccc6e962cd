/* test_http_server_flow.c - the server against plain sockets: back pressure, clients that leave, deadlines, limits, stop. */
#include "http_server_test.h"

#include <sys/resource.h>
#include <time.h>

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

/* A handler's fault ends its exchange; the server goes on. */
static void calls_out_of_turn_abort(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        char got[4096] = "";
        int fd;

        start();
        fd = tcp_connect();
        send_str(fd, GET("/hold"));
        RUN_UNTIL(seen.ex);
        if (i < 2)
            assert_int_equal(
                http_exchange_respond(seen.ex, 200, NULL, 0, HTTP_LENGTH_UNKNOWN, NULL), 0);
        if (i == 0) {
            assert_int_equal(http_exchange_respond(seen.ex, 200, NULL, 0, 0, NULL),
                             ABX_FAILED_PRECONDITION);
        } else if (i == 1) {
            http_exchange_end(seen.ex);
            assert_int_equal(http_exchange_write(seen.ex, SLICE_LIT("late")), 4);
        } else if (i == 2) {
            assert_int_equal(http_exchange_write(seen.ex, SLICE_LIT("early")), 5);
        } else {
            http_exchange_end(seen.ex);
        }
        RUN_UNTIL(seen.closes == 1);
        assert_int_equal(seen.why, ABX_ABORTED);
        (void)expect_end(fd, got, sizeof(got));
        assert_null(strstr(got, "late"));
        fd_close(fd);
        fd = tcp_connect();
        send_str(fd, GET("/hello"));
        got[0] = '\0';
        expect_part(fd, got, sizeof(got), "hello");
        stop(fd);
    }
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

static void deadlines_end_slow_clients(void **state)
{
    char got[4096] = "";
    int fd;

    (void)state;
    opts.header_timeout_ms = 500; /* what was sent is read by then */
    opts.idle_timeout_ms = 500;
    opts.body_timeout_ms = 500;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(slow_readers_push_back),
        T(slow_handlers_push_back),
        T(calls_out_of_turn_abort),
        T(abort_resets_without_a_last_chunk),
        T(short_bodies_do_not_look_complete),
        T(closing_clients_cancel),
        T(half_closed_clients_get_their_answer),
        T(resets_are_noticed_while_the_body_is_not_read),
        T(cut_bodies_cancel),
        T(deadlines_end_slow_clients),
        T(readers_without_progress_are_cut),
        T(connections_over_the_limit_wait),
        T(connections_wait_while_descriptors_are_short),
        T(stop_lets_requests_finish),
        T(free_closes_what_is_open),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
