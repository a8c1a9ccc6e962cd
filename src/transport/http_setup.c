/* http_setup.c - a request as libcurl's options.
 *
 * Everything that goes into a head is checked here, so that no caller's string can add a line or a field. All
 * texts of a request live in one block of memory that is kept with its easy handle; the header list is made of
 * nodes in that block (libcurl only reads it).
 */
#include <string.h>

#include "base/str.h"
#include "transport/http_internal.h"
#include "wire/http1_head.h"

#define NODES_EXTRA 4 /* accept, expect, content-type, transfer-encoding */

/* ---- checks ---- */

/* The part of `text` that may be shown: a field's name with odd bytes is not. */
static const char *shown_name(const char *name)
{
    return http1_is_token(slice_str(name)) && strlen(name) <= 64 ? name : "(malformed name)";
}

static int check_header(const struct abx_pair *h, struct abx_err *err)
{
    static const char *const ours[] = { "content-length", "transfer-encoding", "expect" };
    struct slice name = slice_str(h->key);

    if (!h->key || !h->value)
        return err_set(err, ABX_INVALID_ARGUMENT, "header: name or value is missing");
    if (!http1_is_token(slice_str(h->key)))
        return err_set(err, ABX_INVALID_ARGUMENT, "header name: empty or with a forbidden byte");
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
        if (slice_ieq_str(name, ours[i]))
            return err_set(err, ABX_INVALID_ARGUMENT, "header '%s': is set by the library",
                           ours[i]);
    for (const char *v = h->value; *v; v++)
        if (((unsigned char)*v < 0x20 && *v != '\t') || *v == 0x7f)
            return err_set(err, ABX_INVALID_ARGUMENT, "header '%s': value has a control byte",
                           shown_name(h->key));
    return 0;
}

/* http:// or https://, a host, printable ASCII only, no user. */
static int check_url(const char *url, struct slice *ret_host, bool *ret_is_https,
                     struct abx_err *err)
{
    struct slice all = slice_str(url), host;
    size_t at;

    if (!url)
        return err_set(err, ABX_INVALID_ARGUMENT, "url: is missing");
    if (all.n > HTTP_URL_BYTES)
        return err_set(err, ABX_INVALID_ARGUMENT, "url: over 64 KiB");
    for (size_t i = 0; i < all.n; i++)
        if (all.p[i] <= 0x20 || all.p[i] >= 0x7f)
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "url: byte %zu is no printable ASCII (percent-encode it)", i);
    if (all.n >= 7 && slice_ieq_str(slice_of(all.p, 7), "http://"))
        at = 7;
    else if (all.n >= 8 && slice_ieq_str(slice_of(all.p, 8), "https://"))
        at = 8;
    else
        return err_set(err, ABX_INVALID_ARGUMENT, "url: has to begin with http:// or https://");
    host = slice_of(all.p + at, strcspn(url + at, "/?#"));
    if (host.n == 0 || host.p[0] == ':')
        return err_set(err, ABX_INVALID_ARGUMENT, "url: has no host");
    if (host.n > 300)
        return err_set(err, ABX_INVALID_ARGUMENT, "url: its host is over 300 bytes");
    if (memchr(host.p, '@', host.n))
        return err_set(err, ABX_INVALID_ARGUMENT, "url: user and password do not belong in it");
    *ret_host = host;
    *ret_is_https = at == 8;
    return 0;
}

