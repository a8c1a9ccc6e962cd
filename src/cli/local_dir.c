/* local_dir.c - see local_dir.h. */
#include "cli/local_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "cli/cli.h"

#define SERVICE "service"
#define NAME_SIZE 32 /* "4294967295.env", ".4294967295.new" */

void local_user_of(uid_t uid, struct local_user *ret)
{
    const struct passwd *pw = getpwuid(uid);

    *ret = (struct local_user){ .uid = uid };
    if (pw && strlen(pw->pw_name) < sizeof ret->name)
        (void)snprintf(ret->name, sizeof ret->name, "%s", pw->pw_name);
    else
        (void)snprintf(ret->name, sizeof ret->name, "%u", (unsigned)uid);
}

int local_user_find(const char *what, const char *text, struct local_user *ret, struct abx_err *err)
{
    const struct passwd *pw = getpwnam(text);
    uint64_t uid;

    if (pw)
        local_user_of(pw->pw_uid, ret);
    else if (str_parse_u64(slice_str(text), UINT32_MAX - 1, &uid))
        local_user_of((uid_t)uid, ret);
    else
        return err_set(err, ABX_NOT_FOUND, "%s: there is no user '%.64s'", what, text);
    return 0;
}

/* Opens the folder (makes it when `makes`) and checks that it is root's alone. */
static int open_dir(bool makes, struct local_dir *d, struct abx_err *err)
{
    const char *path = getenv("ABX_LOCAL_DIR");
    struct stat st;

    if (!path || !path[0])
        path = CLI_LOCAL_DIR;
    if (path[0] != '/' || strlen(path) >= sizeof d->path)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "ABX_LOCAL_DIR is not an absolute path below %zu "
                       "bytes",
                       sizeof d->path);
    *d = (struct local_dir)LOCAL_DIR_INIT;
    (void)snprintf(d->path, sizeof d->path, "%s", path);
    if (makes && mkdir(path, 0711) < 0 && errno != EEXIST)
        return err_sys(err, errno, "mkdir '%s'", path);
    d->dirfd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (d->dirfd < 0)
        return err_sys(err, errno, "open '%s'", path);
    if (fstat(d->dirfd, &st) < 0)
        return err_sys(err, errno, "stat '%s'", path);
    if (st.st_uid != 0 || (st.st_mode & 022))
        return err_set(err, ABX_FAILED_PRECONDITION,
                       "'%s' is not root's alone (owner %u, mode %04o)", path, (unsigned)st.st_uid,
                       (unsigned)st.st_mode & 07777);
    if (makes && fchmod(d->dirfd, 0711) < 0) /* mkdir obeys the umask */
        return err_sys(err, errno, "mode of '%s'", path);
    return 0;
}

/* "a\nb\nc\nd\ne\n": the texts of a service. Releases before wrote no process. */
static int read_service(int fd, struct local_service_info *info, struct abx_err *err)
{
    char text[4096];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    char *at = text, *line;
    struct {
        char *to;
        size_t size;
    } fields[] = {
        { info->instance, sizeof info->instance }, { info->data_dir, sizeof info->data_dir },
        { info->base_url, sizeof info->base_url }, { info->domain, sizeof info->domain },
        { info->process, sizeof info->process },
    };

    if (n < 0)
        return err_sys(err, errno, "read '" SERVICE "'");
    text[n] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        line = strsep(&at, "\n");
        if (fields[i].to == info->process && (!line || !at)) {
            info->process[0] = '\0';
            return 0;
        }
        if (!line || !at || strlen(line) >= fields[i].size)
            return err_set(err, ABX_DATA_LOSS, "'" SERVICE "' is not complete");
        memcpy(fields[i].to, line, strlen(line) + 1);
    }
    return 0;
}

static int write_service(int fd, const struct local_service_info *info, struct abx_err *err)
{
    char text[4096];
    int n = snprintf(text, sizeof text, "%s\n%s\n%s\n%s\n%s\n", info->instance, info->data_dir,
                     info->base_url, info->domain, info->process);

    if (n < 0 || (size_t)n >= sizeof text)
        return err_set(err, ABX_INVALID_ARGUMENT, "data dir, address and domain are too long");
    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n)
        return err_sys(err, errno, "write '" SERVICE "'");
    return 0;
}

/* Everything but `service`: users' files, and one that was being written. */
static void remove_files(int dirfd)
{
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_(closedirp) DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *e;

    if (!dir) {
        fd_close(fd);
        return;
    }
    while ((e = readdir(dir)) != NULL) {
        size_t n = strlen(e->d_name);

        if (n > 4 &&
            (strcmp(e->d_name + n - 4, ".env") == 0 || strcmp(e->d_name + n - 4, ".new") == 0))
            (void)unlinkat(dirfd, e->d_name, 0);
    }
}

