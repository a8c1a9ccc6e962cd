/* output.c - see output.h. A record is stream (1 byte), length (4, native), bytes. */
#include "guest/daemon/output.h"

#include <assert.h>

#define RECORD_HEAD 5u
#define QUIET_MAX 4096u /* so little is moved for each pause of a command */
/* Over the lag by what is read in one go and when a killed command's pipes are emptied. */
#define LOG_MAX (OUTPUT_LAG_MAX + (3u << 20))

static uint32_t record_size(const uint8_t *p)
{
    uint32_t n;

    memcpy(&n, p + 1, sizeof(n));
    return n;
}

/* The record at a mark inside of the log. */
static const uint8_t *record_at(const struct output *o, const struct output_mark *m)
{
    return o->log.mem + o->log.off + (m->at - o->begin.at);
}

static void mark_advance(const struct output *o, struct output_mark *m)
{
    uint32_t n = record_size(record_at(o, m));

    m->at += RECORD_HEAD + n;
    m->offset += n - m->skip;
    m->skip = 0;
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
    return o->begin.at + o->log.len;
}

static void drop_first(struct output *o)
{
    uint64_t before = o->begin.at;

    mark_advance(o, &o->begin); /* not empty */
    buf_consume(&o->log, (size_t)(o->begin.at - before));
}

/* Gives back what the buffer has too much; without memory for the move it stays as it is. */
static void compact(struct output *o)
{
    struct buf small = BUF_INIT(o->log.limit);

    if (o->log.len == 0) {
        buf_done(&o->log);
        return;
    }
    if (o->log.cap <= o->log.len + OUTPUT_CHUNK_MAX || buf_append_slice(&small, buf_slice(&o->log)))
        return;
    buf_done(&o->log);
    o->log = small;
}

static void trim(struct output *o)
{
    uint64_t keep = output_end(o);
    size_t roomy;

    for (const struct output_reader *r = o->readers; r; r = r->next)
        keep = MIN(keep, r->mark.at);
    while (o->log.len > o->ring_max && o->begin.at < keep)
        drop_first(o);
    roomy = MAX(o->log.len, o->ring_max);
    roomy = 4 * MAX(roomy, (size_t)OUTPUT_CHUNK_MAX);
    if (o->log.len == 0 || o->log.cap > roomy || (o->is_closed && !o->readers) ||
        (keep == output_end(o) && o->log.len <= QUIET_MAX))
        compact(o);
}

void output_limit_ring(struct output *o, size_t max)
{
    o->ring_max = MIN(max, (size_t)OUTPUT_RING_MAX);
    if (o->log.len <= o->ring_max)
        return;
    trim(o);
    if (!o->readers)
        compact(o);
}

void output_close(struct output *o)
{
    o->is_closed = true;
    if (!o->readers)
        compact(o);
}

uint8_t *output_reserve(struct output *o, size_t n)
{
    uint8_t *at;

    assert(n <= OUTPUT_CHUNK_MAX);
    while (!o->readers && o->log.len > 0 && buf_room(&o->log) < RECORD_HEAD + n)
        drop_first(o);
    /* A ring goes round in its memory; growing is for a lag. */
    if (o->log.off >= o->log.cap / 4 && o->log.cap - o->log.off - o->log.len < RECORD_HEAD + n &&
        o->log.cap - o->log.len >= RECORD_HEAD + n)
        buf_pack(&o->log);
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
    o->end_offset += n;
    if (!o->readers)
        trim(o);
}

bool output_is_full(const struct output *o)
{
    return o->readers && o->log.len > OUTPUT_LAG_MAX;
}

static void attach(struct output *o, struct output_reader *r, const struct output_mark *m)
{
    r->mark = *m;
    r->next = o->readers;
    o->readers = r;
}

void output_attach(struct output *o, struct output_reader *r, uint64_t *ret_dropped)
{
    struct output_mark end = { .at = output_end(o), .offset = o->end_offset };

    *ret_dropped = 0;
    if (o->readers) {
        attach(o, r, &end);
        return;
    }
    if (o->resume.at < o->begin.at) {
        *ret_dropped = o->begin.offset - o->resume.offset;
        o->resume = o->begin;
    }
    attach(o, r, &o->resume);
}

bool output_attach_at(struct output *o, struct output_reader *r, uint64_t offset,
                      uint64_t *ret_dropped)
{
    struct output_mark m = o->begin;

    if (offset > o->end_offset)
        return false;
    *ret_dropped = offset < m.offset ? m.offset - offset : 0;
    while (m.at < output_end(o) && m.offset + record_size(record_at(o, &m)) <= offset)
        mark_advance(o, &m);
    if (m.offset < offset) {
        m.skip = (uint32_t)(offset - m.offset);
        m.offset = offset;
    }
    attach(o, r, &m);
    return true;
}

void output_detach(struct output *o, struct output_reader *r)
{
    struct output_reader **at = &o->readers;

    while (*at && *at != r)
        at = &(*at)->next;
    assert(*at);
    *at = r->next;
    /* The last one: what it has not taken is the next reader's, what it has is done with. */
    if (!o->readers)
        o->resume = r->mark;
    trim(o);
}

bool output_peek(const struct output *o, const struct output_reader *r,
                 enum output_stream *ret_stream, struct slice *ret)
{
    const uint8_t *p;

    if (r->mark.at >= output_end(o))
        return false;
    p = record_at(o, &r->mark);
    *ret_stream = (enum output_stream)p[0];
    *ret = slice_of(p + RECORD_HEAD + r->mark.skip, record_size(p) - r->mark.skip);
    return true;
}

void output_advance(struct output *o, struct output_reader *r)
{
    mark_advance(o, &r->mark);
    trim(o);
}
