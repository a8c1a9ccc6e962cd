/* peers.c - see peers.h. A hash table with a seed, since the addresses are the clients' to choose. */
#include "net/peers.h"

#include <assert.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

#define KEY_SIZE 8 /* the /64, or 4 bytes of address behind 4 that no /64 of a client begins with */

struct peer {
    struct peer *next;
    size_t n;
    uint8_t key[KEY_SIZE];
};

struct peers *peers_new(size_t max_each)
{
    struct peers *p = calloc(1, sizeof(*p));

    assert(max_each > 0);
    if (!p)
        return NULL;
    p->max_each = max_each;
    random_bytes(&p->seed, sizeof(p->seed));
    return p;
}

void peers_free(struct peers *p)
{
    free(p);
}

static bool key_of_ip4(const uint8_t ip[4], uint8_t key[KEY_SIZE])
{
    memset(key, 0xff, 4); /* multicast */
    memcpy(key + 4, ip, 4);
    return ip[0] != 127;
}

/* False for an address that is not counted. */
static bool key_of(const struct sockaddr_storage *address, uint8_t key[KEY_SIZE])
{
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
    const struct sockaddr_in *in = (const struct sockaddr_in *)address;

    if (address->ss_family == AF_INET)
        return key_of_ip4((const uint8_t *)&in->sin_addr, key);
    if (address->ss_family != AF_INET6 || IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr))
        return false;
    if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
        return key_of_ip4(&in6->sin6_addr.s6_addr[12], key);
    memcpy(key, &in6->sin6_addr, KEY_SIZE);
    return true;
}

static struct peer **bucket_of(struct peers *p, const uint8_t key[KEY_SIZE])
{
    uint64_t h;

    memcpy(&h, key, sizeof(h));
    h = (h ^ p->seed) * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ (h >> 32) ^ p->seed) * UINT64_C(0xbf58476d1ce4e5b9);
    return &p->buckets[(h >> 40) % PEERS_BUCKETS];
}

bool peers_enter(struct peers *p, const struct sockaddr_storage *address, struct peer **ret)
{
    uint8_t key[KEY_SIZE];
    struct peer **bucket, *peer;

    *ret = NULL;
    if (!key_of(address, key))
        return true;
    bucket = bucket_of(p, key);
    for (peer = *bucket; peer && memcmp(peer->key, key, KEY_SIZE) != 0; peer = peer->next)
        ;
    if (!peer) {
        peer = calloc(1, sizeof(*peer));
        if (!peer)
            return false;
        memcpy(peer->key, key, KEY_SIZE);
        peer->next = *bucket;
        *bucket = peer;
    }
    if (peer->n >= p->max_each)
        return false;
    peer->n++;
    *ret = peer;
    return true;
}

void peers_leave(struct peers *p, struct peer *peer)
{
    struct peer **at;

    if (!peer || --peer->n > 0)
        return;
    for (at = bucket_of(p, peer->key); *at != peer; at = &(*at)->next)
        ;
    *at = peer->next;
    free(peer);
}
