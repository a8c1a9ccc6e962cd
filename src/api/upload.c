/* upload.c - see upload.h. */
#include "api/upload.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"

#define PLAIN_SIZE 65536u
#define GZIP_WINDOW (15 + 16) /* zlib: with a gzip head */

static bool is_multipart(const struct upload *u)
{
    return u->boundary[0] != '\0';
}

bool upload_name_is_plain(const char *path)
{
    for (; *path; path++)
        if ((uint8_t)*path < 0x20 || *path == 0x7f || strchr("\"\\%", *path))
            return false;
    return true;
}

/* What stands in front of item `i`, behind the last one when i == count: up to `size` bytes to `to`; returns how many
 * there are. */
static size_t text_write(const struct upload *u, size_t i, char *to, size_t size)
{
    int n;

    if (!is_multipart(u))
        return 0;
    if (i == u->count)
        n = snprintf(to, size, "\r\n--%s--\r\n", u->boundary);
    else
        n = snprintf(to, size,
                     "%s--%s\r\nContent-Disposition: form-data; name=\"file\"; "
                     "filename=\"%s\"\r\nContent-Type: application/octet-stream\r\n\r\n",
                     i > 0 ? "\r\n" : "", u->boundary, u->has_names ? u->items[i].path : "file");
    return (size_t)n;
}

static enum buf_status text_make(struct upload *u, size_t i, struct buf *b)
{
    size_t n = text_write(u, i, NULL, 0);
    enum buf_status st = BUF_OK;
    uint8_t *to = buf_reserve(b, n + 1, &st);

    if (to)
        buf_commit(b, text_write(u, i, (char *)to, n + 1));
    return st;
}

static int boundary_make(struct upload *u, struct abx_err *err)
{
    uint8_t random[16];

    if (getentropy(random, sizeof random) < 0)
        return err_sys(err, errno, "random bytes for a boundary");
    memcpy(u->boundary, "abx-", 4);
    hex_encode(random, sizeof random, u->boundary + 4);
    return 0;
}

int upload_init(struct upload *u, const struct abx_write_item *items, size_t count, bool is_raw,
                bool has_names, bool is_gzip, struct abx_err *err)
{
    int r = 0;

    *u = (struct upload){ .items = items, .count = count, .has_names = has_names };
    buf_init(&u->text, SIZE_MAX / 2);
    if (!is_raw)
        r = boundary_make(u, err);
    if (r < 0)
        return r;
    if (text_make(u, 0, &u->text) != BUF_OK)
        return err_oom(err);
    if (!is_gzip)
        return 0;
    u->plain = malloc(PLAIN_SIZE);
    if (!u->plain || deflateInit2(&u->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, 8,
                                  Z_DEFAULT_STRATEGY) != Z_OK)
        return err_oom(err);
    u->is_gzip = true;
    return 0;
}

void upload_done(struct upload *u)
{
    if (u->is_gzip)
        (void)deflateEnd(&u->z);
    u->is_gzip = false;
    free(TAKE_PTR(u->plain));
    buf_done(&u->text);
}

int64_t upload_size(const struct upload *u)
{
    int64_t n = 0;

    if (u->is_gzip)
        return ABX_UNSET;
    for (size_t i = 0; i <= u->count; i++) {
        const struct abx_write_item *item = &u->items[i];
        int64_t more = 0;

        if (i < u->count)
            more = item->source ? item->source_size : (int64_t)item->size;
        if (more < 0 || __builtin_add_overflow(more, (int64_t)text_write(u, i, NULL, 0), &more) ||
            __builtin_add_overflow(n, more, &n))
            return ABX_UNSET;
    }
    return n;
}

/* The item's end: on to the text behind it. */
static int64_t item_end(struct upload *u)
{
    const struct abx_write_item *item = &u->items[u->item];

    if (item->source && item->source_size >= 0 && u->taken < (uint64_t)item->source_size)
        return err_set(&u->err, ABX_INVALID_ARGUMENT,
                       "'%.200s': the source ended after %llu of %lld bytes", item->path,
                       (unsigned long long)u->taken, (long long)item->source_size);
    u->item++;
    u->taken = 0;
    u->is_in_item = false;
    u->text_at = 0;
    buf_reset(&u->text);
    return text_make(u, u->item, &u->text) == BUF_OK ? 0 : err_oom(&u->err);
}

