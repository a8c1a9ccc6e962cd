/* http1.h - HTTP/1.1 message codec, sans-IO, strict (RFC 9112, RFC 9110).
 *
 * Fed with bytes, it gives events; it never repairs. Refused with 400: bare CR or LF, obs-fold, space
 * before the colon, empty or non-token names, control bytes in values, Content-Length together with
 * Transfer-Encoding, differing or malformed Content-Length, any Transfer-Encoding but `chunked` once
 * and last, LF or control bytes in a chunk extension, no or more than one Host in a 1.1 request,
 * HTTP versions other than 1.0 and 1.1, targets with bytes outside 0x21..0x7e. Transfer-Encoding in
 * a 1.0 message is refused too, and so are: a second Content-Length or Transfer-Encoding of the same
 * value, '#' in a target, user info in an authority, a Host that differs from the authority of an
 * absolute-form target, Transfer-Encoding in a 1xx or 204 response. Accepted although a strict reader
 * may frown: one empty line before a request (RFC 9112 2.2 asks for it) and a status line that ends
 * behind the status. Trailers are checked like fields, then dropped.
 * A request that expects anything but 100-continue is refused with 417 (RFC 9110 10.1.1), whatever its
 * version.
 * Limits: HTTP1_HEAD_MAX bytes of head (431), HTTP1_FIELDS_MAX fields (431), HTTP1_TARGET_MAX bytes of
 * target (414).
 */
#pragma once

#include "base/buf.h"

#define HTTP1_HEAD_MAX 65536u
#define HTTP1_TARGET_MAX 32768u
#define HTTP1_FIELDS_MAX 100u
#define HTTP1_CHUNK_LINE_MAX 1024u

struct http1_field {
    struct slice name;
    struct slice value; /* trimmed */
};

enum http1_framing {
    HTTP1_BODY_NONE,
    HTTP1_BODY_LENGTH,
    HTTP1_BODY_CHUNKED,
    HTTP1_BODY_UNTIL_CLOSE, /* responses only */
};

/* A parsed head. All slices point into the parser and live until the next message begins. */
struct http1_head {
    struct slice method; /* requests */
    struct slice target;
    struct slice path; /* of the target, without '?'; of absolute-form too; "*" and CONNECT as is */
    struct slice query; /* behind '?', empty if none */
    struct slice host;  /* Host, or the authority of an absolute-form target */
    int status;         /* responses */
    struct slice reason;
    int minor;                  /* 0 or 1 */
    struct http1_field *fields; /* at most HTTP1_FIELDS_MAX; the parser's memory */
    size_t n_fields;
    enum http1_framing framing;
    uint64_t content_length; /* with HTTP1_BODY_LENGTH */
    bool keep_alive;         /* the sender's wish after version and Connection */
    bool is_upgrade;         /* Connection: upgrade and an Upgrade field, or CONNECT */
    bool expects_continue;
};

/* First field of that name (case-insensitive), NULL if none. Borrowed from `head`. */
const struct http1_field *http1_head_find(const struct http1_head *head, const char *name);
/* Its value; the empty slice if none. */
struct slice http1_head_value(const struct http1_head *head, const char *name);
/* The first of the `n` names that more than one field has, NULL if none. For fields of which a second
 * one, whatever its value, could make two readers of the request disagree. */
const char *http1_head_find_repeated(const struct http1_head *head, const char *const *names,
                                     size_t n);

enum http1_event {
    HTTP1_NEED_MORE, /* everything was consumed */
    HTTP1_HEAD,      /* head complete: http1_parser_head */
    HTTP1_DATA,      /* *ret_data has body bytes, borrowed from the input */
    HTTP1_END,       /* message complete; the next call begins the next one */
    HTTP1_UPGRADED,  /* (after END of a head with is_upgrade and http1_parser_upgrade): raw bytes */
    HTTP1_ERROR,     /* http1_parser_error says which; the parser stays in this state */
};

