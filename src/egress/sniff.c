/* sniff.c - see sniff.h. */
#include "egress/sniff.h"

#include <string.h>

#include "e2b/hosts.h"
#include "egress/address.h"
#include "wire/http1.h"

#define TLS_HANDSHAKE 22u
#define TLS_CLIENT_HELLO 1u
#define TLS_SERVER_NAME 0u
#define TLS_HOST_NAME 0u
#define RECORD_HEAD 5u
#define RECORD_MAX (16384u + 256u)
#define HANDSHAKE_HEAD 4u
#define METHOD_MAX 16u

/* --- names -------------------------------------------------------------------------------------- */

/* False for what is no host name: addresses, other characters. */
static bool take_name(struct slice s, char ret[SNIFF_NAME_SIZE])
{
    struct in6_addr ip;

    if (s.n > 0 && s.p[s.n - 1] == '.')
        s.n--;
    if (s.n == 0 || s.n >= SNIFF_NAME_SIZE)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        uint8_t c = s.p[i];

        if (c >= 'A' && c <= 'Z')
            c = (uint8_t)(c + 32);
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_'))
            return false;
        ret[i] = (char)c;
    }
    ret[s.n] = '\0';
    return !ip_parse(ret, &ip);
}

/* --- TLS ---------------------------------------------------------------------------------------- */

/* What is left to read; `bad` once something was missing. */
struct reader {
    struct slice s;
    bool bad;
};

static struct slice take(struct reader *r, size_t n)
{
    struct slice got = { 0 };

    if (r->bad || r->s.n < n) {
        r->bad = true;
        return got;
    }
    got = slice_of(r->s.p, n);
    r->s = slice_of(r->s.p + n, r->s.n - n);
    return got;
}

static size_t take_number(struct reader *r, size_t bytes)
{
    struct slice got = take(r, bytes);
    size_t v = 0;

    for (size_t i = 0; i < got.n; i++)
        v = v << 8 | got.p[i];
    return v;
}

/* A vector whose length has `bytes` bytes. */
static struct slice take_vector(struct reader *r, size_t bytes)
{
    return take(r, take_number(r, bytes));
}

static bool read_server_name(struct slice extension, char ret[SNIFF_NAME_SIZE])
{
    struct reader r = { .s = extension }, list;
    struct slice name;
    size_t type;

    list = (struct reader){ .s = take_vector(&r, 2) };
    type = take_number(&list, 1);
    name = take_vector(&list, 2);
    return !r.bad && !list.bad && r.s.n == 0 && list.s.n == 0 && type == TLS_HOST_NAME &&
           take_name(name, ret);
}

static enum sniff read_hello(struct slice hello, char ret[SNIFF_NAME_SIZE])
{
    struct reader r = { .s = hello }, extensions;
    bool has_name = false;

    (void)take(&r, 2 + 32); /* version, random */
    (void)take_vector(&r, 1);
    (void)take_vector(&r, 2);
    (void)take_vector(&r, 1);
    extensions = (struct reader){ .s = take_vector(&r, 2), .bad = r.bad };
    while (!extensions.bad && extensions.s.n > 0) {
        size_t type = take_number(&extensions, 2);
        struct slice body = take_vector(&extensions, 2);

        if (extensions.bad || type != TLS_SERVER_NAME)
            continue;
        if (has_name || !read_server_name(body, ret))
            return SNIFF_HIDDEN;
        has_name = true;
    }
    return has_name && !extensions.bad && r.s.n == 0 ? SNIFF_NAME : SNIFF_HIDDEN;
}

/* The first handshake message, which may lie in several records. */
static enum sniff sniff_tls(struct slice head, char ret[SNIFF_NAME_SIZE])
{
    static uint8_t message[SNIFF_MAX];
    size_t n = 0;

    while (head.n >= RECORD_HEAD) {
        size_t size = (size_t)head.p[3] << 8 | head.p[4], here, want;

        if (head.p[0] != TLS_HANDSHAKE || head.p[1] != 3 || size == 0 || size > RECORD_MAX)
            return SNIFF_HIDDEN;
        here = head.n - RECORD_HEAD < size ? head.n - RECORD_HEAD : size;
        if (here > sizeof message - n)
            return SNIFF_HIDDEN;
        memcpy(message + n, head.p + RECORD_HEAD, here);
        n += here;
        if (n > 0 && message[0] != TLS_CLIENT_HELLO)
            return SNIFF_HIDDEN;
        if (n >= HANDSHAKE_HEAD) {
            want = (size_t)message[1] << 16 | (size_t)message[2] << 8 | message[3];
            if (want > sizeof message - HANDSHAKE_HEAD)
                return SNIFF_HIDDEN;
            if (n - HANDSHAKE_HEAD >= want)
                return read_hello(slice_of(message + HANDSHAKE_HEAD, want), ret);
        }
        head = slice_of(head.p + RECORD_HEAD + here, head.n - RECORD_HEAD - here);
        if (here < size)
            break;
    }
    return SNIFF_MORE;
}

/* --- HTTP --------------------------------------------------------------------------------------- */

static enum sniff read_request(const struct http1_head *head, char ret[SNIFF_NAME_SIZE])
{
    struct slice host = host_name(head->host);

    if (!take_name(host, ret))
        return SNIFF_HIDDEN;
    /* A proxy's request names a server of its own. */
    if (slice_eq_str(head->method, "CONNECT") && !slice_ieq(host_name(head->target), host))
        return SNIFF_HIDDEN;
    return SNIFF_NAME;
}

static enum sniff sniff_http(struct slice head, char ret[SNIFF_NAME_SIZE])
{
    _cleanup_(http1_parser_freep) struct http1_parser *p = http1_parser_new(HTTP1_REQUEST);
    struct slice data;

    if (!p)
        return SNIFF_HIDDEN;
    switch (http1_parser_next(p, &head, &data)) {
    case HTTP1_NEED_MORE:
        return SNIFF_MORE;
    case HTTP1_HEAD:
        return read_request(http1_parser_head(p), ret);
    case HTTP1_DATA:
    case HTTP1_END:
    case HTTP1_UPGRADED:
    case HTTP1_ERROR:
        break;
    }
    return SNIFF_HIDDEN;
}

/* Does it begin like "METHOD target HTTP/": MORE when that cannot be said yet, NAME when it does. */
static enum sniff looks_like_http(struct slice head)
{
    const uint8_t *end = memchr(head.p, '\n', head.n);
    struct slice line = slice_of(head.p, end ? (size_t)(end - head.p) : head.n);
    size_t n = 0;

    while (n < line.n && n < METHOD_MAX && line.p[n] >= 'A' && line.p[n] <= 'Z')
        n++;
    if (n < line.n && (n == 0 || line.p[n] != ' '))
        return SNIFF_UNKNOWN;
    if (!end)
        return SNIFF_MORE;
    return memmem(line.p, line.n, " HTTP/", 6) ? SNIFF_NAME : SNIFF_UNKNOWN;
}

enum sniff sniff(struct slice head, char ret_name[SNIFF_NAME_SIZE])
{
    enum sniff s;

    if (head.n == 0)
        return SNIFF_MORE;
    if (head.p[0] == TLS_HANDSHAKE) {
        s = sniff_tls(head, ret_name);
    } else {
        s = looks_like_http(head);
        if (s == SNIFF_NAME)
            s = sniff_http(head, ret_name);
    }
    return s == SNIFF_MORE && head.n >= SNIFF_MAX ? SNIFF_HIDDEN : s;
}
