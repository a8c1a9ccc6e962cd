/* files_head.h - pure parts of /files: validators, ranges, encodings, metadata fields (RFC 9110). */
#pragma once

#include <time.h>

#include "base/err.h"
#include "wire/http1.h"
#include "wire/http_date.h"

#define ETAG_SIZE 56

/* Strong validator of a file's state. */
void files_etag(uint64_t mtime_ns, uint64_t size, uint64_t inode, char to[ETAG_SIZE]);

enum files_condition { FILES_GO_ON, FILES_NOT_MODIFIED, FILES_PRECONDITION_FAILED };
/* If-Match, If-Unmodified-Since, If-None-Match, If-Modified-Since in RFC 9110 13.2.2's order. */
enum files_condition files_conditions(const struct http1_head *head, const char *etag,
                                      time_t mtime);

enum files_range { FILES_WHOLE, FILES_PART, FILES_UNSATISFIABLE };
/* One byte range of `size`, [*ret_begin, *ret_end). Several ranges, other units, malformed ones and a
 * failed If-Range give the whole. */
enum files_range files_range(const struct http1_head *head, const char *etag, time_t mtime,
                             uint64_t size, uint64_t *ret_begin, uint64_t *ret_end);

enum files_coding { FILES_IDENTITY, FILES_GZIP, FILES_NO_CODING };
/* Of an Accept-Encoding value. gzip only when it is asked for alone, or identity is refused: over a
 * local link deflating costs more than it saves. NO_CODING: neither is acceptable (406). */
enum files_coding files_coding(const struct http1_head *head);

#define METADATA_PREFIX "x-metadata-"
#define METADATA_KEY_MAX 246
#define METADATA_TOTAL_MAX 4096

/* `inline; filename=...` for a name of any bytes. */
enum buf_status files_disposition(struct buf *b, const char *name);

struct metadata {
    char *key; /* lower case, without the prefix */
    char *value;
};

/* The X-Metadata-* fields. INVALID_ARGUMENT when one breaks a limit or is not printable ASCII.
 * `ret` is owned: metadata_free. */
int metadata_parse(const struct http1_head *head, struct metadata **ret, size_t *ret_n,
                   struct abx_err *err);
void metadata_free(struct metadata *m, size_t n);
