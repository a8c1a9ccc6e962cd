/* h2_stream.c - one stream: its head put into the words of HTTP/1.1, its body both ways. See h2.h. */
#include "wire/h2_stream.h"

#include <stdio.h>

#define FIELD_VALUE_MAX HTTP1_HEAD_MAX
#define RESPONSE_FIELDS_MAX (2 * HTTP1_FIELDS_MAX + 8)

struct h2_stream *h2_stream_new(struct h2_conn *c, int32_t id)
{
    struct h2_stream *st = calloc(1, sizeof(*st));

    if (!st)
        return NULL;
    st->conn = c;
    st->id = id;
    buf_init(&st->method, FIELD_VALUE_MAX);
    buf_init(&st->path, FIELD_VALUE_MAX);
    buf_init(&st->authority, FIELD_VALUE_MAX);
    buf_init(&st->scheme, FIELD_VALUE_MAX);
    buf_init(&st->host, FIELD_VALUE_MAX);
    buf_init(&st->cookie, FIELD_VALUE_MAX);
    buf_init(&st->lines, HTTP1_HEAD_MAX);
    buf_init(&st->in, SIZE_MAX / 4);
    buf_init(&st->out, SIZE_MAX / 4);
    if (nghttp2_session_set_stream_user_data(c->session, id, st) != 0) {
        free(st);
        return NULL;
    }
    st->next = c->streams;
    if (st->next)
        st->next->prev = st;
    c->streams = st;
    return st;
}

static void head_text_done(struct h2_stream *st)
{
    buf_done(&st->method);
    buf_done(&st->path);
    buf_done(&st->authority);
    buf_done(&st->scheme);
    buf_done(&st->host);
    buf_done(&st->cookie);
    buf_done(&st->lines);
}

static void give_parser(struct h2_conn *c, struct http1_parser *parser)
{
    if (!parser || c->n_spare == H2_SPARE_PARSERS) {
        http1_parser_free(parser);
        return;
    }
    http1_parser_reset(parser);
    http1_parser_shrink(parser);
    c->spare[c->n_spare++] = parser;
}

static void let_go(struct h2_stream *st, size_t n)
{
    struct h2_conn *c = st->conn;

    c->held -= n;
    if (c->owed > 0 && c->held <= H2_HELD_MAX) {
        h2_conn_consume(c, c->owed);
        c->owed = 0;
    }
}

void h2_stream_free(struct h2_stream *st)
{
    struct h2_conn *c = st->conn;

    let_go(st, st->in.len);
    if (st->prev)
        st->prev->next = st->next;
    else
        c->streams = st->next;
    if (st->next)
        st->next->prev = st->prev;
    head_text_done(st);
    give_parser(c, st->parser);
    buf_done(&st->in);
    buf_done(&st->out);
    free(st);
}

/* --- the head ---------------------------------------------------------------------------------- */

static void set_error(struct h2_stream *st, enum http1_error error)
{
    if (st->error == HTTP1_ERR_NONE)
        st->error = error;
}

static void keep(struct h2_stream *st, struct buf *to, struct slice value)
{
    enum buf_status r = buf_append_slice(to, value);

    if (r != BUF_OK)
        set_error(st, r == BUF_OOM ? HTTP1_ERR_OOM : HTTP1_ERR_HEAD_LARGE);
}

static void put_line(struct h2_stream *st, struct slice name, struct slice value)
{
    enum buf_status r;

    if (name.n + value.n + 4 > buf_room(&st->lines)) {
        set_error(st, HTTP1_ERR_HEAD_LARGE);
        return;
    }
    r = http1_field_put(&st->lines, name, value);
    if (r != BUF_OK)
        set_error(st, r == BUF_OOM ? HTTP1_ERR_OOM : HTTP1_ERR_SYNTAX);
}

void h2_stream_field(struct h2_stream *st, struct slice name, struct slice value)
{
    const struct {
        const char *name;
        struct buf *to;
    } pseudo[] = {
        { ":method", &st->method },
        { ":path", &st->path },
        { ":authority", &st->authority },
        { ":scheme", &st->scheme },
    };

    if (st->error)
        return; /* the rest is decoded for the sake of the connection alone */
    for (size_t i = 0; i < ARRAY_SIZE(pseudo) && name.n > 0 && name.p[0] == ':'; i++) {
        if (slice_eq_str(name, pseudo[i].name)) {
            keep(st, pseudo[i].to, value);
            return;
        }
    }
    if (++st->n_fields > HTTP1_FIELDS_MAX) {
        set_error(st, HTTP1_ERR_HEAD_LARGE);
    } else if (slice_eq_str(name, "host")) {
        if (st->host.len > 0 || value.n == 0)
            set_error(st, HTTP1_ERR_HOST);
        keep(st, &st->host, value);
    } else if (slice_eq_str(name, "cookie")) { /* RFC 9113 8.2.3 */
        if (st->cookie.len > 0)
            keep(st, &st->cookie, SLICE_LIT("; "));
        keep(st, &st->cookie, value);
    } else {
        st->has_length = st->has_length || slice_eq_str(name, "content-length");
        put_line(st, name, value);
    }
}

