/* Pause and resume: order of the steps, what each failure undoes, the queue, restarts. */
#include "lifecycle_test.h"

#include "control/lifecycle_internal.h"

static bool is_killed(void *user)
{
    (void)user;
    return w.fake.n_kills > 0;
}

static void gateways_let_go_before_the_freeze(void **state)
{
    struct request_answer pause;
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    w.has_gateway = true;
    reach(SANDBOX_RUNNING, &a, id);
    request(id, EV_PAUSE, false, &pause);
    assert_int_equal(w.n_holds, 1);
    assert_int_equal(w.fake.n_freezes, 0);
    lifecycle_held(w.lifecycle, id);
    assert_int_equal(w.fake.n_freezes, 1);
    assert_false(w.fake.is_synced); /* memory is in no file */
    assert_false(w.fake.is_brief);
    lifecycle_held(w.lifecycle, id); /* late, of another gateway */
    assert_true(end_change(NULL));
    assert_int_equal(pause.n, 0); /* the row is not written yet */
    assert_true(run_until(is_requested, &pause));
    assert_int_equal(pause.status, 204);
    assert_int_equal(state_of(id), SANDBOX_PAUSED);
    assert_int_equal(w.fake.n_stops, 0);
    assert_int_equal(w.n_visible, 2);
}

static void gateways_that_say_nothing_have_a_deadline(void **state)
{
    struct request_answer pause;
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    w.has_gateway = true;
    reach(SANDBOX_RUNNING, &a, id);
    request(id, EV_PAUSE, false, &pause);
    assert_in_range(uv_timer_get_due_in(&find(id)->timer), 1, 5000);
    lifecycle_on_timer(&find(id)->timer);
    assert_int_equal(w.fake.n_freezes, 1);
    assert_int_equal(state_of(id), SANDBOX_FREEZING);
}

static void a_guest_that_is_not_healthy_is_not_paused_where_that_matters(void **state)
{
    struct sandbox_request pause = { .what = EV_PAUSE, .must_be_healthy = true };
    struct request_answer got, waits;
    struct answer a = { 0 };
    struct abx_err failure;
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    request_as(id, &pause, &got);
    request(id, EV_PAUSE, false, &waits); /* which asks for nothing of the kind */
    assert_int_equal(state_of(id), SANDBOX_CHECKING);
    assert_int_equal(w.n_holds + w.fake.n_freezes, 0); /* nothing has happened to it */
    (void)err_set(&failure, ABX_DEADLINE_EXCEEDED, "it does not answer within 3000 ms");
    assert_true(end_check(&failure));
    assert_int_equal(got.http, 503);
    assert_non_null(strstr(got.text, "runs on: its guest is not healthy: it does not answer"));
    assert_int_equal(w.n_checks, 1);
    assert_int_equal(state_of(id), SANDBOX_FREEZING);
    assert_true(end_change(NULL));
    assert_true(run_until(is_requested, &waits));
    assert_int_equal(waits.status, 204);

    request(id, EV_CONNECT, false, &got);
    assert_true(end_change(NULL));
    assert_true(run_until(is_requested, &got));
    request_as(id, &pause, &got);
    assert_true(end_check(NULL));
    assert_true(end_change(NULL));
    assert_true(run_until(is_requested, &got));
    assert_int_equal(got.status, 204);
    assert_int_equal(state_of(id), SANDBOX_PAUSED);
    assert_int_equal(w.n_checks, 2);
    /* Paused already: nobody is asked. */
    request_as(id, &pause, &got);
    assert_int_equal(got.http, 409);
    assert_int_equal(w.n_checks, 2);
}

static void its_time_may_be_over_while_its_guest_is_asked(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    struct abx_err failure;

    (void)state;
    reach(SANDBOX_CHECKING, &a, id);
    (void)uv_timer_stop(&find(id)->timer); /* as the loop does */
    lifecycle_on_timer(&find(id)->timer);
    assert_int_equal(state_of(id), SANDBOX_CHECKING);
    (void)err_set(&failure, ABX_UNAVAILABLE, "no gateway");
    assert_true(end_check(&failure));
    assert_int_equal(reached.http, 503);
    assert_true(run_until(is_killed, NULL)); /* the end that it was made with: a kill */
    assert_int_equal(state_of(id), SANDBOX_KILLING);
}

