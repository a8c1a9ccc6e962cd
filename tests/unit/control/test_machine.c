/* The table of a sandbox's life, cell by cell, and the rules that hold for all of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "control/machine.h"

static const char *const state_names[] = { "WRITING", "STARTING", "COMMITTING", "RUNNING",
                                           "KILLING", "REMOVING", "GONE" };
static const char *const event_names[] = { "DONE",    "FAILED",  "CONNECT", "EXTEND",
                                           "NETWORK", "REFRESH", "KILL",    "DIED",
                                           "EXPIRED", "TOLD",    "RETRY",   "START_ENDED",
                                           "CLEARED" };
static const char *const action_names[] = {
    "IGNORE",      "REFUSE",    "START",      "COMMIT",        "OPEN",        "REFUSE_CREATE",
    "FAIL_CREATE", "KILL",      "KILL_LATER", "KILL_STARTING", "DIED",        "DIED_EARLY",
    "EXTEND",      "CONFIGURE", "EXPIRE",     "KILLED",        "KILL_FAILED", "KILL_AGAIN",
    "START_ENDED", "TOLD",      "REMOVE",     "REMOVE_AGAIN",  "FINISH"
};

/* state, event, next state, action, HTTP status; what is not here cannot happen. */
static const char *const expected[] = {
    "WRITING DONE STARTING START 0",
    "WRITING FAILED GONE REFUSE_CREATE 0",
    "WRITING CONNECT WRITING REFUSE 404",
    "WRITING EXTEND WRITING REFUSE 404",
    "WRITING NETWORK WRITING REFUSE 404",
    "WRITING REFRESH WRITING REFUSE 404",
    "WRITING KILL WRITING KILL_LATER 204",
    "WRITING DIED WRITING IGNORE 0",
    "WRITING EXPIRED WRITING IGNORE 0",
    "WRITING TOLD WRITING IGNORE 0",
    "WRITING RETRY WRITING IGNORE 0",
    "STARTING DONE COMMITTING COMMIT 0",
    "STARTING FAILED KILLING FAIL_CREATE 0",
    "STARTING CONNECT STARTING REFUSE 404",
    "STARTING EXTEND STARTING REFUSE 404",
    "STARTING NETWORK STARTING REFUSE 404",
    "STARTING REFRESH STARTING REFUSE 404",
    "STARTING KILL KILLING KILL_STARTING 204",
    "STARTING DIED STARTING DIED_EARLY 0",
    "STARTING EXPIRED STARTING IGNORE 0",
    "STARTING TOLD STARTING IGNORE 0",
    "STARTING RETRY STARTING IGNORE 0",
    "COMMITTING DONE RUNNING OPEN 0",
    "COMMITTING FAILED KILLING FAIL_CREATE 0",
    "COMMITTING CONNECT COMMITTING REFUSE 404",
    "COMMITTING EXTEND COMMITTING REFUSE 404",
    "COMMITTING NETWORK COMMITTING REFUSE 404",
    "COMMITTING REFRESH COMMITTING REFUSE 404",
    "COMMITTING KILL COMMITTING KILL_LATER 204",
    "COMMITTING DIED COMMITTING DIED_EARLY 0",
    "COMMITTING EXPIRED COMMITTING IGNORE 0",
    "COMMITTING TOLD COMMITTING IGNORE 0",
    "COMMITTING RETRY COMMITTING IGNORE 0",
    "RUNNING CONNECT RUNNING EXTEND 200",
    "RUNNING EXTEND RUNNING EXTEND 204",
    "RUNNING NETWORK RUNNING CONFIGURE 204",
    "RUNNING REFRESH RUNNING EXTEND 204",
    "RUNNING KILL KILLING KILL 204",
    "RUNNING DIED KILLING DIED 0",
    "RUNNING EXPIRED RUNNING EXPIRE 0",
    "RUNNING TOLD RUNNING IGNORE 0",
    "RUNNING RETRY RUNNING IGNORE 0",
    "KILLING DONE KILLING KILLED 0",
    "KILLING FAILED KILLING KILL_FAILED 0",
    "KILLING CONNECT KILLING REFUSE 409",
    "KILLING EXTEND KILLING REFUSE 404",
    "KILLING NETWORK KILLING REFUSE 404",
    "KILLING REFRESH KILLING REFUSE 404",
    "KILLING KILL KILLING IGNORE 204",
    "KILLING DIED KILLING IGNORE 0",
    "KILLING EXPIRED KILLING IGNORE 0",
    "KILLING TOLD KILLING TOLD 0",
    "KILLING RETRY KILLING KILL_AGAIN 0",
    "KILLING START_ENDED KILLING START_ENDED 0",
    "KILLING CLEARED REMOVING REMOVE 0",
    "REMOVING DONE GONE FINISH 0",
    "REMOVING FAILED GONE FINISH 0",
    "REMOVING CONNECT REMOVING REFUSE 409",
    "REMOVING EXTEND REMOVING REFUSE 404",
    "REMOVING NETWORK REMOVING REFUSE 404",
    "REMOVING REFRESH REMOVING REFUSE 404",
    "REMOVING KILL REMOVING IGNORE 204",
    "REMOVING DIED REMOVING IGNORE 0",
    "REMOVING EXPIRED REMOVING IGNORE 0",
    "REMOVING TOLD REMOVING IGNORE 0",
    "REMOVING RETRY REMOVING REMOVE_AGAIN 0",
};

