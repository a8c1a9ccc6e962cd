/* Rollbacks: order of the steps, what each failure leaves, time, restarts. */
#include "lifecycle_test.h"

#include "control/lifecycle_internal.h"

static void the_files_are_there_before_anything_ends(void **state)
{
    char id[SANDBOX_ID_SIZE], copy[SANDBOX_ID_SIZE];
    struct request_answer back;
    struct answer a = { 0 };
    int64_t end_ms, started_ms;

    (void)state;
    w.has_gateway = true;
    reach(SANDBOX_RUNNING, &a, id);
    end_ms = find(id)->end_ms;
    started_ms = find(id)->started_ms;
    request_rollback(id, &back);
    assert_int_equal(w.fake.n_clones, 1);
    assert_string_equal(w.fake.clone_of, SNAPSHOT_ID);
    memcpy(copy, w.fake.cloned_id, sizeof copy);
    assert_true(lifecycle_is_kept(w.lifecycle, copy));
    assert_int_equal(w.n_holds, 0); /* it runs on */
    assert_true(end_change(NULL));
    assert_int_equal(w.n_holds, 1);
    assert_int_equal(w.fake.n_freezes, 0);
    lifecycle_held(w.lifecycle, id);
    assert_int_equal(w.fake.n_freezes, 1);
    assert_true(w.fake.is_brief); /* neither files nor memory are worth writing */
    assert_false(w.fake.is_synced);
    assert_true(end_change(NULL));
    assert_int_equal(w.fake.n_exchanges, 0); /* the row comes first */
    assert_true(run_until(has_change, NULL));
    assert_int_equal(w.fake.n_exchanges, 1);
    assert_false(w.fake.is_synced);
    assert_string_equal(w.fake.exchanged_id, copy);
    assert_int_equal(w.fake.n_stops, 0);
    assert_true(end_change(NULL));
    assert_int_equal(w.fake.n_stops, 1);
    assert_int_equal(w.fake.n_creates, 1);
    assert_true(end_change(NULL));
    assert_int_equal(w.fake.n_creates, 2);
    assert_true(w.fake.is_resume);
    assert_string_equal(w.fake.env, "NAME=value");
    end_create(NULL);
    assert_int_equal(back.n, 0);
    assert_true(run_until(is_requested, &back));
    assert_int_equal(back.status, 200);
    assert_true(runs(id));
    assert_int_equal(w.n_visible, 2);
    assert_int_equal(find(id)->end_ms, end_ms);
    assert_int_equal(find(id)->started_ms, started_ms);
    assert_in_range(uv_timer_get_due_in(&find(id)->timer), 50000, 60000);
    assert_false(lifecycle_is_kept(w.lifecycle, copy));
    assert_int_equal(kills_of(copy), 1); /* it has the old files */
    assert_int_equal(kills_of(id), 0);
    assert_true(lifecycle_is_kept(w.lifecycle, SNAPSHOT_ID));
}

static void a_paused_one_stays_paused_without_memory(void **state)
{
    char id[SANDBOX_ID_SIZE];
    struct answer a = { 0 };
    int64_t since_ms;

    (void)state;
    reach(SANDBOX_PAUSED, &a, id);
    since_ms = find(id)->end_ms;
    request_rollback(id, &reached);
    assert_int_equal(w.n_holds, 1); /* of the pause */
    go_to(id, SANDBOX_EXCHANGING_PAUSED);
    assert_true(w.fake.is_synced);
    assert_int_equal(w.fake.n_stops, 0);
    go_to(id, SANDBOX_PAUSED);
    assert_int_equal(w.fake.n_stops, 1);
    assert_int_equal(reached.status, 200);
    assert_false(find(id)->keeps_memory);
    assert_int_equal(find(id)->end_ms, since_ms);
    assert_int_equal(w.fake.n_creates, 1);
    request(id, EV_RESUME, false, &reached);
    assert_true(w.fake.is_resume);
    go_to(id, SANDBOX_RUNNING);
    assert_int_equal(reached.status, 201);
}

