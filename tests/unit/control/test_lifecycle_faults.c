/* The state machine when writes fail, and calls that cannot be made: the old or the new state, and which step it
 * was. (base/fault.h lets them fail.)
 */
#include "lifecycle_test.h"

#include "base/fault.h"
#include "control/lifecycle_internal.h"

static int faults_fd = -EBADF;

static void set_faults(const char *text)
{
    char all[FAULT_FILE_BYTES];

    memset(all, '\n', sizeof all);
    memcpy(all, text, strlen(text));
    assert_int_equal(pwrite(faults_fd, all, sizeof all, 0), sizeof all);
}

static int begin(void **state)
{
    char path[80];
    struct abx_err err;

    if (setup(state) < 0)
        return -1;
    (void)snprintf(path, sizeof path, "%s/faults", w.dir);
    faults_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (faults_fd < 0)
        return -1;
    set_faults("");
    return fault_open(path, &err);
}

static int end(void **state)
{
    fd_close(faults_fd);
    return teardown(state);
}

static bool is_killed(void *user)
{
    return ((struct kill_answer *)user)->n > 0;
}

/* What was queued is done and answered. */
static void end_store_calls(void)
{
    store_close(w.store);
    assert_int_equal(store_open(&w.loop, w.dir, &w.store, NULL), 0);
    w.lifecycle->opts.store = w.store;
}

/* Rows that a process finds which starts now. */
static size_t count_rows(void)
{
    close_all();
    open_all();
    return lifecycle_count(w.lifecycle);
}

static void a_create_whose_first_row_fails_has_not_been(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    set_faults("store.create 1 fail\n");
    create("key", 60000, &a, id);
    assert_true(run_until(is_answered, &a));
    assert_int_equal(a.code, ABX_INTERNAL);
    assert_string_equal(a.body, "Failed to create sandbox while writing: injected fault");
    assert_true(a.is_clean);
    assert_int_equal(w.fake.n_creates, 0);
    assert_int_equal(lifecycle_count(w.lifecycle), 0);
    assert_int_equal(count_rows(), 0);
    /* The key is as free as before. */
    a = (struct answer){ 0 };
    create("key", 60000, &a, id);
    assert_true(run_until(is_asked, NULL));
    end_create(NULL);
    assert_true(run_until(is_answered, &a));
    assert_int_equal(a.status, 201);
}

static void a_create_whose_second_row_fails_is_killed(void **state)
{
    static const char *const faults[] = { "store.run 1 fail\n", "create.commit 1 fail\n" };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        struct answer a = { 0 };
        char id[SANDBOX_ID_SIZE];

        set_faults(faults[i]);
        reach(SANDBOX_STARTING, &a, id);
        end_create(NULL);
        assert_true(run_until(is_answered, &a));
        assert_string_equal(a.body, "Failed to create sandbox while committing: injected fault");
        assert_int_equal(w.fake.n_kills, i + 1);
        assert_int_equal(w.n_visible, 0);
        assert_true(run_until(settle, id));
        assert_true(run_until(is_empty, NULL));
    }
    assert_int_equal(count_rows(), 0);
}

static void a_start_that_cannot_be_asked_for_names_itself(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    set_faults("create.start 1 fail\n");
    create("", 60000, &a, id);
    assert_true(run_until(is_answered, &a));
    assert_string_equal(a.body, "Failed to create sandbox while starting: injected fault");
    assert_true(a.is_clean);
    assert_true(run_until(is_empty, NULL));
    assert_int_equal(count_rows(), 0);
}

static void a_pause_whose_row_fails_leaves_it_running(void **state)
{
    static const char *const faults[] = { "store.pause 1 fail\n", "pause.save 1 fail\n" };
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        struct request_answer pause;

        set_faults(faults[i]);
        request(id, EV_PAUSE, false, &pause);
        assert_true(end_change(NULL)); /* frozen */
        assert_true(run_until(is_requested, &pause));
        assert_int_equal(pause.http, 500);
        assert_non_null(strstr(pause.text, "while saving: injected fault"));
        assert_int_equal(state_of(id), SANDBOX_THAWING);
        assert_true(end_change(NULL));
        assert_true(runs(id));
        assert_int_equal(w.fake.state, DRIVER_RUNS);
    }
    assert_int_equal(count_rows(), 1);
    assert_true(runs(id));
}

