/* listing.h - query strings, filters and pages of GET /sandboxes and GET /v2/sandboxes (e2b.md 1.5).
 *
 * Pure: from the query's bytes to a filter, and from a filter and one sandbox to yes or no.
 */
#pragma once

#include "base/buf.h"
#include "control/lifecycle.h"

#define LIST_PAIRS_MAX 64
#define LIST_LIMIT_DEFAULT 100u
#define LIST_LIMIT_MAX 100u
#define LIST_LIMIT_MAX_V1 1000u /* the first version had no limit of its own */

struct list_filter {
    struct {
        const char *key, *value;
    } pairs[LIST_PAIRS_MAX]; /* all have to match; text lies in `text` */
    size_t n_pairs;
    bool is_ascending;
    bool wants_running;
    bool wants_paused;
    bool has_started_after;
    int64_t started_after_ns;
    char template_text[130]; /* empty = any */
    size_t limit;            /* 0 = no limit */
    size_t offset;
    bool has_token;
    int64_t token_ns;
    char token_id[SANDBOX_ID_SIZE];
    struct buf text;
};

/* INVALID_ARGUMENT for what is malformed or unknown as a value; parameters that are not known are
 * ignored. Initializes *ret, which needs list_filter_done in any case. */
int list_filter_parse(struct slice query, bool is_v2, struct list_filter *ret, struct abx_err *err);
void list_filter_done(struct list_filter *f);

/* Does it match all but token, limit and offset? `template_id` is the id for template_text. */
bool list_filter_matches(const struct list_filter *f, const struct sandbox *sb,
                         const char *template_id);
/* Order of the list: by start, newest first unless ascending; ties by id. */
int list_compare(const struct sandbox *a, const struct sandbox *b, bool is_ascending);
/* Does it come after the place that the token names? */
bool list_is_after_token(const struct list_filter *f, const struct sandbox *sb);
/* Appends the token that names the place of `last`. */
enum buf_status list_token(struct buf *b, const struct sandbox *last, bool is_ascending);

/* The next pair of a query, percent-decoded into `text` (NUL-terminated). 1 = a pair, 0 = the end,
 * -1 = malformed. */
int query_next(struct slice *query, struct buf *text, struct slice *ret_key,
               struct slice *ret_value);
