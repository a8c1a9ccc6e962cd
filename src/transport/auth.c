/* auth.c - see auth.h. */
#include "transport/auth.h"

#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/str.h"
#include "e2b/acs3.h"

#define API_VERSION "2026-05-09" /* x-acs-version: of the control plane's routes (acs3.md) */
#define FIXED_BYTES 1024u        /* more than all fields have besides the texts of others */

/* Value of a config's own header field; NULL when there is none. */
static const char *own_header(const abx_config *c, const char *name)
{
    for (size_t i = 0; i < c->header_count; i++)
        if (strcasecmp(c->headers[i].key, name) == 0)
            return c->headers[i].value;
    return NULL;
}

/* It is left to it. */
static bool is_overridden(const abx_config *c, const char *name)
{
    return own_header(c, name) != NULL;
}

/* The memory has its final size from the start: what is in it does not move. */
static int add(struct auth_headers *h, const char *name, const char *before, const char *value,
               struct abx_err *err)
{
    size_t at = h->mem.len;
    enum buf_status s = buf_append_str(&h->mem, before);

    if (s == BUF_OK)
        s = buf_append_str(&h->mem, value);
    if (s == BUF_OK)
        s = buf_append_byte(&h->mem, 0);
    if (s != BUF_OK)
        return err_set(err, ABX_INTERNAL, "credentials do not fit into %zu bytes", h->mem.limit);
    h->pairs[h->count].key = name;
    h->pairs[h->count++].value = (const char *)buf_data(&h->mem) + at;
    return 0;
}

/* "https://host:443/path?query" -> Host field, path, query. libcurl leaves the scheme's own port out. */
static int split_url(const char *url, struct acs3_request *q, struct abx_err *err)
{
    const char *host = strstr(url, "://");
    const char *path, *query;
    struct slice authority;
    const char *port;

    if (!host)
        return err_set(err, ABX_INVALID_ARGUMENT, "the URL to sign has no scheme");
    port = strncasecmp(url, "https://", 8) == 0 ? ":443" : ":80";
    host += 3;
    path = host + strcspn(host, "/?");
    query = path + strcspn(path, "?");
    authority = slice_of(host, (size_t)(path - host));
    if (authority.n > strlen(port) &&
        slice_eq_str(slice_of(authority.p + authority.n - strlen(port), strlen(port)), port))
        authority.n -= strlen(port);
    q->host = authority;
    q->path = slice_of(path, (size_t)(query - path));
    q->query = *query ? slice_str(query + 1) : SLICE_LIT("");
    return 0;
}

static int add_signature(const abx_config *c, struct acs3_request *q, struct auth_headers *h,
                         struct abx_err *err)
{
    char date[ACS3_DATE_SIZE], nonce[33], hash[ACS3_HASH_SIZE];
    struct buf value = BUF_INIT(16384);
    uint8_t random[16];
    int r;

    random_bytes(random, sizeof random);
    hex_encode(random, sizeof random, nonce);
    acs3_date(time_wall_ms(), date);
    acs3_hash(q->body, hash);
    q->version = API_VERSION;
    q->date = date;
    q->nonce = nonce;
    q->security_token = c->security_token;
    r = acs3_authorization(q, c->access_key_id, c->access_key_secret, &value, err);
    if (r == 0)
        r = buf_cstr(&value) ? add(h, "Authorization", "", buf_cstr(&value), err) : err_oom(err);
    buf_done(&value);
    if (r == 0)
        r = add(h, "x-acs-action", "", q->action, err);
    if (r == 0)
        r = add(h, "x-acs-version", "", q->version, err);
    if (r == 0)
        r = add(h, "x-acs-date", "", date, err);
    if (r == 0)
        r = add(h, "x-acs-signature-nonce", "", nonce, err);
    if (r == 0)
        r = add(h, "x-acs-content-sha256", "", hash, err);
    if (r == 0 && c->security_token)
        r = add(h, "x-acs-security-token", "", c->security_token, err);
    return r;
}

