/* tls.h - TLS for the HTTP server and for connections into sandboxes, by OpenSSL, which nothing else of
 * the tree knows.
 *
 * A connection is a layer of its socket (sock.h): the handshake happens while it is read. TLS 1.2 and
 * 1.3, ciphers with forward secrecy and authentication only, no renegotiation, no compression, buffers
 * released while idle. Sessions are resumed by tickets (no cache); their keys are made from a secret
 * and the time, change every TLS_TICKET_PERIOD_S and are accepted one period longer.
 */
#pragma once

#include "net/sock.h"
#include "net/tls_share.h"

#define TLS_TICKET_PERIOD_S (6 * 3600)

struct tls_server;

/* `has_h2`: HTTP/2 is offered (ALPN). No certificate yet: tls_server_load. */
int tls_server_new(bool has_h2, struct tls_server **ret, struct abx_err *err);
/* Connections from now on get these certificates, that of the first pair unless SNI names a host of
 * another. The old ones stay when anything is wrong; the error names the pair by its number from 1. */
int tls_server_load(struct tls_server *t, const struct tls_pair *pairs, size_t n,
                    const uint8_t secret[TLS_SECRET_SIZE], struct abx_err *err);
/* After the last of its connections. NULL is fine. */
void tls_server_free(struct tls_server *t);
/* The layer of an accepted connection, `tls_server` is a struct tls_server; NULL when out of memory.
 * `fd` is borrowed until it is freed. */
struct sock_layer *tls_server_open(void *tls_server, int fd);

/* Who may have signed a server's certificate. */
struct tls_trust;

/* Certificates in PEM, at least one. INVALID_ARGUMENT when they cannot be read. */
int tls_trust_new(struct slice pem, struct tls_trust **ret, struct abx_err *err);
struct tls_trust *tls_trust_ref(struct tls_trust *t);
/* NULL is fine. */
void tls_trust_unref(struct tls_trust *t);
DEFINE_CLEANUP(struct tls_trust *, tls_trust_unref)
/* The client's side of a connection to a server whose certificate has to be for `host` (a name, or an address) and
 * signed by whom `t` has. TLS 1.2 or newer; an end without close_notify is a failure. NULL when out of memory. */
struct sock_layer *tls_trusting_open(struct tls_trust *t, int fd, const char *host);
/* What was wrong with the server's certificate; NULL when nothing was. */
const char *tls_distrust(struct sock_layer *l);

/* The client's side of a connection to a server inside a sandbox, whose certificate is not looked at and
 * which may end without a close_notify. `host` for SNI, may be empty. NULL when out of memory. */
struct sock_layer *tls_client_open(int fd, const char *host);
