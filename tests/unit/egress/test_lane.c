/* test_lane.c - bytes of one direction: moved, held back, ended. */
#include "test.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "egress/lane.h"

struct pair {
    int a, b;
};

static struct pair make_pair(void)
{
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    return (struct pair){ fds[0], fds[1] };
}

static void close_pair(struct pair p)
{
    fd_close(p.a);
    fd_close(p.b);
}

static void moves_bytes_and_the_end(void **state)
{
    struct pair from = make_pair(), to = make_pair();
    struct lane lane = LANE_INIT;
    struct lane_pool pool = { 0 };
    size_t quota = 0, moved;
    char got[16];

    (void)state;
    assert_int_equal(lane_pump(&lane, &pool, &quota, from.b, to.a, &moved), LANE_WANTS_READ);
    assert_int_equal(write(from.a, "hello", 5), 5);
    assert_int_equal(lane_pump(&lane, &pool, &quota, from.b, to.a, &moved), LANE_WANTS_READ);
    assert_int_equal(moved, 5);
    assert_int_equal(read(to.b, got, sizeof got), 5);
    assert_int_equal(quota, 0);
    assert_int_equal(pool.n, 1); /* waits for the next one */
    assert_int_equal(shutdown(from.a, SHUT_WR), 0);
    assert_int_equal(lane_pump(&lane, &pool, &quota, from.b, to.a, &moved), LANE_ENDED);
    assert_int_equal(lane_pump(&lane, &pool, &quota, from.b, to.a, &moved), LANE_ENDED);
    assert_int_equal(read(to.b, got, sizeof got), 0);
    lane_done(&lane, &pool, &quota);
    lane_pool_done(&pool);
    close_pair(from);
    close_pair(to);
}

/* Fills from one side until the lane is full; then everything has to arrive in order. */
static void fill_and_drain(size_t quota, bool copies)
{
    struct pair from = make_pair(), to = make_pair();
    struct lane lane = LANE_INIT;
    struct lane_pool pool = { 0 };
    static uint8_t piece[8192], got[8192];
    size_t sent = 0, received = 0, moved, quota_before = quota;
    enum lane_state lane_state = LANE_WANTS_READ;
    ssize_t n;

    for (int i = 0; i < 10000 && lane_state != LANE_WANTS_WRITE; i++) {
        for (size_t k = 0; k < sizeof piece; k++)
            piece[k] = (uint8_t)((sent + k) * 31 >> 3);
        n = write(from.a, piece, sizeof piece);
        sent += n > 0 ? (size_t)n : 0;
        lane_state = lane_pump(&lane, &pool, &quota, from.b, to.a, &moved);
    }
    assert_int_equal(lane_state, LANE_WANTS_WRITE);
    assert_true(lane.held > 0);
    assert_int_equal(lane.copy != NULL, copies);
    assert_int_equal(quota, quota_before + !copies);
    assert_int_equal(shutdown(from.a, SHUT_WR), 0);
    while ((n = read(to.b, got, sizeof got)) != 0) {
        for (ssize_t k = 0; k < n; k++)
            if (got[k] != (uint8_t)((received + (size_t)k) * 31 >> 3))
                fail_msg("byte %zu", received + (size_t)k);
        received += n > 0 ? (size_t)n : 0;
        (void)lane_pump(&lane, &pool, &quota, from.b, to.a, &moved);
    }
    assert_int_equal(received, sent);
    assert_int_equal(quota, quota_before);
    lane_done(&lane, &pool, &quota);
    assert_int_equal(pool.n, pool.n_open);
    lane_pool_done(&pool);
    close_pair(from);
    close_pair(to);
}

static void holds_back_what_is_not_taken(void **state)
{
    (void)state;
    fill_and_drain(0, false);
}

static void copies_when_there_are_too_many_pipes(void **state)
{
    (void)state;
    fill_and_drain(LANE_QUOTA, true);
}

static void what_was_held_goes_with_the_lane(void **state)
{
    struct pair from = make_pair(), to = make_pair();
    struct lane lane = LANE_INIT;
    struct lane_pool pool = { 0 };
    static uint8_t piece[8192];
    size_t quota = 0, moved;

    (void)state;
    while (lane_pump(&lane, &pool, &quota, from.b, to.a, &moved) != LANE_WANTS_WRITE)
        (void)!write(from.a, piece, sizeof piece);
    lane_done(&lane, &pool, &quota);
    assert_int_equal(quota, 0);
    assert_int_equal(pool.n, 0); /* not given to others with bytes in it */
    assert_int_equal(pool.n_open, 0);
    close_pair(from);
    close_pair(to);
}

