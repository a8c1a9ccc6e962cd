/* output.h - what a command wrote, once in memory for any number of readers.
 *
 * A log of records (stream, bytes). Readers hold positions; what every reader has passed is dropped.
 * Without a reader the newest bytes, at most OUTPUT_RING_MAX, are kept for the next one, and what had
 * to be dropped is counted. The owner stops reading from the command while output_is_full. Pure: no file
 * descriptor, no loop.
 */
#pragma once

#include "base/buf.h"

#define OUTPUT_LAG_MAX (4u << 20)  /* how far a reader may be behind before the command waits */
#define OUTPUT_RING_MAX (1u << 20) /* kept without a reader */
#define OUTPUT_CHUNK_MAX 32768u

enum output_stream { OUTPUT_STDOUT, OUTPUT_STDERR, OUTPUT_PTY };

struct output_reader {
    struct output_reader *next;
    uint64_t at; /* position of the next record */
};

struct output {
    struct buf log;
    uint64_t begin; /* position of the first byte in `log` */
    struct output_reader *readers;
    uint64_t dropped; /* payload bytes lost since the last reader left */
    size_t ring_max;  /* at most OUTPUT_RING_MAX */
};

void output_init(struct output *o);
/* Readers must be gone. */
void output_done(struct output *o);

/* Keeps less without a reader from now on (many commands share the memory). */
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

/* A first reader begins with what is kept and learns what was dropped before; a further one begins
 * with what comes next. */
void output_attach(struct output *o, struct output_reader *r, uint64_t *ret_dropped);
void output_detach(struct output *o, struct output_reader *r);

/* Next record of a reader, borrowed until the next call on `o`; false when there is none. */
bool output_peek(const struct output *o, const struct output_reader *r,
                 enum output_stream *ret_stream, struct slice *ret);
/* Passes it. */
void output_advance(struct output *o, struct output_reader *r);
