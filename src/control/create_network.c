/* create_network.c - see create_network.h. */
#include "control/create_network.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"
#include "control/create_request.h"
#include "e2b/hosts.h"

#define RULES_MAX 10
#define HEADERS_MAX 20
#define DOMAIN_MAX 128
#define HEADER_NAME_MAX 64
#define HEADER_VALUE_MAX 2048
#define LIST_MAX 1024
#define LISTS_BYTES_MAX 40960 /* all go to egress in one message */
#define CA_CERT_MAX 16384     /* and this with them */

static bool is_absent(const json_t *v)
{
    return !v || json_is_null(v);
}

/* What the caller misspelt would leave a sandbox open that was meant to be closed. */
static int check_members(const json_t *object, const char *what, const char *const *known,
                         size_t n_known, struct abx_err *err)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        size_t i = 0;

        while (i < n_known && strcmp(known[i], name) != 0)
            i++;
        if (i == n_known)
            return err_set(err, ABX_INVALID_ARGUMENT, "%s: there is no member '%.128s'", what,
                           name);
    }
    return 0;
}

static bool is_address(const char *s, int *ret_bits)
{
    struct in6_addr a;

    if (inet_pton(AF_INET, s, &a) == 1) {
        *ret_bits = 32;
        return true;
    }
    *ret_bits = 128;
    return inet_pton(AF_INET6, s, &a) == 1;
}

/* An address, or one with "/<bits>". */
static bool is_cidr(const char *s)
{
    const char *slash = strchr(s, '/');
    char address[64];
    uint64_t bits;
    int max;

    if (!slash)
        return is_address(s, &max);
    if ((size_t)(slash - s) >= sizeof address)
        return false;
    memcpy(address, s, (size_t)(slash - s));
    address[slash - s] = '\0';
    return is_address(address, &max) && str_parse_u64(slice_str(slash + 1), (uint64_t)max, &bits);
}

/* A host name, "*." before it allowed; `*` alone stands for all. */
static bool is_domain(const char *s)
{
    size_t label = 0, n = strlen(s);

    if (strcmp(s, "*") == 0)
        return true;
    if (strncmp(s, "*.", 2) == 0)
        s += 2;
    if (n == 0 || n > DOMAIN_MAX || !strchr(s, '.'))
        return false;
    for (; *s; s++) {
        bool is_alnum = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
                        (*s >= '0' && *s <= '9') || *s == '_';

        if (*s == '.') {
            if (label == 0 || s[-1] == '-')
                return false;
            label = 0;
        } else if (!(is_alnum || (*s == '-' && label > 0)) || ++label > 63) {
            return false;
        }
    }
    return label > 0 && s[-1] != '-';
}

static int get_list(const json_t *network, const char *name, const json_t **ret,
                    struct abx_err *err)
{
    const json_t *list = json_object_get(network, name), *item;
    size_t i;

    *ret = NULL;
    if (is_absent(list))
        return 0;
    if (!json_is_array(list) || json_array_size(list) > LIST_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "Error when parsing request: 'network.%s' has to be an array of at most %d "
                       "strings",
                       name, LIST_MAX);
    json_array_foreach(list, i, item)
    {
        if (!json_is_string(item))
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "Error when parsing request: 'network.%s' has to be an array of strings",
                           name);
    }
    *ret = list;
    return 0;
}

static int check_lists_size(const json_t *allow, const json_t *deny, const json_t *dns,
                            struct abx_err *err)
{
    const json_t *lists[] = { allow, deny, dns }, *item;
    size_t size = 0, i;

    for (size_t n = 0; n < ARRAY_SIZE(lists); n++)
        json_array_foreach(lists[n], i, item) size += json_string_length(item) + 2;
    if (size > LISTS_BYTES_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "network: allowOut, denyOut and dnsServers together are %zu bytes (max %d)",
                       size, LISTS_BYTES_MAX);
    return 0;
}

