/* http1.c - the incremental parser: collects heads, passes bodies through (RFC 9112 6, 7).
 *
 * A head is copied once into the parser's buffer, up to its empty line, then parsed whole by
 * http1_head.c; so the events are the same however the bytes arrive. Body bytes are handed on as
 * slices of the input, found by arithmetic, never byte by byte.
 */
#include "wire/http1_head.h"

#define SHRINK_MAX 2048u
#define FIELDS_USUAL 32u

enum state {
    STATE_IDLE,     /* between messages */
    STATE_SKIP_LF,  /* behind the CR of an empty line before a request */
    STATE_HEAD,     /* collecting a head */
    STATE_LENGTH,   /* `left` bytes of body to come */
    STATE_SIZE,     /* digits of a chunk size */
    STATE_EXT_WS,   /* white space behind the size: a ';' must follow */
    STATE_EXT,      /* in a chunk extension */
    STATE_SIZE_LF,  /* behind the CR of a chunk line */
    STATE_CHUNK,    /* `left` bytes of the chunk to come */
    STATE_CHUNK_CR, /* CR behind a chunk's data */
    STATE_CHUNK_LF,
    STATE_TRAILER, /* collecting the trailer section */
    STATE_CLOSE,   /* body until the peer closes */
    STATE_END,     /* END is to be reported */
    STATE_UPGRADED,
    STATE_ERROR,
};

/* Lines up to and with an empty one. */
struct section {
    struct buf buf;
    size_t line; /* bytes of the unfinished line */
};

struct http1_parser {
    enum http1_kind kind;
    enum state state;
    enum http1_error error;
    bool skipped_line; /* one empty line was skipped before this request */
    bool no_body;      /* the next final response has no body */
    bool is_upgrading;
    uint64_t left;
    size_t size_digits; /* of the chunk size */
    size_t size_line;   /* bytes of the chunk line */
    struct section head;
    struct section trailer;
    struct http1_head parsed; /* its fields are memory of our own, for fields_cap of them */
    size_t fields_cap;
};

struct http1_parser *http1_parser_new(enum http1_kind kind)
{
    struct http1_parser *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    p->kind = kind;
    buf_init(&p->head.buf, HTTP1_HEAD_MAX);
    buf_init(&p->trailer.buf, HTTP1_HEAD_MAX);
    return p;
}

void http1_parser_free(struct http1_parser *p)
{
    if (!p)
        return;
    buf_done(&p->head.buf);
    buf_done(&p->trailer.buf);
    free(p->parsed.fields);
    free(p);
}

static enum http1_event fail(struct http1_parser *p, enum http1_error e)
{
    p->state = STATE_ERROR;
    p->error = e;
    return HTTP1_ERROR;
}

static void take(struct slice *in, size_t n)
{
    in->p += n;
    in->n -= n;
}

/* How many bytes of `in` belong to the section that has an unfinished line of *line bytes ending in
 * `last`; *ret_complete when its empty line is among them. -1: a line ends in a bare LF. */
static ssize_t section_measure(struct slice in, size_t *line, uint8_t last, bool *ret_complete)
{
    size_t done = 0;

    while (done < in.n) {
        const uint8_t *lf = memchr(in.p + done, '\n', in.n - done);
        size_t n = lf ? (size_t)(lf - in.p) - done : in.n - done;

        *line += n;
        if (!lf)
            break;
        if ((n > 0 ? lf[-1] : last) != '\r' || *line == 0)
            return -1;
        done += n + 1;
        *ret_complete = *line == 1;
        *line = 0;
        if (*ret_complete)
            return (ssize_t)done;
    }
    return (ssize_t)in.n;
}

/* HTTP1_ERR_NONE and *ret_complete, or the error. Copies what it takes from `in`. */
static enum http1_error section_collect(struct section *s, struct slice *in, bool *ret_complete)
{
    size_t room = buf_room(&s->buf);
    uint8_t last = s->buf.len > 0 ? buf_data(&s->buf)[s->buf.len - 1] : 0;
    ssize_t n = section_measure(slice_of(in->p, MIN(in->n, room)), &s->line, last, ret_complete);

