/* What is kept of paused sandboxes, and rows of any, that are damaged or gone: nothing is killed for that, a resume says
 * what is wrong, a kill works.
 */
#include "lifecycle_test.h"

#include <sqlite3.h>

#include "control/lifecycle_internal.h"

static void a_pool_that_cannot_be_read_loses_no_one(void **state)
{
    struct answer a = { 0 };
    struct abx_err failure;
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_PAUSED, &a, id);
    w.fake.hides_stopped = true;
    lifecycle_driver_up(w.lifecycle);
    end_list(NULL, 0, false);
    assert_true(is_paused(id));
    w.fake.hides_stopped = false;
    lifecycle_driver_up(w.lifecycle);
    end_list(NULL, 0, false);
    assert_true(is_paused(id)); /* until it is killed: a resume says what is wrong */
    assert_false(find(id)->keeps_memory);
    request(id, EV_CONNECT, false, &reached);
    (void)err_set(&failure, ABX_DATA_LOSS, "nothing is left");
    end_create(&failure);
    assert_int_equal(reached.http, 410);
    assert_non_null(strstr(reached.text, "cannot be resumed while waking: nothing is left"));
    assert_int_equal(lifecycle_kill(w.lifecycle, id, "request", NULL, NULL, &failure), 0);
    assert_true(run_until(settle, id));
    assert_true(run_until(is_empty, NULL));
}

/* Changes the row behind the service's back, which reads it at its next start. */
static void damage(const char *set)
{
    char path[256], sql[256];
    sqlite3 *db;

    close_all();
    (void)snprintf(path, sizeof path, "%s/abx.db", w.dir);
    (void)snprintf(sql, sizeof sql, "UPDATE sandboxes SET %s", set);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    open_all();
}

static void a_damaged_row_can_be_killed_and_says_what_is_wrong(void **state)
{
    static const struct {
        const char *set;
        enum driver_state there;
        const char *text; /* NULL: it can be resumed */
    } cases[] = {
        { "config = '{'", DRIVER_FROZEN, "its config is damaged" },
        { "config = '[]'", DRIVER_STOPPED, "its config is damaged" },
        { "alias = CAST(x'ff' AS TEXT)", DRIVER_FROZEN, "its alias is damaged" },
        { "digest = hex(zeroblob(100))", DRIVER_STOPPED, "its digest is damaged" },
        { "state = 'asleep'", DRIVER_FROZEN, "its state is damaged" },
        { "state = ''", DRIVER_STOPPED, "its state is damaged" },
        { "envs = '{\"A\":1}'", DRIVER_STOPPED, "its envs are damaged" },
        { "envs = '{\"A\":1}'", DRIVER_FROZEN, NULL }, /* its processes have theirs */
        { "pause_mode = 'no such'", DRIVER_FROZEN, NULL },
        { "cpu_count = 'x', memory_mb = '', end_ms = 'y'", DRIVER_FROZEN, NULL },
    };
    char id[SANDBOX_ID_SIZE];
    const char *ids[] = { id };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct answer a = { 0 };
        struct abx_err err;

        reach(SANDBOX_PAUSED, &a, id);
        damage(cases[i].set);
        w.fake.state = cases[i].there;
        lifecycle_driver_up(w.lifecycle);
        end_list(ids, 1, false);
        assert_true(is_paused(id));
        assert_int_equal(w.fake.n_kills + w.fake.n_stops, 0);
        request(id, EV_RESUME, false, &reached);
        if (cases[i].text) {
            assert_int_equal(reached.http, 410);
            assert_non_null(strstr(reached.text, cases[i].text));
        } else {
            assert_true(end_change(NULL));
            assert_true(run_until(is_requested, &reached));
            assert_int_equal(reached.status, 201);
        }
        assert_int_equal(lifecycle_kill(w.lifecycle, id, "request", NULL, NULL, &err), 0);
        assert_true(run_until(settle, id));
        assert_true(run_until(is_empty, NULL));
    }
}

/* Not even whose it is can be read: it may be the one that the driver has. */
static void what_may_have_a_row_is_not_killed(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    const char *ids[] = { id };

    (void)state;
    reach(SANDBOX_PAUSED, &a, id);
    damage("id = 'No id!'");
    assert_true(is_empty(NULL));
    lifecycle_driver_up(w.lifecycle);
    end_list(ids, 1, false);
    assert_int_equal(w.fake.n_kills, 0);
}

static void what_runs_goes_on_with_a_damaged_row(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    const char *ids[] = { id };

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    damage("config = 'x', end_ms = 'y'");
    w.fake.state = DRIVER_RUNS;
    lifecycle_driver_up(w.lifecycle);
    end_list(ids, 1, false);
    assert_true(runs(id));
    assert_in_range(uv_timer_get_due_in(&find(id)->timer), 60000, 300000);
    assert_true(sandbox_pauses_itself(find(id)));
    assert_true(find(id)->is_traffic_private);
    assert_true(json_is_false(json_object_get(find(id)->config, "allowInternetAccess")));
}

/* What starts anew takes its environment from the row. */
static void without_its_environment_nothing_starts(void **state)
{
    static const enum sandbox_state from[] = { SANDBOX_RUNNING, SANDBOX_PAUSED };
    char id[SANDBOX_ID_SIZE];
    const char *ids[] = { id };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(from); i++) {
        struct answer a = { 0 };

        reach(from[i], &a, id);
        damage("envs = '{'");
        w.fake.state = from[i] == SANDBOX_PAUSED ? DRIVER_FROZEN : DRIVER_RUNS;
        lifecycle_driver_up(w.lifecycle);
        end_list(ids, 1, false);
        request_rollback(id, &reached);
        assert_int_equal(reached.http, 410);
        assert_non_null(strstr(reached.text, "its envs are damaged"));
        assert_int_equal(w.fake.n_clones, 0);
        assert_int_equal(state_of(id), from[i]);
        assert_int_equal(teardown(NULL), 0);
        assert_int_equal(setup(NULL), 0);
    }
}

static void a_pause_keeps_an_environment_that_only_memory_has(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    damage("envs = '{'");
    request(id, EV_PAUSE, true, &reached);
    assert_true(end_change(NULL));
    assert_true(run_until(is_requested, &reached));
    assert_int_equal(reached.status, 204);
    assert_true(is_paused(id));
    assert_true(find(id)->keeps_memory);
    assert_int_equal(w.fake.n_stops, 0);
}

static void a_rollback_that_goes_on_does_not_start_without_it(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    const char *ids[] = { id };

    (void)state;
    reach(SANDBOX_RESTARTING, &a, id);
    damage("envs = '{'");
    w.fake.state = DRIVER_STOPPED;
    lifecycle_driver_up(w.lifecycle);
    end_list(ids, 1, false);
    go_to(id, SANDBOX_PAUSED);
    assert_int_equal(w.fake.n_creates, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(a_pool_that_cannot_be_read_loses_no_one),
        TEST(a_damaged_row_can_be_killed_and_says_what_is_wrong),
        TEST(what_may_have_a_row_is_not_killed),
        TEST(what_runs_goes_on_with_a_damaged_row),
        TEST(without_its_environment_nothing_starts),
        TEST(a_pause_keeps_an_environment_that_only_memory_has),
        TEST(a_rollback_that_goes_on_does_not_start_without_it),
    };

    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests_name("control_lifecycle_damage", tests, NULL, NULL);
}
