/* Writing of heads and chunk headers; what a proxy drops. */
#include "test.h"

#include "wire/http1.h"

static void heads_are_written(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(1024);

    assert_int_equal(http1_request_line(&b, SLICE_LIT("GET"), SLICE_LIT("/a?b")), BUF_OK);
    assert_int_equal(http1_status_line(&b, 404), BUF_OK);
    assert_int_equal(http1_status_line(&b, 299), BUF_OK);
    assert_int_equal(http1_field_put(&b, SLICE_LIT("A"), SLICE_LIT("b\tc")), BUF_OK);
    assert_int_equal(http1_field_put(&b, SLICE_LIT("B"), slice_of(NULL, 0)), BUF_OK);
    assert_int_equal(http1_head_end(&b), BUF_OK);
    assert_string_equal(buf_cstr(&b), "GET /a?b HTTP/1.1\r\nHTTP/1.1 404 Not Found\r\n"
                                      "HTTP/1.1 299 Unknown\r\nA: b\tc\r\nB: \r\n\r\n");
}

static void injection_is_refused(void **state)
{
    static const char *const names[] = { "", "A:", "A B", "A\r\n", "\xc3\xa4" };
    static const char *const values[] = { "a\r\nB: c", "a\n", "\r", "a\x01", "\x7f" };
    static const char *const targets[] = { "", "/a b", "/a\r\n", "/\xff", "/#" };
    static const int statuses[] = { -1, 0, 99, 1000 };
    _cleanup_(buf_done) struct buf b = BUF_INIT(1024);

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_int_equal(http1_field_put(&b, slice_str(names[i]), SLICE_LIT("x")), BUF_LIMIT);
    for (size_t i = 0; i < ARRAY_SIZE(values); i++)
        assert_int_equal(http1_field_put(&b, SLICE_LIT("A"), slice_str(values[i])), BUF_LIMIT);
    assert_int_equal(http1_field_put(&b, SLICE_LIT("A"), slice_of("a\0b", 3)), BUF_LIMIT);
    for (size_t i = 0; i < ARRAY_SIZE(targets); i++)
        assert_int_equal(http1_request_line(&b, SLICE_LIT("GET"), slice_str(targets[i])),
                         BUF_LIMIT);
    assert_int_equal(http1_request_line(&b, SLICE_LIT("G T"), SLICE_LIT("/")), BUF_LIMIT);
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++)
        assert_int_equal(http1_status_line(&b, statuses[i]), BUF_LIMIT);
    assert_int_equal(b.len, 0);
}

static void full_buffer_gets_nothing(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(10);

    assert_int_equal(http1_field_put(&b, SLICE_LIT("Name"), SLICE_LIT("value")), BUF_LIMIT);
    assert_int_equal(http1_request_line(&b, SLICE_LIT("GET"), SLICE_LIT("/")), BUF_LIMIT);
    assert_int_equal(http1_status_line(&b, 200), BUF_LIMIT);
    assert_int_equal(b.len, 0);
}

static void chunk_sizes(void **state)
{
    static const struct {
        size_t n;
        const char *want;
    } rows[] = {
        { 0, "0\r\n" },         { 1, "1\r\n" },
        { 15, "f\r\n" },        { 16, "10\r\n" },
        { 255, "ff\r\n" },      { 256, "100\r\n" },
        { 65536, "10000\r\n" }, { SIZE_MAX, "ffffffffffffffff\r\n" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char to[19];

        assert_int_equal(http1_chunk_begin(to, rows[i].n), strlen(rows[i].want));
        assert_string_equal(to, rows[i].want);
    }
}

static void hop_by_hop(void **state)
{
    static const struct {
        const char *name, *connection;
        bool want;
    } rows[] = {
        { "Connection", "", true },
        { "KEEP-alive", "", true },
        { "Transfer-Encoding", "", true },
        { "TE", "", true },
        { "Trailer", "", true },
        { "Upgrade", "", true },
        { "Proxy-Authorization", "", true },
        { "proxy-x", "", true },
        { "X-Proxy-", "", false },
        { "Content-Type", "", false },
        { "X-A", "close, x-a", true },
        { "X-A", " ,,x-A ,", true },
        { "X-A", "x-ab, ax-a", false },
        { "Host", "host", false },
        { "content-length", "Content-Length", false },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        assert_int_equal(
            http1_is_hop_by_hop(slice_str(rows[i].name), slice_str(rows[i].connection)),
            rows[i].want);
}

static void hop_by_hop_reads_every_connection_field(void **state)
{
    struct http1_field fields[3];
    struct http1_head h = { .fields = fields, .n_fields = 3 };

    h.fields[0] = (struct http1_field){ SLICE_LIT("Connection"), SLICE_LIT("close") };
    h.fields[1] = (struct http1_field){ SLICE_LIT("X-A"), SLICE_LIT("1") };
    h.fields[2] = (struct http1_field){ SLICE_LIT("connection"), SLICE_LIT("X-A, host") };
    assert_true(http1_head_is_hop_by_hop(&h, SLICE_LIT("x-a")));
    assert_true(http1_head_is_hop_by_hop(&h, SLICE_LIT("te")));
    assert_false(http1_head_is_hop_by_hop(&h, SLICE_LIT("Host")));
    assert_false(http1_head_is_hop_by_hop(&h, SLICE_LIT("X-B")));
}

static void errors_have_status_and_text(void **state)
{
    for (int e = HTTP1_ERR_SYNTAX; e <= HTTP1_ERR_EOF; e++) {
        assert_true(http1_error_status((enum http1_error)e) >= 400);
        assert_string_not_equal(http1_error_text((enum http1_error)e), "no error");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_written),
        cmocka_unit_test(injection_is_refused),
        cmocka_unit_test(full_buffer_gets_nothing),
        cmocka_unit_test(chunk_sizes),
        cmocka_unit_test(hop_by_hop),
        cmocka_unit_test(hop_by_hop_reads_every_connection_field),
        cmocka_unit_test(errors_have_status_and_text),
    };

    return cmocka_run_group_tests_name("http1_encode", tests, NULL, NULL);
}
