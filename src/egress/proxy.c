/* proxy.c - see proxy.h. */
#include "egress/proxy.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

#define SOCKS_VERSION 5u
#define SOCKS_NO_AUTH 0u
#define SOCKS_PASSWORD 2u
#define SOCKS_PASSWORD_VERSION 1u
#define SOCKS_CONNECT 1u
#define SOCKS_IPV4 1u
#define SOCKS_NAME 3u
#define SOCKS_IPV6 4u

/* --- its address -------------------------------------------------------------------------------- */

static bool take_word(struct slice s, char to[PROXY_WORD_SIZE])
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(PROXY_WORD_SIZE - 1);

    if (!percent_decode(&b, s, false))
        return false;
    if (b.len > 0)
        memcpy(to, buf_data(&b), b.len);
    to[b.len] = '\0';
    return true;
}

static bool take_credentials(const char *from, const char *to, struct proxy *p)
{
    const char *colon = memchr(from, ':', (size_t)(to - from));
    const char *end = colon ? colon : to;

    return take_word(slice_of(from, (size_t)(end - from)), p->user) &&
           (!colon || take_word(slice_of(colon + 1, (size_t)(to - colon - 1)), p->password));
}

static bool is_host_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_';
}

static bool take_host(const char *host, size_t n, struct proxy *p)
{
    struct in6_addr ip;
    bool is_v6 = n > 2 && host[0] == '[' && host[n - 1] == ']';

    if (is_v6) {
        host++;
        n -= 2;
    }
    if (n == 0 || n >= sizeof p->host)
        return false;
    memcpy(p->host, host, n);
    p->host[n] = '\0';
    if (is_v6)
        return ip_parse(p->host, &ip);
    for (size_t i = 0; i < n; i++)
        if (!is_host_char(host[i]))
            return false;
    return true;
}

bool proxy_parse(const char *text, enum proxy_kind kind, struct proxy *ret)
{
    struct proxy p = { .kind = kind };
    const char *at, *colon;
    uint64_t port;
    size_t n;

    if (strncmp(text, "http://", 7) == 0) {
        p.kind = PROXY_HTTP;
        text += 7;
    } else if (strncmp(text, "socks5://", 9) == 0 || strncmp(text, "socks5h://", 10) == 0) {
        p.kind = PROXY_SOCKS5;
        text = strstr(text, "://") + 3;
    }
    at = strrchr(text, '@');
    if (at && !take_credentials(text, at, &p))
        return false;
    text = at ? at + 1 : text;
    colon = strrchr(text, ':');
    if (!colon || !take_host(text, (size_t)(colon - text), &p))
        return false;
    text = colon + 1;
    n = strcspn(text, "/");
    if (!str_parse_u64(slice_of(text, n), UINT16_MAX, &port) || port == 0 ||
        (text[n] != '\0' && strcmp(text + n, "/") != 0))
        return false;
    p.port = (uint16_t)port;
    *ret = p;
    return true;
}

/* --- HTTP --------------------------------------------------------------------------------------- */

static enum buf_status put_connect(const struct proxy_talk *t, struct buf *out)
{
    char to[ADDRESS_TEXT_SIZE], pair[2 * PROXY_WORD_SIZE];
    enum buf_status s;

    address_format(&t->to, to);
    s = buf_printf(out, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", to, to);
    if (s == BUF_OK && t->proxy->user[0]) {
        (void)snprintf(pair, sizeof pair, "%s:%s", t->proxy->user, t->proxy->password);
        s = buf_append_str(out, "Proxy-Authorization: Basic ");
        if (s == BUF_OK)
            s = base64_encode(out, slice_str(pair), true);
        if (s == BUF_OK)
            s = buf_append_str(out, "\r\n");
        explicit_bzero(pair, sizeof pair);
    }
    return s == BUF_OK ? buf_append_str(out, "\r\n") : s;
}

/* Three digits; 0 without. What else a proxy says is its own text, and no one's log. */
static unsigned read_status(struct slice in)
{
    unsigned status = 0;

    if (in.n < 12 || !slice_starts_with(in, "HTTP/1."))
        return 0;
    for (size_t i = 9; i < 12; i++) {
        if (in.p[i] < '0' || in.p[i] > '9')
            return 0;
        status = status * 10 + (in.p[i] - '0');
    }
    return status;
}

static enum proxy_step read_connect(struct slice in, size_t *used, char why[PROXY_WHY_SIZE])
{
    unsigned status = read_status(in);
    const uint8_t *end = in.n > 0 ? memmem(in.p, in.n, "\r\n\r\n", 4) : NULL;

