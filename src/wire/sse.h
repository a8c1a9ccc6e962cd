/* sse.h - Server-Sent Events, receiving side (HTML standard, "Server-sent events").
 *
 * Lines end with LF, CR or CRLF; a byte order mark at the beginning is dropped; comments and unknown
 * fields are skipped; an event without data is not one; what stands behind the last blank line is
 * dropped at the end, as the standard says. Text that is not UTF-8 is refused, and so is an event
 * over the limit given at init.
 */
#pragma once

#include "base/buf.h"

enum sse_status { SSE_NEED_MORE, SSE_EVENT, SSE_TOO_LARGE, SSE_NOT_UTF8 };

struct sse_event {
    struct slice name; /* "message" when the server gave none */
    struct slice data; /* lines joined by LF */
    struct slice id;   /* last one seen, may be empty */
};

struct sse_decoder {
    struct buf line;
    struct buf data;
    struct buf name;
    struct buf id;
    bool has_data, after_cr, is_started, is_taken;
};

void sse_decoder_init(struct sse_decoder *d, size_t event_max);
void sse_decoder_done(struct sse_decoder *d);
/* Takes from *in; on EVENT `*ret` is borrowed until the next call. Call again until NEED_MORE.
 * TOO_LARGE (also out of memory) and NOT_UTF8 are final. */
enum sse_status sse_decoder_next(struct sse_decoder *d, struct slice *in, struct sse_event *ret);