/* Bytes of the running item; 0 at its end. */
static int64_t item_read(struct upload *u, uint8_t *to, size_t size)
{
    const struct abx_write_item *item = &u->items[u->item];
    uint64_t left = item->source ? UINT64_MAX : item->size - u->taken;
    int64_t n;

    if (item->source && item->source_size >= 0)
        left = (uint64_t)item->source_size - u->taken;
    if (left == 0)
        return 0;
    size = (size_t)MIN((uint64_t)size, left);
    if (!item->source) {
        memcpy(to, (const uint8_t *)item->data + u->taken, size);
        u->taken += size;
        return (int64_t)size;
    }
    n = item->source(item->source_user, to, size);
    if (n > (int64_t)size)
        return err_set(&u->err, ABX_INVALID_ARGUMENT,
                       "'%.200s': the source gave more than asked for", item->path);
    if (n < 0 && n != ABX_UNAVAILABLE)
        return err_set(&u->err,
                       n >= ABX_UNAUTHENTICATED && n <= ABX_CANCELED ? (int)n : ABX_UNKNOWN,
                       "'%.200s': the source gave up (%s)", item->path, err_code_name((int)n));
    if (n > 0)
        u->taken += (uint64_t)n;
    return n;
}

static int64_t text_read(struct upload *u, uint8_t *to, size_t size)
{
    struct slice text = buf_slice(&u->text);

    size = MIN(size, text.n - u->text_at);
    if (size > 0)
        memcpy(to, text.p + u->text_at, size);
    u->text_at += size;
    return (int64_t)size;
}

/* Bytes before the packer; 0 = end, negative as abx_source_fn. */
static int64_t plain_read(struct upload *u, uint8_t *to, size_t size)
{
    size_t got = 0;
    int64_t n;

    while (got < size && !u->is_at_end) {
        if (!u->is_in_item) {
            n = text_read(u, to + got, size - got);
            if (n == 0 && u->item == u->count)
                u->is_at_end = true;
            else if (n == 0)
                u->is_in_item = true;
        } else {
            n = item_read(u, to + got, size - got);
            if (n == 0)
                n = item_end(u);
        }
        if (n < 0) {
            u->is_waiting = n == ABX_UNAVAILABLE && u->err.code == 0 && got > 0;
            return u->is_waiting ? (int64_t)got : n; /* what is there goes first */
        }
        got += (size_t)n;
    }
    return (int64_t)got;
}

static int64_t packed_read(struct upload *u, uint8_t *to, size_t size)
{
    u->z.next_out = to;
    u->z.avail_out = (uInt)MIN(size, (size_t)1 << 30);
    size = u->z.avail_out;
    while (u->z.avail_out == size && !u->is_packed) {
        int flush = u->is_at_end ? Z_FINISH : Z_NO_FLUSH, r;

        if (u->z.avail_in == 0 && !u->is_at_end) {
            int64_t n = plain_read(u, u->plain, PLAIN_SIZE);

            if (n < 0)
                return n;
            u->z.next_in = u->plain;
            u->z.avail_in = (uInt)n;
            continue;
        }
        r = deflate(&u->z, flush);
        if (r == Z_STREAM_END)
            u->is_packed = true;
        else if (r != Z_OK && r != Z_BUF_ERROR)
            return err_set(&u->err, ABX_INTERNAL, "zlib: error %d", r);
    }
    return (int64_t)(size - u->z.avail_out);
}

void upload_resume(struct upload *u)
{
    u->is_waiting = false;
}

int64_t upload_read(void *user, void *buffer, size_t size)
{
    struct upload *u = user;

    if (u->err.code != 0)
        return u->err.code;
    if (u->is_waiting) {
        u->is_waiting = false;
        return ABX_UNAVAILABLE;
    }
    return u->is_gzip ? packed_read(u, buffer, size) : plain_read(u, buffer, size);
}
