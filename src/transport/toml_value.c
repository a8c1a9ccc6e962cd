/* toml_value.c - strings, numbers, booleans, arrays of strings. See toml.h. */
#include "transport/toml_value.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int toml_fail(const struct toml_reader *r, struct abx_err *err, const char *fmt, ...)
{
    char what[200];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return err_set(err, ABX_INVALID_ARGUMENT, "line %u: %s", r->line, what);
}

int toml_append(const struct toml_reader *r, struct buf *to, struct slice s, struct abx_err *err)
{
    enum buf_status status = buf_append_slice(to, s);

    if (status == BUF_OOM)
        return err_oom(err);
    if (status == BUF_LIMIT)
        return toml_fail(r, err, "longer than %zu bytes", to->limit);
    return 0;
}

static int append_byte(const struct toml_reader *r, struct buf *to, int c, struct abx_err *err)
{
    uint8_t byte = (uint8_t)c;

    return toml_append(r, to, slice_of(&byte, 1), err);
}

/* ---- strings ---- */

static int append_code_point(const struct toml_reader *r, struct buf *to, uint32_t c,
                             struct abx_err *err)
{
    uint8_t u[4];
    size_t n;

    if (c == 0)
        return toml_fail(r, err, "a NUL character is not supported");
    if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return toml_fail(r, err, "\\u%04x is no character", c);
    if (c < 0x80) {
        u[0] = (uint8_t)c;
        n = 1;
    } else if (c < 0x800) {
        u[0] = (uint8_t)(0xc0 | c >> 6);
        u[1] = (uint8_t)(0x80 | (c & 0x3f));
        n = 2;
    } else if (c < 0x10000) {
        u[0] = (uint8_t)(0xe0 | c >> 12);
        u[1] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
        u[2] = (uint8_t)(0x80 | (c & 0x3f));
        n = 3;
    } else {
        u[0] = (uint8_t)(0xf0 | c >> 18);
        u[1] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
        u[2] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
        u[3] = (uint8_t)(0x80 | (c & 0x3f));
        n = 4;
    }
    return toml_append(r, to, slice_of(u, n), err);
}

static int hex_digit(int c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        return (c | 0x20) - 'a' + 10;
    return -1;
}

/* Behind a backslash. */
static int read_escape(struct toml_reader *r, struct buf *to, struct abx_err *err)
{
    static const char from[] = "btnfr\"\\";
    static const char into[] = "\b\t\n\f\r\"\\";
    int c = toml_peek(r);
    const char *simple = c > 0 ? strchr(from, c) : NULL;
    int digits = c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t code = 0;

    if (simple) {
        r->at++;
        return append_byte(r, to, into[simple - from], err);
    }
    if (digits == 0)
        return toml_fail(r, err,
                         "a backslash in \"...\" begins none of \\b \\t \\n \\f \\r \\\" "
                         "\\\\ \\uXXXX \\UXXXXXXXX");
    r->at++;
    for (int i = 0; i < digits; i++, r->at++) {
        int digit = hex_digit(toml_peek(r));

        if (digit < 0)
            return toml_fail(r, err, "\\%c needs %d hex digits", c, digits);
        code = code << 4 | (uint32_t)digit;
    }
    return append_code_point(r, to, code, err);
}

/* A backslash at the end of a line takes the white space behind it along; false when it is none. */
static bool skip_line_end(struct toml_reader *r)
{
    struct toml_reader ahead = *r;

    toml_skip_spaces(&ahead);
    if (!toml_skip_newline(&ahead))
        return false;
    do
        toml_skip_spaces(&ahead);
    while (toml_skip_newline(&ahead));
    *r = ahead;
    return true;
}

/* Three quotes at hand end a string of several lines; one or two more belong to it. */
static int read_closing(struct toml_reader *r, int quote, struct buf *to, bool *is_end,
                        struct abx_err *err)
{
    size_t n = 0;
    int result = 0;

    while (n < 5 && r->at + n < r->text.n && r->text.p[r->at + n] == quote)
        n++;
    *is_end = n >= 3;
    r->at += n;
    for (size_t i = *is_end ? 3 : 0; i < n && result == 0; i++)
        result = append_byte(r, to, quote, err);
    return result;
}

