/* multipart.c - see multipart.h.
 *
 * The delimiter ("\r\n--" and the boundary) has no CR but its first byte, so a search never backs up:
 * when a delimiter that began in an earlier piece of input turns out to be data, its bytes are
 * given out from the parser's own copy of the delimiter.
 */
#include "wire/multipart.h"

#include "base/str.h"
#include "wire/http1_head.h"

#define BOUNDARY_MAX 70
#define HEAD_MAX 16384
#define DELIMITER_START "\r\n--"

enum state {
    STATE_PREAMBLE,  /* before the first delimiter: ignored */
    STATE_DELIMITER, /* behind a delimiter: "--", or white space and CRLF */
    STATE_DASH,      /* behind the first '-' of "--" */
    STATE_PADDING,   /* white space behind a delimiter */
    STATE_LF,        /* behind the CR of a delimiter line */
    STATE_HEAD,
    STATE_DATA,
    STATE_CLOSED, /* END is to be reported */
    STATE_EPILOGUE,
    STATE_ERROR,
};

struct multipart_parser {
    enum state state;
    char delimiter[sizeof DELIMITER_START + BOUNDARY_MAX];
    size_t delimiter_len;
    size_t matched; /* bytes of the delimiter already seen */
    size_t lent;    /* of these, the first that belong to the part's head, not to its data */
    bool in_part;   /* PART was reported, PART_END was not */
    unsigned parts;
    size_t head_size;
    struct buf line;
    char *name;
    char *filename;
    const char *error;
};

static bool is_boundary_char(uint8_t c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
           (c != 0 && strchr("'()+_,-./:=? ", c));
}

static bool boundary_is_valid(struct slice s)
{
    if (s.n < 1 || s.n > BOUNDARY_MAX || s.p[s.n - 1] == ' ')
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (!is_boundary_char(s.p[i]))
            return false;
    return true;
}

static void skip_space(struct slice *s)
{
    while (s->n > 0 && (s->p[0] == ' ' || s->p[0] == '\t'))
        *s = slice_of(s->p + 1, s->n - 1);
}

/* Next parameter of a field value: "; name=value" with a token or a quoted string, whose quotes are
 * taken off (its escapes are not decoded). 1, 0 at the end, -1 when malformed. */
static int param_next(struct slice *s, struct slice *ret_name, struct slice *ret_value)
{
    size_t i;

    do {
        skip_space(s);
        if (s->n == 0)
            return 0;
        if (s->p[0] != ';')
            return -1;
        *s = slice_of(s->p + 1, s->n - 1);
        skip_space(s);
    } while (s->n == 0 || s->p[0] == ';');
    for (i = 0; i < s->n && http1_is_token_char(s->p[i]); i++)
        ;
    if (i == 0 || i == s->n || s->p[i] != '=')
        return -1;
    *ret_name = slice_of(s->p, i);
    *s = slice_of(s->p + i + 1, s->n - i - 1);
    if (s->n > 0 && s->p[0] == '"') {
        for (i = 1; i < s->n && s->p[i] != '"'; i++)
            if (s->p[i] == '\\')
                i++;
        if (i >= s->n)
            return -1;
        *ret_value = slice_of(s->p + 1, i - 1);
        i++;
    } else {
        for (i = 0; i < s->n && s->p[i] > ' ' && s->p[i] != ';' && s->p[i] != '"'; i++)
            ;
        *ret_value = slice_of(s->p, i);
    }
    *s = slice_of(s->p + i, s->n - i);
    return 1;
}

/* Takes what is before the first ';' off *s. */
static struct slice first_part(struct slice *s)
{
    const uint8_t *semicolon = s->n ? memchr(s->p, ';', s->n) : NULL;
    size_t n = semicolon ? (size_t)(semicolon - s->p) : s->n;
    struct slice part = slice_trim(slice_of(s->p, n));

    *s = slice_of(s->n ? s->p + n : s->p, s->n - n);
    return part;
}

bool multipart_boundary(struct slice content_type, struct slice *ret_boundary)
{
    struct slice name, value, boundary = { 0 };
    bool found = false;
    int r;

    if (!slice_ieq_str(first_part(&content_type), "multipart/form-data"))
        return false;
    while ((r = param_next(&content_type, &name, &value)) > 0) {
        if (!slice_ieq_str(name, "boundary"))
            continue;
        if (found)
            return false;
        found = true;
        boundary = value;
    }
    if (r < 0 || !found || !boundary_is_valid(boundary))
        return false;
    *ret_boundary = boundary;
    return true;
}

struct multipart_parser *multipart_parser_new(struct slice boundary)
{
    struct multipart_parser *p;

    if (!boundary_is_valid(boundary))
        return NULL;
    p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    memcpy(p->delimiter, DELIMITER_START, 4);
    memcpy(p->delimiter + 4, boundary.p, boundary.n);
    p->delimiter_len = 4 + boundary.n;
    p->matched = 2; /* the body's start counts as the start of a line */
    buf_init(&p->line, HEAD_MAX);
    return p;
}

static void names_drop(struct multipart_parser *p)
{
    free(p->name);
    free(p->filename);
    p->name = NULL;
    p->filename = NULL;
}

