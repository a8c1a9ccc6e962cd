/* paths.h - how a path of a request becomes an absolute one (e2b.md 4.2).
 *
 * Empty: the default work folder, else the home. `~` and `~/x`: the home; `~other` is refused.
 * Relative: below the home. The result is lexically clean: no `.`, `..`, `//` or trailing slash.
 */
#pragma once

#include <limits.h>

#include "base/err.h"
#include "guest/daemon/users.h"

/* `workdir` may be NULL or empty. INVALID_ARGUMENT for `~other`, NUL-free UTF-8 is the caller's
 * business; over PATH_MAX too. */
int guest_path(const struct user *u, const char *workdir, const char *path, char to[PATH_MAX],
               struct abx_err *err);

/* Cleans an absolute path in place. */
void guest_path_clean(char *path);

/* Last component, borrowed ("/" for the root). */
const char *guest_path_name(const char *clean);

/* "-rw-r--r--" as Go prints a file mode ("Lrwxrwxrwx", "drwxr-xr-x", "Dcrw-rw-rw-", setuid as a
 * leading u): kind letters, then nine permission characters. */
#define GUEST_MODE_SIZE 20
void guest_mode_text(unsigned mode, char to[GUEST_MODE_SIZE]);
