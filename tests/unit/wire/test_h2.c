/* test_h2.c - HTTP/2 from bytes made by hand: heads by the rules of HTTP/1.1, windows, ends of streams, floods. */
#include "test.h"

#include "wire/h2.h"

#define FLAG_END_STREAM 0x1
#define FLAG_END_HEADERS 0x4

enum frame {
    DATA = 0,
    HEADERS = 1,
    RST_STREAM = 3,
    SETTINGS = 4,
    PING = 6,
    GOAWAY = 7,
    WINDOW_UPDATE = 8,
    CONTINUATION = 9
};

struct seen {
    unsigned requests, closes, sent;
    enum http1_error error;
    char head[4096]; /* of the last request: "METHOD target|name: value|..." */
    struct h2_stream *st;
    bool takes, answers; /* what the handler does by itself */
    size_t taken;
};

static struct seen seen;
static struct h2_conn *conn;
static struct buf out;

static void on_request(void *user, struct h2_stream *st)
{
    const struct http1_head *head = h2_stream_head(st);
    size_t n;

    (void)user;
    seen.requests++;
    seen.st = st;
    seen.error = h2_stream_error(st);
    n = (size_t)snprintf(seen.head, sizeof(seen.head), "%.*s %.*s", (int)head->method.n,
                         (const char *)head->method.p, (int)head->target.n,
                         (const char *)head->target.p);
    for (size_t i = 0; i < head->n_fields && n < sizeof(seen.head); i++)
        n += (size_t)snprintf(seen.head + n, sizeof(seen.head) - n, "|%.*s: %.*s",
                              (int)head->fields[i].name.n, (const char *)head->fields[i].name.p,
                              (int)head->fields[i].value.n, (const char *)head->fields[i].value.p);
    if (!seen.answers)
        return;
    assert_int_equal(h2_stream_respond(st, 200, NULL, 0, 2, true), BUF_OK);
    assert_int_equal(h2_stream_write(st, SLICE_LIT("ok")), BUF_OK);
    h2_stream_end(st);
}

static void on_input(void *user, struct h2_stream *st)
{
    size_t n = h2_stream_input(st).n;

    (void)user;
    if (!seen.takes)
        return;
    seen.taken += n;
    h2_stream_take(st, n);
}

static void on_close(void *user, struct h2_stream *st, bool is_sent)
{
    (void)user;
    seen.closes++;
    seen.sent += is_sent;
    if (seen.st == st)
        seen.st = NULL;
}

static const struct h2_events events = { on_request, on_input, on_close };

static void put_frame(struct buf *b, enum frame type, uint8_t flags, uint32_t id, struct slice s)
{
    const uint8_t head[9] = {
        (uint8_t)(s.n >> 16), (uint8_t)(s.n >> 8), (uint8_t)s.n,       (uint8_t)type, flags,
        (uint8_t)(id >> 24),  (uint8_t)(id >> 16), (uint8_t)(id >> 8), (uint8_t)id
    };

    assert_int_equal(buf_append(b, head, sizeof(head)), BUF_OK);
    assert_int_equal(buf_append_slice(b, s), BUF_OK);
}

/* A field as a literal that is not indexed, with lengths up to 126 + 16,383. */
static void put_string(struct buf *b, struct slice s)
{
    if (s.n < 127) {
        assert_int_equal(buf_append_byte(b, (uint8_t)s.n), BUF_OK);
    } else {
        size_t rest = s.n - 127;

        assert_int_equal(buf_append_byte(b, 127), BUF_OK);
        for (; rest >= 128; rest >>= 7)
            assert_int_equal(buf_append_byte(b, (uint8_t)(128 | (rest & 127))), BUF_OK);
        assert_int_equal(buf_append_byte(b, (uint8_t)rest), BUF_OK);
    }
    assert_int_equal(buf_append_slice(b, s), BUF_OK);
}

/* Fields from "name value\n" lines; the name ends at the first space behind its first byte. */
static void put_fields(struct buf *b, const char *text)
{
    while (*text) {
        const char *end = strchr(text, '\n'), *space = strchr(text, ' ');

        assert_true(end && space && space < end);
        assert_int_equal(buf_append_byte(b, 0), BUF_OK);
        put_string(b, slice_of(text, (size_t)(space - text)));
        put_string(b, slice_of(space + 1, (size_t)(end - space - 1)));
        text = end + 1;
    }
}