static int check_spec(const struct http_spec *spec, struct slice *ret_host, bool *ret_is_https,
                      size_t *ret_text_bytes, struct abx_err *err)
{
    size_t text = 0;
    int r;

    if (!spec->method || !http1_is_token(slice_str(spec->method)) || strlen(spec->method) > 32)
        return err_set(err, ABX_INVALID_ARGUMENT, "method: has to be a token of at most 32 bytes");
    r = check_url(spec->url, ret_host, ret_is_https, err);
    if (r < 0)
        return r;
    if (spec->header_count > HTTP_HEADERS_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "headers: more than %d", HTTP_HEADERS_MAX);
    for (size_t i = 0; i < spec->header_count; i++) {
        r = check_header(&spec->headers[i], err);
        if (r < 0)
            return r;
        text += strlen(spec->headers[i].key) + strlen(spec->headers[i].value) + 3;
    }
    if (text > HTTP_HEAD_BYTES)
        return err_set(err, ABX_INVALID_ARGUMENT, "headers: over 64 KiB");
    for (size_t i = 0; spec->accept_gzip && i < spec->header_count; i++)
        if (slice_ieq_str(slice_str(spec->headers[i].key), "accept-encoding"))
            return err_set(err, ABX_INVALID_ARGUMENT, "header 'accept-encoding': is set already");
    if (strcmp(spec->method, "HEAD") == 0 && (spec->has_body || spec->body.n > 0 || spec->source))
        return err_set(err, ABX_INVALID_ARGUMENT, "body: a HEAD request has none");
    if (strcmp(spec->method, "CONNECT") == 0)
        return err_set(err, ABX_INVALID_ARGUMENT, "method: CONNECT is for proxies");
    if (spec->source && spec->source_size < 0 && spec->source_size != ABX_UNSET)
        return err_set(err, ABX_INVALID_ARGUMENT, "source_size: is negative");
    *ret_text_bytes = text;
    return 0;
}

/* ---- memory of a request ---- */

static char *text_put(char **at, struct slice a)
{
    char *to = *at;

    if (a.n > 0)
        memcpy(to, a.p, a.n);
    to[a.n] = '\0';
    *at += a.n + 1;
    return to;
}

static void node_put(struct http_exchange *x, struct curl_slist **at, char *text)
{
    struct curl_slist *node = *at;

    node->data = text;
    node->next = x->headers;
    x->headers = node;
    *at = node + 1;
}

/* "Name: value"; libcurl wants "Name;" for an empty one. */
static char *header_text(char **at, const struct abx_pair *h)
{
    char *text = *at;
    size_t name = strlen(h->key), value = strlen(h->value);

    memcpy(text, h->key, name);
    if (value == 0) {
        memcpy(text + name, ";", 2);
        *at += name + 2;
        return text;
    }
    memcpy(text + name, ": ", 2);
    memcpy(text + name + 2, h->value, value + 1);
    *at += name + value + 3;
    return text;
}

static bool spec_has_header(const struct http_spec *spec, const char *name)
{
    for (size_t i = 0; i < spec->header_count; i++)
        if (slice_ieq_str(slice_str(spec->headers[i].key), name))
            return true;
    return false;
}

/* What libcurl would add by itself goes away. */
static void setup_headers(struct http_exchange *x, const struct http_spec *spec,
                          struct curl_slist *nodes, char **text)
{
    x->headers = NULL;
    if (!spec_has_header(spec, "accept"))
        node_put(x, &nodes, text_put(text, SLICE_LIT("Accept:")));
    if (!spec_has_header(spec, "content-type"))
        node_put(x, &nodes, text_put(text, SLICE_LIT("Content-Type:")));
    node_put(x, &nodes, text_put(text, SLICE_LIT("Expect:")));
    if (spec->accept_gzip)
        node_put(x, &nodes, text_put(text, SLICE_LIT("Accept-Encoding: gzip")));
    for (size_t i = spec->header_count; i > 0; i--)
        node_put(x, &nodes, header_text(text, &spec->headers[i - 1]));
}

static bool method_wants_body(const char *method)
{
    return strcmp(method, "POST") == 0 || strcmp(method, "PUT") == 0 ||
           strcmp(method, "PATCH") == 0;
}

