/* escape.h - the way out of a terminal session that hangs: "~." at the beginning of a line. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct escape {
    bool at_start;  /* of a line */
    bool has_tilde; /* that was held back */
    bool is_asked;  /* "~." was typed */
};
#define ESCAPE_INIT { .at_start = true }

/* Copies `n` typed bytes from `p` to `to`, which has room for n + 1, without the escapes. Returns how many. A "~" at the
 * beginning of a line waits for what follows: "~~" is one "~", "~." ends it, "~" and anything else is both. */
size_t escape_filter(struct escape *e, const uint8_t *p, size_t n, uint8_t *to);
