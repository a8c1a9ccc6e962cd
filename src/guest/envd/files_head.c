/* files_head.c - see files_head.h. */
#include "guest/envd/files_head.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

void files_etag(uint64_t mtime_ns, uint64_t size, uint64_t inode, char to[ETAG_SIZE])
{
    (void)snprintf(to, ETAG_SIZE, "\"%" PRIx64 "-%" PRIx64 "-%" PRIx64 "\"", mtime_ns, size, inode);
}

/* Next element of a comma-separated list. */
static bool list_next(struct slice *rest, struct slice *ret)
{
    const uint8_t *comma;

    while (rest->n > 0) {
        comma = memchr(rest->p, ',', rest->n);
        *ret = slice_of(rest->p, comma ? (size_t)(comma - rest->p) : rest->n);
        *rest = comma ? slice_of(comma + 1, rest->n - ret->n - 1) : slice_of(NULL, 0);
        *ret = slice_trim(*ret);
        if (ret->n > 0)
            return true;
    }
    return false;
}

/* Ours are strong: W/"x" only matches where weak comparison is asked for. */
static bool etag_listed(struct slice list, const char *etag, bool is_weak)
{
    struct slice item;

    while (list_next(&list, &item)) {
        if (slice_eq_str(item, "*"))
            return true;
        if (is_weak && slice_starts_with(item, "W/"))
            item = slice_of(item.p + 2, item.n - 2);
        if (slice_eq_str(item, etag))
            return true;
    }
    return false;
}

enum files_condition files_conditions(const struct http1_head *head, const char *etag, time_t mtime)
{
    const struct http1_field *match = http1_head_find(head, "if-match");
    const struct http1_field *none = http1_head_find(head, "if-none-match");
    struct slice until = http1_head_value(head, "if-unmodified-since");
    struct slice since = http1_head_value(head, "if-modified-since");
    time_t t;

    if (match && !etag_listed(match->value, etag, false))
        return FILES_PRECONDITION_FAILED;
    if (!match && http_date_parse(until, &t) && mtime > t)
        return FILES_PRECONDITION_FAILED;
    if (none)
        return etag_listed(none->value, etag, true) ? FILES_NOT_MODIFIED : FILES_GO_ON;
    if (http_date_parse(since, &t) && mtime <= t)
        return FILES_NOT_MODIFIED;
    return FILES_GO_ON;
}

static bool if_range_holds(const struct http1_head *head, const char *etag, time_t mtime)
{
    const struct http1_field *f = http1_head_find(head, "if-range");
    time_t t;

    if (!f || slice_eq_str(f->value, etag))
        return true;
    return http_date_parse(f->value, &t) && t == mtime;
}

enum files_range files_range(const struct http1_head *head, const char *etag, time_t mtime,
                             uint64_t size, uint64_t *ret_begin, uint64_t *ret_end)
{
    struct slice v = http1_head_value(head, "range"), from, to;
    const uint8_t *dash;
    uint64_t a = 0, b = 0;

    *ret_begin = 0;
    *ret_end = size;
    if (!slice_starts_with(v, "bytes=") || memchr(v.p, ',', v.n) ||
        !if_range_holds(head, etag, mtime))
        return FILES_WHOLE;
    v = slice_trim(slice_of(v.p + 6, v.n - 6));
    dash = v.n > 0 ? memchr(v.p, '-', v.n) : NULL;
    if (!dash)
        return FILES_WHOLE;
    from = slice_of(v.p, (size_t)(dash - v.p));
    to = slice_of(dash + 1, v.n - from.n - 1);
    if ((from.n > 0 && !str_parse_u64(from, UINT64_MAX, &a)) ||
        (to.n > 0 && !str_parse_u64(to, UINT64_MAX, &b)) || from.n + to.n == 0 ||
        (from.n > 0 && to.n > 0 && b < a))
        return FILES_WHOLE;
    if (from.n == 0) { /* the last b bytes */
        if (b == 0 || size == 0)
            return FILES_UNSATISFIABLE;
        *ret_begin = size - MIN(b, size);
        return FILES_PART;
    }
    if (a >= size)
        return FILES_UNSATISFIABLE;
    *ret_begin = a;
    if (to.n > 0 && b < size - 1)
        *ret_end = b + 1;
    return FILES_PART;
}