/* Everything that is a field in HTTP/1.1 and something else here. */
static void put_framing(struct h2_stream *st, bool has_body)
{
    struct slice authority = buf_slice(&st->authority), host = buf_slice(&st->host);
    struct slice scheme = buf_slice(&st->scheme);

    if (authority.n > 0 && host.n > 0 && (host.n != authority.n || !slice_ieq(host, authority)))
        set_error(st, HTTP1_ERR_HOST);
    if (scheme.n > 0 && !slice_ieq_str(scheme, "http") && !slice_ieq_str(scheme, "https"))
        set_error(st, HTTP1_ERR_SYNTAX);
    if (authority.n > 0 || host.n > 0)
        put_line(st, SLICE_LIT("host"), authority.n > 0 ? authority : host);
    if (st->cookie.len > 0)
        put_line(st, SLICE_LIT("cookie"), buf_slice(&st->cookie));
    if (has_body && !st->has_length)
        put_line(st, SLICE_LIT("transfer-encoding"), SLICE_LIT("chunked"));
}

static struct http1_parser *take_parser(struct h2_conn *c)
{
    return c->n_spare > 0 ? c->spare[--c->n_spare] : http1_parser_new(HTTP1_REQUEST);
}

/* Lets http1 read what stands in `text`. */
static enum http1_error read_head(struct h2_stream *st, struct slice text)
{
    struct slice data;

    st->parser = take_parser(st->conn);
    if (!st->parser)
        return HTTP1_ERR_OOM;
    if (http1_parser_next(st->parser, &text, &data) == HTTP1_HEAD)
        return HTTP1_ERR_NONE;
    return http1_parser_error(st->parser) ? http1_parser_error(st->parser) : HTTP1_ERR_SYNTAX;
}

void h2_stream_head_end(struct h2_stream *st, bool has_body)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(HTTP1_HEAD_MAX);
    struct slice method = buf_slice(&st->method);
    struct slice target = buf_slice(slice_eq_str(method, "CONNECT") ? &st->authority : &st->path);
    enum buf_status r = BUF_OK;

    st->is_told = true;
    put_framing(st, has_body);
    if (target.n > HTTP1_TARGET_MAX)
        set_error(st, HTTP1_ERR_TARGET_LARGE);
    if (!st->error) {
        size_t whole = method.n + target.n + st->lines.len + 16;

        if (whole > text.limit)
            r = BUF_LIMIT;
        else if (!buf_reserve(&text, whole, NULL))
            r = BUF_OOM;
        if (r != BUF_OK)
            set_error(st, r == BUF_OOM ? HTTP1_ERR_OOM : HTTP1_ERR_HEAD_LARGE);
    }
    if (!st->error && (http1_request_line(&text, method, target) != BUF_OK ||
                       buf_append_slice(&text, buf_slice(&st->lines)) != BUF_OK ||
                       http1_head_end(&text) != BUF_OK))
        set_error(st, HTTP1_ERR_SYNTAX);
    if (!st->error)
        st->error = read_head(st, buf_slice(&text));
    head_text_done(st);
}

/* --- what its user calls ----------------------------------------------------------------------- */

enum http1_error h2_stream_error(const struct h2_stream *st)
{
    return st->error;
}

const struct http1_head *h2_stream_head(const struct h2_stream *st)
{
    static const struct http1_head none;

    return st->parser ? http1_parser_head(st->parser) : &none;
}

void h2_stream_set_user(struct h2_stream *st, void *user)
{
    st->user = user;
}

void *h2_stream_user(const struct h2_stream *st)
{
    return st->user;
}

struct slice h2_stream_input(const struct h2_stream *st)
{
    return buf_slice(&st->in);
}

bool h2_stream_is_input_done(const struct h2_stream *st)
{
    return st->is_input_done;
}

