/* test_counters.c - shared blocks that outlive their writers, buckets, classes. */
#include "test.h"

#include <sys/mman.h>
#include <unistd.h>

#include "net/counters.h"

static void *map(int fd, size_t first, size_t n, bool is_writer)
{
    void *ret = NULL;
    struct abx_err err = { 0 };

    if (counters_map(fd, first, n, is_writer, &ret, &err) != 0)
        fail_msg("%s", err.msg);
    return ret;
}

static void totals_outlive_their_process_and_gauges_do_not(void **state)
{
    struct gateway_counters own = { 0 }, *first, *second;
    const struct gateway_counters *seen;
    int fd = -1;

    (void)state;
    assert_int_equal(counters_new(2, &fd, NULL), 0);
    seen = (const void *)((const uint8_t *)map(fd, 0, 2, false) + COUNTERS_BLOCK);
    first = gateway_counters_take(map(fd, 1, 1, true), &own);
    count_add(&first->connections_total, 5);
    count_add(&first->connections, 5);
    assert_int_equal(count_get(&seen->connections), 5);
    second = gateway_counters_take(map(fd, 1, 1, true), &own);
    count_add(&second->connections_total, 2);
    assert_int_equal(count_get(&seen->starts), 2);
    assert_int_equal(count_get(&seen->connections), 0);
    assert_int_equal(count_get(&seen->connections_total), 7);
    assert_int_equal(ftruncate(fd, 1), -1); /* a reader of less would be killed */
    (void)close(fd);
}

/* A process that writes one block has no other in its memory. */
static void one_block_is_mapped_alone(void **state)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t at, from, to;
    char line[512];
    bool is_found = false;
    FILE *maps;
    int fd = -1;

    (void)state;
    assert_int_equal(counters_new(3, &fd, NULL), 0);
    at = (uintptr_t)map(fd, 1, 1, true);
    maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) {
        char *end;

        from = strtoul(line, &end, 16);
        to = strtoul(end + 1, NULL, 16);
        if (at < from || at >= to)
            continue;
        is_found = true;
        assert_non_null(strstr(line, "abx-counters"));
        assert_int_equal(to - from, MAX(page, (size_t)COUNTERS_BLOCK));
    }
    (void)fclose(maps);
    assert_true(is_found);
    (void)close(fd);
}

static void a_foreign_layout_is_left_alone(void **state)
{
    union {
        struct gateway_counters block;
        uint64_t layout;
    } foreign = { .layout = 77 };
    struct gateway_counters own = { 0 };

    (void)state;
    assert_ptr_equal(gateway_counters_take(&foreign, &own), &own);
    assert_int_equal(foreign.block.starts, 0);
    assert_ptr_equal(gateway_counters_take(NULL, &own), &own);
    assert_int_equal(own.starts, 2);
}

static void durations_fall_into_the_bucket_of_their_bound(void **state)
{
    static const struct {
        int64_t ns;
        size_t bucket;
    } rows[] = {
        { -1, 0 },
        { 0, 0 },
        { 500000, 0 },
        { 501000, 1 },
        { 1000000, 1 },
        { INT64_C(30000000000), HISTOGRAM_BOUNDS - 1 },
        { INT64_C(30000001000), HISTOGRAM_BOUNDS },
        { INT64_MAX, HISTOGRAM_BOUNDS },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct histogram h = { 0 };

        histogram_add(&h, rows[i].ns);
        assert_int_equal(h.buckets[rows[i].bucket], 1);
        assert_int_equal(h.sum_us, rows[i].ns > 0 ? rows[i].ns / 1000 : 0);
    }
}

static void statuses_have_classes(void **state)
{
    (void)state;
    assert_int_equal(count_class_of(101), COUNT_CLASS_1XX);
    assert_int_equal(count_class_of(200), COUNT_CLASS_2XX);
    assert_int_equal(count_class_of(599), COUNT_CLASS_5XX);
    assert_int_equal(count_class_of(0), COUNT_CLASS_ABORTED);
    assert_int_equal(count_class_of(600), COUNT_CLASS_ABORTED);
    assert_int_equal(count_class_of(-1), COUNT_CLASS_ABORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(totals_outlive_their_process_and_gauges_do_not),
        cmocka_unit_test(one_block_is_mapped_alone),
        cmocka_unit_test(a_foreign_layout_is_left_alone),
        cmocka_unit_test(durations_fall_into_the_bucket_of_their_bound),
        cmocka_unit_test(statuses_have_classes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