int setup_spec(struct http_exchange *x, const struct http_spec *spec, struct abx_err *err)
{
    size_t nodes = spec->header_count + NODES_EXTRA, text_bytes = 0, small = 0;
    struct slice host = { 0 };
    bool is_https = false;
    uint8_t *mem;
    char *at;
    int r = check_spec(spec, &host, &is_https, &text_bytes, err);

    if (r < 0)
        return r;
    x->has_body =
        spec->has_body || spec->body.n > 0 || spec->source || method_wants_body(spec->method);
    x->is_small_body = x->has_body && !spec->source && spec->body.n <= HTTP_SMALL_BODY;
    if (x->is_small_body)
        small = spec->body.n;
    buf_reset(&x->mem);
    mem = buf_reserve(&x->mem,
                      nodes * sizeof(struct curl_slist) + text_bytes + 64 + strlen(spec->url) + 1 +
                          host.n + 1 + strlen(spec->method) + 1 + small + 1,
                      NULL);
    if (!mem)
        return err_oom(err);
    at = (char *)mem + nodes * sizeof(struct curl_slist);
    x->url = text_put(&at, slice_str(spec->url));
    x->host = text_put(&at, host);
    x->method = text_put(&at, slice_str(spec->method));
    x->is_https = is_https;
    x->body = spec->body;
    if (x->is_small_body)
        x->body.p = (const uint8_t *)text_put(&at, spec->body);
    setup_headers(x, spec, (struct curl_slist *)(void *)mem, &at);
    x->source = spec->source;
    x->source_user = spec->source_user;
    x->source_size = spec->source_size;
    x->retry = spec->retry;
    x->renew = spec->renew;
    x->deadline_ns = spec->deadline_ns;
    x->head_deadline_ns = spec->head_deadline_ns;
    x->idle_ns = MIN(spec->idle_ms, TIMEOUT_MS_MAX) * NSEC_PER_MSEC;
    x->accept_gzip = spec->accept_gzip;
    x->http1_only = spec->http1_only;
    x->is_stream = spec->is_stream;
    x->skip_502_retry = spec->skip_502_retry;
    return 0;
}

/* The field's line, its value of that length; NULL when there is none. */
static char *find_value(struct http_exchange *x, const struct abx_pair *field)
{
    size_t name = strlen(field->key), value = strlen(field->value);

    for (struct curl_slist *node = x->headers; node; node = node->next)
        if (strncasecmp(node->data, field->key, name) == 0 &&
            strncmp(node->data + name, ": ", 2) == 0)
            return strlen(node->data + name + 2) == value ? node->data + name + 2 : NULL;
    return NULL;
}

int setup_renew(struct http_exchange *x, struct abx_err *err)
{
    struct auth_headers fresh = { 0 };
    int r = x->renew(x->user, &fresh, err);

    for (size_t i = 0; i < fresh.count && r == 0; i++) {
        char *value = find_value(x, &fresh.pairs[i]);

        if (value)
            memcpy(value, fresh.pairs[i].value, strlen(value));
        else
            r = err_set(err, ABX_INTERNAL, "the field %s cannot be renewed", fresh.pairs[i].key);
    }
    auth_headers_done(&fresh);
    return r;
}

/* ---- proxy ---- */

static bool host_is_loopback(const char *host)
{
    struct slice h = slice_str(host);

    if (h.n > 0 && h.p[h.n - 1] == '.')
        h.n--;
    if (slice_ieq_str(h, "localhost") ||
        (h.n > 10 && slice_ieq_str(slice_of(h.p + h.n - 10, 10), ".localhost")))
        return true;
    if (slice_starts_with(h, "127.")) { /* a name may begin so as well: only an address counts */
        for (size_t i = 0; i < h.n; i++)
            if (h.p[i] != '.' && (h.p[i] < '0' || h.p[i] > '9'))
                return false;
        return true;
    }
    return slice_eq_str(h, "[::1]") || slice_starts_with(h, "[::ffff:127.") ||
           slice_starts_with(h, "[::ffff:7f");
}

bool url_is_loopback(const char *url)
{
    CURLU *u = curl_url();
    char *host = NULL;
    bool is_loopback = false;

    /* libcurl's reading counts: it makes 127.1 and 0x7f000001 one address. */
    if (u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK)
        is_loopback = host_is_loopback(host);
    curl_free(host);
    curl_url_cleanup(u);
    return is_loopback;
}

/* ---- libcurl's options ---- */

