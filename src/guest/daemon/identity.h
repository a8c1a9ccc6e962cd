/* identity.h - who this sandbox is, told by the engine over the control channel.
 *
 * Until it is told, the sandbox is unclaimed. The listener obeys only peers outside the sandbox's
 * pid namespace (SO_PEERCRED pid 0). The engine sends the identity before the call that made the
 * sandbox returns, so whoever drains the channel on a request sees it.
 */
#pragma once

#include <uv.h>

#include "base/buf.h"
#include "base/err.h"

#define IDENTITY_MESSAGE_MAX 65536

struct identity {
    bool is_claimed;
    char *sandbox_id;
    char *template_id;
    char *access_token; /* "" = none asked for */
    char *default_user;
    char *default_workdir;
    char **envs; /* "KEY=value", NULL-terminated */
    size_t n_envs;
};

void identity_done(struct identity *id);

/* Decodes a GuestFrame with an identity in it; replaces `id` only on success. */
int identity_decode(struct identity *id, struct slice message, struct abx_err *err);
/* Is it a GuestFrame that says that the sandbox was frozen? */
bool resumed_decode(struct slice message);

struct control;

/* Called after each new identity with the message it came in, borrowed for the call. */
typedef void (*identity_changed_fn)(void *user, struct slice message);
/* Called when the sandbox runs again after it was frozen. */
typedef void (*identity_resumed_fn)(void *user);

/* Listens on `fd` (stays the caller's). */
int control_new(uv_loop_t *loop, int fd, struct identity *id, identity_changed_fn changed,
                identity_resumed_fn resumed, void *user, struct control **ret, struct abx_err *err);
/* control_drain if something is waiting: one cheap system call when not. */
void control_look(struct control *c);
/* Takes in what is waiting, without blocking. */
void control_drain(struct control *c);
