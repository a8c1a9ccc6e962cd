/* entry.c - see entry.h. */
#include "guest/daemon/entry.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/str.h"
#include "guest/daemon/paths.h"

#define XATTR_NAMES_MAX 65536 /* the kernel's own limits */
#define XATTR_VALUE_MAX 65536

void entry_free(Filesystem__EntryInfo *e)
{
    if (e)
        protobuf_c_message_free_unpacked(&e->base, NULL);
}
DEFINE_CLEANUP(Filesystem__EntryInfo *, entry_free)

char *entry_text(const char *s)
{
    static const char replacement[] = "\xef\xbf\xbd";
    size_t n = strlen(s), at = 0, used;
    char *text;

    if (utf8_is_valid(slice_of(s, n)))
        return strdup(s);
    text = calloc(n + 1, 3);
    for (size_t i = 0; text && i < n; i += used) {
        /* The shortest valid piece from here is one character. */
        for (used = 1; used <= MIN((size_t)4, n - i); used++) {
            if (utf8_is_valid(slice_of(s + i, used)))
                break;
        }
        if (used <= MIN((size_t)4, n - i)) {
            memcpy(text + at, s + i, used);
            at += used;
        } else {
            memcpy(text + at, replacement, 3);
            at += 3;
            used = 1;
        }
    }
    if (text)
        text[at] = '\0';
    return text;
}

static bool set_text(char **to, const char *s)
{
    *to = entry_text(s);
    return *to != NULL;
}

static Filesystem__FileType type_of(mode_t mode)
{
    if (S_ISREG(mode))
        return FILESYSTEM__FILE_TYPE__FILE_TYPE_FILE;
    if (S_ISDIR(mode))
        return FILESYSTEM__FILE_TYPE__FILE_TYPE_DIRECTORY;
    return FILESYSTEM__FILE_TYPE__FILE_TYPE_UNSPECIFIED;
}

/* One `user.e2b.<key>`; values that are not text are not metadata of ours. */
static int metadata_add(Filesystem__EntryInfo *e, const char *path, const char *name,
                        char value[XATTR_VALUE_MAX + 1], struct abx_err *err)
{
    Filesystem__EntryInfo__MetadataEntry *m, **list;
    ssize_t n = getxattr(path, name, value, XATTR_VALUE_MAX);

    if (n < 0 || !utf8_is_valid(slice_str(name)) || !utf8_is_valid(slice_of(value, (size_t)n)) ||
        memchr(value, '\0', (size_t)n))
        return 0;
    value[n] = '\0';
    list = reallocarray(e->metadata, e->n_metadata + 1, sizeof(*list));
    if (!list)
        return err_oom(err);
    e->metadata = list;
    m = malloc(sizeof(*m));
    if (!m)
        return err_oom(err);
    filesystem__entry_info__metadata_entry__init(m);
    e->metadata[e->n_metadata++] = m;
    if (!set_text(&m->key, name + strlen(ENTRY_XATTR_PREFIX)) || !set_text(&m->value, value))
        return err_oom(err);
    return 0;
}

static int metadata_read(Filesystem__EntryInfo *e, const char *path, struct abx_err *err)
{
    _cleanup_(freep) char *names = NULL, *value = NULL;
    ssize_t n = listxattr(path, NULL, 0);
    int r = 0;

    if (n <= 0) /* none, or a file system without them */
        return 0;
    names = malloc(XATTR_NAMES_MAX);
    value = malloc(XATTR_VALUE_MAX + 1);
    if (!names || !value)
        return err_oom(err);
    n = listxattr(path, names, XATTR_NAMES_MAX);
    for (ssize_t at = 0; r == 0 && at < n; at += (ssize_t)strlen(names + at) + 1) {
        if (strncmp(names + at, ENTRY_XATTR_PREFIX, strlen(ENTRY_XATTR_PREFIX)) == 0)
            r = metadata_add(e, path, names + at, value, err);
    }
    return r;
}

/* What a symlink leads to; a broken one shows its own text. */
static int resolve_link(Filesystem__EntryInfo *e, const char *path, struct stat *target,
                        struct abx_err *err)
{
    _cleanup_(freep) char *full = realpath(path, NULL);
    char text[PATH_MAX];
    ssize_t n;