enum http1_error {
    HTTP1_ERR_NONE,
    HTTP1_ERR_SYNTAX,       /* 400 */
    HTTP1_ERR_VERSION,      /* 505 */
    HTTP1_ERR_HEAD_LARGE,   /* 431 */
    HTTP1_ERR_TARGET_LARGE, /* 414 */
    HTTP1_ERR_FRAMING,      /* 400: lengths and codings */
    HTTP1_ERR_HOST,         /* 400: Host missing, twice or malformed */
    HTTP1_ERR_CHUNK,        /* 400 */
    HTTP1_ERR_EXPECT,       /* 417: an expectation other than 100-continue */
    HTTP1_ERR_OOM,          /* 503 */
    HTTP1_ERR_EOF,          /* 400: the peer closed inside a message */
};

enum http1_kind { HTTP1_REQUEST, HTTP1_RESPONSE };

struct http1_parser; /* about 6 KiB with an empty head; heap, the head buffer grows on demand */

/* NULL when out of memory. */
struct http1_parser *http1_parser_new(enum http1_kind kind);
void http1_parser_free(struct http1_parser *p);
DEFINE_CLEANUP(struct http1_parser *, http1_parser_free)

/* Parses from *in on, moves *in past what it consumed, returns at the first event. Call again with
 * the rest until NEED_MORE. */
enum http1_event http1_parser_next(struct http1_parser *p, struct slice *in,
                                   struct slice *ret_data);
const struct http1_head *http1_parser_head(const struct http1_parser *p);
enum http1_error http1_parser_error(const struct http1_parser *p);
/* HTTP status and a short text for an error. */
int http1_error_status(enum http1_error e);
const char *http1_error_text(enum http1_error e);
/* For responses: the request was HEAD (no body whatever the fields say) or CONNECT. Before feeding. */
void http1_parser_expect_no_body(struct http1_parser *p);
/* The raw bytes behind the current message are another protocol's (101 sent or received, CONNECT
 * answered). From HEAD on, at the latest before bytes behind END are fed. Final. */
void http1_parser_upgrade(struct http1_parser *p);
/* EOF from the peer: END for HTTP1_BODY_UNTIL_CLOSE, NEED_MORE between messages or after an upgrade, else
 * ERROR. Feed everything that came before it first. */
enum http1_event http1_parser_eof(struct http1_parser *p);
/* No message has begun (idle keep-alive connection). */
bool http1_parser_is_idle(const struct http1_parser *p);
/* Forgets the message, whatever its state: the next byte begins one. */
void http1_parser_reset(struct http1_parser *p);
/* Frees memory that an idle connection does not need; up to 2 KiB of head buffer stay. The head is
 * gone. */
void http1_parser_shrink(struct http1_parser *p);

/* Encoding. Names must be tokens, values and targets as the parser wants them (no control bytes):
 * checked, BUF_LIMIT else. Nothing is written unless all of it is. */
enum buf_status http1_request_line(struct buf *b, struct slice method, struct slice target);
enum buf_status http1_status_line(struct buf *b, int status);
enum buf_status http1_field_put(struct buf *b, struct slice name, struct slice value);
enum buf_status http1_head_end(struct buf *b);
/* Writes "<hex>\r\n" into `to`, returns its length (<= 18). Chunk data, then "\r\n" follow. */
size_t http1_chunk_begin(char to[19], size_t n);
#define HTTP1_CHUNK_END "\r\n"
#define HTTP1_LAST_CHUNK "0\r\n\r\n"
/* Reason phrase of a status ("Not Found"), "Unknown" when there is none. */
const char *http1_reason(int status);
/* Must a proxy drop this field (Connection, Keep-Alive, Transfer-Encoding, TE, Trailer, Upgrade,
 * Proxy-*, and what `connection` (value of Connection, may be empty) lists)? Host and Content-Length
 * stay even when listed. */
bool http1_is_hop_by_hop(struct slice name, struct slice connection);
/* The same against all Connection fields of `head`: a sender may split the list. */
bool http1_head_is_hop_by_hop(const struct http1_head *head, struct slice name);
/* Does the comma-separated list hold the token (case-insensitive)? */
bool http1_list_has(struct slice list, struct slice token);
