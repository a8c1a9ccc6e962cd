/* source.c - see source.h. */
#include "guest/daemon/source.h"

#include <fcntl.h>

#include "base/fd.h"

int source_open(const char *path, int *ret_fd, struct stat *ret_st, struct abx_err *err)
{
    _cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return err_set(err, ABX_NOT_FOUND, "path '%s' does not exist", path);
    if (fd < 0 && errno != ENXIO) /* ENXIO: a socket */
        return err_sys(err, errno, "open '%s'", path);
    if (fd >= 0 && fstat(fd, ret_st) < 0)
        return err_sys(err, errno, "look at '%s'", path);
    if (fd >= 0 && S_ISDIR(ret_st->st_mode))
        return err_set(err, ABX_INVALID_ARGUMENT, "path '%s' is a directory", path);
    if (fd < 0 || !S_ISREG(ret_st->st_mode))
        return err_set(err, ABX_INVALID_ARGUMENT, "path '%s' is not a regular file", path);
    *ret_fd = TAKE_FD(fd);
    return 0;
}
