/* upload.h - the body of a POST /files as a source of bytes: one file, or several as multipart/form-data, packed or not;
 * only for src/api.
 *
 * Nothing of the files is copied but what goes into the transport's buffer.
 */
#pragma once

#include <zlib.h>

#include "abx/files.h"
#include "base/buf.h"
#include "base/err.h"

#define UPLOAD_BOUNDARY_SIZE 40

struct upload {
    const struct abx_write_item *items; /* borrowed, with what they point to */
    size_t count;
    char boundary[UPLOAD_BOUNDARY_SIZE]; /* "" = one file as it is */
    bool has_names;                      /* of the parts: the items' paths, else "file" */

    size_t item;     /* the one that is read */
    uint64_t taken;  /* bytes of it */
    struct buf text; /* what stands between the files, from `text_at` on */
    size_t text_at;
    bool is_in_item, is_at_end;
    bool is_waiting; /* the source said so after bytes that were given */
    bool is_gzip;
    z_stream z;
    uint8_t *plain; /* in front of the packer */
    bool is_packed;
    struct abx_err err; /* why upload_read gave up */
};

/* Body for `count` items: multipart unless `is_raw` (then count is 1). `u` is zeroed before. Errors: out of memory. */
int upload_init(struct upload *u, const struct abx_write_item *items, size_t count, bool is_raw,
                bool has_names, bool is_gzip, struct abx_err *err);
void upload_done(struct upload *u);
/* Whole size in bytes, ABX_UNSET when it is not known before. */
int64_t upload_size(const struct upload *u);
/* The source has bytes again. */
void upload_resume(struct upload *u);
/* abx_source_fn; `user` is the upload. */
int64_t upload_read(void *user, void *buffer, size_t size);
/* May the path stand in a multipart head as it is? */
bool upload_name_is_plain(const char *path);
