/* watcher.c - see watcher.h, inotify(7). */
#include "guest/daemon/watcher.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "guest/daemon/target.h"
#include "guest/daemon/watch_scan.h"
#include "guest/daemon/watch_seen.h"

#define READ_MAX (64u << 10)

void watcher_init(struct watcher *w, const char *path, struct watch_budget *budget)
{
    memset(w, 0, sizeof(*w));
    w->path = path;
    w->budget = budget;
    w->fd = -EBADF;
    watch_tree_init(&w->tree);
    watch_queue_init(&w->queue, budget);
    buf_init(&w->input, READ_MAX);
}

static void on_drop_quietly(void *user, struct watch_node *node)
{
    struct watcher *w = user;

    watch_seen_free(node->seen);
    watch_budget_give(&w->budget->dirs, 1);
}

void watcher_shut(struct watcher *w)
{
    fd_close(TAKE_FD(w->fd));
}

void watcher_close(struct watcher *w)
{
    if (w->tree.root)
        watch_tree_drop(&w->tree, w->tree.root, on_drop_quietly, w);
    watch_scan_clear(w);
    watch_queue_done(&w->queue);
    buf_done(&w->input);
    watcher_shut(w);
}

/* --- telling ------------------------------------------------------------------------------------ */

/* Ends the watcher: in good order, or with what is in w->err. */
static void watcher_end(struct watcher *w)
{
    w->is_over = true;
    w->n_seen = 0;
    if (w->tree.root)
        watch_tree_drop(&w->tree, w->tree.root, on_drop_quietly, w);
    watch_scan_clear(w);
    buf_done(&w->input);
}

void watcher_tell(struct watcher *w, const struct watch_node *node, const char *name,
                  enum watch_op op)
{
    char path[PATH_MAX];
    size_t n = watch_tree_path(node, name, path, sizeof(path));
    enum buf_status bad;

    if (w->err.code)
        return;
    if (n == 0) {
        (void)err_set(&w->err, ABX_RESOURCE_EXHAUSTED, "a path below '%s' is longer than %d bytes",
                      w->path, PATH_MAX - 1);
        return;
    }
    bad = watch_queue_push(&w->queue, op, path, n);
    if (bad == BUF_OOM)
        (void)err_oom(&w->err);
    else if (bad)
        (void)err_set(&w->err, ABX_RESOURCE_EXHAUSTED,
                      "changes of '%s' are not read fast enough: %zu are waiting (at most %d, and "
                      "%u MiB in all watchers)",
                      w->path, w->queue.n, WATCH_QUEUE_EVENTS_MAX, WATCH_BUDGET_BYTES >> 20);
}

/* One event may say several things: each is told, in this order. */
static void tell_mask(struct watcher *w, const struct watch_node *node, const char *name,
                      uint32_t mask)
{
    static const struct {
        uint32_t mask;
        enum watch_op op;
    } ops[] = {
        { IN_CREATE | IN_MOVED_TO, WATCH_CREATE },
        { IN_MOVED_FROM | IN_MOVE_SELF, WATCH_RENAME },
        { IN_ATTRIB, WATCH_CHMOD },
        { IN_MODIFY, WATCH_WRITE },
        { IN_DELETE | IN_DELETE_SELF | IN_UNMOUNT, WATCH_REMOVE },
    };

    for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
        if (mask & ops[i].mask)
            watcher_tell(w, node, name, ops[i].op);
    }
}

/* --- folders that come, move and go ------------------------------------------------------------- */

static void on_drop(void *user, struct watch_node *node)
{
    struct watcher *w = user;

    w->n_seen -= node->seen != NULL;
    watch_scan_forget(w, node);
    (void)inotify_rm_watch(w->fd, node->wd); /* gone already, when the kernel said so */
    on_drop_quietly(w, node);
}

static void rename_remember(struct watcher *w, uint32_t cookie, int wd, bool is_new)
{
    w->renames[w->rename_at++ % WATCH_RENAMES] = (struct watch_rename){ cookie, wd, is_new };
}

static struct watch_rename *rename_find(struct watcher *w, uint32_t cookie)
{
    for (size_t i = 0; cookie != 0 && i < WATCH_RENAMES; i++) {
        if (w->renames[i].cookie == cookie)
            return &w->renames[i];
    }
    return NULL;
}

/* The other half of a rename of a folder of ours; false when it was not ours. */
static bool folder_moved(struct watcher *w, struct watch_node *to, const char *name,
                         uint32_t cookie)
{
    struct watch_rename *r = rename_find(w, cookie);
    struct watch_node *node = r && r->wd >= 0 ? watch_tree_find(&w->tree, r->wd) : NULL;
    enum buf_status bad;

    if (!node || node->cookie != cookie)
        return false;
    r->cookie = 0;
    bad = watch_tree_move(&w->tree, node, to, name);
    if (bad == BUF_OOM)
        (void)err_oom(&w->err);
    if (bad)
        return false;
    node->cookie = 0;
    watch_scan_unpark(w);
    return true;
}

