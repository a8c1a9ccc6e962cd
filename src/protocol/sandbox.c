/* sandbox.c - see sandbox.h. URLs: client.md 2.3, e2b.md 2.1; headers: e2b.md 2.3. */
#include "protocol/sandbox.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/str.h"
#include "e2b/hosts.h"
#include "transport/call.h"
#include "transport/config.h"
#include "transport/opts.h"

#define CODE_PORT 49999
#define ID_MAX 128u
#define TOKEN_MAX 4096u

/* Their sandboxes are served by one host too, `sandbox.<domain>`, which routes by headers. */
static const char *const shared_domains[] = {
    "e2b.app",       "e2b.dev",         "e2b.pro",           "e2b-staging.dev",
    "e2b-tango.dev", "e2b-juliett.dev", "foxtrot-2.e2b.dev",
};

static bool domain_is_shared(const char *domain)
{
    for (size_t i = 0; i < ARRAY_SIZE(shared_domains); i++) {
        if (strcmp(domain, shared_domains[i]) == 0)
            return true;
    }
    return false;
}

/* ---- version ---- */

static bool take_number(const char **at, unsigned *ret)
{
    unsigned n = 0;
    const char *p = *at;

    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (__builtin_mul_overflow(n, 10u, &n) || __builtin_add_overflow(n, *p - '0', &n))
            return false;
    }
    *at = p;
    *ret = n;
    return true;
}

/* The versions before a release ("0.5.2rc1", "0.5.2.dev3") are less than it: the number just below. */
static void version_lower(unsigned v[3])
{
    for (int i = 2; i >= 0; i--) {
        if (v[i] > 0) {
            v[i]--;
            for (int k = i + 1; k < 3; k++)
                v[k] = UINT_MAX;
            return;
        }
    }
}

/* The first three numbers of a version as PEP 440 and others write it ("0.6", "v0.6.13", "0.6.13+abc"). */
static bool version_parse(const char *text, unsigned v[3])
{
    static const char *const before[] = { "a", "b", "c", "rc", "alpha", "beta", "pre", "dev" };
    const char *p = text;
    size_t letters = 0;
    int n = 0;

    v[0] = v[1] = v[2] = 0;
    if (*p == 'v' || *p == 'V')
        p++;
    for (;;) {
        unsigned more;

        if (!take_number(&p, n < 3 ? &v[n] : &more))
            return false;
        n++;
        if (p[0] != '.' || p[1] < '0' || p[1] > '9')
            break;
        p++;
    }
    if (*p == '\0' || *p == '+')
        return true;
    if (p[0] == '-' && p[1] >= '0' && p[1] <= '9')
        return true; /* a post release */
    if (*p == '.' || *p == '-' || *p == '_')
        p++;
    while ((p[letters] | 0x20) >= 'a' && (p[letters] | 0x20) <= 'z')
        letters++;
    if (letters == 4 && strncasecmp(p, "post", 4) == 0)
        return true;
    for (size_t i = 0; i < ARRAY_SIZE(before); i++) {
        if (strlen(before[i]) == letters && strncasecmp(p, before[i], letters) == 0) {
            version_lower(v);
            return true;
        }
    }
    return false;
}

int sandbox_deadline(const abx_sandbox *sb, int64_t request_timeout_ms, int64_t *ret_ns,
                     struct abx_err *err)
{
    int r = timeout_check(request_timeout_ms, "request_timeout_ms", err);

    if (!sb)
        return err_set(err, ABX_INVALID_ARGUMENT, "sandbox: is missing (NULL)");
    if (r == 0)
        *ret_ns = config_deadline_ns(sb->config, request_timeout_ms);
    return r;
}

bool sandbox_has_envd(const abx_sandbox *sb, unsigned major, unsigned minor, unsigned patch)
{
    const unsigned want[3] = { major, minor, patch };

    if (!sb) /* sandbox_deadline names it */
        return true;
    for (int i = 0; i < 3; i++) {
        if (sb->envd[i] != want[i])
            return sb->envd[i] > want[i];
    }
    return true;
}

