/* packet.h - one message with file descriptors over a unix SEQPACKET socket: what net/ipc.c, the engine's workers
 * and the guest's own processes send each other. Async-signal-safe: also for a child between fork and exec.
 */
#pragma once

#include <sys/types.h>

#include "base/macro.h"

#define PACKET_FDS_MAX 16u

/* `flags` are those of sendmsg and recvmsg (MSG_DONTWAIT). EINTR is tried again, SIGPIPE never comes.
 *
 * 0, or -1 with errno (EAGAIN when the peer's queue is full, EINVAL over PACKET_FDS_MAX). The descriptors stay the
 * caller's. */
int packet_send(int fd, const void *p, size_t n, const int *fds, size_t n_fds, int flags);
/* Bytes received into `p`, 0 at the end, or -1 with errno; EBADMSG when the message was larger than `size`, or came
 * with more than PACKET_FDS_MAX descriptors or more than this process may have (all are closed then, `p` holds the
 * beginning of the message). What the peer sent before it reset the connection comes first. `fds` has room for
 * PACKET_FDS_MAX; the *ret_n_fds received are the caller's, cloexec. */
ssize_t packet_receive(int fd, void *p, size_t size, int *fds, size_t *ret_n_fds, int flags);
/* Closes what is >= 0 and sets it to -EBADF. */
void packet_close_fds(int *fds, size_t n);
