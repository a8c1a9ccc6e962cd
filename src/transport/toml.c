/* toml.c - tables and keys; values are in toml_value.c. See toml.h. */
#include "transport/toml.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "transport/toml_value.h"

void toml_skip_spaces(struct toml_reader *r)
{
    while (toml_peek(r) == ' ' || toml_peek(r) == '\t')
        r->at++;
}

bool toml_skip_newline(struct toml_reader *r)
{
    if (toml_peek(r) == '\r' && r->at + 1 < r->text.n && r->text.p[r->at + 1] == '\n')
        r->at++;
    if (toml_peek(r) != '\n')
        return false;
    r->at++;
    r->line++;
    return true;
}

int toml_skip_comment(struct toml_reader *r, struct abx_err *err)
{
    if (toml_peek(r) != '#')
        return 0;
    while (toml_peek(r) >= 0 && toml_peek(r) != '\n') {
        int c = toml_peek(r);

        if (c == '\r' && r->at + 1 < r->text.n && r->text.p[r->at + 1] == '\n')
            return 0;
        if ((c < ' ' && c != '\t') || c == 0x7f)
            return toml_fail(r, err, "a comment has a control character");
        r->at++;
    }
    return 0;
}

/* Nothing but a comment up to the end of the line. */
static int end_line(struct toml_reader *r, const char *behind, struct abx_err *err)
{
    int result;

    toml_skip_spaces(r);
    result = toml_skip_comment(r, err);
    if (result < 0)
        return result;
    if (toml_peek(r) < 0 || toml_skip_newline(r))
        return 0;
    return toml_fail(r, err, "something stands behind %s", behind);
}

/* ---- paths ---- */