static void what_is_held_has_a_deadline(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    w.has_gateway = true;
    reach(SANDBOX_CLEARING, &a, id);
    assert_in_range(uv_timer_get_due_in(&find(id)->timer), 1, 5000);
    lifecycle_on_timer(&find(id)->timer);
    assert_int_equal(state_of(id), SANDBOX_HALTING);
    assert_int_equal(w.fake.n_freezes, 1);
}

/* --- failures ------------------------------------------------------------------------------------- */

static void without_files_nothing_happens(void **state)
{
    static const enum sandbox_state from[] = { SANDBOX_RUNNING, SANDBOX_PAUSED };
    struct request_answer back;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(from); i++) {
        struct answer a = { 0 };
        char id[SANDBOX_ID_SIZE];
        unsigned n_holds, n_freezes;

        reach(from[i], &a, id);
        n_holds = w.n_holds;
        n_freezes = w.fake.n_freezes;
        request_rollback(id, &back);
        fail_change(ABX_RESOURCE_EXHAUSTED, "the disk is full");
        assert_int_equal(back.http, 429);
        assert_non_null(strstr(back.text, "Error rolling back sandbox"));
        assert_non_null(strstr(back.text, "while fetching"));
        assert_non_null(strstr(back.text, "the disk is full"));
        assert_int_equal(state_of(id), from[i]);
        assert_int_equal(w.n_holds, n_holds);
        assert_int_equal(w.fake.n_freezes, n_freezes);
        assert_int_equal(kills_of(w.fake.cloned_id), 1);
        assert_false(lifecycle_is_kept(w.lifecycle, w.fake.cloned_id));
    }
}

static void a_driver_that_is_away_changes_nothing(void **state)
{
    struct request_answer back;
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    w.fake.is_up = false;
    request_rollback(id, &back);
    assert_int_equal(back.http, 503);
    assert_true(runs(id));
    assert_in_range(uv_timer_get_due_in(&find(id)->timer), 50000, 60000);
}

static void a_snapshot_that_goes_while_it_waits_is_not_found(void **state)
{
    struct sandbox_request rq = { .what = EV_ROLLBACK, .snapshot_id = "igone" };
    struct request_answer back;
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    request_as(id, &rq, &back);
    assert_int_equal(back.http, 404);
    assert_string_equal(back.text, "snapshot 'igone' not found");
    assert_int_equal(w.fake.n_clones, 0);
    assert_true(runs(id));
}

static void one_that_does_not_freeze_runs_on(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    int64_t end_ms;

    (void)state;
    reach(SANDBOX_HALTING, &a, id);
    end_ms = find(id)->end_ms;
    fail_change(ABX_DEADLINE_EXCEEDED, "not frozen in 5 s");
    assert_int_equal(reached.http, 504);
    assert_non_null(strstr(reached.text, "while halting: not frozen in 5 s"));
    assert_int_equal(state_of(id), SANDBOX_THAWING);
    go_to(id, SANDBOX_RUNNING);
    assert_int_equal(w.fake.n_exchanges, 0);
    assert_int_equal(find(id)->end_ms, end_ms);
    assert_int_equal(kills_of(w.fake.cloned_id), 1);
}

static void what_the_driver_refuses_is_undone(void **state)
{
    static const enum sandbox_state exchanging[] = { SANDBOX_EXCHANGING,
                                                     SANDBOX_EXCHANGING_PAUSED };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(exchanging); i++) {
        bool was_paused = exchanging[i] == SANDBOX_EXCHANGING_PAUSED;
        struct answer a = { 0 };
        char id[SANDBOX_ID_SIZE];

        reach(exchanging[i], &a, id);
        fail_change(ABX_INTERNAL, "no room for a name");
        assert_int_equal(reached.http, 500);
        assert_non_null(strstr(reached.text, "while exchanging"));
        go_to(id, was_paused ? SANDBOX_PAUSED : SANDBOX_RUNNING);
        assert_int_equal(w.fake.n_stops, 0);
        assert_int_equal(w.fake.n_thaws, !was_paused);
        assert_int_equal(find(id)->keeps_memory, was_paused);
        assert_int_equal(kills_of(w.fake.cloned_id), 1);
        /* The row does not say so any more. */
        start_anew(id, was_paused ? DRIVER_FROZEN : DRIVER_RUNS);
        assert_int_equal(state_of(id), was_paused ? SANDBOX_PAUSED : SANDBOX_RUNNING);
        assert_int_equal(w.fake.n_exchanges, 0);
        assert_int_equal(teardown(NULL), 0);
        assert_int_equal(setup(NULL), 0);
    }
}

