/* watch_scan.c - see watch_scan.h.
 *
 * A folder is reached from the watched one by the path that the tree has for it, and the kernel is
 * asked whether its parent there is the one meant: adding a watch that exists gives its descriptor. If
 * not, the file system is ahead of the events read so far; the parent is marked and looked at again
 * when its rename has been read.
 */
#include "guest/daemon/watch_scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "guest/daemon/target.h"
#include "guest/daemon/watch_seen.h"

/* With IN_MASK_ADD, because without it the kernel sets the mask of a watch that exists to 0 for a moment
 * and an event of that moment is lost. */
#define MASK                                                                                       \
    (IN_CREATE | IN_MODIFY | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_MOVE_SELF |  \
     IN_DELETE_SELF | IN_EXCL_UNLINK | IN_MASK_ADD)

struct watch_scan {
    struct watch_scan *next;
    struct watch_node *parent;
    enum watch_scan_kind kind;
    char name[];
};

void watch_scan_push(struct watcher *w, struct watch_node *parent, const char *name,
                     enum watch_scan_kind kind)
{
    struct watch_scan *s;

    /* Also bounds the list: each of its folders will be one in the tree. */
    if (!watch_budget_take(&w->budget->dirs, 1)) {
        (void)err_set(&w->err, ABX_RESOURCE_EXHAUSTED,
                      "'%s' has too many folders: all watchers together watch at most %d", w->path,
                      WATCH_BUDGET_DIRS);
        return;
    }
    s = calloc(1, sizeof(*s) + strlen(name) + 1);
    if (!s) {
        watch_budget_give(&w->budget->dirs, 1);
        (void)err_oom(&w->err);
        return;
    }
    s->parent = parent;
    s->kind = kind;
    memcpy(s->name, name, strlen(name) + 1);
    s->next = w->scans;
    w->scans = s;
}

static void scan_free(struct watcher *w, struct watch_scan *s)
{
    watch_budget_give(&w->budget->dirs, 1);
    free(s);
}

void watch_scan_unpark(struct watcher *w)
{
    struct watch_scan *s;

    while ((s = w->parked)) {
        w->parked = s->next;
        s->next = w->scans;
        w->scans = s;
    }
}

void watch_scan_clear(struct watcher *w)
{
    struct watch_scan *s;

    watch_scan_unpark(w);
    while ((s = w->scans)) {
        w->scans = s->next;
        scan_free(w, s);
    }
}

void watch_scan_forget(struct watcher *w, const struct watch_node *node)
{
    struct watch_scan **at = &w->parked, *s;

    while ((s = *at)) {
        if (s->parent == node) {
            *at = s->next;
            scan_free(w, s);
        } else {
            at = &s->next;
        }
    }
}

/* Descriptor of the watch on `fd`'s folder, -1 with errno. */
static int watch_add(struct watcher *w, int fd)
{
    char link[40];

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    return inotify_add_watch(w->fd, link, MASK);
}

/* What it means for a folder to be gone, hidden or out of reach by now: it is not watched. */
static bool is_harmless(int sys)
{
    return sys == ENOENT || sys == ENOTDIR || sys == ELOOP || sys == EACCES || sys == EPERM ||
           sys == ESTALE || sys == ENXIO;
}

static void scan_fail(struct watcher *w, int sys, const char *what)
{
    if (sys == ENOSPC)
        (void)err_set(&w->err, ABX_RESOURCE_EXHAUSTED,
                      "'%s' has too many folders: fs.inotify.max_user_watches is reached", w->path);
    else if (sys == ENAMETOOLONG)
        (void)err_set(&w->err, ABX_RESOURCE_EXHAUSTED, "a path below '%s' is longer than %d bytes",
                      w->path, PATH_MAX - 1);
    else
        (void)err_sys(&w->err, sys, "%s '%s'", what, w->path);
}

