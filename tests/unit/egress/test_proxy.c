/* test_proxy.c - addresses of proxies, and what is said to them. */
#include "test.h"

#include "egress/proxy.h"

static void addresses_are_read(void **state)
{
    static const struct {
        const char *text;
        enum proxy_kind kind; /* NONE: refused */
        const char *host, *user, *password;
        uint16_t port;
    } rows[] = {
        { "http://proxy.example:3128", PROXY_HTTP, "proxy.example", "", "", 3128 },
        { "http://proxy.example:3128/", PROXY_HTTP, "proxy.example", "", "", 3128 },
        { "socks5://10.0.0.1:1080", PROXY_SOCKS5, "10.0.0.1", "", "", 1080 },
        { "socks5h://[2001:db8::1]:1080", PROXY_SOCKS5, "2001:db8::1", "", "", 1080 },
        { "me:p%40ss@h:1", PROXY_SOCKS5, "h", "me", "p@ss", 1 },
        { "http://me@h:1", PROXY_HTTP, "h", "me", "", 1 },
        { "h:65535", PROXY_SOCKS5, "h", "", "", 65535 },
        { "h", PROXY_NONE, NULL, NULL, NULL, 0 },
        { "h:0", PROXY_NONE, NULL, NULL, NULL, 0 },
        { "h:65536", PROXY_NONE, NULL, NULL, NULL, 0 },
        { "h:80/path", PROXY_NONE, NULL, NULL, NULL, 0 },
        { "https://h:80", PROXY_NONE, NULL, NULL, NULL, 0 },
        { "a b:80", PROXY_NONE, NULL, NULL, NULL, 0 },
        { ":80", PROXY_NONE, NULL, NULL, NULL, 0 },
        { "[::1:80", PROXY_NONE, NULL, NULL, NULL, 0 },
        { "u%zz@h:80", PROXY_NONE, NULL, NULL, NULL, 0 },
        { "", PROXY_NONE, NULL, NULL, NULL, 0 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct proxy p = { 0 };

        if (proxy_parse(rows[i].text, PROXY_SOCKS5, &p) != (rows[i].kind != PROXY_NONE))
            fail_msg("'%s'", rows[i].text);
        if (rows[i].kind == PROXY_NONE)
            continue;
        assert_int_equal(p.kind, rows[i].kind);
        assert_int_equal(p.port, rows[i].port);
        test_text(rows[i].text, p.host, rows[i].host);
        test_text(rows[i].text, p.user, rows[i].user);
        test_text(rows[i].text, p.password, rows[i].password);
    }
}

/* What is sent, and what comes back for it; the last answer is followed by bytes of the connection. */
struct exchange {
    struct slice sent, answer;
};

static enum proxy_step talk(const char *url, const char *to, const struct exchange *x, size_t n,
                            char why[PROXY_WHY_SIZE])
{
    struct proxy p;
    struct proxy_talk t = { .proxy = &p };
    enum proxy_step s;
    size_t used;

    assert_true(proxy_parse(url, PROXY_SOCKS5, &p) && address_parse(to, 0, &t.to));
    for (size_t i = 0;; i++) {
        struct buf out = BUF_INIT(4096);
        struct slice in = i == 0 ? slice_of(NULL, 0) : x[i - 1].answer;

        for (size_t have = 0; i > 0 && have < in.n; have++) {
            uint8_t *copy = test_exact(slice_of(in.p, have));

            s = proxy_next(&t, slice_of(copy, have), &used, &out, why);
            free(copy);
            if (s != PROXY_MORE)
                return s;
        }
        s = proxy_next(&t, in, &used, &out, why);
        if (s != PROXY_SEND)
            return s;
        assert_true(i < n && used == in.n);
        if (!slice_eq(buf_slice(&out), x[i].sent))
            fail_msg("exchange %zu: sent %.*s", i, (int)out.len, (const char *)buf_data(&out));
        buf_done(&out);
    }
}

static void connects_by_http(void **state)
{
    const struct exchange good = { SLICE_LIT("CONNECT 1.2.3.4:443 HTTP/1.1\r\nHost: 1.2.3.4:443\r\n"
                                             "Proxy-Authorization: Basic bWU6cHc=\r\n\r\n"),
                                   SLICE_LIT("HTTP/1.1 200 OK\r\nA: b\r\n\r\n") };
    const struct exchange bad = {
        SLICE_LIT("CONNECT [2001:db8::1]:80 HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n\r\n"),
        SLICE_LIT("HTTP/1.1 407 No\r\n\r\n")
    };
    char why[PROXY_WHY_SIZE];

    (void)state;
    assert_int_equal(talk("http://me:pw@h:1", "1.2.3.4:443", &good, 1, why), PROXY_DONE);
    assert_int_equal(talk("http://h:1", "[2001:db8::1]:80", &bad, 1, why), PROXY_FAILED);
    assert_non_null(strstr(why, "407"));
}

/* Only numbers of what a proxy says get into logs. */
static void foreign_text_stays_out_of_the_reason(void **state)
{
    static const struct {
        const char *answer, *why;
    } rows[] = {
        { "HTTP/1.1 503 Busy\r\n\r\n", "the proxy answers 503" },
        { "HTTP/1.1 \x1b[2\r\n\r\n", "the proxy does not speak HTTP" },
        { "HTTP/1.1 \xff\xfe\xfd\r\n\r\n", "the proxy does not speak HTTP" },
        { "HTTP/1.1 20\r\n\r\n", "the proxy does not speak HTTP" },
        { "SSH-2.0-x200\r\n\r\n", "the proxy does not speak HTTP" },
        { "\r\n\r\n", "the proxy does not speak HTTP" },
    };
    char why[PROXY_WHY_SIZE];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct exchange x = {
            SLICE_LIT("CONNECT 1.2.3.4:443 HTTP/1.1\r\nHost: 1.2.3.4:443\r\n\r\n"),
            slice_str(rows[i].answer)
        };

        assert_int_equal(talk("http://h:1", "1.2.3.4:443", &x, 1, why), PROXY_FAILED);
        test_text(rows[i].answer, why, rows[i].why);
    }
}