static void what_may_have_been_done_is_asked_for_again(void **state)
{
    static const enum sandbox_state exchanging[] = { SANDBOX_EXCHANGING,
                                                     SANDBOX_EXCHANGING_PAUSED };
    struct abx_err failure;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(exchanging); i++) {
        char id[SANDBOX_ID_SIZE], copy[SANDBOX_ID_SIZE];
        struct answer a = { 0 };

        reach(exchanging[i], &a, id);
        memcpy(copy, w.fake.exchanged_id, sizeof copy);
        fail_change(ABX_UNAVAILABLE, "the connection ended");
        assert_int_equal(state_of(id), exchanging[i]);
        assert_int_equal(reached.n, 0);
        assert_true(run_until(has_change, NULL));
        fail_change(ABX_DEADLINE_EXCEEDED, "no answer");
        (void)err_reason(&failure, ABX_REASON_CONFLICT, "it is being changed");
        assert_true(run_until(has_change, NULL));
        assert_true(end_change(&failure));
        assert_true(run_until(has_change, NULL));
        assert_int_equal(w.fake.n_exchanges, 4);
        assert_string_equal(w.fake.exchanged_id, copy);
        go_to(id, i == 0 ? SANDBOX_RUNNING : SANDBOX_PAUSED);
        assert_int_equal(reached.status, 200);
        assert_int_equal(teardown(NULL), 0);
        assert_int_equal(setup(NULL), 0);
    }
}

/* Once an answer was lost, or control was: then a failure to look is none of those after which nothing has changed. */
static void after_that_only_who_looked_is_believed(void **state)
{
    static const int codes[] = { ABX_INTERNAL, ABX_NOT_FOUND, ABX_RESOURCE_EXHAUSTED,
                                 ABX_INVALID_ARGUMENT, ABX_UNIMPLEMENTED };
    struct abx_err failure;

    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        bool was_paused = i & 1, is_done = i & 2, has_restart = i & 4;
        enum sandbox_state at = was_paused ? SANDBOX_EXCHANGING_PAUSED : SANDBOX_EXCHANGING;
        char id[SANDBOX_ID_SIZE], copy[SANDBOX_ID_SIZE];
        struct answer a = { 0 };

        reach(at, &a, id);
        memcpy(copy, w.fake.exchanged_id, sizeof copy);
        (void)err_set(&failure, ABX_UNAVAILABLE, "the engine's worker died");
        if (has_restart)
            start_anew(id, DRIVER_FROZEN);
        else
            assert_true(end_change(&failure));
        for (size_t k = 0; k < ARRAY_SIZE(codes); k++) {
            assert_true(run_until(has_change, NULL));
            fail_change(codes[k], "nobody could look");
            assert_int_equal(state_of(id), at);
            assert_true(lifecycle_is_kept(w.lifecycle, copy));
            assert_int_equal(w.fake.n_kills, 0);
            assert_int_equal(w.fake.n_thaws, 0);
            (void)uv_timer_start(&find(id)->timer, lifecycle_on_timer, 0, 0); /* now, not later */
        }
        assert_true(run_until(has_change, NULL));
        (void)err_set(&failure, ABX_FAILED_PRECONDITION, "there is none for its place");
        assert_true(end_change(is_done ? NULL : &failure));
        assert_int_equal(state_of(id), is_done ? was_paused ? SANDBOX_ENDING_PAUSED : SANDBOX_ENDING
                                       : was_paused ? SANDBOX_PAUSED
                                                    : SANDBOX_THAWING);
        go_to(id, was_paused ? SANDBOX_PAUSED : SANDBOX_RUNNING);
        assert_int_equal(w.fake.n_stops > 0, is_done);
        assert_int_equal(kills_of(copy), 1);
        if (!has_restart)
            assert_int_equal(reached.http, is_done ? 0 : 500);
        assert_int_equal(teardown(NULL), 0);
        assert_int_equal(setup(NULL), 0);
    }
}

