/* config_files.c - the layers below the process environment: ./.env, ~/.abx/.env.PROFILE, ~/.abx/.env,
 * ~/.abx/config.toml and the service on this machine.
 *
 * ./.env belongs to whatever project the working folder is: lines that are not understood are left
 * to others. In ~/.abx they are errors. A file that may not be read counts as missing; if no key is
 * found, the error names it.
 */
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "transport/config_resolve.h"
#include "transport/dotenv.h"
#include "transport/local_service.h"
#include "transport/toml.h"

int config_home_path(const char *name, char *to, size_t size, struct abx_err *err)
{
    const char *home = getenv("HOME");
    struct passwd pw, *found = NULL;
    char mem[4096];
    int n;

    if (!home || !home[0])
        home = getpwuid_r(geteuid(), &pw, mem, sizeof mem, &found) == 0 && found ? pw.pw_dir : "";
    if (!home[0])
        return err_set(err, ABX_NOT_FOUND, "HOME is not set and uid %u has no home folder",
                       (unsigned)geteuid());
    n = snprintf(to, size, "%s/.abx%s%s", home, name[0] ? "/" : "", name);
    if (n < 0 || (size_t)n >= size)
        return err_set(err, ABX_INVALID_ARGUMENT, "the path of the home folder is too long");
    return 0;
}

static int add_hint(abx_config *c, const char *text, struct abx_err *err)
{
    char *more = NULL;

    if (asprintf(&more, "%s%s%s", c->hint ? c->hint : "", c->hint ? "; " : "", text) < 0)
        return err_oom(err);
    free(c->hint);
    c->hint = more;
    return 0;
}

/* 1 = read, 0 = there is none for us. */
static int read_file(abx_config *c, const char *path, struct buf *to, struct abx_err *err)
{
    char hint[PATH_MAX + 64];
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), r = 0;

    if (fd < 0 && (errno == EACCES || errno == EPERM)) {
        (void)snprintf(hint, sizeof hint, "%s may not be read", path);
        return add_hint(c, hint, err);
    }
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : err_sys(err, errno, "open '%s'", path);
    if (fstat(fd, &st) < 0)
        r = err_sys(err, errno, "stat '%s'", path);
    else if (S_ISREG(st.st_mode)) /* .env is a folder in some projects */
        r = 1;
    if (r == 1) {
        uint8_t *p = NULL;
        ssize_t n;

        p = buf_reserve(to, to->limit, NULL);
        n = p ? fd_read_all(fd, p, to->limit) : 0;
        if (!p)
            r = err_oom(err);
        else if (n < 0)
            r = err_sys(err, errno, "read '%s'", path);
        else if ((size_t)n == to->limit)
            r = err_set(err, ABX_RESOURCE_EXHAUSTED, "file %s: has more than %zu bytes", path,
                        to->limit - 1);
        else
            buf_commit(to, (size_t)n);
    }
    fd_close(fd);
    return r;
}

/* ---- .env ---- */

struct env_file {
    struct dotenv lines;
    char origin[PATH_MAX + 16];
    bool is_there;
};

/* `is_ours`: what is not understood is an error. Done with env_file_done, also after an error. */
static int env_file_read(abx_config *c, const char *path, bool is_ours, struct env_file *f,
                         struct abx_err *err)
{
    struct buf text = BUF_INIT(DOTENV_MAX + 1);
    int r = read_file(c, path, &text, err);

    f->lines = (struct dotenv){ 0 };
    f->is_there = r == 1;
    (void)snprintf(f->origin, sizeof f->origin, "file %s", path);
    if (r == 1) {
        r = dotenv_parse(buf_slice(&text), true, &f->lines, err);
        if (r < 0)
            r = err_wrap(err, r, "%s", f->origin);
    }
    for (size_t i = 0; r == 0 && is_ours && i < f->lines.count; i++)
        if (!f->lines.lines[i].key)
            r = err_set(err, ABX_INVALID_ARGUMENT, "%s: line %u is not NAME=value", f->origin,
                        f->lines.lines[i].line);
    if (text.mem)
        explicit_bzero(text.mem, text.cap);
    buf_done(&text);
    return r;
}

