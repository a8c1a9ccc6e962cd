/* target.c - see target.h. */
#include "guest/daemon/target.h"

#include <fcntl.h>
#include <linux/limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "guest/daemon/entry.h"
#include "guest/daemon/paths.h"

/* Not blocking: it may have become a FIFO meanwhile. */
#define IN_PLACE_FLAGS (O_WRONLY | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
#define LINKS_MAX 8 /* dangling symlinks in a row */
#define NEW_MODE 0644

struct attributes {
    const char *const *names;
    const char *const *values;
    size_t n;
};

static int io_error(struct abx_err *err, int sys, const char *what, const char *path)
{
    if (sys == ENOSPC || sys == EDQUOT)
        return err_reason(err, ABX_REASON_DISK_FULL, "not enough disk space available");
    if (sys == EISDIR)
        return err_set(err, ABX_INVALID_ARGUMENT, "path is a directory: %s", path);
    return err_sys(err, sys, "%s '%s'", what, path);
}

bool target_is_temp(const char *name)
{
    return strncmp(name, TARGET_TEMP, strlen(TARGET_TEMP)) == 0;
}

bool target_is_new_temp(const char *name)
{
    return strncmp(name, TARGET_TEMP_NEW, strlen(TARGET_TEMP_NEW)) == 0;
}

void target_init(struct target *t, const char *path)
{
    memset(t, 0, sizeof(*t));
    t->dir = t->fd = -EBADF;
    (void)snprintf(t->path, sizeof(t->path), "%s", path);
    buf_init(&t->pending, TARGET_SMALL_MAX);
}

void target_done(struct target *t)
{
    fd_close(TAKE_FD(t->fd));
    fd_close(TAKE_FD(t->dir));
    buf_done(&t->pending);
}

/* Folder part of `path` into `to`; false for the root. */
static bool folder_of(const char *path, char to[PATH_MAX])
{
    char *slash;

    memcpy(to, path, strlen(path) + 1);
    slash = strrchr(to, '/');
    if (!slash || slash[1] == '\0')
        return false;
    slash[slash == to] = '\0';
    return true;
}

/* Replaces `real`, a symlink to nothing, by what it names. */
static int follow_dangling(struct target *t, struct abx_err *err)
{
    char text[PATH_MAX], joined[2 * PATH_MAX], folder[PATH_MAX];
    ssize_t n = readlink(t->real, text, sizeof(text) - 1);

    if (n < 0)
        return io_error(err, errno, "read link", t->real);
    text[n] = '\0';
    if (text[0] == '/' || !folder_of(t->real, folder))
        (void)snprintf(joined, sizeof(joined), "%s", text);
    else
        (void)snprintf(joined, sizeof(joined), "%s/%s", folder, text);
    guest_path_clean(joined);
    if (strlen(joined) >= sizeof(t->real))
        return err_set(err, ABX_INVALID_ARGUMENT, "path is longer than %d bytes", PATH_MAX - 1);
    memcpy(t->real, joined, strlen(joined) + 1);
    return 0;
}

/* Finds out what is at `path` now: sets real, mode, is_new. */
static int locate(struct target *t, struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    char link[64];
    struct stat st;
    ssize_t n;
    int r = 0;

    memcpy(t->real, t->path, sizeof(t->real));
    t->is_new = false;
    for (int i = 0; (fd = open(t->real, O_PATH | O_CLOEXEC)) < 0; i++) {
        if (errno != ENOENT)
            return io_error(err, errno, "open", t->path);
        if (lstat(t->real, &st) < 0 || !S_ISLNK(st.st_mode)) {
            t->is_new = true;
            t->mode = NEW_MODE;
            return 0;
        }
        r = i < LINKS_MAX ? follow_dangling(t, err) : io_error(err, ELOOP, "open", t->path);
        if (r < 0)
            return r;
    }
    if (fstat(fd, &st) < 0)
        return io_error(err, errno, "look at", t->path);
    if (S_ISDIR(st.st_mode))
        return err_set(err, ABX_INVALID_ARGUMENT, "path is a directory: %s", t->path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ABX_INVALID_ARGUMENT, "path is not a regular file: %s", t->path);
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, t->real, sizeof(t->real) - 1);
    if (n < 0)
        return io_error(err, errno, "resolve", t->path);
    t->real[n] = '\0';
    t->mode = st.st_mode & 0777;
    return 0;
}