    e->is_symlink = true;
    if (!full || stat(path, target) < 0) {
        target->st_mode = (target->st_mode & 07777) | S_IFLNK; /* UNSPECIFIED */
        n = readlink(path, text, sizeof(text) - 1);
        if (n < 0)
            return err_sys(err, errno, "read link '%s'", path);
        text[n] = '\0';
        free(full);
        full = strdup(text);
        if (!full)
            return err_oom(err);
    }
    if (!set_text(&e->symlink_target, full))
        return err_oom(err);
    e->symlink_target_opt_case = FILESYSTEM__ENTRY_INFO__SYMLINK_TARGET_OPT_SYMLINK_TARGET;
    return 0;
}

static int fill_times_and_names(Filesystem__EntryInfo *e, const struct user_names *names,
                                const char *path, const struct stat *st, struct abx_err *err)
{
    char text[256];
    bool ok;

    e->modified_time = malloc(sizeof(*e->modified_time));
    if (!e->modified_time)
        return err_oom(err);
    google__protobuf__timestamp__init(e->modified_time);
    e->modified_time->seconds = st->st_mtim.tv_sec;
    e->modified_time->nanos = (int32_t)st->st_mtim.tv_nsec;
    ok = set_text(&e->name, guest_path_name(path)) && set_text(&e->path, path);
    guest_mode_text(st->st_mode, text);
    ok = ok && set_text(&e->permissions, text);
    user_names_owner(names, st->st_uid, text, sizeof(text));
    ok = ok && set_text(&e->owner, text);
    user_names_group(names, st->st_gid, text, sizeof(text));
    ok = ok && set_text(&e->group, text);
    return ok ? 0 : err_oom(err);
}

int entry_make(const struct user_names *names, const char *path, Filesystem__EntryInfo **ret,
               struct abx_err *err)
{
    _cleanup_(entry_freep) Filesystem__EntryInfo *e = malloc(sizeof(*e));
    struct stat st, target;
    int r;

    if (!e)
        return err_oom(err);
    filesystem__entry_info__init(e);
    if (lstat(path, &st) < 0) {
        if (errno == ENOENT || errno == ENOTDIR)
            return err_set(err, ABX_NOT_FOUND, "path '%s' does not exist", path);
        return err_sys(err, errno, "look at '%s'", path);
    }
    target = st;
    r = fill_times_and_names(e, names, path, &st, err);
    if (r == 0 && S_ISLNK(st.st_mode))
        r = resolve_link(e, path, &target, err);
    if (r == 0)
        r = metadata_read(e, path, err);
    if (r < 0)
        return r;
    e->type = type_of(target.st_mode);
    e->size = target.st_size;
    e->mode = target.st_mode & 0777;
    *ret = TAKE_PTR(e);
    return 0;
}

/* --- listing ------------------------------------------------------------------------------------ */

struct todo {
    char *path;
    uint32_t depth; /* of the entry: 1 = directly in the listed folder */
};

struct walk {
    const struct user_names *names;
    uint32_t depth_max;
    struct todo *stack;
    size_t n, cap;
    size_t first; /* of the folder being read, for sorting */
    Filesystem__ListDirResponse *out;
    size_t out_cap;
};

static void walk_done(struct walk *w)
{
    while (w->n > 0)
        free(w->stack[--w->n].path);
    free(w->stack);
}

static int walk_push(struct walk *w, const char *dir, const char *name, uint32_t depth,
                     struct abx_err *err)
{
    const char *slash = strcmp(dir, "/") == 0 ? "" : "/";

    if (w->n >= ENTRY_LIST_MAX)
        return err_set(err, ABX_RESOURCE_EXHAUSTED, "over %d entries", ENTRY_LIST_MAX);
    if (w->n == w->cap) {
        size_t cap = MAX((size_t)64, w->cap * 2);
        struct todo *stack = reallocarray(w->stack, cap, sizeof(*stack));
        if (!stack)
            return err_oom(err);
        w->stack = stack;
        w->cap = cap;
    }
    if (asprintf(&w->stack[w->n].path, "%s%s%s", dir, slash, name) < 0)
        return err_oom(err);
    w->stack[w->n++].depth = depth;
    return 0;
}

/* Last first: the stack gives them back in order. */
static int by_name_down(const void *a, const void *b)
{
    const struct todo *x = a, *y = b;

    return strcmp(y->path, x->path);
}

static int walk_dir(struct walk *w, const char *path, uint32_t depth, struct abx_err *err)
{
    DIR *dir = opendir(path);
    size_t first = w->n;
    struct dirent *e;
    int r = 0;

    if (!dir)
        return err_sys(err, errno, "read folder '%s'", path);
    while (r == 0 && (e = readdir(dir))) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            r = walk_push(w, path, e->d_name, depth, err);
    }
    (void)closedir(dir);
    if (w->n > first)
        qsort(w->stack + first, w->n - first, sizeof(w->stack[0]), by_name_down);
    return r;
}

