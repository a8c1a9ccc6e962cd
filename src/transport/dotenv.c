/* dotenv.c - see dotenv.h. */
#include "transport/dotenv.h"

#include <stdlib.h>
#include <string.h>

struct reader {
    struct slice text;
    size_t at;
    unsigned line;  /* of `counted` */
    size_t counted; /* newlines before it are in `line` */
};

static int peek(const struct reader *r)
{
    return r->at < r->text.n ? r->text.p[r->at] : -1;
}

static bool is_newline(int c)
{
    return c == '\n' || c == '\r';
}

static bool is_space(int c) /* of a line */
{
    return c == ' ' || c == '\t' || c == '\v' || c == '\f' || (c >= 0x1c && c <= 0x1f);
}

static void skip_spaces(struct reader *r)
{
    while (is_space(peek(r)))
        r->at++;
}

static void skip_rest(struct reader *r)
{
    while (r->at < r->text.n && !is_newline(peek(r)))
        r->at++;
}

/* \r\n, \n, \r or the end of the text; false when something else is next. */
static bool skip_newline(struct reader *r)
{
    if (peek(r) == '\r' && r->at + 1 < r->text.n && r->text.p[r->at + 1] == '\n')
        r->at++;
    else if (!is_newline(peek(r)))
        return peek(r) < 0;
    r->at++;
    return true;
}

static unsigned line_of(struct reader *r, size_t at)
{
    for (; r->counted < at; r->counted++)
        r->line += r->text.p[r->counted] == '\n';
    return r->line;
}

static void skip_export(struct reader *r)
{
    struct slice rest = slice_of(r->text.p + r->at, r->text.n - r->at);

    if (slice_starts_with(rest, "export") && rest.n > 6 && is_space(rest.p[6])) {
        r->at += 6;
        skip_spaces(r);
    }
}

/* 'any' or everything up to a space, '=' or '#'. */
static bool read_key(struct reader *r, struct slice *ret)
{
    size_t start = r->at;

    if (peek(r) == '\'') {
        const uint8_t *end = memchr(r->text.p + start + 1, '\'', r->text.n - start - 1);

        if (!end || end == r->text.p + start + 1)
            return false;
        *ret = slice_of(r->text.p + start + 1, (size_t)(end - r->text.p) - start - 1);
        r->at = start + 2 + ret->n;
        return true;
    }
    while (peek(r) >= 0 && !is_newline(peek(r)) && !is_space(peek(r)) && peek(r) != '=' &&
           peek(r) != '#')
        r->at++;
    *ret = slice_of(r->text.p + start, r->at - start);
    return ret->n > 0;
}

/* The text between quotes, with its escapes: a backslash and whatever follows it stay together. */
static bool read_quoted(struct reader *r, struct slice *ret)
{
    uint8_t quote = (uint8_t)peek(r);
    size_t start = r->at + 1, i = start;

    while (i < r->text.n && r->text.p[i] != quote)
        i += r->text.p[i] == '\\' ? 2 : 1;
    if (i >= r->text.n)
        return false;
    *ret = slice_of(r->text.p + start, i - start);
    r->at = i + 1;
    return true;
}

static enum buf_status unescape(struct buf *to, struct slice s, bool is_double)
{
    static const char from[] = "\\'\"abfnrtv";
    static const char into[] = "\\'\"\a\b\f\n\r\t\v";
    size_t known = is_double ? sizeof from - 1 : 2;
    enum buf_status status = BUF_OK;

    for (size_t i = 0; i < s.n && status == BUF_OK; i++) {
        const char *e = NULL;

        if (s.p[i] == '\\' && i + 1 < s.n)
            e = memchr(from, s.p[i + 1], known);
        if (e)
            i++;
        status = buf_append_byte(to, e ? (uint8_t)into[e - from] : s.p[i]);
    }
    return status;
}

/* Up to the end of the line, without a comment behind white space and without spaces at its end. */
static struct slice read_bare(struct reader *r)
{
    size_t start = r->at, end;

