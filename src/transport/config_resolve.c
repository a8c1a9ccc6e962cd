/* config_resolve.c - layers of options, environment and defaults, and what follows from the values. */
#include "transport/config_resolve.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "transport/call.h"
#include "wire/http1_head.h"

#define VALUE_MAX 8192u
#define ORIGIN_MAX (PATH_MAX + 64)
#define DEBUG_API_URL "http://localhost:3000"

abx_config *config_new(void)
{
    abx_config *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->values = calloc(CONFIG_COUNT, sizeof *c->values);
    if (!c->values) {
        free(c);
        return NULL;
    }
    return c;
}

/* ---- one value ---- */

static struct slice trim(struct slice s)
{
    while (s.n > 0 && strchr(" \t\r\n\v\f", s.p[0]) && s.p[0]) {
        s.p++;
        s.n--;
    }
    while (s.n > 0 && s.p[s.n - 1] && strchr(" \t\r\n\v\f", s.p[s.n - 1]))
        s.n--;
    return s;
}

static char *mask_secret(const char *text)
{
    size_t n = strlen(text);
    char *to = NULL;

    return asprintf(&to, "****%s", n > 8 ? text + n - 4 : "") < 0 ? NULL : to;
}

/* User and password of a proxy are not shown. */
static char *mask_proxy(const char *text)
{
    const char *host = strstr(text, "://") + 3;
    const char *at = memrchr(host, '@', strcspn(host, "/"));
    char *to = NULL;

    if (!at)
        return strdup(text);
    return asprintf(&to, "%.*s****%s", (int)(host - text), text, at) < 0 ? NULL : to;
}

static int value_set(abx_config *c, int row, const char *text, const char *origin,
                     struct abx_err *err)
{
    struct config_value *v = &c->values[row];

    v->text = strdup(text);
    v->origin = strdup(origin);
    if (!v->text || !v->origin)
        return err_oom(err);
    if (config_rows[row].key.is_secret)
        v->masked = mask_secret(text);
    else if (config_rows[row].kind == CONFIG_KIND_PROXY)
        v->masked = mask_proxy(text);
    else
        return 0;
    return v->masked ? 0 : err_oom(err);
}

static int value_check(const struct config_row *row, struct slice text, const char *copy,
                       struct abx_err *err)
{
    int64_t parsed;
    int r;

    if (text.n > VALUE_MAX)
        r = err_set(err, ABX_INVALID_ARGUMENT, "is longer than %u bytes", VALUE_MAX);
    else if (memchr(text.p, 0, text.n))
        r = err_set(err, ABX_INVALID_ARGUMENT, "has a NUL byte");
    else
        r = config_row_parse(row, copy, &parsed, err);
    return r < 0 ? err_wrap(err, r, "%s", row->key.name) : 0;
}

int config_take(abx_config *c, int row, struct slice text, const char *origin, unsigned line,
                struct abx_err *err)
{
    const struct config_row *r = &config_rows[row];
    _cleanup_(freep) char *copy = NULL;
    int result;

    text = trim(text);
    if (text.n == 0 || c->values[row].text)
        return 0;
    copy = slice_dup(text);
    if (!copy)
        return err_oom(err);
    if (r->kind == CONFIG_KIND_URL) /* paths are appended to it */
        for (size_t n = text.n; n > 0 && copy[n - 1] == '/'; n--)
            copy[n - 1] = '\0';
    result = value_check(r, text, copy, err);
    if (result < 0)
        result = line ? err_wrap(err, result, "%s: line %u", origin, line)
                      : err_wrap(err, result, "%s", origin);
    else
        result = value_set(c, row, copy, origin, err);
    if (r->key.is_secret)
        explicit_bzero(copy, text.n);
    return result;
}

static const char *text_of(const abx_config *c, int row)
{
    return c->values[row].text;
}

/* What a value that was checked when taken means; `unset` without one. */
static int64_t number_of(const abx_config *c, int row, int64_t unset)
{
    int64_t v = unset;

    if (c->values[row].text)
        (void)config_row_parse(&config_rows[row], c->values[row].text, &v, NULL);
    return v;
}

/* ---- options ---- */

