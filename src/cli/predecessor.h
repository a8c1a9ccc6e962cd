/* predecessor.h - waiting for what a supervisor that was killed still holds.
 *
 * What is killed is not gone at once. Its roles get their SIGKILL when it has closed all that it had, and close what they
 * have in their own time: a gateway with a thousand connections, on a busy machine, for a second, in which its port is taken
 * and no process can be found that has it. A child that it was just starting holds all its locks as well.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct predecessor {
    bool was_killed;  /* else nothing is waited for */
    int64_t until_ns; /* CLOCK_MONOTONIC; 0 = nothing was waited for yet */
    char told[160];   /* what the log has last */
};

/* Sleeps for some milliseconds. False at once when nobody was killed, and when the time (10 s for all that is waited for) is
 * up. The log says once what it is that is waited for. */
bool predecessor_wait(struct predecessor *p, const char *what);