static void a_resume_whose_row_fails_is_one_all_the_same(void **state)
{
    static const char *const faults[] = { "store.run 1 fail\n", "resume.row 1 fail\n" };
    struct sandbox_request asked = { .what = EV_RESUME,
                                     .timeout_ms = 60000,
                                     .config = json_pack("{s:b}", "autoPause", 1) };
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        reach_paused(SANDBOX_WAKING, id);
        set_faults(faults[i]);
        assert_true(end_change(NULL));
        assert_true(run_until(is_requested, &reached));
        assert_int_equal(reached.status, 201);
        assert_true(runs(id));
        assert_true(find(id)->is_row_behind);
    }
    reach_paused(SANDBOX_PAUSED, id); /* what the resume asks for holds, too */
    set_faults("resume.row 1 fail\n");
    request_as(id, &asked, &reached);
    assert_true(end_change(NULL));
    assert_true(run_until(is_requested, &reached));
    assert_true(json_is_true(json_object_get(find(id)->config, "autoPause")));

    set_faults("store.run 1 fail\n"); /* and once more; then a comparison writes it */
    for (int i = 0; i < 2; i++) {
        lifecycle_write_rows(w.lifecycle);
        end_store_calls();
        assert_int_equal(find(id)->is_row_behind, i == 0);
    }
    assert_int_equal(count_rows(), 1);
    assert_int_equal(state_of(id), SANDBOX_RUNNING);
    assert_true(json_is_true(json_object_get(find(id)->config, "autoPause")));
    json_decref(asked.config);
}

/* A write may take longer than the time from one comparison to the next. */
static void a_row_that_is_on_its_way_is_not_written_again(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    reach_paused(SANDBOX_WAKING, id);
    set_faults("resume.row 1 fail\n");
    assert_true(end_change(NULL));
    assert_true(run_until(is_requested, &reached));
    for (int i = 0; i < 2; i++) {
        set_faults(i == 0 ? "store.run 1 fail\n" : ""); /* a failed one is tried again */
        lifecycle_write_rows(w.lifecycle);
        lifecycle_write_rows(w.lifecycle);
        end_store_calls();
        assert_int_equal(find(id)->is_row_behind, i == 0);
    }
    assert_int_equal(events_of(id, "sandbox.lifecycle.resumed"), 1);
}

/* Else a restart would start it once more, and its processes be lost. */
static void a_rollback_whose_last_row_fails_is_written_later(void **state)
{
    static const char *const faults[] = { "store.run 1 fail\n", "rollback.settle 1 fail\n" };
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    for (unsigned i = 0; i < ARRAY_SIZE(faults); i++) {
        reach_rollback(SANDBOX_RESTARTING, id);
        set_faults(faults[i]);
        end_create(NULL);
        assert_true(run_until(is_requested, &reached));
        assert_int_equal(reached.status, 200);
        assert_true(runs(id));
        assert_true(find(id)->is_row_behind);
        lifecycle_write_rows(w.lifecycle);
        end_store_calls();
        assert_false(find(id)->is_row_behind);
        assert_int_equal(events_of(id, "sandbox.lifecycle.rolled_back"), i + 1);
        assert_int_equal(count_rows(), 1);
        assert_int_equal(state_of(id), SANDBOX_RUNNING);
    }
    assert_int_equal(events_of(id, "sandbox.lifecycle.resumed"), 0);
}

