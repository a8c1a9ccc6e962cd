/* saved.c - see saved.h. */
#include "engine/saved.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "engine/disk_internal.h"

#define FILE_SIZE (RECORD_NAME_SIZE + RECORD_ID_SIZE + 1)
#define MARK "trusted.abx.saved" /* "<name> <sandbox id> <identity of u> <entries of u>" */
#define IDENTITY_SIZE 80
#define MARK_SIZE (RECORD_NAME_SIZE + RECORD_ID_SIZE + IDENTITY_SIZE + 24)
#define ENTRIES_MAX 1000u /* counted so far: a look does not take long */

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

/* --- marks -------------------------------------------------------------------------------------- */

struct mark {
    char name[RECORD_NAME_SIZE];
    char sandbox_id[RECORD_ID_SIZE];
    char identity[IDENTITY_SIZE];
    uint64_t n_entries;
};

static int open_upper(struct disk_pool *p, const char *name)
{
    return openat(p->uppers_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Device, inode and birth: one put there anew may have the number of the one before, subvolumes always have. */
static bool identify(int fd, char to[IDENTITY_SIZE])
{
    struct statx st;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &st) < 0)
        return false;
    (void)snprintf(to, IDENTITY_SIZE, "%u:%u:%llu:%lld.%u", st.stx_dev_major, st.stx_dev_minor,
                   (unsigned long long)st.stx_ino, (long long)st.stx_btime.tv_sec,
                   st.stx_btime.tv_nsec);
    return true;
}

/* The folder `u` of the upper: which it is, and how many entries it has. */
static bool look_at(int upper_fd, char identity[IDENTITY_SIZE], uint64_t *ret_n)
{
    _cleanup_(closedirp) DIR *d = NULL;
    int fd = openat(upper_fd, "u", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    uint64_t n = 0;

    d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        fd_close(fd);
        return false;
    }
    while (n < ENTRIES_MAX + 2 && readdir(d) != NULL)
        n++;
    *ret_n = n - MIN(n, UINT64_C(2)); /* "." and ".." */
    return n >= 2 && identify(fd, identity);
}

static void mark_write(struct disk_pool *p, const char *name, const char *sandbox_id)
{
    _cleanup_(closep) int fd = open_upper(p, name);
    char text[MARK_SIZE], identity[IDENTITY_SIZE];
    uint64_t entries;
    int n;

    if (fd < 0 || !look_at(fd, identity, &entries))
        return;
    n = snprintf(text, sizeof text, "%s %s %s %" PRIu64, name, sandbox_id, identity, entries);
    if (n < 0 || (size_t)n >= sizeof text || fsetxattr(fd, MARK, text, (size_t)n, 0) < 0)
        log_debug("an upper that is kept bears no mark", "name", name, NULL);
}

/* False when there is none, and when it is of the upper that this one is a copy of. */
static bool mark_read(int upper_fd, const char *name, struct mark *ret)
{
    char text[MARK_SIZE], *at = text, *words[4];
    ssize_t n = fgetxattr(upper_fd, MARK, text, sizeof text - 1);

    if (n <= 0)
        return false;
    text[n] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        words[i] = strsep(&at, " ");
    if (!words[3] || strcmp(words[0], name) != 0 || strlen(words[0]) >= sizeof ret->name ||
        words[1][0] == '\0' || strlen(words[1]) >= sizeof ret->sandbox_id || words[2][0] == '\0' ||
        strlen(words[2]) >= sizeof ret->identity ||
        !str_parse_u64(slice_str(words[3]), UINT64_MAX, &ret->n_entries))
        return false;
    (void)snprintf(ret->name, sizeof ret->name, "%s", words[0]);
    (void)snprintf(ret->sandbox_id, sizeof ret->sandbox_id, "%s", words[1]);
    (void)snprintf(ret->identity, sizeof ret->identity, "%s", words[2]);
    return true;
}

static bool mark_find(struct disk_pool *p, const char *name, struct mark *ret)
{
    _cleanup_(closep) int fd = open_upper(p, name);

    return fd >= 0 && mark_read(fd, name, ret);
}

void saved_unmark(struct disk_pool *p, const char *name)
{
    _cleanup_(closep) int fd = p->why_dead[0] ? -EBADF : open_upper(p, name);

    if (fd >= 0)
        (void)fremovexattr(fd, MARK);
}

int saved_check(struct disk_pool *p, const char *name, bool is_mounted, struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    char identity[IDENTITY_SIZE];
    uint64_t entries;
    struct mark m;
    int r = disk_upper_check(p, name, err);

    if (r < 0)
        return r;
    fd = open_upper(p, name);
    if (fd < 0 || !mark_read(fd, name, &m))
        return 0;
    if (!look_at(fd, identity, &entries))
        return err_set(err, ABX_DATA_LOSS, "its kept files cannot be read");
    if (is_mounted && strcmp(identity, m.identity) != 0)
        return err_set(err, ABX_DATA_LOSS,
                       "its kept files are not those that its processes have open: the folder was "
                       "put there anew");
    if (entries < m.n_entries)
        return err_set(err, ABX_DATA_LOSS,
                       "of its kept files some are gone: %" PRIu64 " of %" PRIu64
                       " entries are left in the uppermost folder",
                       entries, m.n_entries);
    return 0;
}

/* --- notes -------------------------------------------------------------------------------------- */

static int note_write(struct disk_pool *p, const char *name, const char *sandbox_id,
                      struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    char file[FILE_SIZE];

    make_name(file, name, sandbox_id);
    fd = openat(p->saved_fd, file, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? err_sys(err, errno, "note that '%s' is kept", sandbox_id) : 0;
}

/* The mark first: a note without one is as good. */
int saved_add(struct disk_pool *p, const char *name, const char *sandbox_id, struct abx_err *err)
{
    int r = check(p, err);

    if (r < 0)
        return r;
    mark_write(p, name, sandbox_id);
    r = note_write(p, name, sandbox_id, err);
    if (r < 0)
        saved_unmark(p, name);
    return r;
}

int saved_remove(struct disk_pool *p, const char *name, const char *sandbox_id, struct abx_err *err)
{
    char file[FILE_SIZE];
    int r = check(p, err);

    if (r < 0)
        return r;
    saved_unmark(p, name);
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
    struct mark m;

    return saved_each(p, is_it, (void *)(uintptr_t)name, NULL) != 0 || mark_find(p, name, &m);
}

struct restoring {
    struct disk_pool *p;
    bool (*is_other)(void *user, const char *name);
    void *user;
};

static int restore_one(void *user, const char *name)
{
    struct restoring *x = user;
    struct mark m;
    struct abx_err err;

    if (!record_name_is_valid(name) || x->is_other(x->user, name) || !mark_find(x->p, name, &m))
        return 0;
    log_warn("the note that a sandbox is kept was gone, its files say whose they are", "id",
             m.sandbox_id, "name", name, NULL);
    if (note_write(x->p, name, m.sandbox_id, &err) < 0)
        log_err("a sandbox that is kept", &err);
    return 0; /* the others all the same */
}

int saved_restore(struct disk_pool *p, bool (*is_other)(void *user, const char *name), void *user,
                  struct abx_err *err)
{
    struct restoring x = { p, is_other, user };

    return disk_upper_each(p, restore_one, &x, err);
}
