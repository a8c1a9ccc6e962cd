/* config_table.c - see config_table.h. */
#include "transport/config_table.h"

#include <string.h>

#include "base/str.h"
#include "e2b/hosts.h"

#define KEY(n, e, e2b, t, f, h, s) { sizeof(struct abx_config_key), n, e, e2b, t, f, h, s }
#define NO_OPTION .option_offset = SIZE_MAX
#define OPTION(field) .option = #field, .option_offset = offsetof(struct abx_config_opts, field)
#define FLAG(field) .option = #field, .option_offset = SIZE_MAX

/* Longest time: milliseconds have to fit into an int. */
#define SECONDS_MAX 2000000
#define COUNT_MAX 100000

const struct config_row config_rows[CONFIG_COUNT] = {
    [CONFIG_PROFILE] = { KEY("profile", "ABX_PROFILE", NULL, "string", NULL,
                             "table [profiles.NAME] of config.toml that comes before its others",
                             0),
                         .table = "core", OPTION(profile), .kind = CONFIG_KIND_NAME },
    [CONFIG_PROVIDER] = { KEY("provider", "ABX_PROVIDER", NULL, "string", "alicloud-express",
                              "provider; its table [providers.NAME] comes before [transport]", 0),
                          .table = "core", NO_OPTION, .kind = CONFIG_KIND_NAME },
    [CONFIG_API_KEY] = { KEY("sandbox_api_key", "ABX_SANDBOX_API_KEY", "E2B_API_KEY", "string",
                             NULL, "API key of the control plane", 1),
                         .env_scoped = "ABX_ALICLOUD_EXPRESS_SANDBOX_API_KEY", OPTION(api_key),
                         .kind = CONFIG_KIND_SECRET },
    [CONFIG_ACCESS_TOKEN] = { KEY("access_token", "ABX_ACCESS_TOKEN", "E2B_ACCESS_TOKEN", "string",
                                  NULL, "sent as Authorization: Bearer besides the key", 1),
                              OPTION(access_token), .kind = CONFIG_KIND_SECRET },
    [CONFIG_ACCESS_KEY_ID] = { KEY("access_key_id", "ALICLOUD_ACCESS_KEY_ID", NULL, "string", NULL,
                                   "id of an access key: requests without API key are signed", 1),
                               OPTION(access_key_id), .kind = CONFIG_KIND_SECRET },
    [CONFIG_ACCESS_KEY_SECRET] = { KEY("access_key_secret", "ALICLOUD_ACCESS_KEY_SECRET", NULL,
                                       "string", NULL, "secret of the access key", 1),
                                   OPTION(access_key_secret), .kind = CONFIG_KIND_SECRET },
    [CONFIG_SECURITY_TOKEN] = { KEY("security_token", "ALICLOUD_SECURITY_TOKEN", NULL, "string",
                                    NULL, "token of a temporary access key", 1),
                                OPTION(security_token), .kind = CONFIG_KIND_SECRET },
    [CONFIG_BASE_URL] = { KEY("sandbox_base_url", "ABX_SANDBOX_BASE_URL", "E2B_API_URL", "url",
                              "https://api.cn-hangzhou.e2b.fc.aliyuncs.com",
                              "base URL of the control plane; else https://api.<sandbox_domain>",
                              0),
                          .env_scoped = "ABX_ALICLOUD_EXPRESS_SANDBOX_BASE_URL",
                          .table = "transport", OPTION(api_url), .kind = CONFIG_KIND_URL },
    [CONFIG_DOMAIN] = { KEY("sandbox_domain", "ABX_SANDBOX_DOMAIN", "E2B_DOMAIN", "string",
                            "cn-hangzhou.e2b.fc.aliyuncs.com",
                            "domain of sandbox hosts, <port>-<id>.<domain>", 0),
                        .env_scoped = "ABX_ALICLOUD_EXPRESS_SANDBOX_DOMAIN", .table = "transport",
                        OPTION(domain), .kind = CONFIG_KIND_DOMAIN },
    [CONFIG_SANDBOX_URL] = { KEY("sandbox_url", "ABX_SANDBOX_URL", "E2B_SANDBOX_URL", "url", NULL,
                                 "one base URL of all sandboxes, routed by header fields", 0),
                             .table = "transport", OPTION(sandbox_url), .kind = CONFIG_KIND_URL },
    [CONFIG_VOLUME_URL] = { KEY("volume_api_url", "ABX_VOLUME_API_URL", "E2B_VOLUME_API_URL", "url",
                                NULL, "base URL of volume content", 0),
                            .table = "transport", OPTION(volume_url), .kind = CONFIG_KIND_URL },
    [CONFIG_REGION] = { KEY("region", "ALIBABA_CLOUD_REGION_ID", NULL, "string", "cn-hangzhou",
                            "region of the default sandbox_domain", 0),
                        .table = "transport", NO_OPTION, .kind = CONFIG_KIND_NAME },
    [CONFIG_PROXY] = { KEY("proxy", "ABX_PROXY", NULL, "url", NULL,
                           "proxy of all traffic but loopback: http, https, socks5, socks5h", 0),
                       .table = "transport", OPTION(proxy), .kind = CONFIG_KIND_PROXY },
    [CONFIG_CA_FILE] = { KEY("ca_file", "ABX_CA_FILE", "SSL_CERT_FILE", "string", NULL,
                             "PEM file with the certificates to trust; else the system's", 0),
                         .table = "transport", OPTION(ca_file), .kind = CONFIG_KIND_TEXT },
    [CONFIG_BEARER] = { KEY("bearer", "ABX_BEARER", NULL, "bool", "false",
                            "send the API key as Authorization: Bearer, not as X-API-Key", 0),
                        .table = "transport", FLAG(bearer), .kind = CONFIG_KIND_BOOL },
    [CONFIG_VALIDATE_API_KEY] = { KEY("validate_api_key", "ABX_VALIDATE_API_KEY",
                                      "E2B_VALIDATE_API_KEY", "bool", "false",
                                      "refuse an API key that is not e2b_ and hex digits", 0),
                                  .table = "transport", NO_OPTION, .kind = CONFIG_KIND_BOOL },
    [CONFIG_HTTP_TIMEOUT] = { KEY("http_timeout", "ABX_HTTP_TIMEOUT", NULL, "float", "60.0",
                                  "seconds for a request that says no other; 0 = no limit", 0),
                              .table = "transport", FLAG(request_timeout_ms),
                              .kind = CONFIG_KIND_SECONDS, .max = SECONDS_MAX },
    [CONFIG_HTTP2] = { KEY("http2", "ABX_HTTP2", NULL, "bool", "true",
                           "offer HTTP/2 on encrypted connections", 0),
                       .table = "transport", NO_OPTION, .kind = CONFIG_KIND_BOOL },
    [CONFIG_PROTOBUF] = { KEY("protobuf", "ABX_PROTOBUF", NULL, "bool", NULL,
                              "protobuf messages into sandboxes; unset: as the server offers", 0),
                          .table = "transport", FLAG(protobuf), .kind = CONFIG_KIND_BOOL },
    [CONFIG_MAX_CONNECTIONS] = { KEY("max_connections", "ABX_MAX_CONNECTIONS",
                                     "E2B_MAX_CONNECTIONS", "int", "100",
                                     "most connections at once, over all hosts", 0),
                                 .table = "transport", NO_OPTION, .kind = CONFIG_KIND_COUNT,
                                 .min = 1, .max = COUNT_MAX },
    [CONFIG_MAX_IDLE_CONNECTIONS] = { KEY("max_keepalive_connections",
                                          "ABX_MAX_KEEPALIVE_CONNECTIONS",
                                          "E2B_MAX_KEEPALIVE_CONNECTIONS", "int", "20",
                                          "most idle connections that are kept open", 0),
                                      .table = "transport", NO_OPTION, .kind = CONFIG_KIND_COUNT,
                                      .max = COUNT_MAX },
    [CONFIG_IDLE_TIMEOUT] = { KEY("keepalive_expiry", "ABX_KEEPALIVE_EXPIRY",
                                  "E2B_KEEPALIVE_EXPIRY", "float", "30.0",
                                  "seconds after which an idle connection is closed", 0),
                              .table = "transport", NO_OPTION, .kind = CONFIG_KIND_SECONDS,
                              .max = SECONDS_MAX },
    [CONFIG_CONNECT_RETRIES] = { KEY("connection_retries", "ABX_CONNECTION_RETRIES",
                                     "E2B_CONNECTION_RETRIES", "int", "3",
                                     "further tries when no connection could be made", 0),
                                 .table = "transport", NO_OPTION, .kind = CONFIG_KIND_COUNT,
                                 .max = 10 },
    [CONFIG_WS_PING_INTERVAL] = { KEY("ws_ping_interval", "ABX_WS_PING_INTERVAL", NULL, "float",
                                      "30.0", "seconds between pings of a WebSocket; 0 = none", 0),
                                  .table = "transport", NO_OPTION, .kind = CONFIG_KIND_SECONDS,
                                  .max = SECONDS_MAX },
    [CONFIG_DEFAULT_TEMPLATE] = { KEY("default_template", "ABX_DEFAULT_TEMPLATE", NULL, "string",
                                      "base", "template of a sandbox that names none", 0),
                                  .table = "transport", NO_OPTION, .kind = CONFIG_KIND_TEXT },
    [CONFIG_DEBUG] = { KEY("debug", "ABX_DEBUG", "E2B_DEBUG", "bool", "false",
                           "no control plane: one sandbox at localhost", 0),
                       .table = "transport", FLAG(debug), .kind = CONFIG_KIND_BOOL },
    [CONFIG_LOG_LEVEL] = { KEY("log_level", "ABX_LOG_LEVEL", NULL, "string", "WARNING",
                               "what programs of the client log", 0),
                           .table = "transport", NO_OPTION, .kind = CONFIG_KIND_NAME },
    [CONFIG_GITHUB_TOKEN] = { KEY("github_token", "GITHUB_TOKEN", NULL, "string", NULL,
                                  "token for template sources on GitHub", 1),
                              NO_OPTION, .kind = CONFIG_KIND_SECRET },
    [CONFIG_TEMPLATE_INDEX_URL] = { KEY("template_index_url", "ABX_TEMPLATE_INDEX_URL", NULL, "url",
                                        NULL, "address of the index of templates", 0),
                                    .table = "transport", NO_OPTION, .kind = CONFIG_KIND_URL },
    [CONFIG_TEMPLATE_DIR] = { KEY("template_dir", "ABX_TEMPLATE_DIR", NULL, "string", NULL,
                                  "folder of template sources", 0),
                              .table = "transport", NO_OPTION, .kind = CONFIG_KIND_TEXT },
    [CONFIG_MCP_AUTH_TOKEN] = { KEY("mcp_auth_token", "ABX_MCP_AUTH_TOKEN", NULL, "string", NULL,
                                    "token that clients of the MCP server send", 1),
                                NO_OPTION, .kind = CONFIG_KIND_SECRET },
    [CONFIG_MCP_ALLOWED_ORIGINS] = { KEY("mcp_allowed_origins", "ABX_MCP_ALLOWED_ORIGINS", NULL,
                                         "string", NULL,
                                         "origins that the MCP server answers, by commas", 0),
                                     .table = "transport", NO_OPTION, .kind = CONFIG_KIND_TEXT },
    [CONFIG_MCP_RUNTIME_DIR] = { KEY("mcp_runtime_dir", "ABX_MCP_RUNTIME_DIR", NULL, "string", NULL,
                                     "folder for the state of the MCP server", 0),
                                 .table = "transport", NO_OPTION, .kind = CONFIG_KIND_TEXT },
};

