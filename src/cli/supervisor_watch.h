/* supervisor_watch.h - the watchdog: which role's loop does not come round any more.
 *
 * A role beats once a second (net/heartbeat.h). Silence is counted in steps that the supervisor itself
 * lived through, so a machine that stood still, or had no processor for the supervisor either, makes
 * nobody silent. Limits, in seconds of silence:
 *
 *     WATCH_HUNG_S      stopped, or waiting, or using up its processor (a loop without end)
 *     WATCH_STARVED_S   wants to run and gets next to no processor, or waits for the disk: the machine
 *                       is at fault, and a restart would only cost it more
 *     WATCH_START_S     before the first beat: a start may wait for mkfs (120 s), the predecessor's
 *                       lock (10 s), its workers (30 s)
 *
 * A role under a debugger is left alone. A thread on which others wait beats for itself, in the same way: silence of one is
 * silence of the role.
 */
#pragma once

#include "base/err.h"
#include "cli/supervisor_role.h"

/* Measured with two processors: no role was silent for 2 s while each kind of hog ran in a sandbox, and
 * 3.4 s was the longest with 1,500 processes running in circles beside the service (a load of 300). */
#define WATCH_HUNG_S 10
#define WATCH_STARVED_S 60
#define WATCH_START_S 180
/* How often the supervisor looks, and the most that one look counts for. */
#define WATCH_PERIOD_MS 1000
#define WATCH_STEP_MAX_NS (1500 * NSEC_PER_MSEC)

/* Makes a heartbeat descriptor for one of the role's threads (its name, for good; NULL: the main one) and adds it to its
 * arguments as `option`. Before role_finish. `may_wait`: nobody needs it soon, so that it waits for the disk is as good as
 * a beat; what cannot be killed before the disk answers had better go on meanwhile. */
int watch_add(struct role *role, const char *thread, const char *option, bool may_wait,
              struct abx_err *err);
void watch_done(struct role *role);
/* The role is started anew: nothing of its predecessor counts. */
void watch_reset(struct role *role);
/* Takes the role's beats of the last `step_ns` (at most WATCH_STEP_MAX_NS of them count). True, once
 * for each process: it hangs and is to be killed; `ret_why` says what was seen. */
bool watch_look(struct role *role, int64_t step_ns, char ret_why[96]);
