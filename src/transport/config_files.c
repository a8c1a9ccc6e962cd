/* config_files.c - the layers below the process environment: ./.env, ~/.abx/.env, ~/.abx/config.toml
 * and the service on this machine.
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

static int take_dotenv(abx_config *c, const struct dotenv *d, int row, const char *name,
                       const char *origin, struct abx_err *err)
{
    const struct dotenv_line *line = name ? dotenv_find(d, name) : NULL;

    if (!line || !line->value)
        return 0;
    return config_take(c, row, slice_str(line->value), origin, line->line, err);
}

static int take_dotenv_file(abx_config *c, const char *path, bool is_ours, struct abx_err *err)
{
    struct buf text = BUF_INIT(DOTENV_MAX + 1);
    struct dotenv d = { 0 };
    char origin[PATH_MAX + 16];
    int r = read_file(c, path, &text, err);

    (void)snprintf(origin, sizeof origin, "file %s", path);
    if (r == 1) {
        r = dotenv_parse(buf_slice(&text), true, &d, err);
        if (r < 0)
            r = err_wrap(err, r, "%s", origin);
    }
    for (size_t i = 0; r == 0 && is_ours && i < d.count; i++)
        if (!d.lines[i].key)
            r = err_set(err, ABX_INVALID_ARGUMENT, "%s: line %u is not NAME=value", origin,
                        d.lines[i].line);
    for (int i = 0; i < CONFIG_COUNT && r == 0; i++) {
        r = take_dotenv(c, &d, i, config_rows[i].env_scoped, origin, err);
        if (r == 0)
            r = take_dotenv(c, &d, i, config_rows[i].key.env, origin, err);
    }
    dotenv_done(&d);
    if (text.mem)
        explicit_bzero(text.mem, text.cap);
    buf_done(&text);
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

/* A table of its own, so what is not understood is a mistake. */
static int check_profile(const struct toml *t, const char *path, const char *name,
                         const char *origin, struct abx_err *err)
{
    if (!toml_find_table(t, path))
        return err_set(err, ABX_INVALID_ARGUMENT, "%s: there is no table [profiles.%s]", origin,
                       name);
    for (size_t i = 0; i < t->key_count; i++) {
        const struct toml_key *key = &t->keys[i];
        int row = config_row_find(key->name);

        if (strcmp(key->path, path) == 0 && (row < 0 || row == CONFIG_PROFILE))
            return err_set(err, ABX_INVALID_ARGUMENT, "%s: line %u: [profiles.%s] has no key '%s'",
                           origin, key->line, name, key->name);
    }
    return 0;
}

static int take_profile(abx_config *c, const struct toml *t, const char *origin,
                        struct abx_err *err)
{
    const char *name;
    char path[128], more[PATH_MAX + 128];
    int r = take_toml(c, t, CONFIG_PROFILE, "core", origin, err);

    name = c->values[CONFIG_PROFILE].text;
    if (r < 0 || !name)
        return r;
    (void)snprintf(path, sizeof path, "profiles" TOML_SEP "%s", name);
    (void)snprintf(more, sizeof more, "%s [profiles.%s]", origin, name);
    r = check_profile(t, path, name, origin, err);
    if (r == 0)
        r = refuse_secrets(t, path, origin, err);
    for (int i = 0; i < CONFIG_COUNT && r == 0; i++)
        if (i != CONFIG_PROFILE)
            r = take_toml(c, t, i, path, more, err);
    return r;
}

static int take_tables(abx_config *c, const struct toml *t, const char *origin, struct abx_err *err)
{
    const char *provider;
    char path[128], more[PATH_MAX + 128];
    int r = take_profile(c, t, origin, err);

    if (r == 0)
        r = take_toml(c, t, CONFIG_PROVIDER, "core", origin, err);
    if (r < 0)
        return r;
    provider = c->values[CONFIG_PROVIDER].text ? c->values[CONFIG_PROVIDER].text
                                               : config_rows[CONFIG_PROVIDER].key.fallback;
    (void)snprintf(path, sizeof path, "providers" TOML_SEP "%s", provider);
    (void)snprintf(more, sizeof more, "%s [providers.%s]", origin, provider);
    r = refuse_secrets(t, path, origin, err);
    if (r == 0)
        r = refuse_secrets(t, "transport", origin, err);
    if (r == 0)
        r = refuse_secrets(t, "core", origin, err);
    for (int i = 0; i < CONFIG_COUNT && r == 0; i++) {
        if (!config_rows[i].table || i == CONFIG_PROFILE || i == CONFIG_PROVIDER)
            continue;
        r = take_toml(c, t, i, path, more, err);
        if (r == 0)
            r = take_toml(c, t, i, config_rows[i].table, origin, err);
    }
    return r;
}

static int take_toml_file(abx_config *c, const char *path, struct abx_err *err)
{
    struct buf text = BUF_INIT(TOML_MAX + 1);
    struct toml t = { 0 };
    char origin[PATH_MAX + 16];
    int r = read_file(c, path, &text, err);

    (void)snprintf(origin, sizeof origin, "file %s", path);
    if (r == 0 && c->values[CONFIG_PROFILE].text)
        r = err_set(err, ABX_INVALID_ARGUMENT, "profile '%s' (%s): there is no file %s",
                    c->values[CONFIG_PROFILE].text, c->values[CONFIG_PROFILE].origin, path);
    if (r == 1) {
        r = toml_parse(buf_slice(&text), &t, err);
        if (r < 0)
            r = err_wrap(err, r, "%s", origin);
        else
            r = take_tables(c, &t, origin, err);
    }
    toml_done(&t);
    buf_done(&text);
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
    char path[PATH_MAX], here[PATH_MAX + 8];
    int r;

    (void)snprintf(here, sizeof here, "%s/.env", getcwd(path, sizeof path) ? path : ".");
    r = take_dotenv_file(c, here, false, err);
    if (r == 0 && config_home_path(".env", path, sizeof path, NULL) == 0)
        r = take_dotenv_file(c, path, true, err);
    if (r == 0 && config_home_path("config.toml", path, sizeof path, NULL) == 0)
        r = take_toml_file(c, path, err);
    else if (r == 0 && c->values[CONFIG_PROFILE].text)
        r = config_home_path("config.toml", path, sizeof path, err);
    return r == 0 ? take_local_service(c, err) : r;
}