int config_row_find(const char *name)
{
    for (int i = 0; i < CONFIG_COUNT; i++)
        if (strcmp(config_rows[i].key.name, name) == 0)
            return i;
    return -1;
}

const struct abx_config_key *abx_config_key_at(size_t i)
{
    return i < CONFIG_COUNT ? &config_rows[i].key : NULL;
}

static bool is_visible_ascii(const char *text)
{
    for (const char *p = text; *p; p++)
        if (*p <= ' ' || *p > '~')
            return false;
    return true;
}

static bool is_name(const char *text)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = strlen(text);

    return n > 0 && n <= 64 && strspn(text, allowed) == n;
}

/* host [:port], port 1..65535. */
static bool is_host(struct slice host)
{
    struct slice name = host_name(host);
    uint64_t port;

    if (!host_is_valid(host) || name.n == 0)
        return false;
    if (name.n == host.n)
        return true;
    return host.p[name.n] == ':' &&
           str_parse_u64(slice_of(host.p + name.n + 1, host.n - name.n - 1), 65535, &port) &&
           port > 0;
}

/* C0, DEL and C1 (U+0080 to U+009F): `config list` prints values, and a .env of somebody else's folder must not command the
 * terminal. */
static int refuse_text(const char *text, struct abx_err *err)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p < ' ' || *p == 0x7f || (p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0))
            return err_set(err, ABX_INVALID_ARGUMENT, "has a control character");
    if (!utf8_is_valid(slice_str(text)))
        return err_set(err, ABX_INVALID_ARGUMENT, "is not UTF-8");
    return 0;
}