void h2_stream_take(struct h2_stream *st, size_t n)
{
    buf_consume(&st->in, n);
    if (st->in.len == 0)
        buf_done(&st->in);
    (void)nghttp2_session_consume_stream(st->conn->session, st->id, n);
    let_go(st, n);
}

/* nghttp2 asks for up to `most` bytes of the response; on_send_data writes them. */
static ssize_t pull(nghttp2_session *session, int32_t id, uint8_t *buffer, size_t most,
                    uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct h2_stream *st = source->ptr;
    size_t n = MIN(most, st->out.len);

    (void)session;
    (void)id;
    (void)buffer;
    (void)user;
    if (n == 0 && !st->is_ended) {
        st->is_deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (n == st->out.len && st->is_ended)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

static nghttp2_nv pair_of(const uint8_t *name, size_t n_name, const uint8_t *value, size_t n_value)
{
    return (nghttp2_nv){ (uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, n_name, n_value,
                         NGHTTP2_NV_FLAG_NONE };
}

/* Names in lower case, as HTTP/2 wants them, into `names`. */
static bool add_fields(const struct http1_field *fields, size_t n_fields, struct buf *names,
                       nghttp2_nv *to, size_t *n)
{
    size_t total = 0;

    for (size_t i = 0; i < n_fields; i++)
        total += fields[i].name.n;
    if (!buf_reserve(names, total, NULL))
        return false;
    for (size_t i = 0; i < n_fields; i++) {
        struct slice name = fields[i].name, value = fields[i].value;
        uint8_t *at = buf_data(names) + names->len;

        for (size_t j = 0; j < name.n; j++)
            at[j] = name.p[j] >= 'A' && name.p[j] <= 'Z' ? name.p[j] + 32 : name.p[j];
        buf_commit(names, name.n);
        if (!nghttp2_check_header_name(at, name.n) || !nghttp2_check_header_value(value.p, value.n))
            return false;
        to[(*n)++] = pair_of(at, name.n, value.p, value.n);
    }
    return true;
}

enum buf_status h2_stream_respond(struct h2_stream *st, int status,
                                  const struct http1_field *fields, size_t n_fields,
                                  uint64_t length, bool has_body)
{
    static const uint8_t status_name[] = ":status", length_name[] = "content-length";
    _cleanup_(buf_done) struct buf names = BUF_INIT(HTTP1_HEAD_MAX * 2);
    nghttp2_data_provider provider = { .source.ptr = st, .read_callback = pull };
    nghttp2_nv pairs[RESPONSE_FIELDS_MAX];
    char code[8], digits[24];
    size_t n = 0;
    int r;

    if (n_fields + 2 > RESPONSE_FIELDS_MAX || status < 100 || status > 999)
        return BUF_LIMIT;
    (void)snprintf(code, sizeof(code), "%d", status);
    pairs[n++] = pair_of(status_name, sizeof(status_name) - 1, (const uint8_t *)code, 3);
    if (length != UINT64_MAX && status >= 200 && status != 204 && status != 304) {
        int digits_n = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)length);

        pairs[n++] = pair_of(length_name, sizeof(length_name) - 1, (const uint8_t *)digits,
                             (size_t)digits_n);
    }
    if (n_fields > 0 && !add_fields(fields, n_fields, &names, pairs, &n))
        return BUF_LIMIT;
    if (status < 200) {
        r = nghttp2_submit_headers(st->conn->session, NGHTTP2_FLAG_NONE, st->id, NULL, pairs, n,
                                   NULL);
        return r < 0 ? BUF_OOM : BUF_OK;
    }
    r = nghttp2_submit_response(st->conn->session, st->id, pairs, n, has_body ? &provider : NULL);
    st->is_responding = r == 0;
    return r < 0 ? BUF_OOM : BUF_OK;
}

static void resume(struct h2_stream *st)
{
    if (!st->is_deferred)
        return;
    st->is_deferred = false;
    (void)nghttp2_session_resume_data(st->conn->session, st->id);
}

enum buf_status h2_stream_write(struct h2_stream *st, struct slice s)
{
    enum buf_status r = buf_append_slice(&st->out, s);

    if (r == BUF_OK && s.n > 0)
        resume(st);
    return r;
}

size_t h2_stream_queued(const struct h2_stream *st)
{
    return st->out.len;
}

void h2_stream_end(struct h2_stream *st)
{
    st->is_ended = true;
    resume(st);
}

void h2_stream_reset(struct h2_stream *st, enum h2_code code)
{
    st->is_over = true;
    (void)nghttp2_submit_rst_stream(st->conn->session, NGHTTP2_FLAG_NONE, st->id, (uint32_t)code);
}