static int check_rules_out(const json_t *network, struct abx_err *err)
{
    const json_t *allow, *deny, *dns, *item;
    bool has_domain = false, denies_all = false;
    size_t i;
    int r = get_list(network, "allowOut", &allow, err), bits;

    if (r == 0)
        r = get_list(network, "denyOut", &deny, err);
    if (r == 0)
        r = get_list(network, "dnsServers", &dns, err);
    if (r < 0)
        return r;
    r = check_lists_size(allow, deny, dns, err);
    if (r < 0)
        return r;
    json_array_foreach(deny, i, item)
    {
        if (!is_cidr(json_string_value(item)))
            return err_set(err, ABX_INVALID_ARGUMENT, "invalid denied CIDR %.128s",
                           json_string_value(item));
        denies_all |= strcmp(json_string_value(item), "0.0.0.0/0") == 0;
    }
    json_array_foreach(allow, i, item)
    {
        if (is_cidr(json_string_value(item)))
            continue;
        if (!is_domain(json_string_value(item)))
            return err_set(err, ABX_INVALID_ARGUMENT, "invalid allowed address %.128s",
                           json_string_value(item));
        has_domain = true;
    }
    if (has_domain && !denies_all)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "When specifying allowed domains in allow out, you must include "
                       "'ALL_TRAFFIC' in deny out to block all other traffic.");
    json_array_foreach(dns, i, item)
    {
        if (!is_address(json_string_value(item), &bits))
            return err_set(err, ABX_INVALID_ARGUMENT, "invalid DNS server %.128s",
                           json_string_value(item));
    }
    return 0;
}

/* "${...}" may name a secret or an identity token, nothing else. */
static bool has_good_placeholders(const char *s)
{
    static const char *const kinds[] = { "e2b.secrets.", "e2b.identity.tokens." };

    while ((s = strstr(s, "${")) != NULL) {
        const char *end = strchr(s, '}');
        bool ok = false;

        s += 2;
        for (size_t i = 0; end && i < ARRAY_SIZE(kinds); i++) {
            size_t n = strlen(kinds[i]);
            const char *name = s + n;

            ok |=
                strncmp(s, kinds[i], n) == 0 && name < end &&
                strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
                    (size_t)(end - name);
        }
        if (!ok)
            return false;
    }
    return true;
}

static bool is_token(const char *s)
{
    size_t n = strlen(s);

    return n > 0 && n <= HEADER_NAME_MAX &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                     "!#$%&'*+-.^_`|~") == n;
}

static int check_headers(const char *host, const json_t *headers, struct abx_err *err)
{
    const char *name;
    json_t *value;

    if (json_object_size(headers) > HEADERS_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "rules for '%.128s': over %d headers", host,
                       HEADERS_MAX);
    json_object_foreach((json_t *)(uintptr_t)headers, name, value)
    {
        const char *text = json_string_value(value);

        if (!is_token(name))
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "rules for '%.128s': invalid header name '%.64s'", host, name);
        if (!text || json_string_length(value) > HEADER_VALUE_MAX ||
            strlen(text) > HEADER_VALUE_MAX || strlen(text) != json_string_length(value) ||
            strpbrk(text, "\r\n"))
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "rules for '%.128s': invalid value of header '%.64s'", host, name);
        if (!has_good_placeholders(text))
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "Network transform header contains a malformed E2B placeholder.");
    }
    /* Not to be taken and forgotten: the requests would go out without what they need. */
    if (json_object_size(headers) > 0)
        return err_set(err, ABX_UNIMPLEMENTED,
                       "rules for '%.128s': header transforms are not available on this server",
                       host);
    return 0;
}

static int check_transform(const char *host, const json_t *transform, struct abx_err *err)
{
    const json_t *headers = json_object_get(transform, "headers");

    if (!json_is_object(transform) || (!is_absent(headers) && !json_is_object(headers)))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "Error when parsing request: rules for '%.128s': '%s' has to be an object",
                       host, json_is_object(transform) ? "transform.headers" : "transform");
    return check_headers(host, headers, err);
}

static int check_rules(const json_t *rules, struct abx_err *err)
{
    const char *host;
    json_t *list, *rule;
    size_t i, transforms;

    if (is_absent(rules))
        return 0;
    if (!json_is_object(rules))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "Error when parsing request: 'network.rules' has to be an object");
    if (json_object_size(rules) > RULES_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "rules: too many domains: %zu (max %d)",
                       json_object_size(rules), RULES_MAX);
    json_object_foreach((json_t *)(uintptr_t)rules, host, list)
    {
        if (!is_domain(host))
            return err_set(err, ABX_INVALID_ARGUMENT, "rules: invalid domain '%.128s'", host);
        if (!json_is_array(list))
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "Error when parsing request: rules for '%.128s' have to be an array",
                           host);
        transforms = 0;
        json_array_foreach(list, i, rule)
        {
            const json_t *transform = json_object_get(rule, "transform");
            int r = is_absent(transform) ? 0 : check_transform(host, transform, err);

            if (!json_is_object(rule))
                return err_set(err, ABX_INVALID_ARGUMENT,
                               "Error when parsing request: each of the rules for '%.128s' has to "
                               "be an object",
                               host);
            if (r < 0)
                return r;
            if (!is_absent(transform) && ++transforms > 1)
                return err_set(err, ABX_INVALID_ARGUMENT,
                               "rules for '%.128s': only one transform per domain", host);
        }
    }
    return 0;
}

