/* machine.h - the life of a sandbox as a table: state x event -> next state, action, HTTP answer.
 *
 * Pure: no I/O, no memory. lifecycle.c moves a sandbox along it; the actions are in lifecycle_create.c, lifecycle_end.c,
 * lifecycle_pause.c, lifecycle_resume.c, lifecycle_rollback.c, lifecycle_request.c and lifecycle_call.c. Facts about
 * answers: e2b.md 1.4.
 *
 * Rules that the unit test holds for every cell: a kill is possible in each state and leads to its end;
 * each state but the two at rest has a call under way with a deadline, or a timer; a request that comes
 * while something is under way waits for its turn.
 */
#pragma once

#include "base/macro.h"

enum sandbox_state {
    SANDBOX_WRITING,    /* creating: the row is being written */
    SANDBOX_STARTING,   /* creating: the driver is at work */
    SANDBOX_COMMITTING, /* creating: the row is becoming `running` */
    SANDBOX_RUNNING,
    SANDBOX_COPYING, /* running; the driver copies its files */
    SANDBOX_CHECKING, /* running; a pause is asked for, and whether its guest is healthy, if that matters */
    SANDBOX_DRAINING, /* pausing: gateways hold new requests and end what is in flight */
    SANDBOX_FREEZING, /* pausing: the driver freezes */
    SANDBOX_SAVING,   /* pausing: the row is becoming `paused`; from then on it is */
    SANDBOX_STOPPING, /* pausing: without memory the driver ends the processes now */
    SANDBOX_PAUSED,
    SANDBOX_WAKING,   /* resuming: the driver thaws, or starts anew with the kept files */
    SANDBOX_RESUMING, /* resuming: the row is becoming `running` */
    SANDBOX_THAWING,  /* a pause or a rollback failed: back to running */
    /* Rolling back, to the files of a snapshot. */
    SANDBOX_FETCHING,   /* the driver copies them, beside those of the sandbox, which runs */
    SANDBOX_CLEARING,   /* as DRAINING */
    SANDBOX_HALTING,    /* the driver freezes */
    SANDBOX_NOTING,     /* the row says where it goes; from then on a restart goes there, too */
    SANDBOX_EXCHANGING, /* the driver exchanges the files */
    SANDBOX_ENDING,     /* the driver ends the processes, which have the old ones */
    SANDBOX_RESTARTING, /* it starts anew */
    SANDBOX_SETTLING,   /* the row says that it runs */
    SANDBOX_FETCHING_PAUSED, /* the same with one that is paused and stays so */
    SANDBOX_NOTING_PAUSED,
    SANDBOX_EXCHANGING_PAUSED,
    SANDBOX_ENDING_PAUSED,
    SANDBOX_PARKING,  /* the row says that it is paused: it was, or could not be started */
    SANDBOX_KILLING,  /* the driver kills, gateways drop it */
    SANDBOX_REMOVING, /* nothing of it is left but the row */
    SANDBOX_GONE,     /* out of the table */
    SANDBOX_STATES_,
};

enum lifecycle_event {
    EV_DONE,    /* the state's own call succeeded */
    EV_FAILED,  /* it failed */
    EV_REFUSED, /* it failed and will fail again, where that makes a difference */
    /* Requests, one at a time for each sandbox. */
    EV_PAUSE,
    EV_RESUME,
    EV_COPY,     /* its files as they are, for a fork */
    EV_ROLLBACK, /* its files as a snapshot has them */
    EV_CONNECT,
    EV_EXTEND,  /* sets the time of its end */
    EV_NETWORK, /* sets what it may reach */
    EV_REFRESH, /* as EV_EXTEND, never sooner */
    /* From outside, at any time. */
    EV_KILL,
    EV_DIED,    /* it ended by itself */
    EV_EXPIRED, /* its time is over */
    EV_FROZEN,  /* the driver has it frozen although it should run: what a crash left */
    EV_HELD,    /* every gateway holds its requests */
    EV_TOLD,    /* every gateway has dropped it */
    EV_RETRY,   /* the driver is back, or it is time to try again */
    /* Of killing. */
    EV_START_ENDED, /* the driver's late answer to a start */
    EV_CLEARED,     /* nothing of it is left anywhere but in the row */
    EV_COUNT_,
};

enum lifecycle_action {
    ACT_IGNORE,
    ACT_WAIT,   /* a request: its turn comes later */
    ACT_REFUSE, /* a request: answered at once with the cell's status */
    ACT_START,
    ACT_START_AGAIN, /* when the driver was away */
    ACT_COMMIT,
    ACT_OPEN, /* visible from now on */
    ACT_REFUSE_CREATE,
    ACT_FAIL_CREATE,
    ACT_KILL,
    ACT_KILL_LATER,    /* after the write that is under way */
    ACT_KILL_STARTING, /* the start's answer still comes */
    ACT_DIED,
    ACT_DIED_EARLY,
    ACT_EXTEND,
    ACT_CONFIGURE,
    ACT_EXPIRE, /* a kill, or a pause where the sandbox asks for it */
    ACT_COPY,
    ACT_COPIED,
    ACT_CHECK,
    ACT_UNHEALTHY, /* refuses the pause, it runs on */
    ACT_DRAIN,
    ACT_FREEZE,
    ACT_SAVE,
    ACT_STOP,
    ACT_PAUSED,
    ACT_PAUSE_FAILED, /* answers, then thaws */
    ACT_THAW,
    ACT_REOPEN, /* runs as before */
    ACT_WAKE,
    ACT_WAKE_FAILED,
    ACT_RESUME_ROW,
    ACT_RESUMED,
    ACT_LATER, /* tries again by timer */
    ACT_FETCH,
    ACT_CLEAR,
    ACT_HALT,
    ACT_NOTE,
    ACT_EXCHANGE,
    ACT_EXCHANGE_AGAIN,
    ACT_END,
    ACT_RESTART,
    ACT_RESTART_AGAIN,
    ACT_RESTART_FAILED, /* answers, then parks */
    ACT_SETTLE,
    ACT_PARK,
    ACT_ROLLED_BACK,
    ACT_PARKED,
    ACT_ROLLBACK_FAILED, /* it is as before */
    ACT_ROLLBACK_UNDO,   /* answers, then thaws */
    ACT_KILLED,
    ACT_KILL_FAILED,
    ACT_KILL_AGAIN,
    ACT_START_ENDED,
    ACT_TOLD,
    ACT_REMOVE,
    ACT_REMOVE_AGAIN,
    ACT_FINISH,
    ACT_COUNT_,
};

struct machine_cell {
    bool is_possible;
    enum sandbox_state next;
    enum lifecycle_action action;
    int http; /* of a request: its status at once (ACT_REFUSE), else when what it began ended well */
};

/* How a state ends when nothing comes from outside. */
enum machine_exit {
    EXIT_REST,  /* it stays (running has the deadline that its owner set) */
    EXIT_CALL,  /* a call to store or driver; each has a deadline of its own */
    EXIT_TIMER, /* a call, and a timer in case of none */
    EXIT_END,
};

struct machine_state {
    const char *name;
    const char *row;   /* state in the database from here on at the latest */
    const char *shown; /* to clients; NULL: it does not exist for them */
    bool is_active;    /* counts against the limit of sandboxes at a time */
    enum machine_exit exit;
};

const struct machine_cell *machine_cell(enum sandbox_state state, enum lifecycle_event ev);
const struct machine_state *machine_state(enum sandbox_state state);
