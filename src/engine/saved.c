/* saved.c - see saved.h. */
#include "engine/saved.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "engine/disk_internal.h"

#define FILE_SIZE (RECORD_NAME_SIZE + RECORD_ID_SIZE + 1)

static int check(struct disk_pool *p, struct abx_err *err)
{
    return p->why_dead[0] ? err_set(err, ABX_FAILED_PRECONDITION, "the pool cannot be used: %.200s",
                                    p->why_dead)
                          : 0;
}

static void make_name(char to[FILE_SIZE], const char *name, const char *sandbox_id)
{
    (void)snprintf(to, FILE_SIZE, "%.*s.%.*s", RECORD_NAME_SIZE - 1, name, RECORD_ID_SIZE - 1,
                   sandbox_id);
}

int saved_add(struct disk_pool *p, const char *name, const char *sandbox_id, struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    char file[FILE_SIZE];
    int r = check(p, err);

    if (r < 0)
        return r;
    make_name(file, name, sandbox_id);
    fd = openat(p->saved_fd, file, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? err_sys(err, errno, "note that '%s' is kept", sandbox_id) : 0;
}

int saved_remove(struct disk_pool *p, const char *name, const char *sandbox_id, struct abx_err *err)
{
    char file[FILE_SIZE];
    int r = check(p, err);

    if (r < 0)
        return r;
    make_name(file, name, sandbox_id);
    if (unlinkat(p->saved_fd, file, 0) < 0 && errno != ENOENT)
        return err_sys(err, errno, "forget that '%s' is kept", sandbox_id);
    return 0;
}

int saved_each(struct disk_pool *p, int (*fn)(void *user, const char *name, const char *sandbox_id),
               void *user, struct abx_err *err)
{
    _cleanup_(closedirp) DIR *d = NULL;
    struct dirent *e;
    int fd, r = 0;

    if (p->why_dead[0])
        return 0;
    fd = openat(p->saved_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        fd_close(fd);
        return err_sys(err, errno, "open the list of what is kept");
    }
    while (r == 0 && (errno = 0, e = readdir(d)) != NULL) {
        char *dot = strchr(e->d_name, '.');

        if (!dot || dot == e->d_name || dot[1] == '\0')
            continue;
        *dot = '\0';
        if (record_name_is_valid(e->d_name) && strlen(dot + 1) < RECORD_ID_SIZE)
            r = fn(user, e->d_name, dot + 1);
        errno = 0;
    }
    return r == 0 && errno ? err_sys(err, errno, "read the list of what is kept") : r;
}

static int is_it(void *user, const char *name, const char *sandbox_id)
{
    (void)sandbox_id;
    return strcmp(user, name) == 0 ? 1 : 0;
}

bool saved_has(struct disk_pool *p, const char *name)
{
    return saved_each(p, is_it, (void *)(uintptr_t)name, NULL) != 0;
}
