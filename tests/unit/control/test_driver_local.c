/* test_driver_local.c - the driver's end: what is under way is answered, and what is asked then is refused. */
#include "test.h"

#include <uv.h>

#include "control/driver.h"

static uv_loop_t loop;
static struct driver *driver;

static void on_event(void *user)
{
    (void)user;
}

static void on_died(void *user, const char *sandbox_id, const char *reason)
{
    (void)user;
    (void)sandbox_id;
    (void)reason;
}

static int setup(void **state)
{
    const struct driver_events events = { on_event, on_event, on_died, NULL };

    (void)state;
    return uv_loop_init(&loop) < 0
               ? -1
               : driver_local_new(&loop, "/nonexistent/engine.sock", &events, &driver, NULL);
}

static int teardown(void **state)
{
    (void)state;
    return uv_loop_close(&loop);
}

static void never_killed(void *user, bool existed, const struct abx_err *failure)
{
    (void)user;
    (void)existed;
    (void)failure;
    fail();
}

static void never_created(void *user, const struct driver_created *created,
                          const struct abx_err *failure, bool was_sent)
{
    (void)user;
    (void)created;
    (void)failure;
    (void)was_sent;
    fail();
}

static const struct driver_create wanted = {
    .sandbox_id = "i1", .digest = "d", .template_id = "t", .access_token = "", .request_id = "r"
};

static void check_refused(void)
{
    struct abx_err err;

    assert_int_equal(driver->ops->create(driver, &wanted, never_created, NULL, &err),
                     ABX_UNAVAILABLE);
    assert_int_equal(driver->ops->kill(driver, "i1", "r", never_killed, NULL, &err),
                     ABX_UNAVAILABLE);
    assert_false(driver->ops->is_up(driver));
}

static void on_created(void *user, const struct driver_created *created,
                       const struct abx_err *failure, bool was_sent)
{
    assert_null(created);
    assert_int_equal(failure->reason, ABX_REASON_BUSY);
    assert_false(was_sent);
    ++*(unsigned *)user;
    check_refused(); /* who hears of it asks for more */
}

static void a_closed_driver_answers_and_refuses(void **state)
{
    unsigned n = 0;

    (void)state;
    assert_int_equal(driver->ops->create(driver, &wanted, on_created, &n, NULL), 0);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_equal(n, 0); /* it waits for the engine */
    driver->ops->close(driver);
    assert_int_equal(n, 1);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    check_refused();
    driver->ops->free(driver);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_closed_driver_answers_and_refuses, setup, teardown),
    };

    return cmocka_run_group_tests_name("control_driver_local", tests, NULL, NULL);
}
