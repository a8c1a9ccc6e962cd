/* heartbeat.h - the sign of life that a role's loop gives its supervisor.
 *
 * An eventfd that the supervisor made and the role inherited: each HEARTBEAT_PERIOD_MS the loop adds
 * one to it. Only a loop that comes round does; what the supervisor makes of its silence is its own
 * business (cli/supervisor_watch.h).
 */
#pragma once

#include <uv.h>

#include "base/err.h"

#define HEARTBEAT_PERIOD_MS 1000

struct heartbeat {
    uv_timer_t timer; /* does not keep the loop alive */
    int fd;
};

/* Makes an inherited `fd` fit to beat on. */
int heartbeat_prepare(int fd, struct abx_err *err);
/* Beats on `fd` from the next turn of `loop` on; `fd` (an eventfd, owned from here on) becomes
 * cloexec. -1, for a role without supervisor: does nothing, and heartbeat_stop neither. `h` stays
 * where it is until the loop has closed its handle. */
int heartbeat_start(struct heartbeat *h, uv_loop_t *loop, int fd, struct abx_err *err);
/* Ends it; the handle closes from the loop. More than once is fine. */
void heartbeat_stop(struct heartbeat *h);