static int take_flag(abx_config *c, int row, int value, struct abx_err *err)
{
    if (value == ABX_UNSET)
        return 0;
    if (value != 0 && value != 1)
        return err_set(err, ABX_INVALID_ARGUMENT, "option %s: %d is none of 0, 1 and ABX_UNSET",
                       config_rows[row].option, value);
    return config_take(c, row, slice_str(value ? "true" : "false"), "option", 0, err);
}

static int take_timeout(abx_config *c, int64_t ms, struct abx_err *err)
{
    char text[40];

    if (ms == ABX_UNSET)
        return 0;
    if (ms < 0 || ms > config_rows[CONFIG_HTTP_TIMEOUT].max * 1000)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "option request_timeout_ms: %lld is not within 0 to %lld", (long long)ms,
                       (long long)config_rows[CONFIG_HTTP_TIMEOUT].max * 1000);
    (void)snprintf(text, sizeof text, "%lld.%03lld", (long long)(ms / 1000),
                   (long long)(ms % 1000));
    return config_take(c, CONFIG_HTTP_TIMEOUT, slice_str(text), "option", 0, err);
}

static int take_options(abx_config *c, const struct abx_config_opts *o, struct abx_err *err)
{
    int r = 0;

    for (int i = 0; i < CONFIG_COUNT && r == 0; i++) {
        const char *text;

        if (config_rows[i].option_offset == SIZE_MAX)
            continue;
        memcpy(&text, (const char *)o + config_rows[i].option_offset, sizeof text);
        if (text)
            r = config_take(c, i, slice_str(text), "option", 0, err);
    }
    if (r == 0)
        r = take_flag(c, CONFIG_BEARER, o->bearer, err);
    if (r == 0)
        r = take_flag(c, CONFIG_PROTOBUF, o->protobuf, err);
    if (r == 0)
        r = take_flag(c, CONFIG_DEBUG, o->debug, err);
    return r == 0 ? take_timeout(c, o->request_timeout_ms, err) : r;
}

static bool is_field_value(const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; p && *p; p++)
        if ((*p < ' ' && *p != '\t') || *p == 0x7f)
            return false;
    return text != NULL;
}

static int pairs_copy(const char *option, const struct abx_pair *from, size_t n,
                      struct abx_pair **ret, size_t *ret_count, struct abx_err *err)
{
    if (n == 0)
        return 0;
    if (!from)
        return err_set(err, ABX_INVALID_ARGUMENT, "option %s is NULL, its count is not 0", option);
    *ret = calloc(n, sizeof **ret);
    if (!*ret)
        return err_oom(err);
    *ret_count = n;
    for (size_t i = 0; i < n; i++) {
        if (!http1_is_token(slice_str(from[i].key)))
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "option %s: '%.64s' is not a name of a header field", option,
                           from[i].key ? from[i].key : "");
        if (!is_field_value(from[i].value))
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "option %s: the value of '%.64s' is not one of a header field", option,
                           from[i].key);
        (*ret)[i].key = strdup(from[i].key);
        (*ret)[i].value = strdup(from[i].value);
        if (!(*ret)[i].key || !(*ret)[i].value)
            return err_oom(err);
    }
    return 0;
}

static int take_headers(abx_config *c, const struct abx_config_opts *o, struct abx_err *err)
{
    const char *agent = o->user_agent && o->user_agent[0] ? o->user_agent : "abx/" ABX_VERSION;
    bool has_more = o->integration && o->integration[0];
    int r;

    if (!is_field_value(agent) || (has_more && !is_field_value(o->integration)))
        return err_set(err, ABX_INVALID_ARGUMENT, "option %s has a control character",
                       is_field_value(agent) ? "integration" : "user_agent");
    if (asprintf(&c->user_agent, "%s%s%s", agent, has_more ? " " : "",
                 has_more ? o->integration : "") < 0) {
        c->user_agent = NULL;
        return err_oom(err);
    }
    r = pairs_copy("headers", o->headers, o->header_count, &c->headers, &c->header_count, err);
    if (r < 0)
        return r;
    return pairs_copy("sandbox_headers", o->sandbox_headers, o->sandbox_header_count,
                      &c->sandbox_headers, &c->sandbox_header_count, err);
}

/* ---- environment ---- */

static int take_env(abx_config *c, int row, const char *name, struct abx_err *err)
{
    const char *text = name ? getenv(name) : NULL;
    char origin[ORIGIN_MAX];

    if (!text)
        return 0;
    (void)snprintf(origin, sizeof origin, "environment %s", name);
    return config_take(c, row, slice_str(text), origin, 0, err);
}