static void env_file_done(struct env_file *f)
{
    dotenv_done(&f->lines);
}

static int env_file_take_name(abx_config *c, const struct env_file *f, int row, const char *name,
                              struct abx_err *err)
{
    const struct dotenv_line *line = name ? dotenv_find(&f->lines, name) : NULL;

    if (!line || !line->value)
        return 0;
    return config_take(c, row, slice_str(line->value), f->origin, line->line, err);
}

static int env_file_take_row(abx_config *c, const struct env_file *f, int row, struct abx_err *err)
{
    int r = env_file_take_name(c, f, row, config_rows[row].env_scoped, err);

    return r < 0 ? r : env_file_take_name(c, f, row, config_rows[row].key.env, err);
}

static int env_file_take(abx_config *c, const struct env_file *f, struct abx_err *err)
{
    int r = 0;

    for (int i = 0; i < CONFIG_COUNT && r == 0; i++)
        r = env_file_take_row(c, f, i, err);
    return r;
}

/* Reads and takes in one go. */
static int take_env_file(abx_config *c, const char *path, bool is_ours, bool *ret_is_there,
                         struct abx_err *err)
{
    struct env_file f;
    int r = env_file_read(c, path, is_ours, &f, err);

    if (r == 0)
        r = env_file_take(c, &f, err);
    *ret_is_there = f.is_there;
    env_file_done(&f);
    return r;
}

/* ---- config.toml ---- */

int config_check_type(const struct config_row *row, enum toml_type type, struct abx_err *err)
{
    bool is_good = false;

    switch (row->kind) {
    case CONFIG_KIND_BOOL:
        is_good = type == TOML_BOOL || type == TOML_STRING;
        break;
    case CONFIG_KIND_COUNT:
    case CONFIG_KIND_SECONDS:
        is_good = type == TOML_INTEGER || type == TOML_FLOAT || type == TOML_STRING;
        break;
    case CONFIG_KIND_TEXT:
        is_good = type == TOML_STRING || type == TOML_STRINGS;
        break;
    case CONFIG_KIND_SECRET:
    case CONFIG_KIND_NAME:
    case CONFIG_KIND_DOMAIN:
    case CONFIG_KIND_URL:
    case CONFIG_KIND_PROXY:
        is_good = type == TOML_STRING;
        break;
    }
    return is_good
               ? 0
               : err_set(err, ABX_INVALID_ARGUMENT, "%s is not a %s", row->key.name, row->key.type);
}

/* The secrets of `path`: none may be there. */
static int refuse_secrets(const struct toml *t, const char *path, const char *origin,
                          struct abx_err *err)
{
    for (int i = 0; i < CONFIG_COUNT; i++) {
        const struct toml_key *key =
            config_rows[i].key.is_secret ? toml_find(t, path, config_rows[i].key.name) : NULL;

        if (key)
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "%s: line %u: %s is a secret: it belongs into ~/.abx/.env, as %s",
                           origin, key->line, key->name, config_rows[i].key.env);
    }
    return 0;
}

static int take_toml(abx_config *c, const struct toml *t, int row, const char *path,
                     const char *origin, struct abx_err *err)
{
    const struct toml_key *key = toml_find(t, path, config_rows[row].key.name);
    int r;

    if (!key || config_rows[row].key.is_secret)
        return 0;
    r = config_check_type(&config_rows[row], key->type, err);
    if (r < 0)
        return err_wrap(err, r, "%s: line %u", origin, key->line);
    return config_take(c, row, slice_str(key->text), origin, key->line, err);
}

struct toml_file {
    struct toml toml;
    char path[PATH_MAX], origin[PATH_MAX + 16];
    bool is_there;
};

