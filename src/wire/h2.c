/* h2.c - see h2.h: the connection, and nghttp2's callbacks. */
#include "wire/h2.h"

#include <nghttp2/nghttp2.h>

#include "wire/h2_stream.h"

#define RESETS_BURST 1000
#define RESETS_PER_S 33
/* For one head. nghttp2 counts a frame anew for each piece in which its nine bytes come. */
#define CONTINUATIONS_MAX 72

static struct h2_stream *stream_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

/* RFC 9113 5.1.1: numbers only rise. nghttp2 takes a stream that was left out for one that is closed
 * and says nothing. */
static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *user)
{
    struct h2_conn *c = user;
    int32_t id = hd->stream_id;

    if (hd->type != NGHTTP2_HEADERS || id % 2 == 0)
        return 0;
    if (id > c->last_id) {
        if (id > c->last_id + 2) {
            c->gaps[c->n_gaps % H2_GAPS_MAX].from = c->last_id;
            c->gaps[c->n_gaps++ % H2_GAPS_MAX].to = id;
        }
        c->last_id = id;
        return 0;
    }
    for (size_t i = 0; i < MIN(c->n_gaps, (size_t)H2_GAPS_MAX); i++)
        if (id > c->gaps[i].from && id < c->gaps[i].to)
            return nghttp2_session_terminate_session(session, NGHTTP2_PROTOCOL_ERROR) == 0
                       ? 0
                       : NGHTTP2_ERR_CALLBACK_FAILURE;
    return 0;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct h2_conn *c = user;

    if (frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    c->is_in_head = true;
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0; /* trailers */
    if (!h2_stream_new(c, frame->hd.stream_id))
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* out of memory: resets it */
    (void)session;
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t n_name, const uint8_t *value, size_t n_value, uint8_t flags, void *user)
{
    struct h2_stream *st = stream_of(session, frame->hd.stream_id);

    (void)flags;
    (void)user;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST && st)
        h2_stream_field(st, slice_of(name, n_name), slice_of(value, n_value));
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct h2_conn *c = user;
    struct h2_stream *st;
    bool is_end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;

    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS)
        c->is_in_head = false;
    st = stream_of(session, frame->hd.stream_id);
    if (!st)
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        st->is_input_done = is_end;
        h2_stream_head_end(st, !is_end);
        c->events->on_request(c->user, st);
    } else if (is_end) {
        st->is_input_done = true;
        c->events->on_input(c->user, st);
    }
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t n, void *user)
{
    struct h2_conn *c = user;
    struct h2_stream *st = stream_of(session, id);

    (void)flags;
    if (!st || st->is_over) {
        h2_conn_consume(c, n);
        return nghttp2_session_consume_stream(session, id, n) == NGHTTP2_ERR_NOMEM
                   ? NGHTTP2_ERR_CALLBACK_FAILURE
                   : 0;
    }
    if (buf_append(&st->in, data, n) != BUF_OK)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    c->held += n;
    if (c->held > H2_HELD_MAX)
        c->owed += n;
    else
        h2_conn_consume(c, n);
    c->events->on_input(c->user, st);
    return 0;
}

static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct h2_stream *st = stream_of(session, frame->hd.stream_id);

    (void)user;
    if ((frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) || !st ||
        !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    st->is_sent = st->is_over = true;
    if (!st->is_input_done) /* RFC 9113 8.1: the rest of the request is not needed */
        (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, st->id, NGHTTP2_NO_ERROR);
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *user)
{
    struct h2_conn *c = user;
    struct h2_stream *st = stream_of(session, id);

    (void)code;
    if (!st)
        return 0;
    st->is_over = true;
    if (st->is_told)
        c->events->on_close(c->user, st, st->is_sent);
    (void)nghttp2_session_set_stream_user_data(session, id, NULL);
    h2_stream_free(st);
    return 0;
}