static int read_long_string(struct toml_reader *r, struct buf *to, struct abx_err *err)
{
    int quote = toml_peek(r), result = 0;
    bool is_end = false;

    r->at += 3;
    (void)toml_skip_newline(r);
    while (result == 0 && !is_end) {
        int c = toml_peek(r);

        if (c < 0)
            return toml_fail(r, err, "a string of several lines is not closed");
        if (c == quote) {
            result = read_closing(r, quote, to, &is_end, err);
        } else if (c == '\n' || c == '\r') {
            if (!toml_skip_newline(r))
                return toml_fail(r, err, "a carriage return stands alone");
            result = append_byte(r, to, '\n', err);
        } else if (c == '\\' && quote == '"') {
            r->at++;
            if (!skip_line_end(r))
                result = read_escape(r, to, err);
        } else if ((c < ' ' && c != '\t') || c == 0x7f) {
            return toml_fail(r, err, "a string has a control character");
        } else {
            r->at++;
            result = append_byte(r, to, c, err);
        }
    }
    return result;
}

int toml_read_string(struct toml_reader *r, struct buf *to, struct abx_err *err)
{
    struct slice rest = slice_of(r->text.p + r->at, r->text.n - r->at);
    int quote = toml_peek(r), result = 0;

    if (slice_starts_with(rest, "\"\"\"") || slice_starts_with(rest, "'''"))
        return read_long_string(r, to, err);
    r->at++;
    while (result == 0) {
        int c = toml_peek(r);

        if (c < 0 || c == '\n')
            return toml_fail(r, err, "a string is not closed");
        if ((c < ' ' && c != '\t') || c == 0x7f)
            return toml_fail(r, err, "a string has a control character");
        r->at++;
        if (c == quote)
            return 0;
        result = c == '\\' && quote == '"' ? read_escape(r, to, err) : append_byte(r, to, c, err);
    }
    return result;
}

/* ["a", 'b'] over any number of lines; joined by commas. */
static int read_strings(struct toml_reader *r, struct buf *to, struct abx_err *err)
{
    bool needs_comma = false;

    r->at++;
    for (;;) {
        int result, c;

        do {
            toml_skip_spaces(r);
            result = toml_skip_comment(r, err);
            if (result < 0)
                return result;
        } while (toml_skip_newline(r));
        c = toml_peek(r);
        if (c == ']') {
            r->at++;
            return 0;
        }
        if (c == ',' && needs_comma) {
            r->at++;
            needs_comma = false;
            continue;
        }
        if (c < 0)
            return toml_fail(r, err, "an array is not closed");
        if (needs_comma || c == ',')
            return toml_fail(r, err, "an array has no ',' where it should be");
        if (c != '"' && c != '\'')
            return toml_fail(r, err, "an array of anything but strings is not supported");
        result = to->len > 0 ? append_byte(r, to, ',', err) : 0;
        if (result == 0)
            result = toml_read_string(r, to, err);
        if (result < 0)
            return result;
        needs_comma = true;
    }
}

/* ---- numbers ---- */

/* Digits of `base` with single '_' between them; appends them without. False when there are none or a
 * '_' is misplaced. */
static bool take_digits(const char **at, int base, char *to, size_t *n)
{
    size_t start = *n;
    const char *p = *at;

    for (; *p; p++) {
        int digit = hex_digit(*p);

        if (*p == '_' && *n > start && p[-1] != '_' && hex_digit(p[1]) >= 0 &&
            hex_digit(p[1]) < base)
            continue;
        if (digit < 0 || digit >= base)
            break;
        to[(*n)++] = *p;
    }
    *at = p;
    return *n > start;
}

static bool parse_prefixed(const char *p, char *to, size_t size)
{
    int base = p[1] == 'x' ? 16 : p[1] == 'o' ? 8 : 2;
    size_t n = 0;
    uint64_t value = 0;
    const char *at = p + 2;

    if (!take_digits(&at, base, to, &n) || *at)
        return false;
    for (size_t i = 0; i < n; i++)
        if (__builtin_mul_overflow(value, (uint64_t)base, &value) ||
            __builtin_add_overflow(value, (uint64_t)hex_digit(to[i]), &value))
            return false;
    if (value > INT64_MAX)
        return false;
    (void)snprintf(to, size, "%" PRIu64, value);
    return true;
}

