/* template.c - see template.h. */
#include "engine/template.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

#define JSON_MAX ((size_t)256 << 10)
#define TEMPLATES_MAX 4096u

/* --- JSON: a flat object ------------------------------------------------------------------------ */

struct scan {
    const uint8_t *p, *end;
};

static void skip_space(struct scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
        s->p++;
}

static bool take_byte(struct scan *s, uint8_t c)
{
    skip_space(s);
    if (s->p == s->end || *s->p != c)
        return false;
    s->p++;
    return true;
}

/* A string without escapes other than \" \\ \/ : our builder writes no others. NULL `to` skips it,
 * else it has to fit. */
static bool take_string(struct scan *s, char *to, size_t size)
{
    const uint8_t *begin;
    size_t n = 0;

    if (!take_byte(s, '"'))
        return false;
    begin = s->p;
    while (s->p < s->end && *s->p != '"') {
        uint8_t c = *s->p++;

        if (c < 0x20)
            return false;
        if (c == '\\') {
            if (s->p == s->end || (*s->p != '"' && *s->p != '\\' && *s->p != '/'))
                return false;
            c = *s->p++;
        }
        if (to && n + 1 >= size)
            return false;
        if (to)
            to[n++] = (char)c;
    }
    if (s->p == s->end || !utf8_is_valid(slice_of(begin, (size_t)(s->p - begin))))
        return false;
    s->p++;
    if (to)
        to[n] = '\0';
    return true;
}

static bool take_number(struct scan *s, uint64_t *ret)
{
    const uint8_t *begin;

    skip_space(s);
    begin = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
        s->p++;
    if (s->p - begin > 1 && *begin == '0')
        return false;
    return str_parse_u64(slice_of(begin, (size_t)(s->p - begin)), INT64_MAX, ret);
}

static bool skip_array(struct scan *s)
{
    if (take_byte(s, ']'))
        return true;
    do {
        if (!take_string(s, NULL, 0))
            return false;
    } while (take_byte(s, ','));
    return take_byte(s, ']');
}

static bool take_value(struct scan *s, const char *key, struct template *t)
{
    const struct {
        const char *key;
        char *to;
        size_t size;
    } texts[] = {
        { "name", t->name, sizeof t->name },
        { "digest", t->digest, sizeof t->digest },
        { "suite", t->suite, sizeof t->suite },
        { "default_user", t->default_user, sizeof t->default_user },
        { "default_workdir", t->default_workdir, sizeof t->default_workdir },
    };
    char created[64];
    uint64_t number;
    int64_t ns;

    skip_space(s);
    if (s->p == s->end)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        if (strcmp(key, texts[i].key) == 0)
            return take_string(s, texts[i].to, texts[i].size);
    if (strcmp(key, "created") == 0) {
        if (!take_string(s, created, sizeof created) ||
            !time_parse_rfc3339(slice_str(created), &ns))
            return false;
        t->created_ms = ns / NSEC_PER_MSEC;
        return true;
    }
    if (strcmp(key, "size_bytes") == 0)
        return take_number(s, &t->size_bytes);
    if (*s->p == '"')
        return take_string(s, NULL, 0);
    return take_byte(s, '[') ? skip_array(s) : take_number(s, &number);
}

bool template_decode(struct slice json, struct template *ret)
{
    struct scan s = { json.p, json.p + json.n };
    struct template t = { 0 };
    char key[64];

    if (!take_byte(&s, '{'))
        return false;
    do {
        if (!take_string(&s, key, sizeof key) || !take_byte(&s, ':') || !take_value(&s, key, &t))
            return false;
    } while (take_byte(&s, ','));
    if (!take_byte(&s, '}'))
        return false;
    skip_space(&s);
    if (s.p != s.end || t.name[0] == '\0' || t.digest[0] == '\0')
        return false;
    *ret = t;
    return true;
}

/* --- folders ------------------------------------------------------------------------------------ */

/* False: not a template. */
static bool read_template(const char *dir, const char *name, struct template *ret)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(JSON_MAX);
    char path[TEMPLATE_PATH_SIZE];
    struct stat st;

    if (snprintf(path, sizeof path, "%s/%s/template.json", dir, name) >= (int)sizeof path ||
        strlen(name) >= sizeof ret->folder)
        return false;
    if (file_read(AT_FDCWD, path, &b, NULL) < 0 || !template_decode(buf_slice(&b), ret))
        return false;
    (void)snprintf(ret->folder, sizeof ret->folder, "%s", name);
    if (snprintf(ret->rootfs, sizeof ret->rootfs, "%s/%s/rootfs", dir, name) >=
        (int)sizeof ret->rootfs)
        return false;
    return stat(ret->rootfs, &st) == 0 && S_ISDIR(st.st_mode);
}

static int scan_dir(struct templates *t, const char *dir, struct abx_err *err)
{
    _cleanup_(closedirp) DIR *d = opendir(dir);
    struct dirent *e;

    if (!d)
        return errno == ENOENT ? 0 : err_sys(err, errno, "open '%s'", dir);
    while ((errno = 0, e = readdir(d)) != NULL) {
        struct template one, *more;

        if (e->d_name[0] == '.' || !read_template(dir, e->d_name, &one))
            continue;
        if (t->n >= TEMPLATES_MAX)
            return err_set(err, ABX_RESOURCE_EXHAUSTED, "over %u templates", TEMPLATES_MAX);
        more = reallocarray(t->list, t->n + 1, sizeof *more);
        if (!more)
            return err_oom(err);
        t->list = more;
        t->list[t->n++] = one;
    }
    return errno ? err_sys(err, errno, "read '%s'", dir) : 0;
}

static int compare(const void *a, const void *b)
{
    const struct template *x = a, *y = b;
    int c = strcmp(x->name, y->name);

    if (c != 0)
        return c;
    return x->created_ms == y->created_ms ? strcmp(x->folder, y->folder)
                                          : (x->created_ms < y->created_ms ? 1 : -1);
}

int templates_scan(struct templates *t, const char *path, struct abx_err *err)
{
    struct templates fresh = { 0 };

    while (*path) {
        size_t n = strcspn(path, ":");
        char dir[TEMPLATE_PATH_SIZE];
        int r;

        if (n >= sizeof dir || (n > 0 && path[0] != '/')) {
            templates_done(&fresh);
            return err_set(err, ABX_INVALID_ARGUMENT, "template folder '%.200s'", path);
        }
        memcpy(dir, path, n);
        dir[n] = '\0';
        r = n > 0 ? scan_dir(&fresh, dir, err) : 0;
        if (r < 0) {
            templates_done(&fresh);
            return r;
        }
        path += n + (path[n] == ':');
    }
    if (fresh.n > 1)
        qsort(fresh.list, fresh.n, sizeof *fresh.list, compare);
    templates_done(t);
    *t = fresh;
    return 0;
}

void templates_done(struct templates *t)
{
    free(t->list);
    *t = (struct templates){ 0 };
}

const struct template *templates_find(const struct templates *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->list[i].folder, name) == 0 || strcmp(t->list[i].digest, name) == 0)
            return &t->list[i];
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->list[i].name, name) == 0)
            return &t->list[i];
    return NULL;
}