static void one_that_the_driver_has_lost_does_not_wait_for_ever(void **state)
{
    static const enum sandbox_state exchanging[] = { SANDBOX_EXCHANGING,
                                                     SANDBOX_EXCHANGING_PAUSED };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(exchanging); i++) {
        struct answer a = { 0 };
        char id[SANDBOX_ID_SIZE];

        reach(exchanging[i], &a, id);
        fail_change(ABX_UNAVAILABLE, "the connection ended");
        w.fake.hides_stopped = true; /* its files may be there */
        lifecycle_driver_up(w.lifecycle);
        end_list(NULL, 0, false);
        assert_int_equal(state_of(id), exchanging[i]);
        w.fake.hides_stopped = false;
        lifecycle_driver_up(w.lifecycle);
        end_list(NULL, 0, false);
        if (i == 0) {
            assert_true(state_of(id) >= SANDBOX_KILLING);
            assert_int_equal(reached.http, 409);
        } else {
            assert_true(is_paused(id));
            assert_int_equal(reached.http, 500);
            lifecycle_driver_up(w.lifecycle);
            end_list(NULL, 0, false);
            assert_true(is_paused(id));
            assert_true(find(id)->is_missing);
        }
        (void)end_change(NULL); /* comes too late */
        assert_true(find(id) == NULL || is_paused(id) || state_of(id) >= SANDBOX_KILLING);
        assert_int_equal(teardown(NULL), 0);
        assert_int_equal(setup(NULL), 0);
    }
}

/* The files are the new ones by then: what cannot be ended is paused, and the comparisons go on with it. */
static void processes_that_do_not_end_are_not_waited_for(void **state)
{
    static const int codes[] = { ABX_DEADLINE_EXCEEDED, ABX_FAILED_PRECONDITION, ABX_INTERNAL };
    static const enum sandbox_state ending[] = { SANDBOX_ENDING, SANDBOX_ENDING_PAUSED };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(ending) * ARRAY_SIZE(codes); i++) {
        enum sandbox_state at = ending[i / ARRAY_SIZE(codes)];
        struct answer a = { 0 };
        char id[SANDBOX_ID_SIZE];
        const char *ids[] = { id };
        unsigned n_stops;
        int64_t warned_ns;

        reach(at, &a, id);
        fail_change(codes[i % ARRAY_SIZE(codes)], "stuck");
        assert_int_equal(state_of(id), at);
        warned_ns = find(id)->t_warned_ns;
        assert_true(warned_ns > 0);
        (void)uv_timer_start(&find(id)->timer, lifecycle_on_timer, 0, 0); /* now, not later */
        assert_true(run_until(has_change, NULL));
        find(id)->t_state_ns -= 55 * NSEC_PER_SEC;
        fail_change(codes[i % ARRAY_SIZE(codes)], "stuck");
        assert_int_equal(state_of(id), at);
        assert_true(find(id)->t_warned_ns == warned_ns); /* said once */
        (void)uv_timer_start(&find(id)->timer, lifecycle_on_timer, 0, 0);
        assert_true(run_until(has_change, NULL));
        find(id)->t_state_ns -= 6 * NSEC_PER_SEC;
        fail_change(codes[i % ARRAY_SIZE(codes)], "stuck");
        assert_true(run_until(is_paused, id));
        assert_true(run_until(is_requested, &reached));
        assert_false(find(id)->keeps_memory);
        if (at == SANDBOX_ENDING) {
            assert_true(reached.http >= 500);
            assert_non_null(
                strstr(reached.text, "and is paused, because it could not be started: stuck"));
        } else {
            assert_int_equal(reached.status, 200);
        }
        n_stops = w.fake.n_stops;
        w.fake.state = DRIVER_FROZEN;
        lifecycle_driver_up(w.lifecycle);
        end_list(ids, 1, false);
        assert_int_equal(w.fake.n_stops, n_stops + 1);
        assert_true(end_change(NULL));
        assert_int_equal(teardown(NULL), 0);
        assert_int_equal(setup(NULL), 0);
    }
}

