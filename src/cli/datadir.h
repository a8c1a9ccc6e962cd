/* datadir.h - the data dir of one service: layout, format file, lock.
 *
 *     <data-dir>          0711 root    format, lock, admin.key (0600)
 *     <data-dir>/pool     0700 root    uppers and trash (engine)
 *     <data-dir>/control  0700 control database
 *     <data-dir>/local    0700 root    keys of local users, <uid>.key (local_key.h)
 *
 * `format` holds "version N", "instance ID" and "release R", a line each. A newer version than
 * DATADIR_FORMAT is refused. Only the supervisor writes it.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"

#define DATADIR_FORMAT 1
#define DATADIR_INSTANCE_SIZE 13 /* 12 hex digits and NUL */

struct datadir {
    char path[3072];
    char instance[DATADIR_INSTANCE_SIZE];
    int lock_fd; /* flock held while open */
};

/* Makes (if missing) and locks the data dir; FAILED_PRECONDITION when another supervisor holds it
 * (with its pid). */
int datadir_open(const char *path, struct datadir *ret, struct abx_err *err);
void datadir_done(struct datadir *d);
/* Makes <data-dir>/control and gives it to `uid`, with what lies in it directly. */
int datadir_control_folder(const struct datadir *d, uid_t uid, struct abx_err *err);

/* Reads the instance id without locking; NOT_FOUND when there is no service's data dir. */
int datadir_instance(const char *path, char ret[DATADIR_INSTANCE_SIZE], struct abx_err *err);
