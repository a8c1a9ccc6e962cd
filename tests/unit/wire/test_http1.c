/* Parser of HTTP/1.1 messages: each input goes in whole, byte by byte and in uneven pieces, and has
 * to give the same events each time. */
#include "test.h"

#include "wire/http1.h"

#define HOST "Host: h\r\n"
#define GET "GET / HTTP/1.1\r\n" HOST
#define POST "POST / HTTP/1.1\r\n" HOST
#define OK "HTTP/1.1 200 OK\r\n"

struct row {
    const char *name;
    const char *in;
    const char *want;
};

static void put_head(struct buf *b, enum http1_kind kind, const struct http1_head *h)
{
    static const char *const framings[] = { "none", "length", "chunked", "close" };

    if (kind == HTTP1_REQUEST)
        (void)buf_printf(b, "HEAD %.*s %.*s", (int)h->method.n, (const char *)h->method.p,
                         (int)h->target.n, (const char *)h->target.p);
    else
        (void)buf_printf(b, "HEAD %d %.*s", h->status, (int)h->reason.n,
                         h->reason.n ? (const char *)h->reason.p : "");
    (void)buf_printf(b, " n=%zu %s", h->n_fields, framings[h->framing]);
    if (h->framing == HTTP1_BODY_LENGTH)
        (void)buf_printf(b, "=%llu", (unsigned long long)h->content_length);
    if (h->keep_alive)
        (void)buf_append_str(b, " keep");
    if (h->is_upgrade)
        (void)buf_append_str(b, " upgrade");
    if (h->expects_continue)
        (void)buf_append_str(b, " continue");
    (void)buf_append_str(b, ";");
}

/* Feeds one piece and writes down the events. False after an error. */
static bool feed(struct http1_parser *p, enum http1_kind kind, struct slice in, struct buf *log,
                 bool *in_data)
{
    for (;;) {
        struct slice data = { 0 };
        enum http1_event ev = http1_parser_next(p, &in, &data);

        if (ev == HTTP1_NEED_MORE) {
            assert_int_equal(in.n, 0);
            return true;
        }
        if ((ev == HTTP1_DATA || ev == HTTP1_UPGRADED) && data.n == 0)
            fail_msg("empty data");
        if (ev != HTTP1_DATA && ev != HTTP1_UPGRADED && *in_data) {
            (void)buf_append_str(log, ";");
            *in_data = false;
        }
        switch (ev) {
        case HTTP1_HEAD:
            put_head(log, kind, http1_parser_head(p));
            if (slice_eq_str(http1_head_value(http1_parser_head(p), "upgrade"), "now"))
                http1_parser_upgrade(p);
            break;
        case HTTP1_DATA:
        case HTTP1_UPGRADED:
            if (!*in_data)
                (void)buf_append_str(log, ev == HTTP1_DATA ? "DATA " : "RAW ");
            *in_data = true;
            (void)buf_append_slice(log, data);
            break;
        case HTTP1_END:
            (void)buf_append_str(log, "END;");
            break;
        case HTTP1_ERROR:
            (void)buf_printf(log, "ERROR %d", http1_error_status(http1_parser_error(p)));
            assert_int_equal(http1_parser_next(p, &in, &data), HTTP1_ERROR);
            return false;
        case HTTP1_NEED_MORE:
            break;
        }
    }
}

/* Events of the whole input, fed in pieces of `step` bytes (0 = uneven), then EOF when `eof`. */
static void run(enum http1_kind kind, struct slice in, size_t step, bool no_body, bool eof,
                struct buf *log)
{
    struct http1_parser *p = http1_parser_new(kind);
    bool in_data = false, is_fine = true;
    size_t at = 0, k = 0;

    assert_non_null(p);
    if (no_body)
        http1_parser_expect_no_body(p);
    while (is_fine && at < in.n) {
        size_t n = MIN(step ? step : k++ * 7 % 13 + 1, in.n - at);
        uint8_t *piece = test_exact(slice_of(in.p + at, n));

        is_fine = feed(p, kind, slice_of(piece, n), log, &in_data);
        free(piece);
        at += n;
    }
    if (in_data)
        (void)buf_append_str(log, ";");
    if (is_fine && eof) {
        enum http1_event ev = http1_parser_eof(p);

        (void)buf_append_str(log, ev == HTTP1_END ? "END;" : ev == HTTP1_ERROR ? "CUT" : "");
    }
    http1_parser_free(p);
}

static void check(enum http1_kind kind, const struct row *row, struct slice in, bool no_body)
{
    static const size_t steps[] = { SIZE_MAX, 1, 0, 2, 5 };

    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        _cleanup_(buf_done) struct buf log = BUF_INIT(1 << 20);

        run(kind, in, steps[i], no_body, true, &log);
        test_text(row->name, buf_cstr(&log), row->want);
    }
}

static void check_table(enum http1_kind kind, const struct row *rows, size_t n, bool no_body)
{
    for (size_t i = 0; i < n; i++)
        check(kind, &rows[i], slice_str(rows[i].in), no_body);
}

