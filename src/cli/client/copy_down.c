/* copy_down.c - out of a sandbox, which may be hostile. See copy.h. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "cli/client/copy.h"
#include "cli/client/link_rule.h"

/* The tree under way. */
struct down {
    struct copy *c;
    char *root; /* absolute path in the sandbox */
    mode_t umask;
};

static mode_t current_umask(void)
{
    mode_t mask = umask(077);

    (void)umask(mask);
    return mask;
}

/* One component that is not the folder itself or its parent, within what file systems take. */
static bool name_is_safe(const char *name)
{
    size_t n = strlen(name);

    return n > 0 && n <= NAME_MAX && !strchr(name, '/') && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

/* Fetches into a new file beside the target and gives it its name when it is complete. */
static int down_file(struct down *d, const char *from, uint64_t size, uint32_t mode, int dirfd,
                     const char *name)
{
    struct copy *c = d->c;
    char temp[COPY_TEMP_SIZE];
    _cleanup_(closep) int fd = -EBADF;
    int r;

    copy_temp_name(temp);
    fd = openat(dirfd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return session_set_sys(c->s, errno, "make a file");
    copy_show(c, from, size);
    r = copy_fetch(c, from, fd);
    if (r == 0 && fchmod(fd, (mode & 0777 & ~d->umask) | 0200) < 0)
        r = session_set_sys(c->s, errno, "permissions");
    if (r == 0 && !(mode & 0200) && fchmod(fd, mode & 0777 & ~d->umask) < 0)
        r = session_set_sys(c->s, errno, "permissions");
    if (r == 0 && close(TAKE_FD(fd)) < 0) /* a full disk of a network file system */
        r = session_set_sys(c->s, errno, "write");
    if (r == 0 && renameat(dirfd, temp, dirfd, name) < 0)
        r = session_set_sys(c->s, errno, "name it");
    if (r < 0)
        (void)unlinkat(dirfd, temp, 0);
    else
        c->files++;
    return r;
}

static int down_link(struct down *d, const struct abx_entry *e, const char *from, int dirfd,
                     size_t depth)
{
    struct copy *c = d->c;
    char text[PATH_MAX], temp[COPY_TEMP_SIZE];

    if (!e->symlink_target || !link_rule(e->symlink_target, d->root, depth, text, sizeof text)) {
        copy_leave_out(c, from, "a link to %s, which is not within the tree",
                       e->symlink_target ? e->symlink_target : "nothing");
        return 0;
    }
    copy_temp_name(temp);
    if (symlinkat(text, dirfd, temp) < 0)
        return session_set_sys(c->s, errno, "make a link");
    if (renameat(dirfd, temp, dirfd, e->name) < 0) {
        int error = errno;

        (void)unlinkat(dirfd, temp, 0);
        return session_set_sys(c->s, error, "name a link");
    }
    c->files++;
    return 0;
}

/* A folder below `dirfd`, made or there already; nothing is followed. */
static int open_folder(struct copy *c, int dirfd, const char *name, bool *ret_is_new, int *ret)
{
    int fd;

    *ret_is_new = mkdirat(dirfd, name, 0700) == 0;
    if (!*ret_is_new && errno != EEXIST)
        return session_set_sys(c->s, errno, "make a folder");
    fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return session_set_sys(c->s, errno, "open the folder (links are not followed)");
    *ret = fd;
    return 0;
}

static int down_folder(struct down *d, const char *from, int dirfd, size_t depth);

/* One entry of a folder. What is wrong with it alone is left out; what makes going on useless is a code. */
static int down_entry(struct down *d, const struct abx_entry *e, const char *from, int dirfd,
                      size_t depth)
{
    struct copy *c = d->c;
    _cleanup_(closep) int fd = -EBADF;
    bool is_new;
    int r;

    if (e->symlink_target || e->type == ABX_FILE_SYMLINK)
        return down_link(d, e, from, dirfd, depth);
    if (e->type == ABX_FILE_FILE)
        return down_file(d, from, (uint64_t)MAX(e->size, (int64_t)0), e->mode, dirfd, e->name);
    if (e->type != ABX_FILE_DIR) {
        copy_leave_out(c, from, "neither a file, a folder nor a link");
        return 0;
    }
    if (depth >= COPY_DEPTH_MAX) {
        copy_leave_out(c, from, "more than %u folders deep", COPY_DEPTH_MAX);
        return 0;
    }
    r = open_folder(c, dirfd, e->name, &is_new, &fd);
    if (r == 0)
        r = down_folder(d, from, fd, depth + 1);
    if (r == 0 && is_new && fchmod(fd, e->mode & 0777 & ~d->umask) < 0)
        r = session_set_sys(c->s, errno, "permissions");
    return r;
}

/* Ends the whole copy: there is no sense in trying the next file. */
static bool is_fatal(const struct session *s)
{
    const struct abx_error *e = &s->error;

    return e->code == ABX_CANCELED || e->code == ABX_UNAVAILABLE ||
           e->code == ABX_UNAUTHENTICATED || e->sys == ENOSPC || e->sys == EDQUOT ||
           e->sys == EMFILE || e->sys == EROFS;
}

static int down_folder(struct down *d, const char *from, int dirfd, size_t depth)
{
    struct copy *c = d->c;
    struct abx_files_opts opts = ABX_FILES_OPTS_INIT;
    _cleanup_(abx_call_freep) abx_call *call = NULL;
    const struct abx_entry *entries;
    size_t n;

    opts.user = c->user;
    call = abx_files_list(c->s->client, c->sb, from, 1, &opts);
    if (session_wait(c->s, call) < 0)
        return c->s->error.code;
    entries = abx_call_entries(call, &n);
    for (size_t i = 0; i < n; i++) {
        _cleanup_(freep) char *path = NULL;

        if (!name_is_safe(entries[i].name)) {
            copy_leave_out(c, from, "an entry with the impossible name '%s'", entries[i].name);
            continue;
        }
        path = copy_join(c, from, entries[i].name);
        if (!path)
            return c->s->error.code;
        if (down_entry(d, &entries[i], path, dirfd, depth) < 0) {
            if (is_fatal(c->s))
                return c->s->error.code;
            copy_leave_out(c, path, "%s", c->s->error.message);
        }
    }
    return 0;
}

/* ---- the target ---- */

/* Splits what the user named: its folder, opened (links in it are the user's own), and the last component. */
static int open_parent(struct copy *c, const char *to, int *ret_fd, char **ret_name)
{
    _cleanup_(freep) char *name = copy_base_name(c, to);
    _cleanup_(freep) char *dir = NULL;
    size_t n = strlen(to);

    if (!name)
        return c->s->error.code;
    while (n > 0 && to[n - 1] == '/')
        n--;
    n -= strlen(name);
    dir = n > 0 ? strndup(to, n) : strdup(".");
    if (!dir)
        return session_set(c->s, ABX_RESOURCE_EXHAUSTED, "out of memory");
    *ret_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*ret_fd < 0)
        return session_set_sys(c->s, errno, "folder '%s'", dir);
    *ret_name = TAKE_PTR(name);
    return 0;
}

/* Into something that is no file and stays what it is: a device, a pipe. */
static int down_in_place(struct copy *c, const char *from, const char *to)
{
    _cleanup_(closep) int fd = open(to, O_WRONLY | O_CLOEXEC); /* of a pipe: waits for its reader */

    if (fd < 0)
        return session_set_sys(c->s, errno, "open '%s'", to);
    copy_show(c, from, 0);
    return copy_fetch(c, from, fd);
}

static int down_source_file(struct down *d, const struct abx_entry *e, const char *from,
                            const char *to)
{
    struct copy *c = d->c;
    _cleanup_(closep) int dirfd = -EBADF;
    _cleanup_(freep) char *name = NULL, *real = NULL;
    struct stat st;
    int r;

    if (stat(to, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            return session_set(c->s, ABX_INVALID_ARGUMENT, "'%s' is a folder", to);
        if (!S_ISREG(st.st_mode))
            return down_in_place(c, from, to);
        real = realpath(to, NULL); /* a link that the user named is followed, and stays */
        to = real ? real : to;
    }
    r = open_parent(c, to, &dirfd, &name);
    if (r == 0 && !name_is_safe(name))
        r = session_set(c->s, ABX_INVALID_ARGUMENT, "'%s' is no name of a file", to);
    if (r == 0)
        r = down_file(d, from, (uint64_t)MAX(e->size, (int64_t)0), e->mode, dirfd, name);
    return r;
}

static int down_source_folder(struct down *d, uint32_t mode, const char *from, const char *to)
{
    struct copy *c = d->c;
    _cleanup_(closep) int fd = -EBADF;
    bool is_new = mkdir(to, 0700) == 0;
    int r;

    if (!is_new && errno != EEXIST)
        return session_set_sys(c->s, errno, "make folder '%s'", to);
    fd = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return session_set_sys(c->s, errno, "folder '%s'", to);
    r = down_folder(d, from, fd, 0);
    if (r == 0 && is_new && fchmod(fd, (mode & 0777 & ~d->umask) | 0700) < 0)
        r = session_set_sys(c->s, errno, "permissions of '%s'", to);
    return r;
}

/* Where a source of this name goes below `to`: "." and ".." have no name of their own. Owned. */
static char *target_of(struct copy *c, const char *from, const char *to, bool to_is_folder)
{
    _cleanup_(freep) char *base = copy_base_name(c, from);
    char *made;

    if (!base)
        return NULL;
    if (to_is_folder && name_is_safe(base) && strcmp(base, "~") != 0)
        return copy_join(c, to, base);
    made = strdup(to);
    if (!made)
        (void)session_set(c->s, ABX_RESOURCE_EXHAUSTED, "out of memory");
    return made;
}

int copy_down(struct copy *c, const char *from, const char *to, bool to_is_folder)
{
    struct abx_files_opts opts = ABX_FILES_OPTS_INIT;
    _cleanup_(abx_call_freep) abx_call *call = NULL;
    _cleanup_(freep) char *target = NULL, *root = NULL;
    struct down d = { .c = c, .umask = current_umask() };
    const struct abx_entry *e;
    size_t n;

    if (strcmp(to, "-") == 0) {
        copy_show(c, from, 0);
        c->files++;
        return copy_fetch(c, from, STDOUT_FILENO);
    }
    opts.user = c->user;
    call = abx_files_stat(c->s->client, c->sb, from, &opts);
    if (session_wait(c->s, call) < 0)
        return c->s->error.code;
    e = abx_call_entries(call, &n);
    target = target_of(c, from, to, to_is_folder);
    root = strdup(e->symlink_target ? e->symlink_target : e->path);
    if (!target || !root)
        return session_set(c->s, ABX_RESOURCE_EXHAUSTED, "out of memory");
    d.root = root;
    if (e->type == ABX_FILE_DIR)
        return down_source_folder(&d, e->mode, from, target);
    if (e->type == ABX_FILE_FILE || e->type == ABX_FILE_SYMLINK)
        return down_source_file(&d, e, from, target);
    return session_set(c->s, ABX_INVALID_ARGUMENT, "it is neither a file nor a folder");
}
