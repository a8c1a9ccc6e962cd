/* crowd.h - is the sandbox so full of runnable processes that a new one would not get anywhere? */
#pragma once

#include "base/macro.h"

/* From this many processes on a sandbox is looked at more closely. */
#define CROWD_PROCESSES 512u

/* How many processes there are (counted up to CROWD_PROCESSES + 1), by /proc; 0 without /proc. */
size_t crowd_count(void);

/* Over CROWD_PROCESSES of which, by a sample, most want to run: a fork bomb. *ret_seen (may be NULL)
 * gets how many processes were seen. Costs about 20 us in a quiet sandbox, a few ms in a bomb. */
bool crowd_is_bomb(size_t *ret_seen);
