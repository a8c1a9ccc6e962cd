/* netns.h - network namespaces: made before the sandbox, owned by the host's user namespace.
 *
 * A fresh one has `lo` up with 127.0.0.1, ::1 and 169.254.0.21/32, `local default` routes of IPv4 (with
 * that source address) and IPv6, ip_unprivileged_port_start=0 and ping_group_range set; nothing leads out.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"

/* Address of the sandbox in its own namespace. */
#define NETNS_OWN_ADDRESS "169.254.0.21"

/* Calls `fn` inside the namespace `netns_fd` and returns its result. Only the calling thread moves;
 * it aborts if the way back fails, and `fn` runs in no other case than inside. */
int netns_call(int netns_fd, int (*fn)(void *user, struct abx_err *err), void *user,
               struct abx_err *err);

/* Makes one; the calling thread is back in its own namespace afterwards (aborts if the way back
 * fails). fd owned by the caller. */
int netns_create(int *ret_fd, struct abx_err *err);

/* True when the namespace was made by netns_create (it has our address; no other one does). False also
 * when that cannot be found out. The calling thread moves and comes back as above. */
bool netns_is_ours(int netns_fd);

/* Calls `fn` for each descriptor of process `pid`, a socket in or a handle of another network namespace
 * than the caller's, that keeps that one alive, until it returns other than 0, which is then the
 * result. `netns_fd` is borrowed until `fn` returns. A process that is gone has none.
 * PERMISSION_DENIED when its descriptors cannot be had. */
int netns_each_held(pid_t pid, int (*fn)(void *user, int fd, int netns_fd, ino_t inode), void *user,
                    struct abx_err *err);

/* socket(2) inside the namespace `netns_fd`, non-blocking and cloexec; the way back as above. */
int netns_socket(int netns_fd, int domain, int type, int protocol, int *ret_fd,
                 struct abx_err *err);

/* A listening, non-blocking TCP socket on [::]:port (dual stack; 0.0.0.0 when the host has no IPv6)
 * inside. */
int netns_listen_tcp(int netns_fd, uint16_t port, int backlog, int *ret_fd, struct abx_err *err);
/* A listening, non-blocking abstract SEQPACKET socket `name` (1 to 107 bytes) inside: the guest's
 * control channel. */
int netns_listen_control(int netns_fd, const char *name, int *ret_fd, struct abx_err *err);
/* Connects to it from outside (never blocks: EAGAIN is UNAVAILABLE). */
int netns_connect_control(int netns_fd, const char *name, int *ret_fd, struct abx_err *err);
/* A non-blocking abstract datagram socket `name` inside that gets the sender's ids with each message (SO_PASSCRED). */
int netns_bind_datagrams(int netns_fd, const char *name, int *ret_fd, struct abx_err *err);
