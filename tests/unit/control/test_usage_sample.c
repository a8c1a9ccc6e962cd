/* From the driver's counters to samples: nothing negative, nothing wrapped, nothing over what there is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/str.h"
#include "control/usage_sample.h"

#define MIB (UINT64_C(1) << 20)
#define START_MS INT64_C(1700000000000)

static const struct usage_total two_cpus = { 2, 1024, 10240 };

static struct driver_usage counters(uint64_t at_ms, uint64_t cpu_ms)
{
    return (struct driver_usage){ .id = "i1",
                                  .started_ms = START_MS,
                                  .at_us = at_ms * 1000,
                                  .cpu_us = cpu_ms * 1000,
                                  .has_disk = true };
}

static bool take(struct sandbox_usage *u, struct driver_usage m, int64_t after_ms,
                 struct usage_sample *ret)
{
    return usage_take(u, &m, &two_cpus, START_MS + after_ms, (START_MS + after_ms) / 1000, ret);
}

static void cpu_is_what_was_used_since_the_last_look(void **state)
{
    struct sandbox_usage u = { 0 };
    struct usage_sample s;

    (void)state;
    /* The first one counts from the start: 1 s of 2 x 4 s. */
    assert_true(take(&u, counters(100000, 1000), 4000, &s));
    assert_int_equal(s.cpu, 1250);
    assert_true(take(&u, counters(105000, 6000), 9000, &s));
    assert_int_equal(s.cpu, 5000);
    assert_true(take(&u, counters(110000, 6000), 14000, &s));
    assert_int_equal(s.cpu, 0);
}

static void counters_that_begin_anew_give_nothing_negative(void **state)
{
    struct sandbox_usage u = { 0 };
    struct driver_usage m = counters(105000, 10);
    struct usage_sample s;

    (void)state;
    assert_true(take(&u, counters(100000, 9000), 5000, &s));
    /* A smaller counter of the same processes is no measure: it is one to begin with. */
    assert_false(take(&u, m, 10000, &s));
    assert_true(take(&u, counters(110000, 10), 15000, &s));
    assert_int_equal(s.cpu, 0);
    /* A clock that stands still or goes back, too. */
    assert_false(take(&u, counters(110000, 20), 15000, &s));
    assert_false(take(&u, counters(1000, 30), 15000, &s));
    /* Started again: counted from there. */
    m = counters(200000, 2000);
    m.started_ms = START_MS + 100000;
    assert_true(take(&u, m, 102000, &s));
    assert_int_equal(s.cpu, 5000);
    /* Of others that have run for long, nothing is known at the first look. */
    m.started_ms = START_MS + 1;
    assert_false(take(&u, m, 110000, &s));
    m.started_ms = START_MS + 120000; /* from the future */
    assert_false(take(&u, m, 110000, &s));
}

static void nothing_is_over_what_there_is(void **state)
{
    struct sandbox_usage u = { 0 };
    struct driver_usage m = counters(1000, 1000000);
    struct usage_sample s;

    (void)state;
    m.memory_bytes = 1090 * MIB;
    m.cache_bytes = 10 * MIB;
    m.disk_bytes = 10241 * MIB;
    assert_true(take(&u, m, 1000, &s));
    assert_int_equal(s.cpu, 10000);
    assert_int_equal(s.memory_used, 1024 * MIB);
    assert_int_equal(s.memory_cache, 10 * MIB);
    assert_int_equal(s.disk_used, 10240 * MIB);
    /* The two are not read at the same moment. */
    m = counters(2000, UINT64_MAX / 1000);
    m.memory_bytes = 5 * MIB;
    m.cache_bytes = 6 * MIB;
    m.has_disk = false;
    assert_true(take(&u, m, 2000, &s));
    assert_int_equal(s.cpu, 10000);
    assert_int_equal(s.memory_used, 0);
    assert_int_equal(s.memory_cache, 5 * MIB);
    assert_int_equal(s.disk_used, 10240 * MIB); /* as last known */
}