void multipart_parser_free(struct multipart_parser *p)
{
    if (!p)
        return;
    names_drop(p);
    buf_done(&p->line);
    free(p);
}

static enum multipart_event fail(struct multipart_parser *p, const char *text)
{
    p->state = STATE_ERROR;
    p->error = text;
    return MULTIPART_ERROR;
}

static void take(struct slice *in, size_t n)
{
    in->p += n;
    in->n -= n;
}

/* Matches what of the delimiter is still missing. True when it is complete. */
static bool match(struct multipart_parser *p, struct slice *in)
{
    size_t n = MIN(p->delimiter_len - p->matched, in->n), i = 0;

    while (i < n && in->p[i] == (uint8_t)p->delimiter[p->matched + i])
        i++;
    p->matched += i;
    take(in, i);
    return p->matched == p->delimiter_len;
}

/* Where the delimiter begins in `in`, or may begin at its very end; NULL when neither. */
static const uint8_t *delimiter_find(const struct multipart_parser *p, struct slice in)
{
    const uint8_t *at = in.p, *end = in.p + in.n;

    while (at < end) {
        const uint8_t *cr = memchr(at, '\r', (size_t)(end - at));

        if (!cr || memcmp(cr, p->delimiter, MIN(p->delimiter_len, (size_t)(end - cr))) == 0)
            return cr;
        at = cr + 1;
    }
    return NULL;
}

/* Passes on data up to the next delimiter (or what may be the start of one), in one piece: whoever
 * writes it pays for each. Returns the data, empty when there is none yet; *ret_found when the
 * delimiter is complete. */
static struct slice data_step(struct multipart_parser *p, struct slice *in, bool *ret_found)
{
    struct slice data = { 0 };
    const uint8_t *start;
    size_t n;

    if (p->matched > 0) {
        *ret_found = match(p, in);
        if (*ret_found || in->n == 0)
            return data;
        data = slice_of(p->delimiter + p->lent, p->matched - p->lent);
        p->matched = 0;
        p->lent = 0;
        return data;
    }
    start = delimiter_find(p, *in);
    n = start ? (size_t)(start - in->p) : in->n;
    data = slice_of(in->p, n);
    take(in, n);
    if (in->n > 0) {
        p->matched = 1;
        take(in, 1);
    }
    return data;
}

static enum multipart_event preamble_step(struct multipart_parser *p, struct slice *in)
{
    bool found = false;

    (void)data_step(p, in, &found);
    if (found) {
        p->matched = 0;
        p->state = STATE_DELIMITER;
    }
    return MULTIPART_NEED_MORE;
}

static enum multipart_event body_step(struct multipart_parser *p, struct slice *in,
                                      struct slice *ret_data)
{
    bool found = false;
    struct slice data = data_step(p, in, &found);

    if (found) {
        p->matched = 0;
        p->state = STATE_DELIMITER;
    }
    if (data.n == 0)
        return MULTIPART_NEED_MORE;
    *ret_data = data;
    return MULTIPART_DATA;
}

/* The delimiter line is whole: the part before it is complete. */
static enum multipart_event line_done(struct multipart_parser *p, enum state then)
{
    bool was_in_part = p->in_part;

    p->state = then;
    p->in_part = false;
    p->head_size = 0;
    buf_reset(&p->line);
    return was_in_part ? MULTIPART_PART_END : MULTIPART_NEED_MORE;
}

static enum multipart_event delimiter_step(struct multipart_parser *p, struct slice *in)
{
    uint8_t c = in->p[0];

    take(in, 1);
    if (p->state == STATE_DASH && c == '-')
        return line_done(p, STATE_CLOSED);
    if (p->state == STATE_LF && c == '\n')
        return line_done(p, STATE_HEAD);
    if (p->state == STATE_DELIMITER && c == '-')
        p->state = STATE_DASH;
    else if (p->state != STATE_DASH && p->state != STATE_LF && (c == ' ' || c == '\t'))
        p->state = STATE_PADDING;
    else if (p->state != STATE_DASH && p->state != STATE_LF && c == '\r')
        p->state = STATE_LF;
    else
        return fail(p, "malformed delimiter");
    return MULTIPART_NEED_MORE;
}

/* A backslash is an escape before a character that needs one (tspecials of RFC 2045) and else itself, as
 * with others' envd: Python's clients double it, browsers' FormData and Node's does nothing to it. */
static bool is_escaped(uint8_t c)
{
    return c != 0 && strchr("()<>@,;:\\\"/[]?=", c);
}

/* Decodes backslash escapes and %22 into an owned string. NULL = `*ret_error`. */
static char *value_decode(struct slice s, const char **ret_error)
{
    _cleanup_(freep) char *to = calloc(1, s.n + 1);
    size_t o = 0;

    *ret_error = "out of memory";
    if (!to)
        return NULL;
    for (size_t i = 0; i < s.n; i++) {
        if (s.n - i >= 3 && memcmp(s.p + i, "%22", 3) == 0) {
            to[o++] = '"';
            i += 2;
            continue;
        }
        if (s.p[i] == '\\' && i + 1 < s.n && is_escaped(s.p[i + 1]))
            i++;
        to[o++] = (char)s.p[i];
    }
    *ret_error = "name is not UTF-8";
    return utf8_is_valid(slice_of(to, o)) ? TAKE_PTR(to) : NULL;
}

