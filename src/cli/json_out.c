/* json_out.c - see json_out.h. */
#include "cli/json_out.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"

int json_put(const json_t *document, FILE *to, size_t flags)
{
    _cleanup_(freep) char *text = json_dumps(document, flags);

    if (!text)
        return -1;
    /* Outside of strings there are none, and inside a backslash stands before none of them. */
    for (const char *p = text; *p; p++) {
        uint8_t c = (uint8_t)p[0], next = (uint8_t)p[1];

        if (c == 0xc2 && next < 0xa0) {
            (void)fprintf(to, "\\u%04x", next);
            p++;
        } else if (c == 0x7f) {
            (void)fputs("\\u007f", to);
        } else {
            (void)fputc(c, to);
        }
    }
    return 0;
}
