/* h2.h - the server's side of one HTTP/2 connection (RFC 9113), sans-IO, over nghttp2.
 *
 * Fed with bytes it gives requests, pieces of bodies and ends of streams; asked for bytes it gives what
 * is to be sent. A request's head is written down as HTTP/1.1 and read by http1's parser, so that one
 * table of rules decides for both versions: what is refused there is refused here, with the same
 * status. nghttp2 itself resets streams whose pseudo fields, connection-specific fields or
 * Content-Length are against RFC 9113 8. Fields of one name `cookie` are joined; trailers are checked,
 * then dropped; without Content-Length a body counts as chunked.
 *
 * Limits: H2_STREAMS_MAX requests at a time, H2_WINDOW bytes of a body that nobody has taken yet, and
 * those of http1.h for heads. A stream's window opens when its bytes are taken, the connection's when
 * they come, so that one that stands does not hold up the others, until H2_HELD_MAX bytes wait on all
 * streams together. Resets, SETTINGS and PINGs in masses end the connection.
 */
#pragma once

#include "wire/http1.h"

#define H2_STREAMS_MAX 100u
#define H2_WINDOW (256u << 10)
#define H2_HELD_MAX (4u << 20)
#define H2_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

struct h2_conn;
struct h2_stream;

/* Why a stream was reset, the few codes of RFC 9113 7 that are ours to send. */
enum h2_code {
    H2_NO_ERROR = 0,
    H2_INTERNAL_ERROR = 2,
    H2_REFUSED_STREAM = 7, /* certainly not processed */
    H2_CANCEL = 8,
};

/* Called from inside h2_conn_feed and h2_conn_send, nothing else of the connection than its streams'
 * functions may be called in them. */
struct h2_events {
    /* A request: h2_stream_error says whether its head is good. */
    void (*on_request)(void *user, struct h2_stream *st);
    /* Body bytes lie in h2_stream_input now, or its end was seen. */
    void (*on_input)(void *user, struct h2_stream *st);
    /* The stream is over and is freed behind this call. `is_sent`: the whole response was. */
    void (*on_close)(void *user, struct h2_stream *st, bool is_sent);
};

/* NULL when out of memory. `events` is borrowed. */
struct h2_conn *h2_conn_new(const struct h2_events *events, void *user);
/* Frees the streams too, without on_close. NULL is fine. */
void h2_conn_free(struct h2_conn *c);
DEFINE_CLEANUP(struct h2_conn *, h2_conn_free)
/* False when the connection is of no more use: send what there is and close it. */
[[nodiscard]] bool h2_conn_feed(struct h2_conn *c, struct slice in);
/* Appends to `to` until it holds `limit` bytes or nothing more is to be sent (a frame more at most).
 * False as above, also when out of memory. */
[[nodiscard]] bool h2_conn_send(struct h2_conn *c, struct buf *to, size_t limit);
/* Nothing is to be sent and nothing will be read: close it (GOAWAY has been sent or got). */
bool h2_conn_is_done(const struct h2_conn *c);
/* Takes no more requests (GOAWAY); those that run go on. */
void h2_conn_shutdown(struct h2_conn *c);
/* The head of a request has begun to come and is not complete. */
bool h2_conn_is_in_head(const struct h2_conn *c);

/* HTTP1_ERR_NONE, or why the head is refused: http1_error_status, http1_error_text. */
enum http1_error h2_stream_error(const struct h2_stream *st);
/* Borrowed until the stream is over. minor is 1, is_upgrade false unless the method is CONNECT. */
const struct http1_head *h2_stream_head(const struct h2_stream *st);
void h2_stream_set_user(struct h2_stream *st, void *user);
void *h2_stream_user(const struct h2_stream *st);
/* Body bytes that came and were not taken, borrowed until the next call for this stream or feed. */
struct slice h2_stream_input(const struct h2_stream *st);
/* No more than that will come. */
bool h2_stream_is_input_done(const struct h2_stream *st);
/* Takes the first `n` of them. */
void h2_stream_take(struct h2_stream *st, size_t n);

/* A response's head, or 100; with Content-Length unless `length` is UINT64_MAX or the status has none.
 * Without body it is whole with that: an end of its own would wait for the client's windows. Names may
 * have any case. BUF_LIMIT: a field is malformed. */
enum buf_status h2_stream_respond(struct h2_stream *st, int status,
                                  const struct http1_field *fields, size_t n_fields,
                                  uint64_t length, bool has_body);
/* Queues body bytes, as many as memory allows. */
enum buf_status h2_stream_write(struct h2_stream *st, struct slice s);
/* Bytes queued. */
size_t h2_stream_queued(const struct h2_stream *st);
/* Ends the response; a rest of the request is told not to come. */
void h2_stream_end(struct h2_stream *st);
void h2_stream_reset(struct h2_stream *st, enum h2_code code);
