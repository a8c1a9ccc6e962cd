/* sockets.h - the thread that makes sockets inside sandboxes for gateways and egress, and does nothing
 * else: they never wait for a create or a delete.
 *
 * It has its own loop, its listeners and connections, and a table of (sandbox id, namespace, state)
 * that the engine's thread changes under a lock. Gateways may ask for SOCKET, egress for STEER; both get Died
 * events.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "engine/steer.h"

struct sockets;

struct sockets_opts {
    int gateway_fd, egress_fd;     /* listening; owned by the thread from sockets_start on */
    uid_t gateway_uid, egress_uid; /* who may connect besides root */
    const char *instance;          /* both borrowed until sockets_stop */
    const char *boot_id;
    int heartbeat_fd; /* on which the thread beats, owned as above; -1: none */
};

/* Starts the thread. */
int sockets_start(const struct sockets_opts *opts, struct sockets **ret, struct abx_err *err);
/* Ends and joins it. */
void sockets_stop(struct sockets *s);
DEFINE_CLEANUP(struct sockets *, sockets_stop)

/* The rest is called from the engine's thread. */

/* From now on sockets can be had; `netns_fd` is borrowed until sockets_remove, `steer_fds` are taken (what is
 * -EBADF is made when it is asked for). `root_uid` is the host's uid of the sandbox's root. */
int sockets_add(struct sockets *s, const char *sandbox_id, int netns_fd, uid_t root_uid,
                int steer_fds[STEER_FDS], struct abx_err *err);
/* Descriptors that wait for egress. */
size_t sockets_held(struct sockets *s);
/* While frozen, SOCKET fails with FAILED_PRECONDITION. */
void sockets_set_frozen(struct sockets *s, const char *sandbox_id, bool on);
/* When it returns the namespace is not used any more. Missing is fine. */
void sockets_remove(struct sockets *s, const char *sandbox_id);
/* Processes that are connected and so may have sockets, up to `max`; how many. */
size_t sockets_peers(struct sockets *s, pid_t *to, size_t max);
/* Tells all gateways and egress. */
void sockets_send_died(struct sockets *s, const char *sandbox_id, const char *reason, int status);
