/* sse.c - see sse.h. A line is collected whole, then its field goes to data, name or id. */
#include "wire/sse.h"

#include "base/str.h"

#define NAME_MAX_BYTES 1024u

void sse_decoder_init(struct sse_decoder *d, size_t event_max)
{
    *d = (struct sse_decoder){ 0 };
    buf_init(&d->line, event_max);
    buf_init(&d->data, event_max);
    buf_init(&d->name, NAME_MAX_BYTES);
    buf_init(&d->id, NAME_MAX_BYTES);
}

void sse_decoder_done(struct sse_decoder *d)
{
    buf_done(&d->line);
    buf_done(&d->data);
    buf_done(&d->name);
    buf_done(&d->id);
}

static bool text_set(struct buf *b, struct slice value)
{
    buf_reset(b);
    return buf_append_slice(b, value) == BUF_OK;
}

/* False = over a limit. */
static bool field_take(struct sse_decoder *d, struct slice line)
{
    const uint8_t *colon = memchr(line.p, ':', line.n);
    size_t n = colon ? (size_t)(colon - line.p) : line.n;
    struct slice name = slice_of(line.p, n), value = { 0 };

    if (colon) {
        value = slice_of(colon + 1, line.n - n - 1);
        if (value.n > 0 && value.p[0] == ' ')
            value = slice_of(value.p + 1, value.n - 1);
    }
    if (slice_eq_str(name, "data")) {
        bool ok = !d->has_data || buf_append_byte(&d->data, '\n') == BUF_OK;

        d->has_data = true;
        return ok && buf_append_slice(&d->data, value) == BUF_OK;
    }
    if (slice_eq_str(name, "event"))
        return text_set(&d->name, value);
    if (slice_eq_str(name, "id") && (value.n == 0 || !memchr(value.p, '\0', value.n)))
        return text_set(&d->id, value);
    return true; /* retry, and what is newer */
}

/* A line is complete. NEED_MORE = go on. */
static enum sse_status line_take(struct sse_decoder *d, struct sse_event *ret)
{
    struct slice line = buf_slice(&d->line);

    if (!d->is_started) {
        d->is_started = true;
        if (slice_starts_with(line, "\xef\xbb\xbf"))
            line = slice_of(line.p + 3, line.n - 3);
    }
    if (line.n > 0) {
        bool ok;

        if (!utf8_is_valid(line))
            return SSE_NOT_UTF8;
        ok = line.p[0] == ':' || field_take(d, line);
        buf_reset(&d->line);
        return ok ? SSE_NEED_MORE : SSE_TOO_LARGE;
    }
    buf_reset(&d->line);
    if (!d->has_data) {
        buf_reset(&d->name);
        return SSE_NEED_MORE;
    }
    d->is_taken = true;
    *ret = (struct sse_event){ .name = d->name.len > 0 ? buf_slice(&d->name) : SLICE_LIT("message"),
                               .data = buf_slice(&d->data),
                               .id = buf_slice(&d->id) };
    return SSE_EVENT;
}

enum sse_status sse_decoder_next(struct sse_decoder *d, struct slice *in, struct sse_event *ret)
{
    if (d->is_taken) { /* what the caller borrowed */
        d->is_taken = d->has_data = false;
        buf_reset(&d->data);
        buf_reset(&d->name);
    }
    while (in->n > 0) {
        enum sse_status status;
        size_t n = 0;

        if (d->after_cr) {
            d->after_cr = false;
            if (in->p[0] == '\n') {
                *in = slice_of(in->p + 1, in->n - 1);
                continue;
            }
        }
        while (n < in->n && in->p[n] != '\n' && in->p[n] != '\r')
            n++;
        if (buf_append(&d->line, in->p, n) != BUF_OK)
            return SSE_TOO_LARGE;
        if (n == in->n) {
            *in = slice_of(in->p + n, 0);
            return SSE_NEED_MORE;
        }
        d->after_cr = in->p[n] == '\r';
        *in = slice_of(in->p + n + 1, in->n - n - 1);
        status = line_take(d, ret);
        if (status != SSE_NEED_MORE)
            return status;
    }
    return SSE_NEED_MORE;
}
