/* test_wait.c - coarse timers that start, stop and move each other. */
#include "test.h"

#include "gateway/wait.h"

struct item {
    struct wait wait;
    unsigned fired;
    uint64_t at;
};

static uv_loop_t loop;
static struct wait_list list;
static struct item a, b, c;

static int setup(void **state)
{
    (void)state;
    a = b = c = (struct item){ 0 };
    if (uv_loop_init(&loop) < 0)
        return -1;
    wait_list_init(&list, &loop);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    wait_list_close(&list, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop);
}

static void fire(struct wait *w)
{
    struct item *i = container_of(w, struct item, wait);

    i->fired++;
    i->at = uv_now(&loop);
}

static void fire_and_change_the_others(struct wait *w)
{
    fire(w);
    wait_stop(&b.wait);
    wait_start(&list, &c.wait, 0, fire);
}

static void fire_again(struct wait *w)
{
    fire(w);
    if (container_of(w, struct item, wait)->fired < 3)
        wait_start(&list, w, 1, fire_again);
}

static void entries_fire_once_when_due(void **state)
{
    uint64_t began;

    (void)state;
    uv_update_time(&loop);
    began = uv_now(&loop);
    wait_start(&list, &a.wait, 90, fire);
    wait_start(&list, &b.wait, 30, fire);
    (void)uv_run(&loop, UV_RUN_DEFAULT); /* ends when nothing waits any more */
    assert_int_equal(a.fired, 1);
    assert_int_equal(b.fired, 1);
    assert_true(b.at >= began + 30 && a.at >= began + 90); /* on a busy machine, in one turn */
}

static void stopped_entries_do_not_fire(void **state)
{
    (void)state;
    wait_start(&list, &a.wait, 10, fire);
    wait_start(&list, &b.wait, 10, fire);
    wait_stop(&a.wait);
    wait_stop(&a.wait);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(a.fired, 0);
    assert_int_equal(b.fired, 1);
}

static void starting_again_moves(void **state)
{
    uint64_t began;

    (void)state;
    uv_update_time(&loop);
    began = uv_now(&loop);
    wait_start(&list, &a.wait, 10, fire);
    wait_start(&list, &a.wait, 60, fire);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(a.fired, 1);
    assert_true(a.at >= began + 60);
}

static void callbacks_may_change_the_list(void **state)
{
    (void)state;
    wait_start(&list, &a.wait, 10, fire_and_change_the_others);
    wait_start(&list, &b.wait, 10, fire);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(a.fired, 1);
    assert_int_equal(b.fired, 0);
    assert_int_equal(c.fired, 1);
    a.fired = 0;
    wait_start(&list, &a.wait, 1, fire_again);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(a.fired, 3);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(entries_fire_once_when_due),
        T(stopped_entries_do_not_fire),
        T(starting_again_moves),
        T(callbacks_may_change_the_list),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