static int no_credentials(const abx_config *c, struct abx_err *err)
{
    return err_reason(
        err, ABX_REASON_NO_CREDENTIALS,
        "no API key: start a service on this machine ('sudo abx serve'), or let it know you "
        "('sudo abx key local --user $USER' while 'abx serve' runs), or set ABX_SANDBOX_API_KEY "
        "(or E2B_API_KEY) for %s%s%s",
        c->api_url, c->hint ? "; " : "", c->hint ? c->hint : "");
}

static bool is_e2b_key(const char *key)
{
    return strncmp(key, "e2b_", 4) == 0 && key[4] &&
           strspn(key + 4, "0123456789abcdef") == strlen(key + 4);
}

static int add_key(const abx_config *c, struct auth_headers *h, struct abx_err *err)
{
    if (c->validate_api_key && !is_e2b_key(c->api_key))
        return err_set(
            err, ABX_UNAUTHENTICATED,
            "the API key is not 'e2b_' and lower-case hex digits (validate_api_key is on)");
    if (c->bearer)
        return is_overridden(c, "Authorization")
                   ? 0
                   : add(h, "Authorization", "Bearer ", c->api_key, err);
    return is_overridden(c, "X-API-Key") ? 0 : add(h, "X-API-Key", "", c->api_key, err);
}

static bool is_signature_field(const char *name)
{
    return strcasecmp(name, "Authorization") == 0 || strcasecmp(name, "Host") == 0 ||
           strncasecmp(name, "x-acs-", 6) == 0;
}

static int make(const abx_config *c, struct acs3_request *q, const char *url,
                struct auth_headers *h, struct abx_err *err)
{
    bool has_own = is_overridden(c, "X-API-Key") || is_overridden(c, "Authorization");
    bool takes_authorization = c->is_signed || (c->bearer && c->api_key);
    int r = 0;

    if (!c->api_key && !c->is_signed && !has_own)
        return no_credentials(c, err);
    if (c->access_token && takes_authorization)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "access_token and %s both need the field Authorization: set one of them",
                       c->is_signed ? "access_key_id" : "bearer");
    if (c->is_signed) {
        for (size_t i = 0; i < c->header_count; i++)
            if (is_signature_field(c->headers[i].key))
                return err_set(err, ABX_INVALID_ARGUMENT,
                               "access_key_id and the header %.64s: set one of them",
                               c->headers[i].key);
        if (is_overridden(c, "Content-Type"))
            q->content_type = own_header(c, "Content-Type");
        r = split_url(url, q, err);
        if (r == 0)
            r = add_signature(c, q, h, err);
    } else if (c->api_key) {
        r = add_key(c, h, err);
    }
    if (r == 0 && c->access_token && !is_overridden(c, "Authorization"))
        r = add(h, "Authorization", "Bearer ", c->access_token, err);
    return r;
}

static size_t text_size(const char *text)
{
    return text ? strlen(text) : 0;
}

int auth_headers_make(const abx_config *config, const char *method, const char *url,
                      const char *content_type, struct slice body, const char *action,
                      struct auth_headers *to, struct abx_err *err)
{
    struct acs3_request q = {
        .method = method, .content_type = content_type, .body = body, .action = action
    };
    size_t size = FIXED_BYTES + text_size(config->api_key) + text_size(config->access_token) +
                  text_size(config->access_key_id) + text_size(config->security_token) +
                  text_size(action);

    *to = (struct auth_headers){ 0 };
    buf_init(&to->mem, size);
    if (!buf_reserve(&to->mem, size, NULL))
        return err_oom(err);
    return make(config, &q, url, to, err);
}

void auth_headers_done(struct auth_headers *h)
{
    if (h->mem.mem)
        explicit_bzero(h->mem.mem, h->mem.cap);
    buf_done(&h->mem);
    h->count = 0;
}
