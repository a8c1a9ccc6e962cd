/* test_dir.h - a scratch folder per test: cmocka_unit_test_setup_teardown(t, dir_setup, dir_teardown). */
#pragma once

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

struct test_dir {
    char path[64];
    int fd;
};

static inline int dir_setup(void **state)
{
    struct test_dir *d = calloc(1, sizeof *d);

    if (!d)
        return -1;
    (void)snprintf(d->path, sizeof d->path, "/tmp/abx-unit-XXXXXX");
    if (!mkdtemp(d->path))
        return -1;
    d->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *state = d;
    return d->fd < 0 ? -1 : 0;
}

static inline int dir_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline int dir_teardown(void **state)
{
    struct test_dir *d = *state;
    int r = nftw(d->path, dir_remove_one, 16, FTW_DEPTH | FTW_PHYS);

    (void)close(d->fd);
    free(d);
    return r;
}

/* Creates a file with the text in it. */
static inline void dir_write(const struct test_dir *d, const char *name, const char *text)
{
    int fd = openat(d->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    (void)close(fd);
}

static inline bool dir_has(const struct test_dir *d, const char *name)
{
    struct stat st;

    return fstatat(d->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}