static int toml_file_read(abx_config *c, struct toml_file *f, struct abx_err *err)
{
    struct buf text = BUF_INIT(TOML_MAX + 1);
    int r = config_home_path("config.toml", f->path, sizeof f->path, err);

    f->toml = (struct toml){ 0 };
    f->is_there = false;
    if (r == 0)
        r = read_file(c, f->path, &text, err);
    f->is_there = r == 1;
    (void)snprintf(f->origin, sizeof f->origin, "file %s", f->path);
    if (r == 1) {
        r = toml_parse(buf_slice(&text), &f->toml, err);
        if (r < 0)
            r = err_wrap(err, r, "%s", f->origin);
    }
    buf_done(&text);
    return r;
}

/* A table of its own, so what is not understood is a mistake. */
static int check_profile(const struct toml_file *f, const char *path, const char *name,
                         struct abx_err *err)
{
    for (size_t i = 0; i < f->toml.key_count; i++) {
        const struct toml_key *key = &f->toml.keys[i];
        int row = config_row_find(key->name);

        if (strcmp(key->path, path) == 0 && (row < 0 || row == CONFIG_PROFILE))
            return err_set(err, ABX_INVALID_ARGUMENT, "%s: line %u: [profiles.%s] has no key '%s'",
                           f->origin, key->line, name, key->name);
    }
    return refuse_secrets(&f->toml, path, f->origin, err);
}

/* `has_secrets`: there is a file ~/.abx/.env.NAME, which makes it a profile too. */
static int take_profile(abx_config *c, const struct toml_file *f, bool has_secrets,
                        struct abx_err *err)
{
    const struct config_value *name = &c->values[CONFIG_PROFILE];
    char path[128], more[PATH_MAX + 128];
    int r;

    if (!name->text)
        return 0;
    (void)snprintf(path, sizeof path, "profiles" TOML_SEP "%s", name->text);
    (void)snprintf(more, sizeof more, "%s [profiles.%s]", f->origin, name->text);
    if (!has_secrets && !toml_find_table(&f->toml, path))
        return err_set(err, ABX_INVALID_ARGUMENT, "profile '%s' (%s): %s has no [profiles.%s]",
                       name->text, name->origin, f->path, name->text);
    r = check_profile(f, path, name->text, err);
    for (int i = 0; i < CONFIG_COUNT && r == 0; i++)
        if (i != CONFIG_PROFILE)
            r = take_toml(c, &f->toml, i, path, more, err);
    return r;
}

static int take_tables(abx_config *c, const struct toml_file *f, struct abx_err *err)
{
    static const char *const tables[] = { "core", "transport" };
    const char *provider;
    char path[128], more[PATH_MAX + 128];
    int r = take_toml(c, &f->toml, CONFIG_PROVIDER, "core", f->origin, err);

    provider = c->values[CONFIG_PROVIDER].text ? c->values[CONFIG_PROVIDER].text
                                               : config_rows[CONFIG_PROVIDER].key.fallback;
    (void)snprintf(path, sizeof path, "providers" TOML_SEP "%s", provider);
    (void)snprintf(more, sizeof more, "%s [providers.%s]", f->origin, provider);
    if (r == 0)
        r = refuse_secrets(&f->toml, path, f->origin, err);
    for (size_t i = 0; i < ARRAY_SIZE(tables) && r == 0; i++)
        r = refuse_secrets(&f->toml, tables[i], f->origin, err);
    for (int i = 0; i < CONFIG_COUNT && r == 0; i++) {
        if (!config_rows[i].table || i == CONFIG_PROFILE || i == CONFIG_PROVIDER)
            continue;
        /* A provider's table has its endpoint, not how connections are made. */
        if (config_rows[i].env_scoped || i == CONFIG_REGION)
            r = take_toml(c, &f->toml, i, path, more, err);
        if (r == 0)
            r = take_toml(c, &f->toml, i, config_rows[i].table, f->origin, err);
    }
    return r;
}

/* ---- ~/.abx ---- */

/* The profile is known first, since it decides which file of secrets comes before the common one. */
static int take_home(abx_config *c, struct env_file *env, struct toml_file *toml,
                     struct abx_err *err)
{
    char name[128], path[PATH_MAX];
    bool has_secrets = false;
    int r = env_file_take_row(c, env, CONFIG_PROFILE, err);

