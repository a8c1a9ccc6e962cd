/* buf.c - slices and the growable buffer. See buf.h. */
#include "base/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#define BUF_MIN_CAP 256

static uint8_t lower(uint8_t c)
{
    return c >= 'A' && c <= 'Z' ? (uint8_t)(c + 32) : c;
}

bool slice_eq(struct slice a, struct slice b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

bool slice_ieq(struct slice a, struct slice b)
{
    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++)
        if (lower(a.p[i]) != lower(b.p[i]))
            return false;
    return true;
}

bool slice_starts_with(struct slice a, const char *prefix)
{
    size_t n = strlen(prefix);

    return a.n >= n && (n == 0 || memcmp(a.p, prefix, n) == 0);
}

struct slice slice_trim(struct slice a)
{
    while (a.n > 0 && (a.p[0] == ' ' || a.p[0] == '\t')) {
        a.p++;
        a.n--;
    }
    while (a.n > 0 && (a.p[a.n - 1] == ' ' || a.p[a.n - 1] == '\t'))
        a.n--;
    return a;
}

char *slice_dup(struct slice a)
{
    char *s;

    if (a.n == SIZE_MAX)
        return NULL;
    s = malloc(a.n + 1);
    if (!s)
        return NULL;
    if (a.n > 0)
        memcpy(s, a.p, a.n);
    s[a.n] = '\0';
    return s;
}

void buf_init(struct buf *b, size_t limit_bytes)
{
    *b = (struct buf)BUF_INIT(limit_bytes);
}

void buf_done(struct buf *b)
{
    free(b->mem);
    *b = (struct buf)BUF_INIT(b->limit);
}

void buf_reset(struct buf *b)
{
    b->off = 0;
    b->len = 0;
}

void buf_pack(struct buf *b)
{
    if (b->off > 0 && b->len > 0)
        memmove(b->mem, b->mem + b->off, b->len);
    b->off = 0;
}

static enum buf_status buf_grow(struct buf *b, size_t n)
{
    size_t need, cap;
    uint8_t *mem;

    if (__builtin_add_overflow(b->len, n, &need))
        return BUF_LIMIT;
    if (b->off > 0 && (need <= b->cap / 2 || b->off >= b->len)) {
        buf_pack(b);
        if (need <= b->cap)
            return BUF_OK;
    }
    if (__builtin_add_overflow(need, b->off, &need))
        return BUF_LIMIT;
    cap = b->cap ? b->cap : BUF_MIN_CAP;
    while (cap < need)
        if (__builtin_mul_overflow(cap, (size_t)2, &cap))
            return BUF_LIMIT;
    mem = realloc(b->mem, cap);
    if (!mem)
        return BUF_OOM;
    b->mem = mem;
    b->cap = cap;
    return BUF_OK;
}

/* Room for `n` bytes behind the live ones, whatever the limit says. */
static enum buf_status buf_room_make(struct buf *b, size_t n)
{
    return !b->mem || b->cap - b->off - b->len < n ? buf_grow(b, n) : BUF_OK;
}

uint8_t *buf_reserve(struct buf *b, size_t n, enum buf_status *ret_status)
{
    enum buf_status s = n > b->limit - b->len ? BUF_LIMIT : buf_room_make(b, n);

    if (ret_status)
        *ret_status = s;
    return s == BUF_OK ? b->mem + b->off + b->len : NULL;
}

void buf_commit(struct buf *b, size_t n)
{
    assert(b->cap - b->off - b->len >= n);
    b->len += n;
}

enum buf_status buf_append(struct buf *b, const void *p, size_t n)
{
    enum buf_status s;
    uint8_t *to = buf_reserve(b, n, &s);

    if (!to)
        return s;
    if (n > 0)
        memcpy(to, p, n);
    b->len += n;
    return BUF_OK;
}

enum buf_status buf_append_slice(struct buf *b, struct slice s)
{
    return buf_append(b, s.p, s.n);
}

enum buf_status buf_append_str(struct buf *b, const char *s)
{
    return buf_append(b, s, strlen(s));
}

enum buf_status buf_append_byte(struct buf *b, uint8_t c)
{
    return buf_append(b, &c, 1);
}

enum buf_status buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    enum buf_status s;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        return BUF_OOM;
    if ((size_t)n > b->limit - b->len)
        return BUF_LIMIT;
    /* vsnprintf's NUL is never live, so the limit does not count it. */
    s = buf_room_make(b, (size_t)n + 1);
    if (s != BUF_OK)
        return s;
    va_start(ap, fmt);
    (void)vsnprintf((char *)b->mem + b->off + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return BUF_OK;
}

void buf_consume(struct buf *b, size_t n)
{
    assert(n <= b->len);
    b->len -= n;
    b->off = b->len > 0 ? b->off + n : 0;
}

void buf_truncate(struct buf *b, size_t n)
{
    assert(n <= b->len);
    b->len = n;
}

const char *buf_cstr(struct buf *b)
{
    if (buf_room_make(b, 1) != BUF_OK)
        return NULL;
    b->mem[b->off + b->len] = '\0';
    return (const char *)b->mem + b->off;
}
