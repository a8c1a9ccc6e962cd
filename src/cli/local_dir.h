/* local_dir.h - the folder through which clients find the service on this machine.
 *
 *     <dir>            0711 root    /run/abx/local, or ABX_LOCAL_DIR
 *     <dir>/service    0600 root    which service it is; locked (flock) by its supervisor while it lives
 *     <dir>/<uid>.env  0600 <uid>   key, base URL and domain for that user's clients
 *
 * One service has the folder: the first that takes the lock. The kernel drops the lock with the supervisor, so what a
 * dead one left is known to be stale; the next that starts removes it, or one that runs
 * (supervisor_local.h). Users may not open `service`, so each of their files says which process wrote it. Clients check that,
 * owners and modes (transport/local_service.h).
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "base/process.h"

#define LOCAL_USERS_MAX 64
#define LOCAL_NAME_SIZE 65 /* of a user, cut */

struct local_user {
    uid_t uid;
    char name[LOCAL_NAME_SIZE]; /* the uid's decimal when it has no name */
};

/* Name or decimal uid. NOT_FOUND names `what` ("--local-user"). */
int local_user_find(const char *what, const char *text, struct local_user *ret,
                    struct abx_err *err);
/* A uid, with or without a name. */
void local_user_of(uid_t uid, struct local_user *ret);

struct local_service_info {
    char instance[16];
    char data_dir[3072];
    char base_url[128];
    char domain[256];
    char process[PROCESS_MARK_SIZE]; /* of its supervisor; "" in what a release before wrote */
};

struct local_dir {
    char path[3072];
    int dirfd;   /* -EBADF = not open */
    int lock_fd; /* -EBADF = not ours */
};
#define LOCAL_DIR_INIT { .dirfd = -EBADF, .lock_fd = -EBADF }

/* Takes the folder for a service: makes it, removes what a dead one left, writes `service`. FAILED_PRECONDITION when
 * a live service has it (names its data dir) or when the folder is not root's alone. */
int local_dir_take(const struct local_service_info *info, struct local_dir *ret,
                   struct abx_err *err);
/* Opens the folder of the service that has it. NOT_FOUND when there is no live one. */
int local_dir_open(struct local_dir *ret, struct local_service_info *info, struct abx_err *err);
/* Does a live service have the folder (still)? */
bool local_dir_is_live(const struct local_dir *d);

/* Could a service take the folder, or make it? False also when it is not root's alone. */
bool local_dir_is_free(void);

/* Writes (replaces) a user's file. */
int local_dir_write(const struct local_dir *d, const struct local_service_info *info, uid_t uid,
                    const char *key, struct abx_err *err);
/* Removes a user's file; a missing one is fine. */
void local_dir_remove(const struct local_dir *d, uid_t uid);

/* Removes all files of a folder that is ours, gives up the lock. Done twice is fine. */
void local_dir_give_up(struct local_dir *d);
/* Closes one that was only opened. */
void local_dir_close(struct local_dir *d);
