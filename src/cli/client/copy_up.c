/* copy_up.c - into a sandbox. See copy.h.
 *
 * The files API knows neither permission bits nor links, so that those are set by commands (chmod, ln) at the end; where
 * the sandbox lacks them, that is said.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "cli/client/copy.h"
#include "cli/client/output.h"

#define FILE_MODE 0644 /* what a written file and a made folder have */
#define FOLDER_MODE 0755
#define BATCH_BYTES 65536u
#define BATCH_WORDS 512u
#define CLEAN_TIMEOUT_MS 5000

/* One chmod or ln to come; both strings owned. */
struct change {
    mode_t mode;
    char *target; /* of a link, NULL = chmod */
    char *path;
};

struct up {
    struct copy *c;
    struct change *changes;
    size_t count, cap;
};

static int oom(struct copy *c)
{
    return session_set(c->s, ABX_RESOURCE_EXHAUSTED, "out of memory");
}

static int add_change(struct up *u, mode_t mode, const char *target, const char *path)
{
    struct change made = { .mode = mode };

    if (u->count == u->cap) {
        size_t cap = u->cap ? 2 * u->cap : 64;
        struct change *grown = reallocarray(u->changes, cap, sizeof *grown);

        if (!grown)
            return oom(u->c);
        u->changes = grown;
        u->cap = cap;
    }
    made.path = strdup(path);
    made.target = target ? strdup(target) : NULL;
    if (!made.path || (target && !made.target)) {
        free(made.path);
        free(made.target);
        return oom(u->c);
    }
    u->changes[u->count++] = made;
    return 0;
}

static void up_done(struct up *u)
{
    for (size_t i = 0; i < u->count; i++) {
        free(u->changes[i].path);
        free(u->changes[i].target);
    }
    free(u->changes);
}

/* ---- one file ---- */

static void remove_there(struct copy *c, const char *path)
{
    struct abx_files_opts opts = ABX_FILES_OPTS_INIT;
    abx_call *call;

    opts.user = c->user;
    opts.request_timeout_ms = CLEAN_TIMEOUT_MS;
    call = abx_files_remove(c->s->client, c->sb, path, &opts);
    while (call && !abx_call_is_done(call))
        (void)abx_call_wait(call, -1, NULL);
    abx_call_free(call);
}

/* Writes beside the target and renames. `*ret_path` (owned) is the absolute path. */
static int store_and_name(struct copy *c, int fd, int64_t size, const char *to, char **ret_path)
{
    struct abx_files_opts opts = ABX_FILES_OPTS_INIT;
    _cleanup_(abx_call_freep) abx_call *call = NULL;
    _cleanup_(freep) char *dir = NULL, *temp_path = NULL, *stored = NULL;
    const char *slash = strrchr(to, '/');
    char temp[COPY_TEMP_SIZE];
    size_t n;

    copy_temp_name(temp);
    dir = slash ? strndup(to, (size_t)(slash - to) + 1) : strdup("");
    if (!dir || asprintf(&temp_path, "%s%s", dir, temp) < 0)
        return oom(c);
    if (copy_store(c, fd, size, temp_path, &stored) < 0) {
        struct abx_error kept = c->s->error;

        remove_there(c, temp_path);
        c->s->error = kept;
        return kept.code;
    }
    opts.user = c->user;
    call = abx_files_rename(c->s->client, c->sb, temp_path, to, &opts);
    if (session_wait(c->s, call) < 0) {
        struct abx_error kept = c->s->error;

        remove_there(c, temp_path);
        c->s->error = kept;
        return kept.code;
    }
    *ret_path = strdup(abx_call_entries(call, &n)->path);
    return *ret_path ? 0 : oom(c);
}

/* What exists and is no plain file (a link, a device) is written to as it is. */
static int up_file(struct up *u, int fd, const struct stat *st, const char *to, bool in_place)
{
    struct copy *c = u->c;
    _cleanup_(freep) char *path = NULL;
    mode_t mode = st->st_mode & 0777;
    int64_t size = S_ISREG(st->st_mode) ? (int64_t)st->st_size : ABX_UNSET;
    int r = in_place ? copy_store(c, fd, size, to, &path) : store_and_name(c, fd, size, to, &path);

    if (r < 0)
        return r;
    c->files++;
    if (in_place || !S_ISREG(st->st_mode) || mode == FILE_MODE)
        return 0;
    return add_change(u, mode, NULL, path);
}

