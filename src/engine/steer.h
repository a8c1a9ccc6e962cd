/* steer.h - what makes everything that a sandbox dials end at the host's egress process: one sk_lookup
 * program for each network namespace, and the two sockets that it hands connections to.
 *
 *     address dialled                    TCP         UDP port 53   other UDP
 *     127/8, ::1, the sandbox's own      as usual    as usual      as usual
 *     where our sockets are bound        refused     refused       refused
 *     any other                          our TCP     our UDP       refused, counted
 *
 * "Refused" is at once: RST, or port unreachable. A socket accepted from the TCP one has as its local
 * address (getsockname) what the sandbox dialled, and so have datagrams of the UDP one in IPV6_PKTINFO (IP_PKTINFO
 * where the kernel has no IPv6). Both sockets are dual stack; IPv4 addresses come mapped.
 *
 * Who holds the descriptors decides: without the sockets everything is refused, and when the last copy of
 * the link is closed the namespace is one without a way out. Close the sockets first: without the link the
 * address that they are bound to is one like any other.
 */
#pragma once

#include "base/err.h"

/* Descriptors of one namespace, in this order. STEER_COUNT: a BPF array whose one 64-bit value is how many
 * datagrams were refused; it can be mapped (PROT_READ, MAP_SHARED, one page). STEER_REPORT has nothing to do with what is dialled:
 * the datagram socket that the guest's daemon reports to (e2b/guest_abi.h), with SO_PASSCRED. */
enum { STEER_TCP, STEER_UDP, STEER_COUNT, STEER_LINK, STEER_REPORT, STEER_FDS };

/* Attaches a program to the namespace `netns_fd` and opens the sockets inside. The descriptors (all or
 * none, but STEER_REPORT is -EBADF where a process of the sandbox sits on its name) are the caller's. UNIMPLEMENTED or PERMISSION_DENIED where the kernel, or what this process may do, has no
 * such programs. */
int steer_open(int netns_fd, int ret_fds[STEER_FDS], struct abx_err *err);