/* Is the weight 0 (";q=0", ";q=0.000")? */
static bool is_refused(struct slice params)
{
    const uint8_t *q = params.n > 0 ? memchr(params.p, '=', params.n) : NULL;

    if (!q)
        return false;
    for (q++; q < params.p + params.n; q++) {
        if (*q >= '1' && *q <= '9')
            return false;
    }
    return true;
}

enum files_coding files_coding(const struct http1_head *head)
{
    const struct http1_field *f = http1_head_find(head, "accept-encoding");
    struct slice list = f ? f->value : (struct slice){ 0 }, item;
    int identity = -1, gzip = -1, any = -1; /* -1 not named, 0 refused, 1 accepted */
    size_t others = 0;

    while (list_next(&list, &item)) {
        const uint8_t *semi = memchr(item.p, ';', item.n);
        size_t n = semi ? (size_t)(semi - item.p) : item.n;
        struct slice name = slice_trim(slice_of(item.p, n));
        int ok = !is_refused(slice_of(item.p + n, item.n - n));
        if (slice_ieq_str(name, "identity"))
            identity = ok;
        else if (slice_ieq_str(name, "gzip") || slice_ieq_str(name, "x-gzip"))
            gzip = ok;
        else if (slice_eq_str(name, "*"))
            any = ok;
        else
            others += (size_t)ok;
    }
    gzip = gzip < 0 ? any == 1 : gzip;
    if (identity == 0 || (identity < 0 && any == 0))
        return gzip ? FILES_GZIP : FILES_NO_CODING;
    return gzip && identity < 0 && any < 0 && others == 0 ? FILES_GZIP : FILES_IDENTITY;
}

enum buf_status files_disposition(struct buf *b, const char *name)
{
    enum buf_status bad;
    bool is_plain = true;

    for (const char *c = name; *c; c++)
        is_plain = is_plain && *c >= 0x20 && *c < 0x7f && *c != '"' && *c != '\\' && *c != '%';
    if (is_plain)
        return buf_printf(b, "inline; filename=\"%s\"", name);
    bad = buf_append_str(b, "inline; filename*=UTF-8''");
    return bad ? bad : percent_encode(b, slice_str(name));
}

/* --- metadata ----------------------------------------------------------------------------------- */

void metadata_free(struct metadata *m, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(m[i].key);
        free(m[i].value);
    }
    free(m);
}

static bool is_printable(struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < 0x20 || s.p[i] > 0x7e)
            return false;
    }
    return true;
}

static int metadata_one(const struct http1_field *f, struct metadata *m, size_t *total,
                        struct abx_err *err)
{
    size_t prefix = strlen(METADATA_PREFIX);
    struct slice key = slice_of(f->name.p + prefix, f->name.n - prefix);

    *total += f->name.n + f->value.n;
    if (key.n == 0 || key.n > METADATA_KEY_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "metadata key is not 1 to %d bytes long",
                       METADATA_KEY_MAX);
    if (!is_printable(key) || !is_printable(f->value))
        return err_set(err, ABX_INVALID_ARGUMENT, "metadata '%.*s' is not printable ASCII",
                       (int)key.n, (const char *)key.p);
    if (*total > METADATA_TOTAL_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "metadata is over %d bytes", METADATA_TOTAL_MAX);
    m->key = slice_dup(key);
    m->value = slice_dup(f->value);
    if (!m->key || !m->value)
        return err_oom(err);
    for (char *c = m->key; *c; c++)
        *c = *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c;
    return 0;
}

int metadata_parse(const struct http1_head *head, struct metadata **ret, size_t *ret_n,
                   struct abx_err *err)
{
    size_t prefix = strlen(METADATA_PREFIX), n = 0, total = 0;
    struct metadata *list = NULL;
    int r = 0;

    for (size_t i = 0; r == 0 && i < head->n_fields; i++) {
        const struct http1_field *f = &head->fields[i];
        if (f->name.n < prefix || !slice_ieq_str(slice_of(f->name.p, prefix), METADATA_PREFIX))
            continue;
        if (!list && !(list = calloc(head->n_fields, sizeof(*list))))
            return err_oom(err);
        r = metadata_one(f, &list[n++], &total, err);
    }
    if (r < 0) {
        metadata_free(list, n);
        return r;
    }
    *ret = list;
    *ret_n = n;
    return 0;
}
