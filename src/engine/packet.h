/* packet.h - one struct with file descriptors as one message of a unix SEQPACKET socket, between
 * processes that run the same image (the engine and its workers). No encoding: both ends have the
 * same struct; the size is checked.
 */
#pragma once

#include <sys/types.h>

#include "base/macro.h"

#define PACKET_FDS_MAX 8

/* 0, or -1 with errno (EAGAIN on a full non-blocking socket). The descriptors stay the caller's. */
int packet_send(int fd, const void *p, size_t n, const int *fds, size_t n_fds);
/* Bytes received into `p`, 0 at the end, or -1 with errno; EBADMSG when the message was larger than
 * `size` or came with more than PACKET_FDS_MAX descriptors (all are closed then). `fds` has room for
 * PACKET_FDS_MAX; they are the caller's, cloexec. */
ssize_t packet_receive(int fd, void *p, size_t size, int *fds, size_t *ret_n_fds);
/* Closes what is >= 0 and sets it to -EBADF. */
void packet_close_fds(int *fds, size_t n);
