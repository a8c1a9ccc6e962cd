/* json_lex.c - see json_lex.h. */
#include "wire/json_lex.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/str.h"

void json_lexer_init(struct json_lexer *l, struct slice s, struct rpc_error *e)
{
    static const uint8_t nothing = 0;
    const uint8_t *p = s.n > 0 ? s.p : &nothing;

    *l = (struct json_lexer){ .start = p, .p = p, .end = p + s.n, .token = p, .e = e };
}

bool json_lexer_fail(struct json_lexer *l, const char *fmt, ...)
{
    va_list ap;

    if (!l->e)
        return false;
    l->e->offset = (size_t)(l->token - l->start);
    va_start(ap, fmt);
    (void)vsnprintf(l->e->text, sizeof l->e->text, fmt, ap);
    va_end(ap);
    return false;
}

static enum json_token bad(struct json_lexer *l, const uint8_t *at, const char *text)
{
    l->token = at;
    (void)json_lexer_fail(l, "%s", text);
    return JSON_TOKEN_BAD;
}

/* Past the bytes of a string that need no look: 0x20..0x7f but quote and backslash. */
static const uint8_t *plain_skip(const uint8_t *p, const uint8_t *end)
{
    const uint64_t ones = UINT64_MAX / 255, tops = ones * 0x80;

    while (end - p >= (ptrdiff_t)sizeof(uint64_t)) {
        uint64_t w, quote, back;

        memcpy(&w, p, sizeof w);
        quote = w ^ ones * '"';
        back = w ^ ones * '\\';
        if ((w | (w - ones * 0x20) | (quote - ones) | (back - ones)) & tops)
            break;
        p += sizeof w;
    }
    while (p < end && *p >= 0x20 && *p < 0x80 && *p != '"' && *p != '\\')
        p++;
    return p;
}

/* Value of four hex digits at p, -1 if they are not there. */
static int hex4(const uint8_t *p, const uint8_t *end)
{
    uint8_t v[2];

    if (end - p < 4 || !hex_decode(slice_of(p, 4), v, 2))
        return -1;
    return v[0] << 8 | v[1];
}

/* Checks the escape at p (a backslash). Past it, or NULL with the error set. */
static const uint8_t *escape_check(struct json_lexer *l, const uint8_t *p)
{
    int unit, low;

    if (l->end - p < 2)
        return p + 1;
    if (p[1] != 'u') {
        if (p[1] != 0 && strchr("\"\\/bfnrt", p[1]))
            return p + 2;
        (void)bad(l, p, "unknown escape in a string");
        return NULL;
    }
    unit = hex4(p + 2, l->end);
    if (unit <= 0) {
        (void)bad(l, p, unit == 0 ? "NUL in a string" : "\\u needs four hex digits");
        return NULL;
    }
    if ((unit & 0xf800) != 0xd800)
        return p + 6;
    low = l->end - p >= 12 && p[6] == '\\' && p[7] == 'u' ? hex4(p + 8, l->end) : -1;
    if ((unit & 0xfc00) != 0xd800 || low < 0 || (low & 0xfc00) != 0xdc00) {
        (void)bad(l, p, "lone surrogate in a string");
        return NULL;
    }
    return p + 12;
}

static enum json_token lex_string(struct json_lexer *l)
{
    const uint8_t *p = l->p, *begin = l->p;

    l->has_escape = false;
    for (;;) {
        size_t n;

        p = plain_skip(p, l->end);
        if (p >= l->end)
            return bad(l, l->token, "string without an end");
        if (*p == '"')
            break;
        if (*p == '\\') {
            l->has_escape = true;
            p = escape_check(l, p);
            if (!p)
                return JSON_TOKEN_BAD;
            continue;
        }
        n = *p < 0x20 ? 0 : utf8_length(slice_of(p, (size_t)(l->end - p)));
        if (n == 0)
            return bad(l, p, *p < 0x20 ? "control character in a string" : "string is not UTF-8");
        p += n;
    }
    l->text = slice_of(begin, (size_t)(p - begin));
    l->p = p + 1;
    return JSON_TOKEN_STRING;
}

static const uint8_t *digits_skip(const uint8_t *p, const uint8_t *end)
{
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p;
}

static enum json_token lex_number(struct json_lexer *l)
{
    const uint8_t *p = l->token, *from;

