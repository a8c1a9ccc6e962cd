/* http2.h - HTTP/2 for the HTTP server, over wire/h2: http_server_opts.protocol.
 *
 * Connections that begin with HTTP/2's preface, or agreed on it by ALPN, carry up to H2_STREAMS_MAX
 * exchanges at a time; handlers cannot tell them from those of HTTP/1.1, only that an upgrade is
 * refused. A stream that the client drops ends its exchange. Limits of time are the server's: a head,
 * a body that is waited for and output that is not taken each have theirs for each stream.
 */
#pragma once

#include "net/http_session.h"

extern const struct session_protocol http2_protocol;
