/* table.c - two chained hash tables over the same entries. See table.h. */
#include "engine/table.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

#define BUCKETS 4096u /* a machine holds a few thousand sandboxes */

struct table {
    struct sandbox *by_name[BUCKETS];
    struct sandbox *by_id[BUCKETS];
    size_t count;
};

/* Ids come from control, not from tenants: no need for a keyed hash. */
static uint32_t bucket_of(const char *s)
{
    return (uint32_t)(str_hash(s) % BUCKETS);
}

int table_new(struct table **ret, struct abx_err *err)
{
    struct table *t = calloc(1, sizeof *t);

    if (!t)
        return err_oom(err);
    *ret = t;
    return 0;
}

void table_free(struct table *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < BUCKETS; i++)
        while (t->by_name[i])
            table_remove(t, t->by_name[i]);
    free(t);
}

struct sandbox *table_find(const struct table *t, const char *name)
{
    for (struct sandbox *sb = t->by_name[bucket_of(name)]; sb; sb = sb->next_by_name)
        if (strcmp(sb->record.name, name) == 0)
            return sb;
    return NULL;
}

struct sandbox *table_find_id(const struct table *t, const char *sandbox_id)
{
    for (struct sandbox *sb = t->by_id[bucket_of(sandbox_id)]; sb; sb = sb->next_by_id)
        if (strcmp(sb->record.sandbox_id, sandbox_id) == 0)
            return sb;
    return NULL;
}

int table_add(struct table *t, const char *name, struct sandbox **ret, struct abx_err *err)
{
    struct sandbox *sb;
    uint32_t i = bucket_of(name);

    if (table_find(t, name))
        return err_set(err, ABX_ALREADY_EXISTS, "'%s' exists", name);
    sb = calloc(1, sizeof *sb);
    if (!sb)
        return err_oom(err);
    (void)snprintf(sb->record.name, sizeof sb->record.name, "%s", name);
    sb->pidfd = sb->netns_fd = sb->userns_fd = sb->envd_fd = sb->control_fd = -EBADF;
    for (size_t n = 0; n < STEER_FDS; n++)
        sb->steer_fds[n] = -EBADF;
    sb->next_by_name = t->by_name[i];
    t->by_name[i] = sb;
    t->count++;
    *ret = sb;
    return 0;
}

int table_set_id(struct table *t, struct sandbox *sb, const char *sandbox_id, struct abx_err *err)
{
    uint32_t i = bucket_of(sandbox_id);

    if (sandbox_id[0] == '\0' || strlen(sandbox_id) >= sizeof sb->record.sandbox_id ||
        sb->record.sandbox_id[0] != '\0')
        return err_set(err, ABX_INVALID_ARGUMENT, "sandbox id '%.80s'", sandbox_id);
    if (table_find_id(t, sandbox_id))
        return err_set(err, ABX_ALREADY_EXISTS, "sandbox '%s' exists", sandbox_id);
    (void)snprintf(sb->record.sandbox_id, sizeof sb->record.sandbox_id, "%s", sandbox_id);
    sb->next_by_id = t->by_id[i];
    t->by_id[i] = sb;
    return 0;
}

void table_remove(struct table *t, struct sandbox *sb)
{
    struct sandbox **at = &t->by_name[bucket_of(sb->record.name)];

    while (*at != sb)
        at = &(*at)->next_by_name;
    *at = sb->next_by_name;
    if (sb->record.sandbox_id[0] != '\0') {
        at = &t->by_id[bucket_of(sb->record.sandbox_id)];
        while (*at != sb)
            at = &(*at)->next_by_id;
        *at = sb->next_by_id;
    }
    while (sb->waiters) {
        struct waiter *w = sb->waiters;

        sb->waiters = w->next;
        if (w->drop)
            w->drop(w->user);
        free(w);
    }
    t->count--;
    free(sb);
}

size_t table_count(const struct table *t)
{
    return t->count;
}

void table_each(struct table *t, void (*fn)(void *user, struct sandbox *sb), void *user)
{
    for (size_t i = 0; i < BUCKETS; i++) {
        struct sandbox *sb = t->by_name[i], *next;

        for (; sb; sb = next) {
            next = sb->next_by_name;
            fn(user, sb);
        }
    }
}

/* Keeps the `max` smallest in order: an insertion sort, pages are small. */
size_t table_page(const struct table *t, const char *after, const struct sandbox **to, size_t max,
                  bool *ret_more)
{
    size_t n = 0, seen = 0;

    for (size_t i = 0; i < BUCKETS; i++)
        for (const struct sandbox *sb = t->by_id[i]; sb; sb = sb->next_by_id) {
            size_t at;

            if ((sb->state == SANDBOX_REMOVING && !sb->keeps_upper) ||
                strcmp(sb->record.sandbox_id, after) <= 0)
                continue;
            seen++;
            if (n == max && strcmp(sb->record.sandbox_id, to[n - 1]->record.sandbox_id) > 0)
                continue;
            for (at = n < max ? n : n - 1; at > 0; at--) {
                if (strcmp(to[at - 1]->record.sandbox_id, sb->record.sandbox_id) < 0)
                    break;
                to[at] = to[at - 1];
            }
            to[at] = sb;
            n += n < max ? 1 : 0;
        }
    *ret_more = seen > n;
    return n;
}
