/* str.c - see str.h. */
#include "base/str.h"

#include <endian.h>
#include <stdio.h>
#include <time.h>

bool str_parse_u64(struct slice s, uint64_t max, uint64_t *ret)
{
    uint64_t v = 0;

    if (s.n == 0 || s.n > 20)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
        if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(s.p[i] - '0'), &v))
            return false;
    }
    if (v > max)
        return false;
    *ret = v;
    return true;
}

bool str_parse_i64(struct slice s, int64_t min, int64_t max, int64_t *ret)
{
    bool is_negative = s.n > 0 && s.p[0] == '-';
    uint64_t u;
    int64_t v;

    if (is_negative)
        s = slice_of(s.p + 1, s.n - 1);
    if (!str_parse_u64(s, is_negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX, &u))
        return false;
    v = is_negative ? (int64_t)(0 - u) : (int64_t)u;
    if (v < min || v > max)
        return false;
    *ret = v;
    return true;
}

/* Bytes of a sequence that begins with `c` (0 = none does), and what its second byte may be. */
static size_t utf8_need(uint8_t c, uint8_t *low, uint8_t *high)
{
    *low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    *high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    if (c < 0x80)
        return 1;
    if (c >= 0xc2 && c <= 0xdf)
        return 2;
    if (c >= 0xe0 && c <= 0xef)
        return 3;
    return c >= 0xf0 && c <= 0xf4 ? 4 : 0;
}

/* Do the first `n` bytes at `p` begin a sequence whose second byte is in low..high? */
static bool utf8_begins(const uint8_t *p, size_t n, uint8_t low, uint8_t high)
{
    if (n > 1 && (p[1] < low || p[1] > high))
        return false;
    for (size_t i = 2; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return false;
    return true;
}

size_t utf8_length(struct slice s)
{
    uint8_t low, high;
    size_t need = s.n > 0 ? utf8_need(s.p[0], &low, &high) : 0;

    return need > 0 && need <= s.n && utf8_begins(s.p, need, low, high) ? need : 0;
}

size_t utf8_cut_tail(struct slice s)
{
    uint8_t low, high;

    for (size_t k = 1; k <= 3 && k <= s.n; k++) {
        const uint8_t *p = s.p + s.n - k;

        if ((*p & 0xc0) != 0x80)
            return utf8_need(*p, &low, &high) > k && utf8_begins(p, k, low, high) ? k : 0;
    }
    return 0;
}

bool utf8_is_valid(struct slice s)
{
    size_t i = 0;

    while (i < s.n) {
        size_t k = utf8_length(slice_of(s.p + i, s.n - i));

        if (k == 0)
            return false;
        i += k;
    }
    return true;
}

void hex_encode(const uint8_t *p, size_t n, char *to)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < n; i++) {
        to[2 * i] = digits[p[i] >> 4];
        to[2 * i + 1] = digits[p[i] & 15];
    }
    to[2 * n] = '\0';
}

