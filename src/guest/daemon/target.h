/* target.h - one file being written by an upload. See upload.h. Blocking: pool only. */
#pragma once

#include <limits.h>

#include "base/buf.h"
#include "base/err.h"

#define TARGET_SMALL_MAX (256u << 10) /* held in memory before a file is opened */

/* Names of temporary files, with random digits behind: one that will take the place of a file, and one
 * that will be a new file. Watchers tell changes of the latter's name, not of these (watcher.h). */
#define TARGET_TEMP ".abx-upload-"
#define TARGET_TEMP_NEW ".abx-upload-new-"
bool target_is_temp(const char *name);
bool target_is_new_temp(const char *name);

struct target {
    char path[PATH_MAX]; /* as asked for */
    char real[PATH_MAX]; /* what it leads to, once opened */
    char temp[64];       /* name beside `real`, "" = none */
    struct buf pending;  /* before anything is opened */
    int dir;
    int fd;
    unsigned mode;
    bool is_new;
    bool is_in_place; /* the folder is not writable, the file is */
    bool keeps_old;   /* set by the caller: never in place, the old content is still needed */
    bool is_open;     /* located; fd may be there */
};

void target_init(struct target *t, const char *path);
void target_done(struct target *t);
int target_write(struct target *t, struct slice data, struct abx_err *err);
/* Everything is written: attributes, then into place. `names` and `values` are extended attributes. */
int target_finish(struct target *t, const char *const *names, const char *const *values, size_t n,
                  struct abx_err *err);
/* Removes the temporary file. */
void target_abort(struct target *t);
/* Fails with ABX_REASON_DISK_FULL when the file system of `path`'s folder has less than `size` free. */
int target_check_space(const char *path, uint64_t size, struct abx_err *err);