static int walk_emit(struct walk *w, Filesystem__EntryInfo *e, struct abx_err *err)
{
    Filesystem__ListDirResponse *out = w->out;

    if (out->n_entries >= ENTRY_LIST_MAX) {
        entry_free(e);
        return err_set(err, ABX_RESOURCE_EXHAUSTED, "over %d entries", ENTRY_LIST_MAX);
    }
    if (out->n_entries == w->out_cap) {
        size_t cap = MAX((size_t)64, w->out_cap * 2);
        Filesystem__EntryInfo **list = reallocarray(out->entries, cap, sizeof(*list));
        if (!list) {
            entry_free(e);
            return err_oom(err);
        }
        out->entries = list;
        w->out_cap = cap;
    }
    out->entries[out->n_entries++] = e;
    return 0;
}

static int walk_next(struct walk *w, struct abx_err *err)
{
    struct todo at = w->stack[--w->n];
    _cleanup_(freep) char *path = at.path;
    Filesystem__EntryInfo *e = NULL;
    bool is_dir;
    int r = entry_make(w->names, path, &e, err);

    if (r == ABX_NOT_FOUND)
        return 0; /* removed meanwhile */
    if (r == ABX_PERMISSION_DENIED && at.depth > 1)
        return 0; /* in a folder that may be read but not searched */
    if (r < 0)
        return r;
    is_dir = e->type == FILESYSTEM__FILE_TYPE__FILE_TYPE_DIRECTORY && !e->is_symlink;
    r = walk_emit(w, e, err);
    if (r == 0 && is_dir && at.depth < w->depth_max) {
        r = walk_dir(w, path, at.depth + 1, err);
        if (r == ABX_PERMISSION_DENIED || r == ABX_NOT_FOUND)
            r = 0; /* listed itself, contents unseen */
    }
    return r;
}

int entry_list(const struct user_names *names, const char *path, uint32_t depth,
               Filesystem__ListDirResponse *ret, struct abx_err *err)
{
    Filesystem__ListDirResponse out = FILESYSTEM__LIST_DIR_RESPONSE__INIT;
    _cleanup_(walk_done) struct walk w = { .names = names, .out = &out };
    struct stat st;
    int r;

    w.depth_max = depth == 0 ? 1 : depth;
    if (stat(path, &st) < 0) {
        if (errno == ENOENT || errno == ENOTDIR)
            return err_set(err, ABX_NOT_FOUND, "path '%s' does not exist", path);
        return err_sys(err, errno, "look at '%s'", path);
    }
    if (!S_ISDIR(st.st_mode))
        return err_set(err, ABX_INVALID_ARGUMENT, "path is not a directory: %s", path);
    r = walk_dir(&w, path, 1, err);
    while (r == 0 && w.n > 0)
        r = walk_next(&w, err);
    if (r < 0) {
        entry_list_done(&out);
        return r;
    }
    if (err)
        memset(err, 0, sizeof(*err)); /* of what has gone or may not be seen */
    *ret = out;
    return 0;
}

void entry_list_done(Filesystem__ListDirResponse *l)
{
    for (size_t i = 0; i < l->n_entries; i++)
        entry_free(l->entries[i]);
    free(l->entries);
    l->entries = NULL;
    l->n_entries = 0;
}

int entry_make_dirs(const char *path, struct abx_err *err)
{
    char at[PATH_MAX];
    struct stat st;
    size_t n = strlen(path);

    if (n >= sizeof(at))
        return err_set(err, ABX_INVALID_ARGUMENT, "path is longer than %d bytes", PATH_MAX - 1);
    /* Mostly all or all but one exist: ask for the whole first. */
    if (mkdir(path, 0755) == 0 || (errno == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode)))
        return 0;
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(at, path, i);
        at[i] = '\0';
        if (mkdir(at, 0755) == 0)
            continue;
        if (errno == ENOTDIR || (errno == EEXIST && (stat(at, &st) < 0 || !S_ISDIR(st.st_mode))))
            return err_set(err, ABX_INVALID_ARGUMENT, "'%s' is not a directory", at);
        if (errno != EEXIST)
            return err_sys(err, errno, "make folder '%s'", at);
    }
    return 0;
}
