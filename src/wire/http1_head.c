/* http1_head.c - request lines, status lines, fields and what follows from them (RFC 9112 2-6).
 *
 * Works on whole heads, so that a head is parsed once and the events do not depend on how its bytes
 * arrived. Nothing is allocated; slices point into the head.
 */
#include "wire/http1_head.h"

#include "base/str.h"

/* tchar of RFC 9110 5.6.2. */
const uint8_t http1_token_chars[256] = {
    ['!'] = 1,         ['#' ... '\''] = 1, ['*'] = 1,         ['+'] = 1, ['-'] = 1,
    ['.'] = 1,         ['0' ... '9'] = 1,  ['A' ... 'Z'] = 1, ['^'] = 1, ['_'] = 1,
    ['`' ... 'z'] = 1, ['|'] = 1,          ['~'] = 1,
};

/* What the fields said, gathered while they are parsed. */
struct seen {
    struct slice host;
    struct slice length;
    struct slice coding;
    unsigned n_host, n_length, n_coding;
    bool has_close, has_keep_alive, has_upgrade_token, has_upgrade, has_continue, expects_other;
};

bool http1_is_token(struct slice s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!http1_is_token_char(s.p[i]))
            return false;
    return s.n > 0;
}

/* Eight bytes at once: is one of them below 0x20 or 0x7f? (Also true for HTAB.) */
static inline bool word_has_control(uint64_t w)
{
    const uint64_t ones = UINT64_MAX / 255, tops = ones * 0x80;
    uint64_t d = w ^ ones * 0x7f;

    return (((w - ones * 0x20) & ~w) | ((d - ones) & ~d)) & tops;
}

static inline bool is_control(uint8_t c)
{
    return (c < 0x20 && c != '\t') || c == 0x7f;
}

bool http1_is_value(struct slice s)
{
    size_t i = 0;

    while (i < s.n) {
        uint64_t w;

        if (s.n - i >= sizeof w) {
            memcpy(&w, s.p + i, sizeof w);
            if (!word_has_control(w)) {
                i += sizeof w;
                continue;
            }
        }
        if (is_control(s.p[i]))
            return false;
        i++;
    }
    return true;
}

bool http1_is_target(struct slice s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < 0x21 || s.p[i] > 0x7e || s.p[i] == '#')
            return false;
    return s.n > 0;
}

/* Takes the line at *rest without its CRLF. */
static bool line_take(struct slice *rest, struct slice *ret)
{
    const uint8_t *lf = rest->n ? memchr(rest->p, '\n', rest->n) : NULL;
    size_t n;

    if (!lf || lf == rest->p || lf[-1] != '\r')
        return false;
    n = (size_t)(lf - rest->p) + 1;
    *ret = slice_of(rest->p, n - 2);
    *rest = slice_of(rest->p + n, rest->n - n);
    return true;
}

/* "HTTP/1.0" or "HTTP/1.1". */
static enum http1_error version_parse(struct slice s, int *ret_minor)
{
    if (s.n != 8 || memcmp(s.p, "HTTP/", 5) != 0 || s.p[5] < '0' || s.p[5] > '9' || s.p[6] != '.' ||
        s.p[7] < '0' || s.p[7] > '9')
        return HTTP1_ERR_SYNTAX;
    if (s.p[5] != '1' || s.p[7] > '1')
        return HTTP1_ERR_VERSION;
    *ret_minor = s.p[7] - '0';
    return HTTP1_ERR_NONE;
}

