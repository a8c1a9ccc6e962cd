/* budget.c - see budget.h. */
#include "base/budget.h"

bool budget_take(struct budget *b, unsigned per_second, unsigned burst, uint64_t now_ms)
{
    uint64_t more = b->is_begun ? (now_ms - b->at_ms) * per_second / 1000 : burst;

    if (more > 0) {
        /* What is no whole token yet counts on. */
        b->at_ms = b->is_begun ? b->at_ms + more * 1000 / per_second : now_ms;
        b->left = (unsigned)MIN(b->left + more, (uint64_t)burst);
        b->is_begun = true;
    }
    if (b->left == 0)
        return false;
    b->left--;
    return true;
}
