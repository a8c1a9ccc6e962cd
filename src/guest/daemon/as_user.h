/* as_user.h - file work with a user's rights, in one thread of the worker pool.
 *
 * Raw per-thread system calls: glibc's own would change every thread. While a user other than
 * root is in force the kernel takes the file capabilities (CAP_DAC_OVERRIDE, CAP_CHOWN ...) out of
 * the thread's effective set.
 */
#pragma once

#include "guest/daemon/users.h"

/* Takes on the file identity of `u`. PERMISSION_DENIED when the sandbox does not let us. */
int as_user_begin(const struct user *u, struct abx_err *err);
/* Returns to root; aborts the process when the kernel refuses, since the thread would go on with
 * a stranger's rights. */
void as_user_end(const struct user *u);
