/* listing.c - see listing.h. */
#include "control/listing.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

#define TEXT_MAX (64u << 10)

/* Cuts `s` at the first `c`; false when there is none (then *ret is all of it and s empty). */
static bool cut(struct slice *s, char c, struct slice *ret)
{
    const uint8_t *at = s->n ? memchr(s->p, c, s->n) : NULL;
    size_t n = at ? (size_t)(at - s->p) : s->n;

    *ret = slice_of(s->p, n);
    *s = at ? slice_of(at + 1, s->n - n - 1) : slice_of(NULL, 0);
    return at != NULL;
}

/* Decodes into `text` behind what is there, with a NUL; the offset of the result. */
static bool decode(struct buf *text, struct slice s, size_t *ret_at, size_t *ret_n)
{
    size_t at = text->len;

    if (!percent_decode(text, s, true))
        return false;
    *ret_at = at;
    *ret_n = text->len - at;
    return buf_append_byte(text, 0) == BUF_OK;
}

int query_next(struct slice *query, struct buf *text, struct slice *ret_key,
               struct slice *ret_value)
{
    struct slice pair = { 0 }, key, value;
    size_t key_at, key_n, value_at, value_n;

    while (pair.n == 0) {
        if (query->n == 0)
            return 0;
        (void)cut(query, '&', &pair);
    }
    value = pair;
    (void)cut(&value, '=', &key);
    buf_reset(text);
    if (!decode(text, key, &key_at, &key_n) || !decode(text, value, &value_at, &value_n))
        return -1;
    *ret_key = slice_of(buf_data(text) + key_at, key_n);
    *ret_value = slice_of(buf_data(text) + value_at, value_n);
    return 1;
}

/* --- parameters -------------------------------------------------------------------------------- */

/* Three layers (e2b.md 1.5): the query's, taken off before, one around the whole, one around each
 * key and value. */
static int parse_metadata(struct list_filter *f, struct slice value, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf whole = BUF_INIT(TEXT_MAX);
    size_t at[LIST_PAIRS_MAX][2], n = 0, unused;
    struct slice rest, pair, key;

    if (!percent_decode(&whole, value, true))
        return err_set(err, ABX_INVALID_ARGUMENT, "Error parsing metadata: bad percent encoding");
    rest = buf_slice(&whole);
    while (rest.n > 0) {
        (void)cut(&rest, '&', &pair);
        if (pair.n == 0)
            continue;
        if (!cut(&pair, '=', &key))
            return err_set(err, ABX_INVALID_ARGUMENT, "Error parsing metadata: a pair without '='");
        if (f->n_pairs + n == LIST_PAIRS_MAX)
            return err_set(err, ABX_INVALID_ARGUMENT, "Error parsing metadata: over %d pairs",
                           LIST_PAIRS_MAX);
        if (!decode(&f->text, key, &at[n][0], &unused) ||
            !decode(&f->text, pair, &at[n][1], &unused))
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "Error parsing metadata: bad percent encoding, or over %u bytes",
                           TEXT_MAX);
        n++;
    }
    /* Only now: the buffer moved while it grew. One metadata parameter is all there may be. */
    for (size_t i = 0; i < n; i++) {
        f->pairs[f->n_pairs].key = (const char *)buf_data(&f->text) + at[i][0];
        f->pairs[f->n_pairs++].value = (const char *)buf_data(&f->text) + at[i][1];
    }
    return 0;
}

/* States of both kinds of clients; sandboxes are running or paused. */
static int parse_states(struct list_filter *f, struct slice value, struct abx_err *err)
{
    static const char *const known[] = { "running",  "paused",  "creating", "pausing",
                                         "stopping", "stopped", "error" };
    struct slice state;

    while (value.n > 0) {
        bool found = false;

        (void)cut(&value, ',', &state);
        for (size_t i = 0; i < ARRAY_SIZE(known); i++)
            found |= slice_eq_str(state, known[i]);
        if (!found)
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "Invalid state '%.*s': it is running or paused",
                           (int)MIN(state.n, (size_t)32), (const char *)state.p);
        f->wants_running |= slice_eq_str(state, "running");
        f->wants_paused |= slice_eq_str(state, "paused");
    }
    return 0;
}

/* "<RFC 3339>__<id>[__asc]", base64url. */
static bool parse_token(struct list_filter *f, struct slice value)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(256);
    struct slice s, time;
    const uint8_t *sep;

    if (value.n > 200 || !base64_decode(&text, value))
        return false;
    s = buf_slice(&text);
    sep = s.n ? memmem(s.p, s.n, "__", 2) : NULL;
    if (!sep)
        return false;
    time = slice_of(s.p, (size_t)(sep - s.p));
    s = slice_of(sep + 2, s.n - time.n - 2);
    if (s.n > 5 && memcmp(s.p + s.n - 5, "__asc", 5) == 0) {
        if (!f->is_ascending)
            return false;
        s.n -= 5;
    } else if (f->is_ascending) {
        return false;
    }
    f->has_token = true;
    return time_parse_rfc3339(time, &f->token_ns) && sandbox_id_parse(s, f->token_id) &&
           strlen(f->token_id) == s.n;
}

static int parse_number(struct slice value, size_t min, size_t max, const char *name, size_t *ret,
                        struct abx_err *err)
{
    uint64_t v;

    if (!str_parse_u64(value, max, &v) || v < min)
        return err_set(err, ABX_INVALID_ARGUMENT, "Invalid %s: it is a number from %zu to %zu",
                       name, min, max);
    *ret = (size_t)v;
    return 0;
}