/* ---- trees ---- */

static int make_folder(struct copy *c, const char *path, bool *ret_is_new)
{
    struct abx_files_opts opts = ABX_FILES_OPTS_INIT;
    _cleanup_(abx_call_freep) abx_call *call = NULL;

    opts.user = c->user;
    call = abx_files_make_dir(c->s->client, c->sb, path, &opts);
    if (session_wait(c->s, call) == ABX_ALREADY_EXISTS) {
        *ret_is_new = false;
        return 0;
    }
    *ret_is_new = c->s->error.code == 0 && abx_call_bool(call);
    return c->s->error.code;
}

static int up_folder(struct up *u, int dirfd, const struct stat *st, const char *shown,
                     const char *to, size_t depth);

static int up_link(struct up *u, int dirfd, const char *name, const char *to)
{
    char text[PATH_MAX];
    ssize_t n = readlinkat(dirfd, name, text, sizeof text - 1);

    if (n < 0)
        return session_set_sys(u->c->s, errno, "read the link");
    text[n] = '\0';
    return add_change(u, 0, text, to);
}

static int up_entry(struct up *u, int dirfd, const char *name, const char *shown, const char *to,
                    size_t depth)
{
    struct copy *c = u->c;
    _cleanup_(closep) int fd = -EBADF;
    struct stat st;

    if (!utf8_is_valid(slice_str(name))) {
        copy_leave_out(c, shown, "its name is no UTF-8, the API takes nothing else");
        return 0;
    }
    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return session_set_sys(c->s, errno, "stat");
    if (S_ISLNK(st.st_mode))
        return up_link(u, dirfd, name, to);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
        copy_leave_out(c, shown, "neither a file, a folder nor a link");
        return 0;
    }
    fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return session_set_sys(c->s, errno, "open");
    if (S_ISDIR(st.st_mode) && depth < COPY_DEPTH_MAX)
        return up_folder(u, fd, &st, shown, to, depth + 1);
    if (S_ISDIR(st.st_mode)) {
        copy_leave_out(c, shown, "more than %u folders deep", COPY_DEPTH_MAX);
        return 0;
    }
    copy_show(c, shown, (uint64_t)st.st_size);
    return up_file(u, fd, &st, to, false);
}

static bool is_fatal(const struct session *s)
{
    const struct abx_error *e = &s->error;

    return e->code == ABX_CANCELED || e->code == ABX_UNAVAILABLE ||
           e->code == ABX_UNAUTHENTICATED || e->reason == ABX_REASON_DISK_FULL || e->sys == EMFILE;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorted names of a folder; owned with each of them. */
static int read_names(struct copy *c, int dirfd, char ***ret, size_t *ret_count)
{
    int fd = dup(dirfd);
    _cleanup_(closedirp) DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    char **names = NULL;
    size_t n = 0, cap = 0;
    const struct dirent *e;

    if (!dir) {
        int error = errno;

        fd_close(fd);
        return session_set_sys(c->s, error, "read the folder");
    }
    while ((errno = 0, e = readdir(dir)) != NULL) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (n == cap) {
            char **grown = reallocarray(names, cap = cap ? 2 * cap : 64, sizeof *grown);

            if (!grown)
                break;
            names = grown;
        }
        names[n] = strdup(e->d_name);
        if (!names[n])
            break;
        n++;
    }
    if (e || errno) {
        int error = e ? ENOMEM : errno;

        while (n > 0)
            free(names[--n]);
        free(names);
        return session_set_sys(c->s, error, "read the folder");
    }
    if (n > 1)
        qsort(names, n, sizeof *names, compare_names);
    *ret = names;
    *ret_count = n;
    return 0;
}

