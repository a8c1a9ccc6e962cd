/* net_test.h - a loop, a listener and plain client sockets for the tests of net/. */
#pragma once

#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/str.h"

#define TEST_PATIENCE_NS (60 * NSEC_PER_SEC)

static uv_loop_t loop;
static uint16_t listen_port;

/* A listening socket of 127.0.0.1 with any port, kept in listen_port. */
static _unused_ int tcp_listen(void)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(in);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof(in)), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
    listen_port = ntohs(in.sin_port);
    return fd;
}

/* A non-blocking client connected to listen_port. */
static _unused_ int tcp_connect(void)
{
    struct sockaddr_in in = { .sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                              .sin_port = htons(listen_port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&in, sizeof(in)), 0);
    assert_int_equal(fd_set_nonblock(fd, true), 0);
    return fd;
}

static void turn(void)
{
    (void)uv_run(&loop, UV_RUN_NOWAIT);
}

static _unused_ void turns(int n)
{
    for (int i = 0; i < n; i++)
        turn();
}

/* Runs the loop until the condition holds; fails the test after TEST_PATIENCE_NS. */
#define RUN_UNTIL(condition)                                                                       \
    do {                                                                                           \
        int64_t give_up_ = time_mono_ns() + TEST_PATIENCE_NS;                                      \
        while (!(condition)) {                                                                     \
            turn();                                                                                \
            if (time_mono_ns() > give_up_)                                                         \
                fail_msg("never came true: %s", #condition);                                       \
        }                                                                                          \
    } while (0)

/* Sends all of it, running the loop while the socket is full. */
static _unused_ void send_all(int fd, const void *p, size_t n)
{
    const char *at = p;
    int64_t give_up = time_mono_ns() + TEST_PATIENCE_NS;

    while (n > 0) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);

        if (sent < 0 && errno != EAGAIN)
            fail_msg("send: %s", strerror(errno));
        if (sent > 0) {
            at += sent;
            n -= (size_t)sent;
            give_up = time_mono_ns() + TEST_PATIENCE_NS;
        }
        turn();
        if (time_mono_ns() > give_up)
            fail_msg("the peer does not read");
    }
}

static _unused_ void send_str(int fd, const char *s)
{
    send_all(fd, s, strlen(s));
}

/* Reads into `got` (NUL-terminated, what came before is kept) until `part` is in it. */
static _unused_ void expect_part(int fd, char *got, size_t size, const char *part)
{
    int64_t give_up = time_mono_ns() + TEST_PATIENCE_NS;

    while (!strstr(got, part)) {
        size_t have = strlen(got);
        ssize_t n = recv(fd, got + have, size - have - 1, 0);

        if (n > 0)
            got[have + (size_t)n] = '\0';
        else if (n == 0)
            fail_msg("closed before '%s'; got '%s'", part, got);
        else if (errno != EAGAIN)
            fail_msg("recv: %s; got '%s'", strerror(errno), got);
        turn();
        if (time_mono_ns() > give_up)
            fail_msg("no '%s' in '%s'", part, got);
    }
}

/* Reads until the peer ends it: 0 for a clean close, errno for a break. Appends to `got` if given. */
static _unused_ int expect_end(int fd, char *got, size_t size)
{
    int64_t give_up = time_mono_ns() + TEST_PATIENCE_NS;
    char waste[65536];

    for (;;) {
        size_t have = got ? strlen(got) : 0;
        ssize_t n =
            got ? recv(fd, got + have, size - have - 1, 0) : recv(fd, waste, sizeof(waste), 0);

        if (n == 0)
            return 0;
        if (n > 0 && got)
            got[have + (size_t)n] = '\0';
        if (n < 0 && errno != EAGAIN)
            return errno;
        turn();
        if (time_mono_ns() > give_up)
            fail_msg("the peer does not close");
    }
}

static _unused_ int loop_setup(void **state)
{
    (void)state;
    return uv_loop_init(&loop);
}

/* Fails when something was left open. */
static _unused_ int loop_teardown(void **state)
{
    (void)state;
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    return uv_loop_close(&loop);
}
