/* fd.h - file descriptors: cleanup, whole reads and writes, small files.
 *
 * No function here follows a path that a guest can influence; those go through openat2 in path.h.
 */
#pragma once

#include <dirent.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/macro.h"

/* Closes if >= 0, keeps errno. */
void fd_close(int fd);
static inline _unused_ void closep(int *fd)
{
    fd_close(*fd);
}
static inline _unused_ void closedirp(DIR **d)
{
    if (*d)
        (void)closedir(*d);
}
static inline _unused_ void fclosep(FILE **f)
{
    if (*f)
        (void)fclose(*f);
}

/* Writes all `n` bytes (blocking fd). 0, or -1 with errno. */
int fd_write_all(int fd, const void *p, size_t n);
/* Reads until `n` bytes or EOF (blocking fd). Bytes read, or -1 with errno. */
ssize_t fd_read_all(int fd, void *p, size_t n);

int fd_set_nonblock(int fd, bool on);
int fd_set_cloexec(int fd, bool on);

/* Appends a whole file, at most the buffer's room; `dirfd` may be AT_FDCWD. */
int file_read(int dirfd, const char *path, struct buf *b, struct abx_err *err);
/* Opens an existing file write-only and writes `n` bytes with one write(2): for /proc, /sys and
 * cgroup files. */
int file_write_once(int dirfd, const char *path, const void *p, size_t n, struct abx_err *err);
/* Like file_write_once with a formatted value of at most 255 bytes. */
int file_printf(int dirfd, const char *path, struct abx_err *err, const char *fmt, ...)
    _printf_(4, 5);
/* Creates or replaces `path` with `n` bytes: temporary file beside it, then rename. Syncs the file
 * and its folder when `sync`. `mode` applies without umask. */
int file_replace(int dirfd, const char *path, const void *p, size_t n, mode_t mode, bool sync,
                 struct abx_err *err);
/* Removes the temporary files that killed writers left in the folder `dirfd`. For whoever alone writes there. */
void file_replace_sweep(int dirfd);

/* n bytes of the kernel's randomness (getrandom). Aborts only if the kernel has none. */
void random_bytes(void *p, size_t n);
