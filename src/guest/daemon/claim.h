/* claim.h - what follows from a new identity: keeping it over a crash, telling the sandbox. */
#pragma once

#include "guest/daemon/identity.h"

/* Hands the message to PID 1, in a memfd, for the daemon's successor. */
void claim_keep(struct slice message);
/* Takes over the identity that a previous daemon kept, if there is one. */
void claim_find(struct identity *id);
/* Writes /run/e2b/.E2B_SANDBOX and its siblings and, where the host name was set after the start,
 * /etc/hostname and /etc/hosts; in the pool. */
void claim_tell(uv_loop_t *loop, const struct identity *id);