/* The comparison with the driver comes while it is copied or its guest is asked. */
static void a_comparison_takes_no_time_away(void **state)
{
    static const enum sandbox_state states[] = { SANDBOX_COPYING, SANDBOX_CHECKING };
    struct abx_err failure;

    (void)state;
    (void)err_set(&failure, ABX_UNAVAILABLE, "no gateway");
    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        struct answer a = { 0 };
        char id[SANDBOX_ID_SIZE];
        const char *ids[] = { id };

        reach(states[i], &a, id);
        lifecycle_driver_up(w.lifecycle);
        end_list(ids, 1, false);
        assert_int_equal(state_of(id), states[i]);
        assert_true(states[i] == SANDBOX_COPYING ? end_change(NULL) : end_check(&failure));
        assert_int_equal(state_of(id), SANDBOX_RUNNING);
        assert_in_range(uv_timer_get_due_in(&find(id)->timer), 40000, 60000);
        assert_int_equal(teardown(NULL), 0);
        assert_int_equal(setup(NULL), 0);
    }
}

static void without_memory_the_files_are_synced_and_the_processes_end_last(void **state)
{
    struct request_answer pause, resume;
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    request(id, EV_PAUSE, true, &pause);
    assert_true(w.fake.is_synced);
    assert_true(end_change(NULL));
    assert_int_equal(w.fake.n_stops, 0); /* not before the row says so */
    assert_true(run_until(has_change, NULL));
    assert_int_equal(w.fake.n_stops, 1);
    assert_int_equal(pause.n, 0);
    assert_true(end_change(NULL));
    assert_int_equal(pause.status, 204);
    request(id, EV_CONNECT, false, &resume);
    assert_true(w.fake.is_resume);
    assert_string_equal(w.fake.env, "NAME=value");
    end_create(NULL);
    assert_true(run_until(is_requested, &resume));
    assert_int_equal(resume.status, 201);
    assert_int_equal(state_of(id), SANDBOX_RUNNING);
    assert_in_range(find(id)->end_ms - time_wall_ms(), 1, 60000);
}

static void a_stop_that_fails_is_tried_again(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_STOPPING, &a, id);
    fail_change(ABX_INTERNAL, "stuck");
    assert_int_equal(reached.n, 0);
    assert_true(run_until(has_change, NULL));
    assert_int_equal(w.fake.n_stops, 2);
    assert_true(end_change(NULL));
    assert_int_equal(reached.status, 204);
}

/* The row says paused, without memory: nothing is left to do. */
static void a_stop_of_what_the_driver_does_not_know_is_done(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_STOPPING, &a, id);
    fail_change(ABX_NOT_FOUND, "no sandbox");
    assert_int_equal(reached.status, 204);
    assert_true(is_paused(id));
    /* Its files are gone, too: it stays until it is killed. */
    lifecycle_driver_up(w.lifecycle);
    end_list(NULL, 0, false);
    assert_true(is_paused(id));
    assert_true(find(id)->is_missing);
}

static void what_is_lost_is_told_once(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_PAUSED, &a, id);
    for (int i = 0; i < 3; i++) {
        lifecycle_driver_up(w.lifecycle);
        end_list(NULL, 0, false);
        assert_true(find(id)->is_missing);
        assert_false(find(id)->keeps_memory);
        assert_int_equal(events_of(id, "sandbox.lifecycle.updated"), 1);
        close_all();
        open_all();
        assert_true(is_paused(id));
    }
    /* It was there after all, and goes once more. */
    w.fake.state = DRIVER_STOPPED;
    for (size_t i = 0; i < 2; i++) {
        lifecycle_driver_up(w.lifecycle);
        end_list((const char *[]){ id }, 1 - i, false);
        assert_int_equal(find(id)->is_missing, i);
    }
    assert_int_equal(events_of(id, "sandbox.lifecycle.updated"), 2);
}

static void a_stop_that_fails_for_ever_is_over_one_day(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    const char *ids[] = { id };

    (void)state;
    reach(SANDBOX_STOPPING, &a, id);
    find(id)->t_state_ns -= 61 * NSEC_PER_SEC;
    fail_change(ABX_INTERNAL, "stuck");
    assert_int_equal(reached.status, 204);
    assert_true(is_paused(id));
    /* The comparison goes on with it. */
    lifecycle_driver_up(w.lifecycle);
    end_list(ids, 1, false);
    assert_int_equal(w.fake.n_stops, 2);
    assert_true(end_change(NULL));
    assert_int_equal(w.fake.state, DRIVER_STOPPED);
}

