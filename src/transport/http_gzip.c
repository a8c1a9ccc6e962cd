/* http_gzip.c - bodies with Content-Encoding: gzip, unpacked on their way to the sink.
 *
 * libcurl would do it, but takes a stream that stops early for a whole one. A sink that takes nothing makes libcurl
 * give the same packed bytes again; `ahead` counts those of them that inflate has had already.
 */
#include <string.h>

#include "transport/http_internal.h"

bool gzip_start(struct http_exchange *x)
{
    struct http_gzip *g = x->gzip;

    if (g)
        gzip_stop(x);
    g = calloc(1, sizeof *g);
    if (!g)
        return false;
    if (inflateInit2(&g->z, 15 + 16) != Z_OK) {
        free(g);
        return false;
    }
    x->gzip = g;
    return true;
}

void gzip_stop(struct http_exchange *x)
{
    if (!x->gzip)
        return;
    (void)inflateEnd(&x->gzip->z);
    free(TAKE_PTR(x->gzip));
}

bool gzip_is_complete(const struct http_gzip *g)
{
    return !g->has_bytes || g->is_end;
}

/* False when the sink does not take them or canceled the exchange. */
static bool gzip_flush(struct http_exchange *x)
{
    struct http_gzip *g = x->gzip;

    if (g->out_size == 0)
        return true;
    if (!x->sink.body(x->user, slice_of(g->out, g->out_size)) || x->is_canceled)
        return false;
    g->out_size = 0;
    return true;
}

/* Fills `out`. False: not gzip. */
static bool gzip_inflate(struct http_gzip *g)
{
    int r;

    if (g->is_end) { /* another member behind the first (RFC 1952 2.2) */
        if (inflateReset(&g->z) != Z_OK)
            return false;
        g->is_end = false;
    }
    g->z.next_out = g->out;
    g->z.avail_out = sizeof g->out;
    r = inflate(&g->z, Z_NO_FLUSH);
    g->out_size = sizeof g->out - g->z.avail_out;
    g->is_end = r == Z_STREAM_END;
    return r == Z_OK || r == Z_STREAM_END || r == Z_BUF_ERROR;
}

enum gzip_result gzip_body(struct http_exchange *x, struct slice packed)
{
    struct http_gzip *g = x->gzip;
    size_t had;

    if (!gzip_flush(x))
        return GZIP_PAUSED;
    had = MIN(g->ahead, packed.n);
    g->ahead -= had;
    g->has_bytes = true;
    g->z.next_in = (Bytef *)(uintptr_t)(packed.p + had);
    g->z.avail_in = (uInt)(packed.n - had);
    do {
        if ((g->z.avail_in > 0 || !g->is_end) && !gzip_inflate(g))
            return GZIP_BAD;
        if (!gzip_flush(x)) {
            g->ahead += packed.n - g->z.avail_in; /* it may give them in smaller pieces */
            return GZIP_PAUSED;
        }
    } while (g->z.avail_in > 0 || (g->z.avail_out == 0 && !g->is_end));
    return GZIP_TAKEN;
}
