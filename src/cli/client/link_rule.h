/* link_rule.h - which symbolic links out of a sandbox are made on this machine. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The text for a link that lies `depth` folders below the root of the copied tree, made from what the sandbox tells of it:
 * `target` (absolute: as resolved there; else its text), `root` the tree's absolute path there. False when it is not
 * certain to lead to something within the tree: then no link is made.
 *
 * The text made is relative, with ".." at its beginning only and no more of them than `depth`. Since every folder on the
 * way to the link is a real one, and every other link of the tree follows the same rule, no chain of them leaves the tree. */
bool link_rule(const char *target, const char *root, size_t depth, char *to, size_t size);
