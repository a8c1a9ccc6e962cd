/* path.c - see path.h. */
#include "base/path.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

/* How often a step is repeated that someone else can disturb. */
#define OPEN_TRIES 16

int path_open_beneath(int dirfd, const char *path, int flags, mode_t mode)
{
    bool creates = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
    struct open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
        .mode = creates ? mode : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    int fd = -1;

    /* With ".." in the path the kernel asks to try again whenever anything was renamed meanwhile. */
    for (int i = 0; i < OPEN_TRIES; i++) {
        fd = (int)syscall(SYS_openat2, dirfd, path, &how, sizeof how);
        if (fd >= 0 || errno != EAGAIN)
            break;
    }
    return fd;
}

/* Opens the folder `name` in `dirfd`, makes it if it is missing. `trusted`: may be a symlink. */
static int mkdir_open(int dirfd, const char *name, mode_t mode, bool trusted)
{
    for (int i = 0; i < OPEN_TRIES; i++) {
        int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
        int fd = trusted ? openat(dirfd, name, flags) : path_open_beneath(dirfd, name, flags, 0);

        if (fd >= 0 || errno != ENOENT)
            return fd;
        if (mkdirat(dirfd, name, mode) < 0 && errno != EEXIST)
            return -1;
    }
    errno = ENOENT; /* someone removes it as often as we make it, or it is a dangling symlink */
    return -1;
}

int path_mkdirs(int dirfd, const char *path, mode_t mode, struct abx_err *err)
{
    bool trusted = dirfd == AT_FDCWD && path[0] == '/';
    _cleanup_(closep) int at = -EBADF;
    const char *p = path;

    if (path[0] == '/' && !trusted)
        return err_sys(err, EXDEV, "mkdir '%s'", path);
    at = openat(dirfd, trusted ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (at < 0)
        return err_sys(err, errno, "mkdir '%s'", path);
    while (*(p += strspn(p, "/"))) {
        size_t n = strcspn(p, "/");
        char name[NAME_MAX + 1];
        int fd;

        if (n > NAME_MAX)
            return err_sys(err, ENAMETOOLONG, "mkdir '%.*s'", (int)MIN(p - path, 256), path);
        memcpy(name, p, n);
        name[n] = '\0';
        p += n;
        fd = mkdir_open(at, name, mode, trusted);
        if (fd < 0)
            return err_sys(err, errno, "mkdir '%.*s'", (int)MIN(p - path, 256), path);
        fd_close(at);
        at = fd;
    }
    return 0;
}

/* A stream over the folder `name` in `dirfd` itself, never what a symlink there leads to. */
static DIR *dir_open(int dirfd, const char *name)
{
    int fd = path_open_beneath(dirfd, name, O_RDONLY | O_DIRECTORY, 0);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d)
        fd_close(fd);
    return d;
}

/* Next entry but "." and "..". NULL with errno 0 at the end. */
static const char *dir_next(DIR *d)
{
    struct dirent *e;

    while ((errno = 0, e = readdir(d)) != NULL)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            return e->d_name;
    return NULL;
}

int path_each(int dirfd, const char *what, int (*fn)(void *user, const char *name), void *user,
              struct abx_err *err)
{
    _cleanup_(closedirp) DIR *d = dir_open(dirfd, ".");
    const char *name;

    if (!d)
        return err_sys(err, errno, "open %s", what);
    while ((name = dir_next(d)) != NULL) {
        int r = fn(user, name);

        if (r != 0)
            return r;
    }
    return errno ? err_sys(err, errno, "list %s", what) : 0;
}

/* Removes one entry. 1 = it is a folder that is not empty. */
static int remove_entry(int dirfd, const char *name)
{
    int saved;

    if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -1;
    saved = errno;
    if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    if (errno == ENOTDIR)
        errno = saved; /* a file that may not be removed */
    return errno == ENOTEMPTY || errno == EEXIST ? 1 : -1;
}

/* Moves the folder `name` into the top folder under a name that no one could foresee: whoever wrote
 * the tree may have put names there to be in the way. */
static int lift(int dirfd, const char *name, int topfd)
{
    for (int i = 0; i < OPEN_TRIES; i++) {
        uint8_t random[8];
        char flat[4 + 2 * sizeof random + 1] = ".rm-";

        random_bytes(random, sizeof random);
        hex_encode(random, sizeof random, flat + 4);
        if (renameat2(dirfd, name, topfd, flat, RENAME_NOREPLACE) == 0 || errno == ENOENT)
            return 0;
        if (errno == EINVAL) /* a file system that doesn't know the flag */
            return renameat(dirfd, name, topfd, flat);
        if (errno != EEXIST)
            return -1;
    }
    return -1;
}

/* Empties the folder `name` of the top folder by one level: folders in it that are not empty move up
 * into the top folder, so that any depth is removed with three open fds. */
static int empty_dir(int topfd, const char *name)
{
    _cleanup_(closedirp) DIR *d = dir_open(topfd, name);
    const char *entry;

    if (!d)
        return errno == ENOENT ? 0 : -1;
    while ((entry = dir_next(d)) != NULL) {
        int r = remove_entry(dirfd(d), entry);

        if (r < 0 || (r > 0 && lift(dirfd(d), entry, topfd) < 0))
            return -1;
    }
    return errno ? -1 : 0;
}

/* One pass over the top folder. Entries in it when it ends, or -1. */
static ssize_t drain_pass(int topfd)
{
    _cleanup_(closedirp) DIR *d = dir_open(topfd, ".");
    const char *entry;
    ssize_t found = 0;

    if (!d)
        return -1;
    while ((entry = dir_next(d)) != NULL) {
        int r = remove_entry(topfd, entry);

        found++;
        if (r > 0)
            r = empty_dir(topfd, entry);
        if (r == 0)
            r = remove_entry(topfd, entry);
        if (r < 0)
            return -1;
    }
    return errno ? -1 : found;
}

int path_remove_tree(int dirfd, const char *name, struct abx_err *err)
{
    int r = remove_entry(dirfd, name);

    for (int i = 0; r > 0; i++) {
        _cleanup_(closep) int top =
            path_open_beneath(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
        ssize_t n = 1;

        if (top < 0)
            return errno == ENOENT ? 0 : err_sys(err, errno, "open '%s'", name);
        /* Passes see what earlier ones moved up; one that finds nothing is the last. */
        while (n > 0)
            n = drain_pass(top);
        if (n < 0)
            return err_sys(err, errno, "remove below '%s'", name);
        r = remove_entry(dirfd, name);
        if (r > 0 && i == OPEN_TRIES)
            return err_sys(err, ENOTEMPTY, "remove '%s'", name);
    }
    return r < 0 ? err_sys(err, errno, "remove '%s'", name) : 0;
}

bool path_join(char *to, size_t size, const char *a, const char *b)
{
    size_t n = strlen(a);
    const char *sep = n > 0 && a[n - 1] == '/' ? "" : "/";
    int k = snprintf(to, size, "%s%s%s", a, sep, b);

    return k >= 0 && (size_t)k < size;
}