    if (r == 0)
        r = take_toml(c, &toml->toml, CONFIG_PROFILE, "core", toml->origin, err);
    if (r == 0 && c->values[CONFIG_PROFILE].text) {
        (void)snprintf(name, sizeof name, ".env.%s", c->values[CONFIG_PROFILE].text);
        r = config_home_path(name, path, sizeof path, err);
        if (r == 0)
            r = take_env_file(c, path, true, &has_secrets, err);
    }
    if (r == 0)
        r = env_file_take(c, env, err);
    if (r == 0)
        r = take_profile(c, toml, has_secrets, err);
    return r == 0 ? take_tables(c, toml, err) : r;
}

static int take_home_files(abx_config *c, struct abx_err *err)
{
    struct env_file env = { 0 };
    struct toml_file toml = { 0 };
    char path[PATH_MAX];
    int r = config_home_path(".env", path, sizeof path, err);

    if (r < 0) /* no home: no files, unless one is asked for */
        return c->values[CONFIG_PROFILE].text ? r : 0;
    r = env_file_read(c, path, true, &env, err);
    if (r == 0)
        r = toml_file_read(c, &toml, err);
    if (r == 0)
        r = take_home(c, &env, &toml, err);
    toml_done(&toml.toml);
    env_file_done(&env);
    return r;
}

/* ---- the service on this machine ---- */

/* The value that keeps the local service out, NULL = none: key, base URL and domain come from one source. */
static const struct config_value *find_other_source(const abx_config *c)
{
    static const int rows[] = { CONFIG_API_KEY, CONFIG_BASE_URL, CONFIG_DOMAIN };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (c->values[rows[i]].text)
            return &c->values[rows[i]];
    if (c->values[CONFIG_ACCESS_KEY_ID].text &&
        strcmp(c->values[CONFIG_ACCESS_KEY_ID].origin, "option") == 0)
        return &c->values[CONFIG_ACCESS_KEY_ID];
    return NULL;
}

static int take_local_service(abx_config *c, struct abx_err *err)
{
    const struct config_value *other = find_other_source(c);
    struct local_service s = { 0 };
    char origin[PATH_MAX + 32];
    int64_t is_debug = 0;
    int r;

    if (c->values[CONFIG_DEBUG].text)
        (void)config_row_parse(&config_rows[CONFIG_DEBUG], c->values[CONFIG_DEBUG].text, &is_debug,
                               NULL);
    if (is_debug)
        return 0;
    if (other) {
        (void)snprintf(origin, sizeof origin, "the service on this machine is not asked: %s (%s)",
                       config_rows[other - c->values].key.name, other->origin);
        return add_hint(c, origin, err);
    }
    r = local_service_find(&s, err);
    if (r == 0 && s.refusal)
        r = add_hint(c, s.refusal, err);
    if (r == 0 && s.api_key) {
        (void)snprintf(origin, sizeof origin, "local service %s", s.path);
        r = config_take(c, CONFIG_API_KEY, slice_str(s.api_key), origin, 0, err);
        if (r == 0)
            r = config_take(c, CONFIG_BASE_URL, slice_str(s.base_url), origin, 0, err);
        if (r == 0)
            r = config_take(c, CONFIG_DOMAIN, slice_str(s.domain), origin, 0, err);
        c->local_service = TAKE_PTR(s.path);
    }
    local_service_done(&s);
    return r;
}

int config_take_files(abx_config *c, struct abx_err *err)
{
    char here[PATH_MAX], path[PATH_MAX + 8];
    bool is_there;
    int r;

    (void)snprintf(path, sizeof path, "%s/.env", getcwd(here, sizeof here) ? here : ".");
    r = take_env_file(c, path, false, &is_there, err);
    if (r == 0)
        r = take_home_files(c, err);
    return r == 0 ? take_local_service(c, err) : r;
}
