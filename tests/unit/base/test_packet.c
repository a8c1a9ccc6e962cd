/* test_packet.c - messages with descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/packet.h"

static int pair[2];

static int setup(void **state)
{
    (void)state;
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
}

static int teardown(void **state)
{
    (void)state;
    fd_close(TAKE_FD(pair[0]));
    fd_close(TAKE_FD(pair[1]));
    return 0;
}

static int lowest_free(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    fd_close(fd);
    return fd;
}

static void descriptors_travel(void **state)
{
    int fds[PACKET_FDS_MAX], sent[PACKET_FDS_MAX + 1];
    struct stat want, got;
    char text[4];
    size_t n_fds;

    (void)state;
    for (size_t i = 0; i <= PACKET_FDS_MAX; i++)
        sent[i] = open(i % 2 ? "/dev/null" : "/", O_RDONLY | O_CLOEXEC);
    assert_int_equal(packet_send(pair[0], "abc", 4, sent, PACKET_FDS_MAX, 0), 0);
    assert_int_equal(packet_receive(pair[1], text, sizeof text, fds, &n_fds, 0), 4);
    assert_string_equal(text, "abc");
    assert_int_equal(n_fds, PACKET_FDS_MAX);
    for (size_t i = 0; i < n_fds; i++) {
        assert_int_equal(fstat(sent[i], &want), 0);
        assert_int_equal(fstat(fds[i], &got), 0);
        assert_true(want.st_ino == got.st_ino);
        assert_true(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
    }
    packet_close_fds(fds, n_fds);
    assert_int_equal(fds[0], -EBADF);
    assert_int_equal(packet_send(pair[0], "abc", 4, sent, PACKET_FDS_MAX + 1, 0), -1);
    assert_int_equal(errno, EINVAL);
    packet_close_fds(sent, PACKET_FDS_MAX + 1);
}

static void too_large_a_message_is_refused_and_its_descriptors_closed(void **state)
{
    uint8_t big[64], small[63];
    int fds[PACKET_FDS_MAX], null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int before = lowest_free();
    size_t n_fds = 99;

    (void)state;
    memset(big, 1, sizeof big);
    assert_int_equal(packet_send(pair[0], big, sizeof big, &null, 1, 0), 0);
    assert_int_equal(packet_receive(pair[1], small, sizeof small, fds, &n_fds, 0), -1);
    assert_int_equal(errno, EBADMSG);
    assert_int_equal(n_fds, 0);
    assert_int_equal(small[62], 1);
    assert_int_equal(lowest_free(), before);
    fd_close(null);
}

static void end_and_emptiness_are_told_apart(void **state)
{
    uint8_t byte;
    int fds[PACKET_FDS_MAX];
    size_t n_fds;

    (void)state;
    assert_int_equal(packet_receive(pair[1], &byte, 1, fds, &n_fds, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    fd_close(TAKE_FD(pair[0]));
    assert_int_equal(packet_receive(pair[1], &byte, 1, fds, &n_fds, 0), 0);
    assert_int_equal(packet_send(pair[1], &byte, 1, NULL, 0, 0), -1); /* and no SIGPIPE */
}

/* The kernel tells of the reset first. */
static void what_came_before_a_reset_comes_first(void **state)
{
    uint8_t byte = 7;
    int fds[PACKET_FDS_MAX];
    size_t n_fds;

    (void)state;
    assert_int_equal(packet_send(pair[1], &byte, 1, NULL, 0, 0), 0); /* never read */
    assert_int_equal(packet_send(pair[0], &byte, 1, NULL, 0, 0), 0);
    fd_close(TAKE_FD(pair[0]));
    byte = 0;
    assert_int_equal(packet_receive(pair[1], &byte, 1, fds, &n_fds, 0), 1);
    assert_int_equal(byte, 7);
    assert_int_equal(packet_receive(pair[1], &byte, 1, fds, &n_fds, 0), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(descriptors_travel),
        T(too_large_a_message_is_refused_and_its_descriptors_closed),
        T(end_and_emptiness_are_told_apart),
        T(what_came_before_a_reset_comes_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
