/* fuzz.h - shared by the fuzz targets. A broken property aborts, which is how a fuzzer sees it. */
#pragma once

#include <stdlib.h>

#include "base/buf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(property)                                                                       \
    do {                                                                                           \
        if (!(property))                                                                           \
            abort();                                                                               \
    } while (0)

/* A copy in a heap block of just this size, so that a sanitizer sees a read past a piece. */
static inline _unused_ uint8_t *fuzz_exact(struct slice s)
{
    uint8_t *p = malloc(MAX(s.n, (size_t)1));

    FUZZ_CHECK(p);
    if (s.n > 0)
        memcpy(p, s.p, s.n);
    return p;
}

/* Size of piece number `i` of an input that is fed in pieces; mode 0 = whole. */
static inline _unused_ size_t fuzz_piece(unsigned mode, size_t i, size_t left)
{
    static const uint8_t uneven[] = { 1, 7, 2, 64, 3, 1, 1, 200, 5, 31 };

    if (mode == 0)
        return left;
    return MIN(left, mode == 1 ? (size_t)1 : (size_t)uneven[i % sizeof uneven]);
}

/* Adjacent pieces of data are one event: writes `tag` only when the last event was another. */
static inline _unused_ void fuzz_log_data(struct buf *log, uint8_t *last, uint8_t tag,
                                          struct slice data)
{
    FUZZ_CHECK(data.n > 0);
    if (*last != tag)
        FUZZ_CHECK(buf_append_byte(log, tag) == BUF_OK);
    *last = tag;
    FUZZ_CHECK(buf_append_slice(log, data) == BUF_OK);
}
