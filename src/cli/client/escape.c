/* escape.c - see escape.h. */
#include "cli/client/escape.h"

size_t escape_filter(struct escape *e, const uint8_t *p, size_t n, uint8_t *to)
{
    size_t k = 0;

    for (size_t i = 0; i < n && !e->is_asked; i++) {
        if (e->has_tilde && p[i] == '.') {
            e->is_asked = true;
            break;
        }
        if (!e->has_tilde && e->at_start && p[i] == '~') {
            e->has_tilde = true;
            e->at_start = false;
            continue;
        }
        if (e->has_tilde && p[i] != '~')
            to[k++] = '~';
        e->has_tilde = false;
        to[k++] = p[i];
        e->at_start = p[i] == '\r' || p[i] == '\n';
    }
    return k;
}