    if (!end)
        return PROXY_MORE;
    *used = (size_t)(end - in.p) + 4;
    if (status / 100 == 2)
        return PROXY_DONE;
    if (status == 0)
        (void)snprintf(why, PROXY_WHY_SIZE, "the proxy does not speak HTTP");
    else
        (void)snprintf(why, PROXY_WHY_SIZE, "the proxy answers %u", status);
    return PROXY_FAILED;
}

/* --- SOCKS5 ------------------------------------------------------------------------------------- */

enum { STEP_BEGIN, STEP_METHOD, STEP_PASSWORD, STEP_REPLY };

static enum buf_status put_greeting(const struct proxy_talk *t, struct buf *out)
{
    const uint8_t hello[] = { SOCKS_VERSION, 1,
                              t->proxy->user[0] ? SOCKS_PASSWORD : SOCKS_NO_AUTH };

    return buf_append(out, hello, sizeof hello);
}

static enum buf_status put_password(const struct proxy_talk *t, struct buf *out)
{
    const char *words[] = { t->proxy->user, t->proxy->password };
    enum buf_status s = buf_append_byte(out, SOCKS_PASSWORD_VERSION);

    for (size_t i = 0; i < 2; i++) {
        if (s == BUF_OK)
            s = buf_append_byte(out, (uint8_t)strlen(words[i]));
        if (s == BUF_OK)
            s = buf_append_str(out, words[i]);
    }
    return s;
}

static enum buf_status put_request(const struct proxy_talk *t, struct buf *out)
{
    bool is_v4 = ip_is_v4(&t->to.ip);
    const uint8_t head[] = { SOCKS_VERSION, SOCKS_CONNECT, 0, is_v4 ? SOCKS_IPV4 : SOCKS_IPV6 };
    const uint8_t port[] = { (uint8_t)(t->to.port >> 8), (uint8_t)t->to.port };
    enum buf_status s = buf_append(out, head, sizeof head);

    if (s == BUF_OK)
        s = is_v4 ? buf_append(out, &t->to.ip.s6_addr[12], 4) : buf_append(out, &t->to.ip, 16);
    return s == BUF_OK ? buf_append(out, port, sizeof port) : s;
}

static enum proxy_step fail(const char *what, unsigned code, char why[PROXY_WHY_SIZE])
{
    (void)snprintf(why, PROXY_WHY_SIZE, "the proxy %s (%u)", what, code);
    return PROXY_FAILED;
}

static enum proxy_step read_reply(struct slice in, size_t *used, char why[PROXY_WHY_SIZE])
{
    size_t n = 4;

    if (in.n < 5)
        return PROXY_MORE;
    if (in.p[0] != SOCKS_VERSION)
        return fail("does not speak SOCKS5", in.p[0], why);
    if (in.p[1] != 0)
        return fail("refuses the connection", in.p[1], why);
    n += in.p[3] == SOCKS_IPV4 ? 4u : in.p[3] == SOCKS_IPV6 ? 16u : 1u + in.p[4];
    if (in.n < n + 2)
        return PROXY_MORE;
    *used = n + 2;
    return PROXY_DONE;
}

static enum proxy_step next_socks(struct proxy_talk *t, struct slice in, size_t *used,
                                  struct buf *out, char why[PROXY_WHY_SIZE])
{
    enum buf_status s;

    if (t->step == STEP_REPLY)
        return read_reply(in, used, why);
    if (t->step == STEP_BEGIN) {
        t->step = STEP_METHOD;
        return put_greeting(t, out) == BUF_OK ? PROXY_SEND : PROXY_FAILED;
    }
    if (in.n < 2)
        return PROXY_MORE;
    *used = 2;
    if (t->step == STEP_PASSWORD && in.p[1] != 0)
        return fail("refuses user and password", in.p[1], why);
    if (t->step == STEP_METHOD && in.p[0] != SOCKS_VERSION)
        return fail("does not speak SOCKS5", in.p[0], why);
    if (t->step == STEP_METHOD && in.p[1] == SOCKS_PASSWORD && t->proxy->user[0]) {
        t->step = STEP_PASSWORD;
        return put_password(t, out) == BUF_OK ? PROXY_SEND : PROXY_FAILED;
    }
    if (t->step == STEP_METHOD && in.p[1] != SOCKS_NO_AUTH)
        return fail("wants another authentication", in.p[1], why);
    t->step = STEP_REPLY;
    s = put_request(t, out);
    return s == BUF_OK ? PROXY_SEND : PROXY_FAILED;
}

enum proxy_step proxy_next(struct proxy_talk *t, struct slice in, size_t *ret_used, struct buf *out,
                           char ret_why[PROXY_WHY_SIZE])
{
    *ret_used = 0;
    ret_why[0] = '\0';
    if (t->proxy->kind == PROXY_SOCKS5)
        return next_socks(t, in, ret_used, out, ret_why);
    if (t->step != STEP_BEGIN)
        return read_connect(in, ret_used, ret_why);
    t->step = STEP_REPLY;
    return put_connect(t, out) == BUF_OK ? PROXY_SEND : PROXY_FAILED;
}