static int take_environment(abx_config *c, struct abx_err *err)
{
    int r = 0;

    for (int i = 0; i < CONFIG_COUNT && r == 0; i++) {
        const struct config_row *row = &config_rows[i];

        r = take_env(c, i, row->env_scoped, err);
        if (r == 0)
            r = take_env(c, i, row->key.env, err);
        if (r == 0)
            r = take_env(c, i, row->key.env_e2b, err);
    }
    return r;
}

/* ---- what follows ---- */

/* The address where a debug sandbox's control plane listens counts unless one is named for it. */
static int derive_debug(abx_config *c, struct abx_err *err)
{
    struct config_value *url = &c->values[CONFIG_BASE_URL];

    if (number_of(c, CONFIG_DEBUG, 0) == 0)
        return 0;
    if (url->text &&
        (strcmp(url->origin, "option") == 0 || strcmp(url->origin, "environment E2B_API_URL") == 0))
        return 0;
    free(TAKE_PTR(url->text));
    free(TAKE_PTR(url->origin));
    return value_set(c, CONFIG_BASE_URL, DEBUG_API_URL, "from debug", err);
}

/* "https://api.example.com:8443/x" -> "example.com:8443" */
static int domain_from_url(abx_config *c, struct abx_err *err)
{
    const char *host = strstr(text_of(c, CONFIG_BASE_URL), "://") + 3;
    char domain[256];

    if (strncasecmp(host, "api.", 4) == 0)
        host += 4;
    (void)snprintf(domain, sizeof domain, "%.*s", (int)strcspn(host, "/"), host);
    return value_set(c, CONFIG_DOMAIN, domain, "from sandbox_base_url", err);
}

static int domain_from_region(abx_config *c, struct abx_err *err)
{
    const char *region = text_of(c, CONFIG_REGION);
    char domain[256];

    if (!region || strcmp(region, config_rows[CONFIG_REGION].key.fallback) == 0)
        return value_set(c, CONFIG_DOMAIN, config_rows[CONFIG_DOMAIN].key.fallback, "default", err);
    (void)snprintf(domain, sizeof domain, "%s.e2b.fc.aliyuncs.com", region);
    return value_set(c, CONFIG_DOMAIN, domain, "from region", err);
}

