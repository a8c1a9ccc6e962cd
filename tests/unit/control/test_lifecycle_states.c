/* The state machine: every event from outside in every state. */
#include "lifecycle_test.h"

enum outside { KILL, DIED, UP, TOLD, ABANDON, OUTSIDE_COUNT };

struct cell {
    bool lives;           /* in the end */
    int status;           /* of the create's answer; 0 = a failure */
    bool existed;         /* for KILL: this one ended it */
    bool is_killed_there; /* the driver was asked to kill */
};

/* Between running and paused, and back. */
#define ON_THE_WAY                                                                                 \
    {                                                                                              \
        [KILL] = { false, 201, true, true },     [DIED] = { false, 201, false, false },            \
        [UP] = { true, 201, false, false },      [TOLD] = { true, 201, false, false },             \
        [ABANDON] = { false, 201, false, true },                                                   \
    }

static const struct cell cells[SANDBOX_GONE][OUTSIDE_COUNT] = {
    [SANDBOX_WRITING] = { [KILL] = { false, 0, true, false },
                          [DIED] = { true, 201, false, false },
                          [UP] = { true, 201, false, false },
                          [TOLD] = { true, 201, false, false },
                          [ABANDON] = { false, 0, false, false } },
    [SANDBOX_STARTING] = { [KILL] = { false, 0, true, true },
                           [DIED] = { false, 201, false, false },
                           [UP] = { true, 201, false, false },
                           [TOLD] = { true, 201, false, false },
                           [ABANDON] = { false, 0, false, true } },
    [SANDBOX_COMMITTING] = { [KILL] = { false, 201, true, true },
                             [DIED] = { false, 201, false, false },
                             [UP] = { true, 201, false, false },
                             [TOLD] = { true, 201, false, false },
                             [ABANDON] = { false, 201, false, true } },
    [SANDBOX_RUNNING] = { [KILL] = { false, 201, true, true },
                          [DIED] = { false, 201, false, false },
                          [UP] = { true, 201, false, false },
                          [TOLD] = { true, 201, false, false },
                          [ABANDON] = { false, 201, false, true } },
    [SANDBOX_COPYING] = ON_THE_WAY,
    [SANDBOX_CHECKING] = ON_THE_WAY,
    [SANDBOX_DRAINING] = ON_THE_WAY,
    [SANDBOX_FREEZING] = ON_THE_WAY,
    [SANDBOX_SAVING] = ON_THE_WAY,
    [SANDBOX_STOPPING] = ON_THE_WAY,
    [SANDBOX_PAUSED] = ON_THE_WAY,
    [SANDBOX_WAKING] = ON_THE_WAY,
    [SANDBOX_RESUMING] = ON_THE_WAY,
    [SANDBOX_THAWING] = ON_THE_WAY,
    [SANDBOX_FETCHING] = ON_THE_WAY,
    [SANDBOX_CLEARING] = ON_THE_WAY,
    [SANDBOX_HALTING] = ON_THE_WAY,
    [SANDBOX_NOTING] = ON_THE_WAY,
    [SANDBOX_EXCHANGING] = ON_THE_WAY,
    [SANDBOX_ENDING] = ON_THE_WAY,
    [SANDBOX_RESTARTING] = { [KILL] = { false, 201, true, true },
                             [DIED] = { false, 201, false, true }, /* a start is under way */
                             [UP] = { true, 201, false, false },
                             [TOLD] = { true, 201, false, false },
                             [ABANDON] = { false, 201, false, true } },
    [SANDBOX_SETTLING] = ON_THE_WAY,
    [SANDBOX_FETCHING_PAUSED] = ON_THE_WAY,
    [SANDBOX_NOTING_PAUSED] = ON_THE_WAY,
    [SANDBOX_EXCHANGING_PAUSED] = ON_THE_WAY,
    [SANDBOX_ENDING_PAUSED] = ON_THE_WAY,
    [SANDBOX_PARKING] = ON_THE_WAY,
    [SANDBOX_KILLING] = { [KILL] = { false, 201, false, true },
                          [DIED] = { false, 201, false, true },
                          [UP] = { false, 201, false, true },
                          [TOLD] = { false, 201, false, true },
                          [ABANDON] = { false, 201, false, true } },
    [SANDBOX_REMOVING] = { [KILL] = { false, 201, false, true },
                           [DIED] = { false, 201, false, true },
                           [UP] = { false, 201, false, true },
                           [TOLD] = { false, 201, false, true },
                           [ABANDON] = { false, 201, false, true } },
};

static void fire_outside(enum outside ev, const char *id, struct kill_answer *killed)
{
    struct abx_err err = { 0 };

    switch (ev) {
    case KILL:
        assert_int_equal(lifecycle_kill(w.lifecycle, id, "request", on_killed, killed, &err), 0);
        assert_int_equal(killed->n, 0);
        break;
    case DIED:
        lifecycle_died(w.lifecycle, id, "exit");
        break;
    case UP:
        lifecycle_driver_up(w.lifecycle);
        break;
    case TOLD:
        lifecycle_told(w.lifecycle, id);
        break;
    case ABANDON:
        lifecycle_abandon(w.lifecycle, id);
        break;
    case OUTSIDE_COUNT:
        break;
    }
}

static bool is_at_rest(const char *id)
{
    enum sandbox_state s = state_of(id);

    return s != SANDBOX_STATES_ && machine_state(s)->exit == EXIT_REST;
}

static void check_cell(enum sandbox_state s, enum outside ev)
{
    const struct cell *want = &cells[s][ev];
    struct kill_answer killed = { 0 };
    struct answer made = { 0 };
    char id[SANDBOX_ID_SIZE];
    const char *ids[] = { id };
    bool goes;

    reach(s, &made, id);
    fire_outside(ev, id, &killed);
    if (w.fake.listed)
        end_list(ids, 1, false);
    goes = run_until(settle, id);
    if (goes && want->lives)
        goes = run_until(is_answered, &made);
    else if (goes)
        goes = run_until(is_empty, NULL);
    if (!goes || is_at_rest(id) != want->lives || made.n != 1 || made.status != want->status ||
        (made.code == 0) != (want->status != 0) || killed.n != (ev == KILL) ||
        killed.existed != want->existed || (kills_of(id) > 0) != want->is_killed_there)
        fail_msg("state %d, event %d: ended %d, lives %d, answers %u, status %d, killers %u, "
                 "existed %d, kills %u",
                 (int)s, (int)ev, goes, is_at_rest(id), made.n, made.status, killed.n,
                 killed.existed, kills_of(id));
}

static void check_all_cells(bool has_gateway)
{
    for (int s = 0; s < SANDBOX_GONE; s++)
        for (int ev = 0; ev < OUTSIDE_COUNT; ev++) {
            w.has_gateway = has_gateway;
            check_cell((enum sandbox_state)s, (enum outside)ev);
            assert_int_equal(teardown(NULL), 0);
            assert_int_equal(setup(NULL), 0);
        }
}

static void every_event_in_every_state_without_gateways(void **state)
{
    (void)state;
    check_all_cells(false);
}

static void every_event_in_every_state_with_a_gateway(void **state)
{
    (void)state;
    check_all_cells(true);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(every_event_in_every_state_without_gateways),
        TEST(every_event_in_every_state_with_a_gateway),
    };

    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests_name("control_lifecycle_states", tests, NULL, NULL);
}
