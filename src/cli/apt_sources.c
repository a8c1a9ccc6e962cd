/* apt_sources.c - see apt_sources.h. Formats: sources.list(5), deb822 of apt 2.x. */
#include "cli/apt_sources.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"

#define SOURCES_FILE_MAX (1024 * 1024)
#define SOURCES_COUNT_MAX 4096

static void apt_source_done(struct apt_source *src)
{
    free(src->uri);
    free(src->suite);
    free(src->components);
    free(src->signed_by);
    free(src->archs);
}

void apt_sources_done(struct apt_sources *s)
{
    for (size_t i = 0; i < s->count; i++) {
        apt_source_done(&s->items[i]);
    }
    free(s->items);
    *s = (struct apt_sources){ 0 };
}

static bool is_space(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Takes the next word off the front; empty at the end. Lines after the first that begin with '#' are
 * comments inside a deb822 value. */
static struct slice word_next(struct slice *s)
{
    if (s->n == 0)
        return *s;

    const uint8_t *p = s->p, *end = p + s->n;
    bool is_line_start = false;

    while (p < end && (is_space(*p) || (is_line_start && *p == '#'))) {
        if (*p == '#') {
            const uint8_t *newline = memchr(p, '\n', (size_t)(end - p));
            p = newline ? newline : end;
            continue;
        }
        is_line_start = *p == '\n';
        p++;
    }
    struct slice word = slice_of(p, 0);
    while (p + word.n < end && !is_space(p[word.n])) {
        word.n++;
    }
    *s = slice_of(p + word.n, (size_t)(end - p) - word.n);
    return word;
}

static struct slice line_next(struct slice *s)
{
    const uint8_t *end = s->n > 0 ? memchr(s->p, '\n', s->n) : NULL;
    struct slice line = slice_of(s->p, end ? (size_t)(end - s->p) : s->n);
    size_t used = line.n + (end ? 1 : 0);

    *s = slice_of(s->p + used, s->n - used);
    return line;
}

/* The words of `s`, also parted by `mark`, with single spaces between; NULL when out of memory. */
static char *words_join(struct slice s, char mark)
{
    char *text = malloc(s.n + 1);
    size_t n = 0;

    if (!text)
        return NULL;
    for (struct slice w = word_next(&s); w.n > 0; w = word_next(&s)) {
        for (size_t i = 0; i <= w.n; i++) {
            bool is_gap = i == w.n || w.p[i] == (uint8_t)mark;

            if (!is_gap)
                text[n++] = (char)w.p[i];
            else if (n > 0 && text[n - 1] != ' ')
                text[n++] = ' ';
        }
    }
    if (n > 0 && text[n - 1] == ' ')
        n--;
    text[n] = '\0';
    return text;
}

/* Borrowed fields of one entry. */
struct entry {
    struct slice uri, suite, components, signed_by, archs;
};

static int sources_add(struct apt_sources *s, const struct entry *e, struct abx_err *err)
{
    if (s->count >= SOURCES_COUNT_MAX)
        return err_set(err, ABX_RESOURCE_EXHAUSTED, "more than %d apt entries", SOURCES_COUNT_MAX);

    struct apt_source *grown = reallocarray(s->items, s->count + 1, sizeof *grown);
    if (!grown)
        return err_oom(err);
    s->items = grown;

    struct apt_source src = {
        .uri = slice_dup(e->uri),
        .suite = slice_dup(e->suite),
        .components = words_join(e->components, ' '),
        .signed_by = slice_dup(e->signed_by),
        .archs = words_join(e->archs, ','),
    };
    if (!src.uri || !src.suite || !src.components || !src.signed_by || !src.archs) {
        apt_source_done(&src);
        return err_oom(err);
    }
    s->items[s->count++] = src;
    return 0;
}

/* Options of a one-line entry: `rest` stands behind the opening bracket and is moved behind the
 * closing one. */
static bool list_options(struct slice *rest, struct entry *e)
{
    const uint8_t *end = rest->n > 0 ? memchr(rest->p, ']', rest->n) : NULL;
    if (!end)
        return false;

    struct slice options = slice_of(rest->p, (size_t)(end - rest->p));
    *rest = slice_of(end + 1, rest->n - options.n - 1);
    for (struct slice w = word_next(&options); w.n > 0; w = word_next(&options)) {
        if (slice_starts_with(w, "signed-by="))
            e->signed_by = slice_of(w.p + 10, w.n - 10);
        else if (slice_starts_with(w, "arch="))
            e->archs = slice_of(w.p + 5, w.n - 5);
    }
    return true;
}

static int list_line(struct apt_sources *s, struct slice line, const char *name, unsigned number,
                     struct abx_err *err)
{
    const uint8_t *comment = line.n > 0 ? memchr(line.p, '#', line.n) : NULL;
    struct entry e = { 0 };

    if (comment)
        line.n = (size_t)(comment - line.p);
    struct slice type = word_next(&line);
    if (type.n == 0 || slice_eq_str(type, "deb-src"))
        return 0;
    if (!slice_eq_str(type, "deb"))
        return err_set(err, ABX_INVALID_ARGUMENT, "%s:%u: unknown type of entry", name, number);
    line = slice_trim(line);
    if (slice_starts_with(line, "[")) {
        line = slice_of(line.p + 1, line.n - 1);
        if (!list_options(&line, &e))
            return err_set(err, ABX_INVALID_ARGUMENT, "%s:%u: '[' without ']'", name, number);
    }
    e.uri = word_next(&line);
    if (slice_starts_with(e.uri, "cdrom:"))
        return 0;
    e.suite = word_next(&line);
    e.components = slice_trim(line);
    if (e.uri.n == 0 || e.suite.n == 0)
        return err_set(err, ABX_INVALID_ARGUMENT, "%s:%u: no URI or suite", name, number);
    return sources_add(s, &e, err);
}

int apt_sources_parse_list(struct apt_sources *s, struct slice text, const char *name,
                           struct abx_err *err)
{
    for (unsigned number = 1; text.n > 0; number++) {
        int r = list_line(s, line_next(&text), name, number, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* One deb822 stanza being read. The value of a field may go on over several lines; all of them are
 * one stretch of the text, comment lines inside it included. */
struct stanza {
    struct slice types, uris, suites, enabled;
    struct entry e;
    struct slice *field; /* the field that a continuation line belongs to; NULL = one we skip */
    bool is_open;
};

static struct slice *stanza_field(struct stanza *st, struct slice name)
{
    const struct {
        const char *name;
        struct slice *value;
    } fields[] = {
        { "Types", &st->types },           { "URIs", &st->uris },
        { "Suites", &st->suites },         { "Components", &st->e.components },
        { "Architectures", &st->e.archs }, { "Signed-By", &st->e.signed_by },
        { "Enabled", &st->enabled },
    };

    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        if (slice_ieq_str(name, fields[i].name))
            return fields[i].value;
    }
    return NULL;
}

static bool has_word(struct slice text, const char *word)
{
    for (struct slice w = word_next(&text); w.n > 0; w = word_next(&text)) {
        if (slice_eq_str(w, word))
            return true;
    }
    return false;
}

static int stanza_close(struct apt_sources *s, struct stanza *st, const char *name,
                        struct abx_err *err)
{
    struct stanza done = *st;
    bool is_off = slice_ieq_str(done.enabled, "no") || slice_ieq_str(done.enabled, "false") ||
                  slice_ieq_str(done.enabled, "off") || slice_eq_str(done.enabled, "0");

    *st = (struct stanza){ 0 };
    if (!done.is_open || is_off || !has_word(done.types, "deb"))
        return 0;
    if (done.uris.n == 0 || done.suites.n == 0)
        return err_set(err, ABX_INVALID_ARGUMENT, "%s: entry without URIs or Suites", name);
    if (done.e.signed_by.n > 0 && memchr(done.e.signed_by.p, '\n', done.e.signed_by.n))
        done.e.signed_by = SLICE_LIT("-");
    for (struct slice u = done.uris, uri = word_next(&u); uri.n > 0; uri = word_next(&u)) {
        for (struct slice v = done.suites, suite = word_next(&v); suite.n > 0;
             suite = word_next(&v)) {
            done.e.uri = uri;
            done.e.suite = suite;
            int r = sources_add(s, &done.e, err);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

static int deb822_line(struct stanza *st, struct slice line, const char *name, unsigned number,
                       struct abx_err *err)
{
    if (is_space(*line.p)) {
        if (!st->is_open)
            return err_set(err, ABX_INVALID_ARGUMENT, "%s:%u: value without a field", name, number);
        if (st->field)
            st->field->n = (size_t)(line.p + line.n - st->field->p);
        return 0;
    }

    const uint8_t *colon = memchr(line.p, ':', line.n);
    if (!colon)
        return err_set(err, ABX_INVALID_ARGUMENT, "%s:%u: no ':'", name, number);
    struct slice field = slice_of(line.p, (size_t)(colon - line.p));
    st->is_open = true;
    st->field = stanza_field(st, slice_trim(field));
    if (st->field)
        *st->field = slice_trim(slice_of(colon + 1, line.n - field.n - 1));
    return 0;
}

int apt_sources_parse_deb822(struct apt_sources *s, struct slice text, const char *name,
                             struct abx_err *err)
{
    struct stanza st = { 0 };
    int r;

    for (unsigned number = 1; text.n > 0; number++) {
        struct slice line = line_next(&text);
        struct slice rest = line;

        if (line.n > 0 && *line.p == '#')
            continue;
        if (word_next(&rest).n == 0)
            r = stanza_close(s, &st, name, err);
        else
            r = deb822_line(&st, line, name, number, err);
        if (r < 0)
            return r;
    }
    return stanza_close(s, &st, name, err);
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n > m && strcmp(s + n - m, end) == 0;
}

static int load_file(struct apt_sources *s, int dirfd, const char *name, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(SOURCES_FILE_MAX);
    int r;

    if (faccessat(dirfd, name, F_OK, 0) < 0 && errno == ENOENT)
        return 0;
    r = file_read(dirfd, name, &text, err);
    if (r < 0)
        return r;
    return ends_with(name, ".sources") ? apt_sources_parse_deb822(s, buf_slice(&text), name, err)
                                       : apt_sources_parse_list(s, buf_slice(&text), name, err);
}

static int is_source_file(const struct dirent *d)
{
    return d->d_name[0] != '.' &&
           (ends_with(d->d_name, ".list") || ends_with(d->d_name, ".sources"));
}

static int load_parts(struct apt_sources *s, int dirfd, struct abx_err *err)
{
    struct dirent **names = NULL;
    int count = scandirat(dirfd, ".", &names, is_source_file, alphasort);
    int r = 0;

    if (count < 0)
        return err_sys(err, errno, "list sources.list.d");
    for (int i = 0; i < count; i++) {
        if (r == 0)
            r = load_file(s, dirfd, names[i]->d_name, err);
        free(names[i]);
    }
    free(names);
    return r;
}

int apt_sources_load(struct apt_sources *s, const char *etc_apt, struct abx_err *err)
{
    _cleanup_(closep) int dirfd = open(etc_apt, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    if (dirfd < 0)
        return errno == ENOENT ? 0 : err_sys(err, errno, "open '%s'", etc_apt);

    int r = load_file(s, dirfd, "sources.list", err);
    if (r < 0)
        return r;
    _cleanup_(closep) int parts =
        openat(dirfd, "sources.list.d", O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    if (parts < 0)
        return errno == ENOENT ? 0 : err_sys(err, errno, "open '%s/sources.list.d'", etc_apt);
    return load_parts(s, parts, err);
}

static void os_value(struct slice value, char *to, size_t size)
{
    value = slice_trim(value);
    if (value.n >= 2 && (*value.p == '"' || *value.p == '\'') && value.p[value.n - 1] == *value.p)
        value = slice_of(value.p + 1, value.n - 2);
    if (value.n < size) {
        memcpy(to, value.p, value.n);
        to[value.n] = '\0';
    }
}

int os_release_parse(struct slice text, struct os_release *ret, struct abx_err *err)
{
    struct os_release os = { 0 };

    while (text.n > 0) {
        struct slice line = line_next(&text);

        if (slice_starts_with(line, "ID="))
            os_value(slice_of(line.p + 3, line.n - 3), os.id, sizeof os.id);
        else if (slice_starts_with(line, "VERSION_CODENAME="))
            os_value(slice_of(line.p + 17, line.n - 17), os.codename, sizeof os.codename);
    }
    if (strcmp(os.id, "debian") != 0 && strcmp(os.id, "ubuntu") != 0)
        return err_set(err, ABX_FAILED_PRECONDITION,
                       "this machine is neither Debian nor Ubuntu (os-release: ID=%s)", os.id);
    *ret = os;
    return 0;
}

const char *apt_native_arch(void)
{
#if defined(__x86_64__)
    return "amd64";
#elif defined(__aarch64__)
    return "arm64";
#else
#error "Debian's name of this architecture is not known here"
#endif
}

/* A key that the distribution's own keyring package installs. */
static bool is_archive_key(const char *path)
{
    const char *name = strrchr(path, '/');

    if (path[0] == '\0')
        return true;
    return name && (strncmp(name, "/debian-archive-", 16) == 0 ||
                    strncmp(name, "/ubuntu-archive-", 16) == 0);
}

const char *apt_source_components(const struct apt_source *src, const struct os_release *os)
{
    bool has_main = has_word(slice_str(src->components), "main");
    bool has_universe =
        strcmp(os->id, "ubuntu") == 0 && has_word(slice_str(src->components), "universe");

    if (has_main)
        return has_universe ? "main universe" : "main";
    return has_universe ? "universe" : "";
}

const char *apt_source_suffix(const struct apt_source *src, const struct os_release *os)
{
    static const char *const suffixes[] = { "", "-updates", "-security" };
    const char *const bases[] = { os->codename, "stable", "oldstable", "testing" };

    if (os->codename[0] == '\0' || !is_archive_key(src->signed_by) ||
        apt_source_components(src, os)[0] == '\0')
        return NULL;
    if (src->archs[0] != '\0' && !has_word(slice_str(src->archs), apt_native_arch()))
        return NULL;
    for (size_t b = 0; b < ARRAY_SIZE(bases); b++) {
        size_t n = strlen(bases[b]);

        if (strncmp(src->suite, bases[b], n) != 0)
            continue;
        for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
            if (strcmp(src->suite + n, suffixes[i]) == 0)
                return suffixes[i];
        }
    }
    return NULL;
}

char *apt_uri_public(const char *uri)
{
    const char *host = strstr(uri, "://");
    if (!host)
        return strdup(uri);

    host += 3;
    size_t authority = strcspn(host, "/");
    const char *at = memrchr(host, '@', authority);
    char *public = malloc(strlen(uri) + 1);
    if (!public)
        return NULL;
    size_t scheme = (size_t)(host - uri);
    const char *rest = at ? at + 1 : host;
    memcpy(public, uri, scheme);
    memcpy(public + scheme, rest, strlen(rest) + 1);
    return public;
}
