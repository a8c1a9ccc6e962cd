/* machine.c - the table; see machine.h. */
#include "control/machine.h"

#include <stddef.h>

#define TO(state, act) { true, SANDBOX_##state, ACT_##act, 0 }
#define ANSWERS(state, act, status) { true, SANDBOX_##state, ACT_##act, status }

/* Clients do not know of it: not yet, or not any more. */
#define UNKNOWN_TO_CLIENTS(state)                                                                  \
    [EV_EXTEND] = ANSWERS(state, REFUSE, 404), [EV_NETWORK] = ANSWERS(state, REFUSE, 404),         \
    [EV_REFRESH] = ANSWERS(state, REFUSE, 404)
/* What means nothing in a state. */
#define IGNORES(state) [EV_EXPIRED] = TO(state, IGNORE), [EV_TOLD] = TO(state, IGNORE)
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
        [EV_RETRY] = TO(STARTING, IGNORE),
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
        [EV_CONNECT] = ANSWERS(RUNNING, EXTEND, 200),
        [EV_EXTEND] = ANSWERS(RUNNING, EXTEND, 204),
        [EV_NETWORK] = ANSWERS(RUNNING, CONFIGURE, 204),
        [EV_REFRESH] = ANSWERS(RUNNING, EXTEND, 204),
        ENDS,
        [EV_EXPIRED] = TO(RUNNING, EXPIRE),
        [EV_TOLD] = TO(RUNNING, IGNORE),
        [EV_RETRY] = TO(RUNNING, IGNORE),
    },
    [SANDBOX_KILLING] = {
        [EV_DONE] = TO(KILLING, KILLED),
        [EV_FAILED] = TO(KILLING, KILL_FAILED),
        UNKNOWN_TO_CLIENTS(KILLING),
        [EV_CONNECT] = ANSWERS(KILLING, REFUSE, 409),
        [EV_KILL] = ANSWERS(KILLING, IGNORE, 204), /* 404 for all but the first, at the end */
        [EV_DIED] = TO(KILLING, IGNORE),
        [EV_EXPIRED] = TO(KILLING, IGNORE),
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
