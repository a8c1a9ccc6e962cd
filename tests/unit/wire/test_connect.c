/* Envelopes, end-of-stream messages and headers of the Connect protocol. */
#include "test.h"

#include "wire/connect.h"

static const char *const event_names[] = { "more", "message", "large", "flags" };

struct row {
    const char *name;
    struct slice in;
    const char *want;
};

/* Events of `in`, fed in pieces of `step` bytes. */
static void run(struct slice in, size_t step, struct buf *log)
{
    struct connect_decoder d;
    enum connect_event ev = CONNECT_NEED_MORE;

    connect_decoder_init(&d);
    for (size_t at = 0; at < in.n && (ev == CONNECT_NEED_MORE); at += step) {
        size_t n = MIN(step, in.n - at);
        uint8_t *copy = test_exact(slice_of(in.p + at, n));
        struct slice piece = slice_of(copy, n);

        do {
            struct slice message;
            uint8_t flags;

            ev = connect_decoder_next(&d, &piece, &flags, &message);
            if (ev == CONNECT_MESSAGE)
                (void)buf_printf(log, "%d:%.*s;", flags, (int)message.n, (const char *)message.p);
            else if (ev != CONNECT_NEED_MORE)
                (void)buf_printf(log, "%s;", event_names[ev]);
        } while (ev == CONNECT_MESSAGE);
        if (ev == CONNECT_NEED_MORE)
            assert_int_equal(piece.n, 0);
        free(copy);
    }
    if (ev == CONNECT_NEED_MORE && connect_decoder_is_partial(&d))
        (void)buf_append_str(log, "partial");
    connect_decoder_done(&d);
}

static void envelopes(void **state)
{
    static const struct row rows[] = {
        { "nothing", { NULL, 0 }, "" },
        { "one", SLICE_LIT("\0\0\0\0\2{}"), "0:{};" },
        { "empty", SLICE_LIT("\0\0\0\0\0"), "0:;" },
        { "two and the end", SLICE_LIT("\0\0\0\0\1a\0\0\0\0\1b\2\0\0\0\2{}"), "0:a;0:b;2:{};" },
        { "cut prefix", SLICE_LIT("\0\0\0\0"), "partial" },
        { "cut message", SLICE_LIT("\0\0\0\0\1a\0\0\0\0\3bc"), "0:a;partial" },
        { "compressed", SLICE_LIT("\1\0\0\0\1a"), "flags;" },
        { "compressed end", SLICE_LIT("\3\0\0\0\1a"), "flags;" },
        { "unknown flag", SLICE_LIT("\4\0\0\0\1a"), "flags;" },
        { "high flag behind a message", SLICE_LIT("\0\0\0\0\1a\x80\0\0\0\1b"), "0:a;flags;" },
        { "one byte over the limit", SLICE_LIT("\0\0\x40\0\1a"), "large;" },
        { "4 GiB", SLICE_LIT("\0\xff\xff\xff\xff"), "large;" },
        { "the limit itself", SLICE_LIT("\0\0\x40\0\0a"), "partial" },
    };
    static const size_t steps[] = { SIZE_MAX, 1, 2, 3, 7 };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        for (size_t k = 0; k < ARRAY_SIZE(steps); k++) {
            _cleanup_(buf_done) struct buf log = BUF_INIT(4096);

            run(rows[i].in, MIN(steps[k], (size_t)4096), &log);
            test_text(rows[i].name, buf_cstr(&log), rows[i].want);
        }
}

static void largest_message_passes(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(CONNECT_MESSAGE_MAX + 64);
    struct connect_decoder d;
    struct slice in, message;
    size_t mark;
    uint8_t *to, flags;

    connect_decoder_init(&d);
    assert_true(connect_envelope_begin(&b, 0, &mark));
    to = buf_reserve(&b, CONNECT_MESSAGE_MAX, NULL);
    memset(to, 'x', CONNECT_MESSAGE_MAX);
    buf_commit(&b, CONNECT_MESSAGE_MAX);
    assert_true(connect_envelope_end(&b, mark));
    assert_int_equal(buf_append(&b, "\2\0\0\0\2{}", 7), BUF_OK);
    in = buf_slice(&b);
    assert_int_equal(connect_decoder_next(&d, &in, &flags, &message), CONNECT_MESSAGE);
    assert_int_equal(message.n, CONNECT_MESSAGE_MAX);
    assert_int_equal(message.p[CONNECT_MESSAGE_MAX - 1], 'x');
    assert_int_equal(connect_decoder_next(&d, &in, &flags, &message), CONNECT_MESSAGE);
    assert_true(slice_eq_str(message, "{}"));
    assert_true(d.buf.cap < CONNECT_MESSAGE_MAX); /* an idle stream gives its memory back */
    connect_decoder_done(&d);
}

