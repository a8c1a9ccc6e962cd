/* names.h - names of templates: `[namespace/]alias[:tag]` (e2b.md 1.7).
 *
 * Trimmed and lower-cased; alias of [a-z0-9-_], tag of [a-z0-9-_.] and not a UUID.
 */
#pragma once

#include "base/buf.h"

#define NAME_PART_MAX 128
#define NAME_PART_SIZE (NAME_PART_MAX + 1)
#define NAME_DEFAULT_TAG "default"

struct template_ref {
    char namespace_[NAME_PART_SIZE]; /* empty = not given */
    char alias[NAME_PART_SIZE];
    char tag[NAME_PART_SIZE]; /* empty = not given */
};

/* NULL when `s` is well formed, else what is wrong with it (static text). */
const char *template_ref_parse(struct slice s, struct template_ref *ret);
