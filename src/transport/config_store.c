/* config_store.c - changing one key of ~/.abx/config.toml or of ~/.abx/.env (.env.PROFILE).
 *
 * Only the bytes of the value or its line change. What is to be written is read back in memory first, so that a file
 * never ends up with something that the next load refuses or reads otherwise. The folder is locked
 * (flock) meanwhile: two programs do not undo each other's change.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "transport/call.h"
#include "transport/config_resolve.h"
#include "transport/dotenv.h"

#define LOCK_TIMEOUT_NS (5 * NSEC_PER_SEC)

struct change {
    const struct config_row *row;
    const char *profile; /* NULL = none */
    const char *value;   /* NULL = remove */
    char path[PATH_MAX]; /* of the file, links resolved */
    struct stat st;      /* of the file, st_mode 0 = there is none */
    struct buf old, new;
};

static int full(struct buf *b, struct abx_err *err)
{
    return err_set(err, ABX_RESOURCE_EXHAUSTED, "has more than %zu bytes then", b->limit);
}

static int add(struct buf *to, struct slice s, struct abx_err *err)
{
    enum buf_status status = buf_append_slice(to, s);

    return status == BUF_OK ? 0 : status == BUF_OOM ? err_oom(err) : full(to, err);
}

/* old[0, from) + text + old[to, end), with a newline before the text when it begins a line. */
static int text_splice(struct change *c, size_t from, size_t to, bool is_line, struct slice text,
                       struct abx_err *err)
{
    struct slice old = buf_slice(&c->old);
    int r = add(&c->new, slice_of(old.p, from), err);

    if (r == 0 && is_line && text.n > 0 && from > 0 && old.p[from - 1] != '\n')
        r = add(&c->new, SLICE_LIT("\n"), err);
    if (r == 0)
        r = add(&c->new, text, err);
    return r == 0 ? add(&c->new, slice_of(old.p + to, old.n - to), err) : r;
}

/* ---- .env ---- */

static bool is_plain(const char *text)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:/+=@%-";

    return text[strspn(text, allowed)] == '\0';
}

static int env_line(const struct change *c, bool has_export, struct buf *to, struct abx_err *err)
{
    int r = add(to, slice_str(has_export ? "export " : ""), err);

    if (r == 0)
        r = add(to, slice_str(c->row->key.env), err);
    if (r == 0)
        r = add(to, slice_str(is_plain(c->value) ? "=" : "='"), err);
    for (const char *p = c->value; r == 0 && *p; p++) {
        if (*p == '\\' || *p == '\'')
            r = add(to, SLICE_LIT("\\"), err);
        if (r == 0)
            r = add(to, slice_of(p, 1), err);
    }
    return r == 0 ? add(to, slice_str(is_plain(c->value) ? "\n" : "'\n"), err) : r;
}

/* A line of ours: under its name, or under the scoped one that would come before it. */
static bool is_row_line(const struct change *c, const struct dotenv_line *line)
{
    return line->key && (strcmp(line->key, c->row->key.env) == 0 ||
                         (c->row->env_scoped && strcmp(line->key, c->row->env_scoped) == 0));
}

/* The first line of the key is replaced, others of it go. */
static int env_rewrite(struct change *c, const struct dotenv *d, struct abx_err *err)
{
    struct slice old = buf_slice(&c->old);
    bool is_written = c->value == NULL;
    size_t at = 0;
    int r = 0;

    for (size_t i = 0; i < d->count && r == 0; i++) {
        const struct dotenv_line *line = &d->lines[i];

        if (!is_row_line(c, line))
            continue;
        r = add(&c->new, slice_of(old.p + at, line->start - at), err);
        if (r == 0 && !is_written)
            r = env_line(
                c, slice_starts_with(slice_of(old.p + line->start, old.n - line->start), "export"),
                &c->new, err);
        is_written = true;
        at = line->end;
    }
    if (r == 0)
        r = add(&c->new, slice_of(old.p + at, old.n - at), err);
    if (r == 0 && !is_written && c->new.len > 0 && buf_data(&c->new)[c->new.len - 1] != '\n')
        r = add(&c->new, SLICE_LIT("\n"), err);
    return r == 0 && !is_written ? env_line(c, false, &c->new, err) : r;
}

