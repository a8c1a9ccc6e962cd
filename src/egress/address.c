/* address.c - see address.h. The ranges are those of the registries of special-purpose addresses (RFC 6890) that
 * lead into the operator's own network, to a machine's own services, or to an IPv4 address in another dress. */
#include "egress/address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

bool ip_is_v4(const struct in6_addr *ip)
{
    return IN6_IS_ADDR_V4MAPPED(ip);
}

bool ip_parse(const char *text, struct in6_addr *ret)
{
    struct in_addr v4;

    if (inet_pton(AF_INET, text, &v4) == 1) {
        *ret = (struct in6_addr){ .s6_addr = { [10] = 0xff, [11] = 0xff } };
        memcpy(&ret->s6_addr[12], &v4, sizeof v4);
        return true;
    }
    return inet_pton(AF_INET6, text, ret) == 1;
}

void ip_format(const struct in6_addr *ip, char to[ADDRESS_TEXT_SIZE])
{
    if (ip_is_v4(ip))
        (void)inet_ntop(AF_INET, &ip->s6_addr[12], to, ADDRESS_TEXT_SIZE);
    else
        (void)inet_ntop(AF_INET6, ip, to, ADDRESS_TEXT_SIZE);
}

bool ip_equal(const struct in6_addr *a, const struct in6_addr *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

bool range_parse(const char *text, struct range *ret)
{
    const char *slash = strchr(text, '/');
    size_t n = slash ? (size_t)(slash - text) : strlen(text);
    char ip[INET6_ADDRSTRLEN + 1];
    uint64_t bits;
    bool is_v4;

    if (n >= sizeof ip)
        return false;
    memcpy(ip, text, n);
    ip[n] = '\0';
    if (!ip_parse(ip, &ret->prefix))
        return false;
    is_v4 = strchr(ip, ':') == NULL;
    bits = is_v4 ? 32 : 128;
    if (slash && !str_parse_u64(slice_str(slash + 1), bits, &bits))
        return false;
    ret->bits = (uint8_t)(is_v4 ? bits + 96 : bits);
    ret->is_v6_only = ret->bits < 96;
    if (is_v4 && bits == 0)
        *ret = (struct range){ 0 };
    return true;
}

bool range_contains(const struct range *r, const struct in6_addr *ip)
{
    size_t whole = r->bits / 8, rest = r->bits % 8;

    if (r->is_v6_only && ip_is_v4(ip))
        return false;
    if (memcmp(&r->prefix, ip, whole) != 0)
        return false;
    return rest == 0 || ((r->prefix.s6_addr[whole] ^ ip->s6_addr[whole]) >> (8 - rest)) == 0;
}

static const struct {
    const char *range;
    const char *kind;
} reserved[] = {
    { "0.0.0.0/8", "this host" },
    { "10.0.0.0/8", "private" },
    { "100.64.0.0/10", "carrier-grade NAT" },
    { "127.0.0.0/8", "loopback" },
    { "168.63.129.16/32",
      "metadata" }, /* of Azure's hosts; the other clouds' lie in ranges below */
    { "169.254.0.0/16", "link-local, metadata" },
    { "172.16.0.0/12", "private" },
    { "192.0.0.0/24", "protocol assignments" },
    { "192.168.0.0/16", "private" },
    { "198.18.0.0/15", "benchmarking" },
    { "224.0.0.0/4", "multicast" },
    { "240.0.0.0/4", "reserved" },
    { "::/96", "loopback or unspecified" }, /* IPv4-compatible ones, too */
    { "::ffff:0:0:0/96", "IPv4 translated" },
    { "64:ff9b::/96", "IPv4 behind NAT64" },
    { "64:ff9b:1::/48", "IPv4 behind NAT64" },
    { "100::/64", "discard" },
    { "2001::/32", "IPv4 behind Teredo" },
    { "2002::/16", "IPv4 behind 6to4" },
    { "fc00::/7", "private" },
    { "fe80::/10", "link-local" },
    { "fec0::/10", "private" },
    { "ff00::/8", "multicast" },
};

_Static_assert(ARRAY_SIZE(reserved) == IP_RESERVED_MAX, "as the header says");

bool ip_reserved_range(size_t i, struct range *ret)
{
    static struct range ranges[ARRAY_SIZE(reserved)];
    static bool is_ready;

    for (size_t k = 0; !is_ready && k < ARRAY_SIZE(reserved); k++)
        if (!range_parse(reserved[k].range, &ranges[k]))
            abort();
    is_ready = true;
    if (i < ARRAY_SIZE(reserved))
        *ret = ranges[i];
    return i < ARRAY_SIZE(reserved);
}

const char *ip_reserved(const struct in6_addr *ip)
{
    struct range r;

    for (size_t i = 0; ip_reserved_range(i, &r); i++)
        if (range_contains(&r, ip))
            return reserved[i].kind;
    return NULL;
}

bool address_parse(const char *text, uint16_t port, struct address *ret)
{
    const char *end = text[0] == '[' ? strchr(text, ']') : strchr(text, ':');
    char ip[INET6_ADDRSTRLEN + 1];
    uint64_t n;

    ret->port = port;
    if (ip_parse(text, &ret->ip))
        return true;
    if (!end)
        return false;
    text += text[0] == '[';
    if ((size_t)(end - text) >= sizeof ip)
        return false;
    memcpy(ip, text, (size_t)(end - text));
    ip[end - text] = '\0';
    if (!ip_parse(ip, &ret->ip))
        return false;
    if (*end == ']' && *++end == '\0')
        return true;
    if (*end != ':' || !str_parse_u64(slice_str(end + 1), UINT16_MAX, &n) || n == 0)
        return false;
    ret->port = (uint16_t)n;
    return true;
}

void address_format(const struct address *a, char to[ADDRESS_TEXT_SIZE])
{
    char ip[ADDRESS_TEXT_SIZE];

    ip_format(&a->ip, ip);
    (void)snprintf(to, ADDRESS_TEXT_SIZE, ip_is_v4(&a->ip) ? "%.45s:%u" : "[%.45s]:%u", ip,
                   a->port);
}

bool address_from_kernel(const struct sockaddr_storage *ss, struct address *ret)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)ss;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)ss;

    if (ss->ss_family == AF_INET6) {
        *ret = (struct address){ v6->sin6_addr, ntohs(v6->sin6_port) };
        return true;
    }
    if (ss->ss_family != AF_INET)
        return false;
    *ret = (struct address){ .ip = { .s6_addr = { [10] = 0xff, [11] = 0xff } },
                             .port = ntohs(v4->sin_port) };
    memcpy(&ret->ip.s6_addr[12], &v4->sin_addr, sizeof v4->sin_addr);
    return true;
}

socklen_t address_to_kernel(const struct address *a, struct sockaddr_storage *ret)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;

    memset(ret, 0, sizeof *ret);
    if (ip_is_v4(&a->ip)) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(a->port);
        memcpy(&v4->sin_addr, &a->ip.s6_addr[12], sizeof v4->sin_addr);
        return sizeof *v4;
    }
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(a->port);
    v6->sin6_addr = a->ip;
    return sizeof *v6;
}
