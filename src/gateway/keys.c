/* keys.c - see keys.h. */
#include "gateway/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

static struct key_use **bucket_of(struct key_uses *k, const char *id)
{
    return &k->buckets[str_hash(id) % KEYS_BUCKETS]; /* not keyed: ids come from control */
}

struct key_use *key_use_get(struct key_uses *k, const char *id)
{
    char short_id[KEY_ID_SIZE];
    struct key_use **bucket, *use;

    (void)snprintf(short_id, sizeof(short_id), "%s", id);
    bucket = bucket_of(k, short_id);
    for (use = *bucket; use && strcmp(use->id, short_id) != 0; use = use->next)
        ;
    if (!use) {
        use = calloc(1, sizeof(*use));
        if (!use)
            return NULL;
        memcpy(use->id, short_id, sizeof(use->id));
        use->uses = k;
        use->next = *bucket;
        *bucket = use;
    }
    use->n_refs++;
    return use;
}

void key_use_put(struct key_use *use)
{
    struct key_use **at;

    if (!use || --use->n_refs > 0)
        return;
    for (at = bucket_of(use->uses, use->id); *at != use; at = &(*at)->next)
        ;
    *at = use->next;
    free(use);
}
