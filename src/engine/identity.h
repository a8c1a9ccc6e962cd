/* identity.h - what a guest is told about itself, from outside: identity over its control channel,
 * host name by entering its UTS namespace. Nothing here waits for a guest.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "schema/ipc.pb-c.h"

#define IDENTITY_BYTES_MAX 65536

/* Appends a GuestFrame with `id` (NULL: an empty one) for `sandbox_id` to `b`. */
int identity_encode(const Abx__Ipc__Identity *id, const char *sandbox_id, struct buf *b,
                    struct abx_err *err);
/* Appends a GuestFrame that says that the sandbox is about to be thawed. */
int resumed_encode(struct buf *b, struct abx_err *err);
/* Sends it to the listener in `netns_fd`; the guest reads it whenever it runs. UNAVAILABLE when its
 * backlog is full. */
int identity_deliver(int netns_fd, struct slice frame, struct abx_err *err);

/* 1 to 64 letters, digits, '-' and '.'? */
bool hostname_is_valid(const char *name);
/* Sets the host name of the sandbox with that init process; aborts if the way back to the own UTS
 * namespace (`own_uts_fd`) fails. */
int hostname_set(int pidfd, int own_uts_fd, const char *name, struct abx_err *err);