static int hex_value(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool hex_decode(struct slice s, uint8_t *to, size_t n)
{
    if (s.n / 2 != n || s.n % 2 != 0)
        return false;
    for (size_t i = 0; i < n; i++) {
        int a = hex_value(s.p[2 * i]), b = hex_value(s.p[2 * i + 1]);

        if (a < 0 || b < 0)
            return false;
        to[i] = (uint8_t)(a * 16 + b);
    }
    return true;
}

static const char alphabet_std[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char alphabet_url[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* The two characters of each twelve bits in the standard alphabet: half the look-ups of one for each, a third of the
 * time. Two lists, because a macro does not expand inside itself. */
/* clang-format off */
#define PAIR(a, b) { a, b },
#define PAIRS(a) \
    PAIR(a, 'A') PAIR(a, 'B') PAIR(a, 'C') PAIR(a, 'D') PAIR(a, 'E') PAIR(a, 'F') PAIR(a, 'G') PAIR(a, 'H') \
    PAIR(a, 'I') PAIR(a, 'J') PAIR(a, 'K') PAIR(a, 'L') PAIR(a, 'M') PAIR(a, 'N') PAIR(a, 'O') PAIR(a, 'P') \
    PAIR(a, 'Q') PAIR(a, 'R') PAIR(a, 'S') PAIR(a, 'T') PAIR(a, 'U') PAIR(a, 'V') PAIR(a, 'W') PAIR(a, 'X') \
    PAIR(a, 'Y') PAIR(a, 'Z') PAIR(a, 'a') PAIR(a, 'b') PAIR(a, 'c') PAIR(a, 'd') PAIR(a, 'e') PAIR(a, 'f') \
    PAIR(a, 'g') PAIR(a, 'h') PAIR(a, 'i') PAIR(a, 'j') PAIR(a, 'k') PAIR(a, 'l') PAIR(a, 'm') PAIR(a, 'n') \
    PAIR(a, 'o') PAIR(a, 'p') PAIR(a, 'q') PAIR(a, 'r') PAIR(a, 's') PAIR(a, 't') PAIR(a, 'u') PAIR(a, 'v') \
    PAIR(a, 'w') PAIR(a, 'x') PAIR(a, 'y') PAIR(a, 'z') PAIR(a, '0') PAIR(a, '1') PAIR(a, '2') PAIR(a, '3') \
    PAIR(a, '4') PAIR(a, '5') PAIR(a, '6') PAIR(a, '7') PAIR(a, '8') PAIR(a, '9') PAIR(a, '+') PAIR(a, '/')
#define EVERY(C) \
    C('A') C('B') C('C') C('D') C('E') C('F') C('G') C('H') \
    C('I') C('J') C('K') C('L') C('M') C('N') C('O') C('P') \
    C('Q') C('R') C('S') C('T') C('U') C('V') C('W') C('X') \
    C('Y') C('Z') C('a') C('b') C('c') C('d') C('e') C('f') \
    C('g') C('h') C('i') C('j') C('k') C('l') C('m') C('n') \
    C('o') C('p') C('q') C('r') C('s') C('t') C('u') C('v') \
    C('w') C('x') C('y') C('z') C('0') C('1') C('2') C('3') \
    C('4') C('5') C('6') C('7') C('8') C('9') C('+') C('/')
/* clang-format on */

static const char pairs_std[4096][2] = { EVERY(PAIRS) };

/* Whole groups of six bytes, as long as there are two bytes behind them; returns how many bytes. */
static size_t encode64_pairs(struct slice s, uint8_t *to)
{
    size_t i = 0;

    for (; i + 8 <= s.n; i += 6, to += 8) {
        uint64_t v;

        memcpy(&v, s.p + i, sizeof v);
        v = be64toh(v);
        memcpy(to, pairs_std[v >> 52], 2);
        memcpy(to + 2, pairs_std[v >> 40 & 4095], 2);
        memcpy(to + 4, pairs_std[v >> 28 & 4095], 2);
        memcpy(to + 6, pairs_std[v >> 16 & 4095], 2);
    }
    return i;
}

static enum buf_status encode64(struct buf *b, struct slice s, const char *alphabet, bool pad)
{
    size_t size = s.n / 3 * 4 + (s.n % 3 ? (pad ? 4 : s.n % 3 + 1) : 0);
    enum buf_status st;
    uint8_t *to = buf_reserve(b, size, &st);
    size_t i = 0, o = 0;

    if (!to)
        return st;
    if (alphabet == alphabet_std) {
        i = encode64_pairs(s, to);
        o = i / 3 * 4;
    }
    /* Whole words in and out, as long as there is a byte behind the three. */
    for (; i + 4 <= s.n; i += 3, o += 4) {
        uint32_t v, text;

        memcpy(&v, s.p + i, sizeof v);
        v = be32toh(v);
        text = htobe32((uint32_t)alphabet[v >> 26] << 24 | (uint32_t)alphabet[v >> 20 & 63] << 16 |
                       (uint32_t)alphabet[v >> 14 & 63] << 8 | (uint32_t)alphabet[v >> 8 & 63]);
        memcpy(to + o, &text, sizeof text);
    }
    for (; i + 3 <= s.n; i += 3) {
        uint32_t v = (uint32_t)s.p[i] << 16 | (uint32_t)s.p[i + 1] << 8 | s.p[i + 2];

        to[o++] = (uint8_t)alphabet[v >> 18];
        to[o++] = (uint8_t)alphabet[v >> 12 & 63];
        to[o++] = (uint8_t)alphabet[v >> 6 & 63];
        to[o++] = (uint8_t)alphabet[v & 63];
    }
    if (s.n - i == 1) {
        to[o++] = (uint8_t)alphabet[s.p[i] >> 2];
        to[o++] = (uint8_t)alphabet[(s.p[i] & 3) << 4];
    } else if (s.n - i == 2) {
        to[o++] = (uint8_t)alphabet[s.p[i] >> 2];
        to[o++] = (uint8_t)alphabet[(s.p[i] & 3) << 4 | s.p[i + 1] >> 4];
        to[o++] = (uint8_t)alphabet[(s.p[i + 1] & 15) << 2];
    }
    while (o < size)
        to[o++] = '=';
    buf_commit(b, size);
    return BUF_OK;
}

enum buf_status base64_encode(struct buf *b, struct slice s, bool pad)
{
    return encode64(b, s, alphabet_std, pad);
}

enum buf_status base64url_encode(struct buf *b, struct slice s)
{
    return encode64(b, s, alphabet_url, false);
}

/* Every character of both alphabets with its value. */
/* clang-format off */
#define ALPHABETS(C) \
    C('A', 0) C('B', 1) C('C', 2) C('D', 3) C('E', 4) C('F', 5) C('G', 6) C('H', 7) \
    C('I', 8) C('J', 9) C('K', 10) C('L', 11) C('M', 12) C('N', 13) C('O', 14) C('P', 15) \
    C('Q', 16) C('R', 17) C('S', 18) C('T', 19) C('U', 20) C('V', 21) C('W', 22) C('X', 23) \
    C('Y', 24) C('Z', 25) C('a', 26) C('b', 27) C('c', 28) C('d', 29) C('e', 30) C('f', 31) \
    C('g', 32) C('h', 33) C('i', 34) C('j', 35) C('k', 36) C('l', 37) C('m', 38) C('n', 39) \
    C('o', 40) C('p', 41) C('q', 42) C('r', 43) C('s', 44) C('t', 45) C('u', 46) C('v', 47) \
    C('w', 48) C('x', 49) C('y', 50) C('z', 51) C('0', 52) C('1', 53) C('2', 54) C('3', 55) \
    C('4', 56) C('5', 57) C('6', 58) C('7', 59) C('8', 60) C('9', 61) C('+', 62) C('/', 63) \
    C('-', 62) C('_', 63)
/* clang-format on */

/* A character's value where it belongs in a group's word (the group's bytes are its upper three), and
 * a bit of its own in the lowest byte that says that the character is one. */
#define FIRST(c, v) [c] = (v##u) << 26 | 1,
#define SECOND(c, v) [c] = (v##u) << 20 | 2,
#define THIRD(c, v) [c] = (v##u) << 14 | 4,
#define FOURTH(c, v) [c] = (v##u) << 8 | 8,
#define ALL_FOUR 15u

static const uint32_t values64[4][256] = {
    { ALPHABETS(FIRST) },
    { ALPHABETS(SECOND) },
    { ALPHABETS(THIRD) },
    { ALPHABETS(FOURTH) },
};

/* Decodes whole groups of four; writes one byte more than it decodes, to store words. The result is
 * ALL_FOUR unless a character was none: one look at the end keeps the loop free of branches. */
static uint32_t decode64_groups(const uint8_t *p, size_t groups, uint8_t *to)
{
    uint32_t seen = ALL_FOUR;

    for (; groups > 0; groups--, p += 4, to += 3) {
        uint32_t v = values64[0][p[0]] | values64[1][p[1]] | values64[2][p[2]] | values64[3][p[3]];
        uint32_t bytes = htobe32(v);

        seen &= v;
        memcpy(to, &bytes, sizeof bytes);
    }
    return seen;
}

bool base64_decode(struct buf *b, struct slice s)
{
    uint8_t last[4] = { 'A', 'A', 'A', 'A' }, bytes[4];
    size_t n = s.n, rest;
    uint32_t seen;
    uint8_t *to;

    if (n > 0 && n % 4 == 0 && s.p[n - 1] == '=')
        n -= s.p[n - 2] == '=' ? 2 : 1;
    rest = n % 4;
    if (rest == 1)
        return false;
    to = buf_reserve(b, n / 4 * 3 + 2, NULL);
    if (!to)
        return false;
    seen = decode64_groups(s.p, n / 4, to);
    if (rest > 0) {
        memcpy(last, s.p + n - rest, rest);
        seen &= decode64_groups(last, 1, bytes);
        /* The bits that a short last group does not use must be zero. */
        if (bytes[2] != 0 || (rest == 2 && bytes[1] != 0))
            return false;
        memcpy(to + n / 4 * 3, bytes, rest - 1);
    }
    if (seen != ALL_FOUR)
        return false;
    buf_commit(b, n / 4 * 3 + (rest > 0 ? rest - 1 : 0));
    return true;
}

static bool percent_byte(struct slice s, size_t *i, bool plus, uint8_t *ret)
{
    uint8_t c = s.p[*i];

    if (c == '%') {
        if (s.n - *i < 3 || !hex_decode(slice_of(s.p + *i + 1, 2), &c, 1))
            return false;
        *i += 2;
    } else if (c == '+' && plus) {
        c = ' ';
    }
    *ret = c;
    return c != 0;
}

bool percent_decode(struct buf *b, struct slice s, bool plus)
{
    size_t before = b->len;

    for (size_t i = 0; i < s.n; i++) {
        uint8_t c;

        if (!percent_byte(s, &i, plus, &c) || buf_append_byte(b, c) != BUF_OK) {
            buf_truncate(b, before);
            return false;
        }
    }
    return true;
}

enum buf_status percent_encode(struct buf *b, struct slice s)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t before = b->len;

    for (size_t i = 0; i < s.n; i++) {
        uint8_t c = s.p[i];
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == '~';
        char esc[3] = { '%', digits[c >> 4], digits[c & 15] };
        enum buf_status st = is_plain ? buf_append_byte(b, c) : buf_append(b, esc, 3);

        if (st != BUF_OK) {
            buf_truncate(b, before);
            return st;
        }
    }
    return BUF_OK;
}

bool mem_equal_ct(const void *a, const void *b, size_t n)
{
    const volatile uint8_t *x = a, *y = b;
    uint8_t d = 0;

    for (size_t i = 0; i < n; i++)
        d |= x[i] ^ y[i];
    return d == 0;
}

void time_format_rfc3339(int64_t ms, char to[RFC3339_SIZE])
{
    time_t t = (time_t)(ms / 1000);
    int frac = (int)(ms % 1000);
    struct tm tm;

    if (frac < 0) {
        frac += 1000;
        t--;
    }
    (void)gmtime_r(&t, &tm);
    (void)snprintf(to, RFC3339_SIZE, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ",
                   (unsigned)(tm.tm_year + 1900) % 10000, (unsigned)(tm.tm_mon + 1) % 100,
                   (unsigned)tm.tm_mday % 100, (unsigned)tm.tm_hour % 100,
                   (unsigned)tm.tm_min % 100, (unsigned)tm.tm_sec % 100, (unsigned)frac % 1000);
}

/* Reads exactly `n` digits at *i and moves it on. */
static bool digits_at(struct slice s, size_t *i, size_t n, int *ret)
{
    uint64_t v;

    if (s.n - *i < n || !str_parse_u64(slice_of(s.p + *i, n), 9999, &v))
        return false;
    *i += n;
    *ret = (int)v;
    return true;
}

static bool char_at(struct slice s, size_t *i, char c)
{
    if (*i >= s.n || s.p[*i] != (uint8_t)c)
        return false;
    ++*i;
    return true;
}

static bool parse_fraction(struct slice s, size_t *i, int64_t *ret_ns)
{
    int64_t ns = 0, scale = NSEC_PER_SEC;
    size_t start = *i;

    while (*i < s.n && s.p[*i] >= '0' && s.p[*i] <= '9' && *i - start < 9) {
        scale /= 10;
        ns += (s.p[*i] - '0') * scale;
        ++*i;
    }
    *ret_ns = ns;
    return *i > start;
}

static bool parse_offset(struct slice s, size_t *i, int64_t *ret_s)
{
    int h, m, sign;

    if (char_at(s, i, 'Z') || char_at(s, i, 'z')) {
        *ret_s = 0;
        return true;
    }
    sign = char_at(s, i, '-') ? -1 : char_at(s, i, '+') ? 1 : 0;
    if (sign == 0 || !digits_at(s, i, 2, &h) || !char_at(s, i, ':') || !digits_at(s, i, 2, &m) ||
        h > 23 || m > 59)
        return false;
    *ret_s = sign * (h * 3600 + m * 60);
    return true;
}

/* Date and time of day, each in its range. */
static bool parse_date_time(struct slice s, size_t *i, struct tm *tm)
{
    if (!digits_at(s, i, 4, &tm->tm_year) || !char_at(s, i, '-') ||
        !digits_at(s, i, 2, &tm->tm_mon) || !char_at(s, i, '-') ||
        !digits_at(s, i, 2, &tm->tm_mday))
        return false;
    if (!char_at(s, i, 'T') && !char_at(s, i, 't') && !char_at(s, i, ' '))
        return false;
    if (!digits_at(s, i, 2, &tm->tm_hour) || !char_at(s, i, ':') ||
        !digits_at(s, i, 2, &tm->tm_min) || !char_at(s, i, ':') || !digits_at(s, i, 2, &tm->tm_sec))
        return false;
    return tm->tm_mon >= 1 && tm->tm_mon <= 12 && tm->tm_mday >= 1 && tm->tm_mday <= 31 &&
           tm->tm_hour <= 23 && tm->tm_min <= 59 && tm->tm_sec <= 60;
}

bool time_parse_rfc3339_parts(struct slice s, int64_t *ret_s, int32_t *ret_ns)
{
    struct tm tm = { 0 };
    size_t i = 0;
    int64_t ns = 0, offset_s, t;
    int day;

    if (!parse_date_time(s, &i, &tm))
        return false;
    if (char_at(s, &i, '.') && !parse_fraction(s, &i, &ns))
        return false;
    if (!parse_offset(s, &i, &offset_s) || i != s.n)
        return false;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    day = tm.tm_mday;
    /* timegm carries 30 February over into March, and a leap second into the next minute. */
    if (tm.tm_sec == 60)
        tm.tm_sec = 59;
    t = timegm(&tm) - offset_s;
    if (tm.tm_mday != day)
        return false;
    *ret_s = t;
    *ret_ns = (int32_t)ns;
    return true;
}

bool time_parse_rfc3339(struct slice s, int64_t *ret_ns)
{
    int64_t t;
    int32_t ns;

    return time_parse_rfc3339_parts(s, &t, &ns) && !__builtin_mul_overflow(t, NSEC_PER_SEC, &t) &&
           !__builtin_add_overflow(t, ns, ret_ns);
}

uint64_t str_hash(const char *s)
{
    uint64_t h = UINT64_C(14695981039346656037);

    for (; *s; s++)
        h = (h ^ (uint8_t)*s) * UINT64_C(1099511628211);
    return h;
}

int64_t time_mono_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * NSEC_PER_SEC + t.tv_nsec;
}

int64_t time_mono_after_ms(int64_t ms)
{
    int64_t ns;

    if (__builtin_mul_overflow(ms, NSEC_PER_MSEC, &ns) ||
        __builtin_add_overflow(ns, time_mono_ns(), &ns))
        return INT64_MAX;
    return ns;
}

int64_t time_wall_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / NSEC_PER_MSEC;
}