/* The data frame that h2_stream.c's source announced. */
static int on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head,
                        size_t n, nghttp2_data_source *source, void *user)
{
    struct h2_conn *c = user;
    struct h2_stream *st = source->ptr;

    (void)session;
    (void)frame;
    if (buf_append(c->to, head, 9) != BUF_OK || buf_append(c->to, buf_data(&st->out), n) != BUF_OK)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    buf_consume(&st->out, n);
    if (st->out.len == 0)
        buf_done(&st->out);
    return 0;
}

static bool make_session(struct h2_conn *c)
{
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    bool is_made = false;

    if (nghttp2_session_callbacks_new(&callbacks) == 0 && nghttp2_option_new(&option) == 0) {
        nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
        nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
        nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
        nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
        nghttp2_session_callbacks_set_send_data_callback(callbacks, on_send_data);
        nghttp2_option_set_no_auto_window_update(option, 1);
#ifdef HAVE_NGHTTP2_RESET_RATE
        nghttp2_option_set_stream_reset_rate_limit(option, RESETS_BURST, RESETS_PER_S);
#endif
#ifdef HAVE_NGHTTP2_CONTINUATIONS
        nghttp2_option_set_max_continuations(option, CONTINUATIONS_MAX);
#endif
        is_made = nghttp2_session_server_new2(&c->session, callbacks, c, option) == 0;
    }
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return is_made;
}

struct h2_conn *h2_conn_new(const struct h2_events *events, void *user)
{
    static const nghttp2_settings_entry settings[] = {
        { NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, H2_STREAMS_MAX },
        { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, H2_WINDOW },
        { NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HTTP1_HEAD_MAX },
    };
    struct h2_conn *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->events = events;
    c->user = user;
    if (!make_session(c) ||
        nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings, ARRAY_SIZE(settings)) !=
            0 ||
        nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0,
                                              (int32_t)H2_HELD_MAX) != 0) {
        h2_conn_free(c);
        return NULL;
    }
    return c;
}

void h2_conn_free(struct h2_conn *c)
{
    if (!c)
        return;
    while (c->streams)
        h2_stream_free(c->streams);
    nghttp2_session_del(c->session);
    while (c->n_spare > 0)
        http1_parser_free(c->spare[--c->n_spare]);
    free(c);
}

bool h2_conn_feed(struct h2_conn *c, struct slice in)
{
    ssize_t n = nghttp2_session_mem_recv(c->session, in.p, in.n);

    if (n >= 0)
        return true;
    /* What could not be understood is said if that is still possible. */
    (void)nghttp2_session_terminate_session(
        c->session, n == NGHTTP2_ERR_FLOODED ? NGHTTP2_ENHANCE_YOUR_CALM : NGHTTP2_PROTOCOL_ERROR);
    return false;
}

bool h2_conn_send(struct h2_conn *c, struct buf *to, size_t limit)
{
    bool is_good = true;

    c->to = to;
    while (is_good && to->len < limit) {
        const uint8_t *p;
        ssize_t n = nghttp2_session_mem_send(c->session, &p);

        if (n == 0)
            break;
        is_good = n > 0 && buf_append(to, p, (size_t)n) == BUF_OK;
    }
    c->to = NULL;
    return is_good;
}

void h2_conn_consume(struct h2_conn *c, size_t n)
{
    (void)nghttp2_session_consume_connection(c->session, n);
}

bool h2_conn_is_done(const struct h2_conn *c)
{
    return !nghttp2_session_want_read(c->session) && !nghttp2_session_want_write(c->session);
}

void h2_conn_shutdown(struct h2_conn *c)
{
    (void)nghttp2_submit_goaway(c->session, NGHTTP2_FLAG_NONE,
                                nghttp2_session_get_last_proc_stream_id(c->session),
                                NGHTTP2_NO_ERROR, NULL, 0);
}

bool h2_conn_is_in_head(const struct h2_conn *c)
{
    return c->is_in_head;
}