/* One each of the inputs with which one proxy hides a request from another. */
static void smuggling_is_refused(void **state)
{
    static const struct row rows[] = {
        { "bare CR in a field", GET "A: b\rc\r\n\r\n", "ERROR 400" },
        { "length and coding",
          POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "ERROR 400" },
        { "two lengths", POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", "ERROR 400" },
        { "space before the colon", "GET / HTTP/1.1\r\nHost : x\r\n\r\n", "ERROR 400" },
        { "obs-fold", GET "A: b\r\n c\r\n\r\n", "ERROR 400" },
        { "no Host", "GET / HTTP/1.1\r\nA: b\r\n\r\n", "ERROR 400" },
        { "bare LF lines", "GET / HTTP/1.1\nHost: h\n\n", "ERROR 400" },
        { "chunked, identity", POST "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
          "ERROR 400" },
        { "LF in a chunk extension",
          POST "Transfer-Encoding: chunked\r\n\r\n1;a\nb\r\nx\r\n0\r\n\r\n",
          "HEAD POST / n=2 chunked keep;ERROR 400" },
    };

    check_table(HTTP1_REQUEST, rows, ARRAY_SIZE(rows), false);
}

static void request_lines(void **state)
{
    static const struct row rows[] = {
        { "plain", GET "\r\n", "HEAD GET / n=1 none keep;END;" },
        { "empty line first", "\r\n" GET "\r\n", "HEAD GET / n=1 none keep;END;" },
        { "empty line between", GET "\r\n\r\n" GET "\r\n",
          "HEAD GET / n=1 none keep;END;HEAD GET / n=1 none keep;END;" },
        { "two empty lines", "\r\n\r\n" GET "\r\n", "ERROR 400" },
        { "bare LF first", "\n" GET "\r\n", "ERROR 400" },
        { "CR, then no LF", "\rGET / HTTP/1.1\r\n", "ERROR 400" },
        { "space first", " GET / HTTP/1.1\r\n" HOST "\r\n", "ERROR 400" },
        { "TLS hello", "\x16\x03\x01\x02", "ERROR 400" },
        { "HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "ERROR 505" },
        { "1.0", "GET / HTTP/1.0\r\n\r\n", "HEAD GET / n=0 none;END;" },
        { "1.2", "GET / HTTP/1.2\r\n" HOST "\r\n", "ERROR 505" },
        { "2.0", "GET / HTTP/2.0\r\n" HOST "\r\n", "ERROR 505" },
        { "0.9", "GET /\r\n\r\n", "ERROR 400" },
        { "lower-case version", "GET / http/1.1\r\n" HOST "\r\n", "ERROR 400" },
        { "long version", "GET / HTTP/1.10\r\n" HOST "\r\n", "ERROR 400" },
        { "version 1,1", "GET / HTTP/1,1\r\n" HOST "\r\n", "ERROR 400" },
        { "space behind the version", "GET / HTTP/1.1 \r\n" HOST "\r\n", "ERROR 400" },
        { "two spaces", "GET  / HTTP/1.1\r\n" HOST "\r\n", "ERROR 400" },
        { "two spaces before the version", "GET /  HTTP/1.1\r\n" HOST "\r\n", "ERROR 400" },
        { "tab for space", "GET\t/ HTTP/1.1\r\n" HOST "\r\n", "ERROR 400" },
        { "space in the target", "GET /a b HTTP/1.1\r\n" HOST "\r\n", "ERROR 400" },
        { "CR in the target", "GET /a\rb HTTP/1.1\r\n" HOST "\r\n", "ERROR 400" },
        { "8-bit target", "GET /\xc3\xa4 HTTP/1.1\r\n" HOST "\r\n", "ERROR 400" },
        { "DEL in the target", "GET /\x7f HTTP/1.1\r\n" HOST "\r\n", "ERROR 400" },
        { "fragment", "GET /a#b HTTP/1.1\r\n" HOST "\r\n", "ERROR 400" },
        { "method is no token", "G(T / HTTP/1.1\r\n" HOST "\r\n", "ERROR 400" },
        { "own method", "X-YZ! / HTTP/1.1\r\n" HOST "\r\n", "HEAD X-YZ! / n=1 none keep;END;" },
        { "no slash", "GET a HTTP/1.1\r\n" HOST "\r\n", "ERROR 400" },
        { "asterisk", "OPTIONS * HTTP/1.1\r\n" HOST "\r\n", "HEAD OPTIONS * n=1 none keep;END;" },
        { "GET of the asterisk", "GET * HTTP/1.1\r\n" HOST "\r\n", "ERROR 400" },
        { "CONNECT", "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n",
          "HEAD CONNECT h:443 n=1 none keep upgrade;END;" },
        { "CONNECT without port", "CONNECT h HTTP/1.1\r\n" HOST "\r\n", "ERROR 400" },
        { "CONNECT of a path", "CONNECT / HTTP/1.1\r\n" HOST "\r\n", "ERROR 400" },
        { "relative URL with a scheme", "GET http:/a HTTP/1.1\r\n" HOST "\r\n", "ERROR 400" },
        { "version x.1", "GET / HTTP/x.1\r\n" HOST "\r\n", "ERROR 400" },
        { "version :.1", "GET / HTTP/:.1\r\n" HOST "\r\n", "ERROR 400" },
        { "version /.1", "GET / HTTP//.1\r\n" HOST "\r\n", "ERROR 400" },
        { "version 1.x", "GET / HTTP/1.x\r\n" HOST "\r\n", "ERROR 400" },
        { "version 1./", "GET / HTTP/1./\r\n" HOST "\r\n", "ERROR 400" },
        { "more than the asterisk", "OPTIONS *x HTTP/1.1\r\n" HOST "\r\n", "ERROR 400" },
        { "one letter", "OPTIONS a HTTP/1.1\r\n" HOST "\r\n", "ERROR 400" },
        { "ends of the target's range", "GET /!~ HTTP/1.1\r\n" HOST "\r\n",
          "HEAD GET /!~ n=1 none keep;END;" },
        { "scheme with marks", "GET a+b-c.d9://h/ HTTP/1.1\r\n" HOST "\r\n",
          "HEAD GET a+b-c.d9://h/ n=1 none keep;END;" },
        { "scheme with a digit first", "GET 9p://h/ HTTP/1.1\r\n" HOST "\r\n", "ERROR 400" },
        { "NUL in the line", "GET /\r", "CUT" },
    };
    static const char nul[] = "GET /\0 HTTP/1.1\r\n" HOST "\r\n";
    static const struct row nul_row = { "NUL in the target", NULL, "ERROR 400" };

    check_table(HTTP1_REQUEST, rows, ARRAY_SIZE(rows), false);
    check(HTTP1_REQUEST, &nul_row, slice_of(nul, sizeof nul - 1), false);
}

static void hosts(void **state)
{
    static const struct {
        const char *host;
        bool is_fine;
    } rows[] = {
        { "example.com", true },
        { "EXAMPLE.com:80", true },
        { "3000-abc.sbx.example:8443", true },
        { "127.0.0.1:8490", true },
        { "[::1]", true },
        { "[::1]:8490", true },
        { "[fe80::1.2.3.4]:1", true },
        { "[a::f]", true },
        { "[A::F]", true },
        { "09.az-AZ.zz", true },
        { "a_b", true },
        { "h:", true },
        { "", true },
        { "a b", false },
        { "a,b", false },
        { "a/b", false },
        { "a?b", false },
        { "a#b", false },
        { "u@h", false },
        { ":80", false },
        { "h:80:80", false },
        { "h:x", false },
        { "h:123456", false },
        { "h:-1", false },
        { "[::1", false },
        { "[]", false },
        { "[:]", false },
        { "[::g]", false },
        { "[::`]", false },
        { "{", false },
        { "@", false },
        { "[::1]x", false },
        { "::1", false },
        { "h\\", false },
        { "h%00", false },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char in[256];
        struct row row = { in, in,
                           rows[i].is_fine ? "HEAD GET / n=1 none keep;END;" : "ERROR 400" };

        (void)snprintf(in, sizeof in, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", rows[i].host);
        check_table(HTTP1_REQUEST, &row, 1, false);
    }
}

static void host_rules(void **state)
{
    static const struct row rows[] = {
        { "two Hosts", GET "Host: h\r\n\r\n", "ERROR 400" },
        { "two Hosts in 1.0", "GET / HTTP/1.0\r\n" HOST HOST "\r\n", "ERROR 400" },
        { "Host in 1.0", "GET / HTTP/1.0\r\n" HOST "\r\n", "HEAD GET / n=1 none;END;" },
        { "absolute form", "GET http://h/a HTTP/1.1\r\n" HOST "\r\n",
          "HEAD GET http://h/a n=1 none keep;END;" },
        { "absolute form, other case", "GET HTTP://H HTTP/1.1\r\n" HOST "\r\n",
          "HEAD GET HTTP://H n=1 none keep;END;" },
        { "absolute form, other Host", "GET http://x/ HTTP/1.1\r\n" HOST "\r\n", "ERROR 400" },
        { "absolute form, empty Host", "GET http://x/ HTTP/1.1\r\nHost:\r\n\r\n", "ERROR 400" },
        { "absolute form, no Host", "GET http://h/ HTTP/1.1\r\n\r\n", "ERROR 400" },
        { "absolute form, 1.0", "GET http://h/ HTTP/1.0\r\n\r\n",
          "HEAD GET http://h/ n=0 none;END;" },
        { "user in the authority", "GET http://u@h/ HTTP/1.1\r\nHost: u@h\r\n\r\n", "ERROR 400" },
        { "empty authority", "GET http:/// HTTP/1.1\r\n" HOST "\r\n", "ERROR 400" },
    };

    check_table(HTTP1_REQUEST, rows, ARRAY_SIZE(rows), false);
}

static void fields(void **state)
{
    static const struct row rows[] = {
        { "empty value", GET "A:\r\n\r\n", "HEAD GET / n=2 none keep;END;" },
        { "white space around", GET "A: \t b \t\r\n\r\n", "HEAD GET / n=2 none keep;END;" },
        { "8-bit value", GET "A: \xff\x80\r\n\r\n", "HEAD GET / n=2 none keep;END;" },
        { "no colon", GET "A\r\n\r\n", "ERROR 400" },
        { "empty name", GET ": b\r\n\r\n", "ERROR 400" },
        { "tab before the colon", GET "A\t: b\r\n\r\n", "ERROR 400" },
        { "name is no token", GET "A(: b\r\n\r\n", "ERROR 400" },
        { "8-bit name", GET "\xc3\xa4: b\r\n\r\n", "ERROR 400" },
        { "first line folded", "GET / HTTP/1.1\r\n Host: h\r\n\r\n", "ERROR 400" },
        { "tab-folded", GET "A: b\r\n\tc\r\n\r\n", "ERROR 400" },
        { "blank line with a space", GET " \r\n\r\n", "ERROR 400" },
        { "control byte", GET "A: b\x01\r\n\r\n", "ERROR 400" },
        { "control byte among many", GET "A: 01234567890123456789\x1b[31m0123456789\r\n\r\n",
          "ERROR 400" },
        { "DEL", GET "A: 0123456789012345\x7f\r\n\r\n", "ERROR 400" },
        { "tab inside a long value", GET "A: 0123456789\t0123456789\r\n\r\n",
          "HEAD GET / n=2 none keep;END;" },
        { "CR before CRLF", GET "A: b\r\r\n\r\n", "ERROR 400" },
        { "LF CR", GET "A: b\n\r\r\n", "ERROR 400" },
        { "LF ends the head", GET "A: b\r\n\n", "ERROR 400" },
        { "cut in a line", GET "A: ", "CUT" },
        { "cut before the last LF", GET "\r", "CUT" },
    };
    static const char nul[] = GET "A: b\0c\r\n\r\n";
    static const struct row nul_row = { "NUL in a value", NULL, "ERROR 400" };

    check_table(HTTP1_REQUEST, rows, ARRAY_SIZE(rows), false);
    check(HTTP1_REQUEST, &nul_row, slice_of(nul, sizeof nul - 1), false);
}

static void lengths(void **state)
{
    static const struct row rows[] = {
        { "length", POST "Content-Length: 5\r\n\r\nhello",
          "HEAD POST / n=2 length=5 keep;DATA hello;END;" },
        { "zero", POST "Content-Length: 0\r\n\r\n", "HEAD POST / n=2 length=0 keep;END;" },
        { "none is zero", POST "\r\nGET", "HEAD POST / n=1 none keep;END;CUT" },
        { "body on GET", GET "Content-Length: 2\r\n\r\nhi",
          "HEAD GET / n=2 length=2 keep;DATA hi;END;" },
        { "pipelined", POST "Content-Length: 2\r\n\r\nhi" GET "\r\n",
          "HEAD POST / n=2 length=2 keep;DATA hi;END;HEAD GET / n=1 none keep;END;" },
        { "leading zeros", POST "Content-Length: 005\r\n\r\nhello",
          "HEAD POST / n=2 length=5 keep;DATA hello;END;" },
        { "largest", POST "Content-Length: 9223372036854775807\r\n\r\n",
          "HEAD POST / n=2 length=9223372036854775807 keep;CUT" },
        { "too large", POST "Content-Length: 9223372036854775808\r\n\r\n", "ERROR 400" },
        { "wraps 64 bits", POST "Content-Length: 18446744073709551621\r\n\r\n", "ERROR 400" },
        { "21 digits", POST "Content-Length: 000000000000000000005\r\n\r\n", "ERROR 400" },
        { "sign", POST "Content-Length: +5\r\n\r\nhello", "ERROR 400" },
        { "minus", POST "Content-Length: -5\r\n\r\nhello", "ERROR 400" },
        { "hex", POST "Content-Length: 0x5\r\n\r\nhello", "ERROR 400" },
        { "empty", POST "Content-Length:\r\n\r\nhello", "ERROR 400" },
        { "two numbers", POST "Content-Length: 5 5\r\n\r\nhello", "ERROR 400" },
        { "list", POST "Content-Length: 5, 5\r\n\r\nhello", "ERROR 400" },
        { "fraction", POST "Content-Length: 5.0\r\n\r\nhello", "ERROR 400" },
        { "same twice", POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", "ERROR 400" },
        { "cut", POST "Content-Length: 5\r\n\r\nhell",
          "HEAD POST / n=2 length=5 keep;DATA hell;CUT" },
    };

    check_table(HTTP1_REQUEST, rows, ARRAY_SIZE(rows), false);
}

#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"
#define CHUNKED_HEAD "HEAD POST / n=2 chunked keep;"

static void chunks(void **state)
{
    static const struct row rows[] = {
        { "empty", CHUNKED "0\r\n\r\n", CHUNKED_HEAD "END;" },
        { "two", CHUNKED "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", CHUNKED_HEAD "DATA abcde;END;" },
        { "pipelined", CHUNKED "0\r\n\r\n" GET "\r\n",
          CHUNKED_HEAD "END;HEAD GET / n=1 none keep;END;" },
        { "hex of both cases",
          CHUNKED "aB\r\n0123456789012345678901234567890123456789012345678901234567890123456789"
                  "0123456789012345678901234567890123456789012345678901234567890123456789"
                  "0123456789012345678901234567890\r\n0\r\n\r\n",
          CHUNKED_HEAD "DATA 0123456789012345678901234567890123456789012345678901234567890123456789"
                       "0123456789012345678901234567890123456789012345678901234567890123456789"
                       "0123456789012345678901234567890;END;" },
        { "nine", CHUNKED "9\r\n123456789\r\n0\r\n\r\n", CHUNKED_HEAD "DATA 123456789;END;" },
        { "leading zeros", CHUNKED "0002\r\nab\r\n000\r\n\r\n", CHUNKED_HEAD "DATA ab;END;" },
        { "extension", CHUNKED "1;a=b;c=\"d e\"\r\nx\r\n0;z\r\n\r\n", CHUNKED_HEAD "DATA x;END;" },
        { "space before an extension", CHUNKED "1 ;a\r\nx\r\n0\r\n\r\n",
          CHUNKED_HEAD "DATA x;END;" },
        { "space behind the size", CHUNKED "1 \r\nx\r\n0\r\n\r\n", CHUNKED_HEAD "ERROR 400" },
        { "space before the size", CHUNKED " 1\r\nx\r\n0\r\n\r\n", CHUNKED_HEAD "ERROR 400" },
        { "digit behind a space", CHUNKED "1 1;a\r\nx\r\n", CHUNKED_HEAD "ERROR 400" },
        { "no size", CHUNKED "\r\n", CHUNKED_HEAD "ERROR 400" },
        { "only an extension", CHUNKED ";a\r\n", CHUNKED_HEAD "ERROR 400" },
        { "sign", CHUNKED "+1\r\nx\r\n", CHUNKED_HEAD "ERROR 400" },
        { "minus", CHUNKED "-1\r\nx\r\n", CHUNKED_HEAD "ERROR 400" },
        { "0x", CHUNKED "0x1\r\nx\r\n", CHUNKED_HEAD "ERROR 400" },
        { "no hex", CHUNKED "g\r\n", CHUNKED_HEAD "ERROR 400" },
        { "16 digits too large", CHUNKED "8000000000000000\r\n", CHUNKED_HEAD "ERROR 400" },
        { "17 digits", CHUNKED "00000000000000001\r\nx\r\n", CHUNKED_HEAD "ERROR 400" },
        { "wraps 64 bits", CHUNKED "10000000000000001\r\nx\r\n", CHUNKED_HEAD "ERROR 400" },
        { "largest", CHUNKED "7fffffffffffffff\r\nx", CHUNKED_HEAD "DATA x;CUT" },
        { "bare LF behind the size", CHUNKED "1\nx\r\n0\r\n\r\n", CHUNKED_HEAD "ERROR 400" },
        { "bare CR behind the size", CHUNKED "1\rx\r\n0\r\n\r\n", CHUNKED_HEAD "ERROR 400" },
        { "bare CR in an extension", CHUNKED "1;a\rb\r\nx\r\n", CHUNKED_HEAD "ERROR 400" },
        { "control byte in an extension", CHUNKED "1;a\x01\r\nx\r\n", CHUNKED_HEAD "ERROR 400" },
        { "8-bit extension", CHUNKED "1;\xc3\xa4\r\nx\r\n0\r\n\r\n", CHUNKED_HEAD "DATA x;END;" },
        { "data longer than its size", CHUNKED "1\r\nxy\r\n0\r\n\r\n",
          CHUNKED_HEAD "DATA x;ERROR 400" },
        { "data shorter than its size", CHUNKED "3\r\nx\r\n0\r\n\r\n",
          CHUNKED_HEAD "DATA x\r\n;ERROR 400" },
        { "bare LF behind the data", CHUNKED "1\r\nx\n0\r\n\r\n", CHUNKED_HEAD "DATA x;ERROR 400" },
        { "cut before the size", CHUNKED "", CHUNKED_HEAD "CUT" },
        { "cut before the end", CHUNKED "0\r\n", CHUNKED_HEAD "CUT" },
        { "cut in the data", CHUNKED "5\r\nab", CHUNKED_HEAD "DATA ab;CUT" },
        { "trailer", CHUNKED "0\r\nA: b\r\nC: d\r\n\r\n", CHUNKED_HEAD "END;" },
        { "trailer sets a length", CHUNKED "0\r\nContent-Length: 9\r\n\r\n" GET "\r\n",
          CHUNKED_HEAD "END;HEAD GET / n=1 none keep;END;" },
        { "malformed trailer", CHUNKED "0\r\nA : b\r\n\r\n", CHUNKED_HEAD "ERROR 400" },
        { "folded trailer", CHUNKED "0\r\nA: b\r\n c\r\n\r\n", CHUNKED_HEAD "ERROR 400" },
        { "bare LF in the trailer", CHUNKED "0\r\nA: b\n\r\n", CHUNKED_HEAD "ERROR 400" },
        { "bare LF ends", CHUNKED "0\r\n\n", CHUNKED_HEAD "ERROR 400" },
        { "CR CR LF ends", CHUNKED "0\r\n\r\r\n", CHUNKED_HEAD "CUT" },
        { "request for a trailer", CHUNKED "0\r\nGET / HTTP/1.1\r\n\r\n",
          CHUNKED_HEAD "ERROR 400" },
    };

    check_table(HTTP1_REQUEST, rows, ARRAY_SIZE(rows), false);
}

static void codings(void **state)
{
    static const struct {
        const char *field;
        const char *want;
    } rows[] = {
        { "Transfer-Encoding: CHUNKED", CHUNKED_HEAD "END;" },
        { "transfer-encoding:chunked\t", CHUNKED_HEAD "END;" },
        { "Transfer-Encoding: gzip, chunked", "ERROR 400" },
        { "Transfer-Encoding: chunked, chunked", "ERROR 400" },
        { "Transfer-Encoding: chunked,", "ERROR 400" },
        { "Transfer-Encoding: ,chunked", "ERROR 400" },
        { "Transfer-Encoding: chunked;q=1", "ERROR 400" },
        { "Transfer-Encoding: \"chunked\"", "ERROR 400" },
        { "Transfer-Encoding: xchunked", "ERROR 400" },
        { "Transfer-Encoding: chunked x", "ERROR 400" },
        { "Transfer-Encoding: chunked\x0b", "ERROR 400" },
        { "Transfer-Encoding: identity", "ERROR 400" },
        { "Transfer-Encoding:", "ERROR 400" },
        { "Transfer-Encoding: gzip", "ERROR 400" },
        { "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "ERROR 400" },
        { "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked", "ERROR 400" },
        { "Content-Length: 0\r\nTransfer-Encoding: chunked", "ERROR 400" },
    };
    static const struct row old = { "coding in 1.0",
                                    "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
                                    "ERROR 400" };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char in[512];
        struct row row = { in, in, rows[i].want };

        (void)snprintf(in, sizeof in, POST "%s\r\n\r\n0\r\n\r\n", rows[i].field);
        check_table(HTTP1_REQUEST, &row, 1, false);
    }
    check_table(HTTP1_REQUEST, &old, 1, false);
}

static void connections(void **state)
{
    static const struct row rows[] = {
        { "close", GET "Connection: close\r\n\r\n", "HEAD GET / n=2 none;END;" },
        { "close in a list", GET "Connection: x, Close\r\n\r\n", "HEAD GET / n=2 none;END;" },
        { "list without spaces", GET "Connection: x,close,y\r\n\r\n", "HEAD GET / n=2 none;END;" },
        { "close in a second field", GET "Connection: x\r\nConnection: close\r\n\r\n",
          "HEAD GET / n=3 none;END;" },
        { "1.0 keep-alive", "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
          "HEAD GET / n=1 none keep;END;" },
        { "1.0 both", "GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n",
          "HEAD GET / n=1 none;END;" },
        { "not a whole token", GET "Connection: closed\r\n\r\n", "HEAD GET / n=2 none keep;END;" },
        { "upgrade", GET "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n",
          "HEAD GET / n=3 none keep upgrade;END;" },
        { "upgrade without Connection", GET "Upgrade: websocket\r\n\r\n",
          "HEAD GET / n=2 none keep;END;" },
        { "upgrade without Upgrade", GET "Connection: upgrade\r\n\r\n",
          "HEAD GET / n=2 none keep;END;" },
        { "upgrade in 1.0", "GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
          "HEAD GET / n=2 none;END;" },
        { "upgraded bytes", GET "Connection: upgrade\r\nUpgrade: now\r\n\r\n\x81\x05GET / ",
          "HEAD GET / n=3 none keep upgrade;END;RAW \x81\x05GET / ;" },
        { "upgrade behind a body",
          POST "Connection: upgrade\r\nUpgrade: now\r\nContent-Length: 2\r\n\r\nhiraw",
          "HEAD POST / n=4 length=2 keep upgrade;DATA hi;END;RAW raw;" },
        { "Expect", POST "Expect: 100-Continue\r\nContent-Length: 1\r\n\r\nx",
          "HEAD POST / n=3 length=1 keep continue;DATA x;END;" },
        { "Expect in 1.0", "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
          "HEAD POST / n=2 length=1;DATA x;END;" },
        { "Expect as a list",
          POST "Expect: 100-continue,,100-continue\r\nContent-Length: 0\r\n\r\n",
          "HEAD POST / n=3 length=0 keep continue;END;" },
        { "empty Expect", POST "Expect:\r\n\r\n", "HEAD POST / n=2 none keep;END;" },
        { "other Expect", POST "Expect: x\r\n\r\n", "ERROR 417" },
        { "other Expect in 1.0", "POST / HTTP/1.0\r\nExpect: x\r\n\r\n", "ERROR 417" },
        { "one more Expect", POST "Expect: 100-continue, x\r\n\r\n", "ERROR 417" },
        { "another Expect", POST "Expect: 100-continue\r\nExpect: x\r\n\r\n", "ERROR 417" },
        { "malformed before all", POST "Expect: x\r\nContent-Length: x\r\n\r\n", "ERROR 400" },
    };

    check_table(HTTP1_REQUEST, rows, ARRAY_SIZE(rows), false);
}

static void responses(void **state)
{
    static const struct row rows[] = {
        { "length", OK "Content-Length: 2\r\n\r\nhi",
          "HEAD 200 OK n=1 length=2 keep;DATA hi;END;" },
        { "chunked", OK "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
          "HEAD 200 OK n=1 chunked keep;DATA hi;END;" },
        { "until close", OK "\r\nhi", "HEAD 200 OK n=0 close;DATA hi;END;" },
        { "until close, empty", OK "\r\n", "HEAD 200 OK n=0 close;END;" },
        { "cut length", OK "Content-Length: 3\r\n\r\nhi",
          "HEAD 200 OK n=1 length=3 keep;DATA hi;CUT" },
        { "cut chunks", OK "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n",
          "HEAD 200 OK n=1 chunked keep;DATA hi;CUT" },
        { "204", "HTTP/1.1 204 No Content\r\n\r\n" OK "\r\n",
          "HEAD 204 No Content n=0 none keep;END;HEAD 200 OK n=0 close;END;" },
        { "204 with a length", "HTTP/1.1 204 X\r\nContent-Length: 0\r\n\r\n",
          "HEAD 204 X n=1 none keep;END;" },
        { "204 with a coding", "HTTP/1.1 204 X\r\nTransfer-Encoding: chunked\r\n\r\n",
          "ERROR 400" },
        { "304 with a length", "HTTP/1.1 304 X\r\nContent-Length: 5\r\n\r\n",
          "HEAD 304 X n=1 none keep;END;" },
        { "interim", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" OK "Content-Length: 0\r\n\r\n",
          "HEAD 103 Early Hints n=1 none keep;END;HEAD 200 OK n=1 length=0 keep;END;" },
        { "interim with a coding", "HTTP/1.1 100 C\r\nTransfer-Encoding: chunked\r\n\r\n",
          "ERROR 400" },
        { "101", "HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: now\r\n\r\nraw",
          "HEAD 101 S n=2 none keep upgrade;END;RAW raw;" },
        { "426 is no upgrade",
          "HTTP/1.1 426 U\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 0\r\n\r\n",
          "HEAD 426 U n=3 length=0 keep;END;" },
        { "no reason", "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n",
          "HEAD 200  n=1 length=0 keep;END;" },
        { "no space behind the status", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
          "HEAD 200  n=1 length=0 keep;END;" },
        { "8-bit reason", "HTTP/1.1 200 \xc3\xa4\r\nContent-Length: 0\r\n\r\n",
          "HEAD 200 \xc3\xa4 n=1 length=0 keep;END;" },
        { "control byte in the reason", "HTTP/1.1 200 a\x02\r\n\r\n", "ERROR 400" },
        { "two digits", "HTTP/1.1 20 OK\r\n\r\n", "ERROR 400" },
        { "four digits", "HTTP/1.1 2000 OK\r\n\r\n", "ERROR 400" },
        { "status 099", "HTTP/1.1 099 OK\r\n\r\n", "ERROR 400" },
        { "status is text", "HTTP/1.1 abc OK\r\n\r\n", "ERROR 400" },
        { "HTTP/2", "HTTP/2.0 200 OK\r\n\r\n", "ERROR 505" },
        { "1.0", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi",
          "HEAD 200 OK n=1 length=2;DATA hi;END;" },
        { "1.0 coding", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "ERROR 400" },
        { "length and coding", OK "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
          "ERROR 400" },
        { "two lengths", OK "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", "ERROR 400" },
        { "gzip, chunked", OK "Transfer-Encoding: gzip, chunked\r\n\r\n", "ERROR 400" },
        { "not HTTP", "SSH-2.0-OpenSSH_9.2\r\n\r\n", "ERROR 400" },
        { "empty line first", "\r\n" OK "\r\n", "ERROR 400" },
        { "nothing", "", "" },
    };

    check_table(HTTP1_RESPONSE, rows, ARRAY_SIZE(rows), false);
}

static void responses_to_head(void **state)
{
    static const struct row rows[] = {
        { "length", OK "Content-Length: 5\r\n\r\n" OK "Content-Length: 2\r\n\r\nhi",
          "HEAD 200 OK n=1 none keep;END;HEAD 200 OK n=1 length=2 keep;DATA hi;END;" },
        { "coding", OK "Transfer-Encoding: chunked\r\n\r\n", "HEAD 200 OK n=1 none keep;END;" },
        { "neither", OK "\r\n", "HEAD 200 OK n=0 none keep;END;" },
        { "behind an interim one", "HTTP/1.1 100 C\r\n\r\n" OK "Content-Length: 5\r\n\r\n",
          "HEAD 100 C n=0 none keep;END;HEAD 200 OK n=1 none keep;END;" },
    };

    check_table(HTTP1_RESPONSE, rows, ARRAY_SIZE(rows), true);
}

/* Head of exactly `size` bytes with a filler in the target or in a field. */
static void sized(struct buf *b, size_t target, size_t size)
{
    buf_reset(b);
    (void)buf_append_str(b, "GET /");
    for (size_t i = 1; i < target; i++)
        (void)buf_append_byte(b, 'a');
    (void)buf_append_str(b, " HTTP/1.1\r\nHost: h\r\nX: ");
    while (b->len + 4 < size)
        (void)buf_append_byte(b, 'b');
    (void)buf_append_str(b, "\r\n\r\n");
}

static int outcome(struct slice in, size_t step)
{
    struct http1_parser *p = http1_parser_new(HTTP1_REQUEST);
    enum http1_event ev = HTTP1_NEED_MORE;
    int status;

    for (size_t at = 0; ev == HTTP1_NEED_MORE && at < in.n; at += step) {
        struct slice piece = slice_of(in.p + at, MIN(step, in.n - at)), data;

        ev = http1_parser_next(p, &piece, &data);
    }
    status = ev == HTTP1_HEAD    ? 200
             : ev == HTTP1_ERROR ? http1_error_status(http1_parser_error(p))
                                 : 0;
    http1_parser_free(p);
    return status;
}

static void limits_are_named(void **state)
{
    static const struct {
        size_t target, size;
        int want;
    } rows[] = {
        { 1, HTTP1_HEAD_MAX, 200 },
        { 1, HTTP1_HEAD_MAX + 1, 431 },
        { 1, 3 * HTTP1_HEAD_MAX, 431 },
        { HTTP1_TARGET_MAX, HTTP1_HEAD_MAX, 200 },
        { HTTP1_TARGET_MAX + 1, HTTP1_HEAD_MAX, 414 },
        { HTTP1_TARGET_MAX + 1, 0, 414 },
        { HTTP1_HEAD_MAX, 0, 414 },
        { 2 * HTTP1_HEAD_MAX, 0, 414 },
    };
    _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        sized(&b, rows[i].target, rows[i].size);
        assert_int_equal(outcome(buf_slice(&b), b.len), rows[i].want);
        assert_int_equal(outcome(buf_slice(&b), 1), rows[i].want);
        assert_int_equal(outcome(buf_slice(&b), 4096), rows[i].want);
    }
}

static void field_count_is_limited(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);

    for (size_t n = HTTP1_FIELDS_MAX - 1; n <= HTTP1_FIELDS_MAX; n++) {
        buf_reset(&b);
        (void)buf_append_str(&b, GET);
        for (size_t i = 0; i < n; i++)
            (void)buf_append_str(&b, "A: b\r\n");
        (void)buf_append_str(&b, "\r\n");
        assert_int_equal(outcome(buf_slice(&b), b.len), n + 1 > HTTP1_FIELDS_MAX ? 431 : 200);
    }
}

static void chunk_line_and_trailer_are_limited(void **state)
{
    for (size_t n = HTTP1_CHUNK_LINE_MAX - 3; n <= HTTP1_CHUNK_LINE_MAX; n++) {
        _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20), log = BUF_INIT(1 << 20);

        (void)buf_append_str(&b, CHUNKED "0;");
        for (size_t i = 0; i < n; i++)
            (void)buf_append_byte(&b, 'x');
        (void)buf_append_str(&b, "\r\n\r\n");
        run(HTTP1_REQUEST, buf_slice(&b), SIZE_MAX, false, true, &log);
        /* size, ';', the extension and CR count */
        test_text("chunk line", buf_cstr(&log),
                  n + 3 <= HTTP1_CHUNK_LINE_MAX ? CHUNKED_HEAD "END;" : CHUNKED_HEAD "ERROR 400");
    }
    for (size_t n = 10; n <= HTTP1_FIELDS_MAX + 1; n += HTTP1_FIELDS_MAX - 9) {
        _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20), log = BUF_INIT(1 << 20);

        (void)buf_append_str(&b, CHUNKED "0\r\n");
        for (size_t i = 0; i < n; i++)
            (void)buf_append_str(&b, "A: b\r\n");
        (void)buf_append_str(&b, "\r\n");
        run(HTTP1_REQUEST, buf_slice(&b), 0, false, true, &log);
        test_text("trailer", buf_cstr(&log),
                  n == 10 ? CHUNKED_HEAD "END;" : CHUNKED_HEAD "ERROR 431");
    }
}