/* Is the text of an integer within 64 bits? */
static bool fits_i64(const char *text)
{
    bool is_negative = text[0] == '-';
    const char *limit = is_negative ? "9223372036854775808" : "9223372036854775807";
    size_t n = strlen(text + is_negative);

    return n < 19 || (n == 19 && strcmp(text + is_negative, limit) <= 0);
}

/* Decimal integer or float, without '_' and '+'. `to` has room for the length of `p`. */
static bool parse_decimal(const char *p, enum toml_type *type, char *to)
{
    size_t n = 0, whole;

    *type = TOML_INTEGER;
    if (*p == '-')
        to[n++] = '-';
    if (*p == '-' || *p == '+')
        p++;
    if (strcmp(p, "inf") == 0 || strcmp(p, "nan") == 0) {
        *type = TOML_FLOAT;
        memcpy(to + n, p, 4);
        return true;
    }
    whole = n;
    if (!take_digits(&p, 10, to, &n) || (to[whole] == '0' && n > whole + 1))
        return false;
    if (*p == '.') {
        *type = TOML_FLOAT;
        to[n++] = *p++;
        if (!take_digits(&p, 10, to, &n))
            return false;
    }
    if (*p == 'e' || *p == 'E') {
        *type = TOML_FLOAT;
        to[n++] = 'e';
        p++;
        if (*p == '-')
            to[n++] = '-';
        if (*p == '-' || *p == '+')
            p++;
        if (!take_digits(&p, 10, to, &n))
            return false;
    }
    to[n] = '\0';
    return *p == '\0' && (*type == TOML_FLOAT || fits_i64(to));
}

/* true, false or a number: everything up to a space, a comma or the end of the line. */
static int read_word(struct toml_reader *r, enum toml_type *type, struct buf *to,
                     struct abx_err *err)
{
    char word[128], text[128];
    size_t start = r->at, n;

    while (toml_peek(r) > ' ' && toml_peek(r) != '#' && toml_peek(r) != ',' && toml_peek(r) != ']')
        r->at++;
    n = r->at - start;
    if (n == 0)
        return toml_fail(r, err, "a value is missing");
    if (n >= sizeof word)
        return toml_fail(r, err, "a value is neither string nor bool nor number");
    memcpy(word, r->text.p + start, n);
    word[n] = '\0';
    if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0) {
        *type = TOML_BOOL;
        return toml_append(r, to, slice_str(word), err);
    }
    if (word[0] == '0' && (word[1] == 'x' || word[1] == 'o' || word[1] == 'b')) {
        *type = TOML_INTEGER;
        if (parse_prefixed(word, text, sizeof text))
            return toml_append(r, to, slice_str(text), err);
    } else if (parse_decimal(word, type, text)) {
        return toml_append(r, to, slice_str(text), err);
    }
    return toml_fail(r, err,
                     "'%.40s' is neither string nor bool nor number (dates are not "
                     "supported)",
                     word);
}

int toml_read_value(struct toml_reader *r, enum toml_type *ret_type, char **ret_text,
                    struct abx_err *err)
{
    struct buf text = BUF_INIT(TOML_MAX);
    int c = toml_peek(r), result;

    *ret_type = TOML_STRING;
    if (c == '"' || c == '\'') {
        result = toml_read_string(r, &text, err);
    } else if (c == '[') {
        *ret_type = TOML_STRINGS;
        result = read_strings(r, &text, err);
    } else if (c == '{') {
        result = toml_fail(r, err, "inline tables ({...}) are not supported");
    } else {
        result = read_word(r, ret_type, &text, err);
    }
    if (result == 0) {
        *ret_text = slice_dup(buf_slice(&text));
        if (!*ret_text)
            result = err_oom(err);
    }
    buf_done(&text);
    return result;
}
