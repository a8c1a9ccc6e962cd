/* opts.h - options structs of the public API: `size_t size` first, fields added only at the end.
 *
 * A caller built against an older header gives a smaller struct; of one built against a newer header the fields that this
 * library lacks are ignored (their defaults may be anything, so that they cannot be told from values set).
 */
#pragma once

#include <string.h>

#include "base/err.h"

/* INVALID_ARGUMENT when an array of `n` elements is missing. */
static inline int opts_array_check(const void *array, size_t n, const char *name,
                                   struct abx_err *err)
{
    if (array || n == 0)
        return 0;
    return err_set(err, ABX_INVALID_ARGUMENT, "%s: is NULL with a count of %zu", name, n);
}

/* Overwrites the beginning of `to`, which holds the defaults (its _INIT), by what the caller's struct `from` has of it;
 * NULL = all defaults. Errors: INVALID_ARGUMENT when size was not set. */
static inline int opts_copy(void *to, size_t size, const void *from, const char *name,
                            struct abx_err *err)
{
    size_t theirs = 0;

    if (!from)
        return 0;
    memcpy(&theirs, from, sizeof theirs);
    if (theirs < sizeof theirs || theirs > 65536)
        return err_set(err, ABX_INVALID_ARGUMENT, "struct %s: size is not set (use its _INIT)",
                       name);
    memcpy(to, from, theirs < size ? theirs : size);
    memcpy(to, &size, sizeof size);
    return 0;
}
