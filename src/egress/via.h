/* via.h - the proxies that a connection goes through: the operator's, then the sandbox's own.
 *
 * Each is asked for the next one, the last for where the sandbox wants to go. The operator's is always passed, so that a
 * sandbox's own proxy is no way around it. A sandbox's own proxy may have a name; its address has to be one that the
 * sandbox could be let to, whatever its rules say.
 */
#pragma once

#include "egress/internal.h"

struct via;

/* `ready` once, at once or later, unless via_free comes first: `why` NULL, or why it cannot be had. */
int via_new(struct box *b, const struct address *to, void (*ready)(void *user, const char *why),
            void *user, struct via **ret);
void via_free(struct via *v);
/* Does the connection go through any at all? Else dial where the sandbox wants to go. */
bool via_is_needed(const struct box *b);
/* Whom to dial. */
const struct address *via_first(const struct via *v);

enum via_state {
    VIA_MORE,
    VIA_NOTHING, /* the same, and nothing came since the last time */
    VIA_VEIL,    /* the next proxy wants TLS: `fd` has to lead through it (via_veil) */
    VIA_DONE,
    VIA_FAILED,
};

/* After VIA_VEIL: whom to believe, and whose certificate it has to be; borrowed. */
struct tls_trust *via_veil(const struct via *v, const char **ret_host);
/* Talks with the proxies over the connected socket `fd`; again whenever it is readable. `ret_why` is set for FAILED. */
enum via_state via_talk(struct via *v, int fd, char ret_why[PROXY_WHY_SIZE]);