static const char *disposition_parse(struct multipart_parser *p, struct slice value)
{
    struct slice name, text;
    const char *error;
    int r;

    if (p->name)
        return "two Content-Disposition fields";
    if (!slice_ieq_str(first_part(&value), "form-data"))
        return "Content-Disposition is not form-data";
    while ((r = param_next(&value, &name, &text)) > 0) {
        char **to = slice_ieq_str(name, "name")       ? &p->name
                    : slice_ieq_str(name, "filename") ? &p->filename
                                                      : NULL;

        if (slice_ieq_str(name, "filename*"))
            return "filename* is not supported";
        if (to && *to)
            return "name or filename comes twice";
        if (to) {
            *to = value_decode(text, &error);
            if (!*to)
                return error;
        }
    }
    if (r < 0)
        return "malformed Content-Disposition";
    return p->name ? NULL : "part without a name";
}

/* One field of a part's head. NULL, or what is wrong. */
static const char *field_parse(struct multipart_parser *p, struct slice line)
{
    const uint8_t *colon = memchr(line.p, ':', line.n);
    struct slice name, value;

    if (!colon)
        return "malformed field in a part's head";
    name = slice_of(line.p, (size_t)(colon - line.p));
    value = slice_trim(slice_of(colon + 1, line.n - name.n - 1));
    if (!http1_is_token(name) || !http1_is_value(value))
        return "malformed field in a part's head";
    if (slice_ieq_str(name, "Content-Disposition"))
        return disposition_parse(p, value);
    if (slice_ieq_str(name, "Content-Transfer-Encoding") && !slice_ieq_str(value, "binary") &&
        !slice_ieq_str(value, "8bit") && !slice_ieq_str(value, "7bit"))
        return "Content-Transfer-Encoding is not supported";
    return NULL;
}

static enum multipart_event head_end(struct multipart_parser *p)
{
    if (!p->name)
        return fail(p, "part without Content-Disposition");
    if (p->parts == MULTIPART_PARTS_MAX)
        return fail(p, "too many parts");
    p->parts++;
    p->in_part = true;
    p->state = STATE_DATA;
    /* An empty part's delimiter may follow at once: then the head's CRLF is the delimiter's. */
    p->matched = 2;
    p->lent = 2;
    return MULTIPART_PART;
}

static enum multipart_event head_step(struct multipart_parser *p, struct slice *in)
{
    const uint8_t *lf = memchr(in->p, '\n', in->n);
    size_t n = lf ? (size_t)(lf - in->p) + 1 : in->n;
    struct slice line;
    const char *error;

    if (p->head_size == 0)
        names_drop(p);
    p->head_size += n;
    if (p->head_size > HEAD_MAX)
        return fail(p, "head of a part is over 16 KiB");
    if (buf_append(&p->line, in->p, n) != BUF_OK)
        return fail(p, "out of memory");
    take(in, n);
    if (!lf)
        return MULTIPART_NEED_MORE;
    line = buf_slice(&p->line);
    if (line.n < 2 || line.p[line.n - 2] != '\r')
        return fail(p, "malformed field in a part's head");
    line.n -= 2;
    if (line.n == 0)
        return head_end(p);
    error = field_parse(p, line);
    buf_reset(&p->line);
    return error ? fail(p, error) : MULTIPART_NEED_MORE;
}

static enum multipart_event step(struct multipart_parser *p, struct slice *in,
                                 struct slice *ret_data)
{
    switch (p->state) {
    case STATE_PREAMBLE:
        return preamble_step(p, in);
    case STATE_DELIMITER:
    case STATE_DASH:
    case STATE_PADDING:
    case STATE_LF:
        return delimiter_step(p, in);
    case STATE_HEAD:
        return head_step(p, in);
    case STATE_DATA:
        return body_step(p, in, ret_data);
    case STATE_CLOSED:
        p->state = STATE_EPILOGUE;
        return MULTIPART_END;
    case STATE_EPILOGUE:
        take(in, in->n);
        return MULTIPART_NEED_MORE;
    case STATE_ERROR:
        break;
    }
    return MULTIPART_ERROR;
}

enum multipart_event multipart_parser_next(struct multipart_parser *p, struct slice *in,
                                           struct slice *ret_data)
{
    enum multipart_event ev = MULTIPART_NEED_MORE;

    if (p->state == STATE_ERROR)
        return MULTIPART_ERROR;
    while (ev == MULTIPART_NEED_MORE && (in->n > 0 || p->state == STATE_CLOSED))
        ev = step(p, in, ret_data);
    return ev;
}

const char *multipart_part_name(const struct multipart_parser *p)
{
    return p->name;
}

const char *multipart_part_filename(const struct multipart_parser *p)
{
    return p->filename;
}

const char *multipart_error(const struct multipart_parser *p)
{
    return p->error ? p->error : "no error";
}