static void folder_event(struct watcher *w, struct watch_node *node, const char *name,
                         const struct inotify_event *ev)
{
    struct watch_node *child;

    if (ev->mask & (IN_DELETE | IN_MOVED_FROM)) {
        child = watch_tree_child(&w->tree, node, name);
        if (child && (ev->mask & IN_DELETE)) {
            watch_tree_drop(&w->tree, child, on_drop, w);
        } else if (child) {
            child->cookie = ev->cookie;
            rename_remember(w, ev->cookie, child->wd, false);
        }
    }
    if ((ev->mask & IN_MOVED_TO) && !folder_moved(w, node, name, ev->cookie))
        watch_scan_push(w, node, name, WATCH_SCAN_MOVED);
    if (ev->mask & IN_CREATE)
        watch_scan_push(w, node, name, WATCH_SCAN_NEW);
}

/* About a watched folder itself. Of those below, the parent's watch tells. */
static void self_event(struct watcher *w, struct watch_node *node, uint32_t mask)
{
    bool is_root = !node->parent;

    if (is_root)
        tell_mask(w, node, NULL, mask);
    if (is_root && (mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED)))
        watcher_end(w);
    else if (!is_root && ((mask & (IN_UNMOUNT | IN_IGNORED)) ||
                          ((mask & IN_MOVE_SELF) && node->cookie != 0))) /* out of the tree */
        watch_tree_drop(&w->tree, node, on_drop, w);
}

/* --- events ------------------------------------------------------------------------------------- */

/* The part of `mask` that a scan has not told already. */
static uint32_t unseen(struct watcher *w, struct watch_node *node, const char *name, uint32_t mask)
{
    struct watch_seen *s = node->seen;

    if (!s)
        return mask;
    if (watch_seen_is_over(s, w->handled)) {
        watch_seen_free(s);
        node->seen = NULL;
        w->n_seen--;
        return mask;
    }
    if ((mask & (IN_CREATE | IN_MOVED_TO)) && watch_seen_take(s, name, WATCH_SEEN_CREATE))
        mask &= ~(uint32_t)(IN_CREATE | IN_MOVED_TO);
    if ((mask & IN_MODIFY) && watch_seen_take(s, name, WATCH_SEEN_WRITE))
        mask &= ~(uint32_t)IN_MODIFY;
    if (mask & (IN_DELETE | IN_MOVED_FROM))
        (void)watch_seen_take(s, name, WATCH_SEEN_GONE);
    return mask;
}

static void name_event(struct watcher *w, struct watch_node *node, const char *name,
                       const struct inotify_event *ev)
{
    struct watch_rename *upload = ev->mask & IN_MOVED_TO ? rename_find(w, ev->cookie) : NULL;
    bool is_folder = ev->mask & IN_ISDIR;
    uint32_t mask = ev->mask;

    if (!is_folder && target_is_temp(name)) {
        if (mask & IN_MOVED_FROM)
            rename_remember(w, ev->cookie, -1, target_is_new_temp(name));
        return;
    }
    mask = unseen(w, node, name, mask);
    if (upload && upload->wd < 0 && !is_folder) {
        upload->cookie = 0;
        if (mask & IN_MOVED_TO)
            mask |= IN_ATTRIB | IN_MODIFY;
        if (!upload->is_new)
            mask &= ~(uint32_t)IN_MOVED_TO;
    }
    tell_mask(w, node, name, mask);
    /* What a scan has seen it has pushed as well, so only the rest. */
    if (is_folder && w->is_recursive && !w->err.code) {
        if (mask & (IN_CREATE | IN_MOVED_TO) || !(ev->mask & (IN_CREATE | IN_MOVED_TO)))
            folder_event(w, node, name, ev);
    }
}

/* Takes one event out of `input`: the kernel gives whole ones only. */
static void event_next(struct watcher *w)
{
    struct slice in = buf_slice(&w->input);
    struct inotify_event ev;
    char name[NAME_MAX + 1];
    struct watch_node *node;
    size_t n;

    if (!in.p)
        return;
    memcpy(&ev, in.p, sizeof(ev));
    n = strnlen((const char *)in.p + sizeof(ev), MIN((size_t)ev.len, sizeof(name) - 1));
    memcpy(name, in.p + sizeof(ev), n);
    name[n] = '\0';
    buf_consume(&w->input, sizeof(ev) + ev.len);
    if (ev.mask & IN_Q_OVERFLOW) {
        (void)err_set(&w->err, ABX_RESOURCE_EXHAUSTED,
                      "changes of '%s' were lost: more than fs.inotify.max_queued_events at once",
                      w->path);
        return;
    }
    node = watch_tree_find(&w->tree, ev.wd);
    if (node && n > 0)
        name_event(w, node, name, &ev);
    else if (node)
        self_event(w, node, ev.mask);
    w->handled += sizeof(ev) + ev.len;
}