static void a_freeze_that_fails_leaves_it_running(void **state)
{
    struct request_answer pause;
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    int64_t end_ms;

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    end_ms = find(id)->end_ms;
    request(id, EV_PAUSE, false, &pause);
    fail_change(ABX_DEADLINE_EXCEEDED, "not frozen in 5 s");
    assert_int_equal(pause.http, 504);
    assert_non_null(strstr(pause.text, "while freezing: not frozen in 5 s"));
    assert_int_equal(state_of(id), SANDBOX_THAWING);
    fail_change(ABX_UNAVAILABLE, "away");
    assert_true(run_until(has_change, NULL));
    assert_int_equal(w.fake.n_thaws, 2);
    assert_true(end_change(NULL));
    assert_int_equal(state_of(id), SANDBOX_RUNNING);
    assert_int_equal(find(id)->end_ms, end_ms);
    assert_int_equal(w.n_visible, 2); /* those who wait go on */
}

static void a_wake_that_fails_leaves_it_paused(void **state)
{
    struct answer a = { 0 };
    struct abx_err failure;
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_WAKING, &a, id);
    assert_true(w.fake.is_resume);
    fail_change(ABX_NOT_FOUND, "no group");
    assert_int_equal(reached.http, 410); /* not 404: the sandbox is there */
    assert_non_null(strstr(reached.text, "cannot be resumed while waking: no group"));
    assert_int_equal(state_of(id), SANDBOX_PAUSED);
    request(id, EV_RESUME, false, &reached);
    fail_change(ABX_INTERNAL, "odd");
    assert_int_equal(reached.http, 500);
    request(id, EV_RESUME, false, &reached);
    (void)err_reason(&failure, ABX_REASON_BUSY, "the pool is read-only");
    assert_true(end_change(&failure));
    assert_int_equal(reached.http, 503);
    request(id, EV_RESUME, false, &reached);
    assert_true(end_change(NULL));
    assert_true(run_until(is_requested, &reached));
    assert_int_equal(reached.status, 201);
}

static void what_has_no_processes_to_thaw_starts_with_its_files(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_WAKING, &a, id);
    fail_change(ABX_FAILED_PRECONDITION, "no processes");
    assert_int_equal(reached.n, 0);
    assert_false(find(id)->keeps_memory);
    assert_true(w.fake.is_resume);
    end_create(NULL);
    assert_true(run_until(is_requested, &reached));
    assert_int_equal(reached.status, 201);
}

/* The driver died when it had started it, so the row is still `paused`. */
static void what_runs_although_its_row_says_paused_ends_and_starts(void **state)
{
    struct answer a = { 0 };
    struct abx_err failure;
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    request(id, EV_PAUSE, true, &reached);
    go_to(id, SANDBOX_PAUSED);
    request(id, EV_CONNECT, false, &reached);
    (void)err_reason(&failure, ABX_REASON_CONFLICT, "it is not stopped");
    end_create(&failure);
    assert_int_equal(reached.n, 0);
    assert_int_equal(w.fake.n_freezes, 2);
    assert_true(end_change(NULL));
    assert_int_equal(w.fake.n_stops, 2);
    assert_true(end_change(NULL));
    end_create(NULL);
    assert_true(run_until(is_requested, &reached));
    assert_int_equal(reached.status, 201);
    /* Once: whatever is in the way then is told. */
    request(id, EV_PAUSE, true, &reached);
    go_to(id, SANDBOX_PAUSED);
    request(id, EV_CONNECT, false, &reached);
    end_create(&failure);
    assert_true(end_change(NULL));
    assert_true(end_change(NULL));
    end_create(&failure);
    assert_int_equal(reached.http, 409);
    assert_true(is_paused(id));
}

static void memory_that_is_not_wanted_is_dropped_first(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_PAUSED, &a, id);
    request(id, EV_CONNECT, true, &reached);
    assert_int_equal(w.fake.n_stops, 1);
    assert_int_equal(w.fake.n_thaws, 0);
    assert_null(w.fake.created);
    assert_true(end_change(NULL));
    assert_non_null(w.fake.created);
    end_create(NULL);
    assert_true(run_until(is_requested, &reached));
    assert_int_equal(reached.status, 201);
}

