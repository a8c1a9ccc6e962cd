/* cmd_key_local.h - the verb `local` of `abx key`. */
#pragma once

#include "base/err.h"

/* Gives the user (name or uid) a key and the file with it. `data_dir` NULL = of the service that users
 * of this machine find. */
int key_local(const char *data_dir, const char *user, bool is_json, struct abx_err *err);