    if (*p == '-')
        p++;
    from = p;
    p = digits_skip(p, l->end);
    if (p == from || (*from == '0' && p - from > 1))
        return bad(l, l->token, "malformed number");
    if (p < l->end && *p == '.') {
        from = p + 1;
        p = digits_skip(from, l->end);
        if (p == from)
            return bad(l, l->token, "malformed number");
    }
    if (p < l->end && (*p | 0x20) == 'e') {
        from = p + 1;
        if (from < l->end && (*from == '+' || *from == '-'))
            from++;
        p = digits_skip(from, l->end);
        if (p == from)
            return bad(l, l->token, "malformed number");
    }
    l->text = slice_of(l->token, (size_t)(p - l->token));
    l->p = p;
    return JSON_TOKEN_NUMBER;
}

static enum json_token lex_word(struct json_lexer *l, const char *word, enum json_token t)
{
    size_t n = strlen(word);

    if ((size_t)(l->end - l->token) < n || memcmp(l->token, word, n) != 0)
        return bad(l, l->token, "unexpected character");
    l->p = l->token + n;
    return t;
}

enum json_token json_lexer_next(struct json_lexer *l)
{
    while (l->p < l->end && (*l->p == ' ' || *l->p == '\n' || *l->p == '\r' || *l->p == '\t'))
        l->p++;
    l->token = l->p;
    if (l->p == l->end)
        return JSON_TOKEN_END;
    switch (*l->p++) {
    case '{':
        return JSON_TOKEN_OBJECT;
    case '}':
        return JSON_TOKEN_OBJECT_END;
    case '[':
        return JSON_TOKEN_ARRAY;
    case ']':
        return JSON_TOKEN_ARRAY_END;
    case ',':
        return JSON_TOKEN_COMMA;
    case ':':
        return JSON_TOKEN_COLON;
    case '"':
        return lex_string(l);
    case 't':
        return lex_word(l, "true", JSON_TOKEN_TRUE);
    case 'f':
        return lex_word(l, "false", JSON_TOKEN_FALSE);
    case 'n':
        return lex_word(l, "null", JSON_TOKEN_NULL);
    default:
        if (*l->token != '-' && (*l->token < '0' || *l->token > '9'))
            return bad(l, l->token, "unexpected character");
        return lex_number(l);
    }
}

/* Sets the error unless the scanner has; returns -1. */
static int expected(struct json_lexer *l, enum json_token got, const char *what)
{
    if (got != JSON_TOKEN_BAD)
        (void)json_lexer_fail(l, "expected %s", what);
    return -1;
}

/* Key and colon; the key's text stays in l->text. */
static int take_key(struct json_lexer *l, enum json_token t)
{
    struct slice key = l->text;
    bool has_escape = l->has_escape;

    if (t != JSON_TOKEN_STRING)
        return expected(l, t, "a key in quotes");
    t = json_lexer_next(l);
    if (t != JSON_TOKEN_COLON)
        return expected(l, t, "':'");
    l->text = key;
    l->has_escape = has_escape;
    return 1;
}

int json_lexer_key(struct json_lexer *l, bool *first)
{
    enum json_token t = json_lexer_next(l);

    if (t == JSON_TOKEN_OBJECT_END)
        return 0;
    if (!*first) {
        if (t != JSON_TOKEN_COMMA)
            return expected(l, t, "',' or '}'");
        t = json_lexer_next(l);
    }
    *first = false;
    return take_key(l, t);
}

int json_lexer_element(struct json_lexer *l, bool *first, enum json_token *ret)
{
    enum json_token t = json_lexer_next(l);

    if (t == JSON_TOKEN_ARRAY_END)
        return 0;
    if (!*first) {
        if (t != JSON_TOKEN_COMMA)
            return expected(l, t, "',' or ']'");
        t = json_lexer_next(l);
    }
    *first = false;
    *ret = t;
    return t == JSON_TOKEN_BAD ? -1 : 1;
}

/* What encloses the value being skipped: bit i says whether level i is an object. */
struct levels {
    uint64_t is_object;
    unsigned depth;
    unsigned max;
};

static bool levels_push(struct levels *v, struct json_lexer *l, bool is_object)
{
    if (v->depth == v->max)
        return json_lexer_fail(l, "nested too deeply");
    v->is_object = v->is_object << 1 | is_object;
    v->depth++;
    return true;
}

/* After a value: closes finished levels. False on an error; *ret_token is the next value's first
 * token, or END when the outermost value is complete. */
static bool levels_close(struct levels *v, struct json_lexer *l, bool is_first,
                         enum json_token *ret_token)
{
    while (v->depth > 0) {
        bool is_object = v->is_object & 1;
        bool first = is_first;
        int r = is_object ? json_lexer_key(l, &first) : json_lexer_element(l, &first, ret_token);

        if (r < 0)
            return false;
        if (r > 0) {
            if (is_object)
                *ret_token = json_lexer_next(l);
            return true;
        }
        v->is_object >>= 1;
        v->depth--;
        is_first = false;
    }
    *ret_token = JSON_TOKEN_END;
    return true;
}