static void requests_take_turns_and_each_gets_its_answer(void **state)
{
    static const struct {
        enum lifecycle_event what;
        int status; /* 0: refused, with */
        int http;
    } asked[] = {
        { EV_PAUSE, 204, 0 },   { EV_PAUSE, 0, 409 },   { EV_EXTEND, 0, 404 },
        { EV_CONNECT, 201, 0 }, { EV_RESUME, 0, 409 },  { EV_CONNECT, 200, 0 },
        { EV_PAUSE, 204, 0 },   { EV_REFRESH, 0, 404 }, { EV_RESUME, 201, 0 },
        { EV_EXTEND, 204, 0 },
    };
    struct request_answer got[ARRAY_SIZE(asked)];
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    for (size_t i = 0; i < ARRAY_SIZE(asked); i++)
        request(id, asked[i].what, false, &got[i]);
    for (size_t i = 0; i < ARRAY_SIZE(asked); i++) {
        while (got[i].n == 0) {
            if (i + 1 < ARRAY_SIZE(asked) && asked[i + 1].http == 0)
                assert_int_equal(got[i + 1].n, 0);
            (void)end_change(NULL);
            (void)uv_run(&w.loop, UV_RUN_NOWAIT);
        }
        assert_int_equal(got[i].status, asked[i].status);
        assert_int_equal(got[i].http, asked[i].http);
    }
}

static void too_many_requests_are_refused(void **state)
{
    static struct request_answer got[LIFECYCLE_WAITING_MAX + 1];
    struct sandbox_request rq = { .what = EV_CONNECT, .timeout_ms = 1000 };
    struct answer a = { 0 };
    struct abx_err err = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_FREEZING, &a, id);
    for (size_t i = 0; i < LIFECYCLE_WAITING_MAX; i++)
        request_as(id, &rq, &got[i]);
    assert_int_equal(lifecycle_request(w.lifecycle, id, &rq, on_requested, &got[0], &err),
                     ABX_UNAVAILABLE);
    assert_int_equal(err.reason, ABX_REASON_BUSY);
    /* A kill overtakes them all, and each hears of it. */
    assert_int_equal(lifecycle_kill(w.lifecycle, id, "request", NULL, NULL, &err), 0);
    assert_int_equal(reached.http, 409);
    for (size_t i = 0; i < LIFECYCLE_WAITING_MAX; i++) {
        assert_int_equal(got[i].n, 1);
        assert_int_equal(got[i].http, 404);
    }
    assert_true(end_change(NULL)); /* too late for anything */
    assert_int_equal(state_of(id), SANDBOX_KILLING);
}

static void what_wakes_counts_against_the_limit(void **state)
{
    struct sandbox_request rq = { .what = EV_CONNECT, .timeout_ms = 1000, .max_active = 1 };
    struct request_answer got;
    struct answer a = { 0 }, b = { 0 };
    char id[SANDBOX_ID_SIZE], other[SANDBOX_ID_SIZE];
    struct abx_err err;

    (void)state;
    reach(SANDBOX_PAUSED, &a, id);
    reach(SANDBOX_RUNNING, &b, other);
    request_as(id, &rq, &got);
    assert_int_equal(got.http, 429);
    assert_int_equal(state_of(id), SANDBOX_PAUSED);
    assert_int_equal(lifecycle_kill(w.lifecycle, other, "request", NULL, NULL, &err), 0);
    request_as(id, &rq, &got);
    assert_true(end_change(NULL));
    assert_true(run_until(is_requested, &got));
    assert_int_equal(got.status, 201);
}

/* --- its time is over ----------------------------------------------------------------------------- */

static void set_lifecycle(const char *id, const char *on_timeout, bool memory)
{
    json_t *config =
        json_pack("{s:{s:s},s:b}", "lifecycle", "onTimeout", on_timeout, "autoPauseMemory", memory);

    assert_int_equal(sandbox_set_config(find(id), config, NULL), 0);
    json_decref(config);
}

static void expire(const char *id)
{
    struct sandbox_request rq = { .what = EV_EXTEND, .timeout_ms = 1 };
    struct request_answer got;

    request_as(id, &rq, &got);
    assert_true(run_until(is_requested, &got));
}

/* Its time is over, whatever it does. */
static void ring(const char *id)
{
    find(id)->end_ms = time_wall_ms();
    (void)uv_timer_start(&find(id)->timer, lifecycle_on_timer, 0, 0);
    (void)uv_run(&w.loop, UV_RUN_NOWAIT);
}

