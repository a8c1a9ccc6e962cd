/* proxy.h - asking a proxy for a connection: HTTP CONNECT (RFC 9110 9.3.6) and SOCKS5 (RFC 1928, 1929). Without I/O.
 *
 * The proxy is always asked for an address, never for a name: it would look the name up again, and might find what the
 * rules do not allow.
 */
#pragma once

#include "base/buf.h"
#include "egress/address.h"

#define PROXY_HOST_SIZE 256u
#define PROXY_WORD_SIZE 256u   /* user and password: 255 bytes, the most that SOCKS5 knows */
#define PROXY_ANSWER_MAX 8192u /* bytes of an answer */
#define PROXY_WHY_SIZE 96u

enum proxy_kind { PROXY_NONE, PROXY_HTTP, PROXY_SOCKS5 };

struct proxy {
    enum proxy_kind kind;
    char host[PROXY_HOST_SIZE]; /* a name or an address, without brackets */
    uint16_t port;
    char user[PROXY_WORD_SIZE], password[PROXY_WORD_SIZE]; /* "" = none */
    char tls_name[PROXY_HOST_SIZE]; /* whom its certificate has to be for; "" = without TLS */
};

/* [http://|socks5://][USER:PASSWORD@]HOST:PORT; without a scheme it is `kind`. Percent-encoding counts in user and
 * password. */
bool proxy_parse(const char *text, enum proxy_kind kind, struct proxy *ret);

struct proxy_talk {
    const struct proxy *proxy; /* borrowed */
    struct address to;
    int step;
};

enum proxy_step {
    PROXY_SEND,   /* `out` is to be sent */
    PROXY_MORE,   /* read more first */
    PROXY_DONE,   /* what follows is the connection */
    PROXY_FAILED, /* `ret_why` says what the proxy said */
};

/* The first call has an empty `in`. `in` is all that came and was not yet used; *ret_used bytes of it are. */
enum proxy_step proxy_next(struct proxy_talk *t, struct slice in, size_t *ret_used, struct buf *out,
                           char ret_why[PROXY_WHY_SIZE]);