static void a_frozen_one_has_no_samples_and_its_pause_does_not_count(void **state)
{
    struct sandbox_usage u = { 0 };
    struct driver_usage m = counters(60000, 1000);
    struct usage_sample s;

    (void)state;
    assert_true(take(&u, counters(10000, 1000), 5000, &s));
    m.is_frozen = true;
    assert_false(take(&u, m, 55000, &s));
    assert_true(take(&u, counters(65000, 11000), 60000, &s));
    assert_int_equal(s.cpu, 10000);
}

static void assert_same(const struct usage_sample *a, const struct usage_sample *b)
{
    assert_int_equal(a->time_s, b->time_s);
    assert_int_equal(a->cpu, b->cpu);
    assert_int_equal(a->memory_used, b->memory_used);
    assert_int_equal(a->memory_cache, b->memory_cache);
    assert_int_equal(a->disk_used, b->disk_used);
}

static void samples_survive_as_text(void **state)
{
    static const char *const damaged[] = { "",
                                           "1 2 3 4 5",
                                           "1 2 3 4\n",
                                           "1 2 3 4 5 6\n",
                                           "1 10001 3 4 5\n",
                                           "-1 2 3 4 5\n",
                                           "1 2 3 4 99999999999999999999\n",
                                           "1  3 4 5\n" };
    const struct usage_sample a = { 1700000005, 10000, UINT64_C(1) << 40, 0, 7 },
                              b = { 1700000010, 0, 1, 2, 3 };
    _cleanup_(buf_done) struct buf text = BUF_INIT(1000);
    struct usage_sample s;
    struct slice rest;

    (void)state;
    assert_int_equal(usage_encode(&text, &a), BUF_OK);
    assert_int_equal(usage_encode(&text, &b), BUF_OK);
    rest = buf_slice(&text);
    assert_true(usage_decode(&rest, &s));
    assert_same(&s, &a);
    assert_true(usage_decode(&rest, &s));
    assert_same(&s, &b);
    assert_false(usage_decode(&rest, &s));
    for (size_t i = 0; i < ARRAY_SIZE(damaged); i++) {
        rest = slice_str(damaged[i]);
        assert_false(usage_decode(&rest, &s));
    }
}

static void json_has_every_field(void **state)
{
    const struct usage_sample sample = { 1700000005, 1205, 2 * MIB, MIB, 3 * MIB };
    _cleanup_(buf_done) struct buf text = BUF_INIT(1000);
    json_t *got,
        *want = json_pack("{s:s,s:i,s:i,s:f,s:I,s:I,s:I,s:I,s:I}", "timestamp",
                          "2023-11-14T22:13:25Z", "timestampUnix", 1700000005, "cpuCount", 2,
                          "cpuUsedPct", 12.05, "memUsed", (json_int_t)(2 * MIB), "memTotal",
                          (json_int_t)(1024 * MIB), "memCache", (json_int_t)MIB, "diskUsed",
                          (json_int_t)(3 * MIB), "diskTotal", (json_int_t)(10240 * MIB));

    (void)state;
    assert_int_equal(usage_put_json(&text, &sample, &two_cpus), BUF_OK);
    got = json_loads(buf_cstr(&text), 0, NULL);
    json_object_set_new(got, "timestamp", json_string("2023-11-14T22:13:25Z"));
    assert_true(strstr(buf_cstr(&text), "\"timestamp\":\"2023-11-14T22:13:25") != NULL);
    assert_true(json_equal(got, want));
    json_decref(got);
    json_decref(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_is_what_was_used_since_the_last_look),
        cmocka_unit_test(counters_that_begin_anew_give_nothing_negative),
        cmocka_unit_test(nothing_is_over_what_there_is),
        cmocka_unit_test(a_frozen_one_has_no_samples_and_its_pause_does_not_count),
        cmocka_unit_test(samples_survive_as_text),
        cmocka_unit_test(json_has_every_field),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
