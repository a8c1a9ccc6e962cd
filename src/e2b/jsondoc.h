/* jsondoc.h - JSON documents (REST bodies, configuration, MCP) as jansson trees, bounded.
 *
 * Every text goes through json_scan first: 1 MiB, depth 64, 50,000 values, UTF-8, no NUL, no lone
 * surrogate. Duplicate keys are refused. Integers are those of 64 bits, larger ones are refused.
 */
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"

#define JSONDOC_SIZE_MAX (1u << 20)
#define JSONDOC_VALUES_MAX 50000u

/* Parses one whole JSON text of any kind (the caller checks that it is an object). `ret` is owned:
 * json_decref. Errors: INVALID_ARGUMENT "line 3, column 7: expected ':'", ABX_REASON_TOO_LARGE, out of
 * memory. */
int jsondoc_parse(struct slice s, json_t **ret, struct abx_err *err);
/* The same with limits of the caller's: for answers of a server that we chose to ask. */
int jsondoc_parse_limited(struct slice s, size_t size_max, size_t values_max, json_t **ret,
                          struct abx_err *err);

/* Appends the document, compact, keys in their order of insertion. Nothing is left in `b` when it
 * fails. */
enum buf_status jsondoc_dump(const json_t *doc, struct buf *b);

static inline _unused_ void json_unrefp(json_t **doc)
{
    json_decref(*doc);
}
