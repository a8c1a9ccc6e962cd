/* json.h - JSON text without a document tree: strings out, whole texts checked (RFC 8259). */
#pragma once

#include "base/buf.h"

struct rpc_error {
    size_t offset;  /* into the input */
    char text[160]; /* what is wrong, with the field's name */
};

/* Appends a JSON string with quotes; bytes that are not UTF-8 become U+FFFD each. Nothing is left
 * in `b` when it fails. */
enum buf_status json_string_put(struct buf *b, struct slice s);

/* One whole JSON text with depth <= `depth_max` (at most 64), at most `values_max` values, UTF-8, no
 * lone surrogates, no NUL. Duplicate keys are not looked for here: this is the gate in front of
 * jansson. False: `e` (may be NULL) says what and where. */
bool json_scan(struct slice s, unsigned depth_max, size_t values_max, struct rpc_error *e);

/* json_scan of one JSON object; on success `*ret` is the raw text of its member `key` when that is a
 * string without escapes (borrowed; the first one), else empty. */
bool json_scan_member(struct slice s, unsigned depth_max, size_t values_max, const char *key,
                      struct slice *ret, struct rpc_error *e);
