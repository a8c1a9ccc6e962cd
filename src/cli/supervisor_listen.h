/* supervisor_listen.h - the listeners that the supervisor opens and keeps for its roles.
 *
 * A role that dies loses no waiting connection, because the sockets live here and are inherited by
 * each successor.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "cli/predecessor.h"

#define LISTEN_GATEWAYS_MAX 64

struct listen_address {
    char host[64]; /* numeric, IPv6 without brackets */
    uint16_t port;
};

/* `option` is named in errors. "127.0.0.1:8490", "[::1]:8490", "localhost:8490", ":8490" (all addresses of IPv4). */
int listen_address_parse(const char *option, const char *text, struct listen_address *ret,
                         struct abx_err *err);
bool listen_address_is_loopback(const struct listen_address *a);

/* `n` listening TCP sockets that share the address (SO_REUSEPORT).
 * Port 0 is replaced by the one chosen. A taken port gives FAILED_PRECONDITION and names the holder; one that a killed
 * predecessor may have, since no living process can be found that has it, is waited for. */
int listen_shared(struct listen_address *address, size_t n, struct predecessor *predecessor,
                  int *ret_fds, struct abx_err *err);

/* The same, but systemd's socket when it passed one. */
int listen_public(struct listen_address *address, size_t n, struct predecessor *predecessor,
                  int *ret_fds, struct abx_err *err);

/* A listening unix socket `name` in the folder `dirfd` for one uid (mode 0600, owner `uid`); an old
 * one is replaced. `type`: SOCK_STREAM or SOCK_SEQPACKET. */
int listen_unix(int dirfd, const char *name, int type, uid_t uid, int *ret_fd, struct abx_err *err);