bool json_lexer_skip(struct json_lexer *l, enum json_token t, unsigned depth_max, size_t values_max,
                     size_t *values)
{
    struct levels v = { .max = MIN(depth_max, 64u) };

    for (;;) {
        bool is_open = t == JSON_TOKEN_OBJECT || t == JSON_TOKEN_ARRAY;

        if (t == JSON_TOKEN_BAD)
            return false;
        if (!is_open && t < JSON_TOKEN_STRING)
            return json_lexer_fail(l, "expected a value");
        if (++*values > values_max)
            return json_lexer_fail(l, "over %zu values", values_max);
        if (is_open && !levels_push(&v, l, t == JSON_TOKEN_OBJECT))
            return false;
        if (!levels_close(&v, l, is_open, &t))
            return false;
        if (v.depth == 0)
            return true;
    }
}

static size_t utf8_put(uint32_t c, uint8_t *to)
{
    if (c < 0x80) {
        to[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (uint8_t)(0xc0 | c >> 6);
        to[1] = (uint8_t)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        to[0] = (uint8_t)(0xe0 | c >> 12);
        to[1] = (uint8_t)(0x80 | (c >> 6 & 63));
        to[2] = (uint8_t)(0x80 | (c & 63));
        return 3;
    }
    to[0] = (uint8_t)(0xf0 | c >> 18);
    to[1] = (uint8_t)(0x80 | (c >> 12 & 63));
    to[2] = (uint8_t)(0x80 | (c >> 6 & 63));
    to[3] = (uint8_t)(0x80 | (c & 63));
    return 4;
}

/* The checked \u escape at p, one unit or a pair. */
static size_t unicode_put(const uint8_t *p, const uint8_t *end, uint8_t *to, size_t *ret_taken)
{
    uint32_t c = (uint32_t)hex4(p + 2, end);

    *ret_taken = 6;
    if ((c & 0xf800) == 0xd800) {
        c = 0x10000 + ((c & 0x3ff) << 10) + ((uint32_t)hex4(p + 8, end) & 0x3ff);
        *ret_taken = 12;
    }
    return utf8_put(c, to);
}

size_t json_unescape(struct slice raw, uint8_t *to)
{
    static const char from[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    const uint8_t *p = raw.p, *end = raw.p + raw.n;
    size_t o = 0;

    while (p < end) {
        const uint8_t *back = memchr(p, '\\', (size_t)(end - p));
        size_t n = (size_t)((back ? back : end) - p), taken = 2;

        memcpy(to + o, p, n);
        o += n;
        p += n;
        if (!back)
            break;
        if (p[1] == 'u')
            o += unicode_put(p, end, to + o, &taken);
        else
            to[o++] = (uint8_t)bytes[strchr(from, p[1]) - from];
        p += taken;
    }
    return o;
}

/* Nothing may stand behind the value. */
static bool scan_end(struct json_lexer *lexer)
{
    switch (json_lexer_next(lexer)) {
    case JSON_TOKEN_END:
        return true;
    case JSON_TOKEN_BAD:
        return false;
    default:
        return json_lexer_fail(lexer, "more text behind the value");
    }
}

bool json_scan(struct slice s, unsigned depth_max, size_t values_max, struct rpc_error *e)
{
    struct json_lexer l;
    size_t values = 0;

    json_lexer_init(&l, s, e);
    return json_lexer_skip(&l, json_lexer_next(&l), depth_max, values_max, &values) && scan_end(&l);
}

bool json_scan_member(struct slice s, unsigned depth_max, size_t values_max, const char *key,
                      struct slice *ret, struct rpc_error *e)
{
    struct slice found = { 0 };
    struct json_lexer l;
    bool is_first = true;
    size_t values = 1;
    int r;

    json_lexer_init(&l, s, e);
    if (json_lexer_next(&l) != JSON_TOKEN_OBJECT)
        return json_lexer_fail(&l, "not an object");
    while ((r = json_lexer_key(&l, &is_first)) > 0) {
        bool is_it = !found.p && !l.has_escape && slice_eq_str(l.text, key);
        enum json_token t = json_lexer_next(&l);

        if (is_it && t == JSON_TOKEN_STRING && !l.has_escape)
            found = l.text;
        if (!json_lexer_skip(&l, t, depth_max - 1, values_max, &values))
            return false;
    }
    if (r < 0 || !scan_end(&l))
        return false;
    *ret = found;
    return true;
}
