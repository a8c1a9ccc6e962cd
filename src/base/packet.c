/* packet.c - see packet.h. */
#include "base/packet.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

union control {
    char space[CMSG_SPACE(sizeof(int) * PACKET_FDS_MAX)];
    struct cmsghdr align;
};

int packet_send(int fd, const void *p, size_t n, const int *fds, size_t n_fds, int flags)
{
    union control control = { 0 };
    struct iovec iov = { (void *)(uintptr_t)p, n };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
    ssize_t r;

    if (n_fds > PACKET_FDS_MAX) {
        errno = EINVAL;
        return -1;
    }
    if (n_fds > 0) {
        const struct cmsghdr head = { CMSG_LEN(sizeof(int) * n_fds), SOL_SOCKET, SCM_RIGHTS };

        memcpy(control.space, &head, sizeof head);
        memcpy(control.space + CMSG_LEN(0), fds, sizeof(int) * n_fds);
        m.msg_control = control.space;
        m.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
    }
    do
        r = sendmsg(fd, &m, flags | MSG_NOSIGNAL);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -1 : 0;
}

static size_t collect(struct msghdr *m, int *fds)
{
    size_t n = 0;

    for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
        size_t k = h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS
                       ? (h->cmsg_len - CMSG_LEN(0)) / sizeof(int)
                       : 0;

        for (size_t i = 0; i < k && n < PACKET_FDS_MAX; i++)
            memcpy(&fds[n++], CMSG_DATA(h) + i * sizeof(int), sizeof(int));
    }
    return n;
}

ssize_t packet_receive(int fd, void *p, size_t size, int *fds, size_t *ret_n_fds, int flags)
{
    union control control;
    struct iovec iov = { p, size };
    struct msghdr m;
    bool was_reset = false;
    ssize_t r;

    for (;;) {
        m = (struct msghdr){ .msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = sizeof control.space };
        r = recvmsg(fd, &m, flags | MSG_CMSG_CLOEXEC);
        if (r >= 0 || (errno != EINTR && (errno != ECONNRESET || was_reset)))
            break;
        was_reset |= errno == ECONNRESET; /* told once, before what lies there */
    }
    *ret_n_fds = r < 0 ? 0 : collect(&m, fds);
    if (r >= 0 && m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        packet_close_fds(fds, *ret_n_fds);
        *ret_n_fds = 0;
        errno = EBADMSG;
        return -1;
    }
    return r;
}

void packet_close_fds(int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fds[i] >= 0)
            fd_close(TAKE_FD(fds[i]));
}
