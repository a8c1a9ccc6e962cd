/* machine.c - the table; see machine.h. */
#include "control/machine.h"

#include <stddef.h>

#define TO(state, act) { true, SANDBOX_##state, ACT_##act, 0 }
#define ANSWERS(state, act, status) { true, SANDBOX_##state, ACT_##act, status }

/* Clients do not know of it: not yet, or not any more. */
#define UNKNOWN_TO_CLIENTS(state)                                                                  \
    [EV_PAUSE] = ANSWERS(state, REFUSE, 404), [EV_RESUME] = ANSWERS(state, REFUSE, 404),           \
    [EV_COPY] = ANSWERS(state, REFUSE, 404), [EV_EXTEND] = ANSWERS(state, REFUSE, 404),            \
    [EV_NETWORK] = ANSWERS(state, REFUSE, 404), [EV_REFRESH] = ANSWERS(state, REFUSE, 404)
/* One request after the other. */
#define REQUESTS_WAIT(state)                                                                       \
    [EV_PAUSE] = TO(state, WAIT), [EV_RESUME] = TO(state, WAIT), [EV_COPY] = TO(state, WAIT),      \
    [EV_CONNECT] = TO(state, WAIT), [EV_EXTEND] = TO(state, WAIT), [EV_NETWORK] = TO(state, WAIT), \
    [EV_REFRESH] = TO(state, WAIT)
/* What means nothing in a state. */
#define IGNORES(state)                                                                             \
    [EV_EXPIRED] = TO(state, IGNORE), [EV_FROZEN] = TO(state, IGNORE),                             \
    [EV_HELD] = TO(state, IGNORE), [EV_TOLD] = TO(state, IGNORE)
#define ENDS [EV_KILL] = ANSWERS(KILLING, KILL, 204), [EV_DIED] = TO(KILLING, DIED)

