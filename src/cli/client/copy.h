/* copy.h - files and trees between this machine and a sandbox: what both directions share.
 *
 * Nothing that a sandbox says is trusted: a name is one component, folders are held by descriptor and nothing is followed
 * below the target that the user named. A file gets its final name when it is complete.
 */
#pragma once

#include <jansson.h>

#include "cli/client/session.h"

#define COPY_DEPTH_MAX 200u /* folders within folders; each is an open descriptor */

struct copy {
    struct session *s;
    abx_sandbox *sb;
    const char *user; /* in the sandbox, NULL = default */
    uint64_t files, bytes;
    json_t *left_out; /* [{"path", "reason"}] */
    /* progress */
    bool shows_progress;
    const char *shown; /* path under way */
    uint64_t shown_total;
    uint64_t shown_done;
    int64_t shown_at;
};

/* Something is not copied: said at once on standard error, and it makes the exit status 1. */
void copy_leave_out(struct copy *c, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void copy_show(struct copy *c, const char *path, uint64_t total);
void copy_advance(struct copy *c, uint64_t bytes);
void copy_hide(struct copy *c);

/* "dir/name"; owned, NULL and s->error when out of memory. */
char *copy_join(struct copy *c, const char *dir, const char *name);
/* Last component without slashes ("" for "/"). Owned. */
char *copy_base_name(struct copy *c, const char *path);
/* A name that nothing has: ".abx-" and hex digits. */
#define COPY_TEMP_SIZE 24
void copy_temp_name(char to[COPY_TEMP_SIZE]);
/* Stat in the sandbox, of what a link leads to. 1 and the kind, 0 = there is none, or a code. */
int copy_stat(struct copy *c, const char *path, enum abx_file_type *ret_type, bool *ret_is_link);

/* The bytes of a file of the sandbox into `fd`. 0, or a code. */
int copy_fetch(struct copy *c, const char *path, int fd);
/* The bytes of `fd` (`size` of them, -1 = until its end) into a file of the sandbox, in place. `*ret_path` (may be NULL;
 * owned) is its absolute path. 0, or a code. */
int copy_store(struct copy *c, int fd, int64_t size, const char *path, char **ret_path);

/* `from` is a path of the sandbox, `to` one of this machine, which may be a folder that exists, or "-". */
int copy_down(struct copy *c, const char *from, const char *to, bool to_is_folder);
/* The other way. */
int copy_up(struct copy *c, const char *from, const char *to, bool to_is_folder);
