/* keys.h - how many connections there are into the sandboxes of each API key.
 *
 * A sandbox belongs to the key that made it, for good: also when the key was revoked. Each row of the
 * table holds a reference.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/macro.h"

#define KEY_ID_SIZE 16
#define KEYS_BUCKETS 256u

struct key_uses;

struct key_use {
    struct key_use *next;
    struct key_uses *uses;
    size_t n_refs;
    size_t n_active; /* connections */
    char id[KEY_ID_SIZE];
};

struct key_uses {
    struct key_use *buckets[KEYS_BUCKETS];
};

/* One reference; NULL when out of memory. `id` is cut to what fits. */
struct key_use *key_use_get(struct key_uses *k, const char *id);
/* NULL is fine. */
void key_use_put(struct key_use *use);
