/* json_string.c - JSON strings out. See json.h. */
#include "base/str.h"
#include "wire/json.h"

/* Bytes that stand for themselves: 0x20..0x7f but '"' and '\'. */
static inline bool is_plain(uint8_t c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

/* How many plain bytes `s` begins with, eight at once. */
static size_t plain_length(struct slice s)
{
    const uint64_t ones = UINT64_MAX / 255, tops = ones * 0x80;
    size_t i = 0;

    for (; s.n - i >= sizeof(uint64_t); i += sizeof(uint64_t)) {
        uint64_t w, quote, back;

        memcpy(&w, s.p + i, sizeof w);
        quote = w ^ ones * '"';
        back = w ^ ones * '\\';
        if ((w | (w - ones * 0x20) | (quote - ones) | (back - ones)) & tops)
            break;
    }
    while (i < s.n && is_plain(s.p[i]))
        i++;
    return i;
}

/* The escape of a control byte, quote or backslash; returns its length. */
static size_t escape(uint8_t c, char to[6])
{
    static const char digits[] = "0123456789abcdef";
    static const char shorts[] = "\"\"\\\\\bb\ff\nn\rr\tt";

    to[0] = '\\';
    for (size_t i = 0; i < sizeof shorts - 1; i += 2)
        if (c == (uint8_t)shorts[i]) {
            to[1] = shorts[i + 1];
            return 2;
        }
    to[1] = 'u';
    to[2] = to[3] = '0';
    to[4] = digits[c >> 4];
    to[5] = digits[c & 15];
    return 6;
}

static enum buf_status put_special(struct buf *b, struct slice *s)
{
    size_t n = utf8_length(*s);
    enum buf_status st;
    char esc[6];

    if (n == 0) {
        n = 1;
        st = buf_append(b, "\xef\xbf\xbd", 3);
    } else if (n == 1) {
        st = buf_append(b, esc, escape(s->p[0], esc));
    } else {
        st = buf_append(b, s->p, n);
    }
    *s = slice_of(s->p + n, s->n - n);
    return st;
}

enum buf_status json_string_put(struct buf *b, struct slice s)
{
    size_t before = b->len;
    enum buf_status st = buf_append_byte(b, '"');

    while (st == BUF_OK && s.n > 0) {
        size_t n = plain_length(s);

        st = buf_append(b, s.p, n);
        s = slice_of(s.p + n, s.n - n);
        if (st == BUF_OK && s.n > 0)
            st = put_special(b, &s);
    }
    if (st == BUF_OK)
        st = buf_append_byte(b, '"');
    if (st != BUF_OK)
        buf_truncate(b, before);
    return st;
}