    if (n < 0)
        return HTTP1_ERR_SYNTAX;
    if (buf_append(&s->buf, in->p, (size_t)n) != BUF_OK)
        return HTTP1_ERR_OOM;
    take(in, (size_t)n);
    return !*ret_complete && in->n > 0 ? HTTP1_ERR_HEAD_LARGE : HTTP1_ERR_NONE;
}

/* 431, or 414 when it was the request line that did not fit. */
static enum http1_error too_large(const struct http1_parser *p)
{
    struct slice s = buf_slice(&p->head.buf);
    const uint8_t *lf = memchr(s.p, '\n', s.n);

    if (p->kind == HTTP1_REQUEST && (!lf || (size_t)(lf - s.p) > HTTP1_TARGET_MAX + 256))
        return HTTP1_ERR_TARGET_LARGE;
    return HTTP1_ERR_HEAD_LARGE;
}

static void body_begin(struct http1_parser *p)
{
    p->left = p->parsed.content_length;
    p->size_digits = 0;
    p->size_line = 0;
    switch (p->parsed.framing) {
    case HTTP1_BODY_NONE:
        p->state = STATE_END;
        break;
    case HTTP1_BODY_LENGTH:
        p->state = p->left > 0 ? STATE_LENGTH : STATE_END;
        break;
    case HTTP1_BODY_CHUNKED:
        p->left = 0;
        p->state = STATE_SIZE;
        break;
    case HTTP1_BODY_UNTIL_CLOSE:
        p->state = STATE_CLOSE;
        break;
    }
}

/* Memory for as many fields as the head has lines. */
static bool fields_reserve(struct http1_parser *p)
{
    struct slice head = buf_slice(&p->head.buf);
    const uint8_t *at = head.p, *end = head.p + head.n;
    struct http1_field *fields;
    size_t n = 0;

    while (at < end && n < HTTP1_FIELDS_MAX && (at = memchr(at, '\n', (size_t)(end - at)))) {
        at++;
        n++;
    }
    if (n <= p->fields_cap)
        return true;
    n = MIN((n + 7) / 8 * 8, (size_t)HTTP1_FIELDS_MAX);
    fields = reallocarray(p->parsed.fields, n, sizeof(*fields));
    if (!fields)
        return false;
    p->parsed.fields = fields;
    p->fields_cap = n;
    return true;
}

static enum http1_event head_step(struct http1_parser *p, struct slice *in)
{
    bool is_complete = false;
    enum http1_error e = section_collect(&p->head, in, &is_complete);

    if (e == HTTP1_ERR_HEAD_LARGE)
        e = too_large(p);
    if (e)
        return fail(p, e);
    if (!is_complete)
        return HTTP1_NEED_MORE;
    if (!fields_reserve(p))
        return fail(p, HTTP1_ERR_OOM);
    e = http1_head_parse(p->kind, buf_slice(&p->head.buf), p->no_body, &p->parsed);
    if (e)
        return fail(p, e);
    /* Interim responses (100, 103) leave the answer to a HEAD still to come. */
    if (p->parsed.status >= 200 || p->parsed.status == 101)
        p->no_body = false;
    body_begin(p);
    return HTTP1_HEAD;
}

/* The first byte of a message. Garbage (a TLS hello, say) fails here instead of after a time-out. */
static enum http1_event idle_step(struct http1_parser *p, struct slice *in)
{
    if (p->kind == HTTP1_REQUEST && in->p[0] == '\r' && !p->skipped_line) {
        take(in, 1);
        p->skipped_line = true;
        p->state = STATE_SKIP_LF;
        return HTTP1_NEED_MORE;
    }
    if (!http1_is_token_char(in->p[0]))
        return fail(p, HTTP1_ERR_SYNTAX);
    p->skipped_line = false;
    buf_reset(&p->head.buf);
    p->head.line = 0;
    p->parsed.n_fields = 0;
    p->state = STATE_HEAD;
    return HTTP1_NEED_MORE;
}

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One byte of a chunk's size or extension. False = malformed. */
static bool size_byte(struct http1_parser *p, uint8_t c)
{
    int digit = p->state == STATE_SIZE ? hex_digit(c) : -1;

    if (++p->size_line > HTTP1_CHUNK_LINE_MAX)
        return false;
    if (digit >= 0) {
        p->left = p->left << 4 | (unsigned)digit;
        return ++p->size_digits <= 16 && p->left <= INT64_MAX;
    }
    if (p->size_digits == 0)
        return false;
    if (p->state == STATE_EXT) {
        if (c == '\r')
            p->state = STATE_SIZE_LF;
        return c == '\r' || c == '\t' || (c >= 0x20 && c != 0x7f);
    }
    if (c == ';')
        p->state = STATE_EXT;
    else if (c == ' ' || c == '\t')
        p->state = STATE_EXT_WS;
    else if (c == '\r' && p->state == STATE_SIZE)
        p->state = STATE_SIZE_LF;
    else
        return false;
    return true;
}

