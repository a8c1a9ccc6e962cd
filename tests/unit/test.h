/* test.h - what every unit test includes: cmocka with the headers it needs, and small helpers. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/buf.h"

/* A copy of `s` that ends at the end of its heap block, so that ASan sees a read behind it. */
static inline _unused_ uint8_t *test_exact(struct slice s)
{
    uint8_t *p = malloc(s.n > 0 ? s.n : 1);

    assert_non_null(p);
    if (s.n > 0)
        memcpy(p, s.p, s.n);
    return p;
}

/* Compares text and says which row of a table it was. */
#define test_text(row, got, want)                                                                  \
    do {                                                                                           \
        if (strcmp((got), (want)) != 0)                                                            \
            fail_msg("%s:\n   got: %s\n  want: %s", (row), (got), (want));                         \
    } while (0)
