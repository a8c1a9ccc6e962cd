/* hosts.c - see hosts.h. */
#include "e2b/hosts.h"

#include "base/str.h"

struct slice host_name(struct slice host)
{
    size_t n = host.n;

    if (n > 0 && host.p[0] == '[') {
        const uint8_t *end = memchr(host.p, ']', n);

        return end ? slice_of(host.p, (size_t)(end - host.p) + 1) : host;
    }
    for (size_t i = 0; i < n; i++)
        if (host.p[i] == ':')
            return slice_of(host.p, i);
    return host;
}

bool host_is_valid(struct slice host)
{
    if (host.n == 0 || host.n > 255)
        return false;
    for (size_t i = 0; i < host.n; i++) {
        uint8_t c = host.p[i];
        bool is_alnum = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');

        if (!is_alnum && c != '-' && c != '.' && c != ':' && c != '[' && c != ']' && c != '_')
            return false;
    }
    return true;
}

static bool ends_with(struct slice s, struct slice end)
{
    return s.n >= end.n && slice_ieq(slice_of(s.p + s.n - end.n, end.n), end);
}

static bool is_ipv4_loopback(struct slice s)
{
    size_t parts = 0, i = 0;
    uint64_t first = 0;

    while (i <= s.n) {
        size_t start = i;
        uint64_t v;

        while (i < s.n && s.p[i] != '.')
            i++;
        if (!str_parse_u64(slice_of(s.p + start, i - start), 255, &v))
            return false;
        if (parts++ == 0)
            first = v;
        i++;
    }
    return parts == 4 && first == 127;
}

bool host_is_loopback(struct slice host)
{
    struct slice name = host_name(host);

    return slice_ieq_str(name, "localhost") || ends_with(name, SLICE_LIT(".localhost")) ||
           slice_eq_str(name, "[::1]") || is_ipv4_loopback(name);
}

bool host_is_in_domain(struct slice host, const char *domain)
{
    struct slice name = host_name(host), d = host_name(slice_str(domain));

    if (d.n == 0 || !ends_with(name, d))
        return false;
    return name.n == d.n || name.p[name.n - d.n - 1] == '.';
}

enum host_kind host_parse_sandbox(struct slice host, const char *domain, uint16_t *ret_port,
                                  char ret_id[SANDBOX_ID_SIZE])
{
    struct slice name = host_name(host), d = host_name(slice_str(domain)), label;
    char id[SANDBOX_ID_SIZE];
    size_t digits = 0;
    uint64_t port;

    if (name.n <= d.n || !host_is_in_domain(host, domain))
        return HOST_OTHER;
    label = slice_of(name.p, name.n - d.n - 1);
    while (digits < label.n && label.p[digits] >= '0' && label.p[digits] <= '9')
        digits++;
    if (digits == 0 || digits == label.n || label.p[digits] != '-')
        return HOST_OTHER;
    if (!str_parse_u64(slice_of(label.p, digits), 65535, &port) || port == 0 ||
        memchr(label.p + digits + 1, '-', label.n - digits - 1) ||
        !sandbox_id_parse(slice_of(label.p + digits + 1, label.n - digits - 1), id))
        return HOST_INVALID;
    *ret_port = (uint16_t)port;
    memcpy(ret_id, id, sizeof id);
    return HOST_SANDBOX;
}
