/* supervisor_resolv.h - a copy of the host's /etc/resolv.conf where egress, which sees nothing of /etc, can read it.
 *
 * Kept up to date: the file is often replaced by whoever manages the host's network.
 */
#pragma once

#include <sys/stat.h>

#include "base/err.h"

#define RESOLV_COPY_NAME "resolv.conf"

struct resolv_copy {
    int dirfd; /* owned */
    struct stat seen;
};

#define RESOLV_COPY_INIT { .dirfd = -EBADF }

/* Makes the copy in the folder `dirfd` (duplicated). A host without the file gets an empty one. */
int resolv_copy_open(struct resolv_copy *c, int dirfd, struct abx_err *err);
/* Copies it again if it has changed; what goes wrong is logged. */
void resolv_copy_refresh(struct resolv_copy *c);
void resolv_copy_done(struct resolv_copy *c);