int sandbox_need_envd(const abx_sandbox *sb, unsigned major, unsigned minor, unsigned patch,
                      const char *what, struct abx_err *err)
{
    if (sandbox_has_envd(sb, major, minor, patch))
        return 0;
    return err_reason(err, ABX_REASON_TEMPLATE_TOO_OLD,
                      "%s needs envd %u.%u.%u, the sandbox has %s: rebuild its template", what,
                      major, minor, patch, sb->envd_version);
}

/* ---- addresses ---- */

static bool url_is_http(const char *url)
{
    return strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0;
}

static char *dup_without_slash(const char *url)
{
    size_t n = strlen(url);

    while (n > 0 && url[n - 1] == '/')
        n--;
    return slice_dup(slice_of(url, n));
}

_printf_(1, 2) static char *text_make(const char *fmt, ...)
{
    va_list ap;
    char *text = NULL;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    return n < 0 ? NULL : text;
}

/* Where the host of `url` says "49983-": the place of the port's digits, else NULL. */
static const char *host_port_of(const char *url)
{
    const char *host = strstr(url, "://");

    return host && strncmp(host + 3, "49983-", 6) == 0 ? host + 3 : NULL;
}

/* One base URL that all sandboxes share, by the order of sandbox.h; NULL = there is none. */
static const char *base_url(const abx_config *config, const struct abx_sandbox_parts *parts)
{
    if (config->sandbox_url)
        return config->sandbox_url;
    if (config->debug)
        return "http://localhost:49983";
    if (parts->envd_url && *parts->envd_url)
        return parts->envd_url;
    if (config->api_url_is_explicit && strncmp(config->api_url, "http://", 7) == 0)
        return config->api_url;
    return NULL;
}

static int set_urls(abx_sandbox *sb, const struct abx_sandbox_parts *parts, struct abx_err *err)
{
    const char *base = base_url(sb->config, parts);

    if (base) {
        sb->envd_url = dup_without_slash(base);
        sb->envd_direct_url = dup_without_slash(base);
        sb->by_headers = !host_port_of(base);
    } else {
        sb->envd_direct_url = text_make("https://%d-%s.%s", ENVD_PORT, sb->id, sb->domain);
        sb->by_headers = domain_is_shared(sb->domain);
        sb->envd_url = sb->by_headers ? text_make("https://sandbox.%s", sb->domain)
                                      : slice_dup(slice_str(sb->envd_direct_url));
    }
    return sb->envd_url && sb->envd_direct_url ? 0 : err_oom(err);
}

int sandbox_port_url(const abx_sandbox *sb, uint16_t port, char **ret, struct abx_err *err)
{
    const char *at = host_port_of(sb->envd_url);
    char *url;

    if (sb->config->debug && !sb->config->sandbox_url)
        url = text_make("http://localhost:%u", port);
    else if (sb->by_headers || !at)
        url = slice_dup(slice_str(sb->envd_url));
    else
        url = text_make("%.*s%u%s", (int)(at - sb->envd_url), sb->envd_url, port, at + 5);
    if (!url)
        return err_oom(err);
    *ret = url;
    return 0;
}

char *abx_sandbox_host(const abx_sandbox *sb, uint16_t port)
{
    if (!sb)
        return NULL;
    if (sb->config->debug)
        return text_make("localhost:%u", port);
    return text_make("%u-%s.%s", port, sb->id, sb->domain);
}

/* ---- life ---- */

int sandbox_id_check(const char *id, struct abx_err *err)
{
    size_t n =
        id ? strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") : 0;

    if (n > 0 && n <= ID_MAX && id[n] == '\0')
        return 0;
    return err_set(err, ABX_INVALID_ARGUMENT,
                   "sandbox id: has to be 1 to %u characters of [A-Za-z0-9-_]", ID_MAX);
}

static bool token_is_valid(const char *token)
{
    size_t n = 0;

    while (token[n] > ' ' && token[n] < 0x7f)
        n++;
    return n <= TOKEN_MAX && token[n] == '\0';
}