    skip_rest(r);
    end = r->at;
    for (size_t i = start; i + 1 < end; i++) {
        if (is_space(r->text.p[i]) && r->text.p[i + 1] == '#') {
            end = i;
            break;
        }
    }
    while (end > start && is_space(r->text.p[end - 1]))
        end--;
    return slice_of(r->text.p + start, end - start);
}

/* Reads a value behind '='; false when a quote is not closed. */
static bool read_value(struct reader *r, struct buf *to, enum buf_status *status)
{
    int c = peek(r);
    struct slice s = { 0 };

    if (c != '\'' && c != '"') {
        *status = c < 0 || is_newline(c) ? BUF_OK : buf_append_slice(to, read_bare(r));
        return true;
    }
    if (!read_quoted(r, &s))
        return false;
    *status = unescape(to, s, c == '"');
    return true;
}

const struct dotenv_line *dotenv_find(const struct dotenv *d, const char *key)
{
    for (size_t i = d->count; i > 0; i--)
        if (d->lines[i - 1].key && strcmp(d->lines[i - 1].key, key) == 0)
            return &d->lines[i - 1];
    return NULL;
}

/* What ${name:-otherwise} stands for. A name that the file has without value counts as empty. */
static enum buf_status append_variable(struct buf *to, const struct dotenv *d, struct slice name,
                                       struct slice otherwise)
{
    char *copy = slice_dup(name);
    const struct dotenv_line *line;
    const char *value;
    enum buf_status s;

    if (!copy)
        return BUF_OOM;
    line = dotenv_find(d, copy);
    value = line ? (line->value ? line->value : "") : getenv(copy);
    free(copy);
    s = value ? buf_append_str(to, value) : buf_append_slice(to, otherwise);
    return s;
}

/* Is there ${name} or ${name:-otherwise} at the start of `s`? Returns its length, 0 = no. */
static size_t variable_at(struct slice s, struct slice *ret_name, struct slice *ret_otherwise)
{
    const uint8_t *close = s.n > 2 && slice_starts_with(s, "${") ? memchr(s.p, '}', s.n) : NULL;
    const uint8_t *colon;
    size_t n;

    if (!close)
        return 0;
    n = (size_t)(close - s.p);
    colon = memchr(s.p + 2, ':', n - 2);
    if (colon && (colon + 1 == close || colon[1] != '-'))
        return 0;
    *ret_name = slice_of(s.p + 2, colon ? (size_t)(colon - s.p) - 2 : n - 2);
    *ret_otherwise = colon ? slice_of(colon + 2, (size_t)(close - colon) - 2) : SLICE_LIT("");
    return n + 1;
}

static enum buf_status expand_into(struct buf *to, const struct dotenv *d, struct slice s)
{
    enum buf_status status = BUF_OK;

    for (size_t i = 0; i < s.n && status == BUF_OK;) {
        struct slice name, otherwise;
        size_t n = variable_at(slice_of(s.p + i, s.n - i), &name, &otherwise);

        if (n > 0)
            status = append_variable(to, d, name, otherwise);
        else
            status = buf_append_byte(to, s.p[i]);
        i += n > 0 ? n : 1;
    }
    return status;
}

static int line_failed(enum buf_status s, unsigned line, struct abx_err *err)
{
    if (s == BUF_OOM)
        return err_oom(err);
    return err_set(err, ABX_RESOURCE_EXHAUSTED, "line %u: the value is longer than %u bytes", line,
                   DOTENV_VALUE_MAX);
}