static bool is_alnum(uint8_t c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

static bool is_host_char(uint8_t c)
{
    return is_alnum(c) || c == '-' || c == '.' || c == '_' || c == '~';
}

static bool is_ip6_char(uint8_t c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') || c == ':' ||
           c == '.';
}

/* host [":" port]: a name, an IPv4 address or an IPv6 address in brackets; no user info. */
static bool authority_is_valid(struct slice s)
{
    size_t i = 0;

    if (s.n > 0 && s.p[0] == '[') {
        for (i = 1; i < s.n && is_ip6_char(s.p[i]); i++)
            ;
        if (i < 3 || i == s.n || s.p[i] != ']')
            return false;
        i++;
    } else {
        while (i < s.n && is_host_char(s.p[i]))
            i++;
        if (i == 0)
            return false;
    }
    if (i < s.n && s.p[i++] != ':')
        return false;
    if (s.n - i > 5)
        return false;
    for (; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    return true;
}

/* Length of "scheme://" at the start of an absolute-form target, 0 if there is none. */
static size_t scheme_length(struct slice s)
{
    size_t i = 0;

    if (s.n == 0 || !is_alnum(s.p[0]) || s.p[0] <= '9')
        return 0;
    while (i < s.n && (is_alnum(s.p[i]) || s.p[i] == '+' || s.p[i] == '-' || s.p[i] == '.'))
        i++;
    return s.n - i >= 3 && memcmp(s.p + i, "://", 3) == 0 ? i + 3 : 0;
}

static void query_split(struct http1_head *h)
{
    const uint8_t *q = h->path.n ? memchr(h->path.p, '?', h->path.n) : NULL;

    if (!q)
        return;
    h->query = slice_of(q + 1, h->path.n - (size_t)(q - h->path.p) - 1);
    h->path.n = (size_t)(q - h->path.p);
}

/* The four forms of RFC 9112 3.2. Sets path and query, and host for forms with an authority. */
static enum http1_error target_parse(struct http1_head *h)
{
    struct slice t = h->target;
    size_t scheme, end;

    h->path = t;
    if (slice_eq_str(h->method, "CONNECT")) {
        h->host = t;
        return authority_is_valid(t) && memchr(t.p, ':', t.n) ? HTTP1_ERR_NONE : HTTP1_ERR_SYNTAX;
    }
    if (t.p[0] == '/') {
        query_split(h);
        return HTTP1_ERR_NONE;
    }
    if (t.n == 1 && t.p[0] == '*')
        return slice_eq_str(h->method, "OPTIONS") ? HTTP1_ERR_NONE : HTTP1_ERR_SYNTAX;
    scheme = scheme_length(t);
    if (scheme == 0)
        return HTTP1_ERR_SYNTAX;
    for (end = scheme; end < t.n && t.p[end] != '/' && t.p[end] != '?'; end++)
        ;
    h->host = slice_of(t.p + scheme, end - scheme);
    h->path = slice_of(t.p + end, t.n - end);
    query_split(h);
    if (h->path.n == 0)
        h->path = SLICE_LIT("/");
    return authority_is_valid(h->host) ? HTTP1_ERR_NONE : HTTP1_ERR_HOST;
}

static enum http1_error request_line_parse(struct slice line, struct http1_head *h)
{
    const uint8_t *sp = line.n ? memchr(line.p, ' ', line.n) : NULL;
    struct slice rest;
    enum http1_error e;

    if (!sp)
        return HTTP1_ERR_SYNTAX;
    h->method = slice_of(line.p, (size_t)(sp - line.p));
    rest = slice_of(sp + 1, line.n - h->method.n - 1);
    sp = rest.n ? memchr(rest.p, ' ', rest.n) : NULL;
    if (!sp)
        return HTTP1_ERR_SYNTAX;
    h->target = slice_of(rest.p, (size_t)(sp - rest.p));
    if (!http1_is_token(h->method))
        return HTTP1_ERR_SYNTAX;
    if (h->target.n > HTTP1_TARGET_MAX)
        return HTTP1_ERR_TARGET_LARGE;
    if (!http1_is_target(h->target))
        return HTTP1_ERR_SYNTAX;
    e = version_parse(slice_of(sp + 1, rest.n - h->target.n - 1), &h->minor);
    return e ? e : target_parse(h);
}

static enum http1_error status_line_parse(struct slice line, struct http1_head *h)
{
    enum http1_error e;
    uint64_t status;

    if (line.n < 12 || line.p[8] != ' ')
        return HTTP1_ERR_SYNTAX;
    e = version_parse(slice_of(line.p, 8), &h->minor);
    if (e)
        return e;
    if (!str_parse_u64(slice_of(line.p + 9, 3), 999, &status) || status < 100)
        return HTTP1_ERR_SYNTAX;
    h->status = (int)status;
    if (line.n > 12 && line.p[12] != ' ')
        return HTTP1_ERR_SYNTAX;
    if (line.n > 13)
        h->reason = slice_of(line.p + 13, line.n - 13);
    return http1_is_value(h->reason) ? HTTP1_ERR_NONE : HTTP1_ERR_SYNTAX;
}

static enum http1_error field_parse(struct slice line, struct http1_field *f)
{
    size_t i = 0;

    while (i < line.n && http1_is_token_char(line.p[i]))
        i++;
    if (i == 0 || i == line.n || line.p[i] != ':')
        return HTTP1_ERR_SYNTAX;
    f->name = slice_of(line.p, i);
    f->value = slice_trim(slice_of(line.p + i + 1, line.n - i - 1));
    return http1_is_value(f->value) ? HTTP1_ERR_NONE : HTTP1_ERR_SYNTAX;
}

/* Calls for each element of a comma-separated list. */
static bool list_next(struct slice *list, struct slice *ret)
{
    while (list->n > 0) {
        const uint8_t *comma = memchr(list->p, ',', list->n);
        size_t n = comma ? (size_t)(comma - list->p) : list->n;

        *ret = slice_trim(slice_of(list->p, n));
        n = MIN(n + 1, list->n);
        *list = slice_of(list->p + n, list->n - n);
        if (ret->n > 0)
            return true;
    }
    return false;
}

bool http1_list_has(struct slice list, struct slice token)
{
    struct slice item;

    while (list_next(&list, &item))
        if (slice_ieq(item, token))
            return true;
    return false;
}

static void connection_note(struct slice list, struct seen *s)
{
    struct slice item;

    while (list_next(&list, &item)) {
        s->has_close |= slice_ieq_str(item, "close");
        s->has_keep_alive |= slice_ieq_str(item, "keep-alive");
        s->has_upgrade_token |= slice_ieq_str(item, "upgrade");
    }
}

static void expect_note(struct slice list, struct seen *s)
{
    struct slice item;

    while (list_next(&list, &item)) {
        bool is_continue = slice_ieq_str(item, "100-continue");

        s->has_continue |= is_continue;
        s->expects_other |= !is_continue;
    }
}

/* Looks at the name's length first: most fields are none of these. */
static void field_note(const struct http1_field *f, struct seen *s)
{
    switch (f->name.n) {
    case 4:
        if (slice_ieq_str(f->name, "Host")) {
            s->host = f->value;
            s->n_host++;
        }
        break;
    case 6:
        if (slice_ieq_str(f->name, "Expect"))
            expect_note(f->value, s);
        break;
    case 7:
        if (slice_ieq_str(f->name, "Upgrade"))
            s->has_upgrade |= f->value.n > 0;
        break;
    case 10:
        if (slice_ieq_str(f->name, "Connection"))
            connection_note(f->value, s);
        break;
    case 14:
        if (slice_ieq_str(f->name, "Content-Length")) {
            s->length = f->value;
            s->n_length++;
        }
        break;
    case 17:
        if (slice_ieq_str(f->name, "Transfer-Encoding")) {
            s->coding = f->value;
            s->n_coding++;
        }
        break;
    default:
        break;
    }
}

static enum http1_error fields_parse(struct slice rest, struct http1_head *h, struct seen *s)
{
    for (;;) {
        struct http1_field *f = &h->fields[h->n_fields];
        enum http1_error e;
        struct slice line;

        if (!line_take(&rest, &line))
            return HTTP1_ERR_SYNTAX;
        if (line.n == 0)
            return rest.n == 0 ? HTTP1_ERR_NONE : HTTP1_ERR_SYNTAX;
        if (h->n_fields == HTTP1_FIELDS_MAX)
            return HTTP1_ERR_HEAD_LARGE;
        e = field_parse(line, f);
        if (e)
            return e;
        field_note(f, s);
        h->n_fields++;
    }
}

static enum http1_error host_decide(const struct seen *s, struct http1_head *h)
{
    if (s->n_host > 1 || (s->n_host == 0 && h->minor == 1))
        return HTTP1_ERR_HOST;
    if (s->host.n > 0 && !authority_is_valid(s->host))
        return HTTP1_ERR_HOST;
    if (h->host.n == 0)
        h->host = s->host;
    else if (s->n_host == 1 && !slice_ieq(h->host, s->host))
        return HTTP1_ERR_HOST;
    return HTTP1_ERR_NONE;
}

/* RFC 9112 6.3 without its tolerances. */
static enum http1_error framing_decide(enum http1_kind kind, const struct seen *s, bool no_body,
                                       struct http1_head *h)
{
    bool never_has_body = kind == HTTP1_RESPONSE && (h->status < 200 || h->status == 204);

    if (s->n_length > 1 || s->n_coding > 1 || (s->n_length > 0 && s->n_coding > 0))
        return HTTP1_ERR_FRAMING;
    if (s->n_coding > 0 &&
        (h->minor == 0 || never_has_body || !slice_ieq_str(s->coding, "chunked")))
        return HTTP1_ERR_FRAMING;
    if (s->n_length > 0 && !str_parse_u64(s->length, INT64_MAX, &h->content_length))
        return HTTP1_ERR_FRAMING;
    if (no_body || never_has_body || (kind == HTTP1_RESPONSE && h->status == 304))
        h->framing = HTTP1_BODY_NONE;
    else if (s->n_coding > 0)
        h->framing = HTTP1_BODY_CHUNKED;
    else if (s->n_length > 0)
        h->framing = HTTP1_BODY_LENGTH;
    else
        h->framing = kind == HTTP1_REQUEST ? HTTP1_BODY_NONE : HTTP1_BODY_UNTIL_CLOSE;
    if (h->framing != HTTP1_BODY_LENGTH)
        h->content_length = 0;
    return HTTP1_ERR_NONE;
}

enum http1_error http1_head_parse(enum http1_kind kind, struct slice bytes, bool no_body,
                                  struct http1_head *h)
{
    struct seen s = { 0 };
    struct slice line;
    enum http1_error e;

    *h = (struct http1_head){ .fields = h->fields };
    if (!line_take(&bytes, &line))
        return HTTP1_ERR_SYNTAX;
    e = kind == HTTP1_REQUEST ? request_line_parse(line, h) : status_line_parse(line, h);
    if (!e)
        e = fields_parse(bytes, h, &s);
    if (!e && kind == HTTP1_REQUEST)
        e = host_decide(&s, h);
    if (!e)
        e = framing_decide(kind, &s, no_body, h);
    if (!e && kind == HTTP1_REQUEST && s.expects_other)
        e = HTTP1_ERR_EXPECT;
    if (e)
        return e;
    h->keep_alive =
        !s.has_close && (h->minor == 1 || s.has_keep_alive) && h->framing != HTTP1_BODY_UNTIL_CLOSE;
    h->is_upgrade = h->minor == 1 && s.has_upgrade_token && s.has_upgrade &&
                    (kind == HTTP1_REQUEST || h->status == 101);
    if (kind == HTTP1_REQUEST) {
        h->is_upgrade |= slice_eq_str(h->method, "CONNECT");
        h->expects_continue = h->minor == 1 && s.has_continue;
    }
    return HTTP1_ERR_NONE;
}

enum http1_error http1_trailer_check(struct slice bytes)
{
    struct http1_field f;
    struct slice line;

    for (size_t n = 0;; n++) {
        if (!line_take(&bytes, &line))
            return HTTP1_ERR_SYNTAX;
        if (line.n == 0)
            return bytes.n == 0 ? HTTP1_ERR_NONE : HTTP1_ERR_SYNTAX;
        if (n == HTTP1_FIELDS_MAX)
            return HTTP1_ERR_HEAD_LARGE;
        if (field_parse(line, &f) != HTTP1_ERR_NONE)
            return HTTP1_ERR_SYNTAX;
    }
}

const struct http1_field *http1_head_find(const struct http1_head *head, const char *name)
{
    struct slice wanted = slice_str(name);

    for (size_t i = 0; i < head->n_fields; i++)
        if (head->fields[i].name.n == wanted.n && slice_ieq(head->fields[i].name, wanted))
            return &head->fields[i];
    return NULL;
}

const char *http1_head_find_repeated(const struct http1_head *head, const char *const *names,
                                     size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct http1_field *f = http1_head_find(head, names[i]);

        for (f = f ? f + 1 : NULL; f && f < head->fields + head->n_fields; f++)
            if (slice_ieq_str(f->name, names[i]))
                return names[i];
    }
    return NULL;
}

struct slice http1_head_value(const struct http1_head *head, const char *name)
{
    const struct http1_field *f = http1_head_find(head, name);

    return f ? f->value : slice_of(NULL, 0);
}
