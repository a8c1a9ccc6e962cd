/* output.h - what a command wrote, once in memory for any number of readers.
 *
 * A log of records (stream, bytes). Readers hold marks. The newest bytes, at most OUTPUT_RING_MAX, stay
 * also when they were read, for a client that lost its connection and asks again from an offset; what
 * readers have not passed stays in any case. An offset counts payload bytes of all streams together
 * since the command's start. The owner stops reading from the command while output_is_full. Pure: no
 * file descriptor, no loop.
 */
#pragma once

#include "base/buf.h"

#define OUTPUT_LAG_MAX (4u << 20)  /* how far a reader may be behind before the command waits */
#define OUTPUT_RING_MAX (1u << 20) /* kept for readers to come */
#define OUTPUT_CHUNK_MAX 32768u

enum output_stream { OUTPUT_STDOUT, OUTPUT_STDERR, OUTPUT_PTY };

struct output_mark {
    uint64_t at;     /* position of the record in the log since its beginning, heads included */
    uint64_t offset; /* of the next payload byte */
    uint32_t skip;   /* bytes of that record which are behind already */
};

struct output_reader {
    struct output_reader *next;
    struct output_mark mark;
};

struct output {
    struct buf log;
    struct output_mark begin; /* the first record in `log` */
    uint64_t end_offset;
    struct output_mark resume; /* where a next first reader begins */
    struct output_reader *readers;
    size_t ring_max; /* at most OUTPUT_RING_MAX */
    bool is_closed;
};

void output_init(struct output *o);
/* Readers must be gone. */
void output_done(struct output *o);

/* Keeps less for readers to come from now on (many commands share the memory). */
void output_limit_ring(struct output *o, size_t max);

/* Nothing more will be written: memory beyond what is kept goes back. */
void output_close(struct output *o);

/* Room for a record of up to `n` bytes (at most OUTPUT_CHUNK_MAX): where to write them, NULL when
 * out of memory. Nothing else of `o` may be called until output_commit with what was written (0 =
 * nothing). */
uint8_t *output_reserve(struct output *o, size_t n);
void output_commit(struct output *o, enum output_stream stream, size_t n);

/* A reader is so far behind that the command has to wait. */
bool output_is_full(const struct output *o);

/* A first reader begins with what no one has read, as far as it is kept, and learns how many bytes are
 * gone; a further one begins with what comes next. */
void output_attach(struct output *o, struct output_reader *r, uint64_t *ret_dropped);
/* Begins at `offset`, or with the oldest byte that is kept. False, and not attached, when the command
 * has not written that much. */
bool output_attach_at(struct output *o, struct output_reader *r, uint64_t offset,
                      uint64_t *ret_dropped);
void output_detach(struct output *o, struct output_reader *r);

/* Next record of a reader, borrowed until the next call on `o`; false when there is none. */
bool output_peek(const struct output *o, const struct output_reader *r,
                 enum output_stream *ret_stream, struct slice *ret);
/* Passes it. */
void output_advance(struct output *o, struct output_reader *r);