static int check_mask(const json_t *network, struct abx_err *err)
{
    const json_t *v = json_object_get(network, "maskRequestHost");
    const char *mask = json_string_value(v);

    if (is_absent(v))
        return 0;
    if (!mask)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "Error when parsing request: 'network.maskRequestHost' has to be a string");
    for (const char *c = mask; *c; c++)
        if ((uint8_t)*c >= 0x80)
            return err_set(
                err, ABX_INVALID_ARGUMENT,
                "mask request host '%.128s' is not ASCII. Use its ASCII form (punycode).", mask);
    if (mask[0] == '\0' || strlen(mask) > 255 || strlen(mask) != json_string_length(v) ||
        strspn(mask, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.:_[]${}") !=
            strlen(mask))
        return err_set(err, ABX_INVALID_ARGUMENT, "mask request host is not valid: %.128s", mask);
    return 0;
}

/* Ports whose servers speak TLS. */
static int check_https_ports(const json_t *network, struct abx_err *err)
{
    const json_t *ports = json_object_get(network, "httpsPorts"), *port;
    size_t i;

    if (is_absent(ports))
        return 0;
    json_array_foreach(ports, i, port)
    {
        if (!json_is_integer(port) || json_integer_value(port) < 1 ||
            json_integer_value(port) > UINT16_MAX || json_integer_value(port) == ENVD_PORT)
            break;
    }
    if (!json_is_array(ports) || i < json_array_size(ports) || i > HTTPS_PORTS_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "Error when parsing request: 'network.httpsPorts' has to be an array of at "
                       "most %u ports (1 to 65535, and not %d, which is envd's)",
                       HTTPS_PORTS_MAX, ENVD_PORT);
    return 0;
}

#define PROXY_WRONG "Invalid egress proxy config: "

static int check_proxy_word(const json_t *proxy, const char *name, struct abx_err *err)
{
    const json_t *v = json_object_get(proxy, name);

    if (is_absent(v))
        return 0;
    if (!json_is_string(v) || json_string_length(v) > 255 ||
        strlen(json_string_value(v)) != json_string_length(v))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       PROXY_WRONG "'%s' has to be a string of at most 255 bytes", name);
    return 0;
}

/* A name, an IPv4 address, or one of IPv6 in brackets. */
static bool is_proxy_host(const char *host)
{
    size_t n = strlen(host);
    char address[64];
    int bits;

    if (host[0] != '[')
        return !strchr(host, ':') && host[0] != '*' && (is_domain(host) || is_address(host, &bits));
    if (n < 3 || n - 2 >= sizeof address || host[n - 1] != ']')
        return false;
    memcpy(address, host + 1, n - 2);
    address[n - 2] = '\0';
    return strchr(address, ':') && is_address(address, &bits);
}

