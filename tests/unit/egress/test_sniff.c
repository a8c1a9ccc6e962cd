/* test_sniff.c - names in the first bytes of connections. */
#include "test.h"

#include "egress/sniff.h"

/* A ClientHello in records of at most `piece` bytes, with the extensions given. */
static struct slice hello(const uint8_t *extensions, size_t n, size_t piece)
{
    static uint8_t out[2048];
    uint8_t body[1024] = { 3, 3 };
    size_t at = 34, message, done = 0, size = 0;

    body[at++] = 0;                                            /* session */
    memcpy(body + at, "\x00\x02\x13\x01\x01\x00", 6), at += 6; /* ciphers, compression */
    body[at++] = (uint8_t)(n >> 8), body[at++] = (uint8_t)n;
    memcpy(body + at, extensions, n), at += n;
    memmove(body + 4, body, at);
    memcpy(body, (uint8_t[]){ 1, 0, (uint8_t)(at >> 8), (uint8_t)at }, 4);
    message = at + 4;
    while (done < message) {
        size_t now = MIN(piece, message - done);

        memcpy(out + size, (uint8_t[]){ 22, 3, 1, (uint8_t)(now >> 8), (uint8_t)now }, 5);
        memcpy(out + size + 5, body + done, now);
        size += 5 + now;
        done += now;
    }
    return slice_of(out, size);
}

#define SNI                                                                                        \
    "\x00\x00\x00\x0a\x00\x08\x00\x00\x05"                                                         \
    "A.org"
#define OTHER "\x00\x17\x00\x00"

static void server_name_is_found(void **state)
{
    static const size_t pieces[] = { 2000, 40, 7, 1 };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
        struct slice s =
            hello((const uint8_t *)OTHER SNI OTHER, sizeof(OTHER SNI OTHER) - 1, pieces[i]);
        char name[SNIFF_NAME_SIZE] = "";

        for (size_t n = 0; n < s.n; n++) {
            uint8_t *copy = test_exact(slice_of(s.p, n));

            if (sniff(slice_of(copy, n), name) != SNIFF_MORE)
                fail_msg("said something after %zu of %zu bytes", n, s.n);
            free(copy);
        }
        assert_int_equal(sniff(s, name), SNIFF_NAME);
        assert_string_equal(name, "a.org");
    }
}

static void tls_without_one_name_is_hidden(void **state)
{
    static const struct {
        const char *what;
        struct slice extensions;
    } rows[] = {
        { "no name", SLICE_LIT(OTHER) },
        { "no extension", SLICE_LIT("") },
        { "twice", SLICE_LIT(SNI SNI) },
        { "two in one", SLICE_LIT("\x00\x00\x00\x12\x00\x10\x00\x00\x05"
                                  "a.org\x00\x00\x05"
                                  "b.org") },
        { "of another type", SLICE_LIT("\x00\x00\x00\x0a\x00\x08\x01\x00\x05"
                                       "a.org") },
        { "an address", SLICE_LIT("\x00\x00\x00\x0c\x00\x0a\x00\x00\x07"
                                  "1.2.3.4") },
        { "a NUL in it", SLICE_LIT("\x00\x00\x00\x0a\x00\x08\x00\x00\x05"
                                   "a\x00org") },
        { "empty", SLICE_LIT("\x00\x00\x00\x05\x00\x03\x00\x00\x00") },
        { "cut off", SLICE_LIT("\x00\x00\x00\x0a\x00\x08\x00\x00\x06"
                               "a.org") },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char name[SNIFF_NAME_SIZE];

        if (sniff(hello(rows[i].extensions.p, rows[i].extensions.n, 2000), name) != SNIFF_HIDDEN)
            fail_msg("%s", rows[i].what);
    }
}

static void text_is_told_apart(void **state)
{
    static const struct {
        const char *text;
        enum sniff want;
        const char *name;
    } rows[] = {
        { "GET / HTTP/1.1\r\nHost: A.org:8080\r\n\r\n", SNIFF_NAME, "a.org" },
        { "GET / HTTP/1.1\r\nhost: a.org.\r\n\r\n", SNIFF_NAME, "a.org" },
        { "GET http://a.org/x HTTP/1.1\r\nHost: a.org\r\n\r\n", SNIFF_NAME, "a.org" },
        { "CONNECT a.org:443 HTTP/1.1\r\nHost: a.org:443\r\n\r\n", SNIFF_NAME, "a.org" },
        { "GET / HTTP/1.1\r\nHost: a.org\r\n", SNIFF_MORE, NULL },
        { "GE", SNIFF_MORE, NULL },
        { "GET http://b.org/x HTTP/1.1\r\nHost: a.org\r\n\r\n", SNIFF_HIDDEN, NULL },
        { "CONNECT b.org:443 HTTP/1.1\r\nHost: a.org\r\n\r\n", SNIFF_HIDDEN, NULL },
        { "GET / HTTP/1.1\r\nHost: a.org\r\nHost: b.org\r\n\r\n", SNIFF_HIDDEN, NULL },
        { "GET / HTTP/1.1\r\nHost : a.org\r\n\r\n", SNIFF_HIDDEN, NULL },
        { "GET / HTTP/1.1\nHost: a.org\n\n", SNIFF_HIDDEN, NULL },
        { "GET / HTTP/1.0\r\n\r\n", SNIFF_HIDDEN, NULL },
        { "GET / HTTP/1.1\r\nHost: 1.2.3.4\r\n\r\n", SNIFF_HIDDEN, NULL },
        { "GET / HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n\r\n", SNIFF_HIDDEN, NULL },
        { "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", SNIFF_HIDDEN, NULL },
        { "SSH-2.0-OpenSSH_9.2\r\n", SNIFF_UNKNOWN, NULL },
        { "EHLO a.org\r\n", SNIFF_UNKNOWN, NULL },
        { "PING\r\n", SNIFF_UNKNOWN, NULL },
        { "\x01\x02", SNIFF_UNKNOWN, NULL },
        { "", SNIFF_MORE, NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint8_t *copy = test_exact(slice_str(rows[i].text));
        char name[SNIFF_NAME_SIZE] = "";

        if (sniff(slice_of(copy, strlen(rows[i].text)), name) != rows[i].want)
            fail_msg("%s", rows[i].text);
        if (rows[i].name)
            test_text(rows[i].text, name, rows[i].name);
        free(copy);
    }
}

static void what_never_says_is_hidden(void **state)
{
    static uint8_t head[SNIFF_MAX];
    char name[SNIFF_NAME_SIZE];

    (void)state;
    memset(head, 'a', sizeof head);
    memcpy(head, "GET / HTTP/1.1\r\nX: ", 19);
    assert_int_equal(sniff(slice_of(head, sizeof head - 1), name), SNIFF_MORE);
    assert_int_equal(sniff(slice_of(head, sizeof head), name), SNIFF_HIDDEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(server_name_is_found),
        cmocka_unit_test(tls_without_one_name_is_hidden),
        cmocka_unit_test(text_is_told_apart),
        cmocka_unit_test(what_never_says_is_hidden),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
