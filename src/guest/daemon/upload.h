/* upload.h - one upload: bytes of a request's body to files. Blocking: for the pool, as the user.
 *
 * Content goes to a temporary file beside the target, which takes the target's place by rename when
 * the part is complete: a failed or cut upload leaves the old file, or none. A small new file is
 * written in place at once (watchers see one create and one write). Symlinks are followed to the file
 * that they lead to. An existing file keeps its mode.
 */
#pragma once

#include "guest/daemon/users.h"

struct upload;

struct upload_metadata {
    const char *key;
    const char *value;
};

struct upload_opts {
    const struct user *user;                /* borrowed until upload_free, like all here */
    const char *workdir;                    /* default work folder, may be NULL */
    const char *path;                       /* absolute; NULL: file names of the parts */
    const char *boundary;                   /* NULL: the body is the file itself */
    bool is_gzip;                           /* Content-Encoding */
    uint64_t content_length;                /* declared, 0 = unknown */
    const struct upload_metadata *metadata; /* becomes extended attributes user.e2b.<key> */
    size_t n_metadata;
};

int upload_new(const struct upload_opts *opts, struct upload **ret, struct abx_err *err);

/* Takes more of the body; `is_end` with the last of it. INVALID_ARGUMENT for a malformed body or
 * target, ABX_REASON_DISK_FULL. After an error only upload_abort may follow. */
int upload_feed(struct upload *up, struct slice data, bool is_end, struct abx_err *err);

/* Removes the unfinished temporary file. */
void upload_abort(struct upload *up);

/* Any thread. Does not remove files. */
void upload_free(struct upload *up);

/* After the end: absolute paths of the files written, in order. Borrowed. */
const char *const *upload_paths(const struct upload *up, size_t *ret_n);