static void processes_that_the_driver_does_not_know_have_ended(void **state)
{
    static const enum sandbox_state ending[] = { SANDBOX_ENDING, SANDBOX_ENDING_PAUSED };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(ending); i++) {
        struct answer a = { 0 };
        char id[SANDBOX_ID_SIZE];

        reach(ending[i], &a, id);
        fail_change(ABX_NOT_FOUND, "no sandbox");
        assert_int_equal(state_of(id), i == 0 ? SANDBOX_RESTARTING : SANDBOX_PARKING);
        go_to(id, i == 0 ? SANDBOX_RUNNING : SANDBOX_PAUSED);
        assert_int_equal(reached.status, 200);
        assert_int_equal(teardown(NULL), 0);
        assert_int_equal(setup(NULL), 0);
    }
}

static bool is_restarting(void *user)
{
    return state_of(user) == SANDBOX_RESTARTING;
}

static void a_start_that_was_cut_off_is_made_again(void **state)
{
    struct answer a = { 0 };
    struct abx_err failure;
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_RESTARTING, &a, id);
    (void)err_set(&failure, ABX_UNAVAILABLE, "the engine ended");
    end_create(&failure);
    assert_int_equal(state_of(id), SANDBOX_ENDING);
    assert_int_equal(reached.n, 0);
    assert_int_equal(w.fake.n_freezes, 1);
    /* It may run by now: only what is frozen keeps its files when it ends. */
    assert_true(run_until(has_change, NULL));
    assert_int_equal(w.fake.n_freezes, 2);
    assert_true(w.fake.is_brief);
    assert_int_equal(w.fake.n_stops, 1);
    assert_true(end_change(NULL));
    assert_int_equal(w.fake.n_stops, 2);
    assert_true(end_change(NULL));
    assert_true(is_restarting(id));
    end_create(NULL);
    assert_true(run_until(is_requested, &reached));
    assert_int_equal(reached.status, 200);
    assert_true(runs(id));
}

static void one_that_cannot_be_started_is_paused(void **state)
{
    struct answer a = { 0 };
    struct abx_err failure;
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_RESTARTING, &a, id);
    (void)err_set(&failure, ABX_NOT_FOUND, "the template is gone");
    end_create(&failure);
    assert_int_equal(reached.http, 500);
    assert_non_null(
        strstr(reached.text, "has the files of snapshot '" SNAPSHOT_ID "' and is paused"));
    assert_non_null(strstr(reached.text, "could not be started: the template is gone"));
    assert_true(run_until(is_paused, id));
    assert_false(find(id)->keeps_memory);
    assert_in_range(time_wall_ms() - find(id)->end_ms, 0, 60000);
    start_anew(id, DRIVER_STOPPED);
    assert_true(is_paused(id));
    assert_int_equal(w.fake.n_exchanges, 0);
    request(id, EV_RESUME, false, &reached);
    go_to(id, SANDBOX_RUNNING);
    assert_int_equal(reached.status, 201);
}

