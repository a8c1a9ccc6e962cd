/* wait.h - many coarse timers on one uv timer: requests that wait, idle connections that expire.
 *
 * Entries are embedded in what waits. Due times are kept to WAIT_GRAIN_MS; the uv timer runs only
 * while something waits. Starting a running entry moves it. The callback may start and stop any.
 */
#pragma once

#include <uv.h>

#include "base/macro.h"

#define WAIT_GRAIN_MS 20u

struct wait {
    struct wait *prev, *next;
    uint64_t due; /* 0 = not waiting */
    void (*fn)(struct wait *w);
};

struct wait_list {
    uv_timer_t timer;
    struct wait head; /* ring */
    uint64_t timer_due;
};

void wait_list_init(struct wait_list *l, uv_loop_t *loop);
/* Drops all entries and closes the timer; `on_closed` may be NULL. */
void wait_list_close(struct wait_list *l, uv_close_cb on_closed);
void wait_start(struct wait_list *l, struct wait *w, uint64_t ms, void (*fn)(struct wait *w));
/* Not waiting is fine. */
void wait_stop(struct wait *w);
