/* sniff.h - under which name a connection asks for its server, by its first bytes: the server name of a TLS
 * ClientHello (RFC 8446 4.1.2, RFC 6066 3) or the host of an HTTP/1.1 request. Nothing is kept between calls: each gets
 * everything that has come so far.
 *
 * Strict: what two readers could take for two names is none. The limit is SNIFF_MAX bytes.
 */
#pragma once

#include "base/buf.h"

#define SNIFF_MAX 16384u
#define SNIFF_NAME_SIZE 256u

enum sniff {
    SNIFF_MORE,    /* too early to say */
    SNIFF_NAME,    /* a host name, lower case, without port and final dot */
    SNIFF_HIDDEN,  /* TLS or HTTP without a name, with several, or malformed */
    SNIFF_UNKNOWN, /* another protocol */
};

enum sniff sniff(struct slice head, char ret_name[SNIFF_NAME_SIZE]);
