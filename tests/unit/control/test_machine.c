/* The table of a sandbox's life, cell by cell, and the rules that hold for all of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "control/machine.h"

static const char *const state_names[] = { "WRITING",  "STARTING", "COMMITTING", "RUNNING",
                                           "COPYING",  "CHECKING", "DRAINING",   "FREEZING",
                                           "SAVING",   "STOPPING", "PAUSED",     "WAKING",
                                           "RESUMING", "THAWING",  "KILLING",    "REMOVING",
                                           "GONE" };
static const char *const event_names[] = { "DONE",    "FAILED",      "PAUSE",   "RESUME",  "COPY",
                                           "CONNECT", "EXTEND",      "NETWORK", "REFRESH", "KILL",
                                           "DIED",    "EXPIRED",     "FROZEN",  "HELD",    "TOLD",
                                           "RETRY",   "START_ENDED", "CLEARED" };
static const char *const action_names[] = {
    "IGNORE",      "WAIT",          "REFUSE",       "START",     "START_AGAIN",  "COMMIT",
    "OPEN",        "REFUSE_CREATE", "FAIL_CREATE",  "KILL",      "KILL_LATER",   "KILL_STARTING",
    "DIED",        "DIED_EARLY",    "EXTEND",       "CONFIGURE", "EXPIRE",       "COPY",
    "COPIED",      "CHECK",         "UNHEALTHY",    "DRAIN",     "FREEZE",       "SAVE",
    "STOP",        "PAUSED",        "PAUSE_FAILED", "THAW",      "REOPEN",       "WAKE",
    "WAKE_FAILED", "RESUME_ROW",    "RESUMED",      "LATER",     "KILLED",       "KILL_FAILED",
    "KILL_AGAIN",  "START_ENDED",   "TOLD",         "REMOVE",    "REMOVE_AGAIN", "FINISH"
};

/* state, event, next state, action, HTTP status; what is not here cannot happen. */
static const char *const expected[] = {
    "WRITING DONE STARTING START 0",
    "WRITING FAILED GONE REFUSE_CREATE 0",
    "WRITING PAUSE WRITING REFUSE 404",
    "WRITING RESUME WRITING REFUSE 404",
    "WRITING COPY WRITING REFUSE 404",
    "WRITING CONNECT WRITING REFUSE 404",
    "WRITING EXTEND WRITING REFUSE 404",
    "WRITING NETWORK WRITING REFUSE 404",
    "WRITING REFRESH WRITING REFUSE 404",
    "WRITING KILL WRITING KILL_LATER 204",
    "WRITING DIED WRITING IGNORE 0",
    "WRITING EXPIRED WRITING IGNORE 0",
    "WRITING FROZEN WRITING IGNORE 0",
    "WRITING HELD WRITING IGNORE 0",
    "WRITING TOLD WRITING IGNORE 0",
    "WRITING RETRY WRITING IGNORE 0",
    "STARTING DONE COMMITTING COMMIT 0",
    "STARTING FAILED KILLING FAIL_CREATE 0",
    "STARTING PAUSE STARTING REFUSE 404",
    "STARTING RESUME STARTING REFUSE 404",
    "STARTING COPY STARTING REFUSE 404",
    "STARTING CONNECT STARTING REFUSE 404",
    "STARTING EXTEND STARTING REFUSE 404",
    "STARTING NETWORK STARTING REFUSE 404",
    "STARTING REFRESH STARTING REFUSE 404",
    "STARTING KILL KILLING KILL_STARTING 204",
    "STARTING DIED STARTING DIED_EARLY 0",
    "STARTING EXPIRED STARTING IGNORE 0",
    "STARTING FROZEN STARTING IGNORE 0",
    "STARTING HELD STARTING IGNORE 0",
    "STARTING TOLD STARTING IGNORE 0",
    "STARTING RETRY STARTING START_AGAIN 0",
    "COMMITTING DONE RUNNING OPEN 0",
    "COMMITTING FAILED KILLING FAIL_CREATE 0",
    "COMMITTING PAUSE COMMITTING REFUSE 404",
    "COMMITTING RESUME COMMITTING REFUSE 404",
    "COMMITTING COPY COMMITTING REFUSE 404",
    "COMMITTING CONNECT COMMITTING REFUSE 404",
    "COMMITTING EXTEND COMMITTING REFUSE 404",
    "COMMITTING NETWORK COMMITTING REFUSE 404",
    "COMMITTING REFRESH COMMITTING REFUSE 404",
    "COMMITTING KILL COMMITTING KILL_LATER 204",
    "COMMITTING DIED COMMITTING DIED_EARLY 0",
    "COMMITTING EXPIRED COMMITTING IGNORE 0",
    "COMMITTING FROZEN COMMITTING IGNORE 0",
    "COMMITTING HELD COMMITTING IGNORE 0",
    "COMMITTING TOLD COMMITTING IGNORE 0",
    "COMMITTING RETRY COMMITTING IGNORE 0",
    "RUNNING PAUSE CHECKING CHECK 204",
    "RUNNING RESUME RUNNING REFUSE 409",
    "RUNNING COPY COPYING COPY 201",
    "RUNNING CONNECT RUNNING EXTEND 200",
    "RUNNING EXTEND RUNNING EXTEND 204",
    "RUNNING NETWORK RUNNING CONFIGURE 204",
    "RUNNING REFRESH RUNNING EXTEND 204",
    "RUNNING KILL KILLING KILL 204",
    "RUNNING DIED KILLING DIED 0",
    "RUNNING EXPIRED RUNNING EXPIRE 0",
    "RUNNING FROZEN THAWING THAW 0",
    "RUNNING HELD RUNNING IGNORE 0",
    "RUNNING TOLD RUNNING IGNORE 0",
    "RUNNING RETRY RUNNING IGNORE 0",
    "COPYING DONE RUNNING COPIED 0",
    "COPYING FAILED RUNNING COPIED 0",
    "COPYING PAUSE COPYING WAIT 0",
    "COPYING RESUME COPYING WAIT 0",
    "COPYING COPY COPYING WAIT 0",
    "COPYING CONNECT COPYING WAIT 0",
    "COPYING EXTEND COPYING WAIT 0",
    "COPYING NETWORK COPYING WAIT 0",
    "COPYING REFRESH COPYING WAIT 0",
    "COPYING KILL KILLING KILL 204",
    "COPYING DIED KILLING DIED 0",
    "COPYING EXPIRED COPYING IGNORE 0",
    "COPYING FROZEN COPYING IGNORE 0",
    "COPYING HELD COPYING IGNORE 0",
    "COPYING TOLD COPYING IGNORE 0",
    "COPYING RETRY COPYING LATER 0",
    "CHECKING DONE DRAINING DRAIN 0",
    "CHECKING FAILED RUNNING UNHEALTHY 0",
    "CHECKING PAUSE CHECKING WAIT 0",
    "CHECKING RESUME CHECKING WAIT 0",
    "CHECKING COPY CHECKING WAIT 0",
    "CHECKING CONNECT CHECKING WAIT 0",
    "CHECKING EXTEND CHECKING WAIT 0",
    "CHECKING NETWORK CHECKING WAIT 0",
    "CHECKING REFRESH CHECKING WAIT 0",
    "CHECKING KILL KILLING KILL 204",
    "CHECKING DIED KILLING DIED 0",
    "CHECKING EXPIRED CHECKING IGNORE 0",
    "CHECKING FROZEN CHECKING IGNORE 0",
    "CHECKING HELD CHECKING IGNORE 0",
    "CHECKING TOLD CHECKING IGNORE 0",
    "CHECKING RETRY CHECKING LATER 0",
    "DRAINING PAUSE DRAINING WAIT 0",
    "DRAINING RESUME DRAINING WAIT 0",
    "DRAINING COPY DRAINING WAIT 0",
    "DRAINING CONNECT DRAINING WAIT 0",
    "DRAINING EXTEND DRAINING WAIT 0",
    "DRAINING NETWORK DRAINING WAIT 0",
    "DRAINING REFRESH DRAINING WAIT 0",
    "DRAINING KILL KILLING KILL 204",
    "DRAINING DIED KILLING DIED 0",
    "DRAINING EXPIRED FREEZING FREEZE 0",
    "DRAINING FROZEN DRAINING IGNORE 0",
    "DRAINING HELD FREEZING FREEZE 0",
    "DRAINING TOLD DRAINING IGNORE 0",
    "DRAINING RETRY DRAINING IGNORE 0",
    "FREEZING DONE SAVING SAVE 0",
    "FREEZING FAILED THAWING PAUSE_FAILED 0",
    "FREEZING PAUSE FREEZING WAIT 0",
    "FREEZING RESUME FREEZING WAIT 0",
    "FREEZING COPY FREEZING WAIT 0",
    "FREEZING CONNECT FREEZING WAIT 0",
    "FREEZING EXTEND FREEZING WAIT 0",
    "FREEZING NETWORK FREEZING WAIT 0",
    "FREEZING REFRESH FREEZING WAIT 0",
    "FREEZING KILL KILLING KILL 204",
    "FREEZING DIED KILLING DIED 0",
    "FREEZING EXPIRED FREEZING IGNORE 0",
    "FREEZING FROZEN FREEZING IGNORE 0",
    "FREEZING HELD FREEZING IGNORE 0",
    "FREEZING TOLD FREEZING IGNORE 0",
    "FREEZING RETRY FREEZING IGNORE 0",
    "SAVING DONE STOPPING STOP 0",
    "SAVING FAILED THAWING PAUSE_FAILED 0",
    "SAVING PAUSE SAVING WAIT 0",
    "SAVING RESUME SAVING WAIT 0",
    "SAVING COPY SAVING WAIT 0",
    "SAVING CONNECT SAVING WAIT 0",
    "SAVING EXTEND SAVING WAIT 0",
    "SAVING NETWORK SAVING WAIT 0",
    "SAVING REFRESH SAVING WAIT 0",
    "SAVING KILL KILLING KILL 204",
    "SAVING DIED KILLING DIED 0",
    "SAVING EXPIRED SAVING IGNORE 0",
    "SAVING FROZEN SAVING IGNORE 0",
    "SAVING HELD SAVING IGNORE 0",
    "SAVING TOLD SAVING IGNORE 0",
    "SAVING RETRY SAVING IGNORE 0",
    "STOPPING DONE PAUSED PAUSED 0",
    "STOPPING FAILED STOPPING LATER 0",
    "STOPPING PAUSE STOPPING WAIT 0",
    "STOPPING RESUME STOPPING WAIT 0",
    "STOPPING COPY STOPPING WAIT 0",
    "STOPPING CONNECT STOPPING WAIT 0",
    "STOPPING EXTEND STOPPING WAIT 0",
    "STOPPING NETWORK STOPPING WAIT 0",
    "STOPPING REFRESH STOPPING WAIT 0",
    "STOPPING KILL KILLING KILL 204",
    "STOPPING DIED KILLING DIED 0",
    "STOPPING EXPIRED STOPPING IGNORE 0",
    "STOPPING FROZEN STOPPING IGNORE 0",
    "STOPPING HELD STOPPING IGNORE 0",
    "STOPPING TOLD STOPPING IGNORE 0",
    "STOPPING RETRY STOPPING STOP 0",
    "PAUSED PAUSE PAUSED REFUSE 409",
    "PAUSED RESUME WAKING WAKE 201",
    "PAUSED COPY PAUSED REFUSE 409",
    "PAUSED CONNECT WAKING WAKE 201",
    "PAUSED EXTEND PAUSED REFUSE 404",
    "PAUSED NETWORK PAUSED CONFIGURE 204",
    "PAUSED REFRESH PAUSED REFUSE 404",
    "PAUSED KILL KILLING KILL 204",
    "PAUSED DIED KILLING DIED 0",
    "PAUSED EXPIRED PAUSED IGNORE 0",
    "PAUSED FROZEN PAUSED IGNORE 0",
    "PAUSED HELD PAUSED IGNORE 0",
    "PAUSED TOLD PAUSED IGNORE 0",
    "PAUSED RETRY PAUSED IGNORE 0",
    "WAKING DONE RESUMING RESUME_ROW 0",
    "WAKING FAILED PAUSED WAKE_FAILED 0",
    "WAKING PAUSE WAKING WAIT 0",
    "WAKING RESUME WAKING WAIT 0",
    "WAKING COPY WAKING WAIT 0",
    "WAKING CONNECT WAKING WAIT 0",
    "WAKING EXTEND WAKING WAIT 0",
    "WAKING NETWORK WAKING WAIT 0",
    "WAKING REFRESH WAKING WAIT 0",
    "WAKING KILL KILLING KILL_STARTING 204",
    "WAKING DIED KILLING DIED 0",
    "WAKING EXPIRED WAKING IGNORE 0",
    "WAKING FROZEN WAKING IGNORE 0",
    "WAKING HELD WAKING IGNORE 0",
    "WAKING TOLD WAKING IGNORE 0",
    "WAKING RETRY WAKING IGNORE 0",
    "RESUMING DONE RUNNING RESUMED 0",
    "RESUMING FAILED RUNNING RESUMED 0",
    "RESUMING PAUSE RESUMING WAIT 0",
    "RESUMING RESUME RESUMING WAIT 0",
    "RESUMING COPY RESUMING WAIT 0",
    "RESUMING CONNECT RESUMING WAIT 0",
    "RESUMING EXTEND RESUMING WAIT 0",
    "RESUMING NETWORK RESUMING WAIT 0",
    "RESUMING REFRESH RESUMING WAIT 0",
    "RESUMING KILL KILLING KILL 204",
    "RESUMING DIED KILLING DIED 0",
    "RESUMING EXPIRED RESUMING IGNORE 0",
    "RESUMING FROZEN RESUMING IGNORE 0",
    "RESUMING HELD RESUMING IGNORE 0",
    "RESUMING TOLD RESUMING IGNORE 0",
    "RESUMING RETRY RESUMING IGNORE 0",
    "THAWING DONE RUNNING REOPEN 0",
    "THAWING FAILED THAWING LATER 0",
    "THAWING PAUSE THAWING WAIT 0",
    "THAWING RESUME THAWING WAIT 0",
    "THAWING COPY THAWING WAIT 0",
    "THAWING CONNECT THAWING WAIT 0",
    "THAWING EXTEND THAWING WAIT 0",
    "THAWING NETWORK THAWING WAIT 0",
    "THAWING REFRESH THAWING WAIT 0",
    "THAWING KILL KILLING KILL 204",
    "THAWING DIED KILLING DIED 0",
    "THAWING EXPIRED THAWING IGNORE 0",
    "THAWING FROZEN THAWING IGNORE 0",
    "THAWING HELD THAWING IGNORE 0",
    "THAWING TOLD THAWING IGNORE 0",
    "THAWING RETRY THAWING THAW 0",
    "KILLING DONE KILLING KILLED 0",
    "KILLING FAILED KILLING KILL_FAILED 0",
    "KILLING PAUSE KILLING REFUSE 404",
    "KILLING RESUME KILLING REFUSE 404",
    "KILLING COPY KILLING REFUSE 404",
    "KILLING CONNECT KILLING REFUSE 409",
    "KILLING EXTEND KILLING REFUSE 404",
    "KILLING NETWORK KILLING REFUSE 404",
    "KILLING REFRESH KILLING REFUSE 404",
    "KILLING KILL KILLING IGNORE 204",
    "KILLING DIED KILLING IGNORE 0",
    "KILLING EXPIRED KILLING IGNORE 0",
    "KILLING FROZEN KILLING IGNORE 0",
    "KILLING HELD KILLING IGNORE 0",
    "KILLING TOLD KILLING TOLD 0",
    "KILLING RETRY KILLING KILL_AGAIN 0",
    "KILLING START_ENDED KILLING START_ENDED 0",
    "KILLING CLEARED REMOVING REMOVE 0",
    "REMOVING DONE GONE FINISH 0",
    "REMOVING FAILED GONE FINISH 0",
    "REMOVING PAUSE REMOVING REFUSE 404",
    "REMOVING RESUME REMOVING REFUSE 404",
    "REMOVING COPY REMOVING REFUSE 404",
    "REMOVING CONNECT REMOVING REFUSE 409",
    "REMOVING EXTEND REMOVING REFUSE 404",
    "REMOVING NETWORK REMOVING REFUSE 404",
    "REMOVING REFRESH REMOVING REFUSE 404",
    "REMOVING KILL REMOVING IGNORE 204",
    "REMOVING DIED REMOVING IGNORE 0",
    "REMOVING EXPIRED REMOVING IGNORE 0",
    "REMOVING FROZEN REMOVING IGNORE 0",
    "REMOVING HELD REMOVING IGNORE 0",
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
    static const enum lifecycle_event outside[] = { EV_KILL,   EV_DIED, EV_EXPIRED, EV_HELD,
                                                    EV_FROZEN, EV_TOLD, EV_RETRY };

    (void)state;
    for (int s = 0; s < SANDBOX_GONE; s++) {
        for (size_t i = 0; i < ARRAY_SIZE(outside); i++)
            assert_true(cell_of(s, (int)outside[i])->is_possible);
        for (int ev = EV_PAUSE; ev <= EV_REFRESH; ev++)
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
        for (int ev = EV_PAUSE; ev <= EV_REFRESH; ev++) {
            const struct machine_cell *c = cell_of(s, ev);

            if (c->action == ACT_REFUSE)
                assert_in_range(c->http, 400, 499);
            else if (c->action == ACT_WAIT)
                assert_true(machine_state((enum sandbox_state)s)->exit != EXIT_REST);
            else
                assert_true(c->http == 200 || c->http == 201 || c->http == 204);
            if (!machine_state((enum sandbox_state)s)->shown)
                assert_int_equal(c->action, ACT_REFUSE);
            if (c->action == ACT_REFUSE || c->action == ACT_WAIT)
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
