/* path.c - see path.h. */
#include "base/path.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

int path_open_beneath(int dirfd, const char *path, int flags, mode_t mode)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
        .mode = flags & (O_CREAT | O_TMPFILE) ? mode : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };

    return (int)syscall(SYS_openat2, dirfd, path, &how, sizeof how);
}

int path_mkdirs(int dirfd, const char *path, mode_t mode, struct abx_err *err)
{
    char part[4096];
    size_t n = strlen(path);

    if (n >= sizeof part)
        return err_set(err, ABX_INVALID_ARGUMENT, "path '%.64s...' is over 4095 bytes", path);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdirat(dirfd, part, mode) < 0 && errno != EEXIST)
            return err_sys(err, errno, "mkdir '%s'", part);
    }
    return 0;
}

static void closedirp(DIR **d)
{
    if (*d)
        (void)closedir(*d);
}

/* Removes one entry. 1 = it was a folder that could not be removed yet (not empty). */
static int remove_entry(int dirfd, const char *name)
{
    if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -1;
    if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    return errno == ENOTEMPTY || errno == EEXIST ? 1 : -1;
}

/* Lifts `name`'s content one level: a folder that is not empty is renamed to a flat name in the
 * top folder, so that any depth is removed with two open fds. */
static int empty_dir(int topfd, const char *name, unsigned *seq)
{
    _cleanup_(closedirp) DIR *d = NULL;
    struct dirent *e;
    int fd = path_open_beneath(topfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);

    if (fd < 0)
        return -1;
    d = fdopendir(fd);
    if (!d) {
        fd_close(fd);
        return -1;
    }
    while ((errno = 0, e = readdir(d)) != NULL) {
        char flat[32];
        int r;

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        r = remove_entry(fd, e->d_name);
        if (r < 0)
            return -1;
        if (r == 0)
            continue;
        (void)snprintf(flat, sizeof flat, ".rm-%ld-%u", (long)getpid(), (*seq)++);
        if (renameat(fd, e->d_name, topfd, flat) < 0)
            return -1;
    }
    return errno ? -1 : 0;
}

/* Names left in the folder `topfd`, emptied and removed one by one until none is left. */
static int drain(int topfd, unsigned *seq)
{
    for (;;) {
        _cleanup_(closedirp) DIR *d = NULL;
        struct dirent *e;
        bool found = false;
        int fd = openat(topfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd < 0)
            return -1;
        d = fdopendir(fd);
        if (!d) {
            fd_close(fd);
            return -1;
        }
        while ((errno = 0, e = readdir(d)) != NULL) {
            int r;

            if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                continue;
            found = true;
            r = remove_entry(topfd, e->d_name);
            if (r > 0)
                r = empty_dir(topfd, e->d_name, seq) < 0 ||
                            (unlinkat(topfd, e->d_name, AT_REMOVEDIR) < 0 && errno != ENOENT)
                        ? -1
                        : 0;
            if (r < 0)
                return -1;
        }
        if (errno)
            return -1;
        if (!found)
            return 0;
    }
}

int path_remove_tree(int dirfd, const char *name, struct abx_err *err)
{
    _cleanup_(closep) int top = -EBADF;
    unsigned seq = 0;
    int r = remove_entry(dirfd, name);

    if (r == 0)
        return 0;
    if (r < 0)
        return err_sys(err, errno, "remove '%s'", name);
    top = path_open_beneath(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    if (top < 0)
        return err_sys(err, errno, "open '%s'", name);
    if (drain(top, &seq) < 0)
        return err_sys(err, errno, "remove below '%s'", name);
    if (unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        return err_sys(err, errno, "remove '%s'", name);
    return 0;
}

bool path_join(char *to, size_t size, const char *a, const char *b)
{
    size_t n = strlen(a);
    const char *sep = n > 0 && a[n - 1] == '/' ? "" : "/";
    int k = snprintf(to, size, "%s%s%s", a, sep, b);

    return k >= 0 && (size_t)k < size;
}
