/* removal.c - see removal.h. */
#include "guest/daemon/removal.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"

#define PASSES 100 /* over a folder that somebody goes on filling */

static int remove_at(int dirfd, const char *name, unsigned depth, struct abx_err *err);

static int remove_contents(DIR *dir, unsigned depth, size_t *ret_n, struct abx_err *err)
{
    struct dirent *e;
    int r = 0;

    *ret_n = 0;
    rewinddir(dir);
    while (r == 0 && (e = readdir(dir))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        r = remove_at(dirfd(dir), e->d_name, depth, err);
        ++*ret_n;
    }
    return r;
}

static int remove_folder(int dirfd, const char *name, unsigned depth, struct abx_err *err)
{
    int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    _cleanup_(closedirp) DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    size_t n;
    int r;

    if (fd < 0)
        return errno == ENOENT ? 0 : err_sys(err, errno, "open '%s'", name);
    if (!dir) {
        fd_close(fd);
        return err_oom(err);
    }
    for (int i = 0;; i++) {
        r = remove_contents(dir, depth + 1, &n, err);
        if (r < 0)
            return r;
        if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
            return 0;
        if ((errno != ENOTEMPTY && errno != EEXIST) || n == 0 || i == PASSES)
            return err_sys(err, errno, "remove '%s'", name);
    }
}

static int remove_at(int dirfd, const char *name, unsigned depth, struct abx_err *err)
{
    if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR)
        return err_sys(err, errno, "remove '%s'", name);
    if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return err_sys(err, errno, "remove '%s'", name);
    if (depth >= REMOVAL_DEPTH)
        return path_remove_tree(dirfd, name, err);
    return remove_folder(dirfd, name, depth, err);
}

int removal_run(int dirfd, const char *name, struct abx_err *err)
{
    return remove_at(dirfd, name, 0, err);
}
