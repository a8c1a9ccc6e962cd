/* logs.h - lines that egress writes into sandboxes' logs: what it refused, and what sandboxes say of their processes (those of
 * the lifecycle are written with its events).
 *
 * Egress limits how many lines there are of one sandbox; here is a limit for all together, of each kind, so that a thousand
 * sandboxes that are refused things do not fill the store's queue. What is over it is left out, which the service's log
 * says.
 */
#pragma once

#include "base/budget.h"
#include "schema/ipc.pb-c.h"

#include <stdint.h>

#define LOGS_KEPT_MS (7 * INT64_C(86400000)) /* a week */
#define LOGS_PER_SECOND 200u
#define LOGS_BURST 2000u

struct logs_budget {
    struct budget of[2]; /* by enum Abx__Ipc__Log__Source */
    uint64_t n_dropped;
};

/* `user` is the struct control. A line of a sandbox that is not there is nothing. */
void logs_take(void *user, const Abx__Ipc__Log *log);
