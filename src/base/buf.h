/* buf.h - byte slices and the one growable buffer.
 *
 * struct slice borrows bytes. struct buf owns heap memory, grows by doubling up to the limit given
 * at init and refuses more than that (BUF_LIMIT), so that no input can grow memory unbounded.
 * Bytes are consumed from the front in O(1) amortized.
 */
#pragma once

#include <string.h>

#include "base/macro.h"

struct slice {
    const uint8_t *p;
    size_t n;
};

#define SLICE_LIT(s) ((struct slice){ (const uint8_t *)("" s), sizeof(s) - 1 })

static inline struct slice slice_of(const void *p, size_t n)
{
    return (struct slice){ p, n };
}

/* Borrows a NUL-terminated string; NULL gives the empty slice. */
static inline struct slice slice_str(const char *s)
{
    return (struct slice){ (const uint8_t *)s, s ? strlen(s) : 0 };
}

bool slice_eq(struct slice a, struct slice b);
/* ASCII case-insensitive comparison. */
bool slice_ieq(struct slice a, struct slice b);
static inline bool slice_eq_str(struct slice a, const char *s)
{
    return slice_eq(a, slice_str(s));
}
static inline bool slice_ieq_str(struct slice a, const char *s)
{
    struct slice b = slice_str(s);

    return a.n == b.n && slice_ieq(a, b);
}
bool slice_starts_with(struct slice a, const char *prefix);
/* Drops spaces and tabs at both ends. */
struct slice slice_trim(struct slice a);
/* Copies to a NUL-terminated heap string; NULL when out of memory. Owned by the caller. */
char *slice_dup(struct slice a);

enum buf_status { BUF_OK = 0, BUF_LIMIT, BUF_OOM };

struct buf {
    uint8_t *mem;
    size_t off;   /* first live byte in mem */
    size_t len;   /* live bytes */
    size_t cap;   /* size of mem */
    size_t limit; /* most live bytes ever held */
};

#define BUF_INIT(limit_bytes) { .limit = (limit_bytes) }

void buf_init(struct buf *b, size_t limit_bytes);
void buf_done(struct buf *b);
/* Empties the buffer, keeps its memory. */
void buf_reset(struct buf *b);

static inline uint8_t *buf_data(struct buf *b)
{
    return b->mem ? b->mem + b->off : NULL;
}
static inline struct slice buf_slice(const struct buf *b)
{
    return (struct slice){ b->mem ? b->mem + b->off : NULL, b->len };
}
/* Bytes that may still be added. */
static inline size_t buf_room(const struct buf *b)
{
    return b->limit - b->len;
}

/* Makes room for `n` more bytes and returns where to write them; NULL when over the limit or out
 * of memory (`ret_status`, may be NULL, says which). Follow with buf_commit. */
uint8_t *buf_reserve(struct buf *b, size_t n, enum buf_status *ret_status);
/* Counts `n` bytes, written behind the live ones after buf_reserve, as live. */
void buf_commit(struct buf *b, size_t n);
enum buf_status buf_append(struct buf *b, const void *p, size_t n);
enum buf_status buf_append_slice(struct buf *b, struct slice s);
enum buf_status buf_append_str(struct buf *b, const char *s);
enum buf_status buf_append_byte(struct buf *b, uint8_t c);
enum buf_status buf_printf(struct buf *b, const char *fmt, ...) _printf_(2, 3);
/* Drops the first `n` live bytes (n <= len). */
void buf_consume(struct buf *b, size_t n);
/* Moves the live bytes to the front of the memory, so that all of it behind them is free. */
void buf_pack(struct buf *b);
/* Shortens to the first `n` live bytes (n <= len). */
void buf_truncate(struct buf *b, size_t n);
/* Ensures a NUL behind the live bytes (not counted) and borrows them as a string until the next
 * change; NULL when out of memory. */
const char *buf_cstr(struct buf *b);
