/* spawn_image.h - the spawner's own copy of the guest's image.
 *
 * Executed from the host's file, PID 1 would hold a file and a mount of the host for the sandbox to
 * find below /proc/1: its path, its locks, its times. The copy is on a read-only tmpfs that is
 * attached nowhere and shared by all sandboxes of the spawner.
 */
#pragma once

#include <sys/stat.h>

#include "base/err.h"

struct spawn_image {
    int fd; /* O_PATH; -EBADF before the first load */
    struct stat source;
};

/* Copies the file behind `guest_fd` unless it is the one that was copied last. */
int spawn_image_load(struct spawn_image *image, int guest_fd, struct abx_err *err);
void spawn_image_done(struct spawn_image *image);