/* `schemes` is a list of prefixes, ends with NULL. Never shows the text: it may hold a password. */
static int url_parse(const char *text, const char *const *schemes, bool allows_user,
                     struct abx_err *err)
{
    const char *host = NULL, *end, *at;

    for (size_t i = 0; schemes[i] && !host; i++)
        if (strncasecmp(text, schemes[i], strlen(schemes[i])) == 0)
            host = text + strlen(schemes[i]);
    if (!host)
        return err_set(err, ABX_INVALID_ARGUMENT, "does not begin with %s%s%s", schemes[0],
                       schemes[1] ? " or " : "", schemes[1] ? schemes[1] : "");
    if (!is_visible_ascii(text))
        return err_set(err, ABX_INVALID_ARGUMENT, "has a space or a character outside ASCII");
    if (strpbrk(host, "?#"))
        return err_set(err, ABX_INVALID_ARGUMENT, "has a query or a fragment");
    end = host + strcspn(host, "/");
    at = memrchr(host, '@', (size_t)(end - host));
    if (at && !allows_user)
        return err_set(err, ABX_INVALID_ARGUMENT, "has a user or a password");
    if (at)
        host = at + 1;
    if (!is_host(slice_of(host, (size_t)(end - host))))
        return err_set(err, ABX_INVALID_ARGUMENT, "has no valid host and port");
    return 0;
}

