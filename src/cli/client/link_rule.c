/* link_rule.c - see link_rule.h. */
#include "cli/client/link_rule.h"

#include <stdio.h>
#include <string.h>

/* ".." at the beginning only, at most `depth` of them, and not absolute. */
static bool is_inside(const char *text, size_t depth)
{
    size_t ups = 0;
    bool has_name = false;

    if (*text == '\0' || *text == '/')
        return false;
    while (*text) {
        size_t n = strcspn(text, "/");

        if (n == 2 && strncmp(text, "..", 2) == 0) {
            if (has_name || ++ups > depth)
                return false;
        } else if (n > 0 && !(n == 1 && *text == '.')) {
            has_name = true;
        }
        text += n + (text[n] == '/');
    }
    return true;
}

bool link_rule(const char *target, const char *root, size_t depth, char *to, size_t size)
{
    size_t n = strlen(root), used = 0;
    int r;

    if (*target != '/') {
        r = snprintf(to, size, "%s", target);
        return r >= 0 && (size_t)r < size && is_inside(target, depth);
    }
    while (n > 1 && root[n - 1] == '/')
        n--;
    if (n == 1)
        n = 0; /* the whole file system */
    if (strncmp(target, root, n) != 0 || (target[n] != '/' && target[n] != '\0'))
        return false;
    target += n + strspn(target + n, "/");
    for (size_t i = 0; i < depth; i++) {
        if (used + 3 >= size)
            return false;
        memcpy(to + used, "../", 3);
        used += 3;
    }
    r = snprintf(to + used, size - used, "%s", *target ? target : ".");
    return r >= 0 && (size_t)r < size - used && is_inside(to, depth);
}
