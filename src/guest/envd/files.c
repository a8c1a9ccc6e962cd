/* files.c - see files.h: who may, whose rights, which path. */
#include "guest/envd/files.h"

#include <string.h>

#include "base/str.h"
#include "e2b/tokens.h"
#include "guest/daemon/paths.h"

struct query {
    char path[PATH_MAX];
    char username[USER_NAME_MAX];
    char signature[64];
    char expiration[24];
    bool has_path;
};

static int query_read(struct slice query, struct query *q, struct abx_err *err)
{
    const struct {
        const char *name;
        char *to;
        size_t size;
    } rows[] = {
        { "path", q->path, sizeof(q->path) },
        { "username", q->username, sizeof(q->username) },
        { "signature", q->signature, sizeof(q->signature) },
        { "signature_expiration", q->expiration, sizeof(q->expiration) },
    };
    bool is_set;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (!envd_query(query, rows[i].name, rows[i].to, rows[i].size, &is_set))
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "query parameter '%s' is malformed or over %zu bytes", rows[i].name,
                           rows[i].size - 1);
        q->has_path = q->has_path || (i == 0 && is_set);
    }
    return 0;
}

/* NULL when the request may go on, else the text of the 401. */
static const char *unauthorized(const struct envd *e, const struct http1_head *head,
                                const struct query *q, const char *operation)
{
    int64_t expiration = SIGNATURE_NO_EXPIRATION;
    char right[SIGNATURE_SIZE];
    bool is_set;

    if (envd_token_is_right(e, head, &is_set))
        return NULL;
    if (is_set)
        return "access token present in header but does not match";
    if (q->signature[0] == '\0')
        return "missing signature query parameter";
    /* One before 1970 is signed like any other, and has expired. */
    if (q->expiration[0] &&
        !str_parse_i64(slice_str(q->expiration), INT64_MIN + 1, INT64_MAX, &expiration))
        return "invalid signature";
    signature_make(slice_str(q->path), operation, slice_str(q->username),
                   slice_str(e->id->access_token), expiration, right);
    if (!token_equal(slice_str(q->signature), slice_str(right)))
        return "invalid signature";
    if (expiration != SIGNATURE_NO_EXPIRATION && expiration < time_wall_ms() / 1000)
        return "signature is already expired";
    return NULL;
}

int files_user(const struct envd *e, const struct http1_head *head, const char *username,
               struct user *ret, struct abx_err *err)
{
    int r;

    if (username[0] == '\0')
        return envd_user(e, head, ret, err);
    r = user_find(username, ret, err);
    if (r == ABX_NOT_FOUND)
        return err_set(err, ABX_UNAUTHENTICATED, "error looking up user '%s': unknown user",
                       username);
    return r;
}

static void begin(struct envd *e, struct http_exchange *ex, const struct query *q, bool is_get)
{
    struct files_request req = { .envd = e, .ex = ex, .has_path = q->has_path };
    struct abx_err err = { 0 };
    int r = files_user(e, http_exchange_head(ex), q->username, &req.user, &err);

    if (r == 0 && (is_get || q->has_path))
        r = guest_path(&req.user, e->id->default_workdir, q->path, req.path, &err);
    if (r < 0)
        envd_error_from(ex, &err);
    else if (is_get)
        files_get(&req);
    else
        files_post(&req);
}

void files_handle(struct envd *e, struct http_exchange *ex)
{
    const struct http1_head *head = http_exchange_head(ex);
    bool is_get = slice_eq_str(head->method, "GET") || slice_eq_str(head->method, "HEAD");
    struct abx_err err = { 0 };
    struct query q = { 0 };
    const char *refused;

    if (!is_get && !slice_eq_str(head->method, "POST")) {
        envd_error(ex, 405, "method not allowed");
        return;
    }
    if (query_read(head->query, &q, &err) < 0) {
        envd_error_from(ex, &err);
        return;
    }
    refused = unauthorized(e, head, &q, is_get ? "read" : "write");
    if (refused)
        envd_error(ex, 401, refused);
    else
        begin(e, ex, &q, is_get);
}
