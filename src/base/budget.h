/* budget.h - how often something may be done: a bucket of tokens that fills with time. All zero is a full one.
 *
 * Not for several threads.
 */
#pragma once

#include "base/macro.h"

struct budget {
    uint64_t at_ms; /* of the last look */
    unsigned left;
    bool is_begun;
};

/* Takes one of up to `burst` tokens, of which `per_second` (1..1000) come anew each second; false when there is none. `now_ms` is a
 * clock that only goes forward. */
bool budget_take(struct budget *b, unsigned per_second, unsigned burst, uint64_t now_ms);
