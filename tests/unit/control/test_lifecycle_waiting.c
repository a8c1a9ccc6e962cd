/* Who asks while a step is tried again and again, and a time that ends meanwhile. */
#include "lifecycle_test.h"

#include "control/lifecycle_internal.h"

static void age(struct operation *op)
{
    for (; op; op = op->next)
        op->t_asked_ns -= 31 * NSEC_PER_SEC;
}

/* The pool is out of use, say, for hours. */
static void who_asks_does_not_wait_for_ever(void **state)
{
    static const enum sandbox_state lasting[] = { SANDBOX_EXCHANGING, SANDBOX_EXCHANGING_PAUSED,
                                                  SANDBOX_THAWING };
    struct request_answer extend, copy, young;
    struct abx_err failure;

    (void)state;
    (void)err_set(&failure, ABX_UNAVAILABLE, "the pool cannot be used");
    for (size_t i = 0; i < 2 * ARRAY_SIZE(lasting); i++) {
        enum sandbox_state at = lasting[i / 2];
        bool has_restart = i % 2 && at != SANDBOX_THAWING;
        struct answer a = { 0 };
        char id[SANDBOX_ID_SIZE];

        reach(at, &a, id);
        if (has_restart)
            start_anew(id, DRIVER_FROZEN);
        request(id, EV_EXTEND, false, &extend);
        request(id, EV_COPY, false, &copy);
        assert_true(run_until(has_change, NULL));
        assert_true(end_change(&failure));
        assert_int_equal(extend.n + copy.n, 0);
        age(find(id)->operation);
        age(find(id)->waiting);
        request(id, EV_COPY, false, &young);
        (void)uv_timer_start(&find(id)->timer, lifecycle_on_timer, 0, 0); /* now, not later */
        assert_true(run_until(has_change, NULL));
        assert_true(end_change(&failure));
        assert_int_equal(extend.http, 503);
        assert_non_null(strstr(extend.text, machine_state(at)->name));
        assert_non_null(strstr(extend.text, "the pool cannot be used"));
        if (at != SANDBOX_THAWING && !has_restart) {
            assert_int_equal(reached.http, 503);
            assert_non_null(strstr(reached.text, "the pool cannot be used"));
        }
        /* What is asked now has its own time, and it all goes on. */
        assert_int_equal(copy.http, 503);
        assert_int_equal(young.n, 0);
        assert_int_equal(state_of(id), at);
        go_to(id, at == SANDBOX_EXCHANGING_PAUSED ? SANDBOX_PAUSED : SANDBOX_COPYING);
        assert_int_equal(teardown(NULL), 0);
        assert_int_equal(setup(NULL), 0);
    }
}

/* The driver may not come at all. */
static void after_a_restart_the_driver_is_not_waited_for(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_EXCHANGING, &a, id);
    close_all();
    open_all();
    w.fake.is_up = false;
    request(id, EV_COPY, false, &reached);
    age(find(id)->waiting);
    assert_true(run_until(is_requested, &reached));
    assert_int_equal(reached.http, 503);
}

/* Neither before half a minute of tries nor before its time is over, and never where that is a pause: it would be lost. */
static void a_time_that_ends_does_not_wait_for_ever(void **state)
{
    static const enum sandbox_state lasting[] = { SANDBOX_EXCHANGING, SANDBOX_THAWING };

    (void)state;
    for (unsigned i = 0; i < 32; i++) {
        bool has_restart = i & 1, pauses = i & 2, is_young = i & 4, has_time = i & 8;
        enum sandbox_state at = lasting[i / 16];
        json_t *config =
            json_pack("{s:{s:s}}", "lifecycle", "onTimeout", pauses ? "pause" : "kill");
        int64_t left_ms = has_time ? 60000 : -1;
        struct answer a = { 0 };
        char id[SANDBOX_ID_SIZE];
        struct sandbox *sb;

        reach(at, &a, id);
        if (has_restart && at == SANDBOX_EXCHANGING)
            start_anew(id, DRIVER_FROZEN);
        sb = find(id);
        assert_int_equal(sandbox_set_config(sb, config, NULL), 0);
        json_decref(config);
        sb->end_ms = time_wall_ms() + left_ms;
        if (sb->due_ms > 0)
            sb->due_ms = has_time ? uv_now(&w.loop) + 60000 : 1;
        if (!is_young)
            sb->t_state_ns -= 31 * NSEC_PER_SEC;
        assert_true(run_until(has_change, NULL));
        fail_change(ABX_UNAVAILABLE, "the pool cannot be used");
        if (pauses || is_young || has_time) {
            assert_int_equal(state_of(id), at);
            assert_true(uv_is_active((uv_handle_t *)&sb->timer)); /* tried again */
        } else {
            assert_int_equal(state_of(id), SANDBOX_KILLING);
            assert_string_equal(sb->kill_reason, "timeout");
        }
        assert_int_equal(teardown(NULL), 0);
        assert_int_equal(setup(NULL), 0);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(who_asks_does_not_wait_for_ever),
        TEST(after_a_restart_the_driver_is_not_waited_for),
        TEST(a_time_that_ends_does_not_wait_for_ever),
    };

    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests_name("control_lifecycle_waiting", tests, NULL, NULL);
}