static enum http1_event size_step(struct http1_parser *p, struct slice *in)
{
    while (in->n > 0 &&
           (p->state == STATE_SIZE || p->state == STATE_EXT_WS || p->state == STATE_EXT)) {
        if (!size_byte(p, in->p[0]))
            return fail(p, HTTP1_ERR_CHUNK);
        take(in, 1);
    }
    return HTTP1_NEED_MORE;
}

/* A fixed byte: CR or LF between the parts of a message. */
static enum http1_event expect_byte(struct http1_parser *p, struct slice *in, uint8_t c,
                                    enum state then)
{
    if (in->p[0] != c)
        return fail(p, p->state == STATE_SKIP_LF ? HTTP1_ERR_SYNTAX : HTTP1_ERR_CHUNK);
    take(in, 1);
    p->state = then;
    return HTTP1_NEED_MORE;
}

static enum http1_event size_end(struct http1_parser *p, struct slice *in)
{
    enum http1_event ev = expect_byte(p, in, '\n', p->left > 0 ? STATE_CHUNK : STATE_TRAILER);

    p->size_digits = 0;
    p->size_line = 0;
    buf_reset(&p->trailer.buf);
    p->trailer.line = 0;
    return ev;
}

static enum http1_event data_step(struct http1_parser *p, struct slice *in, enum state then,
                                  struct slice *ret_data)
{
    size_t n = (size_t)MIN((uint64_t)in->n, p->left);

    *ret_data = slice_of(in->p, n);
    take(in, n);
    p->left -= n;
    if (p->left == 0)
        p->state = then;
    return HTTP1_DATA;
}

static enum http1_event trailer_step(struct http1_parser *p, struct slice *in)
{
    bool is_complete = false;
    enum http1_error e = section_collect(&p->trailer, in, &is_complete);

    if (!e && is_complete)
        e = http1_trailer_check(buf_slice(&p->trailer.buf));
    if (e)
        return fail(p, e);
    if (is_complete)
        p->state = STATE_END;
    return HTTP1_NEED_MORE;
}

static enum http1_event end_step(struct http1_parser *p)
{
    p->state = p->is_upgrading ? STATE_UPGRADED : STATE_IDLE;
    return HTTP1_END;
}

/* One step; NEED_MORE means that the caller goes on as long as there is input. */
static enum http1_event step(struct http1_parser *p, struct slice *in, struct slice *ret_data)
{
    switch (p->state) {
    case STATE_IDLE:
        return idle_step(p, in);
    case STATE_SKIP_LF:
        return expect_byte(p, in, '\n', STATE_IDLE);
    case STATE_HEAD:
        return head_step(p, in);
    case STATE_LENGTH:
        return data_step(p, in, STATE_END, ret_data);
    case STATE_SIZE:
    case STATE_EXT_WS:
    case STATE_EXT:
        return size_step(p, in);
    case STATE_SIZE_LF:
        return size_end(p, in);
    case STATE_CHUNK:
        return data_step(p, in, STATE_CHUNK_CR, ret_data);
    case STATE_CHUNK_CR:
        return expect_byte(p, in, '\r', STATE_CHUNK_LF);
    case STATE_CHUNK_LF:
        return expect_byte(p, in, '\n', STATE_SIZE);
    case STATE_TRAILER:
        return trailer_step(p, in);
    case STATE_CLOSE:
    case STATE_UPGRADED:
        *ret_data = *in;
        take(in, in->n);
        return p->state == STATE_CLOSE ? HTTP1_DATA : HTTP1_UPGRADED;
    case STATE_END:
        return end_step(p);
    case STATE_ERROR:
        break;
    }
    return HTTP1_ERROR;
}

