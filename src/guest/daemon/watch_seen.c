/* watch_seen.c - see watch_seen.h. */
#include "guest/daemon/watch_seen.h"

struct watch_seen {
    struct buf text;   /* flags and name, one after the other */
    const char **list; /* of names in `text`, sorted */
    size_t n;
    uint64_t until;
};

enum { IS_CREATED = 1, IS_WRITTEN = 2, IS_THERE = 4 }; /* never all zero: the byte before a name */

struct watch_seen *watch_seen_new(void)
{
    struct watch_seen *s = calloc(1, sizeof(*s));

    if (s)
        buf_init(&s->text, SIZE_MAX / 2); /* no longer than the queue of events, which is bounded */
    return s;
}

void watch_seen_free(struct watch_seen *s)
{
    if (!s)
        return;
    buf_done(&s->text);
    free(s->list);
    free(s);
}

bool watch_seen_add(struct watch_seen *s, const char *name, bool is_written)
{
    uint8_t flags = (uint8_t)(IS_THERE | IS_CREATED | (is_written ? IS_WRITTEN : 0));

    if (buf_append_byte(&s->text, flags) || buf_append(&s->text, name, strlen(name) + 1))
        return false;
    s->n++;
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool watch_seen_close(struct watch_seen *s, uint64_t until)
{
    const char *at = (const char *)buf_data(&s->text);

    s->until = until;
    if (s->n == 0)
        return true;
    s->list = calloc(s->n, sizeof(*s->list));
    if (!s->list)
        return false;
    for (size_t i = 0; i < s->n; i++) {
        s->list[i] = at + 1;
        at += strlen(at) + 1;
    }
    qsort(s->list, s->n, sizeof(s->list[0]), by_name);
    return true;
}

bool watch_seen_is_over(const struct watch_seen *s, uint64_t at)
{
    return at >= s->until;
}

bool watch_seen_take(struct watch_seen *s, const char *name, enum watch_seen_what what)
{
    const char **found = s->n ? bsearch(&name, s->list, s->n, sizeof(name), by_name) : NULL;
    uint8_t *flags, bit = what == WATCH_SEEN_WRITE ? IS_WRITTEN : IS_CREATED;
    bool was;

    if (!found)
        return false;
    flags = buf_data(&s->text) + (*found - (const char *)buf_data(&s->text)) - 1;
    was = *flags & bit;
    if (what == WATCH_SEEN_GONE)
        *flags = IS_THERE;
    else if (what == WATCH_SEEN_CREATE)
        *flags = (uint8_t)(*flags & ~IS_CREATED);
    return was && what != WATCH_SEEN_GONE;
}
