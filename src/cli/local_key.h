/* local_key.h - the keys of users who find the service on this machine by themselves.
 *
 * Each user has one key, "local NAME" in the keyring. <data-dir>/local/<uid>.key (0600, root) keeps it, because the database
 * has only its hash: so a restart gives out the same key, programs that run through an upgrade keep working, and keys
 * do not pile up. A key that was revoked or that the database does not know is replaced.
 */
#pragma once

#include "cli/local_dir.h"

#define LOCAL_KEY_SIZE 64

/* The user's key: the one kept, when it still opens something, else a new one, which is kept. Asks the
 * running service at `socket_path`. */
int local_key_ensure(const char *socket_path, const char *data_dir, const struct local_user *user,
                     char ret_key[LOCAL_KEY_SIZE], struct abx_err *err);

/* Takes the local folder for a service and writes the files: of `users`, and of every other user whose kept key is
 * good (`abx key local` made it); other kept keys are forgotten. What fails for one user is logged and does
 * not keep the others from theirs. FAILED_PRECONDITION as local_dir_take; UNAVAILABLE or DEADLINE_EXCEEDED when control
 * does not answer (within 2 s): the folder is given up again, try later. */
int local_publish(const struct local_service_info *info, const char *socket_path,
                  const struct local_user *users, size_t n_users, struct local_dir *ret,
                  struct abx_err *err);