static bool feed(struct buf *b)
{
    uint8_t *exact = test_exact(buf_slice(b));
    bool r = h2_conn_feed(conn, slice_of(exact, b->len));

    free(exact);
    buf_done(b);
    return r;
}

static void request(uint32_t id, const char *fields, bool is_end)
{
    struct buf block = BUF_INIT(1 << 20), b = BUF_INIT(1 << 20);

    put_fields(&block, fields);
    put_frame(&b, HEADERS, FLAG_END_HEADERS | (is_end ? FLAG_END_STREAM : 0), id,
              buf_slice(&block));
    assert_true(feed(&b));
    buf_done(&block);
}

static bool frame(enum frame type, uint8_t flags, uint32_t id, struct slice s)
{
    struct buf b = BUF_INIT(1 << 20);

    put_frame(&b, type, flags, id, s);
    return feed(&b);
}

static int begin(void **state)
{
    struct buf b = BUF_INIT(1 << 20);

    (void)state;
    seen = (struct seen){ .takes = true };
    buf_init(&out, 64 << 20);
    conn = h2_conn_new(&events, NULL);
    assert_non_null(conn);
    assert_int_equal(buf_append_str(&b, H2_PREFACE), BUF_OK);
    put_frame(&b, SETTINGS, 0, 0, (struct slice){ 0 });
    assert_true(feed(&b));
    assert_true(h2_conn_send(conn, &out, SIZE_MAX));
    buf_reset(&out);
    put_frame(&b, SETTINGS, 1, 0, (struct slice){ 0 }); /* ours are agreed on: the windows */
    assert_true(feed(&b));
    return 0;
}

static int end(void **state)
{
    (void)state;
    h2_conn_free(conn);
    buf_done(&out);
    return 0;
}

static void send_all(void)
{
    assert_true(h2_conn_send(conn, &out, SIZE_MAX));
}

/* Sums over what was sent: frames of a type on a stream; *ret_word: of the last one's payload, the first four bytes. */
static unsigned sent(enum frame type, uint32_t id, size_t *ret_bytes, uint32_t *ret_word)
{
    struct slice s = buf_slice(&out);
    unsigned n = 0;

    while (s.n >= 9) {
        size_t size = (size_t)s.p[0] << 16 | (size_t)s.p[1] << 8 | s.p[2];
        uint32_t at =
            (uint32_t)s.p[5] << 24 | (uint32_t)s.p[6] << 16 | (uint32_t)s.p[7] << 8 | s.p[8];

        assert_true(s.n >= 9 + size);
        if (s.p[3] == type && at == id) {
            n++;
            if (ret_bytes)
                *ret_bytes += size;
            if (ret_word && size >= 4)
                *ret_word = (uint32_t)s.p[9] << 24 | (uint32_t)s.p[10] << 16 |
                            (uint32_t)s.p[11] << 8 | s.p[12];
        }
        s = slice_of(s.p + 9 + size, s.n - 9 - size);
    }
    return n;
}

#define GET ":method GET\n:scheme http\n:path /x?y\n:authority h.test\n"
#define POST ":method POST\n:scheme https\n:path /\n:authority h\n"