static int check_parts(const struct abx_sandbox_parts *parts, struct abx_err *err)
{
    int r = sandbox_id_check(parts->sandbox_id, err);

    if (r < 0)
        return r;
    if ((parts->envd_access_token && !token_is_valid(parts->envd_access_token)) ||
        (parts->traffic_access_token && !token_is_valid(parts->traffic_access_token)))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "access token of sandbox %s: has to be at most %u printable characters",
                       parts->sandbox_id, TOKEN_MAX);
    if (parts->domain && *parts->domain && !host_is_valid(slice_str(parts->domain)))
        return err_set(err, ABX_INVALID_ARGUMENT, "domain of sandbox %s: '%.100s' is no host name",
                       parts->sandbox_id, parts->domain);
    if (parts->envd_url && *parts->envd_url && !url_is_http(parts->envd_url))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "envd URL of sandbox %s: '%.100s' is no http:// or https:// URL",
                       parts->sandbox_id, parts->envd_url);
    return 0;
}

/* Copies a text; NULL and "" are "not told". */
static bool copy(char **to, const char *from)
{
    if (!from || !*from)
        return true;
    *to = slice_dup(slice_str(from));
    return *to != NULL;
}

static void sandbox_free(abx_sandbox *sb)
{
    abx_config_unref(sb->config);
    free(sb->id);
    free(sb->template_id);
    free(sb->envd_version);
    free(sb->access_token);
    free(sb->traffic_token);
    free(sb->domain);
    free(sb->envd_url);
    free(sb->envd_direct_url);
    free(sb);
}
DEFINE_CLEANUP(abx_sandbox *, sandbox_free)

int sandbox_new(abx_config *config, const struct abx_sandbox_parts *parts, abx_sandbox **ret,
                struct abx_err *err)
{
    _cleanup_(sandbox_freep) abx_sandbox *sb = NULL;
    const char *domain = parts->domain;
    int r = config_check(config, err);

    if (r == 0)
        r = check_parts(parts, err);
    if (r < 0)
        return r;
    if (!domain || !*domain)
        domain = config->domain;
    sb = calloc(1, sizeof *sb);
    if (!sb)
        return err_oom(err);
    atomic_init(&sb->refs, 1);
    sb->config = abx_config_ref(config);
    if (!copy(&sb->id, parts->sandbox_id) || !copy(&sb->template_id, parts->template_id) ||
        !copy(&sb->envd_version, parts->envd_version) ||
        !copy(&sb->access_token, parts->envd_access_token) ||
        !copy(&sb->traffic_token, parts->traffic_access_token) || !copy(&sb->domain, domain))
        return err_oom(err);
    if (!sb->envd_version || !version_parse(sb->envd_version, sb->envd))
        sb->envd[0] = sb->envd[1] = sb->envd[2] = 99;
    sb->protobuf = config->protobuf == ABX_UNSET ? parts->protobuf != 0 : config->protobuf != 0;
    r = set_urls(sb, parts, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(sb);
    return 0;
}

int abx_sandbox_new(abx_config *config, const struct abx_sandbox_parts *parts, abx_sandbox **ret,
                    struct abx_error *error)
{
    struct abx_sandbox_parts p = { 0 };
    struct abx_err err = { 0 };
    int r = opts_copy(&p, sizeof p, parts, "abx_sandbox_parts", &err);

