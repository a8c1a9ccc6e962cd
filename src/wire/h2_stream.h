/* h2_stream.h - inside of h2: one stream, shared by h2.c (connection, nghttp2's callbacks) and
 * h2_stream.c (a request's head, what the user of a stream calls). */
#pragma once

#include <nghttp2/nghttp2.h>

#include "wire/h2.h"

#define H2_SPARE_PARSERS 8u
#define H2_GAPS_MAX 8u

struct h2_stream {
    struct h2_conn *conn;
    struct h2_stream *prev, *next;
    int32_t id;
    void *user;
    struct http1_parser *parser; /* has the head; NULL before its end and when it is not good */
    enum http1_error error;

    /* While the head comes. */
    struct buf method, path, authority, scheme; /* pseudo fields */
    struct buf host, cookie;
    struct buf lines; /* the other fields as HTTP/1.1 writes them */
    size_t n_fields;
    bool has_length;

    struct buf in;      /* not taken */
    struct buf out;     /* not sent */
    bool is_input_done; /* END_STREAM has come */
    bool is_told;       /* on_request was called */
    bool is_responding;
    bool is_ended;
    bool is_deferred; /* nghttp2 waits for h2_stream_write or _end */
    bool is_sent;     /* the whole response */
    bool is_over;     /* nothing that comes is of use */
};

struct h2_conn {
    nghttp2_session *session;
    const struct h2_events *events;
    void *user;
    struct h2_stream *streams;
    struct buf *to; /* during h2_conn_send */
    size_t held;    /* body bytes in all `in` */
    size_t
        owed; /* of those that came beyond H2_HELD_MAX: the connection's window is to be opened by */
    bool is_in_head;
    int32_t last_id; /* of the streams that the client has opened */
    struct {
        int32_t from, to;
    } gaps[H2_GAPS_MAX]; /* numbers that it has left out, the latest */
    size_t n_gaps;       /* of all */
    struct http1_parser *spare[H2_SPARE_PARSERS];
    size_t n_spare;
};

/* h2.c: opens the connection's window. */
void h2_conn_consume(struct h2_conn *c, size_t n);

/* h2_stream.c. NULL when out of memory. */
struct h2_stream *h2_stream_new(struct h2_conn *c, int32_t id);
void h2_stream_free(struct h2_stream *st);
/* One field of the head. */
void h2_stream_field(struct h2_stream *st, struct slice name, struct slice value);
/* That was all of the head: reads it. */
void h2_stream_head_end(struct h2_stream *st, bool has_body);
