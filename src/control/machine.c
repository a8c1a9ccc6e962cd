/* machine.c - the table; see machine.h. */
#include "control/machine.h"

#include <stddef.h>

#define TO(state, act) { true, SANDBOX_##state, ACT_##act, 0 }
#define ANSWERS(state, act, status) { true, SANDBOX_##state, ACT_##act, status }

/* Clients do not know of it: not yet, or not any more. */
#define UNKNOWN_TO_CLIENTS(state)                                                                  \
    [EV_PAUSE] = ANSWERS(state, REFUSE, 404), [EV_RESUME] = ANSWERS(state, REFUSE, 404),           \
    [EV_COPY] = ANSWERS(state, REFUSE, 404), [EV_ROLLBACK] = ANSWERS(state, REFUSE, 404),          \
    [EV_EXTEND] = ANSWERS(state, REFUSE, 404), [EV_NETWORK] = ANSWERS(state, REFUSE, 404),         \
    [EV_REFRESH] = ANSWERS(state, REFUSE, 404)
/* One request after the other. */
#define REQUESTS_WAIT(state)                                                                       \
    [EV_PAUSE] = TO(state, WAIT), [EV_RESUME] = TO(state, WAIT), [EV_COPY] = TO(state, WAIT),      \
    [EV_ROLLBACK] = TO(state, WAIT), [EV_CONNECT] = TO(state, WAIT),                               \
    [EV_EXTEND] = TO(state, WAIT), [EV_NETWORK] = TO(state, WAIT), [EV_REFRESH] = TO(state, WAIT)
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
        [EV_ROLLBACK] = ANSWERS(FETCHING, FETCH, 200),
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
        [EV_ROLLBACK] = ANSWERS(FETCHING_PAUSED, FETCH, 200),
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
    [SANDBOX_FETCHING] = {
        [EV_DONE] = TO(CLEARING, CLEAR),
        [EV_FAILED] = TO(RUNNING, ROLLBACK_FAILED),
        REQUESTS_WAIT(FETCHING),
        ENDS,
        IGNORES(FETCHING),
        [EV_RETRY] = TO(FETCHING, LATER), /* its time is over: when it runs again, or still */
    },
    [SANDBOX_CLEARING] = {
        REQUESTS_WAIT(CLEARING),
        ENDS,
        [EV_FROZEN] = TO(CLEARING, IGNORE),
        [EV_TOLD] = TO(CLEARING, IGNORE),
        [EV_HELD] = TO(HALTING, HALT),
        [EV_EXPIRED] = TO(HALTING, HALT), /* the time for gateways is over */
        [EV_RETRY] = TO(CLEARING, IGNORE),
    },
    [SANDBOX_HALTING] = {
        [EV_DONE] = TO(NOTING, NOTE),
        [EV_FAILED] = TO(THAWING, ROLLBACK_UNDO),
        REQUESTS_WAIT(HALTING),
        ENDS,
        IGNORES(HALTING),
        [EV_RETRY] = TO(HALTING, IGNORE),
    },
    [SANDBOX_NOTING] = {
        [EV_DONE] = TO(EXCHANGING, EXCHANGE),
        [EV_FAILED] = TO(THAWING, ROLLBACK_UNDO),
        REQUESTS_WAIT(NOTING),
        ENDS,
        IGNORES(NOTING),
        [EV_RETRY] = TO(NOTING, IGNORE),
    },
    [SANDBOX_EXCHANGING] = {
        [EV_DONE] = TO(ENDING, END),
        [EV_FAILED] = TO(EXCHANGING, EXCHANGE_AGAIN), /* it may have been done */
        [EV_REFUSED] = TO(THAWING, ROLLBACK_UNDO),
        REQUESTS_WAIT(EXCHANGING),
        ENDS,
        IGNORES(EXCHANGING),
        [EV_RETRY] = TO(EXCHANGING, EXCHANGE),
    },
    [SANDBOX_ENDING] = {
        [EV_DONE] = TO(RESTARTING, RESTART),
        [EV_FAILED] = TO(ENDING, LATER),
        [EV_REFUSED] = TO(PARKING, RESTART_FAILED), /* they do not end */
        REQUESTS_WAIT(ENDING),
        ENDS,
        IGNORES(ENDING),
        [EV_RETRY] = TO(ENDING, END),
    },
    [SANDBOX_RESTARTING] = {
        [EV_DONE] = TO(SETTLING, SETTLE),
        [EV_FAILED] = TO(ENDING, RESTART_AGAIN), /* some of it may be there */
        [EV_REFUSED] = TO(PARKING, RESTART_FAILED),
        REQUESTS_WAIT(RESTARTING),
        [EV_KILL] = ANSWERS(KILLING, KILL_STARTING, 204),
        [EV_DIED] = TO(KILLING, DIED),
        IGNORES(RESTARTING),
        [EV_RETRY] = TO(RESTARTING, IGNORE),
    },
    [SANDBOX_SETTLING] = {
        [EV_DONE] = TO(RUNNING, ROLLED_BACK),
        /* It runs; a row that still says where it goes would start it once more after a crash. */
        [EV_FAILED] = TO(RUNNING, ROLLED_BACK),
        REQUESTS_WAIT(SETTLING),
        ENDS,
        IGNORES(SETTLING),
        [EV_RETRY] = TO(SETTLING, IGNORE),
    },
    [SANDBOX_FETCHING_PAUSED] = {
        [EV_DONE] = TO(NOTING_PAUSED, NOTE),
        [EV_FAILED] = TO(PAUSED, ROLLBACK_FAILED),
        REQUESTS_WAIT(FETCHING_PAUSED),
        ENDS,
        IGNORES(FETCHING_PAUSED),
        [EV_RETRY] = TO(FETCHING_PAUSED, IGNORE),
    },
    [SANDBOX_NOTING_PAUSED] = {
        [EV_DONE] = TO(EXCHANGING_PAUSED, EXCHANGE),
        [EV_FAILED] = TO(PAUSED, ROLLBACK_FAILED),
        REQUESTS_WAIT(NOTING_PAUSED),
        ENDS,
        IGNORES(NOTING_PAUSED),
        [EV_RETRY] = TO(NOTING_PAUSED, IGNORE),
    },
    [SANDBOX_EXCHANGING_PAUSED] = {
        [EV_DONE] = TO(ENDING_PAUSED, END),
        [EV_FAILED] = TO(EXCHANGING_PAUSED, EXCHANGE_AGAIN),
        [EV_REFUSED] = TO(PAUSED, ROLLBACK_FAILED),
        REQUESTS_WAIT(EXCHANGING_PAUSED),
        ENDS,
        IGNORES(EXCHANGING_PAUSED),
        [EV_RETRY] = TO(EXCHANGING_PAUSED, EXCHANGE),
    },
    [SANDBOX_ENDING_PAUSED] = {
        [EV_DONE] = TO(PARKING, PARK),
        [EV_FAILED] = TO(ENDING_PAUSED, LATER),
        REQUESTS_WAIT(ENDING_PAUSED),
        ENDS,
        IGNORES(ENDING_PAUSED),
        [EV_RETRY] = TO(ENDING_PAUSED, END),
    },
    [SANDBOX_PARKING] = {
        [EV_DONE] = TO(PAUSED, PARKED),
        [EV_FAILED] = TO(PARKING, LATER),
        REQUESTS_WAIT(PARKING),
        ENDS,
        IGNORES(PARKING),
        [EV_RETRY] = TO(PARKING, PARK),
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
    [SANDBOX_FETCHING] = { "fetching", "running", "running", true, EXIT_CALL },
    [SANDBOX_CLEARING] = { "clearing", "running", "running", true, EXIT_TIMER },
    [SANDBOX_HALTING] = { "halting", "running", "running", true, EXIT_CALL },
    [SANDBOX_NOTING] = { "noting", "running", "running", true, EXIT_CALL },
    [SANDBOX_EXCHANGING] = { "exchanging", "running", "running", true, EXIT_TIMER },
    [SANDBOX_ENDING] = { "ending", "running", "running", true, EXIT_TIMER },
    [SANDBOX_RESTARTING] = { "restarting", "running", "running", true, EXIT_CALL },
    [SANDBOX_SETTLING] = { "settling", "running", "running", true, EXIT_CALL },
    [SANDBOX_FETCHING_PAUSED] = { "fetching-paused", "paused", "paused", false, EXIT_CALL },
    [SANDBOX_NOTING_PAUSED] = { "noting-paused", "paused", "paused", false, EXIT_CALL },
    [SANDBOX_EXCHANGING_PAUSED] = { "exchanging-paused", "paused", "paused", false, EXIT_TIMER },
    [SANDBOX_ENDING_PAUSED] = { "ending-paused", "paused", "paused", false, EXIT_TIMER },
    [SANDBOX_PARKING] = { "parking", "paused", "paused", false, EXIT_TIMER },
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