static void errors_are_final(void **state)
{
    struct connect_decoder d;
    struct slice in = SLICE_LIT("\1\0\0\0\1a"), message;
    uint8_t flags;

    connect_decoder_init(&d);
    assert_int_equal(connect_decoder_next(&d, &in, &flags, &message), CONNECT_BAD_FLAGS);
    assert_int_equal(flags, CONNECT_FLAG_COMPRESSED);
    in = SLICE_LIT("\0\0\0\0\1a");
    assert_int_equal(connect_decoder_next(&d, &in, &flags, &message), CONNECT_BAD_FLAGS);
    connect_decoder_done(&d);
}

static void envelope_over_the_limit_leaves_nothing(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(2 * CONNECT_MESSAGE_MAX);
    _cleanup_(buf_done) struct buf small = BUF_INIT(4);
    size_t mark;

    assert_int_equal(buf_append_str(&b, "before"), BUF_OK);
    assert_true(connect_envelope_begin(&b, 0, &mark));
    assert_non_null(buf_reserve(&b, CONNECT_MESSAGE_MAX + 1, NULL));
    buf_commit(&b, CONNECT_MESSAGE_MAX + 1);
    assert_false(connect_envelope_end(&b, mark));
    assert_true(slice_eq_str(buf_slice(&b), "before"));
    assert_false(connect_envelope_begin(&small, 0, &mark));
    assert_int_equal(small.len, 0);
}

static void end_of_stream(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(4096);
    struct abx_err err = { 0 };

    assert_int_equal(connect_end_stream(&b, NULL), BUF_OK);
    assert_int_equal(connect_end_stream(&b, &err), BUF_OK);
    assert_true(slice_eq(buf_slice(&b), SLICE_LIT("\2\0\0\0\2{}\2\0\0\0\2{}")));
    buf_reset(&b);
    (void)err_set(&err, ABX_NOT_FOUND, "no \"%s\"\n", "x\xff");
    assert_int_equal(connect_end_stream(&b, &err), BUF_OK);
    assert_true(slice_eq(buf_slice(&b),
                         SLICE_LIT("\2\0\0\0\x38{\"error\":{\"code\":\"not_found\",\"message\":"
                                   "\"no \\\"x\xef\xbf\xbd\\\"\\n\"}}")));
}

static void errors_that_do_not_fit_leave_nothing(void **state)
{
    struct abx_err err;

    (void)err_set(&err, ABX_INTERNAL, "message");
    for (size_t limit = 0; limit < 50; limit++) {
        _cleanup_(buf_done) struct buf b = BUF_INIT(limit);

        if (connect_end_stream(&b, &err) != BUF_OK)
            assert_int_equal(b.len, 0);
        else
            assert_true(limit >=
                        5 + strlen("{\"error\":{\"code\":\"internal\",\"message\":\"message\"}}"));
    }
}

static void timeouts(void **state)
{
    static const struct {
        const char *text;
        bool is_fine;
        uint64_t want;
    } rows[] = {
        { "0", true, 0 },     { "60000", true, 60000 },    { "9999999999", true, 9999999999 },
        { "00001", true, 1 }, { "10000000000", false, 0 }, { "", false, 0 },
        { "-1", false, 0 },   { "+1", false, 0 },          { "1.5", false, 0 },
        { " 1", false, 0 },   { "1s", false, 0 },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint64_t ms = 0;

        assert_int_equal(connect_timeout_parse(slice_str(rows[i].text), &ms), rows[i].is_fine);
        assert_int_equal(ms, rows[i].want);
    }
}

static void content_types(void **state)
{
    static const struct {
        const char *text;
        bool is_fine;
        enum connect_codec codec;
        bool is_stream;
    } rows[] = {
        { "application/json", true, CONNECT_JSON, false },
        { "application/proto", true, CONNECT_PROTO, false },
        { "application/connect+json", true, CONNECT_JSON, true },
        { "application/connect+proto", true, CONNECT_PROTO, true },
        { "Application/JSON ; charset=utf-8", true, CONNECT_JSON, false },
        { "application/json;", true, CONNECT_JSON, false },
        { "application/jsonx", false, CONNECT_JSON, false },
        { "application/grpc", false, CONNECT_JSON, false },
        { "application/connect", false, CONNECT_JSON, false },
        { "application/json, application/proto", false, CONNECT_JSON, false },
        { ";", false, CONNECT_JSON, false },
        { "", false, CONNECT_JSON, false },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        enum connect_codec codec = CONNECT_JSON;
        bool is_stream = false;

        assert_int_equal(connect_content_type(slice_str(rows[i].text), &codec, &is_stream),
                         rows[i].is_fine);
        assert_int_equal(codec, rows[i].codec);
        assert_int_equal(is_stream, rows[i].is_stream);
    }
    assert_string_equal(connect_content_type_name(CONNECT_PROTO, true),
                        "application/connect+proto");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(envelopes),
        cmocka_unit_test(largest_message_passes),
        cmocka_unit_test(errors_are_final),
        cmocka_unit_test(envelope_over_the_limit_leaves_nothing),
        cmocka_unit_test(end_of_stream),
        cmocka_unit_test(errors_that_do_not_fit_leave_nothing),
        cmocka_unit_test(timeouts),
        cmocka_unit_test(content_types),
    };

    return cmocka_run_group_tests_name("connect", tests, NULL, NULL);
}
