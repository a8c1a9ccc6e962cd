/* watch_tree.c - see watch_tree.h. */
#include "guest/daemon/watch_tree.h"

#include <assert.h>

#define BUCKETS_MIN 16

void watch_tree_init(struct watch_tree *t)
{
    memset(t, 0, sizeof(*t));
}

static size_t wd_bucket(const struct watch_tree *t, int wd)
{
    return (size_t)((uint32_t)wd * 2654435761u) & (t->n_buckets - 1);
}

/* FNV-1a over the name, mixed with the parent's address. */
static size_t name_bucket(const struct watch_tree *t, const struct watch_node *parent,
                          const char *name)
{
    uint64_t h = 14695981039346656037u ^ ((uintptr_t)parent >> 4);

    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 1099511628211u;
    return (size_t)(h ^ (h >> 32)) & (t->n_buckets - 1);
}

static void tables_put(struct watch_tree *t, struct watch_node *node)
{
    struct watch_node **wd = &t->wds[wd_bucket(t, node->wd)];
    struct watch_node **name = &t->names[name_bucket(t, node->parent, node->name)];

    node->by_wd = *wd;
    *wd = node;
    node->by_name = *name;
    *name = node;
}

static void name_take(struct watch_tree *t, struct watch_node *node)
{
    struct watch_node **at = &t->names[name_bucket(t, node->parent, node->name)];

    while (*at != node)
        at = &(*at)->by_name;
    *at = node->by_name;
}

static void wd_take(struct watch_tree *t, struct watch_node *node)
{
    struct watch_node **at = &t->wds[wd_bucket(t, node->wd)];

    while (*at != node)
        at = &(*at)->by_wd;
    *at = node->by_wd;
}

static bool tables_grow(struct watch_tree *t)
{
    size_t n = t->n_buckets ? t->n_buckets * 2 : BUCKETS_MIN;
    struct watch_node **wds, **names;

    if (t->n < t->n_buckets)
        return true;
    wds = calloc(n, sizeof(*wds));
    names = calloc(n, sizeof(*names));
    if (!wds || !names) {
        free(wds);
        free(names);
        return false;
    }
    free(t->wds);
    free(t->names);
    t->wds = wds;
    t->names = names;
    t->n_buckets = n;
    for (struct watch_node *node = t->root; node; node = watch_tree_next(t->root, node))
        tables_put(t, node);
    return true;
}

static void child_put(struct watch_node *parent, struct watch_node *node)
{
    node->parent = parent;
    node->next = NULL;
    node->link = NULL;
    if (!parent)
        return;
    node->next = parent->first;
    node->link = &parent->first;
    if (node->next)
        node->next->link = &node->next;
    parent->first = node;
}

static void child_take(struct watch_node *node)
{
    if (!node->link)
        return;
    *node->link = node->next;
    if (node->next)
        node->next->link = node->link;
}

static void displace(struct watch_tree *t, const struct watch_node *parent, const char *name)
{
    struct watch_node *old = parent ? watch_tree_child(t, parent, name) : NULL;

    if (old)
        old->is_displaced = true;
}

struct watch_node *watch_tree_add(struct watch_tree *t, int wd, struct watch_node *parent,
                                  const char *name)
{
    struct watch_node *node;

    if (!tables_grow(t))
        return NULL;
    node = calloc(1, sizeof(*node));
    if (node)
        node->name = strdup(name);
    if (!node || !node->name) {
        free(node);
        return NULL;
    }
    displace(t, parent, name);
    node->wd = wd;
    child_put(parent, node);
    tables_put(t, node);
    if (!parent)
        t->root = node;
    t->n++;
    return node;
}

struct watch_node *watch_tree_find(const struct watch_tree *t, int wd)
{
    struct watch_node *node = t->n_buckets ? t->wds[wd_bucket(t, wd)] : NULL;

    while (node && node->wd != wd)
        node = node->by_wd;
    return node;
}

struct watch_node *watch_tree_child(const struct watch_tree *t, const struct watch_node *parent,
                                    const char *name)
{
    struct watch_node *node = t->n_buckets ? t->names[name_bucket(t, parent, name)] : NULL;
    struct watch_node *found = NULL;

    for (; node; node = node->by_name) {
        if (node->parent != parent || strcmp(node->name, name) != 0)
            continue;
        if (node->is_displaced)
            return node; /* what is told next is about the one that had the name first */
        found = node;
    }
    return found;
}

enum buf_status watch_tree_move(struct watch_tree *t, struct watch_node *node,
                                struct watch_node *parent, const char *name)
{
    char *copy;

    for (const struct watch_node *up = parent; up; up = up->parent) {
        if (up == node)
            return BUF_LIMIT;
    }
    copy = strdup(name);
    if (!copy)
        return BUF_OOM;
    name_take(t, node);
    wd_take(t, node);
    child_take(node);
    displace(t, parent, name);
    free(node->name);
    node->name = copy;
    node->is_displaced = false;
    child_put(parent, node);
    tables_put(t, node);
    return BUF_OK;
}

static void node_free(struct watch_tree *t, struct watch_node *node)
{
    assert(!node->first);
    name_take(t, node);
    wd_take(t, node);
    child_take(node);
    if (t->root == node)
        t->root = NULL;
    free(node->name);
    free(node);
    t->n--;
}

void watch_tree_drop(struct watch_tree *t, struct watch_node *node,
                     void (*on_drop)(void *user, struct watch_node *node), void *user)
{
    struct watch_node *at = node, *up;

    for (;;) {
        while (at->first)
            at = at->first;
        up = at->parent;
        if (on_drop)
            on_drop(user, at);
        if (at == node)
            break;
        node_free(t, at);
        at = up;
    }
    node_free(t, node);
    if (t->n == 0) {
        free(t->wds);
        free(t->names);
        watch_tree_init(t);
    }
}

struct watch_node *watch_tree_next(const struct watch_node *top, struct watch_node *node)
{
    if (node->first)
        return node->first;
    while (node != top && !node->next)
        node = node->parent;
    return node == top ? NULL : node->next;
}

size_t watch_tree_path(const struct watch_node *node, const char *name, char *to, size_t size)
{
    size_t n = name ? strlen(name) : 0, at;

    for (const struct watch_node *up = node; up->parent; up = up->parent)
        n += strlen(up->name) + (n > 0);
    if (MAX(n, (size_t)1) + 1 > size)
        return 0;
    if (n == 0) {
        memcpy(to, ".", 2);
        return 1;
    }
    to[n] = '\0';
    at = n;
    if (name) {
        at -= strlen(name);
        memcpy(to + at, name, n - at);
    }
    for (const struct watch_node *up = node; up->parent; up = up->parent) {
        if (at < n)
            to[--at] = '/';
        at -= strlen(up->name);
        memcpy(to + at, up->name, strlen(up->name));
    }
    return n;
}
