/* test_budget.c - tokens that come with time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/budget.h"

static unsigned take_all(struct budget *b, uint64_t now_ms)
{
    unsigned n = 0;

    while (budget_take(b, 10, 30, now_ms))
        n++;
    return n;
}

static void begins_full_whatever_the_time(void **state)
{
    (void)state;
    for (uint64_t now = 0; now < 3; now++) {
        struct budget b = { 0 };

        assert_int_equal(take_all(&b, now * 1000000), 30);
    }
}

static void fills_with_time_up_to_its_size(void **state)
{
    struct budget b = { 0 };

    (void)state;
    assert_int_equal(take_all(&b, 5000), 30);
    assert_int_equal(take_all(&b, 5099), 0);
    assert_int_equal(take_all(&b, 5100), 1);
    assert_int_equal(take_all(&b, 6100), 10);
    assert_int_equal(take_all(&b, 900000), 30);
    assert_int_equal(take_all(&b, 900000), 0);
}

/* However often it is looked at: parts of a token are not lost. */
static void often_looked_at_it_fills_as_fast(void **state)
{
    struct budget b = { 0 };
    unsigned n = 0;

    (void)state;
    (void)take_all(&b, 0);
    for (uint64_t now = 1; now <= 10000; now += 7)
        n += take_all(&b, now);
    assert_in_range(n, 99, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begins_full_whatever_the_time),
        cmocka_unit_test(fills_with_time_up_to_its_size),
        cmocka_unit_test(often_looked_at_it_fills_as_fast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