static void heads_are_those_of_http1(void **state)
{
    static const struct {
        const char *fields;
        bool is_end;
        const char *want;
    } rows[] = {
        { GET "accept */*\n", true, "GET /x?y|accept: */*|host: h.test" },
        { ":method GET\n:scheme http\n:path /\nhost only\n", true, "GET /|host: only" },
        { GET "host H.test\n", true, "GET /x?y|host: h.test" },
        { POST, false, "POST /|host: h|transfer-encoding: chunked" },
        { POST "content-length 5\n", false, "POST /|content-length: 5|host: h" },
        { GET "cookie a=1\nx y\ncookie b=2\ncookie c=3\n", true,
          "GET /x?y|x: y|host: h.test|cookie: a=1; b=2; c=3" },
        { GET "te trailers\n", true, "GET /x?y|te: trailers|host: h.test" },
        { ":method CONNECT\n:authority h:1\n", true, "CONNECT h:1|host: h:1" },
        { ":method OPTIONS\n:scheme http\n:path *\n:authority h\n", true, "OPTIONS *|host: h" },
        { GET "x \n", true, "GET /x?y|x: |host: h.test" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        request((uint32_t)(2 * i + 1), rows[i].fields, rows[i].is_end);
        assert_int_equal(seen.requests, i + 1);
        assert_int_equal(seen.error, HTTP1_ERR_NONE);
        test_text(rows[i].fields, seen.head, rows[i].want);
    }
}

static void what_http1_refuses_is_refused(void **state)
{
    static const struct {
        const char *fields;
        int status;
    } rows[] = {
        { GET "host other\n", 400 },
        { GET "host h.test:80\n", 400 },
        { GET "host h.test\nhost h.test\n", 400 },
        { ":method GET\n:scheme http\n:path /\n:authority a b\n", 400 },
        { ":method GET\n:scheme http\n:path /\n:authority u@h\n", 400 },
        { ":method GET\n:scheme ftp\n:path /\n:authority h\n", 400 },
        { ":method GET\n:scheme http\n:path /a#b\n:authority h\n", 400 },
        { ":method GET\n:scheme http\n:path /a b\n:authority h\n", 400 },
        { ":method GET\n:scheme http\n:path /a HTTP/1.1\n:authority h\n", 400 },
        { ":method G T\n:scheme http\n:path /\n:authority h\n", 400 },
        { POST "expect something\n", 417 },
    };
    char many[8192] = GET;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        unsigned before = seen.requests + seen.closes;

        request((uint32_t)(2 * i + 1), rows[i].fields, true);
        send_all();
        /* Some are refused by nghttp2 before they are a request: then the stream is reset. */
        if (seen.requests + seen.closes == before || seen.error == HTTP1_ERR_NONE)
            assert_int_equal(sent(RST_STREAM, (uint32_t)(2 * i + 1), NULL, NULL), 1);
        else
            assert_int_equal(http1_error_status(seen.error), rows[i].status);
        seen.error = HTTP1_ERR_NONE;
    }
    for (size_t i = 0, n = strlen(many); i < HTTP1_FIELDS_MAX + 1; i++, n += 4)
        memcpy(many + n, "f x\n", 5);
    request(101, many, true);
    assert_int_equal(http1_error_status(seen.error), 431);
}

/* nghttp2's part; no request comes of them. */
static void what_http2_forbids_resets_the_stream(void **state)
{
    static const char *const rows[] = {
        GET "connection close\n",
        GET "transfer-encoding chunked\n",
        GET "upgrade h2c\n",
        GET "te gzip\n",
        GET "keep-alive 1\n",
        GET "proxy-connection x\n",
        GET "Upper case\n",
        GET ":late x\n",
        GET "x y\n:path /again\n",
        GET ":path /again\n",
        ":method GET\n:path /\n:authority h\n",
        ":method GET\n:scheme http\n:path \n:authority h\n",
        POST "content-length 1\ncontent-length 1\n",
        POST "content-length -1\n",
        POST "content-length 5\n" /* and END_STREAM */,
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint32_t code = 99;

        request((uint32_t)(2 * i + 1), rows[i], true);
        send_all();
        assert_int_equal(seen.requests, 0);
        if (sent(RST_STREAM, (uint32_t)(2 * i + 1), NULL, &code) != 1 || code != 1)
            fail_msg("no PROTOCOL_ERROR for %s", rows[i]);
    }
}

static void bodies_that_differ_from_their_length_reset_the_stream(void **state)
{
    uint32_t code = 0;

    (void)state;
    request(1, POST "content-length 5\n", false);
    assert_true(frame(DATA, 0, 1, SLICE_LIT("123456")));
    send_all();
    assert_int_equal(sent(RST_STREAM, 1, NULL, &code), 1);
    assert_int_equal(code, 1);
    request(3, POST "content-length 5\n", false);
    assert_true(frame(DATA, FLAG_END_STREAM, 3, SLICE_LIT("1234")));
    send_all();
    assert_int_equal(sent(RST_STREAM, 3, NULL, &code), 1);
    assert_int_equal(seen.closes, 2);
    assert_int_equal(seen.sent, 0);
}