static bool bool_parse(const char *text, int64_t *ret)
{
    static const char *const yes[] = { "true", "1", "yes", "on" };
    static const char *const no[] = { "false", "0", "no", "off" };

    for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
            *ret = strcasecmp(text, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

/* digits [. digits]; thousandths, more are rounded up so that a tiny limit does not become none. */
static bool decimal_parse(const char *text, int64_t *ret)
{
    const char *dot = strchr(text, '.');
    size_t n = dot ? (size_t)(dot - text) : strlen(text);
    uint64_t whole;
    int64_t part = 0, scale = 100;
    bool has_rest = false;

    if (!str_parse_u64(slice_of(text, n), INT32_MAX, &whole))
        return false;
    for (const char *p = dot ? dot + 1 : ""; *p; p++) {
        if (*p < '0' || *p > '9')
            return false;
        part += (*p - '0') * scale;
        has_rest |= scale == 0 && *p != '0';
        scale /= 10;
    }
    *ret = (int64_t)whole * 1000 + part + has_rest;
    return true;
}

static int number_parse(const struct config_row *row, const char *text, int64_t *ret,
                        struct abx_err *err)
{
    bool is_count = row->kind == CONFIG_KIND_COUNT;
    int64_t scaled;

    if (!decimal_parse(text, &scaled) || scaled < row->min * 1000 || scaled > row->max * 1000 ||
        (is_count && scaled % 1000 != 0))
        return err_set(err, ABX_INVALID_ARGUMENT, "'%.40s' is not a %s from %lld to %lld", text,
                       is_count ? "whole number" : "number of seconds", (long long)row->min,
                       (long long)row->max);
    *ret = is_count ? scaled / 1000 : scaled;
    return 0;
}

int config_row_parse(const struct config_row *row, const char *text, int64_t *ret,
                     struct abx_err *err)
{
    static const char *const web[] = { "http://", "https://", NULL };
    static const char *const proxies[] = { "http://", "https://", "socks5://", "socks5h://", NULL };

    *ret = 0;
    switch (row->kind) {
    case CONFIG_KIND_TEXT:
        return refuse_text(text, err);
    case CONFIG_KIND_SECRET:
        return is_visible_ascii(text)
                   ? 0
                   : err_set(err, ABX_INVALID_ARGUMENT,
                             "has a space, a control character or one outside ASCII");
    case CONFIG_KIND_NAME:
        return is_name(text)
                   ? 0
                   : err_set(err, ABX_INVALID_ARGUMENT,
                             "'%.64s' is not 1 to 64 letters, digits, '.', '_' or '-'", text);
    case CONFIG_KIND_DOMAIN:
        return is_host(slice_str(text))
                   ? 0
                   : err_set(err, ABX_INVALID_ARGUMENT,
                             "'%.64s' is not a host name with or without port", text);
    case CONFIG_KIND_URL:
        return url_parse(text, web, false, err);
    case CONFIG_KIND_PROXY:
        return url_parse(text, proxies, true, err);
    case CONFIG_KIND_BOOL:
        return bool_parse(text, ret)
                   ? 0
                   : err_set(err, ABX_INVALID_ARGUMENT, "'%.40s' is neither true nor false", text);
    case CONFIG_KIND_COUNT:
    case CONFIG_KIND_SECONDS:
        return number_parse(row, text, ret, err);
    }
    return 0;
}