static int env_change(struct change *c, struct abx_err *err)
{
    struct dotenv d = { 0 };
    const struct dotenv_line *line;
    int r = dotenv_parse(buf_slice(&c->old), false, &d, err);

    for (size_t i = 0; r == 0 && i < d.count; i++)
        if (!d.lines[i].key)
            r = err_set(err, ABX_INVALID_ARGUMENT, "line %u is not NAME=value", d.lines[i].line);
    if (r == 0)
        r = env_rewrite(c, &d, err);
    dotenv_done(&d);
    if (r < 0)
        return r;
    r = dotenv_parse(buf_slice(&c->new), true, &d, err);
    line = r == 0 ? dotenv_find(&d, c->row->key.env) : NULL;
    if (r == 0 && c->value && (!line || !line->value || strcmp(line->value, c->value) != 0))
        r = err_set(err, ABX_INVALID_ARGUMENT, "the value of %s cannot be written (has it '${'?)",
                    c->row->key.name);
    dotenv_done(&d);
    return r;
}

/* ---- config.toml ---- */

static bool is_toml_word(const struct change *c)
{
    struct buf text = BUF_INIT(512);
    struct toml t = { 0 };
    bool is_word = false;

    if (c->row->kind == CONFIG_KIND_BOOL)
        return strcmp(c->value, "true") == 0 || strcmp(c->value, "false") == 0;
    if (c->row->kind != CONFIG_KIND_COUNT && c->row->kind != CONFIG_KIND_SECONDS)
        return false;
    if (buf_printf(&text, "a=%s\n", c->value) == BUF_OK)
        is_word = toml_parse(buf_slice(&text), &t, NULL) == 0 && t.key_count == 1;
    toml_done(&t);
    buf_done(&text);
    return is_word;
}

static int toml_value_write(const struct change *c, struct buf *to, struct abx_err *err)
{
    int r;

    if (is_toml_word(c))
        return add(to, slice_str(c->value), err);
    r = add(to, SLICE_LIT("\""), err);
    for (const char *p = c->value; r == 0 && *p; p++) {
        if (*p == '\\' || *p == '"')
            r = add(to, SLICE_LIT("\\"), err);
        if (r == 0)
            r = add(to, slice_of(p, 1), err);
    }
    return r == 0 ? add(to, SLICE_LIT("\""), err) : r;
}

static int toml_line(const struct change *c, struct buf *to, struct abx_err *err)
{
    int r = add(to, slice_str(c->row->key.name), err);

    if (r == 0)
        r = add(to, SLICE_LIT(" = "), err);
    if (r == 0)
        r = toml_value_write(c, to, err);
    return r == 0 ? add(to, SLICE_LIT("\n"), err) : r;
}

/* A new table at the end, an empty line before it. */
static int toml_add_table(struct change *c, struct buf *text, struct abx_err *err)
{
    struct buf line = BUF_INIT(TOML_MAX);
    size_t end = c->old.len;
    int r = toml_line(c, &line, err);
    enum buf_status s = BUF_OK;

    if (r == 0 && c->profile)
        s = buf_printf(text,
                       strchr(c->profile, '.') ? "%s[profiles.\"%s\"]\n" : "%s[profiles.%s]\n",
                       end > 0 ? "\n" : "", c->profile);
    else if (r == 0)
        s = buf_printf(text, "%s[%s]\n", end > 0 ? "\n" : "", c->row->table);
    if (s != BUF_OK)
        r = s == BUF_OOM ? err_oom(err) : full(text, err);
    if (r == 0)
        r = add(text, buf_slice(&line), err);
    buf_done(&line);
    return r == 0 ? text_splice(c, end, end, true, buf_slice(text), err) : r;
}