static const struct machine_cell cells[SANDBOX_STATES_][EV_COUNT_] = {
    [SANDBOX_WRITING] = {
        [EV_DONE] = TO(STARTING, START),
        [EV_FAILED] = TO(GONE, REFUSE_CREATE),
        UNKNOWN_TO_CLIENTS(WRITING),
        [EV_CONNECT] = ANSWERS(WRITING, REFUSE, 404),
        [EV_KILL] = ANSWERS(WRITING, KILL_LATER, 204),
        [EV_DIED] = TO(WRITING, IGNORE),
        [EV_RETRY] = TO(WRITING, IGNORE),
        IGNORES(WRITING),
    },
    [SANDBOX_STARTING] = {
        [EV_DONE] = TO(COMMITTING, COMMIT),
        [EV_FAILED] = TO(KILLING, FAIL_CREATE),
        UNKNOWN_TO_CLIENTS(STARTING),
        [EV_CONNECT] = ANSWERS(STARTING, REFUSE, 404),
        [EV_KILL] = ANSWERS(KILLING, KILL_STARTING, 204),
        [EV_DIED] = TO(STARTING, DIED_EARLY),
        [EV_RETRY] = TO(STARTING, START_AGAIN),
        IGNORES(STARTING),
    },
    [SANDBOX_COMMITTING] = {
        [EV_DONE] = TO(RUNNING, OPEN),
        [EV_FAILED] = TO(KILLING, FAIL_CREATE),
        UNKNOWN_TO_CLIENTS(COMMITTING),
        [EV_CONNECT] = ANSWERS(COMMITTING, REFUSE, 404),
        [EV_KILL] = ANSWERS(COMMITTING, KILL_LATER, 204),
        [EV_DIED] = TO(COMMITTING, DIED_EARLY),
        [EV_RETRY] = TO(COMMITTING, IGNORE),
        IGNORES(COMMITTING),
    },
    [SANDBOX_RUNNING] = {
        [EV_PAUSE] = ANSWERS(CHECKING, CHECK, 204),
        [EV_RESUME] = ANSWERS(RUNNING, REFUSE, 409),
        [EV_COPY] = ANSWERS(COPYING, COPY, 201),
        [EV_CONNECT] = ANSWERS(RUNNING, EXTEND, 200),
        [EV_EXTEND] = ANSWERS(RUNNING, EXTEND, 204),
        [EV_NETWORK] = ANSWERS(RUNNING, CONFIGURE, 204),
        [EV_REFRESH] = ANSWERS(RUNNING, EXTEND, 204),
        ENDS,
        [EV_EXPIRED] = TO(RUNNING, EXPIRE),
        [EV_FROZEN] = TO(THAWING, THAW),
        [EV_HELD] = TO(RUNNING, IGNORE),
        [EV_TOLD] = TO(RUNNING, IGNORE),
        [EV_RETRY] = TO(RUNNING, IGNORE),
    },
    [SANDBOX_COPYING] = {
        [EV_DONE] = TO(RUNNING, COPIED),
        [EV_FAILED] = TO(RUNNING, COPIED),
        REQUESTS_WAIT(COPYING),
        ENDS,
        IGNORES(COPYING),
        [EV_RETRY] = TO(COPYING, LATER), /* its time is over: when the copy is made */
    },
    [SANDBOX_CHECKING] = {
        [EV_DONE] = TO(DRAINING, DRAIN),
        [EV_FAILED] = TO(RUNNING, UNHEALTHY),
        REQUESTS_WAIT(CHECKING),
        ENDS,
        IGNORES(CHECKING),
        [EV_RETRY] = TO(CHECKING, LATER), /* its time is over: when the pause is decided */
    },
    [SANDBOX_DRAINING] = {
        REQUESTS_WAIT(DRAINING),
        ENDS,
        [EV_FROZEN] = TO(DRAINING, IGNORE),
        [EV_TOLD] = TO(DRAINING, IGNORE),
        [EV_HELD] = TO(FREEZING, FREEZE),
        [EV_EXPIRED] = TO(FREEZING, FREEZE), /* the time for gateways is over */
        [EV_RETRY] = TO(DRAINING, IGNORE),
    },
    [SANDBOX_FREEZING] = {
        [EV_DONE] = TO(SAVING, SAVE),
        [EV_FAILED] = TO(THAWING, PAUSE_FAILED),
        REQUESTS_WAIT(FREEZING),
        ENDS,
        IGNORES(FREEZING),
        [EV_RETRY] = TO(FREEZING, IGNORE),
    },
    [SANDBOX_SAVING] = {
        [EV_DONE] = TO(STOPPING, STOP),
        [EV_FAILED] = TO(THAWING, PAUSE_FAILED),
        REQUESTS_WAIT(SAVING),
        ENDS,
        IGNORES(SAVING),
        [EV_RETRY] = TO(SAVING, IGNORE),
    },
    [SANDBOX_STOPPING] = {
        [EV_DONE] = TO(PAUSED, PAUSED),
        [EV_FAILED] = TO(STOPPING, LATER),
        REQUESTS_WAIT(STOPPING),
        ENDS,
        IGNORES(STOPPING),
        [EV_RETRY] = TO(STOPPING, STOP),
    },
    [SANDBOX_PAUSED] = {
        [EV_PAUSE] = ANSWERS(PAUSED, REFUSE, 409),
        [EV_RESUME] = ANSWERS(WAKING, WAKE, 201),
        [EV_COPY] = ANSWERS(PAUSED, REFUSE, 409),
        [EV_CONNECT] = ANSWERS(WAKING, WAKE, 201),
        [EV_EXTEND] = ANSWERS(PAUSED, REFUSE, 404),
        [EV_NETWORK] = ANSWERS(PAUSED, CONFIGURE, 204),
        [EV_REFRESH] = ANSWERS(PAUSED, REFUSE, 404),
        ENDS,
        IGNORES(PAUSED),
        [EV_RETRY] = TO(PAUSED, IGNORE),
    },
    [SANDBOX_WAKING] = {
        [EV_DONE] = TO(RESUMING, RESUME_ROW),
        [EV_FAILED] = TO(PAUSED, WAKE_FAILED),
        REQUESTS_WAIT(WAKING),
        [EV_KILL] = ANSWERS(KILLING, KILL_STARTING, 204),
        [EV_DIED] = TO(KILLING, DIED),
        IGNORES(WAKING),
        [EV_RETRY] = TO(WAKING, IGNORE),
    },
    [SANDBOX_RESUMING] = {
        [EV_DONE] = TO(RUNNING, RESUMED),
        /* It runs; a row that still says `paused` would bring it back to that after a crash. */
        [EV_FAILED] = TO(RUNNING, RESUMED),
        REQUESTS_WAIT(RESUMING),
        ENDS,
        IGNORES(RESUMING),
        [EV_RETRY] = TO(RESUMING, IGNORE),
    },
    [SANDBOX_THAWING] = {
        [EV_DONE] = TO(RUNNING, REOPEN),
        [EV_FAILED] = TO(THAWING, LATER),
        REQUESTS_WAIT(THAWING),
        ENDS,
        IGNORES(THAWING),
        [EV_RETRY] = TO(THAWING, THAW),
    },
    [SANDBOX_KILLING] = {
        [EV_DONE] = TO(KILLING, KILLED),
        [EV_FAILED] = TO(KILLING, KILL_FAILED),
        UNKNOWN_TO_CLIENTS(KILLING),
        [EV_CONNECT] = ANSWERS(KILLING, REFUSE, 409),
        [EV_KILL] = ANSWERS(KILLING, IGNORE, 204), /* 404 for all but the first, at the end */
        [EV_DIED] = TO(KILLING, IGNORE),
        [EV_EXPIRED] = TO(KILLING, IGNORE),
        [EV_FROZEN] = TO(KILLING, IGNORE),
        [EV_HELD] = TO(KILLING, IGNORE),
        [EV_TOLD] = TO(KILLING, TOLD),
        [EV_RETRY] = TO(KILLING, KILL_AGAIN),
        [EV_START_ENDED] = TO(KILLING, START_ENDED),
        [EV_CLEARED] = TO(REMOVING, REMOVE),
    },
    [SANDBOX_REMOVING] = {
        [EV_DONE] = TO(GONE, FINISH),
        [EV_FAILED] = TO(GONE, FINISH), /* after a restart the row means one more kill */
        UNKNOWN_TO_CLIENTS(REMOVING),
        [EV_CONNECT] = ANSWERS(REMOVING, REFUSE, 409),
        [EV_KILL] = ANSWERS(REMOVING, IGNORE, 204),
        [EV_DIED] = TO(REMOVING, IGNORE),
        IGNORES(REMOVING),
        [EV_RETRY] = TO(REMOVING, REMOVE_AGAIN),
    },
};

