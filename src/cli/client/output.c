/* output.c - see output.h. */
#include "cli/client/output.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#include "base/buf.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/json_out.h"

/* ---- text ---- */

/* Length of the character at the start of `s`, 0 when it is to be escaped: C0, DEL, C1 and what is no UTF-8. */
static size_t plain_length(struct slice s)
{
    size_t n = utf8_length(s);

    if (n == 0 || s.p[0] < 0x20 || s.p[0] == 0x7f)
        return 0;
    if (n == 2 && s.p[0] == 0xc2 && s.p[1] < 0xa0)
        return 0;
    return n;
}

char *output_clean(const char *text)
{
    struct slice s = slice_str(text ? text : "-");
    struct buf b = BUF_INIT(SIZE_MAX / 2);
    const char *made;

    while (s.n > 0) {
        size_t n = plain_length(s);
        enum buf_status r =
            n > 0 ? buf_append(&b, s.p, n) : buf_printf(&b, "\\x%02x", (unsigned)s.p[0]);

        if (r != BUF_OK) {
            buf_done(&b);
            return NULL;
        }
        n += n == 0;
        s = slice_of(s.p + n, s.n - n);
    }
    made = buf_cstr(&b);
    made = made ? strdup(made) : NULL;
    buf_done(&b);
    return (char *)(uintptr_t)made;
}

void output_text(FILE *to, const char *text)
{
    _cleanup_(freep) char *clean = output_clean(text);

    (void)fputs(clean ? clean : "(out of memory)", to);
}

bool output_has_colour(int fd)
{
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");

    return (!none || *none == '\0') && term && *term && strcmp(term, "dumb") != 0 && isatty(fd);
}

/* ---- ends ---- */

int output_end(void)
{
    return cli_end(0);
}

int output_json(json_t *document)
{
    int r;

    if (!document) {
        (void)fputs("abx: out of memory\n", stderr);
        return 1;
    }
    r = json_put(document, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY);
    json_decref(document);
    if (r < 0)
        (void)fputs("abx: the result is no JSON\n", stderr);
    (void)fputc('\n', stdout);
    return output_end() != 0 || r < 0;
}

/* What is no UTF-8 becomes U+FFFD. */
static json_t *text_of(struct slice s)
{
    struct buf b = BUF_INIT(SIZE_MAX / 2);
    json_t *made;

    if (utf8_is_valid(s))
        return json_stringn((const char *)s.p, s.n);
    while (s.n > 0) {
        size_t n = utf8_length(s);

        (void)(n > 0 ? buf_append(&b, s.p, n) : buf_append_str(&b, "\xef\xbf\xbd"));
        n += n == 0;
        s = slice_of(s.p + n, s.n - n);
    }
    made = json_stringn((const char *)buf_data(&b), b.len);
    buf_done(&b);
    return made;
}

json_t *json_text(const char *text)
{
    return text ? text_of(slice_str(text)) : json_null();
}

void json_add_bytes(json_t *object, const char *name, const void *p, size_t n)
{
    struct slice s = slice_of(n > 0 ? p : "", n);
    struct buf b = BUF_INIT(SIZE_MAX / 2);
    char key[32];

    (void)json_object_set_new(object, name, text_of(s));
    if (utf8_is_valid(s))
        return;
    (void)snprintf(key, sizeof key, "%s_base64", name);
    (void)base64_encode(&b, s, true);
    (void)json_object_set_new(object, key, json_stringn((const char *)buf_data(&b), b.len));
    buf_done(&b);
}

/* ---- values ---- */

const char *time_text(int64_t us, char to[TIME_TEXT_SIZE])
{
    time_t s = (time_t)(us / 1000000);
    struct tm tm;

    if (us == 0 || !localtime_r(&s, &tm) ||
        strftime(to, TIME_TEXT_SIZE, "%Y-%m-%d %H:%M:%S", &tm) == 0)
        (void)snprintf(to, TIME_TEXT_SIZE, "-");
    return to;
}

json_t *time_json(int64_t us)
{
    char text[RFC3339_SIZE];

    if (us == 0)
        return json_null();
    time_format_rfc3339(us / 1000, text);
    return json_string(text);
}