static int toml_rewrite(struct change *c, const struct toml *t, const char *path,
                        struct abx_err *err)
{
    const struct toml_key *key = toml_find(t, path, c->row->key.name);
    const struct toml_table *table = toml_find_table(t, path);
    struct buf text = BUF_INIT(TOML_MAX);
    int r = 0;

    if (!c->value) {
        r = key ? text_splice(c, key->line_start, key->line_end, false, SLICE_LIT(""), err)
                : add(&c->new, buf_slice(&c->old), err);
    } else if (key) {
        r = toml_value_write(c, &text, err);
        if (r == 0)
            r = text_splice(c, key->value_start, key->value_end, false, buf_slice(&text), err);
    } else if (table && table->is_header) {
        r = toml_line(c, &text, err);
        if (r == 0)
            r = text_splice(c, table->end, table->end, true, buf_slice(&text), err);
    } else {
        r = toml_add_table(c, &text, err);
    }
    buf_done(&text);
    return r;
}

static int toml_change(struct change *c, struct abx_err *err)
{
    struct toml t = { 0 };
    const struct toml_key *key;
    char path[128];
    int r = toml_parse(buf_slice(&c->old), &t, err);

    if (c->profile)
        (void)snprintf(path, sizeof path, "profiles" TOML_SEP "%s", c->profile);
    else
        (void)snprintf(path, sizeof path, "%s", c->row->table);
    if (r == 0)
        r = toml_rewrite(c, &t, path, err);
    toml_done(&t);
    if (r < 0)
        return r;
    r = toml_parse(buf_slice(&c->new), &t, err);
    key = r == 0 ? toml_find(&t, path, c->row->key.name) : NULL;
    if (r < 0)
        r = err_wrap(err, r, "%s cannot be added, do it by hand", c->row->key.name);
    else if ((c->value == NULL) != (key == NULL) || (key && strcmp(key->text, c->value) != 0))
        r = err_set(err, ABX_INTERNAL, "%s would not read back as it was written",
                    c->row->key.name);
    toml_done(&t);
    return r;
}

/* ---- files ---- */

static int lock_folder(int *ret, struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    char path[PATH_MAX];
    int64_t deadline = time_mono_ns() + LOCK_TIMEOUT_NS;
    int r = config_home_path("", path, sizeof path, err);

    if (r < 0)
        return r;
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_sys(err, errno, "mkdir '%s'", path);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "open '%s'", path);
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        const struct timespec pause = { .tv_nsec = 10 * NSEC_PER_MSEC };

        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_sys(err, errno, "lock '%s'", path);
        if (time_mono_ns() >= deadline)
            return err_set(err, ABX_DEADLINE_EXCEEDED, "'%s' is locked by another program", path);
        (void)nanosleep(&pause, NULL);
    }
    *ret = TAKE_FD(fd);
    return 0;
}

/* `profile` is checked. */
static int file_path(const char *profile, bool is_secret, char *to, size_t size,
                     struct abx_err *err)
{
    char name[128];

    if (!is_secret)
        (void)snprintf(name, sizeof name, "config.toml");
    else
        (void)snprintf(name, sizeof name, ".env%s%s", profile ? "." : "", profile ? profile : "");
    return config_home_path(name, to, size, err);
}

/* The file behind links: a configuration may live elsewhere. */
static int find_file(struct change *c, struct abx_err *err)
{
    char path[PATH_MAX];
    int r = file_path(c->profile, c->row->key.is_secret, path, sizeof path, err);

    if (r < 0)
        return r;
    if (!realpath(path, c->path)) {
        if (errno != ENOENT)
            return err_sys(err, errno, "'%s'", path);
        (void)snprintf(c->path, sizeof c->path, "%s", path);
        return 0;
    }
    if (stat(c->path, &c->st) < 0)
        return err_sys(err, errno, "stat '%s'", c->path);
    if (!S_ISREG(c->st.st_mode))
        return err_set(err, ABX_INVALID_ARGUMENT, "'%s' is no regular file", c->path);
    return file_read(AT_FDCWD, c->path, &c->old, err);
}