static const struct machine_state states[SANDBOX_STATES_] = {
    [SANDBOX_WRITING] = { "writing", "creating", NULL, true, EXIT_CALL },
    [SANDBOX_STARTING] = { "starting", "creating", NULL, true, EXIT_CALL },
    [SANDBOX_COMMITTING] = { "committing", "creating", NULL, true, EXIT_CALL },
    [SANDBOX_RUNNING] = { "running", "running", "running", true, EXIT_REST },
    [SANDBOX_COPYING] = { "copying", "running", "running", true, EXIT_CALL },
    [SANDBOX_CHECKING] = { "checking", "running", "running", true, EXIT_CALL },
    [SANDBOX_DRAINING] = { "draining", "running", "running", true, EXIT_TIMER },
    [SANDBOX_FREEZING] = { "freezing", "running", "running", true, EXIT_CALL },
    [SANDBOX_SAVING] = { "saving", "running", "running", true, EXIT_CALL },
    [SANDBOX_STOPPING] = { "stopping", "paused", "paused", true, EXIT_TIMER },
    [SANDBOX_PAUSED] = { "paused", "paused", "paused", false, EXIT_REST },
    [SANDBOX_WAKING] = { "waking", "paused", "paused", true, EXIT_CALL },
    [SANDBOX_RESUMING] = { "resuming", "paused", "paused", true, EXIT_CALL },
    [SANDBOX_THAWING] = { "thawing", "running", "running", true, EXIT_TIMER },
    [SANDBOX_KILLING] = { "killing", "killing", NULL, false, EXIT_TIMER },
    [SANDBOX_REMOVING] = { "removing", "killing", NULL, false, EXIT_TIMER },
    [SANDBOX_GONE] = { "gone", NULL, NULL, false, EXIT_END },
};

const struct machine_cell *machine_cell(enum sandbox_state state, enum lifecycle_event ev)
{
    return &cells[state][ev];
}

const struct machine_state *machine_state(enum sandbox_state state)
{
    return &states[state];
}