_Static_assert(ARRAY_SIZE(state_names) == SANDBOX_STATES_, "a state without a name");
_Static_assert(ARRAY_SIZE(event_names) == EV_COUNT_, "an event without a name");
_Static_assert(ARRAY_SIZE(action_names) == ACT_COUNT_, "an action without a name");

static const struct machine_cell *cell_of(int state, int event)
{
    return machine_cell((enum sandbox_state)state, (enum lifecycle_event)event);
}

static void every_cell_is_as_written_down(void **state)
{
    size_t n = 0;

    (void)state;
    for (int s = 0; s < SANDBOX_STATES_; s++)
        for (int ev = 0; ev < EV_COUNT_; ev++) {
            const struct machine_cell *c = cell_of(s, ev);
            char line[128];

            if (!c->is_possible)
                continue;
            (void)snprintf(line, sizeof line, "%s %s %s %s %d", state_names[s], event_names[ev],
                           state_names[c->next], action_names[c->action], c->http);
            assert_true(n < ARRAY_SIZE(expected));
            assert_string_equal(line, expected[n]);
            n++;
        }
    assert_int_equal(n, ARRAY_SIZE(expected));
}

/* By what comes from inside alone, without more requests. */
static bool leads_to_gone(int from)
{
    bool seen[SANDBOX_STATES_] = { false };
    bool grows = true;

    seen[from] = true;
    while (grows) {
        grows = false;
        for (int s = 0; s < SANDBOX_STATES_; s++)
            for (int ev = 0; seen[s] && ev < EV_COUNT_; ev++) {
                const struct machine_cell *c = cell_of(s, ev);

                if (c->is_possible && !seen[c->next]) {
                    seen[c->next] = true;
                    grows = true;
                }
            }
    }
    return seen[SANDBOX_GONE];
}

static void a_kill_wins_in_every_state(void **state)
{
    (void)state;
    for (int s = 0; s < SANDBOX_GONE; s++) {
        const struct machine_cell *c = cell_of(s, EV_KILL);

        assert_true(c->is_possible);
        assert_int_equal(c->http, 204);
        /* At once, or behind the write that is under way, or it is ending already. */
        assert_true(c->next == SANDBOX_KILLING || c->action == ACT_KILL_LATER ||
                    s >= SANDBOX_KILLING);
    }
}

/* What comes from outside comes at any time. */
static void nothing_from_outside_is_impossible(void **state)
{
    static const enum lifecycle_event outside[] = { EV_KILL, EV_DIED, EV_EXPIRED, EV_TOLD,
                                                    EV_RETRY };

    (void)state;
    for (int s = 0; s < SANDBOX_GONE; s++) {
        for (size_t i = 0; i < ARRAY_SIZE(outside); i++)
            assert_true(cell_of(s, (int)outside[i])->is_possible);
        for (int ev = EV_CONNECT; ev <= EV_REFRESH; ev++)
            assert_true(cell_of(s, ev)->is_possible);
    }
    for (int ev = 0; ev < EV_COUNT_; ev++)
        assert_false(cell_of(SANDBOX_GONE, ev)->is_possible);
}

static void every_state_has_an_exit(void **state)
{
    (void)state;
    for (int s = 0; s < SANDBOX_GONE; s++) {
        bool has_call = cell_of(s, EV_DONE)->is_possible;

        assert_true(leads_to_gone(s));
        switch (machine_state((enum sandbox_state)s)->exit) {
        case EXIT_REST:
            assert_false(has_call);
            break;
        case EXIT_CALL: /* both ends of the call are taken care of, and one of them leads on */
            assert_true(has_call && cell_of(s, EV_FAILED)->is_possible);
            assert_true((int)cell_of(s, EV_DONE)->next != s &&
                        (int)cell_of(s, EV_FAILED)->next != s);
            break;
        case EXIT_TIMER:
            assert_true(cell_of(s, EV_RETRY)->action != ACT_IGNORE ||
                        cell_of(s, EV_EXPIRED)->action != ACT_IGNORE);
            break;
        case EXIT_END:
            fail();
        }
    }
}

static void every_answer_fits_what_clients_may_see(void **state)
{
    (void)state;
    for (int s = 0; s < SANDBOX_GONE; s++)
        for (int ev = EV_CONNECT; ev <= EV_REFRESH; ev++) {
            const struct machine_cell *c = cell_of(s, ev);

            if (c->action == ACT_REFUSE)
                assert_in_range(c->http, 400, 499);
            else
                assert_true(c->http == 200 || c->http == 201 || c->http == 204);
            if (!machine_state((enum sandbox_state)s)->shown)
                assert_int_equal(c->action, ACT_REFUSE);
            if (c->action == ACT_REFUSE)
                assert_int_equal(c->next, s);
        }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell_is_as_written_down),
        cmocka_unit_test(a_kill_wins_in_every_state),
        cmocka_unit_test(nothing_from_outside_is_impossible),
        cmocka_unit_test(every_state_has_an_exit),
        cmocka_unit_test(every_answer_fits_what_clients_may_see),
    };

    return cmocka_run_group_tests_name("control_machine", tests, NULL, NULL);
}
