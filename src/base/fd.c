/* fd.c - see fd.h. */
#include "base/fd.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"

void fd_close(int fd)
{
    int saved = errno;

    if (fd >= 0)
        (void)close(fd);
    errno = saved;
}

int fd_write_all(int fd, const void *p, size_t n)
{
    const char *from = p;

    while (n > 0) {
        ssize_t k = write(fd, from, n);

        if (k < 0 && errno == EINTR)
            continue;
        if (k == 0)
            errno = EIO;
        if (k <= 0)
            return -1;
        from += k;
        n -= (size_t)k;
    }
    return 0;
}

ssize_t fd_read_all(int fd, void *p, size_t n)
{
    char *to = p;
    size_t got = 0;

    while (got < n) {
        ssize_t k = read(fd, to + got, n - got);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -1;
        if (k == 0)
            break;
        got += (size_t)k;
    }
    return (ssize_t)got;
}

int fd_set_nonblock(int fd, bool on)
{
    int f = fcntl(fd, F_GETFL);

    if (f < 0)
        return -1;
    return fcntl(fd, F_SETFL, on ? f | O_NONBLOCK : f & ~O_NONBLOCK);
}

int fd_set_cloexec(int fd, bool on)
{
    return fcntl(fd, F_SETFD, on ? FD_CLOEXEC : 0);
}

int file_read(int dirfd, const char *path, struct buf *b, struct abx_err *err)
{
    _cleanup_(closep) int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return err_sys(err, errno, "open '%s'", path);
    for (;;) {
        size_t want = MIN(buf_room(b), (size_t)65536);
        uint8_t extra;
        uint8_t *to = want > 0 ? buf_reserve(b, want, NULL) : &extra;
        ssize_t k;

        if (!to)
            return err_oom(err);
        k = read(fd, to, want > 0 ? want : 1);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_sys(err, errno, "read '%s'", path);
        if (k == 0)
            return 0;
        if (want == 0)
            return err_reason(err, ABX_REASON_TOO_LARGE, "'%s' is larger than %zu bytes", path,
                              b->limit);
        buf_commit(b, (size_t)k);
    }
}

int file_write_once(int dirfd, const char *path, const void *p, size_t n, struct abx_err *err)
{
    _cleanup_(closep) int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC);
    ssize_t k;

    if (fd < 0)
        return err_sys(err, errno, "open '%s'", path);
    do {
        k = write(fd, p, n);
    } while (k < 0 && errno == EINTR);
    if (k < 0)
        return err_sys(err, errno, "write '%s'", path);
    if ((size_t)k != n)
        return err_set(err, ABX_INTERNAL, "write '%s': %zd of %zu bytes", path, k, n);
    return 0;
}

int file_printf(int dirfd, const char *path, struct abx_err *err, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof text)
        return err_set(err, ABX_INVALID_ARGUMENT, "value for '%s' is over 255 bytes", path);
    return file_write_once(dirfd, path, text, (size_t)n, err);
}

/* Makes a rename in the folder of `path` last. */
static int sync_parent(int dirfd, const char *path)
{
    const char *slash = strrchr(path, '/');
    _cleanup_(freep) char *dir =
        slash ? slice_dup(slice_of(path, (size_t)(slash - path) + 1)) : strdup(".");
    _cleanup_(closep) int fd = dir ? openat(dirfd, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

    if (!dir)
        errno = ENOMEM;
    return fd < 0 ? -1 : fsync(fd);
}

#define TMP_RANDOM 6
#define TMP_END ".tmp"

int file_replace(int dirfd, const char *path, const void *p, size_t n, mode_t mode, bool sync,
                 struct abx_err *err)
{
    char tmp[4096];
    uint8_t rnd[TMP_RANDOM];
    char hex[2 * TMP_RANDOM + 1];
    int r;

    random_bytes(rnd, sizeof rnd);
    hex_encode(rnd, sizeof rnd, hex);
    if (snprintf(tmp, sizeof tmp, "%s.%s" TMP_END, path, hex) >= (int)sizeof tmp)
        return err_set(err, ABX_INVALID_ARGUMENT, "path '%.64s...' is too long", path);
    {
        _cleanup_(closep) int fd =
            openat(dirfd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

        if (fd < 0)
            return err_sys(err, errno, "create '%s'", tmp);
        r = 0;
        if (fd_write_all(fd, p, n) < 0 || fchmod(fd, mode) < 0 || (sync && fsync(fd) < 0))
            r = err_sys(err, errno, "write '%s'", tmp);
    }
    if (r == 0 && renameat(dirfd, tmp, dirfd, path) < 0)
        r = err_sys(err, errno, "rename '%s' to '%s'", tmp, path);
    if (r < 0) {
        (void)unlinkat(dirfd, tmp, 0);
        return r;
    }
    if (sync && sync_parent(dirfd, path) < 0)
        return err_sys(err, errno, "sync the folder of '%s'", path);
    return 0;
}

/* "<name>.<hex>.tmp" */
static bool is_tmp_name(const char *name)
{
    const size_t end = strlen(TMP_END), hex = 2 * (size_t)TMP_RANDOM;
    size_t n = strlen(name);
    uint8_t rnd[TMP_RANDOM];

    return n > 1 + hex + end && strcmp(name + n - end, TMP_END) == 0 &&
           name[n - end - hex - 1] == '.' &&
           hex_decode(slice_of(name + n - end - hex, hex), rnd, sizeof rnd);
}

void file_replace_sweep(int dirfd)
{
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_(closedirp) DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;

    if (!d)
        fd_close(fd);
    while (d && (e = readdir(d)) != NULL)
        if (is_tmp_name(e->d_name))
            (void)unlinkat(fd, e->d_name, 0);
}

void random_bytes(void *p, size_t n)
{
    char *to = p;

    while (n > 0) {
        ssize_t k = getrandom(to, n, 0);

        if (k < 0 && errno != EINTR)
            abort();
        if (k > 0) {
            to += k;
            n -= (size_t)k;
        }
    }
}
