/* output.c - see output.h. A record is stream (1 byte), length (4, native), bytes. */
#include "guest/daemon/output.h"

#include <assert.h>

#define RECORD_HEAD 5u
/* Over the lag by what is read in one go and when a killed command's pipes are emptied. */
#define LOG_MAX (OUTPUT_LAG_MAX + (2u << 20))

static uint32_t record_size(const uint8_t *p)
{
    uint32_t n;

    memcpy(&n, p + 1, sizeof(n));
    return n;
}

void output_init(struct output *o)
{
    memset(o, 0, sizeof(*o));
    buf_init(&o->log, LOG_MAX);
    o->ring_max = OUTPUT_RING_MAX;
}

void output_done(struct output *o)
{
    assert(!o->readers);
    buf_done(&o->log);
}

static uint64_t output_end(const struct output *o)
{
    return o->begin + o->log.len;
}

static void drop_first(struct output *o, bool is_lost)
{
    uint32_t n = record_size(o->log.mem + o->log.off); /* not empty */

    if (is_lost)
        o->dropped += n;
    buf_consume(&o->log, RECORD_HEAD + n);
    o->begin += RECORD_HEAD + n;
}

static void trim(struct output *o)
{
    uint64_t keep = output_end(o);

    if (!o->readers) {
        while (o->log.len > o->ring_max)
            drop_first(o, true);
        if (o->log.len == 0)
            buf_done(&o->log);
        return;
    }
    for (const struct output_reader *r = o->readers; r; r = r->next)
        keep = MIN(keep, r->at);
    if (keep > o->begin) {
        buf_consume(&o->log, (size_t)(keep - o->begin));
        o->begin = keep;
    }
    if (o->log.len == 0)
        buf_done(&o->log); /* a quiet command costs nothing */
}

/* Gives back what the buffer has too much; without memory for the move it stays as it is. */
static void compact(struct output *o)
{
    struct buf small = BUF_INIT(o->log.limit);

    if (o->log.cap <= o->log.len + OUTPUT_CHUNK_MAX || buf_append_slice(&small, buf_slice(&o->log)))
        return;
    buf_done(&o->log);
    o->log = small;
}

void output_limit_ring(struct output *o, size_t max)
{
    o->ring_max = MIN(max, (size_t)OUTPUT_RING_MAX);
    if (o->readers || o->log.len <= o->ring_max)
        return;
    trim(o);
    compact(o);
}

void output_close(struct output *o)
{
    if (!o->readers)
        compact(o);
}

uint8_t *output_reserve(struct output *o, size_t n)
{
    uint8_t *at;

    assert(n <= OUTPUT_CHUNK_MAX);
    while (!o->readers && o->log.len > 0 && buf_room(&o->log) < RECORD_HEAD + n)
        drop_first(o, true);
    at = buf_reserve(&o->log, RECORD_HEAD + n, NULL);
    return at ? at + RECORD_HEAD : NULL;
}

void output_commit(struct output *o, enum output_stream stream, size_t n)
{
    uint8_t *head = o->log.mem + o->log.off + o->log.len; /* reserved */
    uint32_t size = (uint32_t)n;

    if (n == 0) {
        if (o->log.len == 0)
            buf_done(&o->log);
        return;
    }
    head[0] = (uint8_t)stream;
    memcpy(head + 1, &size, sizeof(size));
    buf_commit(&o->log, RECORD_HEAD + n);
    if (!o->readers)
        trim(o);
}

bool output_is_full(const struct output *o)
{
    return o->readers && o->log.len > OUTPUT_LAG_MAX;
}

void output_attach(struct output *o, struct output_reader *r, uint64_t *ret_dropped)
{
    *ret_dropped = 0;
    r->at = output_end(o);
    if (!o->readers) {
        r->at = o->begin;
        *ret_dropped = o->dropped;
        o->dropped = 0;
    }
    r->next = o->readers;
    o->readers = r;
}

void output_detach(struct output *o, struct output_reader *r)
{
    struct output_reader **at = &o->readers;

    while (*at && *at != r)
        at = &(*at)->next;
    assert(*at);
    *at = r->next;
    if (o->readers) {
        trim(o);
        return;
    }
    /* The last one: what it has not taken is the next reader's, what it has is done with. */
    if (r->at > o->begin) {
        buf_consume(&o->log, (size_t)(r->at - o->begin));
        o->begin = r->at;
    }
    trim(o);
}

bool output_peek(const struct output *o, const struct output_reader *r,
                 enum output_stream *ret_stream, struct slice *ret)
{
    struct slice log = buf_slice(&o->log);
    const uint8_t *p;

    if (r->at >= output_end(o))
        return false;
    p = log.p + (r->at - o->begin);
    *ret_stream = (enum output_stream)p[0];
    *ret = slice_of(p + RECORD_HEAD, record_size(p));
    return true;
}

void output_advance(struct output *o, struct output_reader *r)
{
    const uint8_t *p = buf_slice(&o->log).p + (r->at - o->begin);
    bool was_first = r->at == o->begin;

    r->at += RECORD_HEAD + record_size(p);
    if (was_first)
        trim(o);
}
