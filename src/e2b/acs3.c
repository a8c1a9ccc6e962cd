/* acs3.c - see acs3.h. */
#include "e2b/acs3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nettle/hmac.h>
#include <nettle/sha2.h>

#include "base/str.h"

#define ALGORITHM "ACS3-HMAC-SHA256"
#define PARAMETERS_MAX 256u

void acs3_date(int64_t wall_ms, char to[ACS3_DATE_SIZE])
{
    char text[RFC3339_SIZE]; /* 2026-01-02T03:04:05.678Z */

    time_format_rfc3339(wall_ms, text);
    memcpy(to, text, 19);
    memcpy(to + 19, "Z", 2);
}

void acs3_hash(struct slice body, char to[ACS3_HASH_SIZE])
{
    struct sha256_ctx ctx;
    uint8_t digest[SHA256_DIGEST_SIZE];

    sha256_init(&ctx);
    sha256_update(&ctx, body.n, body.p);
    sha256_digest(&ctx, sizeof digest, digest);
    hex_encode(digest, sizeof digest, to);
}

static int full(struct buf *to, enum buf_status s, struct abx_err *err)
{
    if (s == BUF_OOM)
        return err_oom(err);
    return err_set(err, ABX_RESOURCE_EXHAUSTED,
                   "the request to sign has more than %zu bytes of head", to->limit);
}

static int decode(struct buf *to, struct slice part, bool plus, const char *what,
                  struct abx_err *err)
{
    if (part.n >= to->limit)
        return full(to, BUF_LIMIT, err);
    if (!buf_reserve(to, MAX(part.n, (size_t)1), NULL)) /* so that only a malformed text can fail */
        return err_oom(err);
    if (!percent_decode(to, part, plus))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "%s '%.*s' is not percent-encoded as it should be", what,
                       (int)MIN(part.n, (size_t)64), part.p);
    return 0;
}

/* Appends a segment in the one encoding that the signature knows, whatever it was sent in. */
static int append_segment(struct buf *to, struct slice part, struct abx_err *err)
{
    struct buf plain = BUF_INIT(ACS3_CANONICAL_MAX);
    int r = decode(&plain, part, false, "path", err);
    enum buf_status s = r == 0 ? percent_encode(to, buf_slice(&plain)) : BUF_OK;

    buf_done(&plain);
    return s == BUF_OK ? r : full(to, s, err);
}

static int append_path(struct buf *to, struct slice path, struct abx_err *err)
{
    size_t start = 0;
    enum buf_status s;

    if (path.n == 0)
        path = SLICE_LIT("/");
    for (size_t i = 0; i <= path.n; i++) {
        int r;

        if (i < path.n && path.p[i] != '/')
            continue;
        r = append_segment(to, slice_of(path.p + start, i - start), err);
        if (r < 0)
            return r;
        s = i < path.n ? buf_append_byte(to, '/') : BUF_OK;
        if (s != BUF_OK)
            return full(to, s, err);
        start = i + 1;
    }
    return 0;
}

/* Both decoded and owned: the order is that of what they mean. */
struct parameter {
    char *key, *value;
};

static int compare_parameter(const void *a, const void *b)
{
    const struct parameter *x = a, *y = b;
    int r = strcmp(x->key, y->key);

    return r != 0 ? r : strcmp(x->value, y->value);
}

static int decode_dup(struct slice part, char **ret, struct abx_err *err)
{
    struct buf b = BUF_INIT(ACS3_CANONICAL_MAX);
    int r = decode(&b, part, true, "query", err);

    if (r == 0) {
        *ret = slice_dup(buf_slice(&b));
        if (!*ret)
            r = err_oom(err);
    }
    buf_done(&b);
    return r;
}

static int parameters_parse(struct slice query, struct parameter *to, size_t *count,
                            struct abx_err *err)
{
    while (query.n > 0) {
        const uint8_t *end = memchr(query.p, '&', query.n);
        size_t n = end ? (size_t)(end - query.p) : query.n;
        const uint8_t *equals = memchr(query.p, '=', n);
        size_t key_n = equals ? (size_t)(equals - query.p) : n;
        struct slice value = equals ? slice_of(equals + 1, n - key_n - 1) : SLICE_LIT("");

        if (n > 0) {
            struct parameter *p;
            int r;

            if (*count == PARAMETERS_MAX)
                return err_set(err, ABX_INVALID_ARGUMENT, "query has more than %u parameters",
                               PARAMETERS_MAX);
            p = &to[(*count)++];
            r = decode_dup(slice_of(query.p, key_n), &p->key, err);
            if (r == 0)
                r = decode_dup(value, &p->value, err);
            if (r < 0)
                return r;
        }
        query = slice_of(query.p + MIN(n + 1, query.n), query.n - MIN(n + 1, query.n));
    }
    return 0;
}