/* The folder of `node`, -1 with errno; ESTALE when another one is at its place. */
static int open_node(struct watcher *w, const struct watch_node *node)
{
    _cleanup_(closep) int fd = -EBADF;
    char below[PATH_MAX], path[PATH_MAX];
    int wd;

    if (watch_tree_path(node, NULL, below, sizeof(below)) == 0 ||
        !path_join(path, sizeof(path), w->path, below)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -1;
    wd = watch_add(w, fd);
    if (wd < 0)
        return -1;
    if (wd != node->wd) {
        if (!watch_tree_find(&w->tree, wd))
            (void)inotify_rm_watch(w->fd, wd);
        errno = ESTALE;
        return -1;
    }
    return TAKE_FD(fd);
}

/* The parent is not where the tree has it: events that put that right are queued or on their way, and
 * then it is tried again. With none queued the watched folder itself may have gone elsewhere, with one
 * above it. */
static void scan_park(struct watcher *w, struct watch_scan *s)
{
    _cleanup_(closep) int root = -EBADF;

    s->next = w->parked;
    w->parked = s;
    if (!w->is_last_try || watcher_queued(w) > w->handled)
        return;
    root = open_node(w, w->tree.root);
    if (root < 0 && is_harmless(errno))
        (void)err_set(&w->err, ABX_ABORTED,
                      "'%s' is no longer at its place: a folder above it moved", w->path);
}

/* One entry of a folder that is being read. */
static void found(struct watcher *w, struct watch_node *node, int dir, const struct dirent *e,
                  enum watch_scan_kind kind, struct watch_seen *seen)
{
    bool is_dir = e->d_type == DT_DIR, is_written = false, is_told = kind != WATCH_SCAN_FIRST;
    struct stat st;

    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
        (!is_dir && target_is_temp(e->d_name)))
        return;
    if (e->d_type == DT_UNKNOWN || (kind == WATCH_SCAN_NEW && e->d_type == DT_REG)) {
        if (fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return; /* gone already */
        is_dir = S_ISDIR(st.st_mode);
        is_written = kind == WATCH_SCAN_NEW && S_ISREG(st.st_mode) && st.st_size > 0;
    }
    if (is_told) {
        watcher_tell(w, node, e->d_name, WATCH_CREATE);
        if (is_written)
            watcher_tell(w, node, e->d_name, WATCH_WRITE);
        if (!watch_seen_add(seen, e->d_name, is_written))
            (void)err_oom(&w->err);
    }
    if (is_dir && w->is_recursive && !w->err.code)
        watch_scan_push(w, node, e->d_name, kind);
}

/* Keeps the names told as long as inotify may tell them too. */
static void seen_keep(struct watcher *w, struct watch_node *node, struct watch_seen *seen)
{
    uint64_t until = watcher_queued(w);

    if (until == w->handled || node->seen) {
        watch_seen_free(seen);
        return;
    }
    if (!watch_seen_close(seen, until)) {
        watch_seen_free(seen);
        (void)err_oom(&w->err);
        return;
    }
    node->seen = seen;
    w->n_seen++;
}

/* Takes `fd`. */
static void read_folder(struct watcher *w, struct watch_node *node, int fd,
                        enum watch_scan_kind kind)
{
    struct watch_seen *seen = kind == WATCH_SCAN_FIRST ? NULL : watch_seen_new();
    _cleanup_(closedirp) DIR *dir = fdopendir(fd);
    struct dirent *e;

    if (!dir || (kind != WATCH_SCAN_FIRST && !seen)) {
        if (!dir)
            fd_close(fd);
        watch_seen_free(seen);
        (void)err_oom(&w->err);
        return;
    }
    while (!w->err.code && (e = readdir(dir)))
        found(w, node, dirfd(dir), e, kind, seen);
    if (seen)
        seen_keep(w, node, seen);
}

/* Watches the folder behind `fd`: its node when it is a new one, which then has to be read. */
static struct watch_node *folder_add(struct watcher *w, const struct watch_scan *s, int fd)
{
    int wd = watch_add(w, fd);
    struct watch_node *node = wd >= 0 ? watch_tree_find(&w->tree, wd) : NULL;

    if (wd < 0) {
        if (!s->parent || !is_harmless(errno))
            scan_fail(w, errno, "watch");
        return NULL;
    }
    if (node) {
        /* Known: here already, or renamed and the event of that is still to come. */
        if (node->parent && (node->parent != s->parent || strcmp(node->name, s->name) != 0) &&
            watch_tree_move(&w->tree, node, s->parent, s->name) == BUF_OK)
            node->cookie = 0;
        return NULL;
    }
    if (!watch_budget_take(&w->budget->dirs, 1)) {
        (void)inotify_rm_watch(w->fd, wd);
        (void)err_set(&w->err, ABX_RESOURCE_EXHAUSTED,
                      "'%s' has too many folders: all watchers together watch at most %d", w->path,
                      WATCH_BUDGET_DIRS);
        return NULL;
    }
    node = watch_tree_add(&w->tree, wd, s->parent, s->name);
    if (!node) {
        watch_budget_give(&w->budget->dirs, 1);
        (void)err_oom(&w->err);
    }
    return node;
}

void watch_scan_next(struct watcher *w)
{
    _cleanup_(closep) int parent = -EBADF;
    _cleanup_(closep) int fd = -EBADF;
    struct watch_scan *s = w->scans;
    struct watch_node *node;
    struct statfs fs;

    w->scans = s->next;
    if (s->parent) {
        parent = open_node(w, s->parent);
        if (parent < 0 && is_harmless(errno) && errno != EACCES) {
            scan_park(w, s);
            return;
        }
        fd = parent < 0 ? -1
                        : openat(parent, s->name,
                                 O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    } else {
        fd = open(w->path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    }
    if (fd < 0) {
        if (!s->parent || !is_harmless(errno))
            scan_fail(w, errno, s->parent ? "open a folder of" : "open");
    } else if (!s->parent || w->allow_network || fstatfs(fd, &fs) < 0 ||
               !watch_is_network(fs.f_type)) {
        node = folder_add(w, s, fd);
        if (node && w->is_recursive)
            read_folder(w, node, TAKE_FD(fd), s->kind);
    }
    scan_free(w, s);
}
