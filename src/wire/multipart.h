/* multipart.h - multipart/form-data parser, incremental, sans-IO (RFC 7578, RFC 2046 5.1).
 *
 * Limits: boundary 1..70 bytes, part head 16 KiB, MULTIPART_PARTS_MAX parts. Part data is passed
 * through without copying where possible. Refused, because readers differ on it: a line that begins
 * with the delimiter and goes on with anything but white space, a part without a name, names twice,
 * a Content-Transfer-Encoding that would need decoding, names that are not UTF-8, bare LF in heads.
 */
#pragma once

#include "base/buf.h"

#define MULTIPART_PARTS_MAX 10000u

struct multipart_parser;

enum multipart_event {
    MULTIPART_NEED_MORE,
    MULTIPART_PART,     /* a part begins: name and filename are set */
    MULTIPART_DATA,     /* *ret_data, borrowed from the input or the parser until the next call */
    MULTIPART_PART_END, /* the part is complete */
    MULTIPART_END,      /* after the closing boundary; the epilogue is ignored */
    MULTIPART_ERROR,
};

/* Boundary of a Content-Type value; false when it is not multipart/form-data with a valid one. */
bool multipart_boundary(struct slice content_type, struct slice *ret_boundary);

/* NULL when out of memory or the boundary is invalid. Copies the boundary. */
struct multipart_parser *multipart_parser_new(struct slice boundary);
void multipart_parser_free(struct multipart_parser *p);
DEFINE_CLEANUP(struct multipart_parser *, multipart_parser_free)
/* Takes from *in; call again with the rest until NEED_MORE. A body that ends before END was cut. */
enum multipart_event multipart_parser_next(struct multipart_parser *p, struct slice *in,
                                           struct slice *ret_data);
/* Of the current part, NUL-terminated, borrowed until the next part begins. `filename` may hold slashes
 * and is NULL when absent; filename* (RFC 5987) is refused. Percent-encoded quotes (%22) and
 * backslash escapes are decoded. */
const char *multipart_part_name(const struct multipart_parser *p);
const char *multipart_part_filename(const struct multipart_parser *p);
/* What is wrong, after ERROR. Static. */
const char *multipart_error(const struct multipart_parser *p);
