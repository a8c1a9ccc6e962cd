/* The state machine: failures, idempotency, expiry, restarts and the comparison with the driver. */
#include "lifecycle_test.h"

/* --- creating ------------------------------------------------------------------------------------ */

static void a_created_sandbox_reports_what_was_enforced(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE], want[128];

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    (void)snprintf(want, sizeof want, "{\"id\":\"%s\",\"memory\":512}", id);
    assert_string_equal(a.body, want);
    assert_int_equal(w.n_visible, 1);
}

static void a_failed_start_is_answered_at_once_and_killed_behind(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    struct abx_err failure;

    (void)state;
    reach(SANDBOX_STARTING, &a, id);
    (void)err_set(&failure, ABX_PERMISSION_DENIED, "read-only file system");
    end_create(&failure);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.code, ABX_INTERNAL); /* not 403: no fault of the request's */
    assert_false(a.is_clean);
    assert_int_equal(state_of(id), SANDBOX_KILLING);
    assert_int_equal(w.fake.n_kills, 1);
    assert_true(run_until(settle, id));
    assert_true(run_until(is_empty, NULL));
    assert_int_equal(w.n_visible, 0);
    assert_int_equal(w.n_drops, 0);
}

/* A gateway that asked about it while it was made has a row of it. */
static void a_failed_start_is_told_to_those_who_asked(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    struct abx_err failure;

    (void)state;
    reach(SANDBOX_STARTING, &a, id);
    lifecycle_find(w.lifecycle, id)->is_known = true;
    (void)err_set(&failure, ABX_UNAVAILABLE, "gone");
    end_create(&failure);
    assert_int_equal(w.n_drops, 1);
    assert_true(run_until(settle, id));
    assert_true(run_until(is_empty, NULL));
}

static void a_driver_that_was_never_asked_need_not_kill(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    w.fake.is_up = false;
    create("", 60000, &a, id);
    assert_true(run_until(is_answered, &a));
    assert_int_equal(a.code, ABX_UNAVAILABLE);
    assert_true(a.is_clean);
    assert_true(run_until(is_empty, NULL));
    assert_int_equal(w.fake.n_kills, 0);
}

static void a_kill_before_the_start_ends_is_repeated_after_it(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    struct abx_err err;

    (void)state;
    reach(SANDBOX_STARTING, &a, id);
    assert_int_equal(lifecycle_kill(w.lifecycle, id, "request", NULL, NULL, &err), 0);
    assert_int_equal(w.fake.n_kills, 1);
    assert_true(end_kills(NULL));
    assert_int_equal(state_of(id), SANDBOX_KILLING);
    end_create(NULL);
    assert_int_equal(w.fake.n_kills, 2);
    assert_int_equal(state_of(id), SANDBOX_KILLING);
    assert_true(end_kills(NULL));
    assert_int_equal(state_of(id), SANDBOX_REMOVING);
}

static void the_start_ends_while_the_first_kill_is_open(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    struct abx_err err;

    (void)state;
    reach(SANDBOX_STARTING, &a, id);
    assert_int_equal(lifecycle_kill(w.lifecycle, id, "request", NULL, NULL, &err), 0);
    end_create(NULL);
    assert_int_equal(w.fake.n_kills, 1);
    assert_true(end_kills(NULL));
    assert_int_equal(w.fake.n_kills, 2);
    assert_int_equal(state_of(id), SANDBOX_KILLING);
}

static void a_failed_kill_is_tried_again_by_itself(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    struct abx_err failure;

    (void)state;
    reach(SANDBOX_KILLING, &a, id);
    (void)err_set(&failure, ABX_INTERNAL, "stuck");
    assert_true(end_kills(&failure));
    assert_int_equal(state_of(id), SANDBOX_KILLING);
    assert_true(run_until(settle, id));
    assert_true(run_until(is_empty, NULL));
    assert_int_equal(w.fake.n_kills, 2);
}

static void only_the_first_of_many_killers_ended_it(void **state)
{
    struct kill_answer k[5] = { 0 };
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    struct abx_err err;

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    for (int i = 0; i < 5; i++)
        assert_int_equal(lifecycle_kill(w.lifecycle, id, "request", on_killed, &k[i], &err), 0);
    assert_true(run_until(settle, id));
    assert_true(run_until(is_empty, NULL));
    for (int i = 0; i < 5; i++) {
        assert_int_equal(k[i].n, 1);
        assert_int_equal(k[i].existed, i == 0);
    }
    assert_int_equal(w.fake.n_kills, 1);
    assert_int_equal(lifecycle_kill(w.lifecycle, id, "request", NULL, NULL, &err), ABX_NOT_FOUND);
}

/* --- idempotency --------------------------------------------------------------------------------- */

static bool both_answered(void *user)
{
    struct answer *a = user;

    return a[0].n > 0 && a[1].n > 0;
}