/* Each turn begins when the one before has ended, so that no timer has a chance: who asks again and again must not keep it. */
static void who_asks_after_its_end_does_not_keep_it(void **state)
{
    static const char *const ends[] = { "kill", "pause" };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        struct request_answer copy, in_time, late;
        struct answer a = { 0 };
        char id[SANDBOX_ID_SIZE];

        reach(SANDBOX_RUNNING, &a, id);
        set_lifecycle(id, ends[i], true);
        request(id, EV_COPY, false, &copy);
        request(id, EV_COPY, false, &in_time);
        ring(id); /* both of them were in time */
        assert_int_equal(state_of(id), SANDBOX_COPYING);
        request(id, EV_COPY, false, &late);
        assert_true(end_change(NULL));
        assert_int_equal(copy.status, 201);
        assert_int_equal(state_of(id), SANDBOX_COPYING);
        assert_true(end_change(NULL));
        assert_int_equal(in_time.status, 201);
        if (i == 0) {
            assert_int_equal(state_of(id), SANDBOX_KILLING);
            assert_int_equal(late.http, 404);
        } else { /* the pause comes first, and then there is nothing to copy from */
            assert_int_equal(late.n, 0);
            assert_int_equal(state_of(id), SANDBOX_FREEZING);
            go_to(id, SANDBOX_PAUSED);
            assert_int_equal(late.http, 409);
        }
    }
}

/* A wall clock that is set forward, say; what counts is the timer. */
static void a_clock_that_is_set_ends_nothing(void **state)
{
    struct request_answer copy, next;
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    request(id, EV_COPY, false, &copy);
    find(id)->end_ms = time_wall_ms() - 3600000;
    request(id, EV_COPY, false, &next);
    assert_true(end_change(NULL));
    assert_int_equal(copy.status, 201);
    assert_int_equal(state_of(id), SANDBOX_COPYING);
    assert_true(end_change(NULL));
    assert_int_equal(next.status, 201);
    assert_int_equal(state_of(id), SANDBOX_RUNNING);
    /* Nor does it after what could not be done, and after a crash. */
    request(id, EV_PAUSE, false, &copy);
    lifecycle_held(w.lifecycle, id);
    fail_change(ABX_INTERNAL, "not frozen");
    assert_int_equal(state_of(id), SANDBOX_THAWING);
    assert_true(end_change(NULL));
    assert_int_equal(state_of(id), SANDBOX_RUNNING);
    assert_in_range(uv_timer_get_due_in(&find(id)->timer), 40000, 60000);
    lifecycle_fire(find(id), EV_FROZEN, &(struct change){ 0 });
    assert_int_equal(state_of(id), SANDBOX_THAWING);
    assert_true(end_change(NULL));
    assert_int_equal(state_of(id), SANDBOX_RUNNING);
    assert_in_range(uv_timer_get_due_in(&find(id)->timer), 40000, 60000);
    assert_int_equal(find(id)->t_over_ns, 0);
}

/* Else it would be tried again and again without a break, and nobody could give it more time. */
static void a_pause_that_fails_at_its_end_does_not_keep_others_waiting(void **state)
{
    static const enum sandbox_state failing[] = { SANDBOX_FREEZING, SANDBOX_THAWING };
    struct request_answer copy, extend;
    struct abx_err failure;

    (void)state;
    (void)err_set(&failure, ABX_RESOURCE_EXHAUSTED, "no room for the note");
    for (size_t i = 0; i < ARRAY_SIZE(failing); i++) {
        struct answer a = { 0 };
        char id[SANDBOX_ID_SIZE];
        unsigned n_freezes = w.fake.n_freezes;

        reach(SANDBOX_RUNNING, &a, id);
        set_lifecycle(id, "pause", true);
        ring(id);
        assert_int_equal(state_of(id), SANDBOX_FREEZING);
        if (failing[i] == SANDBOX_THAWING)
            assert_true(end_change(&failure));
        assert_int_equal(state_of(id), failing[i]);
        request(id, EV_COPY, false, &copy);
        request(id, EV_EXTEND, false, &extend);
        if (failing[i] == SANDBOX_FREEZING)
            assert_true(end_change(&failure));
        assert_true(end_change(NULL)); /* the thaw */
        assert_int_equal(w.fake.n_freezes, n_freezes + 1);
        assert_int_equal(state_of(id), SANDBOX_COPYING);
        assert_true(end_change(NULL));
        assert_int_equal(copy.status, 201);
        assert_true(run_until(is_requested, &extend));
        assert_int_equal(extend.status, 204);
        assert_in_range(uv_timer_get_due_in(&find(id)->timer), 30000, 60000);
    }
}

