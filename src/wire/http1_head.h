/* http1_head.h - the part of the HTTP/1.1 codec that looks at whole heads; only for http1*.c. */
#pragma once

#include "wire/http1.h"

/* Parses one whole head, from its first line to the empty line at its end, both included. Every
 * line must end in CRLF (the collector in http1.c has seen to that). The slices in `h` borrow from
 * `bytes`. `no_body`: the response's request was HEAD. */
enum http1_error http1_head_parse(enum http1_kind kind, struct slice bytes, bool no_body,
                                  struct http1_head *h);

/* Checks a whole trailer section with the empty line at its end. */
enum http1_error http1_trailer_check(struct slice bytes);

/* Is `s` a non-empty token (RFC 9110 5.6.2)? Free of control bytes but HTAB? A valid target? */
bool http1_is_token(struct slice s);
bool http1_is_value(struct slice s);
bool http1_is_target(struct slice s);

extern const uint8_t http1_token_chars[256];

static inline bool http1_is_token_char(uint8_t c)
{
    return http1_token_chars[c] != 0;
}
