/* sink.c - see sink.h. */
#include "cli/client/sink.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define WAITING_MAX (64u << 20) /* one event and what it found waiting */
#define PIPE_PIECE 4096         /* fits into a pipe that poll calls writable */

void sink_init(struct sink *k, int fd, const char *name)
{
    struct stat st;

    *k = (struct sink){ .fd = fd, .name = name };
    buf_init(&k->waiting, WAITING_MAX);
    if (fstat(fd, &st) < 0)
        k->error = errno;
    else if (S_ISFIFO(st.st_mode))
        k->kind = SINK_PIPE;
    else if (S_ISSOCK(st.st_mode))
        k->kind = SINK_SOCKET;
}

void sink_done(struct sink *k)
{
    buf_done(&k->waiting);
}

static ssize_t write_pipe(struct sink *k, const void *p, size_t n)
{
    struct iovec piece = { (void *)(uintptr_t)p, n };
    struct pollfd room = { .fd = k->fd, .events = POLLOUT };
    ssize_t r;

    if (!k->lacks_nowait) {
        r = pwritev2(k->fd, &piece, 1, -1, RWF_NOWAIT);
        if (r >= 0 ||
            (errno != EOPNOTSUPP && errno != EINVAL && errno != ENOSYS && errno != ESPIPE))
            return r;
        k->lacks_nowait = true;
    }
    if (poll(&room, 1, 0) <= 0) {
        errno = EAGAIN;
        return -1;
    }
    return write(k->fd, p, MIN(n, (size_t)PIPE_PIECE));
}

/* Bytes written, 0 = not now, or -errno. */
static ssize_t try_write(struct sink *k, const void *p, size_t n)
{
    ssize_t r = -1;

    switch (k->kind) {
    case SINK_PIPE:
        r = write_pipe(k, p, n);
        break;
    case SINK_SOCKET:
        r = send(k->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        break;
    case SINK_PLAIN:
        r = write(k->fd, p, n);
        break;
    }
    if (r < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    return r;
}

static int fail(struct sink *k, int error)
{
    k->error = error;
    buf_reset(&k->waiting);
    return error;
}

int sink_flush(struct sink *k)
{
    while (k->waiting.len > 0) {
        ssize_t r = try_write(k, buf_data(&k->waiting), k->waiting.len);

        if (r < 0)
            return fail(k, (int)-r);
        if (r == 0)
            return 0;
        buf_consume(&k->waiting, (size_t)r);
    }
    return 0;
}

int sink_write(struct sink *k, const void *p, size_t n)
{
    const uint8_t *at = p;

    if (k->error)
        return 0;
    while (n > 0 && k->waiting.len == 0) {
        ssize_t r = try_write(k, at, n);

        if (r < 0)
            return fail(k, (int)-r);
        if (r == 0)
            break;
        at += r;
        n -= (size_t)r;
    }
    if (n > 0 && buf_append(&k->waiting, at, n) != BUF_OK)
        return fail(k, ENOMEM);
    return 0;
}