static void it_pauses_itself_the_way_it_was_told(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    for (int memory = 0; memory < 2; memory++) {
        reach(SANDBOX_RUNNING, &a, id);
        set_lifecycle(id, "pause", memory);
        expire(id);
        assert_true(run_until(has_change, NULL));
        assert_int_equal(w.fake.is_synced, !memory);
        go_to(id, SANDBOX_PAUSED);
        assert_int_equal(find(id)->keeps_memory, memory);
        a = (struct answer){ 0 };
    }
    assert_int_equal(w.fake.n_kills, 0);
}

static void resume_with(const char *id, json_t *config, struct request_answer *got)
{
    struct sandbox_request rq = { .what = EV_RESUME, .timeout_ms = 60000, .config = config };

    request_as(id, &rq, got);
    json_decref(config);
}

/* And what another request changes at the same time stays. */
static void a_resume_may_change_how_it_ends(void **state)
{
    struct sandbox_request rules = { .what = EV_NETWORK };
    struct request_answer configured, got;
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_PAUSED, &a, id);
    set_lifecycle(id, "kill", true);
    rules.config =
        json_pack("{s:{s:[s]},s:b}", "network", "denyOut", "1.2.3.4", "allowInternetAccess", false);
    request_as(id, &rules, &configured); /* on its way to the disk */
    json_decref(rules.config);
    assert_int_equal(configured.n, 0);
    resume_with(id, json_pack("{s:{s:s}}", "lifecycle", "onTimeout", "pause"), &got);
    assert_false(sandbox_pauses_itself(find(id)));
    assert_true(end_change(NULL));
    assert_true(run_until(is_requested, &got));
    assert_int_equal(configured.status, 204);
    assert_int_equal(got.status, 201);
    for (int i = 0; i < 2; i++) {
        const json_t *config = find(id)->config;

        assert_true(sandbox_pauses_itself(find(id)));
        assert_non_null(json_object_get(json_object_get(config, "network"), "denyOut"));
        assert_true(json_is_false(json_object_get(config, "allowInternetAccess")));
        assert_non_null(json_object_get(config, "autoPauseMemory"));
        assert_null(find(id)->config_next);
        close_all(); /* the same is in the row */
        open_all();
    }
}

static void a_resume_that_fails_changes_nothing(void **state)
{
    struct request_answer got;
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_PAUSED, &a, id);
    resume_with(id, json_pack("{s:{s:s}}", "lifecycle", "onTimeout", "pause"), &got);
    fail_change(ABX_DEADLINE_EXCEEDED, "not thawed");
    assert_int_equal(got.http, 504);
    assert_false(sandbox_pauses_itself(find(id)));
    resume_with(id, NULL, &got);
    assert_true(end_change(NULL));
    assert_true(run_until(is_requested, &got));
    assert_int_equal(got.status, 201);
    assert_false(sandbox_pauses_itself(find(id)));
}

/* --- restarts --------------------------------------------------------------------------------------- */

struct after {
    enum sandbox_state state; /* when the process is killed */
    enum driver_state there;  /* at that moment */
    enum sandbox_state then;  /* in the end */
    enum driver_state there_then;
    bool keeps_memory;
};

static void check_after(const struct after *x, bool drops_memory)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    const char *ids[] = { id };

    reach(x->state, &a, id);
    if (drops_memory && x->state == SANDBOX_PAUSED) {
        request(id, EV_RESUME, false, &reached);
        go_to(id, SANDBOX_RUNNING);
        request(id, EV_PAUSE, true, &reached);
        go_to(id, SANDBOX_PAUSED);
    }
    close_all();
    open_all();
    w.fake.state = x->there;
    for (int i = 0; i < 2; i++) { /* one comparison freezes, the next one stops */
        lifecycle_driver_up(w.lifecycle);
        end_list(ids, 1, false);
        while (end_change(NULL)) {
        }
    }
    if (x->then == SANDBOX_STATES_) {
        assert_true(run_until(settle, id));
        assert_true(run_until(is_empty, NULL));
        return;
    }
    assert_int_equal(state_of(id), x->then);
    assert_int_equal(w.fake.state, x->there_then);
    if (x->then == SANDBOX_PAUSED)
        assert_int_equal(find(id)->keeps_memory, x->keeps_memory);
}

