/* predecessor.c - see predecessor.h. */
#include "cli/predecessor.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/str.h"

#define WAIT_NS (10 * NSEC_PER_SEC)
#define STEP_NS (10 * NSEC_PER_MSEC)

bool predecessor_wait(struct predecessor *p, const char *what)
{
    static const struct timespec step = { .tv_nsec = STEP_NS };

    if (!p->was_killed)
        return false;
    if (p->until_ns == 0)
        p->until_ns = time_mono_ns() + WAIT_NS;
    if (time_mono_ns() >= p->until_ns)
        return false;
    if (strcmp(p->told, what) != 0) {
        (void)snprintf(p->told, sizeof p->told, "%s", what);
        log_info("waiting for what the service that was killed still holds", "what", what, NULL);
    }
    (void)nanosleep(&step, NULL);
    return true;
}