/* `value` NULL = there is no '='. */
static int line_fill(const struct dotenv *d, struct dotenv_line *to, struct slice key,
                     const struct slice *value, bool expand, struct abx_err *err)
{
    struct buf expanded = BUF_INIT(DOTENV_VALUE_MAX);
    enum buf_status s = BUF_OK;

    if (value)
        s = expand ? expand_into(&expanded, d, *value) : buf_append_slice(&expanded, *value);
    if (s == BUF_OK) {
        to->key = slice_dup(key);
        to->value = value ? slice_dup(buf_slice(&expanded)) : NULL;
        if (!to->key || (value && !to->value))
            s = BUF_OOM;
    }
    buf_done(&expanded);
    return s == BUF_OK ? 0 : line_failed(s, to->line, err);
}

/* Behind "= ", a '#' begins a comment and the value is empty. */
static bool is_commented(const struct reader *r)
{
    return peek(r) == '#' && is_space(r->text.p[r->at - 1]);
}

/* One binding, comment or error; the reader is at its first byte that is no white space. */
static int read_line(struct reader *r, bool expand, struct dotenv *d, struct abx_err *err)
{
    struct dotenv_line line = { .start = r->at, .line = line_of(r, r->at) };
    struct buf value = BUF_INIT(DOTENV_VALUE_MAX);
    struct slice key = { 0 }, plain;
    enum buf_status status = BUF_OK;
    bool is_comment = false, has_value = false, is_good;
    int result = 0;

    skip_export(r);
    is_comment = peek(r) == '#';
    is_good = is_comment || read_key(r, &key);
    skip_spaces(r);
    if (is_good && !is_comment && peek(r) == '=') {
        r->at++;
        has_value = true;
        skip_spaces(r);
        is_good = is_commented(r) || read_value(r, &value, &status);
    }
    if (is_good) {
        size_t before = r->at;

        skip_spaces(r);
        if (peek(r) == '#')
            skip_rest(r);
        else
            r->at = before;
        skip_spaces(r);
        is_good = skip_newline(r);
    }
    if (!is_good) {
        skip_rest(r);
        (void)skip_newline(r);
    }
    line.end = r->at;
    plain = buf_slice(&value);
    if (status != BUF_OK)
        result = line_failed(status, line.line, err);
    else if (is_good && !is_comment)
        result = line_fill(d, &line, key, has_value ? &plain : NULL, expand, err);
    buf_done(&value);
    if (result < 0 || (is_good && is_comment)) {
        free(line.key);
        free(line.value);
        return result;
    }
    d->lines[d->count++] = line;
    return 0;
}

int dotenv_parse(struct slice text, bool expand, struct dotenv *ret, struct abx_err *err)
{
    struct reader r = { .text = text, .line = 1 };
    size_t room = 0;

    *ret = (struct dotenv){ 0 };
    if (text.n > DOTENV_MAX)
        return err_set(err, ABX_RESOURCE_EXHAUSTED, "more than %u bytes", DOTENV_MAX);
    if (text.n > 0 && memchr(text.p, 0, text.n))
        return err_set(err, ABX_INVALID_ARGUMENT, "has a NUL byte: not a text file");
    if (slice_starts_with(text, "\xef\xbb\xbf"))
        r.at = 3;
    for (;;) {
        int result;

        while (is_space(peek(&r)) || is_newline(peek(&r)))
            r.at++;
        if (peek(&r) < 0)
            return 0;
        if (ret->count == room) {
            struct dotenv_line *more;

            if (room == DOTENV_LINES_MAX)
                return err_set(err, ABX_RESOURCE_EXHAUSTED, "more than %u lines with values",
                               DOTENV_LINES_MAX);
            room = room ? room * 2 : 16;
            more = reallocarray(ret->lines, room, sizeof *more);
            if (!more)
                return err_oom(err);
            ret->lines = more;
        }
        result = read_line(&r, expand, ret, err);
        if (result < 0)
            return result;
    }
}

void dotenv_done(struct dotenv *d)
{
    for (size_t i = 0; i < d->count; i++) {
        if (d->lines[i].value)
            explicit_bzero(d->lines[i].value, strlen(d->lines[i].value));
        free(d->lines[i].key);
        free(d->lines[i].value);
    }
    free(d->lines);
    *d = (struct dotenv){ 0 };
}