static int append_query(struct buf *to, struct slice query, struct abx_err *err)
{
    struct parameter *all = calloc(PARAMETERS_MAX, sizeof *all);
    size_t count = 0;
    int r;

    if (!all)
        return err_oom(err);
    r = parameters_parse(query, all, &count, err);
    if (r == 0)
        qsort(all, count, sizeof *all, compare_parameter);
    for (size_t i = 0; i < count && r == 0; i++) {
        enum buf_status s = i > 0 ? buf_append_byte(to, '&') : BUF_OK;

        if (s == BUF_OK)
            s = percent_encode(to, slice_str(all[i].key));
        if (s == BUF_OK)
            s = buf_append_byte(to, '=');
        if (s == BUF_OK)
            s = percent_encode(to, slice_str(all[i].value));
        if (s != BUF_OK)
            r = full(to, s, err);
    }
    for (size_t i = 0; i < count; i++) {
        free(all[i].key);
        free(all[i].value);
    }
    free(all);
    return r;
}

/* "a;b;c" of the fields that are signed, in their order. */
static void signed_names(const struct acs3_request *q, char to[256])
{
    (void)snprintf(to, 256, "%shost;x-acs-action;x-acs-content-sha256;x-acs-date;%s%s",
                   q->content_type ? "content-type;" : "",
                   q->security_token ? "x-acs-security-token;" : "",
                   "x-acs-signature-nonce;x-acs-version");
}

static int append_field(struct buf *to, const char *name, struct slice value, struct abx_err *err)
{
    struct slice v = slice_trim(value);
    enum buf_status s = buf_append_str(to, name);

    if (s == BUF_OK)
        s = buf_append_byte(to, ':');
    if (s == BUF_OK)
        s = buf_append_slice(to, v);
    if (s == BUF_OK)
        s = buf_append_byte(to, '\n');
    return s == BUF_OK ? 0 : full(to, s, err);
}

int acs3_canonical(const struct acs3_request *q, struct buf *to, struct abx_err *err)
{
    char hash[ACS3_HASH_SIZE], names[256];
    enum buf_status s = buf_printf(to, "%s\n", q->method);
    const struct {
        const char *name;
        struct slice value;
        bool is_there;
    } fields[] = {
        { "content-type", slice_str(q->content_type), q->content_type != NULL },
        { "host", q->host, true },
        { "x-acs-action", slice_str(q->action), true },
        { "x-acs-content-sha256", slice_of(hash, ACS3_HASH_SIZE - 1), true },
        { "x-acs-date", slice_str(q->date), true },
        { "x-acs-security-token", slice_str(q->security_token), q->security_token != NULL },
        { "x-acs-signature-nonce", slice_str(q->nonce), true },
        { "x-acs-version", slice_str(q->version), true },
    };
    int r;

    acs3_hash(q->body, hash);
    if (s != BUF_OK)
        return full(to, s, err);
    r = append_path(to, q->path, err);
    if (r < 0)
        return r;
    s = buf_append_byte(to, '\n');
    if (s != BUF_OK)
        return full(to, s, err);
    r = append_query(to, q->query, err);
    if (r < 0)
        return r;
    s = buf_append_byte(to, '\n');
    if (s != BUF_OK)
        return full(to, s, err);
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        r = fields[i].is_there ? append_field(to, fields[i].name, fields[i].value, err) : 0;
        if (r < 0)
            return r;
    }
    signed_names(q, names);
    s = buf_printf(to, "\n%s\n%s", names, hash);
    return s == BUF_OK ? 0 : full(to, s, err);
}

int acs3_authorization(const struct acs3_request *q, const char *key_id, const char *secret,
                       struct buf *to, struct abx_err *err)
{
    struct buf canonical = BUF_INIT(ACS3_CANONICAL_MAX);
    char hash[ACS3_HASH_SIZE], names[256], signature[ACS3_HASH_SIZE];
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct hmac_sha256_ctx hmac;
    enum buf_status s;
    int r = acs3_canonical(q, &canonical, err);

    if (r == 0)
        acs3_hash(buf_slice(&canonical), hash);
    buf_done(&canonical);
    if (r < 0)
        return r;
    hmac_sha256_set_key(&hmac, strlen(secret), (const uint8_t *)secret);
    hmac_sha256_update(&hmac, strlen(ALGORITHM "\n"), (const uint8_t *)ALGORITHM "\n");
    hmac_sha256_update(&hmac, strlen(hash), (const uint8_t *)hash);
    hmac_sha256_digest(&hmac, sizeof digest, digest);
    explicit_bzero(&hmac, sizeof hmac);
    hex_encode(digest, sizeof digest, signature);
    signed_names(q, names);
    s = buf_printf(to, ALGORITHM " Credential=%s,SignedHeaders=%s,Signature=%s", key_id, names,
                   signature);
    return s == BUF_OK ? 0 : full(to, s, err);
}