const char *size_text(int64_t bytes, char to[SIZE_TEXT_SIZE])
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    double v = (double)bytes;
    size_t i = 0;

    while (v >= 1024 && i + 1 < ARRAY_SIZE(units)) {
        v /= 1024;
        i++;
    }
    (void)snprintf(to, SIZE_TEXT_SIZE, i == 0 ? "%.0f %s" : "%.1f %s", v, units[i]);
    return to;
}

/* ---- tables ---- */

static void add_row(struct table *t, const char *const *cells)
{
    if (t->n_rows == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 32;
        char **grown = reallocarray(t->cells, cap * t->n_columns, sizeof *grown);

        if (!grown) {
            t->is_broken = true;
            return;
        }
        t->cells = grown;
        t->cap = cap;
    }
    for (size_t i = 0; i < t->n_columns; i++) {
        char *cell = output_clean(cells[i]);

        t->is_broken = t->is_broken || !cell;
        t->cells[t->n_rows * t->n_columns + i] = cell;
    }
    t->n_rows++;
}

void table_init(struct table *t, size_t n_columns, const char *const *headers)
{
    *t = (struct table){ .n_columns = n_columns };
    add_row(t, headers);
}

void table_add(struct table *t, const char *const *cells)
{
    add_row(t, cells);
}

/* Columns of a terminal that a text takes; its bytes when the locale does not know them. */
static size_t width_of(const char *text)
{
    wchar_t wide[512];
    size_t n = mbstowcs(wide, text, ARRAY_SIZE(wide));
    int w = n < ARRAY_SIZE(wide) ? wcswidth(wide, n) : -1;

    return w >= 0 ? (size_t)w : strlen(text);
}

/* Prints as much as fits into `room` columns, with ... at the end of what was cut. */
static void print_cut(const char *text, size_t room)
{
    struct slice s = slice_str(text);
    size_t used = 0, bytes = 0;

    if (width_of(text) <= room || room < 4) {
        (void)fputs(text, stdout);
        return;
    }
    while (bytes < s.n) {
        size_t n = MAX(utf8_length(slice_of(s.p + bytes, s.n - bytes)), (size_t)1);
        char one[8] = "";

        memcpy(one, text + bytes, n);
        used += width_of(one);
        if (used > room - 3)
            break;
        bytes += n;
    }
    (void)printf("%.*s...", (int)bytes, text);
}

static size_t terminal_width(void)
{
    struct winsize size;

    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return SIZE_MAX;
}

static void print_row(const struct table *t, size_t row, const size_t *widths, size_t room)
{
    size_t used = 0;

    for (size_t i = 0; i < t->n_columns; i++) {
        const char *cell = t->cells[row * t->n_columns + i];
        size_t width = width_of(cell);

        if (i + 1 == t->n_columns) {
            print_cut(cell, room == SIZE_MAX ? room : room > used ? room - used : 0);
            break;
        }
        (void)printf("%s%*s", cell, (int)(widths[i] - width + 2), "");
        used += widths[i] + 2;
    }
    (void)putchar('\n');
}

void table_free(struct table *t)
{
    for (size_t i = 0; i < t->n_rows * t->n_columns; i++)
        free(t->cells[i]);
    free(t->cells);
    *t = (struct table){ 0 };
}

int table_print(struct table *t)
{
    size_t widths[TABLE_COLUMNS_MAX] = { 0 };
    size_t room = terminal_width();
    bool is_bold = output_has_colour(STDOUT_FILENO);
    int r = 1;

    for (size_t i = 0; !t->is_broken && i < t->n_rows * t->n_columns; i++)
        widths[i % t->n_columns] = MAX(widths[i % t->n_columns], width_of(t->cells[i]));
    for (size_t i = 0; !t->is_broken && i < t->n_rows; i++) {
        if (i == 0 && is_bold)
            (void)fputs("\033[1m", stdout);
        print_row(t, i, widths, room);
        if (i == 0 && is_bold)
            (void)fputs("\033[0m", stdout);
    }
    if (t->is_broken)
        (void)fputs("abx: out of memory\n", stderr);
    else
        r = output_end();
    table_free(t);
    return r;
}
