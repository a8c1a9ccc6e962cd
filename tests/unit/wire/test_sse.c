/* Server-Sent Events: the standard's examples, line ends, limits, cut anywhere. */
#include "test.h"

#include "wire/sse.h"

#define EVENT_MAX 40

static void run(struct slice in, size_t step, struct buf *log)
{
    enum sse_status status = SSE_NEED_MORE;
    struct sse_decoder d;

    sse_decoder_init(&d, EVENT_MAX);
    for (size_t at = 0; at < in.n && status == SSE_NEED_MORE; at += step) {
        size_t n = MIN(step, in.n - at);
        uint8_t *copy = test_exact(slice_of(in.p + at, n));
        struct slice piece = slice_of(copy, n);
        struct sse_event e;

        while ((status = sse_decoder_next(&d, &piece, &e)) == SSE_EVENT)
            (void)buf_printf(log, "%.*s(%.*s)%.*s;", (int)e.name.n, (const char *)e.name.p,
                             (int)e.data.n, (const char *)e.data.p, (int)e.id.n,
                             e.id.p ? (const char *)e.id.p : "");
        if (status == SSE_NEED_MORE)
            assert_int_equal(piece.n, 0);
        free(copy);
    }
    if (status == SSE_TOO_LARGE)
        (void)buf_append_str(log, "!large");
    if (status == SSE_NOT_UTF8)
        (void)buf_append_str(log, "!utf8");
    sse_decoder_done(&d);
}

static void events(void **state)
{
    static const struct {
        const char *in, *want;
    } rows[] = {
        { "", "" },
        { "data: a\n\n", "message(a);" },
        { "data: YHOO\ndata: +2\ndata: 10\n\n", "message(YHOO\n+2\n10);" },
        { ": comment\n\ndata: 1\nid: 1\n\ndata:2\nid\n\ndata:  3\n\n",
          "message(1)1;message(2);message( 3);" },
        { "data\n\ndata\ndata\n\ndata:", "message();message(\n);" },
        { "data:test\n\ndata: test\n\n", "message(test);message(test);" },
        { "event: add\ndata: 7\n\ndata: 8\n\n", "add(7);message(8);" },
        { "event: lost\n\ndata: x\n\n", "message(x);" },
        { "data: a\r\n\r\ndata: b\r\rdata: c\n\n", "message(a);message(b);message(c);" },
        { "\xef\xbb\xbf"
          "data: bom\n\n",
          "message(bom);" },
        { "retry: 10\nfoo: bar\ndata: x\n\n", "message(x);" },
        { "data: cut", "" },
        { "data: cut\n", "" },
        { "id: 7\ndata: a\n\ndata: b\n\n", "message(a)7;message(b)7;" },
        { "data: \xc3\xbc\n\n", "message(\xc3\xbc);" },
        { "data: \xff\n\n", "!utf8" },
        { "data: a\n\ndata: 0123456789012345678901234567890123456789\n\n", "message(a);!large" },
        { "data: 01234567890123456789\ndata: 01234567890123456789\n\n", "!large" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        for (size_t step = 1; step < 12; step++) {
            struct buf log = BUF_INIT(10000);

            run(slice_str(rows[i].in), step, &log);
            if (strcmp(buf_cstr(&log), rows[i].want) != 0)
                fail_msg("row %zu, step %zu: '%s', not '%s'", i, step, buf_cstr(&log),
                         rows[i].want);
            buf_done(&log);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
