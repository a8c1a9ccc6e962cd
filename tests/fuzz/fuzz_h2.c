/* fuzz_h2.c - what a client sends behind HTTP/2's preface, whole and in pieces: the same requests come of it, and every
 * answer is well framed. (Of a body that is longer than announced, pieces come before nghttp2 sees that.) */
#include "fuzz.h"
#include "wire/h2.h"

struct run {
    struct buf log;
    size_t open;
    bool is_good; /* nghttp2 did not give up; what it allows depends on the pieces (CONTINUATION) */
};

static void on_request(void *user, struct h2_stream *st)
{
    static const struct http1_field field = { SLICE_LIT("X-Field"), SLICE_LIT("v") };
    struct run *r = user;
    const struct http1_head *head = h2_stream_head(st);
    enum http1_error error = h2_stream_error(st);

    r->open++;
    FUZZ_CHECK(buf_printf(&r->log, "[%d ", error) == BUF_OK);
    FUZZ_CHECK(buf_append_slice(&r->log, head->method) == BUF_OK);
    FUZZ_CHECK(buf_append_slice(&r->log, head->target) == BUF_OK);
    for (size_t i = 0; i < head->n_fields && !error; i++) {
        FUZZ_CHECK(!memchr(head->fields[i].value.p, '\n', head->fields[i].value.n));
        FUZZ_CHECK(buf_append_slice(&r->log, head->fields[i].name) == BUF_OK);
        FUZZ_CHECK(buf_append_slice(&r->log, head->fields[i].value) == BUF_OK);
    }
    FUZZ_CHECK(error || head->host.n > 0);
    if (h2_stream_respond(st, error ? http1_error_status(error) : 200, &field, 1, UINT64_MAX,
                          true) == BUF_OK)
        FUZZ_CHECK(h2_stream_write(st, SLICE_LIT("body")) == BUF_OK);
    h2_stream_end(st);
}

static void on_input(void *user, struct h2_stream *st)
{
    size_t n = h2_stream_input(st).n;

    (void)user;
    FUZZ_CHECK(n <= H2_WINDOW);
    h2_stream_take(st, n);
}

static void on_close(void *user, struct h2_stream *st, bool is_sent)
{
    struct run *r = user;

    (void)st;
    (void)is_sent;
    FUZZ_CHECK(r->open-- > 0);
}

static const struct h2_events events = { on_request, on_input, on_close };

static void check_frames(struct slice s)
{
    while (s.n > 0) {
        size_t size;

        FUZZ_CHECK(s.n >= 9);
        size = (size_t)s.p[0] << 16 | (size_t)s.p[1] << 8 | s.p[2];
        FUZZ_CHECK(size <= 16384 && s.n >= 9 + size);
        s = slice_of(s.p + 9 + size, s.n - 9 - size);
    }
}

static void play(unsigned mode, struct slice in, struct run *r)
{
    _cleanup_(h2_conn_freep) struct h2_conn *c = h2_conn_new(&events, r);
    struct buf out = BUF_INIT(SIZE_MAX / 4);

    FUZZ_CHECK(c != NULL);
    r->is_good = h2_conn_feed(c, SLICE_LIT(H2_PREFACE));
    for (size_t i = 0; r->is_good && in.n > 0; i++) {
        size_t n = fuzz_piece(mode, i, in.n);
        uint8_t *copy = fuzz_exact(slice_of(in.p, n));

        r->is_good = h2_conn_feed(c, slice_of(copy, n));
        free(copy);
        in = slice_of(in.p + n, in.n - n);
    }
    (void)h2_conn_send(c, &out, SIZE_MAX / 4);
    check_frames(buf_slice(&out));
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice in = slice_of(data, size);
    struct run whole = { .log = BUF_INIT(SIZE_MAX / 4) };

    play(0, in, &whole);
    for (unsigned mode = 1; mode < 3; mode++) {
        struct run pieces = { .log = BUF_INIT(SIZE_MAX / 4) };

        play(mode, in, &pieces);
        /* Behind a GOAWAY nghttp2 reads what comes with it, but nothing that comes later. */
        if (whole.is_good && pieces.is_good)
            FUZZ_CHECK(
                slice_eq(buf_slice(&pieces.log),
                         slice_of(buf_data(&whole.log), MIN(pieces.log.len, whole.log.len))));
        buf_done(&pieces.log);
    }
    buf_done(&whole.log);
    return 0;
}