static void connects_by_socks(void **state)
{
    const struct exchange open[] = {
        { SLICE_LIT("\x05\x01\x00"), SLICE_LIT("\x05\x00") },
        { SLICE_LIT("\x05\x01\x00\x01\x01\x02\x03\x04\x01\xbb"), SLICE_LIT("\x05\x00\x00\x03\x02"
                                                                           "ab\x00\x01") },
    };
    const struct exchange with_password[] = {
        { SLICE_LIT("\x05\x01\x02"), SLICE_LIT("\x05\x02") },
        { SLICE_LIT("\x01\x02me\x02pw"), SLICE_LIT("\x01\x00") },
        { SLICE_LIT("\x05\x01\x00\x01\x01\x02\x03\x04\x01\xbb"),
          SLICE_LIT("\x05\x00\x00\x01\x00\x00\x00\x00\x00\x01") },
    };
    const struct exchange refused[] = {
        { SLICE_LIT("\x05\x01\x00"), SLICE_LIT("\x05\x00") },
        { SLICE_LIT("\x05\x01\x00\x01\x01\x02\x03\x04\x01\xbb"),
          SLICE_LIT("\x05\x05\x00\x01\x00\x00\x00\x00\x00\x01") },
    };
    const struct exchange wants_password[] = { { SLICE_LIT("\x05\x01\x00"),
                                                 SLICE_LIT("\x05\xff") } };
    const struct exchange other[] = { { SLICE_LIT("\x05\x01\x00"), SLICE_LIT("HTTP/1.1 400") } };
    char why[PROXY_WHY_SIZE];

    (void)state;
    assert_int_equal(talk("h:1", "1.2.3.4:443", open, 2, why), PROXY_DONE);
    assert_int_equal(talk("me:pw@h:1", "1.2.3.4:443", with_password, 3, why), PROXY_DONE);
    assert_int_equal(talk("h:1", "1.2.3.4:443", refused, 2, why), PROXY_FAILED);
    assert_non_null(strstr(why, "refuses the connection (5)"));
    assert_int_equal(talk("h:1", "1.2.3.4:443", wants_password, 1, why), PROXY_FAILED);
    assert_int_equal(talk("h:1", "1.2.3.4:443", other, 1, why), PROXY_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_read),
        cmocka_unit_test(connects_by_http),
        cmocka_unit_test(foreign_text_stays_out_of_the_reason),
        cmocka_unit_test(connects_by_socks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