/* Whether the certificates can be used is found out by egress; that they are some is seen here. */
static bool is_pem(const char *text)
{
    static const char begin[] = "-----BEGIN CERTIFICATE-----", end[] = "-----END CERTIFICATE-----";
    size_t n_blocks = 0;

    while ((text = strstr(text, begin)) != NULL) {
        size_t n = 0;

        text += sizeof begin - 1;
        text += strspn(text, " \r\n");
        if (*text != 'M') /* base64 of a DER sequence */
            return false;
        for (; *text && *text != '-'; text++) {
            if (strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=", *text))
                n++;
            else if (!strchr(" \r\n", *text))
                return false;
        }
        if (n % 4 != 0 || strncmp(text, end, sizeof end - 1) != 0)
            return false;
        n_blocks++;
    }
    return n_blocks > 0;
}

static int check_proxy_tls(const json_t *tls, struct abx_err *err)
{
    static const char *const members[] = { "enabled", "serverName", "caCert" };
    const json_t *name = json_object_get(tls, "serverName"), *ca = json_object_get(tls, "caCert");
    const char *host = json_string_value(name), *pem = json_string_value(ca);
    int bits, r;

    if (is_absent(tls))
        return 0;
    if (!json_is_object(tls) || !json_is_boolean(json_object_get(tls, "enabled")))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       PROXY_WRONG "'tls' has to be an object with a boolean 'enabled'");
    r = check_members(tls, PROXY_WRONG "tls", members, ARRAY_SIZE(members), err);
    if (r < 0)
        return r;
    if (!is_absent(name) && (!host || strlen(host) != json_string_length(name) || host[0] == '*' ||
                             (!is_domain(host) && !is_address(host, &bits))))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       PROXY_WRONG "'tls.serverName' has to be a host name or an address");
    if (!is_absent(ca) && (!pem || json_string_length(ca) > CA_CERT_MAX ||
                           strlen(pem) != json_string_length(ca) || !is_pem(pem)))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       PROXY_WRONG "'tls.caCert' has to be certificates in PEM, at most %d bytes",
                       CA_CERT_MAX);
    return 0;
}

/* SOCKS5 at HOST:PORT. */
static int check_proxy(const json_t *proxy, struct abx_err *err)
{
    static const char *const members[] = { "address", "username", "password", "tls" };
    const char *address = json_string_value(json_object_get(proxy, "address"));
    const char *colon = address ? strrchr(address, ':') : NULL;
    char host[256];
    uint64_t port;
    int r;

    if (!colon || (size_t)(colon - address) >= sizeof host ||
        !str_parse_u64(slice_str(colon + 1), UINT16_MAX, &port) || port == 0)
        return err_set(err, ABX_INVALID_ARGUMENT, PROXY_WRONG "'address' has to be HOST:PORT");
    memcpy(host, address, (size_t)(colon - address));
    host[colon - address] = '\0';
    if (!is_proxy_host(host))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       PROXY_WRONG "'%.64s' is no host (IPv6 addresses are written in brackets)",
                       host);
    r = check_members(proxy, PROXY_WRONG "egressProxy", members, ARRAY_SIZE(members), err);
    if (r == 0)
        r = check_proxy_word(proxy, "username", err);
    if (r == 0)
        r = check_proxy_word(proxy, "password", err);
    return r == 0 ? check_proxy_tls(json_object_get(proxy, "tls"), err) : r;
}

int network_internet(const json_t *body, bool *ret, struct abx_err *err)
{
    bool other = true;
    int has = json_get_bool(body, "allow_internet_access", ret, err);
    int has_other = has < 0 ? has : json_get_bool(body, "allowInternetAccess", &other, err);

    if (has_other <= 0)
        return has_other < 0 ? has_other : has;
    if (has > 0 && *ret != other)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "allow_internet_access and allowInternetAccess are not the same");
    *ret = other;
    return has_other;
}

int network_check(const json_t *network, bool is_update, struct abx_err *err)
{
    /* The last two belong to an update only: at a create they stand beside `network`. */
    static const char *const members[] = {
        "allowPublicTraffic",  "allowOut",        "denyOut",
        "dnsServers",          "egressProxy",     "rules",
        "httpsPorts",          "maskRequestHost", "allow_internet_access",
        "allowInternetAccess",
    };
    size_t n_members = is_update ? ARRAY_SIZE(members) : ARRAY_SIZE(members) - 2;
    const json_t *traffic = json_object_get(network, "allowPublicTraffic");
    const json_t *proxy = json_object_get(network, "egressProxy");
    int r = check_members(network, "network", members, n_members, err);

    if (r < 0)
        return r;
    if (!is_absent(traffic) && !json_is_boolean(traffic))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "Error when parsing request: 'network.allowPublicTraffic' has to be a "
                       "boolean");
    if (!is_absent(proxy) && !json_is_object(proxy))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "Error when parsing request: 'network.egressProxy' has to be an object");
    if (!is_absent(proxy)) {
        r = check_proxy(proxy, err);
        if (r < 0)
            return r;
    }

    r = check_rules_out(network, err);
    if (r == 0)
        r = check_mask(network, err);
    if (r == 0)
        r = check_rules(json_object_get(network, "rules"), err);
    return r == 0 ? check_https_ports(network, err) : r;
}