static int parse_template(struct list_filter *f, struct slice value, struct abx_err *err)
{
    if (memchr(value.p, ':', value.n))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "Invalid template: a filter takes a name or an id without a tag");
    if (value.n == 0 || value.n >= sizeof f->template_text)
        return err_set(err, ABX_INVALID_ARGUMENT, "Invalid template: it is empty or too long");
    memcpy(f->template_text, value.p, value.n);
    f->template_text[value.n] = '\0';
    return 0;
}

static int parse_one(struct list_filter *f, bool is_v2, struct slice key, struct slice value,
                     bool *has_state, struct abx_err *err)
{
    if (slice_eq_str(key, "metadata"))
        return f->n_pairs
                   ? err_set(err, ABX_INVALID_ARGUMENT, "Error parsing metadata: given twice")
                   : parse_metadata(f, value, err);
    if (slice_eq_str(key, "state") || slice_eq_str(key, "status")) {
        *has_state = true;
        return parse_states(f, value, err);
    }
    if (slice_eq_str(key, "order")) {
        f->is_ascending = slice_eq_str(value, "asc");
        if (!f->is_ascending && !slice_eq_str(value, "desc"))
            return err_set(err, ABX_INVALID_ARGUMENT, "Invalid order: it is 'asc' or 'desc'");
        return 0;
    }
    if (slice_eq_str(key, "startedAfter")) {
        f->has_started_after = true;
        if (!time_parse_rfc3339(value, &f->started_after_ns))
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "Invalid startedAfter: it is an RFC 3339 time");
        return 0;
    }
    if (slice_eq_str(key, "template"))
        return parse_template(f, value, err);
    if (slice_eq_str(key, "limit"))
        return parse_number(value, 1, is_v2 ? LIST_LIMIT_MAX : LIST_LIMIT_MAX_V1, "limit",
                            &f->limit, err);
    if (slice_eq_str(key, "offset"))
        return parse_number(value, 0, 1000000000, "offset", &f->offset, err);
    return 0;
}

int list_filter_parse(struct slice query, bool is_v2, struct list_filter *ret, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(TEXT_MAX);
    _cleanup_(buf_done) struct buf token = BUF_INIT(1024);
    bool has_state = false, has_token = false;
    struct slice key, value;
    int r;

    *ret =
        (struct list_filter){ .limit = is_v2 ? LIST_LIMIT_DEFAULT : 0, .text = BUF_INIT(TEXT_MAX) };
    while ((r = query_next(&query, &text, &key, &value)) > 0) {
        if (slice_eq_str(key, "nextToken")) {
            has_token = value.n > 0;
            buf_reset(&token);
            r = buf_append_slice(&token, value) == BUF_OK
                    ? 0
                    : err_set(err, ABX_INVALID_ARGUMENT, "Invalid next token");
        } else {
            r = parse_one(ret, is_v2, key, value, &has_state, err);
        }
        if (r < 0)
            return r;
    }
    if (r < 0)
        return err_set(err, ABX_INVALID_ARGUMENT, "the query is not well percent-encoded");
    ret->wants_running |= !has_state;
    /* The first version lists what runs unless it is asked otherwise (e2b.md 1.5). */
    ret->wants_paused |= !has_state && is_v2;
    /* After the order, which the token has to agree with. */
    if (has_token && !parse_token(ret, buf_slice(&token)))
        return err_set(err, ABX_INVALID_ARGUMENT, "Invalid next token");
    return 0;
}

void list_filter_done(struct list_filter *f)
{
    buf_done(&f->text);
}

/* --- use --------------------------------------------------------------------------------------- */

bool list_filter_matches(const struct list_filter *f, const struct sandbox *sb,
                         const char *template_id)
{
    json_t *metadata = json_object_get(sb->config, "metadata");

    const char *shown = machine_state(sb->state)->shown;

    if (!shown || !(strcmp(shown, "paused") == 0 ? f->wants_paused : f->wants_running))
        return false;
    if (f->has_started_after && sb->started_ms * NSEC_PER_MSEC < f->started_after_ns)
        return false;
    if (f->template_text[0] && (!template_id || strcmp(template_id, sb->template_id) != 0))
        return false;
    for (size_t i = 0; i < f->n_pairs; i++) {
        const char *value = json_string_value(json_object_get(metadata, f->pairs[i].key));

        if (!value || strcmp(value, f->pairs[i].value) != 0)
            return false;
    }
    return true;
}

int list_compare(const struct sandbox *a, const struct sandbox *b, bool is_ascending)
{
    if (a->started_ms != b->started_ms)
        return (a->started_ms < b->started_ms) == is_ascending ? -1 : 1;
    return strcmp(a->id, b->id);
}

bool list_is_after_token(const struct list_filter *f, const struct sandbox *sb)
{
    int64_t ns = sb->started_ms * NSEC_PER_MSEC;

    if (!f->has_token)
        return true;
    if (ns != f->token_ns)
        return (ns > f->token_ns) == f->is_ascending;
    return strcmp(sb->id, f->token_id) > 0;
}

enum buf_status list_token(struct buf *b, const struct sandbox *last, bool is_ascending)
{
    char time[RFC3339_SIZE], text[RFC3339_SIZE + SANDBOX_ID_SIZE + 8];

    time_format_rfc3339(last->started_ms, time);
    (void)snprintf(text, sizeof text, "%s__%s%s", time, last->id, is_ascending ? "__asc" : "");
    return base64url_encode(b, slice_str(text));
}
