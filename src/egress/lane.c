/* lane.c - see lane.h. */
#include "egress/lane.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macro.h"

#define PIPE_SIZE (1 << 18)
#define SPLICE_MAX ((size_t)PIPE_SIZE)

/* --- what bytes wait in ------------------------------------------------------------------------- */

static bool take_pipe(struct lane *l, struct lane_pool *pool, size_t *quota)
{
    if (*quota >= LANE_QUOTA)
        return false;
    if (pool->n > 0) {
        pool->n--;
        l->pipe[0] = pool->pipes[pool->n][0];
        l->pipe[1] = pool->pipes[pool->n][1];
    } else if (pipe2(l->pipe, O_CLOEXEC | O_NONBLOCK) < 0) {
        l->pipe[0] = l->pipe[1] = -EBADF;
        return false;
    } else {
        pool->n_open++;
        /* A place takes a page. What the kernel does not give is done without. */
        (void)fcntl(l->pipe[0], F_SETPIPE_SZ, PIPE_SIZE);
    }
    ++*quota;
    return true;
}

/* Empty ones are kept. */
static void put_pipe(struct lane *l, struct lane_pool *pool, size_t *quota)
{
    if (l->pipe[0] < 0)
        return;
    --*quota;
    if (l->held == 0 && pool->n < LANE_POOL_MAX) {
        pool->pipes[pool->n][0] = TAKE_FD(l->pipe[0]);
        pool->pipes[pool->n++][1] = TAKE_FD(l->pipe[1]);
        return;
    }
    pool->n_open--;
    fd_close(TAKE_FD(l->pipe[0]));
    fd_close(TAKE_FD(l->pipe[1]));
}

static void put_back(struct lane *l, struct lane_pool *pool, size_t *quota)
{
    put_pipe(l, pool, quota);
    free(TAKE_PTR(l->copy));
}

static bool take_room(struct lane *l, struct lane_pool *pool, size_t *quota)
{
    if (l->pipe[0] >= 0 || l->copy || take_pipe(l, pool, quota))
        return true;
    l->copy = malloc(LANE_COPY_SIZE);
    return l->copy != NULL;
}

/* --- moving ------------------------------------------------------------------------------------- */

static ssize_t fill(struct lane *l, int from)
{
    ssize_t n;

    do
        n = l->copy ? recv(from, l->copy, LANE_COPY_SIZE, MSG_DONTWAIT)
                    : splice(from, NULL, l->pipe[1], NULL, SPLICE_MAX,
                             SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    while (n < 0 && errno == EINTR);
    l->off = 0;
    l->held = n > 0 ? (size_t)n : 0;
    return n;
}

/* A pipe takes nothing past an urgent byte, although the socket is readable: what comes next is copied. */
static ssize_t fill_past_urgent(struct lane *l, struct lane_pool *pool, size_t *quota, int from)
{
    if (l->copy || !(l->copy = malloc(LANE_COPY_SIZE)))
        return -1;
    put_pipe(l, pool, quota);
    return fill(l, from);
}

static ssize_t empty(struct lane *l, int to)
{
    ssize_t n;

    do
        n = l->copy
                ? send(to, l->copy + l->off, l->held, MSG_DONTWAIT | MSG_NOSIGNAL)
                : splice(l->pipe[0], NULL, to, NULL, l->held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        l->off += (size_t)n;
        l->held -= (size_t)n;
    }
    return n;
}

static enum lane_state turn(struct lane *l, struct lane_pool *pool, size_t *quota, int from, int to,
                            size_t *ret_moved)
{
    while (*ret_moved < LANE_TURN_MAX) {
        ssize_t n;

        if (l->held == 0 && !l->has_end) {
            n = fill(l, from);
            if (n < 0 && errno == EAGAIN && *ret_moved == 0)
                n = fill_past_urgent(l, pool, quota, from);
            if (n < 0)
                return errno == EAGAIN ? LANE_WANTS_READ : LANE_BROKEN;
            l->has_end = n == 0;
        }
        if (l->held == 0 && l->is_cut)
            return LANE_BROKEN;
        if (l->held == 0) {
            if (!l->is_ended && shutdown(to, SHUT_WR) < 0)
                return LANE_BROKEN;
            l->is_ended = true;
            return LANE_ENDED;
        }
        n = empty(l, to);
        if (n <= 0)
            return n < 0 && errno == EAGAIN ? LANE_WANTS_WRITE : LANE_BROKEN;
        *ret_moved += (size_t)n;
    }
    return LANE_MORE;
}

enum lane_state lane_pump(struct lane *l, struct lane_pool *pool, size_t *quota, int from, int to,
                          size_t *ret_moved)
{
    enum lane_state state;

    *ret_moved = 0;
    if (l->is_ended)
        return LANE_ENDED;
    if (!take_room(l, pool, quota))
        return LANE_BROKEN;
    state = turn(l, pool, quota, from, to, ret_moved);
    if (l->held == 0)
        put_back(l, pool, quota);
    return state;
}

void lane_done(struct lane *l, struct lane_pool *pool, size_t *quota)
{
    put_back(l, pool, quota);
    l->held = 0;
}

void lane_pool_done(struct lane_pool *pool)
{
    for (size_t i = 0; i < pool->n; i++) {
        fd_close(pool->pipes[i][0]);
        fd_close(pool->pipes[i][1]);
    }
    pool->n = 0;
}