static int up_names(struct up *u, int dirfd, char *const *names, size_t n, const char *shown,
                    const char *to, size_t depth)
{
    struct copy *c = u->c;

    for (size_t i = 0; i < n; i++) {
        _cleanup_(freep) char *here = copy_join(c, shown, names[i]);
        _cleanup_(freep) char *there = here ? copy_join(c, to, names[i]) : NULL;

        if (!there)
            return c->s->error.code;
        if (up_entry(u, dirfd, names[i], here, there, depth) < 0) {
            if (is_fatal(c->s))
                return c->s->error.code;
            copy_leave_out(c, here, "%s", c->s->error.message);
        }
    }
    return 0;
}

static int up_folder(struct up *u, int dirfd, const struct stat *st, const char *shown,
                     const char *to, size_t depth)
{
    char **names = NULL;
    size_t n = 0;
    bool is_new;
    int r = make_folder(u->c, to, &is_new);

    if (r == 0)
        r = read_names(u->c, dirfd, &names, &n);
    if (r == 0)
        r = up_names(u, dirfd, names, n, shown, to, depth);
    /* After what is in it: a folder may be without the right to write. */
    if (r == 0 && is_new && (st->st_mode & 0777) != FOLDER_MODE)
        r = add_change(u, st->st_mode & 0777, NULL, to);
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
    return r;
}

/* ---- permissions and links ---- */

static int run_there(struct copy *c, const char *const *argv, size_t argc)
{
    struct abx_command_opts opts = ABX_COMMAND_OPTS_INIT;
    _cleanup_(abx_call_freep) abx_call *call = NULL;
    struct abx_command_result result;

    opts.argv = argv;
    opts.argc = argc;
    opts.user = c->user;
    call = abx_command_run(c->s->client, c->sb, NULL, &opts);
    if (session_wait(c->s, call) < 0)
        return c->s->error.code;
    abx_call_command(call, &result);
    if (result.exit_code != 0)
        return session_set(c->s, ABX_UNKNOWN, "%s in the sandbox: %.*s", argv[0],
                           (int)MIN(result.err_size, (size_t)200), (const char *)result.err);
    return 0;
}

/* As many changes of the same kind as fit into one command; returns how many. */
static size_t batch(const struct up *u, size_t from, const char **argv, size_t *argc)
{
    const struct change *first = &u->changes[from];
    size_t bytes = 0, i = from;

    for (; i < u->count && *argc + 2 < BATCH_WORDS && bytes < BATCH_BYTES; i++) {
        const struct change *one = &u->changes[i];

        if (!one->target != !first->target || one->mode != first->mode)
            break;
        if (one->target) {
            argv[(*argc)++] = one->target;
            bytes += strlen(one->target);
        }
        argv[(*argc)++] = one->path;
        bytes += strlen(one->path);
    }
    return i - from;
}

static const char ln_all[] =
    "while [ $# -gt 1 ]; do ln -sfn -- \"$1\" \"$2\" || exit 1; shift 2; done";

static int apply_changes(struct up *u)
{
    for (size_t i = 0, n; i < u->count; i += n) {
        const char *argv[BATCH_WORDS];
        char mode[8];
        size_t argc = 0;

        if (u->changes[i].target) {
            argv[argc++] = "/bin/sh";
            argv[argc++] = "-c";
            argv[argc++] = ln_all;
            argv[argc++] = "sh";
        } else {
            (void)snprintf(mode, sizeof mode, "%04o", (unsigned)u->changes[i].mode);
            argv[argc++] = "chmod";
            argv[argc++] = mode;
            argv[argc++] = "--";
        }
        n = batch(u, i, argv, &argc);
        if (run_there(u->c, argv, argc) < 0) {
            if (is_fatal(u->c->s))
                return u->c->s->error.code;
            copy_leave_out(u->c, u->changes[i].path, "%s of it and %zu more: %s",
                           u->changes[i].target ? "the link" : "the permission bits", n - 1,
                           u->c->s->error.message);
        }
        u->c->files += u->changes[i].target ? n : 0;
    }
    return 0;
}

/* ---- the target ---- */