static void responses_are_sent_and_end(void **state)
{
    const struct http1_field fields[] = { { SLICE_LIT("X-Upper"), SLICE_LIT("Value") } };
    size_t bytes = 0;

    (void)state;
    request(1, GET, true);
    assert_int_equal(h2_stream_respond(seen.st, 200, fields, 1, 5, true), BUF_OK);
    send_all();
    assert_int_equal(sent(HEADERS, 1, NULL, NULL), 1);
    assert_int_equal(h2_stream_write(seen.st, SLICE_LIT("hel")), BUF_OK);
    assert_int_equal(h2_stream_queued(seen.st), 3);
    send_all();
    assert_int_equal(h2_stream_queued(seen.st), 0);
    assert_int_equal(h2_stream_write(seen.st, SLICE_LIT("lo")), BUF_OK);
    h2_stream_end(seen.st);
    assert_int_equal(seen.closes, 0);
    send_all();
    assert_int_equal(seen.closes, 1);
    assert_int_equal(seen.sent, 1);
    assert_int_equal(sent(DATA, 1, &bytes, NULL), 2);
    assert_int_equal(bytes, 5);
    request(3, GET, true);
    assert_int_equal(
        h2_stream_respond(seen.st, 200,
                          (const struct http1_field[]){ { SLICE_LIT("x"), SLICE_LIT("a\nb") } }, 1,
                          0, false),
        BUF_LIMIT);
    assert_int_equal(h2_stream_respond(seen.st, 100, NULL, 0, 0, false), BUF_OK);
    assert_int_equal(h2_stream_respond(seen.st, 204, NULL, 0, 0, false), BUF_OK);
    h2_stream_end(seen.st);
    send_all();
    assert_int_equal(sent(HEADERS, 3, NULL, NULL), 2);
    assert_int_equal(seen.sent, 2);
}

static void the_rest_of_a_request_is_told_not_to_come(void **state)
{
    uint32_t code = 99;

    (void)state;
    seen.answers = true;
    request(1, POST, false);
    send_all();
    assert_int_equal(sent(RST_STREAM, 1, NULL, &code), 1);
    assert_int_equal(code, H2_NO_ERROR);
    assert_int_equal(seen.closes, 1);
    assert_int_equal(seen.sent, 1);
    assert_true(frame(DATA, 0, 1, SLICE_LIT("late")));
}

static void windows_open_when_bytes_are_taken(void **state)
{
    static const uint8_t piece[16384];
    uint32_t increment = 0;
    size_t opened = 0;

    (void)state;
    seen.takes = false;
    send_all();
    buf_reset(&out);
    request(1, POST, false);
    for (unsigned i = 0; i < H2_WINDOW / sizeof(piece); i++)
        assert_true(frame(DATA, 0, 1, slice_of(piece, sizeof(piece))));
    assert_int_equal(h2_stream_input(seen.st).n, H2_WINDOW);
    send_all();
    assert_int_equal(sent(WINDOW_UPDATE, 1, NULL, NULL), 0);
    h2_stream_take(seen.st, H2_WINDOW);
    send_all();
    assert_int_equal(sent(WINDOW_UPDATE, 1, &opened, &increment), 1);
    assert_int_equal(increment, H2_WINDOW);
    /* More than the window is a mistake of the client's. */
    for (unsigned i = 0; i <= H2_WINDOW / sizeof(piece); i++)
        (void)frame(DATA, 0, 1, slice_of(piece, sizeof(piece)));
    send_all();
    assert_int_equal(sent(RST_STREAM, 1, NULL, &increment) + sent(GOAWAY, 0, NULL, NULL), 1);
}

/* What waits on some streams does not shut the connection's window, until it is too much in all. The window is
 * told about in halves (nghttp2). */
static void one_stream_does_not_hold_up_the_others(void **state)
{
    static const uint8_t piece[16384];
    enum { FULL = H2_HELD_MAX / H2_WINDOW, OVER = FULL / 2 + 1 };
    struct h2_stream *streams[FULL + OVER];
    uint32_t increment = 0;

    (void)state;
    seen.takes = false;
    for (unsigned s = 0; s < FULL + OVER; s++) {
        request(2 * s + 1, POST, false);
        streams[s] = seen.st;
        for (unsigned i = 0; i < H2_WINDOW / sizeof(piece); i++)
            assert_true(frame(DATA, 0, 2 * s + 1, slice_of(piece, sizeof(piece))));
        if (s + 1 != FULL)
            continue;
        send_all();
        assert_int_equal(sent(WINDOW_UPDATE, 0, NULL, NULL), 2);
        buf_reset(&out);
    }
    send_all();
    assert_int_equal(sent(WINDOW_UPDATE, 0, NULL, NULL), 0);
    h2_stream_reset(streams[0], H2_CANCEL); /* lets go of what it holds too */
    for (unsigned s = 1; s < OVER; s++)
        h2_stream_take(streams[s], H2_WINDOW);
    send_all();
    assert_int_equal(sent(WINDOW_UPDATE, 0, NULL, &increment), 1);
    assert_true(increment >= H2_HELD_MAX / 2);
}