enum http1_event http1_parser_next(struct http1_parser *p, struct slice *in, struct slice *ret_data)
{
    enum http1_event ev = HTTP1_NEED_MORE;

    if (p->state == STATE_END)
        return end_step(p);
    if (p->state == STATE_ERROR)
        return HTTP1_ERROR;
    while (ev == HTTP1_NEED_MORE && (in->n > 0 || p->state == STATE_END))
        ev = step(p, in, ret_data);
    return ev;
}

const struct http1_head *http1_parser_head(const struct http1_parser *p)
{
    return &p->parsed;
}

enum http1_error http1_parser_error(const struct http1_parser *p)
{
    return p->error;
}

void http1_parser_expect_no_body(struct http1_parser *p)
{
    p->no_body = true;
}

void http1_parser_upgrade(struct http1_parser *p)
{
    p->is_upgrading = true;
    if (p->state == STATE_IDLE)
        p->state = STATE_UPGRADED;
}

enum http1_event http1_parser_eof(struct http1_parser *p)
{
    switch (p->state) {
    case STATE_IDLE:
    case STATE_UPGRADED:
        return HTTP1_NEED_MORE;
    case STATE_CLOSE:
    case STATE_END:
        return end_step(p);
    case STATE_ERROR:
        return HTTP1_ERROR;
    default:
        return fail(p, HTTP1_ERR_EOF);
    }
}

bool http1_parser_is_idle(const struct http1_parser *p)
{
    return p->state == STATE_IDLE;
}

void http1_parser_reset(struct http1_parser *p)
{
    p->state = STATE_IDLE;
    p->error = HTTP1_ERR_NONE;
    p->skipped_line = p->no_body = p->is_upgrading = false;
}

void http1_parser_shrink(struct http1_parser *p)
{
    if (p->state != STATE_IDLE)
        return;
    /* What an ordinary head needs stays: parsers are pooled. */
    if (p->head.buf.cap > SHRINK_MAX)
        buf_done(&p->head.buf);
    buf_done(&p->trailer.buf);
    p->parsed.n_fields = 0;
    if (p->fields_cap > FIELDS_USUAL) {
        free(TAKE_PTR(p->parsed.fields));
        p->fields_cap = 0;
    }
}

int http1_error_status(enum http1_error e)
{
    switch (e) {
    case HTTP1_ERR_VERSION:
        return 505;
    case HTTP1_ERR_HEAD_LARGE:
        return 431;
    case HTTP1_ERR_TARGET_LARGE:
        return 414;
    case HTTP1_ERR_EXPECT:
        return 417;
    case HTTP1_ERR_OOM:
        return 503;
    case HTTP1_ERR_NONE:
    case HTTP1_ERR_SYNTAX:
    case HTTP1_ERR_FRAMING:
    case HTTP1_ERR_HOST:
    case HTTP1_ERR_CHUNK:
    case HTTP1_ERR_EOF:
        break;
    }
    return 400;
}

const char *http1_error_text(enum http1_error e)
{
    switch (e) {
    case HTTP1_ERR_NONE:
        break;
    case HTTP1_ERR_SYNTAX:
        return "malformed HTTP message";
    case HTTP1_ERR_VERSION:
        return "HTTP version is not 1.0 or 1.1";
    case HTTP1_ERR_HEAD_LARGE:
        return "header is over 64 KiB or has over 100 fields";
    case HTTP1_ERR_TARGET_LARGE:
        return "request target is over 32 KiB";
    case HTTP1_ERR_FRAMING:
        return "Content-Length or Transfer-Encoding is malformed or ambiguous";
    case HTTP1_ERR_HOST:
        return "Host is missing, repeated or malformed";
    case HTTP1_ERR_CHUNK:
        return "malformed chunk";
    case HTTP1_ERR_EXPECT:
        return "Expect may only be 100-continue";
    case HTTP1_ERR_OOM:
        return "out of memory";
    case HTTP1_ERR_EOF:
        return "connection closed inside a message";
    }
    return "no error";
}