static void a_row_that_cannot_be_deleted_does_not_hold_up_the_kill(void **state)
{
    struct kill_answer k = { 0 };
    struct answer a = { 0 };
    struct abx_err err;
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    set_faults("store.remove 2 fail\n");
    assert_int_equal(lifecycle_kill(w.lifecycle, id, "request", on_killed, &k, &err), 0);
    assert_true(end_kills(NULL));
    assert_true(run_until(is_killed, &k));
    assert_true(k.existed);
    assert_null(find(id));
    /* It is deleted later. */
    for (int i = 0; i < 2; i++) {
        assert_non_null(w.lifecycle->unremoved);
        lifecycle_driver_up(w.lifecycle);
        assert_null(w.lifecycle->unremoved);
        end_list(NULL, 0, false);
        end_store_calls();
    }
    assert_null(w.lifecycle->unremoved);
    assert_int_equal(w.fake.n_kills, 1);
    assert_int_equal(count_rows(), 0);
    assert_int_equal(w.fake.n_kills, 0);
}

/* The driver was back before the timer of the first try, and the second one ended it, with its row still there. */
static void a_timer_of_a_kill_ends_with_it(void **state)
{
    struct kill_answer k = { 0 };
    struct answer a = { 0 };
    struct abx_err err;
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    set_faults("kill.row 1 fail\nstore.remove 1 fail\n");
    assert_int_equal(lifecycle_kill(w.lifecycle, id, "request", on_killed, &k, &err), 0);
    assert_true(end_kills(NULL));
    assert_int_equal(state_of(id), SANDBOX_REMOVING);
    lifecycle_driver_up(w.lifecycle);
    assert_true(run_until(is_killed, &k));
    assert_non_null(w.lifecycle->unremoved);
    assert_false(uv_is_active((uv_handle_t *)&w.lifecycle->unremoved->timer));
    end_list(NULL, 0, false);
    lifecycle_remove_rows(w.lifecycle);
    end_store_calls();
    assert_int_equal(count_rows(), 0);
}

static void a_kill_goes_on_until_its_calls_can_be_made(void **state)
{
    struct kill_answer k = { 0 };
    struct answer a = { 0 };
    struct abx_err err;
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    set_faults("kill.note 1 fail\nkill.processes 1 fail\nkill.row 1 fail\n");
    assert_int_equal(lifecycle_kill(w.lifecycle, id, "request", on_killed, &k, &err), 0);
    assert_true(run_until(settle, id));
    assert_true(run_until(is_killed, &k));
    assert_true(k.existed);
    assert_int_equal(w.fake.n_kills, 1);
    assert_int_equal(count_rows(), 0);
}

#define FAULTY(f) cmocka_unit_test_setup_teardown(f, begin, end)

static void a_row_that_cannot_be_written_does_not_keep_who_asked(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_ENDING_PAUSED, &a, id);
    find(id)->operation->t_asked_ns -= 31 * NSEC_PER_SEC;
    set_faults("rollback.park * fail\n");
    assert_true(end_change(NULL));
    assert_int_equal(state_of(id), SANDBOX_PARKING);
    assert_int_equal(reached.http, 503);
    set_faults("");
    assert_true(run_until(is_paused, id));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        FAULTY(a_create_whose_first_row_fails_has_not_been),
        FAULTY(a_create_whose_second_row_fails_is_killed),
        FAULTY(a_start_that_cannot_be_asked_for_names_itself),
        FAULTY(a_pause_whose_row_fails_leaves_it_running),
        FAULTY(a_resume_whose_row_fails_is_one_all_the_same),
        FAULTY(a_row_that_is_on_its_way_is_not_written_again),
        FAULTY(a_rollback_whose_last_row_fails_is_written_later),
        FAULTY(a_row_that_cannot_be_deleted_does_not_hold_up_the_kill),
        FAULTY(a_row_that_cannot_be_written_does_not_keep_who_asked),
        FAULTY(a_timer_of_a_kill_ends_with_it),
        FAULTY(a_kill_goes_on_until_its_calls_can_be_made),
    };

    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests_name("control_lifecycle_faults", tests, NULL, NULL);
}