    if (r == 0)
        r = sandbox_new(config, &p, ret, &err);
    if (r < 0 && error)
        error_export(&err, 0, error);
    return r;
}

abx_sandbox *abx_sandbox_ref(abx_sandbox *sb)
{
    if (sb)
        atomic_fetch_add_explicit(&sb->refs, 1, memory_order_relaxed);
    return sb;
}

void abx_sandbox_unref(abx_sandbox *sb)
{
    if (sb && atomic_fetch_sub_explicit(&sb->refs, 1, memory_order_acq_rel) == 1)
        sandbox_free(sb);
}

const char *abx_sandbox_id(const abx_sandbox *sb)
{
    return sb ? sb->id : NULL;
}

const char *abx_sandbox_template_id(const abx_sandbox *sb)
{
    return sb ? sb->template_id : NULL;
}

const char *abx_sandbox_envd_version(const abx_sandbox *sb)
{
    return sb ? sb->envd_version : NULL;
}

const char *abx_sandbox_domain(const abx_sandbox *sb)
{
    return sb ? sb->domain : NULL;
}

const char *abx_sandbox_access_token(const abx_sandbox *sb)
{
    return sb ? sb->access_token : NULL;
}

const char *abx_sandbox_traffic_token(const abx_sandbox *sb)
{
    return sb ? sb->traffic_token : NULL;
}

const char *abx_sandbox_envd_url(const abx_sandbox *sb, int direct)
{
    if (!sb)
        return NULL;
    return direct ? sb->envd_direct_url : sb->envd_url;
}

abx_config *abx_sandbox_config(const abx_sandbox *sb)
{
    return sb ? sb->config : NULL;
}

/* ---- headers ---- */

struct header_list {
    const abx_sandbox *sb;
    struct abx_pair *to;
    size_t count;
};

/* Adds one of ours unless the config has it: whoever reads it takes a second one for an attack. */
static void put(struct header_list *l, const char *key, const char *value)
{
    const abx_config *config = l->sb->config;

    for (size_t i = 0; i < config->sandbox_header_count; i++) {
        if (strcasecmp(config->sandbox_headers[i].key, key) == 0)
            return;
    }
    l->to[l->count++] = (struct abx_pair){ key, value };
}

/* "Basic " and base64 of "<user>:" behind what `mem` holds; NULL when it does not fit. */
static const char *put_basic(struct buf *mem, const char *user)
{
    _cleanup_(buf_done) struct buf plain = BUF_INIT(SIZE_MAX / 4);
    size_t at = mem->len;

    if (buf_append_str(&plain, user) != BUF_OK || buf_append_byte(&plain, ':') != BUF_OK ||
        buf_append_str(mem, "Basic ") != BUF_OK ||
        base64_encode(mem, buf_slice(&plain), true) != BUF_OK ||
        buf_append_byte(mem, '\0') != BUF_OK)
        return NULL;
    return (const char *)buf_data(mem) + at;
}

int sandbox_headers(const abx_sandbox *sb, uint16_t port, const char *user, struct buf *mem,
                    struct abx_pair to[SANDBOX_HEADERS_MAX], struct abx_err *err)
{
    enum { OWN_MAX = 5, PORT_SIZE = 6 };
    const abx_config *config = sb->config;
    struct header_list l = { sb, to, 0 };
    const char *basic = NULL;
    char *digits;

    if (config->sandbox_header_count > SANDBOX_HEADERS_MAX - OWN_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "%zu sandbox headers, at most %d are possible",
                       config->sandbox_header_count, SANDBOX_HEADERS_MAX - OWN_MAX);
    /* All at once: a pointer into `mem` lasts until it grows. */
    if (!buf_reserve(mem, PORT_SIZE + (user ? 16 + (strlen(user) + 3) / 3 * 4 : 0), NULL))
        return err_oom(err);
    digits = (char *)buf_reserve(mem, PORT_SIZE, NULL);
    if (!digits)
        return err_oom(err);
    (void)snprintf(digits, PORT_SIZE, "%u", port);
    buf_commit(mem, PORT_SIZE);
    if (user) {
        basic = put_basic(mem, user);
        if (!basic)
            return err_oom(err);
    }
    put(&l, "E2b-Sandbox-Id", sb->id);
    put(&l, "E2b-Sandbox-Port", digits);
    if (sb->access_token && (port == ENVD_PORT || port == CODE_PORT))
        put(&l, "X-Access-Token", sb->access_token);
    if (sb->traffic_token && port != ENVD_PORT)
        put(&l, "E2B-Traffic-Access-Token", sb->traffic_token);
    if (basic)
        put(&l, "Authorization", basic);
    for (size_t i = 0; i < config->sandbox_header_count; i++)
        to[l.count++] = config->sandbox_headers[i];
    return (int)l.count;
}
