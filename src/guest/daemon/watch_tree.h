/* watch_tree.h - the folders of a recursive watch: which watch descriptor is which path.
 *
 * A node knows its parent and its own name, so that a renamed folder takes along everything below it.
 * Found by descriptor and by (parent, name). No system calls here: the watcher mirrors what the kernel
 * told, in the order told.
 */
#pragma once

#include "base/buf.h"

struct watch_seen;

struct watch_node {
    struct watch_node *parent; /* NULL: the watched folder itself */
    struct watch_node *first;  /* children */
    struct watch_node *next, **link;
    struct watch_node *by_wd, *by_name; /* chains of the two tables */
    char *name;                         /* "" of the watched folder itself */
    struct watch_seen *seen;            /* the watcher's, NULL when dropped */
    int wd;
    uint32_t cookie;   /* of a rename whose second half has not been read, 0 = none */
    bool is_displaced; /* another folder has taken its name; it moves on or ends next */
};

struct watch_tree {
    struct watch_node **wds, **names;
    struct watch_node *root;
    size_t n, n_buckets;
};

void watch_tree_init(struct watch_tree *t);

/* Adds a folder; `parent` NULL and name "" for the first, the root. NULL when out of memory. The node
 * is the tree's. */
struct watch_node *watch_tree_add(struct watch_tree *t, int wd, struct watch_node *parent,
                                  const char *name);
/* NULL when there is none. */
struct watch_node *watch_tree_find(const struct watch_tree *t, int wd);
struct watch_node *watch_tree_child(const struct watch_tree *t, const struct watch_node *parent,
                                    const char *name);
/* Gives `node` a new place. BUF_LIMIT, and nothing changes, when `parent` lies below `node`; BUF_OOM. */
enum buf_status watch_tree_move(struct watch_tree *t, struct watch_node *node,
                                struct watch_node *parent, const char *name);
/* Frees `node` and all below it; `on_drop` (may be NULL) first gets each one. */
void watch_tree_drop(struct watch_tree *t, struct watch_node *node,
                     void (*on_drop)(void *user, struct watch_node *node), void *user);
/* Next node in the order of a walk from `top`, NULL after the last. Start with `top` itself. */
struct watch_node *watch_tree_next(const struct watch_node *top, struct watch_node *node);

/* Path of `name` in `node`, relative to the root, NUL-terminated ("." for the root itself; `name` may
 * be NULL). Its length, 0 when it does not fit. */
size_t watch_tree_path(const struct watch_node *node, const char *name, char *to, size_t size);