/* False when there is nothing to read. */
static bool read_more(struct watcher *w)
{
    uint8_t *to = buf_reserve(&w->input, READ_MAX, NULL);
    ssize_t n;

    if (!to) {
        (void)err_oom(&w->err);
        return true;
    }
    do
        n = read(w->fd, to, READ_MAX);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        buf_commit(&w->input, (size_t)n);
        w->is_last_try = false;
        return true;
    }
    buf_done(&w->input);
    if (n < 0 && errno != EAGAIN)
        (void)err_sys(&w->err, errno, "read the changes of '%s'", w->path);
    return w->err.code != 0;
}

/* Everything queued at the end of any scan has been looked at. */
static void windows_close(struct watcher *w)
{
    struct watch_node *root = w->tree.root;

    for (struct watch_node *at = root; at && w->n_seen > 0; at = watch_tree_next(root, at)) {
        w->n_seen -= at->seen != NULL;
        watch_seen_free(at->seen);
        at->seen = NULL;
    }
}

bool watcher_run(struct watcher *w, int64_t budget_ns)
{
    int64_t end = time_mono_ns() + budget_ns;

    while (!w->is_over) {
        if (w->scans) {
            watch_scan_next(w);
        } else if (!w->is_ready) {
            w->is_ready = true;
        } else if (w->input.len > 0) {
            event_next(w);
        } else if (!read_more(w)) {
            windows_close(w);
            if (!w->parked || w->is_last_try)
                return false;
            w->is_last_try = true; /* once, before the next event: the tree is up to date now */
            watch_scan_unpark(w);
        }
        if (w->err.code)
            watcher_end(w);
        else if (time_mono_ns() >= end)
            return !w->is_over;
    }
    return false;
}

uint64_t watcher_queued(const struct watcher *w)
{
    int queued = 0;

    if (w->fd < 0 || ioctl(w->fd, FIONREAD, &queued) < 0)
        queued = 0;
    return w->handled + w->input.len + (uint64_t)queued;
}

bool watcher_has_done(const struct watcher *w, uint64_t position)
{
    return w->is_over || (w->handled >= position && !w->scans);
}

/* --- beginning ---------------------------------------------------------------------------------- */

bool watch_is_network(long type)
{
    switch ((uint32_t)type) {
    case NFS_SUPER_MAGIC:
    case SMB_SUPER_MAGIC:
    case CIFS_SUPER_MAGIC:
    case SMB2_SUPER_MAGIC:
    case CODA_SUPER_MAGIC:
    case AFS_SUPER_MAGIC:
    case AFS_FS_MAGIC:
    case CEPH_SUPER_MAGIC:
    case V9FS_MAGIC:
    case FUSE_SUPER_MAGIC:
        return true;
    default:
        return false;
    }
}

int watcher_open(struct watcher *w, struct abx_err *err)
{
    struct statfs fs;
    struct stat st;

    if (stat(w->path, &st) == 0 && !S_ISDIR(st.st_mode))
        return err_set(err, ABX_INVALID_ARGUMENT, "path is not a directory: %s", w->path);
    if (statfs(w->path, &fs) < 0 && (errno == ENOENT || errno == ENOTDIR))
        return err_set(err, ABX_NOT_FOUND, "path '%s' does not exist", w->path);
    if (statfs(w->path, &fs) < 0)
        return err_sys(err, errno, "look at '%s'", w->path);
    if (!w->allow_network && watch_is_network(fs.f_type))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "path '%s' is on a network file system, whose changes may go unseen: set "
                       "allow_network_mounts to watch it all the same",
                       w->path);
    w->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (w->fd < 0 && errno == EMFILE)
        return err_set(err, ABX_RESOURCE_EXHAUSTED,
                       "no more watchers: fs.inotify.max_user_instances or the limit of open files "
                       "is reached");
    if (w->fd < 0)
        return err_sys(err, errno, "begin to watch '%s'", w->path);
    watch_scan_push(w, NULL, "", WATCH_SCAN_FIRST);
    if (w->scans)
        watch_scan_next(w);
    if (!w->err.code && !w->tree.root)
        (void)err_set(&w->err, ABX_NOT_FOUND, "path '%s' does not exist", w->path);
    if (w->err.code) {
        *err = w->err;
        return err->code;
    }
    return 0;
}
