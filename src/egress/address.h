/* address.h - addresses and ranges of both families in one form: IPv4 is written as ::ffff:a.b.c.d.
 *
 * Pure functions; nothing here looks anything up.
 */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct address {
    struct in6_addr ip;
    uint16_t port; /* host order */
};

struct range {
    struct in6_addr prefix;
    uint8_t bits;    /* of 128 */
    bool is_v6_only; /* shorter than the form of IPv4 addresses, which are not meant */
};

/* "[2001:db8:...:1]:65535" and NUL. */
#define ADDRESS_TEXT_SIZE 56

bool ip_is_v4(const struct in6_addr *ip);
/* An address without anything around it. */
bool ip_parse(const char *text, struct in6_addr *ret);
/* Without brackets or port. */
void ip_format(const struct in6_addr *ip, char to[ADDRESS_TEXT_SIZE]);
bool ip_equal(const struct in6_addr *a, const struct in6_addr *b);

/* An address or ADDRESS/BITS; bits behind the prefix do not count. "0.0.0.0/0" is everything, IPv6 too: it is
 * how E2B's clients say "all traffic". "::/0" is all of IPv6 and nothing of IPv4. */
bool range_parse(const char *text, struct range *ret);
bool range_contains(const struct range *r, const struct in6_addr *ip);

/* What kind of address it is if nobody may be reached at it who is not allowed by the operator: "private",
 * "loopback", "metadata" ...; NULL for all others. */
const char *ip_reserved(const struct in6_addr *ip);
#define IP_RESERVED_MAX 23
/* The ranges that it goes by, by number from 0; false behind the last. */
bool ip_reserved_range(size_t i, struct range *ret);

/* ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT; without one the port is `port`. */
bool address_parse(const char *text, uint16_t port, struct address *ret);
void address_format(const struct address *a, char to[ADDRESS_TEXT_SIZE]);
/* From and to what the kernel takes; false for another family. An IPv4 address becomes AF_INET. */
bool address_from_kernel(const struct sockaddr_storage *ss, struct address *ret);
socklen_t address_to_kernel(const struct address *a, struct sockaddr_storage *ret);