static int derive(abx_config *c, struct abx_err *err)
{
    bool is_default = false;
    char url[512];
    int r = derive_debug(c, err);

    if (r < 0)
        return r;
    c->api_url_is_explicit = text_of(c, CONFIG_BASE_URL) != NULL;
    if (!text_of(c, CONFIG_DOMAIN)) {
        r = c->api_url_is_explicit ? domain_from_url(c, err) : domain_from_region(c, err);
        if (r < 0)
            return r;
        is_default = strcmp(c->values[CONFIG_DOMAIN].origin, "default") == 0;
    }
    if (!text_of(c, CONFIG_BASE_URL)) {
        (void)snprintf(url, sizeof url, "https://api.%s", text_of(c, CONFIG_DOMAIN));
        r = value_set(c, CONFIG_BASE_URL, url, is_default ? "default" : "from sandbox_domain", err);
        if (r < 0)
            return r;
    }
    for (int i = 0; i < CONFIG_COUNT; i++) {
        const char *fallback = config_rows[i].key.fallback;

        if (fallback && !text_of(c, i)) {
            r = value_set(c, i, fallback, "default", err);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

static bool is_option(const abx_config *c, int row)
{
    return text_of(c, row) && strcmp(c->values[row].origin, "option") == 0;
}

static int fill_credentials(abx_config *c, struct abx_err *err)
{
    bool has_key = text_of(c, CONFIG_API_KEY) != NULL;
    bool has_id = text_of(c, CONFIG_ACCESS_KEY_ID) != NULL;
    bool has_secret = text_of(c, CONFIG_ACCESS_KEY_SECRET) != NULL;
    bool is_asked = is_option(c, CONFIG_ACCESS_KEY_ID) || is_option(c, CONFIG_ACCESS_KEY_SECRET);

    c->is_signed =
        has_id && has_secret && (!has_key || (is_asked && !is_option(c, CONFIG_API_KEY)));
    if (has_id != has_secret && (is_asked || !has_key)) {
        int there = has_id ? CONFIG_ACCESS_KEY_ID : CONFIG_ACCESS_KEY_SECRET;
        int lacking = has_id ? CONFIG_ACCESS_KEY_SECRET : CONFIG_ACCESS_KEY_ID;

        return err_set(err, ABX_INVALID_ARGUMENT, "%s: %s is set without %s (%s)",
                       c->values[there].origin, config_rows[there].key.name,
                       config_rows[lacking].key.name, config_rows[lacking].key.env);
    }
    c->api_key = text_of(c, CONFIG_API_KEY);
    c->access_token = text_of(c, CONFIG_ACCESS_TOKEN);
    c->access_key_id = text_of(c, CONFIG_ACCESS_KEY_ID);
    c->access_key_secret = text_of(c, CONFIG_ACCESS_KEY_SECRET);
    c->security_token = text_of(c, CONFIG_SECURITY_TOKEN);
    return 0;
}

static void fill(abx_config *c)
{
    c->api_url = text_of(c, CONFIG_BASE_URL);
    c->domain = text_of(c, CONFIG_DOMAIN);
    c->sandbox_url = text_of(c, CONFIG_SANDBOX_URL);
    c->volume_url = text_of(c, CONFIG_VOLUME_URL);
    c->proxy = text_of(c, CONFIG_PROXY);
    c->ca_file = text_of(c, CONFIG_CA_FILE);
    c->default_template = text_of(c, CONFIG_DEFAULT_TEMPLATE);
    c->profile = text_of(c, CONFIG_PROFILE);
    c->request_timeout_ms = number_of(c, CONFIG_HTTP_TIMEOUT, 0);
    c->ws_ping_interval_ms = number_of(c, CONFIG_WS_PING_INTERVAL, 0);
    c->bearer = number_of(c, CONFIG_BEARER, 0) != 0;
    c->debug = number_of(c, CONFIG_DEBUG, 0) != 0;
    c->http2 = number_of(c, CONFIG_HTTP2, 1) != 0;
    c->validate_api_key = number_of(c, CONFIG_VALIDATE_API_KEY, 0) != 0;
    c->protobuf = (int)number_of(c, CONFIG_PROTOBUF, ABX_UNSET);
    c->max_connections = (int)number_of(c, CONFIG_MAX_CONNECTIONS, 0);
    c->max_idle_connections = (int)number_of(c, CONFIG_MAX_IDLE_CONNECTIONS, 0);
    c->idle_timeout_ms = (int)number_of(c, CONFIG_IDLE_TIMEOUT, 0);
    c->connect_retries = (int)number_of(c, CONFIG_CONNECT_RETRIES, 0);
}

static int resolve(const struct abx_config_opts *o, abx_config **ret, struct abx_err *err)
{
    _cleanup_(config_freep) abx_config *c = config_new();
    int r;

    if (!c)
        return err_oom(err);
    r = take_options(c, o, err);
    if (r == 0)
        r = take_headers(c, o, err);
    if (r == 0)
        r = take_environment(c, err);
    if (r == 0)
        r = config_take_files(c, err);
    if (r == 0)
        r = derive(c, err);
    if (r == 0)
        r = fill_credentials(c, err);
    if (r < 0)
        return r;
    fill(c);
    atomic_store(&c->refs, 1);
    *ret = TAKE_PTR(c);
    return 0;
}

int abx_config_load(const struct abx_config_opts *opts, abx_config **ret, struct abx_error *error)
{
    struct abx_config_opts o = ABX_CONFIG_OPTS_INIT;
    struct abx_err err = { 0 };
    int r;

    if (opts && (opts->size < sizeof opts->size || opts->size > 65536)) {
        r = err_set(&err, ABX_INVALID_ARGUMENT, "options: size %zu is not that of the structure",
                    opts->size);
    } else {
        if (opts)
            memcpy(&o, opts, MIN(opts->size, sizeof o));
        r = resolve(&o, ret, &err);
        if (r == 0) {
            (*ret)->trace = o.trace;
            (*ret)->trace_user = o.trace_user;
            (*ret)->trace_free = o.trace_free;
        }
    }
    if (r < 0 && error)
        error_export(&err, 0, error);
    return r;
}
