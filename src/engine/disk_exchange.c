/* disk_exchange.c - two uppers change places, and what a later look tells of it; see disk.h. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "engine/disk.h"
#include "engine/disk_internal.h"

/* Does the upper bear the mark? Of a copy of one that does it is the mark of another change. 1, 0, or UNAVAILABLE when
 * that cannot be said, for whatever reason. */
static int has_mark(struct disk_pool *p, const char *id, const char *mark, struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    char text[DISK_NAME_MAX + 2];
    int r = disk_open_upper(p, id, &fd, err);
    ssize_t n = r < 0 ? 0 : readlinkat(fd, "mark", text, sizeof text);

    if (r == ABX_NOT_FOUND) /* there is none */
        return 0;
    if (n < 0 && errno != ENOENT && errno != EINVAL)
        r = err_sys(err, errno, "mark of upper '%s'", id);
    if (r < 0) {
        if (err)
            err->code = ABX_UNAVAILABLE;
        return ABX_UNAVAILABLE;
    }
    return n == (ssize_t)strlen(mark) && memcmp(text, mark, (size_t)n) == 0;
}

/* It was looked, and is not done: that must not be taken for a failure to look. */
static int not_exchanged(struct abx_err *err)
{
    if (!err || err->reason == ABX_REASON_DISK_FULL)
        return err ? err->code : ABX_FAILED_PRECONDITION;
    return err->code = ABX_FAILED_PRECONDITION;
}

static int set_mark(struct disk_pool *p, const char *id, const char *mark, struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    int r = disk_open_upper(p, id, &fd, err);

    if (r < 0)
        return r;
    if ((unlinkat(fd, "mark", 0) < 0 && errno != ENOENT) || symlinkat(mark, fd, "mark") < 0)
        return err_sys(err, errno, "mark upper '%s'", id);
    return 0;
}

int disk_upper_exchange(struct disk_pool *p, const char *id, const char *other, const char *mark,
                        bool only_look, struct abx_err *err)
{
    int r = disk_check_id(mark, err);

    if (r == 0)
        r = disk_check_id(id, err);
    if (r < 0)
        return r;
    /* A killed worker may still be in the call below: this one waits behind it, for the lock of the folder. */
    (void)unlinkat(p->uppers_fd, mark, 0);
    r = has_mark(p, id, mark, err);
    if (r != 0)
        return MIN(r, 0);
    if (only_look)
        return err_set(err, ABX_FAILED_PRECONDITION,
                       "upper '%s' is in use, or there is none for its place", id);
    r = disk_upper_check(p, other, err);
    if (r == 0)
        r = set_mark(p, other, mark, err);
    if (r == 0 && renameat2(p->uppers_fd, other, p->uppers_fd, id, RENAME_EXCHANGE) < 0)
        r = err_sys(err, errno, "exchange upper '%s' and '%s'", id, other);
    return r < 0 ? not_exchanged(err) : 0;
}