static void after_a_crash_the_row_decides(void **state)
{
    static const struct after cases[] = {
        /* A pause that was cut off before its row: it runs. */
        { SANDBOX_FREEZING, DRIVER_RUNS, SANDBOX_RUNNING, DRIVER_RUNS, false },
        { SANDBOX_FREEZING, DRIVER_FROZEN, SANDBOX_RUNNING, DRIVER_RUNS, false },
        { SANDBOX_THAWING, DRIVER_FROZEN, SANDBOX_RUNNING, DRIVER_RUNS, false },
        /* Behind it: it is paused. */
        { SANDBOX_STOPPING, DRIVER_FROZEN, SANDBOX_PAUSED, DRIVER_STOPPED, false },
        { SANDBOX_PAUSED, DRIVER_FROZEN, SANDBOX_PAUSED, DRIVER_FROZEN, true },
        /* The processes did not outlive the machine. */
        { SANDBOX_PAUSED, DRIVER_STOPPED, SANDBOX_PAUSED, DRIVER_STOPPED, false },
        { SANDBOX_RUNNING, DRIVER_STOPPED, SANDBOX_STATES_, DRIVER_STOPPED, false },
        /* A resume that was cut off before its row: paused again. */
        { SANDBOX_WAKING, DRIVER_RUNS, SANDBOX_PAUSED, DRIVER_FROZEN, true },
        { SANDBOX_WAKING, DRIVER_FROZEN, SANDBOX_PAUSED, DRIVER_FROZEN, true },
    };
    static const struct after files_only = { SANDBOX_PAUSED, DRIVER_RUNS, SANDBOX_PAUSED,
                                             DRIVER_STOPPED, false };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        check_after(&cases[i], false);
        assert_int_equal(teardown(NULL), 0);
        assert_int_equal(setup(NULL), 0);
    }
    check_after(&files_only, true);
}

/* What the driver said of the state before says nothing about the one after. */
static void a_resume_amid_a_comparison_is_not_judged(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    const char *ids[] = { id };

    (void)state;
    reach(SANDBOX_PAUSED, &a, id);
    lifecycle_driver_up(w.lifecycle);
    request(id, EV_RESUME, false, &reached);
    assert_true(end_change(NULL));
    assert_true(run_until(is_requested, &reached));
    w.fake.state = DRIVER_STOPPED; /* the list is older */
    end_list(ids, 1, false);
    assert_true(runs(id));
    assert_int_equal(w.fake.n_kills, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(gateways_let_go_before_the_freeze),
        TEST(gateways_that_say_nothing_have_a_deadline),
        TEST(a_guest_that_is_not_healthy_is_not_paused_where_that_matters),
        TEST(its_time_may_be_over_while_its_guest_is_asked),
        TEST(a_comparison_takes_no_time_away),
        TEST(without_memory_the_files_are_synced_and_the_processes_end_last),
        TEST(a_stop_that_fails_is_tried_again),
        TEST(a_stop_of_what_the_driver_does_not_know_is_done),
        TEST(what_is_lost_is_told_once),
        TEST(a_stop_that_fails_for_ever_is_over_one_day),
        TEST(a_freeze_that_fails_leaves_it_running),
        TEST(a_wake_that_fails_leaves_it_paused),
        TEST(what_has_no_processes_to_thaw_starts_with_its_files),
        TEST(what_runs_although_its_row_says_paused_ends_and_starts),
        TEST(memory_that_is_not_wanted_is_dropped_first),
        TEST(requests_take_turns_and_each_gets_its_answer),
        TEST(too_many_requests_are_refused),
        TEST(what_wakes_counts_against_the_limit),
        TEST(who_asks_after_its_end_does_not_keep_it),
        TEST(a_clock_that_is_set_ends_nothing),
        TEST(a_pause_that_fails_at_its_end_does_not_keep_others_waiting),
        TEST(it_pauses_itself_the_way_it_was_told),
        TEST(a_resume_may_change_how_it_ends),
        TEST(a_resume_that_fails_changes_nothing),
        TEST(after_a_crash_the_row_decides),
        TEST(a_resume_amid_a_comparison_is_not_judged),
    };

    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests_name("control_lifecycle_pause", tests, NULL, NULL);
}