static void head_is_split_and_stays(void **state)
{
    static const struct {
        const char *line, *path, *query, *host;
    } rows[] = {
        { "GET /a/b?c=d?e HTTP/1.1", "/a/b", "c=d?e", "h" },
        { "GET /? HTTP/1.1", "/", "", "h" },
        { "GET http://h:80/x?y HTTP/1.0", "/x", "y", "h:80" },
        { "GET http://h HTTP/1.1", "/", "", "h" },
        { "GET http://h?q HTTP/1.1", "/", "q", "h" },
        { "OPTIONS * HTTP/1.1", "*", "", "h" },
        { "CONNECT [::1]:2 HTTP/1.0", "[::1]:2", "", "[::1]:2" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct http1_parser *p = http1_parser_new(HTTP1_REQUEST);
        const struct http1_head *h = http1_parser_head(p);
        char text[256];
        static const char *const once[] = { "X", "Y-a", "x-A" };
        struct slice in, data;

        assert_true(http1_parser_is_idle(p));
        (void)snprintf(text, sizeof text, "%s\r\n%sY-a: 0\r\nX-a: 1\r\nx-A: 2\r\n\r\n",
                       rows[i].line, strstr(rows[i].line, "1.0") ? "" : HOST);
        in = slice_str(text);
        assert_int_equal(http1_parser_next(p, &in, &data), HTTP1_HEAD);
        assert_false(http1_parser_is_idle(p));
        memset(text, 'z', sizeof text);
        assert_int_equal(http1_parser_next(p, &in, &data), HTTP1_END);
        assert_int_equal(http1_parser_next(p, &in, &data), HTTP1_NEED_MORE);
        assert_true(http1_parser_is_idle(p));
        assert_true(slice_eq_str(h->path, rows[i].path));
        assert_true(slice_eq_str(h->query, rows[i].query));
        assert_true(slice_eq_str(h->host, rows[i].host));
        assert_true(slice_eq_str(http1_head_value(h, "X-A"), "1"));
        assert_null(http1_head_find(h, "X"));
        assert_null(http1_head_find_repeated(h, once, 2));
        assert_string_equal(http1_head_find_repeated(h, once, 3), "x-A");
        http1_parser_shrink(p);
        assert_int_equal(h->n_fields, 0);
        http1_parser_free(p);
    }
}

static void body_is_not_copied(void **state)
{
    struct http1_parser *p = http1_parser_new(HTTP1_REQUEST);
    static const char text[] = POST "Content-Length: 8\r\n\r\nabcdefgh";
    struct slice in = slice_str(text), data;

    assert_int_equal(http1_parser_next(p, &in, &data), HTTP1_HEAD);
    assert_int_equal(http1_parser_next(p, &in, &data), HTTP1_DATA);
    assert_int_equal(data.n, 8);
    assert_ptr_equal(data.p, text + sizeof text - 9);
    http1_parser_free(p);
}

static void upgrade_after_the_end(void **state)
{
    struct http1_parser *p = http1_parser_new(HTTP1_REQUEST);
    struct slice in = slice_str(GET "Connection: upgrade\r\nUpgrade: x\r\n\r\n"), data;

    assert_int_equal(http1_parser_next(p, &in, &data), HTTP1_HEAD);
    assert_int_equal(http1_parser_next(p, &in, &data), HTTP1_END);
    http1_parser_upgrade(p);
    assert_false(http1_parser_is_idle(p));
    assert_int_equal(http1_parser_next(p, &in, &data), HTTP1_NEED_MORE);
    in = slice_str("raw");
    assert_int_equal(http1_parser_next(p, &in, &data), HTTP1_UPGRADED);
    assert_true(slice_eq_str(data, "raw"));
    assert_int_equal(http1_parser_eof(p), HTTP1_NEED_MORE);
    http1_parser_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smuggling_is_refused),
        cmocka_unit_test(request_lines),
        cmocka_unit_test(hosts),
        cmocka_unit_test(host_rules),
        cmocka_unit_test(fields),
        cmocka_unit_test(lengths),
        cmocka_unit_test(chunks),
        cmocka_unit_test(codings),
        cmocka_unit_test(connections),
        cmocka_unit_test(responses),
        cmocka_unit_test(responses_to_head),
        cmocka_unit_test(limits_are_named),
        cmocka_unit_test(field_count_is_limited),
        cmocka_unit_test(chunk_line_and_trailer_are_limited),
        cmocka_unit_test(head_is_split_and_stays),
        cmocka_unit_test(body_is_not_copied),
        cmocka_unit_test(upgrade_after_the_end),
    };

    return cmocka_run_group_tests_name("http1", tests, NULL, NULL);
}