/* An absolute path for `path`, so that commands find it too. Owned. */
static char *absolute_there(struct copy *c, const char *path)
{
    struct abx_files_opts opts = ABX_FILES_OPTS_INIT;
    _cleanup_(abx_call_freep) abx_call *call = NULL;
    char *made;
    size_t n;

    opts.user = c->user;
    call = abx_files_stat(c->s->client, c->sb, path, &opts);
    if (session_wait(c->s, call) < 0)
        return NULL;
    made = strdup(abx_call_entries(call, &n)->path);
    if (!made)
        (void)oom(c);
    return made;
}

static int up_tree(struct up *u, int fd, const struct stat *st, const char *from, const char *to)
{
    struct copy *c = u->c;
    _cleanup_(freep) char *root = NULL;
    bool is_new;
    int r = make_folder(c, to, &is_new);

    if (r < 0)
        return r;
    root = absolute_there(c, to);
    if (!root)
        return c->s->error.code;
    r = up_folder(u, fd, st, from, root, 0);
    if (r == 0 && is_new && (st->st_mode & 0777) != FOLDER_MODE)
        r = add_change(u, st->st_mode & 0777, NULL, root);
    return r;
}

/* Where it goes: below `to` when that is a folder. `*ret_in_place`: write to what is there. */
static int target_of(struct copy *c, const char *from, const char *to, bool must_be_folder,
                     bool is_folder, char **ret, bool *ret_in_place)
{
    _cleanup_(freep) char *base = copy_base_name(c, from);
    enum abx_file_type type = ABX_FILE_UNKNOWN;
    size_t n = strlen(to); /* never empty: "" is "~" */
    bool is_link = false, is_one_of_several = must_be_folder;
    int r;

    if (!base)
        return c->s->error.code;
    r = copy_stat(c, to, &type, &is_link);
    if (r < 0)
        return r;
    if (r == 0 && must_be_folder && to[n - 1] != '/')
        return session_set(c->s, ABX_NOT_FOUND,
                           "'%s' does not exist, and there are several sources; end it with / to "
                           "make a folder",
                           to);
    must_be_folder = must_be_folder || to[n - 1] == '/';
    if (r == 1 && type != ABX_FILE_DIR && must_be_folder)
        return session_set(c->s, ABX_INVALID_ARGUMENT, "'%s' is no folder", to);
    *ret_in_place = false;
    if ((r == 1 && type == ABX_FILE_DIR) || (must_be_folder && (!is_folder || is_one_of_several))) {
        bool has_name = *base && strcmp(base, ".") != 0 && strcmp(base, "..") != 0;

        if (strcmp(from, "-") == 0)
            return session_set(c->s, ABX_INVALID_ARGUMENT,
                               "'%s' is a folder: standard input needs a name there", to);
        *ret = has_name ? copy_join(c, to, base) : strdup(to);
        return *ret ? 0 : oom(c);
    }
    if (r == 1 && is_folder)
        return session_set(c->s, ABX_INVALID_ARGUMENT, "'%s' is no folder", to);
    *ret_in_place = r == 1 && (is_link || type != ABX_FILE_FILE);
    *ret = strdup(to);
    return *ret ? 0 : oom(c);
}

int copy_up(struct copy *c, const char *from, const char *to, bool to_is_folder)
{
    bool is_stdin = strcmp(from, "-") == 0;
    _cleanup_(closep) int fd = is_stdin ? dup(STDIN_FILENO) : open(from, O_RDONLY | O_CLOEXEC);
    _cleanup_(freep) char *target = NULL;
    struct up u = { .c = c };
    struct stat st;
    bool in_place = false;
    int r;

    if (fd < 0 || fstat(fd, &st) < 0)
        return session_set_sys(c->s, errno, "open '%s'", from);
    if (is_stdin && S_ISREG(st.st_mode)) /* may not be at its beginning */
        st.st_mode = S_IFIFO;
    r = target_of(c, from, to, to_is_folder, S_ISDIR(st.st_mode), &target, &in_place);
    copy_show(c, from, S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0);
    if (r == 0)
        r = S_ISDIR(st.st_mode) ? up_tree(&u, fd, &st, from, target)
                                : up_file(&u, fd, &st, target, in_place);
    if (r == 0)
        r = apply_changes(&u);
    up_done(&u);
    return r;
}