static int open_folder(struct target *t, struct abx_err *err)
{
    char folder[PATH_MAX];

    if (!folder_of(t->path, folder))
        return err_set(err, ABX_INVALID_ARGUMENT, "path is a directory: %s", t->path);
    if (entry_make_dirs(folder, err) < 0)
        return err && err->code ? err->code : ABX_INVALID_ARGUMENT;
    if (locate(t, err) < 0)
        return err && err->code ? err->code : ABX_INVALID_ARGUMENT;
    if (!folder_of(t->real, folder))
        return err_set(err, ABX_INVALID_ARGUMENT, "path is a directory: %s", t->path);
    t->dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (t->dir < 0)
        return io_error(err, errno, "open folder", folder);
    t->is_open = true;
    return 0;
}

static int open_temp(struct target *t, struct abx_err *err)
{
    uint8_t random[8];
    char hex[2 * sizeof(random) + 1];

    random_bytes(random, sizeof(random));
    hex_encode(random, sizeof(random), hex);
    (void)snprintf(t->temp, sizeof(t->temp), "%s%s", t->is_new ? TARGET_TEMP_NEW : TARGET_TEMP,
                   hex);
    t->fd = openat(t->dir, t->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, t->mode);
    if (t->fd >= 0)
        return 0;
    t->temp[0] = '\0';
    if (t->is_new || t->keeps_old || (errno != EACCES && errno != EPERM && errno != EROFS))
        return io_error(err, errno, "create a file beside", t->path);
    /* No right to the folder, but perhaps to the file. */
    t->fd = openat(t->dir, guest_path_name(t->real), IN_PLACE_FLAGS);
    if (t->fd < 0)
        return io_error(err, errno, "open", t->path);
    t->is_in_place = true;
    return 0;
}

static int write_fd(struct target *t, struct slice s, struct abx_err *err)
{
    if (s.n > 0 && fd_write_all(t->fd, s.p, s.n) < 0)
        return io_error(err, errno, "write", t->path);
    return 0;
}

static int open_and_flush(struct target *t, struct abx_err *err)
{
    int r = open_folder(t, err);

    if (r == 0)
        r = open_temp(t, err);
    if (r == 0)
        r = write_fd(t, buf_slice(&t->pending), err);
    buf_done(&t->pending);
    return r;
}

int target_write(struct target *t, struct slice data, struct abx_err *err)
{
    int r;

    if (!t->is_open && data.n <= buf_room(&t->pending))
        return buf_append_slice(&t->pending, data) ? err_oom(err) : 0;
    r = t->is_open ? 0 : open_and_flush(t, err);
    return r < 0 ? r : write_fd(t, data, err);
}

/* Takes the metadata of the content that was there off a file that stays the same file. */
static int clear_attributes(struct target *t, int fd, struct abx_err *err)
{
    _cleanup_(freep) char *names = NULL;
    ssize_t n = flistxattr(fd, NULL, 0);

    if (n <= 0) /* none, or a file system without them */
        return 0;
    names = malloc(XATTR_LIST_MAX);
    if (!names)
        return err_oom(err);
    n = flistxattr(fd, names, XATTR_LIST_MAX);
    for (ssize_t at = 0; at < n; at += (ssize_t)strlen(names + at) + 1) {
        if (strncmp(names + at, ENTRY_XATTR_PREFIX, strlen(ENTRY_XATTR_PREFIX)) == 0 &&
            fremovexattr(fd, names + at) < 0 && errno != ENODATA)
            return io_error(err, errno, "remove old metadata of", t->path);
    }
    return 0;
}

static int set_attributes(struct target *t, int fd, const struct attributes *a, struct abx_err *err)
{
    for (size_t i = 0; i < a->n; i++) {
        if (fsetxattr(fd, a->names[i], a->values[i], strlen(a->values[i]), 0) < 0)
            return io_error(err, errno, "keep metadata of", t->path);
    }
    return 0;
}

/* A small new file: made and filled under its own name. A watcher sees it created, its attributes set,
 * and one write, as with others' envd. -EEXIST when somebody was faster. */