static void a_side_that_is_gone_breaks_it(void **state)
{
    struct pair from = make_pair(), to = make_pair();
    struct lane lane = LANE_INIT;
    struct lane_pool pool = { 0 };
    size_t quota = 0, moved;

    (void)state;
    (void)sigaction(SIGPIPE, &(const struct sigaction){ .sa_handler = SIG_IGN }, NULL);
    fd_close(to.b);
    assert_int_equal(write(from.a, "x", 1), 1);
    assert_int_equal(lane_pump(&lane, &pool, &quota, from.b, to.a, &moved), LANE_BROKEN);
    lane_done(&lane, &pool, &quota);
    lane_pool_done(&pool);
    close_pair(from);
    fd_close(to.a);
}

/* The bytes pass, the end does not: it was none. */
static void what_was_cut_off_passes_without_an_end(void **state)
{
    struct pair from = make_pair(), to = make_pair();
    struct lane lane = LANE_INIT;
    struct lane_pool pool = { 0 };
    size_t quota = 0, moved;
    char got[16];

    (void)state;
    assert_int_equal(write(from.a, "hello", 5), 5);
    assert_int_equal(shutdown(from.a, SHUT_WR), 0);
    lane.is_cut = true;
    assert_int_equal(lane_pump(&lane, &pool, &quota, from.b, to.a, &moved), LANE_BROKEN);
    assert_int_equal(read(to.b, got, sizeof got), 5);
    assert_int_equal(read(to.b, got, sizeof got), -1);
    assert_int_equal(errno, EAGAIN);
    lane_done(&lane, &pool, &quota);
    assert_int_equal(quota, 0);
    lane_pool_done(&pool);
    close_pair(from);
    close_pair(to);
}

static struct pair make_tcp_pair(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct pair p = { .a = socket(AF_INET, SOCK_STREAM, 0) };
    const int one = 1;

    assert_int_equal(bind(listener, (struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &n), 0);
    assert_int_equal(connect(p.a, (struct sockaddr *)&at, n), 0);
    p.b = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    assert_true(p.b >= 0);
    assert_int_equal(setsockopt(p.b, SOL_SOCKET, SO_OOBINLINE, &one, sizeof one), 0);
    fd_close(listener);
    return p;
}

/* The kernel's splice stops there for good, while poll goes on saying that there is something to read. */
static void an_urgent_byte_is_passed_like_the_others(void **state)
{
    struct pair from = make_tcp_pair(), to = make_pair();
    struct lane lane = LANE_INIT;
    struct lane_pool pool = { 0 };
    size_t quota = 0, moved, have = 0;
    char got[16] = "";
    ssize_t n;

    (void)state;
    assert_int_equal(send(from.a, "ab", 2, 0), 2);
    assert_int_equal(send(from.a, "C", 1, MSG_OOB), 1);
    assert_int_equal(send(from.a, "de", 2, 0), 2);
    for (int i = 0; i < 10 && have < 5; i++) {
        struct pollfd p = { from.b, POLLIN, 0 };

        assert_int_equal(poll(&p, 1, 60000), 1);
        assert_int_equal(lane_pump(&lane, &pool, &quota, from.b, to.a, &moved), LANE_WANTS_READ);
        n = read(to.b, got + have, sizeof got - 1 - have);
        have += n > 0 ? (size_t)n : 0;
    }
    assert_string_equal(got, "abCde");
    assert_int_equal(quota, 0);
    assert_null(lane.copy);
    lane_done(&lane, &pool, &quota);
    lane_pool_done(&pool);
    close_pair(from);
    close_pair(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_bytes_and_the_end),
        cmocka_unit_test(holds_back_what_is_not_taken),
        cmocka_unit_test(copies_when_there_are_too_many_pipes),
        cmocka_unit_test(what_was_held_goes_with_the_lane),
        cmocka_unit_test(a_side_that_is_gone_breaks_it),
        cmocka_unit_test(what_was_cut_off_passes_without_an_end),
        cmocka_unit_test(an_urgent_byte_is_passed_like_the_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