static void two_creates_with_one_key_get_one_sandbox(void **state)
{
    struct answer a[2] = { 0 };
    char id[2][SANDBOX_ID_SIZE];

    (void)state;
    create("key", 60000, &a[0], id[0]);
    create("key", 60000, &a[1], id[1]);
    assert_true(run_until(is_asked, NULL));
    end_create(NULL);
    assert_true(run_until(both_answered, a));
    assert_string_equal(a[0].body, a[1].body);
    assert_int_equal(a[1].status, 201);
    assert_int_equal(w.fake.n_creates, 1);
    assert_int_equal(lifecycle_count(w.lifecycle), 1);
    /* With a key someone may ask again: going away does not undo it. */
    lifecycle_abandon(w.lifecycle, id[0]);
    assert_int_equal(state_of(id[0]), SANDBOX_RUNNING);
}

static void a_key_whose_create_failed_makes_a_new_one(void **state)
{
    struct answer a[2] = { 0 };
    char id[2][SANDBOX_ID_SIZE];
    struct abx_err failure;

    (void)state;
    create("key", 60000, &a[0], id[0]);
    assert_true(run_until(is_asked, NULL));
    (void)err_set(&failure, ABX_UNAVAILABLE, "the engine went away");
    end_create(&failure);
    create("key", 60000, &a[1], id[1]);
    assert_true(run_until(is_asked, NULL));
    assert_string_equal(w.fake.created_id, id[1]);
    end_create(NULL);
    assert_true(run_until(both_answered, a));
    assert_int_equal(a[1].status, 201);
}

/* --- time ---------------------------------------------------------------------------------------- */

static bool has_kill(void *user)
{
    (void)user;
    return w.fake.n_kills > 0;
}

static void time_runs_from_the_answer_and_can_be_moved(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    const struct timespec pause = { .tv_nsec = 150 * NSEC_PER_MSEC };
    struct abx_err err;
    int64_t begin;

    (void)state;
    create("", 150, &a, id);
    assert_true(run_until(is_asked, NULL));
    (void)nanosleep(&pause, NULL);
    begin = time_mono_ns(); /* before the answer: a delay behind it does not hasten the end */
    end_create(NULL);
    assert_true(run_until(is_answered, &a));
    assert_true(run_until(has_kill, NULL));
    assert_true(time_mono_ns() - begin > 100 * NSEC_PER_MSEC);
    assert_true(run_until(settle, id));
    assert_true(run_until(is_empty, NULL));
    assert_int_equal(lifecycle_kill(w.lifecycle, id, "request", NULL, NULL, &err), ABX_NOT_FOUND);
}

static void on_extended(void *user, int status, const struct abx_err *failure)
{
    assert_null(failure);
    assert_int_equal(status, 204);
    (*(unsigned *)user)++;
}

static bool is_counted(void *user)
{
    return *(unsigned *)user > 0;
}

static int64_t extend(const char *id, int64_t timeout_ms, bool only_longer)
{
    struct sandbox *sb = lifecycle_find(w.lifecycle, id);
    struct sandbox_request rq = { .what = only_longer ? EV_REFRESH : EV_EXTEND,
                                  .timeout_ms = timeout_ms };
    struct abx_err err = { 0 };
    unsigned n = 0;

    assert_int_equal(lifecycle_request(w.lifecycle, id, &rq, on_extended, &n, &err), 0);
    assert_int_equal(n, 0);
    assert_true(run_until(is_counted, &n));
    return sb->end_ms - time_wall_ms();
}

static void extensions_move_the_end_and_only_longer_never_shortens(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    assert_true(extend(id, 100000, true) > 40000);
    assert_true(extend(id, 1000, true) > 40000);
    assert_in_range(extend(id, 30000, false), 1, 30000);
    assert_true(extend(id, 50, false) <= 50);
    assert_true(run_until(has_kill, NULL));
}

/* --- restarts ------------------------------------------------------------------------------------ */

static bool is_alone(void *user)
{
    (void)settle(user);
    return lifecycle_count(w.lifecycle) == 1;
}

static void rows_of_a_killed_process_are_judged(void **state)
{
    struct answer a[5] = { 0 };
    char running[SANDBOX_ID_SIZE], creating[SANDBOX_ID_SIZE], killing[SANDBOX_ID_SIZE],
        overdue[SANDBOX_ID_SIZE], again[SANDBOX_ID_SIZE];
    const struct timespec pause = { .tv_sec = 2 };
    const char *ids[] = { running };

    (void)state;
    reach(SANDBOX_RUNNING, &a[0], running);
    reach(SANDBOX_KILLING, &a[1], killing);
    create("", 2000, &a[2], overdue);
    assert_true(run_until(is_asked, NULL));
    end_create(NULL);
    assert_true(run_until(is_answered, &a[2]));
    create("key", 60000, &a[3], creating);
    assert_true(run_until(is_asked, NULL));
    close_all();
    (void)nanosleep(&pause, NULL);
    open_all();
    assert_int_equal(state_of(running), SANDBOX_RUNNING);
    assert_int_equal(state_of(overdue), SANDBOX_RUNNING);
    assert_int_equal(state_of(creating), SANDBOX_KILLING);
    assert_int_equal(state_of(killing), SANDBOX_KILLING);
    lifecycle_driver_up(w.lifecycle);
    end_list(ids, 1, false);
    assert_true(run_until(is_alone, running));
    assert_int_equal(state_of(running), SANDBOX_RUNNING);
    /* The key of the create that was cut off is free. */
    create("key", 60000, &a[4], again);
    assert_true(run_until(is_asked, NULL));
    assert_string_equal(w.fake.created_id, again);
}