int local_dir_take(const struct local_service_info *info, struct local_dir *ret,
                   struct abx_err *err)
{
    struct local_service_info other = { 0 };
    struct local_dir d = LOCAL_DIR_INIT;
    int r = open_dir(true, &d, err);

    if (r == 0) {
        d.lock_fd = openat(d.dirfd, SERVICE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (d.lock_fd < 0)
            r = err_sys(err, errno, "open '%s/" SERVICE "'", d.path);
    }
    if (r == 0 && flock(d.lock_fd, LOCK_EX | LOCK_NB) < 0) {
        (void)read_service(d.lock_fd, &other, NULL);
        r = err_set(err, ABX_FAILED_PRECONDITION, "'%s' belongs to the running service of '%s'",
                    d.path, other.data_dir);
    }
    if (r == 0) {
        remove_files(d.dirfd);
        r = write_service(d.lock_fd, info, err);
    }
    if (r < 0) {
        local_dir_close(&d);
        return r;
    }
    *ret = d;
    return 0;
}

/* A shared lock can be had only when no supervisor lives; it is given back at once. */
bool local_dir_is_live(const struct local_dir *d)
{
    _cleanup_(closep) int fd = openat(d->dirfd, SERVICE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

bool local_dir_is_free(void)
{
    struct local_dir d = LOCAL_DIR_INIT;
    struct abx_err err;
    int r = open_dir(false, &d, &err);
    bool is_free = r < 0 ? err.sys == ENOENT : !local_dir_is_live(&d);

    local_dir_close(&d);
    return is_free;
}

int local_dir_open(struct local_dir *ret, struct local_service_info *info, struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    struct local_dir d = LOCAL_DIR_INIT;
    int r = open_dir(false, &d, err);

    if (r == 0)
        fd = openat(d.dirfd, SERVICE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (r == 0 && fd < 0)
        r = err_sys(err, errno, "open '%s/" SERVICE "'", d.path);
    if (r == 0)
        r = read_service(fd, info, err);
    if (r < 0 && err && err->sys == ENOENT)
        r = err_set(err, ABX_NOT_FOUND,
                    "no service has run on this machine since it started: 'abx serve' starts one");
    if (r == 0 && !local_dir_is_live(&d))
        r = err_set(err, ABX_NOT_FOUND, "the service of '%s' does not run: 'abx serve' starts it",
                    info->data_dir);
    if (r < 0) {
        local_dir_close(&d);
        return r;
    }
    *ret = d;
    return 0;
}

int local_dir_write(const struct local_dir *d, const struct local_service_info *info, uid_t uid,
                    const char *key, struct abx_err *err)
{
    char name[NAME_SIZE], temporary[NAME_SIZE], text[1024];
    _cleanup_(closep) int fd = -EBADF;
    int n, r = 0;

    (void)snprintf(name, sizeof name, "%u.env", (unsigned)uid);
    (void)snprintf(temporary, sizeof temporary, ".%u.new", (unsigned)uid);
    n = snprintf(text, sizeof text,
                 "# Written by abx serve for uid %u; gone when it stops. abx(1)\n"
                 "ABX_SANDBOX_API_KEY=%s\nABX_SANDBOX_BASE_URL=%s\nABX_SANDBOX_DOMAIN=%s\n"
                 "ABX_SERVICE_PROCESS=%s\n",
                 (unsigned)uid, key, info->base_url, info->domain, info->process);
    (void)unlinkat(d->dirfd, temporary, 0);
    fd = openat(d->dirfd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, errno, "make '%s/%s'", d->path, temporary);
    if (fd_write_all(fd, text, (size_t)n) < 0 || fchmod(fd, 0600) < 0 ||
        fchown(fd, uid, (gid_t)-1) < 0 || renameat(d->dirfd, temporary, d->dirfd, name) < 0)
        r = err_sys(err, errno, "write '%s/%s'", d->path, name);
    explicit_bzero(text, sizeof text);
    if (r < 0)
        (void)unlinkat(d->dirfd, temporary, 0);
    return r;
}

void local_dir_remove(const struct local_dir *d, uid_t uid)
{
    char name[NAME_SIZE];

    (void)snprintf(name, sizeof name, "%u.env", (unsigned)uid);
    (void)unlinkat(d->dirfd, name, 0);
}

void local_dir_give_up(struct local_dir *d)
{
    if (d->lock_fd >= 0)
        remove_files(d->dirfd);
    local_dir_close(d);
}

void local_dir_close(struct local_dir *d)
{
    fd_close(TAKE_FD(d->lock_fd));
    fd_close(TAKE_FD(d->dirfd));
}