#define SET(easy, option, value)                                                                   \
    do {                                                                                           \
        CURLcode set_r_ = curl_easy_setopt((easy), (option), (value));                             \
        if (set_r_ != CURLE_OK)                                                                    \
            return set_r_;                                                                         \
    } while (0)

static CURLcode set_request(struct http_exchange *x)
{
    CURL *e = x->easy;
    const char *custom = x->method;

    SET(e, CURLOPT_URL, x->url);
    if (x->is_small_body) {
        SET(e, CURLOPT_POSTFIELDS, (const char *)x->body.p);
        SET(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)x->body.n);
        SET(e, CURLOPT_POST, 1L);
    } else if (x->has_body) {
        curl_off_t size = x->source ? (curl_off_t)x->source_size : (curl_off_t)x->body.n;

        SET(e, CURLOPT_POSTFIELDS, NULL);
        SET(e, CURLOPT_UPLOAD, 1L);
        SET(e, CURLOPT_INFILESIZE_LARGE, size);
    } else {
        SET(e, CURLOPT_POSTFIELDS, NULL);
        SET(e, CURLOPT_HTTPGET, 1L);
        if (strcmp(x->method, "GET") == 0) {
            custom = NULL;
        } else if (strcmp(x->method, "HEAD") == 0) {
            SET(e, CURLOPT_NOBODY, 1L);
            custom = NULL;
        }
    }
    SET(e, CURLOPT_CUSTOMREQUEST, custom);
    SET(e, CURLOPT_HTTPHEADER, x->headers);
    return CURLE_OK;
}

static CURLcode set_connection(struct http_exchange *x)
{
    CURL *e = x->easy;
    const struct abx_config *c = x->config;
    const char *proxy = c && c->proxy && !url_is_loopback(x->url) ? c->proxy : "";
    /* libcurl 7.88 loses bytes of an answer whose request's body has no length, over HTTP/2. */
    bool is_unsized = x->source && x->source_size == ABX_UNSET;
    bool is_h2 = x->is_https && !x->http1_only && !x->is_tunnel && !is_unsized && (!c || c->http2);
    const char *ca = c && c->ca_file ? c->ca_file : x->pool->ca_file;
    /* Not the folder that libcurl was built with: with one it reads all certificates for each connection. */
    const char *ca_dir = ca ? NULL : x->pool->ca_dir;

    x->goes_past = x->pool->can_go_past && x->has_body && !x->source && !x->is_small_body &&
                   !x->is_https && !proxy[0];
    SET(e, CURLOPT_PROXY, proxy);
    SET(e, CURLOPT_HTTPPROXYTUNNEL, x->is_tunnel ? 1L : 0L);
    SET(e, CURLOPT_CONNECT_ONLY, x->is_tunnel ? 1L : 0L);
    SET(e, CURLOPT_HTTP_VERSION, (long)(is_h2 ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1));
    /* One connection for many streams: wait for it rather than open a second. */
    SET(e, CURLOPT_PIPEWAIT, is_h2 ? 1L : 0L);
    SET(e, CURLOPT_VERBOSE, is_h2 ? 1L : 0L); /* see exchange_on_debug */
    if (!x->is_https)
        return CURLE_OK;
    if (!ca)
        ca = x->pool->ca_default;
    SET(e, CURLOPT_CAINFO, ca);
    SET(e, CURLOPT_CAPATH, ca_dir);
    if (proxy[0]) {
        SET(e, CURLOPT_PROXY_CAINFO, ca);
        SET(e, CURLOPT_PROXY_CAPATH, ca_dir);
    }
    return CURLE_OK;
}

static int setup_result(CURLcode r, struct abx_err *err)
{
    if (r == CURLE_OK)
        return 0;
    if (r == CURLE_OUT_OF_MEMORY)
        return err_oom(err);
    return err_set(err, ABX_INTERNAL, "libcurl refused an option: %s", curl_easy_strerror(r));
}

int setup_attempt(struct http_exchange *x, struct abx_err *err)
{
    CURLcode r = set_request(x);

    if (r == CURLE_OK)
        r = set_connection(x);
    x->error_text[0] = '\0';
    return setup_result(r, err);
}