static void requests_wait_for_their_turn(void **state)
{
    struct request_answer pause, back, extend;
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_FETCHING, &a, id);
    request(id, EV_PAUSE, false, &pause);
    request_rollback(id, &back);
    request(id, EV_EXTEND, false, &extend);
    while (extend.n == 0) {
        if (w.fake.created)
            end_create(NULL);
        (void)end_change(NULL);
        (void)uv_run(&w.loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(reached.status, 200);
    assert_int_equal(pause.status, 204);
    assert_int_equal(back.status, 200);
    assert_int_equal(extend.http, 404);
    assert_true(is_paused(id));
}

/* --- time ------------------------------------------------------------------------------------------ */

/* It rings while the files are fetched; nothing but the end of the rollback looks at it again. */
static void a_time_that_ends_meanwhile_ends_behind_it(void **state)
{
    static const bool fails[] = { false, true };
    struct abx_err failure;

    (void)state;
    (void)err_set(&failure, ABX_INTERNAL, "no");
    for (size_t i = 0; i < ARRAY_SIZE(fails); i++) {
        struct answer a = { 0 };
        char id[SANDBOX_ID_SIZE];

        reach(SANDBOX_FETCHING, &a, id);
        (void)uv_timer_stop(&find(id)->timer); /* as libuv does before it calls */
        (void)uv_timer_start(&find(id)->timer, lifecycle_on_timer, 0, 0);
        (void)uv_run(&w.loop, UV_RUN_NOWAIT);
        assert_int_equal(state_of(id), SANDBOX_FETCHING);
        if (fails[i])
            assert_true(end_change(&failure));
        go_to(id, SANDBOX_KILLING);
        assert_int_equal(reached.status, fails[i] ? 0 : 200);
        assert_int_equal(reached.http, fails[i] ? 500 : 0);
        assert_true(run_until(settle, id));
        assert_true(run_until(is_empty, NULL));
    }
}

/* The comparison of every half minute comes amid it. */
static void comparing_changes_nothing(void **state)
{
    (void)state;
    for (int s = SANDBOX_FETCHING; s <= SANDBOX_PARKING; s++) {
        bool stays_paused = s >= SANDBOX_FETCHING_PAUSED;
        struct answer a = { 0 };
        char id[SANDBOX_ID_SIZE];
        const char *ids[] = { id, w.fake.cloned_id };

        reach((enum sandbox_state)s, &a, id);
        lifecycle_driver_up(w.lifecycle);
        end_list(ids, 2, false);
        if (s == SANDBOX_CLEARING) {
            lifecycle_held(w.lifecycle, id);
            go_to(id, SANDBOX_HALTING);
        }
        go_to(id, stays_paused ? SANDBOX_PAUSED : SANDBOX_RUNNING);
        if (!stays_paused)
            assert_in_range(uv_timer_get_due_in(&find(id)->timer), 50000, 60000);
        assert_int_equal(kills_of(id), 0);
        assert_int_equal(kills_of(w.fake.cloned_id), 1);
        assert_int_equal(teardown(NULL), 0);
        assert_int_equal(setup(NULL), 0);
    }
}

/* --- restarts --------------------------------------------------------------------------------------- */

struct after {
    enum sandbox_state state; /* when the process is killed */
    enum driver_state there;  /* at that moment */
    bool goes_on;             /* to the new files */
};

/* Ends every call; a freeze of what is stopped fails. */
static bool settle_after(void *user)
{
    struct abx_err failure;

    (void)err_set(&failure, ABX_FAILED_PRECONDITION, "no processes");
    if (w.fake.created)
        end_create(NULL);
    (void)end_change(w.fake.change.leads_to == DRIVER_FROZEN && w.fake.state == DRIVER_STOPPED
                         ? &failure
                         : NULL);
    return machine_state(state_of(user))->exit == EXIT_REST;
}

static void check_after(const struct after *x)
{
    bool was_paused = x->state >= SANDBOX_FETCHING_PAUSED && x->state < SANDBOX_PARKING;
    char id[SANDBOX_ID_SIZE], copy[SANDBOX_ID_SIZE];
    struct answer a = { 0 };
    const char *ids[] = { id, copy };

    reach(x->state, &a, id);
    memcpy(copy, w.fake.cloned_id, sizeof copy);
    close_all(); /* ends what is being written */
    open_all();
    w.fake.state = x->there;
    lifecycle_driver_up(w.lifecycle);
    end_list(ids, 2, false);
    assert_true(run_until(settle_after, id));
    assert_int_equal(w.fake.n_exchanges, x->goes_on);
    if (x->goes_on)
        assert_string_equal(w.fake.exchanged_id, copy);
    assert_int_equal(state_of(id),
                     was_paused || x->state == SANDBOX_PARKING ? SANDBOX_PAUSED : SANDBOX_RUNNING);
    if (is_paused(id))
        assert_int_equal(find(id)->keeps_memory, !x->goes_on && x->state != SANDBOX_PARKING);
    /* Nobody keeps the copy any more: it has the old files, or is not needed. */
    assert_int_equal(kills_of(copy), 1);
    assert_int_equal(kills_of(id), 0);
}

static void after_a_crash_the_row_decides(void **state)
{
    static const struct after cases[] = {
        { SANDBOX_FETCHING, DRIVER_RUNS, false },
        { SANDBOX_CLEARING, DRIVER_RUNS, false },
        { SANDBOX_HALTING, DRIVER_RUNS, false },
        { SANDBOX_HALTING, DRIVER_FROZEN, false },
        { SANDBOX_NOTING, DRIVER_FROZEN, true },
        { SANDBOX_EXCHANGING, DRIVER_FROZEN, true },
        { SANDBOX_EXCHANGING, DRIVER_STOPPED, true }, /* the machine was started anew */
        { SANDBOX_ENDING, DRIVER_FROZEN, true },
        { SANDBOX_ENDING, DRIVER_STOPPED, true },
        { SANDBOX_RESTARTING, DRIVER_STOPPED, true },
        { SANDBOX_RESTARTING, DRIVER_RUNS, true },
        { SANDBOX_SETTLING, DRIVER_RUNS, false }, /* the row is written */
        { SANDBOX_FETCHING_PAUSED, DRIVER_FROZEN, false },
        { SANDBOX_NOTING_PAUSED, DRIVER_FROZEN, true },
        { SANDBOX_EXCHANGING_PAUSED, DRIVER_FROZEN, true },
        { SANDBOX_EXCHANGING_PAUSED, DRIVER_STOPPED, true },
        { SANDBOX_ENDING_PAUSED, DRIVER_FROZEN, true },
        { SANDBOX_ENDING_PAUSED, DRIVER_STOPPED, true },
        { SANDBOX_PARKING, DRIVER_STOPPED, false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        check_after(&cases[i]);
        assert_int_equal(teardown(NULL), 0);
        assert_int_equal(setup(NULL), 0);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(the_files_are_there_before_anything_ends),
        TEST(a_paused_one_stays_paused_without_memory),
        TEST(what_is_held_has_a_deadline),
        TEST(without_files_nothing_happens),
        TEST(a_driver_that_is_away_changes_nothing),
        TEST(a_snapshot_that_goes_while_it_waits_is_not_found),
        TEST(one_that_does_not_freeze_runs_on),
        TEST(what_the_driver_refuses_is_undone),
        TEST(what_may_have_been_done_is_asked_for_again),
        TEST(after_that_only_who_looked_is_believed),
        TEST(one_that_the_driver_has_lost_does_not_wait_for_ever),
        TEST(processes_that_do_not_end_are_not_waited_for),
        TEST(processes_that_the_driver_does_not_know_have_ended),
        TEST(a_start_that_was_cut_off_is_made_again),
        TEST(one_that_cannot_be_started_is_paused),
        TEST(requests_wait_for_their_turn),
        TEST(a_time_that_ends_meanwhile_ends_behind_it),
        TEST(comparing_changes_nothing),
        TEST(after_a_crash_the_row_decides),
    };

    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests_name("control_lifecycle_rollback", tests, NULL, NULL);
}
