/* tls_share.h - certificates and keys on their way from the supervisor, who may read the files, to the
 * gateways, who may not.
 *
 * A memfd of fixed size, written in place by the supervisor at its start and at each reload, mapped
 * read-only by the gateways. A number in front tells a reader that came in the middle of a change.
 * With them comes a secret from which all gateways make the same keys of session tickets.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#define TLS_PAIRS_MAX 16u
#define TLS_SHARE_SIZE (1u << 20) /* what all files together may have, nearly */
#define TLS_SECRET_SIZE 32u

/* A certificate with its chain and its private key, both as the text of a PEM file. */
struct tls_pair {
    struct slice certificate, key;
};

struct tls_share;

/* For the writer; *ret_fd is what readers get: it cannot be written through. Owned by the caller. */
int tls_share_new(struct tls_share **ret, int *ret_fd, struct abx_err *err);
/* Takes the place of what is in it. TOO_LARGE when it does not fit. */
int tls_share_write(struct tls_share *s, const struct tls_pair *pairs, size_t n,
                    struct abx_err *err);
/* For a reader. `fd` stays the caller's and is not needed afterwards. */
int tls_share_open(int fd, struct tls_share **ret, struct abx_err *err);
/* Copies what is in it into `text`, to which the slices of `pairs` point. ABORTED in the middle of a
 * change. */
int tls_share_read(const struct tls_share *s, struct buf *text,
                   struct tls_pair pairs[TLS_PAIRS_MAX], size_t *ret_n,
                   uint8_t secret[TLS_SECRET_SIZE], struct abx_err *err);
/* NULL is fine. */
void tls_share_free(struct tls_share *s);
DEFINE_CLEANUP(struct tls_share *, tls_share_free)
