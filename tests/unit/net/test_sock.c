/* test_sock.c - what a socket on the loop tells its owner. */
#include "net_test.h"

#include <poll.h>

#include "net/sock.h"

static unsigned told, n_told, n_freed;

static void on_event(struct sock *s, unsigned what)
{
    (void)s;
    told |= what;
    n_told++;
}

static void on_free(struct sock *s)
{
    (void)s;
    n_freed++;
}

static void wait_for_input(int fd, short events)
{
    struct pollfd p = { fd, events, 0 };

    assert_int_equal(poll(&p, 1, 60000), 1);
}

/* It is there until somebody reads, and this owner does not read now. */
static void an_urgent_byte_does_not_keep_the_loop_busy(void **state)
{
    int listener = tcp_listen(), client = tcp_connect(), fd = accept(listener, NULL, NULL);
    struct slice got;
    struct sock s;

    (void)state;
    told = n_told = n_freed = 0;
    assert_int_equal(sock_init(&s, &loop, fd, on_event, on_free, NULL), 0);
    sock_watch(&s, 0);
    assert_int_equal(send(client, "u", 1, MSG_OOB), 1);
    wait_for_input(fd, POLLPRI);
    turns(20);
    assert_int_equal(n_told, 0);

    assert_int_equal(send(client, "data", 4, 0), 4);
    sock_watch(&s, SOCK_READABLE);
    wait_for_input(fd, POLLIN);
    turns(1);
    assert_int_equal(told, SOCK_READABLE);
    assert_int_equal(sock_read(&s, &got), 4);
    sock_watch(&s, 0);
    n_told = 0;
    turns(20);
    assert_int_equal(n_told, 0);

    sock_close(&s, false);
    turns(3);
    assert_int_equal(n_freed, 1);
    fd_close(client);
    fd_close(listener);
}

static void a_reset_is_told_although_nothing_is_watched(void **state)
{
    int listener = tcp_listen(), client = tcp_connect(), fd = accept(listener, NULL, NULL);
    const struct linger now = { .l_onoff = 1 };
    struct sock s;

    (void)state;
    told = n_told = n_freed = 0;
    assert_int_equal(sock_init(&s, &loop, fd, on_event, on_free, NULL), 0);
    sock_watch(&s, 0);
    assert_int_equal(setsockopt(client, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    fd_close(client);
    wait_for_input(fd, 0);
    turns(1);
    assert_int_equal(told, SOCK_READABLE | SOCK_WRITABLE | SOCK_HANGUP);
    sock_close(&s, false);
    turns(3);
    assert_int_equal(n_freed, 1);
    fd_close(listener);
}

static int start_loop(void **state)
{
    (void)state;
    return uv_loop_init(&loop);
}

static int end_loop(void **state)
{
    (void)state;
    return uv_loop_close(&loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_urgent_byte_does_not_keep_the_loop_busy),
        cmocka_unit_test(a_reset_is_told_although_nothing_is_watched),
    };

    return cmocka_run_group_tests(tests, start_loop, end_loop);
}
