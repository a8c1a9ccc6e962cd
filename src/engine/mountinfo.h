/* mountinfo.h - reading /proc/self/mountinfo (proc(5)) line by line, without allocation. */
#pragma once

#include <limits.h>

#include "base/buf.h"
#include "base/err.h"

#define MOUNTINFO_MAX ((size_t)8 << 20) /* bytes of the whole file; 1000 mounts are about 150 KiB */

/* One mount. Strings are unescaped; `source` may be cut off. */
struct mountinfo {
    char root[PATH_MAX];   /* folder of the file system that is mounted */
    char target[PATH_MAX]; /* where, as this process sees it */
    char fstype[64];
    char source[256];
    struct slice super_options; /* borrowed from the text */
};

/* Takes the next well-formed line off `rest`; false when there is none. Lines that are malformed or
 * hold a path over PATH_MAX are left out. */
bool mountinfo_next(struct slice *rest, struct mountinfo *ret);
/* Is `word` one of the comma-separated words of `list`? */
bool mountinfo_has_word(struct slice list, const char *word);
/* Finds what is mounted on top of `target` (absolute, without links). False when nothing is. */
bool mountinfo_find(struct slice text, const char *target, struct mountinfo *ret);
/* Appends /proc/self/mountinfo to `b`. */
int mountinfo_read(struct buf *b, struct abx_err *err);