static int write_new(struct target *t, const struct attributes *a, struct abx_err *err)
{
    const char *name = guest_path_name(t->real);
    int r = 0;

    t->fd = openat(t->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, t->mode);
    if (t->fd < 0 && errno == EEXIST)
        return -EEXIST;
    if (t->fd < 0)
        return io_error(err, errno, "create", t->path);
    if (a->n > 0)
        r = set_attributes(t, t->fd, a, err);
    else if (fchmod(t->fd, t->mode) < 0)
        r = io_error(err, errno, "set the mode of", t->path);
    if (r == 0)
        r = write_fd(t, buf_slice(&t->pending), err);
    if (r < 0)
        (void)unlinkat(t->dir, name, 0);
    else
        t->is_in_place = true;
    return r;
}

/* A file that something is mounted on cannot be replaced, only filled; nor one of another user in a folder
 * with the sticky bit (/tmp), which may be writable for all. */
static int fill_in_place(struct target *t, const struct attributes *a, struct abx_err *err)
{
    _cleanup_(closep) int from = openat(t->dir, t->temp, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    _cleanup_(closep) int to = open(t->real, IN_PLACE_FLAGS);
    _cleanup_(freep) char *bytes = malloc(TARGET_SMALL_MAX);
    ssize_t n;
    int r;

    if (from < 0 || to < 0 || !bytes)
        return io_error(err, errno, "open", t->path);
    while ((n = read(from, bytes, TARGET_SMALL_MAX)) > 0) {
        if (fd_write_all(to, bytes, (size_t)n) < 0)
            return io_error(err, errno, "write", t->path);
    }
    if (n < 0)
        return io_error(err, errno, "read back", t->path);
    target_abort(t);
    r = clear_attributes(t, to, err);
    return r < 0 ? r : set_attributes(t, to, a, err);
}

/* Everything is in `pending` still: a new file is made at once, an old one replaced. */
static int finish_small(struct target *t, const struct attributes *a, bool *ret_is_done,
                        struct abx_err *err)
{
    int r = open_folder(t, err);

    if (r == 0 && t->is_new) {
        r = write_new(t, a, err);
        *ret_is_done = r == 0;
    }
    if (r == -EEXIST)
        r = locate(t, err);
    if (r == 0 && t->fd < 0) {
        r = open_temp(t, err);
        r = r < 0 ? r : write_fd(t, buf_slice(&t->pending), err);
    }
    return r;
}

int target_finish(struct target *t, const char *const *names, const char *const *values, size_t n,
                  struct abx_err *err)
{
    struct attributes a = { names, values, n };
    bool is_done = false;
    int r = t->is_open ? 0 : finish_small(t, &a, &is_done, err);

    if (r == 0 && !is_done && t->is_in_place)
        r = clear_attributes(t, t->fd, err);
    if (r == 0 && !is_done)
        r = set_attributes(t, t->fd, &a, err);
    /* The umask took bits that the old file had. */
    if (r == 0 && !t->is_in_place && fchmod(t->fd, t->mode) < 0)
        r = io_error(err, errno, "set the mode of", t->path);
    if (r < 0 || t->temp[0] == '\0')
        return r;
    if (renameat(t->dir, t->temp, t->dir, guest_path_name(t->real)) < 0)
        return errno == EBUSY || errno == EPERM ? fill_in_place(t, &a, err)
                                                : io_error(err, errno, "put into place", t->path);
    t->temp[0] = '\0';
    return 0;
}

void target_abort(struct target *t)
{
    if (t->temp[0])
        (void)unlinkat(t->dir, t->temp, 0);
    t->temp[0] = '\0';
}

int target_check_space(const char *path, uint64_t size, struct abx_err *err)
{
    char folder[PATH_MAX];
    struct statvfs fs;

    /* The nearest folder that exists. */
    memcpy(folder, path, strlen(path) + 1);
    while (folder_of(folder, folder) && statvfs(folder, &fs) < 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            return 0; /* what is wrong with it shows when the file is opened */
    }
    if (statvfs(folder, &fs) == 0 && fs.f_blocks > 0 && (uint64_t)fs.f_bavail * fs.f_frsize < size)
        return err_reason(err, ABX_REASON_DISK_FULL, "not enough disk space available");
    return 0;
}
