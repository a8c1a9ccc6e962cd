/* pins.c - see pins.h. */
#include "egress/pins.h"

#include <stdlib.h>
#include <string.h>

#include "base/macro.h"

struct pin {
    struct in6_addr ip;
    char *name;
    uint64_t until_ms;
};

void pins_done(struct pins *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->list[i].name);
    free(p->list);
    *p = (struct pins){ 0 };
}

static struct pin *find(const struct pins *p, const struct in6_addr *ip, const char *name)
{
    for (size_t i = 0; i < p->n; i++)
        if (ip_equal(&p->list[i].ip, ip) && strcmp(p->list[i].name, name) == 0)
            return &p->list[i];
    return NULL;
}

/* A new place, or that of the one that ends first. */
static struct pin *make_room(struct pins *p)
{
    struct pin *oldest = NULL;

    if (p->n == p->cap && p->cap < PINS_MAX) {
        size_t cap = MAX(p->cap * 2, (size_t)8);
        struct pin *more = reallocarray(p->list, cap, sizeof *more);

        if (more) {
            p->list = more;
            p->cap = cap;
        }
    }
    if (p->n < p->cap) {
        p->list[p->n] = (struct pin){ 0 };
        return &p->list[p->n++];
    }
    for (size_t i = 0; i < p->n; i++)
        if (!oldest || p->list[i].until_ms < oldest->until_ms)
            oldest = &p->list[i];
    return oldest;
}

void pins_put(struct pins *p, const struct in6_addr *ip, const char *name, uint64_t until_ms)
{
    struct pin *pin = find(p, ip, name);
    char *copy;

    if (pin) {
        pin->until_ms = MAX(pin->until_ms, until_ms);
        return;
    }
    copy = strdup(name);
    pin = copy ? make_room(p) : NULL;
    if (!pin) {
        free(copy);
        return;
    }
    free(pin->name);
    *pin = (struct pin){ *ip, copy, until_ms };
}

bool pins_has(const struct pins *p, const struct in6_addr *ip, const char *name, uint64_t now_ms)
{
    const struct pin *pin = find(p, ip, name);

    return pin && pin->until_ms >= now_ms;
}

const char *pins_find(const struct pins *p, const struct in6_addr *ip, uint64_t now_ms,
                      bool (*fits)(void *user, const char *name), void *user)
{
    for (size_t i = 0; i < p->n; i++)
        if (ip_equal(&p->list[i].ip, ip) && p->list[i].until_ms >= now_ms &&
            fits(user, p->list[i].name))
            return p->list[i].name;
    return NULL;
}
