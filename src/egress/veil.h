/* veil.h - TLS around a connection: to a proxy that is reached by it.
 *
 * The rest of egress sees a plain socket, one end of a pair; the veil moves bytes between the other end and TLS, at
 * most what one read takes in each direction. Its two descriptors are its own. What ends on one side ends on the other;
 * a failure of either is one of both, but what came from the proxy before its side failed is passed on first.
 */
#pragma once

#include <uv.h>

#include "base/err.h"
#include "net/tls.h"

struct veil;

/* Takes over the connected socket `fd` whatever the result; *ret_plain is the caller's. `host` is whom the certificate has
 * to be for. `over` is called once, from the loop, unless veil_close comes first: `why` NULL when everything was passed on
 * in both directions, the ends too, else why TLS did not come about or broke; veil_close then. */
int veil_new(uv_loop_t *loop, int fd, struct tls_trust *trust, const char *host,
             void (*over)(void *user, const char *why), void *user, struct veil **ret,
             int *ret_plain, struct abx_err *err);
/* Does it still hold bytes on their way to the proxy, or does the kernel? */
bool veil_is_sending(const struct veil *v);
/* At once; memory is freed from the loop. NULL is fine. */
void veil_close(struct veil *v, bool is_reset);
