/* connect.c - see connect.h. */
#include "wire/connect.h"

#include "base/str.h"
#include "wire/json.h"

/* An idle stream keeps no more than this. */
#define KEEP_MAX 65536u

void connect_decoder_init(struct connect_decoder *d)
{
    buf_init(&d->buf, CONNECT_PREFIX_SIZE + CONNECT_MESSAGE_MAX);
}

void connect_decoder_done(struct connect_decoder *d)
{
    buf_done(&d->buf);
}

static uint32_t prefix_length(const uint8_t *p)
{
    return (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
}

/* The buffer never holds more than one message: is it a whole one? */
static bool is_whole(const struct buf *b)
{
    return b->len >= CONNECT_PREFIX_SIZE &&
           b->len - CONNECT_PREFIX_SIZE == prefix_length(b->mem + b->off);
}

/* Takes bytes until the buffer holds `want`. False when out of memory. */
static bool fill(struct connect_decoder *d, struct slice *in, size_t want)
{
    size_t n = d->buf.len < want ? MIN(want - d->buf.len, in->n) : 0;

    if (n > 0 && buf_append(&d->buf, in->p, n) != BUF_OK)
        return false;
    *in = slice_of(n > 0 ? in->p + n : in->p, in->n - n);
    return true;
}

enum connect_event connect_decoder_next(struct connect_decoder *d, struct slice *in,
                                        uint8_t *ret_flags, struct slice *ret_message)
{
    const uint8_t *p;
    uint32_t n;

    if (is_whole(&d->buf)) {
        if (d->buf.cap > KEEP_MAX)
            buf_done(&d->buf);
        buf_reset(&d->buf);
    }
    if (!fill(d, in, CONNECT_PREFIX_SIZE))
        return CONNECT_TOO_LARGE;
    if (d->buf.len < CONNECT_PREFIX_SIZE)
        return CONNECT_NEED_MORE;
    p = d->buf.mem + d->buf.off;
    *ret_flags = p[0];
    if (p[0] & ~CONNECT_FLAG_END)
        return CONNECT_BAD_FLAGS;
    n = prefix_length(p);
    if (n > CONNECT_MESSAGE_MAX || !fill(d, in, CONNECT_PREFIX_SIZE + (size_t)n))
        return CONNECT_TOO_LARGE;
    if (!is_whole(&d->buf))
        return CONNECT_NEED_MORE;
    p = d->buf.mem + d->buf.off;
    *ret_message = slice_of(p + CONNECT_PREFIX_SIZE, n);
    return CONNECT_MESSAGE;
}

bool connect_decoder_is_partial(const struct connect_decoder *d)
{
    return d->buf.len > 0 && !is_whole(&d->buf);
}

void connect_prefix_encode(uint8_t to[CONNECT_PREFIX_SIZE], uint8_t flags, uint32_t n)
{
    to[0] = flags;
    to[1] = (uint8_t)(n >> 24);
    to[2] = (uint8_t)(n >> 16);
    to[3] = (uint8_t)(n >> 8);
    to[4] = (uint8_t)n;
}

bool connect_envelope_begin(struct buf *b, uint8_t flags, size_t *ret_mark)
{
    uint8_t prefix[CONNECT_PREFIX_SIZE];
    size_t mark = b->len;

    connect_prefix_encode(prefix, flags, 0);
    if (buf_append(b, prefix, sizeof prefix) != BUF_OK)
        return false;
    *ret_mark = mark;
    return true;
}

bool connect_envelope_end(struct buf *b, size_t mark)
{
    size_t n = b->len - mark - CONNECT_PREFIX_SIZE;
    uint8_t *prefix = b->mem + b->off + mark;

    if (n > CONNECT_MESSAGE_MAX) {
        buf_truncate(b, mark);
        return false;
    }
    connect_prefix_encode(prefix, prefix[0], (uint32_t)n);
    return true;
}

enum buf_status connect_error_json(struct buf *b, const struct abx_err *err)
{
    size_t before = b->len;
    enum buf_status st = buf_printf(b, "{\"code\":\"%s\",\"message\":", err_code_name(err->code));

    if (st == BUF_OK)
        st = json_string_put(b, slice_str(err->msg));
    if (st == BUF_OK)
        st = buf_append_byte(b, '}');
    if (st != BUF_OK)
        buf_truncate(b, before);
    return st;
}

enum buf_status connect_end_stream(struct buf *b, const struct abx_err *err)
{
    bool failed = err && err->code != ABX_OK;
    size_t mark = b->len;
    enum buf_status st = BUF_LIMIT;

    if (connect_envelope_begin(b, CONNECT_FLAG_END, &mark)) {
        st = buf_append_str(b, failed ? "{\"error\":" : "{");
        if (st == BUF_OK && failed)
            st = connect_error_json(b, err);
        if (st == BUF_OK)
            st = buf_append_byte(b, '}');
        if (st == BUF_OK && !connect_envelope_end(b, mark))
            st = BUF_LIMIT;
    }
    if (st != BUF_OK)
        buf_truncate(b, mark);
    return st;
}

bool connect_timeout_parse(struct slice value, uint64_t *ret_ms)
{
    return value.n <= 10 && str_parse_u64(value, UINT64_MAX, ret_ms);
}

static const char *const types[2][2] = {
    [CONNECT_JSON] = { "application/json", "application/connect+json" },
    [CONNECT_PROTO] = { "application/proto", "application/connect+proto" },
};

bool connect_content_type(struct slice value, enum connect_codec *ret_codec, bool *ret_stream)
{
    const uint8_t *semicolon = value.n ? memchr(value.p, ';', value.n) : NULL;

    if (semicolon)
        value.n = (size_t)(semicolon - value.p);
    value = slice_trim(value);
    for (size_t codec = 0; codec < 2; codec++)
        for (size_t stream = 0; stream < 2; stream++)
            if (slice_ieq_str(value, types[codec][stream])) {
                *ret_codec = (enum connect_codec)codec;
                *ret_stream = stream == 1;
                return true;
            }
    return false;
}

const char *connect_content_type_name(enum connect_codec codec, bool is_stream)
{
    return types[codec][is_stream];
}