static void trailers_are_dropped(void **state)
{
    struct buf block = BUF_INIT(4096);

    (void)state;
    request(1, POST, false);
    assert_true(frame(DATA, 0, 1, SLICE_LIT("abc")));
    put_fields(&block, "x-trailer v\n");
    assert_true(frame(HEADERS, FLAG_END_HEADERS | FLAG_END_STREAM, 1, buf_slice(&block)));
    buf_done(&block);
    assert_int_equal(seen.requests, 1);
    assert_int_equal(seen.taken, 3);
    assert_true(h2_stream_is_input_done(seen.st));
    test_text("head", seen.head, "POST /|host: h|transfer-encoding: chunked");
}

static void a_dropped_stream_is_over(void **state)
{
    (void)state;
    request(1, POST, false);
    assert_true(frame(RST_STREAM, 0, 1, SLICE_LIT("\0\0\0\x08")));
    assert_int_equal(seen.closes, 1);
    assert_int_equal(seen.sent, 0);
}

static void floods_end_the_connection(void **state)
{
    bool is_good = true;
    unsigned id = 1;

    (void)state;
    for (int i = 0; i < 20000 && is_good; i++)
        is_good = frame(PING, 0, 0, SLICE_LIT("12345678"));
    assert_false(is_good);
    (void)end(NULL);
    (void)begin(NULL);
    is_good = true;
    for (int i = 0; i < 20000 && is_good; i++)
        is_good = frame(SETTINGS, 0, 0, (struct slice){ 0 });
    assert_false(is_good);
    (void)end(NULL);
    (void)begin(NULL);
    for (int i = 0; i < 5000 && !h2_conn_is_done(conn); i++, id += 2) {
        request(id, GET, true);
        (void)frame(RST_STREAM, 0, id, SLICE_LIT("\0\0\0\x08"));
        send_all();
    }
#ifdef HAVE_NGHTTP2_RESET_RATE
    assert_true(h2_conn_is_done(conn));
#endif
    assert_int_equal(seen.closes, seen.requests);
}

static void a_head_without_end_is_seen(void **state)
{
    struct buf block = BUF_INIT(4096);

    (void)state;
    put_fields(&block, GET);
    assert_false(h2_conn_is_in_head(conn));
    assert_true(frame(HEADERS, FLAG_END_STREAM, 1, buf_slice(&block)));
    assert_true(h2_conn_is_in_head(conn));
    assert_int_equal(seen.requests, 0);
    assert_true(frame(CONTINUATION, FLAG_END_HEADERS, 1, (struct slice){ 0 }));
    assert_false(h2_conn_is_in_head(conn));
    assert_int_equal(seen.requests, 1);
    buf_done(&block);
}

static void shutting_down_lets_requests_end(void **state)
{
    struct h2_stream *st;

    (void)state;
    request(1, GET, true);
    st = seen.st;
    h2_conn_shutdown(conn);
    send_all();
    assert_int_equal(sent(GOAWAY, 0, NULL, NULL), 1);
    assert_false(h2_conn_is_done(conn));
    request(3, GET, true);
    assert_int_equal(seen.requests, 1);
    assert_int_equal(h2_stream_respond(st, 200, NULL, 0, 0, false), BUF_OK);
    h2_stream_end(st);
    send_all();
    assert_int_equal(seen.sent, 1);
    assert_true(h2_conn_is_done(conn));
}

static void numbers_that_were_left_out_cannot_be_used(void **state)
{
    (void)state;
    request(5, GET, true);
    request(9, GET, true);
    request(7, GET, true);
    send_all();
    assert_int_equal(sent(GOAWAY, 0, NULL, NULL), 1);
}

#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(heads_are_those_of_http1),
        T(what_http1_refuses_is_refused),
        T(what_http2_forbids_resets_the_stream),
        T(bodies_that_differ_from_their_length_reset_the_stream),
        T(responses_are_sent_and_end),
        T(the_rest_of_a_request_is_told_not_to_come),
        T(windows_open_when_bytes_are_taken),
        T(one_stream_does_not_hold_up_the_others),
        T(trailers_are_dropped),
        T(a_dropped_stream_is_over),
        T(floods_end_the_connection),
        T(a_head_without_end_is_seen),
        T(shutting_down_lets_requests_end),
        T(numbers_that_were_left_out_cannot_be_used),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
