/* source.h - files that a request reads. Blocking: pool only, as the user. */
#pragma once

#include <sys/stat.h>

#include "base/err.h"

/* Opens a regular file for reading; a FIFO does not hold the thread. NOT_FOUND, INVALID_ARGUMENT (a
 * folder, no regular file), PERMISSION_DENIED. The descriptor is owned by the caller. */
int source_open(const char *path, int *ret_fd, struct stat *ret_st, struct abx_err *err);