static int write_file(struct change *c, struct abx_err *err)
{
    bool was_there = c->st.st_mode != 0;
    mode_t mode = c->row->key.is_secret || !was_there ? 0600 : c->st.st_mode & 0777;
    struct slice text = buf_slice(&c->new);
    int r;

    if (slice_eq(text, buf_slice(&c->old)) &&
        (was_there ? (c->st.st_mode & 0777) == mode : !c->value))
        return 0;
    r = file_replace(AT_FDCWD, c->path, text.p, text.n, mode, true, err);
    /* Root that changes a user's file does not take it away. */
    if (r == 0 && was_there && c->st.st_uid != geteuid() &&
        lchown(c->path, c->st.st_uid, c->st.st_gid) < 0)
        r = err_sys(err, errno, "owner of '%s'", c->path);
    return r;
}

static void wipe(struct buf *b)
{
    if (b->mem)
        explicit_bzero(b->mem, b->cap);
    buf_done(b);
}

static int change_file(struct change *c, struct abx_err *err)
{
    _cleanup_(closep) int lock = -EBADF;
    int r = lock_folder(&lock, err);

    if (r == 0)
        r = find_file(c, err);
    if (r < 0)
        return r;
    r = c->row->key.is_secret ? env_change(c, err) : toml_change(c, err);
    return r < 0 ? err_wrap(err, r, "file %s", c->path) : write_file(c, err);
}

static int check(struct change *c, const char *key, struct abx_err *err)
{
    int row = key ? config_row_find(key) : -1;
    int64_t parsed;
    int r = 0;

    if (row < 0)
        return err_set(err, ABX_INVALID_ARGUMENT, "there is no key '%.64s'", key ? key : "");
    c->row = &config_rows[row];
    if (c->profile) {
        if (row == CONFIG_PROFILE)
            return err_set(err, ABX_INVALID_ARGUMENT, "a profile does not name another one");
        r = config_row_parse(&config_rows[CONFIG_PROFILE], c->profile, &parsed, err);
        if (r < 0)
            return err_wrap(err, r, "profile");
    }
    if (!c->value)
        return 0;
    if (c->value[strspn(c->value, " \t\r\n\v\f")] == '\0')
        return err_set(err, ABX_INVALID_ARGUMENT, "%s: a blank value is none: remove the key", key);
    if (strchr(" \t\r\n\v\f", c->value[0]) || strchr(" \t\r\n\v\f", c->value[strlen(c->value) - 1]))
        return err_set(err, ABX_INVALID_ARGUMENT, "%s: begins or ends with white space", key);
    r = config_row_parse(c->row, c->value, &parsed, err);
    return r < 0 ? err_wrap(err, r, "%s", key) : 0;
}

int abx_config_path(const char *profile, int is_secret, char *to, size_t size,
                    struct abx_error *error)
{
    struct abx_err err = { 0 };
    int64_t parsed;
    int r = 0;

    if (profile && !profile[0])
        profile = NULL;
    if (profile) {
        r = config_row_parse(&config_rows[CONFIG_PROFILE], profile, &parsed, &err);
        if (r < 0)
            r = err_wrap(&err, r, "profile");
    }
    if (r == 0)
        r = file_path(profile, is_secret != 0, to, size, &err);
    if (r < 0 && error)
        error_export(&err, 0, error);
    return r;
}

int abx_config_store(const char *profile, const char *key, const char *value,
                     struct abx_error *error)
{
    struct change c = { .profile = profile && profile[0] ? profile : NULL, .value = value };
    struct abx_err err = { 0 };
    int r = check(&c, key, &err);

    if (r == 0) {
        buf_init(&c.old, c.row->key.is_secret ? DOTENV_MAX : TOML_MAX);
        buf_init(&c.new, c.old.limit);
        r = change_file(&c, &err);
        wipe(&c.old);
        wipe(&c.new);
    }
    if (r < 0 && error)
        error_export(&err, 0, error);
    return r;
}
