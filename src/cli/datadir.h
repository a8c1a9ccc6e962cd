/* datadir.h - the data dir of one service: layout, format file, lock.
 *
 *     <data-dir>          0711 root    format, lock, admin.key (0600)
 *     <data-dir>/pool     0700 root    uppers and trash (engine)
 *     <data-dir>/control  0700 control database
 *     <data-dir>/local    0700 root    keys of local users, <uid>.key (local_key.h)
 *
 * `format` holds "version N", "instance ID" and "release R", a line each. A newer version than
 * DATADIR_FORMAT is refused. Only the supervisor writes it.
 *
 * `lock` holds the supervisor's pid, and its mark (process.h) in a line "mark MARK" after that; it is emptied when the service has come to
 * its end. One that is not tells the next supervisor that this one was killed (predecessor.h).
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "cli/predecessor.h"

#define DATADIR_FORMAT 1
#define DATADIR_INSTANCE_SIZE 13 /* 12 hex digits and NUL */

#define HANDLE_TEXT_SIZE 288 /* the kernel's MAX_HANDLE_SZ of 128 bytes and a type, in hex digits */

struct datadir {
    char path[3072];
    char instance[DATADIR_INSTANCE_SIZE];
    bool was_emptied; /* its instance was found below `run_top` */
    uint64_t device, inode;
    char handle[HANDLE_TEXT_SIZE]; /* of name_to_handle_at, "-" where there is none */
    char real[3072];               /* `path` without links */
    struct predecessor predecessor;
    int lock_fd;  /* flock held while open */
    int claim_fd; /* the same, of the file of datadir_claim */
};
#define DATADIR_INIT { .lock_fd = -EBADF, .claim_fd = -EBADF }

/* Makes (if missing) and locks the data dir; FAILED_PRECONDITION when another supervisor holds it
 * (with its pid). What one that was killed still holds is waited for.
 *
 * A folder without `format` is a new service's, unless a run folder in `run_top` (/run/abx; NULL: none is looked for)
 * says that it was a service's before (datadir_claim), or that the folder at its place was, which is deleted: the
 * sandboxes that the service kept may run on. It gets that instance again, which knows them by its run folder and
 * cgroups, and ends them. */
int datadir_open(const char *path, const char *run_top, struct datadir *ret, struct abx_err *err);
/* Writes into the run folder `run_fd` of the instance whose data dir this is (file `data-dir`: lines "device N", "inode
 * N", "handle HEX", "process PID", "mark MARK", "path PATH") and locks that while `d` is open. FAILED_PRECONDITION when
 * another supervisor holds it: its data dir was deleted or copied; one that was killed is waited for. */
int datadir_claim(struct datadir *d, int run_fd, struct abx_err *err);
/* Notes in `lock` that this service ended with all its roles. */
void datadir_sign_off(const struct datadir *d);
void datadir_done(struct datadir *d);
/* Makes <data-dir>/control and gives it to `uid`, with what lies in it directly. */
int datadir_control_folder(const struct datadir *d, uid_t uid, struct abx_err *err);

/* Reads the instance id without locking; NOT_FOUND when there is no service's data dir. */
int datadir_instance(const char *path, char ret[DATADIR_INSTANCE_SIZE], struct abx_err *err);
