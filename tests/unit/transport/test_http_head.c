/* Response heads and the pieces of http.c that need no server. */
#include "test.h"

#include <string.h>

#include "transport/http_internal.h"

static enum head_result feed(struct head_parser *p, const char *text)
{
    enum head_result r = HEAD_MORE;

    while (*text && r == HEAD_MORE) {
        const char *end = strchr(text, '\n');
        size_t n = end ? (size_t)(end - text) + 1 : strlen(text);
        uint8_t *line = test_exact(slice_of(text, n));

        r = head_line(p, slice_of(line, n));
        free(line);
        text += n;
    }
    return r;
}

static void head_of_each_kind(void **state)
{
    static const struct {
        const char *text;
        int status, version;
        size_t count;
        enum head_result result;
    } rows[] = {
        { "HTTP/1.1 200 OK\r\nA: b\r\n\r\n", 200, 11, 1, HEAD_DONE },
        { "HTTP/1.0 404 Not Found\n\n", 404, 10, 0, HEAD_DONE },
        { "HTTP/2 204 \r\nx-y:  z \r\n\r\n", 204, 20, 1, HEAD_DONE },
        { "HTTP/1.1 999\r\n\r\n", 999, 11, 0, HEAD_DONE },
        { "HTTP/1.1 100 Continue\r\nA: b\r\n\r\nHTTP/1.1 201 C\r\nC: d\r\nE: f\r\n\r\n", 201, 11, 2,
          HEAD_DONE },
        { "HTTP/1.1 200 OK\r\nContent-Length: 5\r\ncontent-length: 5\r\n\r\n", 200, 11, 2,
          HEAD_DONE },
        { "HTTP/2 200\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n", 200, 20, 2,
          HEAD_DONE },
        { "HTTP/1.1 200 OK\r\nA: b", 200, 11, 0, HEAD_MORE },
        { "HTTP/1.1 099 OK\r\n\r\n", 0, 11, 0, HEAD_BAD },
        { "HTTP/1.1 20 OK\r\n\r\n", 0, 11, 0, HEAD_BAD },
        { "HTTP/1.1 2000 OK\r\n\r\n", 0, 11, 0, HEAD_BAD },
        { "HTTP/1.1 200OK\r\n\r\n", 0, 11, 0, HEAD_BAD },
        { "HTTP/1.2 200 OK\r\n\r\n", 0, 0, 0, HEAD_BAD },
        { "HTTP/1.1 200 OK\r\n: b\r\n\r\n", 200, 11, 0, HEAD_BAD },
        { "HTTP/1.1 200 OK\r\nA : b\r\n\r\n", 200, 11, 0, HEAD_BAD },
        { "HTTP/1.1 200 OK\r\nA\r\n\r\n", 200, 11, 0, HEAD_BAD },
        { "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", 200, 11, 1, HEAD_BAD },
        { "HTTP/1.1 200 OK\r\nA: b\x01\r\n\r\n", 200, 11, 0, HEAD_BAD },
        { "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n", 200, 11, 0, HEAD_BAD },
        { "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n", 200, 11, 0, HEAD_BAD },
        { "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\n", 200, 11, 0, HEAD_BAD },
        { "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 200, 11, 1,
          HEAD_BAD },
        { "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 200, 11, 2,
          HEAD_BAD },
        { "HTTP/1.1 101 Switching Protocols\r\n\r\n", 101, 11, 0, HEAD_BAD },
    };
    struct head_parser p;

    head_init(&p);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        head_reset(&p);
        if (feed(&p, rows[i].text) != rows[i].result || p.status != rows[i].status ||
            p.version != rows[i].version || p.count != rows[i].count)
            fail_msg("row %zu: status %d, version %d, %zu fields, '%s'", i, p.status, p.version,
                     p.count, p.why);
        assert_int_equal(p.why[0] != '\0', rows[i].result == HEAD_BAD);
    }
    head_done(&p);
}

static void names_are_lower_case_and_values_trimmed(void **state)
{
    struct head_parser p;
    struct http_head head;

    head_init(&p);
    assert_int_equal(
        feed(&p, "HTTP/1.1 200 OK\r\nX-Thing: \t A b \r\nEmpty:\r\nx-thing: 2\r\n\r\n"), HEAD_DONE);
    head = (struct http_head){ p.status, p.version, p.pairs, p.count };
    test_text("name", p.pairs[0].key, "x-thing");
    test_text("first", http_head_get(&head, "x-thing"), "A b");
    test_text("empty", http_head_get(&head, "empty"), "");
    assert_null(http_head_get(&head, "other"));
    head_done(&p);
}

static void retry_after_is_seconds_or_a_date(void **state)
{
    const int64_t now_ms = 784111777000; /* Sun, 06 Nov 1994 08:49:37 GMT */

    assert_int_equal(head_retry_after_ms("0", now_ms), 0);
    assert_int_equal(head_retry_after_ms("120", now_ms), 120000);
    assert_int_equal(head_retry_after_ms("Sun, 06 Nov 1994 08:49:47 GMT", now_ms), 10000);
    assert_int_equal(head_retry_after_ms("Sun, 06 Nov 1994 08:00:00 GMT", now_ms), 0);
    assert_int_equal(head_retry_after_ms("-1", now_ms), -1);
    assert_int_equal(head_retry_after_ms("1.5", now_ms), -1);
    assert_int_equal(head_retry_after_ms("soon", now_ms), -1);
    assert_int_equal(head_retry_after_ms("99999999999", now_ms), -1);
}

static void loopback_by_name_and_address(void **state)
{
    static const struct {
        const char *url;
        bool is_loopback;
    } rows[] = {
        { "http://localhost/", true },
        { "http://LOCALHOST:80", true },
        { "http://localhost./", true },
        { "http://a.localhost/", true },
        { "http://127.0.0.1:8490/x", true },
        { "http://127.200.3.4/", true },
        { "http://127.1/", true },
        { "http://2130706433/", true },
        { "http://[::1]:80/", true },
        { "http://[::ffff:127.0.0.1]/", true },
        { "http://localhost.example.com/", false },
        { "http://notlocalhost/", false },
        { "http://127.0.0.1.example.com/", false },
        { "http://128.0.0.1/", false },
        { "http://[::2]/", false },
        { "http://example.com/127.0.0.1", false },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (url_is_loopback(rows[i].url) != rows[i].is_loopback)
            fail_msg("%s", rows[i].url);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(head_of_each_kind),
        cmocka_unit_test(names_are_lower_case_and_values_trimmed),
        cmocka_unit_test(retry_after_is_seconds_or_a_date),
        cmocka_unit_test(loopback_by_name_and_address),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
