/* What a sandbox used: rates from counters, bounds, the ring. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "control/usage.h"

#define MIB (UINT64_C(1) << 20)

static const struct sandbox sb = {
    .started_ms = 10000, .cpu_count = 2, .memory_mb = 512, .disk_mb = 1024
};

static const struct usage_sample *add(struct usage_log **u, int64_t ms, struct driver_usage now)
{
    assert_int_equal(usage_log_add(u, &sb, &now, ms, NULL), 0);
    return usage_log_newest(*u);
}

static void the_first_sample_counts_from_the_start(void **state)
{
    struct usage_log *u = NULL;
    const struct usage_sample *s;

    (void)state;
    assert_null(usage_log_newest(NULL));
    s = add(&u, 15000,
            (struct driver_usage){ .cpu_us = 1000000,
                                   .memory_bytes = 100 * MIB,
                                   .cache_bytes = 30 * MIB,
                                   .disk_bytes = 7 });
    assert_true(s->cpu_pct > 9.99 && s->cpu_pct < 10.01); /* 1 s of 5 s on two processors */
    assert_int_equal(s->memory_bytes, 70 * MIB);
    assert_int_equal(s->cache_bytes, 30 * MIB);
    assert_int_equal(s->disk_bytes, 7);
    s = add(&u, 20000, (struct driver_usage){ .cpu_us = 1000000 });
    assert_true(s->cpu_pct < 0.001);
    usage_log_free(u);
}

static void nothing_is_negative_or_over_what_there_is(void **state)
{
    struct usage_log *u = NULL;
    const struct usage_sample *s;

    (void)state;
    (void)add(&u, 15000, (struct driver_usage){ .cpu_us = 9000000 });
    /* Started anew: counters begin again. */
    s = add(&u, 20000,
            (struct driver_usage){ .cpu_us = 1000000, .cache_bytes = 5, .memory_bytes = 3 });
    assert_true(s->cpu_pct > 9.99 && s->cpu_pct < 10.01);
    assert_int_equal(s->memory_bytes, 0);
    /* The clock went back, the counter ran ahead, limits were passed by what the daemon takes. */
    s = add(&u, 19000,
            (struct driver_usage){
                .cpu_us = UINT64_MAX, .memory_bytes = 9000 * MIB, .disk_bytes = 9000 * MIB });
    assert_true(s->cpu_pct > 99.99 && s->cpu_pct < 100.01);
    assert_int_equal(s->memory_bytes, 512 * MIB);
    assert_int_equal(s->disk_bytes, 1024 * MIB);
    usage_log_free(u);
}

struct seen {
    size_t n;
    int64_t first_ms, last_ms;
};

static void see(void *user, const struct usage_sample *s)
{
    struct seen *x = user;

    if (x->n++ == 0)
        x->first_ms = s->time_ms;
    else
        assert_true(s->time_ms > x->last_ms);
    x->last_ms = s->time_ms;
}

static void the_newest_are_kept_in_order(void **state)
{
    struct usage_log *u = NULL;
    struct seen all = { 0 }, some = { 0 }, none = { 0 };
    int64_t last_ms = 0;

    (void)state;
    for (unsigned i = 0; i < USAGE_KEPT + 100; i++) {
        last_ms = 15000 + (int64_t)i * USAGE_EVERY_MS;
        (void)add(&u, last_ms, (struct driver_usage){ .cpu_us = i });
    }
    usage_log_each(u, 0, INT64_MAX, see, &all);
    assert_int_equal(all.n, USAGE_KEPT);
    assert_int_equal(all.last_ms, last_ms);
    assert_int_equal(all.first_ms, last_ms - (int64_t)(USAGE_KEPT - 1) * USAGE_EVERY_MS);
    usage_log_each(u, last_ms - 10000, last_ms - 5000, see, &some);
    assert_int_equal(some.n, 2);
    usage_log_each(u, 0, 14999, see, &none);
    usage_log_each(NULL, 0, INT64_MAX, see, &none);
    assert_int_equal(none.n, 0);
    usage_log_free(u);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_sample_counts_from_the_start),
        cmocka_unit_test(nothing_is_negative_or_over_what_there_is),
        cmocka_unit_test(the_newest_are_kept_in_order),
    };

    return cmocka_run_group_tests_name("control_usage", tests, NULL, NULL);
}