static void what_the_driver_does_not_know_has_died(void **state)
{
    struct answer a[3] = { 0 };
    char id[3][SANDBOX_ID_SIZE], stranger[] = "zstranger";
    const char *first[] = { id[0] }, *second[] = { stranger };

    (void)state;
    for (int i = 0; i < 2; i++)
        reach(SANDBOX_RUNNING, &a[i], id[i]);
    lifecycle_driver_up(w.lifecycle);
    assert_string_equal(w.fake.list_after, "");
    /* Made after the question: it may rightly be missing in the answer. */
    reach(SANDBOX_RUNNING, &a[2], id[2]);
    end_list(first, 1, true);
    assert_string_equal(w.fake.list_after, id[0]);
    assert_int_equal(w.fake.n_kills, 0);
    end_list(second, 1, false);
    assert_int_equal(w.fake.n_kills, 1);
    assert_string_equal(w.fake.kills[0].id, stranger);
    assert_int_equal(state_of(id[0]), SANDBOX_RUNNING);
    assert_int_equal(state_of(id[2]), SANDBOX_RUNNING);
    assert_int_not_equal(state_of(id[1]), SANDBOX_RUNNING);
    assert_true(end_kills(NULL));
    assert_true(run_until(settle, id[1]));
}

static void what_is_being_made_is_no_stranger(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    const char *ids[] = { id };

    (void)state;
    reach(SANDBOX_STARTING, &a, id);
    lifecycle_driver_up(w.lifecycle);
    end_list(ids, 1, false);
    assert_int_equal(w.fake.n_kills, 0);
    end_create(NULL);
    assert_true(run_until(is_answered, &a));
    assert_int_equal(a.status, 201);
}

static void kills_wait_for_the_driver(void **state)
{
    struct kill_answer k = { 0 };
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    struct abx_err err;

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    w.fake.is_up = false;
    assert_int_equal(lifecycle_kill(w.lifecycle, id, "request", on_killed, &k, &err), 0);
    (void)uv_run(&w.loop, UV_RUN_NOWAIT);
    assert_int_equal(k.n, 0);
    assert_int_equal(state_of(id), SANDBOX_KILLING);
    w.fake.is_up = true;
    lifecycle_driver_up(w.lifecycle);
    assert_int_equal(w.fake.n_kills, 1);
    end_list(NULL, 0, false);
    assert_true(run_until(settle, id));
    assert_int_equal(k.n, 1);
    assert_true(k.existed);
}

static void active_sandboxes_are_counted_per_team(void **state)
{
    struct answer a[3] = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_RUNNING, &a[0], id);
    reach(SANDBOX_KILLING, &a[1], id);
    reach(SANDBOX_STARTING, &a[2], id);
    assert_int_equal(lifecycle_count_active(w.lifecycle, "t", NULL), 2);
    assert_int_equal(lifecycle_count_active(w.lifecycle, "u", NULL), 0);
    assert_int_equal(lifecycle_count_active(w.lifecycle, "t", lifecycle_find(w.lifecycle, id)), 1);
    assert_int_equal(lifecycle_count(w.lifecycle), 3);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(a_created_sandbox_reports_what_was_enforced),
        TEST(a_failed_start_is_answered_at_once_and_killed_behind),
        TEST(a_failed_start_is_told_to_those_who_asked),
        TEST(a_driver_that_was_never_asked_need_not_kill),
        TEST(a_kill_before_the_start_ends_is_repeated_after_it),
        TEST(the_start_ends_while_the_first_kill_is_open),
        TEST(a_failed_kill_is_tried_again_by_itself),
        TEST(only_the_first_of_many_killers_ended_it),
        TEST(two_creates_with_one_key_get_one_sandbox),
        TEST(a_key_whose_create_failed_makes_a_new_one),
        TEST(time_runs_from_the_answer_and_can_be_moved),
        TEST(extensions_move_the_end_and_only_longer_never_shortens),
        TEST(rows_of_a_killed_process_are_judged),
        TEST(what_the_driver_does_not_know_has_died),
        TEST(what_is_being_made_is_no_stranger),
        TEST(kills_wait_for_the_driver),
        TEST(active_sandboxes_are_counted_per_team),
    };

    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests_name("control_lifecycle", tests, NULL, NULL);
}
