/* filesystem.c - filesystem.Filesystem: each RPC is one piece of work in the pool, done with the
 * rights of the request's user (e2b.md 4.2). */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "guest/daemon/entry.h"
#include "guest/daemon/paths.h"
#include "guest/daemon/removal.h"
#include "guest/daemon/work.h"
#include "guest/envd/call.h"
#include "guest/envd/watch.h"

struct job {
    struct work work;
    struct call *call;
    struct user_names names;
    uint32_t depth;
    Filesystem__EntryInfo *entry;
    Filesystem__ListDirResponse list;
    char path[PATH_MAX];
    char destination[PATH_MAX];
};

/* --- in the pool -------------------------------------------------------------------------------- */

static void stat_run(struct work *w)
{
    struct job *j = container_of(w, struct job, work);

    (void)entry_make(&j->names, j->path, &j->entry, &w->err);
}

static void list_run(struct work *w)
{
    struct job *j = container_of(w, struct job, work);

    (void)entry_list(&j->names, j->path, j->depth, &j->list, &w->err);
}

static void make_dir_run(struct work *w)
{
    struct job *j = container_of(w, struct job, work);
    struct stat st;

    if (stat(j->path, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            (void)err_set(&w->err, ABX_ALREADY_EXISTS, "directory already exists: %s", j->path);
        else
            (void)err_set(&w->err, ABX_INVALID_ARGUMENT,
                          "path already exists but it is not a directory: %s", j->path);
        return;
    }
    if (entry_make_dirs(j->path, &w->err) == 0)
        (void)entry_make(&j->names, j->path, &j->entry, &w->err);
}

/* Folder of a clean path, in place; false for the root. */
static bool parent_of(char *path)
{
    char *slash = strrchr(path, '/');

    if (!slash || slash[1] == '\0')
        return false;
    slash[slash == path] = '\0';
    return true;
}

static void move_run(struct work *w)
{
    struct job *j = container_of(w, struct job, work);
    char parent[PATH_MAX];
    struct stat st;

    if (lstat(j->path, &st) < 0) {
        if (errno == ENOENT || errno == ENOTDIR)
            (void)err_set(&w->err, ABX_NOT_FOUND, "source '%s' does not exist", j->path);
        else
            (void)err_sys(&w->err, errno, "look at '%s'", j->path);
        return;
    }
    memcpy(parent, j->destination, sizeof(parent));
    if (!parent_of(parent)) {
        (void)err_set(&w->err, ABX_INVALID_ARGUMENT, "destination '%s' is the root",
                      j->destination);
        return;
    }
    if (entry_make_dirs(parent, &w->err) < 0)
        return;
    if (rename(j->path, j->destination) < 0)
        (void)err_sys(&w->err, errno, "move '%s' to '%s'", j->path, j->destination);
    else
        (void)entry_make(&j->names, j->destination, &j->entry, &w->err);
}

static void remove_run(struct work *w)
{
    struct job *j = container_of(w, struct job, work);
    _cleanup_(closep) int dir = -EBADF;
    char parent[PATH_MAX];

    memcpy(parent, j->path, sizeof(parent));
    if (!parent_of(parent)) {
        (void)err_set(&w->err, ABX_INVALID_ARGUMENT, "the root cannot be removed");
        return;
    }
    dir = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 && (errno == ENOENT || errno == ENOTDIR))
        return; /* nothing is there: that is what was asked for */
    if (dir < 0)
        (void)err_sys(&w->err, errno, "open '%s'", parent);
    else
        (void)removal_run(dir, guest_path_name(j->path), &w->err);
}

/* --- on the loop -------------------------------------------------------------------------------- */

static void job_free(struct job *j)
{
    entry_free(j->entry);
    entry_list_done(&j->list);
    user_names_done(&j->names);
    free(j);
}
DEFINE_CLEANUP(struct job *, job_free)

static void job_done(struct work *w)
{
    struct job *j = container_of(w, struct job, work);
    /* Stat, MakeDir and Move answer with the same form: one entry. */
    Filesystem__StatResponse one = FILESYSTEM__STAT_RESPONSE__INIT;
    Filesystem__RemoveResponse none = FILESYSTEM__REMOVE_RESPONSE__INIT;

    one.entry = j->entry;
    if (w->err.code)
        call_fail(j->call, &w->err);
    else if (w->run == list_run)
        call_reply(j->call, &j->list.base);
    else if (w->run == remove_run)
        call_reply(j->call, &none.base);
    else
        call_reply(j->call, &one.base);
    job_free(j);
}

static int job_start(struct call *c, const char *path, const char *destination, uint32_t depth,
                     void (*run)(struct work *w), struct abx_err *err)
{
    _cleanup_(job_freep) struct job *j = calloc(1, sizeof(*j));
    const char *workdir = c->envd->id->default_workdir;
    int r;

    if (!j)
        return err_oom(err);
    filesystem__list_dir_response__init(&j->list);
    j->call = c;
    j->depth = depth;
    r = guest_path(&c->user, workdir, path, j->path, err);
    if (r == 0 && destination)
        r = guest_path(&c->user, workdir, destination, j->destination, err);
    if (r < 0)
        return r;
    user_names_init(&j->names);
    r = work_start(c->envd->loop, &j->work, &c->user, run, job_done);
    if (r < 0)
        return err_set(err, r, "start the work");
    TAKE_PTR(j);
    return 0;
}

static void job_begin(struct call *c, const char *path, const char *destination, uint32_t depth,
                      void (*run)(struct work *w))
{
    struct abx_err err = { 0 };

    if (job_start(c, path, destination, depth, run, &err) < 0)
        call_fail(c, &err);
}

static void handle_stat(struct call *c)
{
    job_begin(c, ((Filesystem__StatRequest *)c->request)->path, NULL, 0, stat_run);
}

static void handle_make_dir(struct call *c)
{
    job_begin(c, ((Filesystem__MakeDirRequest *)c->request)->path, NULL, 0, make_dir_run);
}

static void handle_move(struct call *c)
{
    const Filesystem__MoveRequest *req = (Filesystem__MoveRequest *)c->request;

    job_begin(c, req->source, req->destination, 0, move_run);
}

static void handle_list_dir(struct call *c)
{
    const Filesystem__ListDirRequest *req = (Filesystem__ListDirRequest *)c->request;

    job_begin(c, req->path, NULL, req->depth, list_run);
}

static void handle_remove(struct call *c)
{
    job_begin(c, ((Filesystem__RemoveRequest *)c->request)->path, NULL, 0, remove_run);
}

#define METHOD(name, type, kind, handle)                                                           \
    { "/filesystem.Filesystem/" name, &filesystem__##type##__descriptor, kind, handle, NULL }

const struct call_method filesystem_methods[] = {
    METHOD("Stat", stat_request, CALL_UNARY, handle_stat),
    METHOD("MakeDir", make_dir_request, CALL_UNARY, handle_make_dir),
    METHOD("Move", move_request, CALL_UNARY, handle_move),
    METHOD("ListDir", list_dir_request, CALL_UNARY, handle_list_dir),
    METHOD("Remove", remove_request, CALL_UNARY, handle_remove),
    METHOD("WatchDir", watch_dir_request, CALL_SERVER_STREAM, watch_dir_handle),
    METHOD("CreateWatcher", create_watcher_request, CALL_UNARY, watcher_create_handle),
    METHOD("GetWatcherEvents", get_watcher_events_request, CALL_UNARY, watcher_events_handle),
    METHOD("RemoveWatcher", remove_watcher_request, CALL_UNARY, watcher_remove_handle),
    { 0 },
};