static bool is_bare(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

static int read_segment(struct toml_reader *r, struct buf *to, struct abx_err *err)
{
    int c = toml_peek(r);
    size_t start = r->at;
    size_t before = to->len;
    int result = 0;

    if (c == '"' || c == '\'') {
        struct slice ahead = slice_of(r->text.p + r->at, r->text.n - r->at);

        if (slice_starts_with(ahead, "\"\"\"") || slice_starts_with(ahead, "'''"))
            return toml_fail(r, err, "a key may not be a string of several lines");
        result = toml_read_string(r, to, err);
    } else {
        while (is_bare(toml_peek(r)))
            r->at++;
        if (r->at == start)
            return toml_fail(r, err, "a key is missing");
        result = toml_append(r, to, slice_of(r->text.p + start, r->at - start), err);
    }
    for (size_t i = before; result == 0 && i < to->len; i++)
        if (buf_data(to)[i] < ' ' || buf_data(to)[i] == 0x7f)
            return toml_fail(r, err, "a key with a control character is not supported");
    return result;
}

/* a."b c".d: appends all segments; `*ret_last` is where the last one begins, `*ret_count` how many. */
static int read_path(struct toml_reader *r, struct buf *to, size_t *ret_last, size_t *ret_count,
                     struct abx_err *err)
{
    *ret_count = 0;
    for (;;) {
        int result;

        toml_skip_spaces(r);
        *ret_last = to->len;
        result = read_segment(r, to, err);
        if (result < 0)
            return result;
        ++*ret_count;
        toml_skip_spaces(r);
        if (toml_peek(r) != '.')
            return 0;
        r->at++;
        result = toml_append(r, to, SLICE_LIT(TOML_SEP), err);
        if (result < 0)
            return result;
    }
}

/* ---- what is defined ---- */

const struct toml_key *toml_find(const struct toml *t, const char *path, const char *name)
{
    for (size_t i = 0; i < t->key_count; i++)
        if (strcmp(t->keys[i].name, name) == 0 && strcmp(t->keys[i].path, path) == 0)
            return &t->keys[i];
    return NULL;
}

static struct toml_table *find_table(const struct toml *t, const char *path)
{
    for (size_t i = 0; i < t->table_count; i++)
        if (strcmp(t->tables[i].path, path) == 0)
            return &t->tables[i];
    return NULL;
}

const struct toml_table *toml_find_table(const struct toml *t, const char *path)
{
    return find_table(t, path);
}

/* Is `path` a key with a value? */
static bool is_key(const struct toml *t, const char *path)
{
    for (size_t i = 0; i < t->key_count; i++) {
        const struct toml_key *k = &t->keys[i];
        size_t n = strlen(k->path);

        if (n == 0 ? strcmp(path, k->name) == 0
                   : strncmp(path, k->path, n) == 0 && path[n] == TOML_SEP[0] &&
                         strcmp(path + n + 1, k->name) == 0)
            return true;
    }
    return false;
}

static int add_table(struct toml *t, struct toml_reader *r, const char *path,
                     struct toml_table **ret, struct abx_err *err)
{
    struct toml_table *more;

    if (t->table_count == TOML_KEYS_MAX)
        return toml_fail(r, err, "more than %u tables", TOML_KEYS_MAX);
    more = reallocarray(t->tables, t->table_count + 1, sizeof *more);
    if (!more)
        return err_oom(err);
    t->tables = more;
    more[t->table_count] = (struct toml_table){ .path = strdup(path), .end = r->at };
    if (!more[t->table_count].path)
        return err_oom(err);
    *ret = &more[t->table_count++];
    return 0;
}

/* The tables above `path` (behind its first `from` bytes) exist or are made; none of them is a key. A dotted key
 * may not reach into what a header made. */
static int add_parents(struct toml *t, struct toml_reader *r, const char *path, size_t from,
                       bool is_dotted, struct abx_err *err)
{
    char copy[TOML_PATH_MAX + 1];

    (void)memccpy(copy, path, '\0', sizeof copy);
    for (size_t i = from; copy[i]; i++) {
        struct toml_table *table;
        int result = 0;

        if (copy[i] != TOML_SEP[0])
            continue;
        copy[i] = '\0';
        table = find_table(t, copy);
        if (is_key(t, copy))
            return toml_fail(r, err, "a key with a value is used as a table");
        if (table && is_dotted && !table->is_dotted)
            return toml_fail(r, err, "a table is extended by a dotted key elsewhere");
        if (!table) {
            result = add_table(t, r, copy, &table, err);
            if (result == 0)
                table->is_dotted = is_dotted;
        }
        if (result < 0)
            return result;
        copy[i] = TOML_SEP[0];
    }
    return 0;
}

/* ---- lines ---- */

/* "[a.b]": sets the current path to it. */
static int read_header(struct toml_reader *r, struct toml *t, struct buf *path, struct abx_err *err)
{
    struct toml_table *table;
    const char *name;
    size_t last, count;
    int result;

    r->at++;
    if (toml_peek(r) == '[')
        return toml_fail(r, err, "arrays of tables ([[...]]) are not supported");
    buf_reset(path);
    result = read_path(r, path, &last, &count, err);
    if (result < 0)
        return result;
    if (toml_peek(r) != ']')
        return toml_fail(r, err, "the name of a table does not end with ']'");
    r->at++;
    name = buf_cstr(path);
    if (!name)
        return err_oom(err);
    result = add_parents(t, r, name, 0, false, err);
    if (result < 0)
        return result;
    if (is_key(t, name))
        return toml_fail(r, err, "a key with a value is used as a table");
    table = find_table(t, name);
    if (table && (table->is_header || table->is_dotted))
        return toml_fail(r, err, "a table is defined twice");
    if (!table) {
        result = add_table(t, r, name, &table, err);
        if (result < 0)
            return result;
    }
    table->is_header = true;
    t->current = (size_t)(table - t->tables);
    result = end_line(r, "the name of a table", err);
    t->tables[t->current].end = r->at;
    return result;
}

static int add_key(struct toml_reader *r, struct toml *t, const char *full, size_t last,
                   struct toml_key *key, struct abx_err *err)
{
    struct toml_key *more;

    if (t->key_count == TOML_KEYS_MAX)
        return toml_fail(r, err, "more than %u keys", TOML_KEYS_MAX);
    more = reallocarray(t->keys, t->key_count + 1, sizeof *more);
    if (!more)
        return err_oom(err);
    t->keys = more;
    key->path = slice_dup(slice_of(full, last > 0 ? last - 1 : 0));
    key->name = strdup(full + last);
    if (!key->path || !key->name)
        return err_oom(err);
    more[t->key_count++] = *key;
    *key = (struct toml_key){ 0 };
    return 0;
}

/* "a.b = value", with the path of the current table in front of `full`. */
static int read_pair(struct toml_reader *r, struct toml *t, struct buf *full, struct toml_key *key,
                     struct abx_err *err)
{
    const char *prefix = t->tables[t->current].path;
    size_t last, count, from = strlen(prefix);
    int result = 0;

    key->line = r->line;
    key->line_start = r->at;
    if (from > 0) {
        result = toml_append(r, full, slice_str(prefix), err);
        if (result == 0)
            result = toml_append(r, full, SLICE_LIT(TOML_SEP), err);
        from++;
    }
    if (result == 0)
        result = read_path(r, full, &last, &count, err);
    if (result < 0)
        return result;
    if (!buf_cstr(full))
        return err_oom(err);
    if (toml_peek(r) != '=')
        return toml_fail(r, err, "'=' is missing behind a key");
    r->at++;
    toml_skip_spaces(r);
    result = add_parents(t, r, buf_cstr(full), from, true, err);
    if (result < 0)
        return result;
    if (is_key(t, buf_cstr(full)))
        return toml_fail(r, err, "a key is defined twice");
    if (find_table(t, buf_cstr(full)))
        return toml_fail(r, err, "a table is used as a key");
    key->value_start = r->at;
    result = toml_read_value(r, &key->type, &key->text, err);
    if (result < 0)
        return result;
    key->value_end = r->at;
    result = end_line(r, "a value", err);
    if (result < 0)
        return result;
    key->line_end = r->at;
    t->tables[t->current].end = r->at;
    return add_key(r, t, buf_cstr(full), last, key, err);
}

static int read_lines(struct toml_reader *r, struct toml *t, struct buf *path, struct abx_err *err)
{
    int result = 0;

    while (result == 0 && toml_peek(r) >= 0) {
        size_t start = r->at;

        toml_skip_spaces(r);
        if (toml_peek(r) == '[') {
            result = read_header(r, t, path, err);
        } else if (toml_peek(r) == '#' || toml_peek(r) == '\n' || toml_peek(r) == '\r' ||
                   toml_peek(r) < 0) {
            result = end_line(r, "a line", err);
        } else {
            struct toml_key key = { 0 };

            r->at = start;
            buf_reset(path);
            result = read_pair(r, t, path, &key, err);
            free(key.path);
            free(key.name);
            free(key.text);
        }
    }
    return result;
}

int toml_parse(struct slice text, struct toml *ret, struct abx_err *err)
{
    struct toml_reader r = { .text = text, .line = 1 };
    struct buf path = BUF_INIT(TOML_PATH_MAX);
    struct toml_table *top;
    int result;

    *ret = (struct toml){ 0 };
    if (text.n > TOML_MAX)
        return err_set(err, ABX_RESOURCE_EXHAUSTED, "more than %u bytes", TOML_MAX);
    if (!utf8_is_valid(text))
        return err_set(err, ABX_INVALID_ARGUMENT, "is not UTF-8");
    if (slice_starts_with(text, "\xef\xbb\xbf"))
        r.at = 3;
    result = add_table(ret, &r, "", &top, err);
    if (result == 0)
        result = read_lines(&r, ret, &path, err);
    buf_done(&path);
    return result;
}

void toml_done(struct toml *t)
{
    for (size_t i = 0; i < t->key_count; i++) {
        free(t->keys[i].path);
        free(t->keys[i].name);
        free(t->keys[i].text);
    }
    for (size_t i = 0; i < t->table_count; i++)
        free(t->tables[i].path);
    free(t->keys);
    free(t->tables);
    *t = (struct toml){ 0 };
}
