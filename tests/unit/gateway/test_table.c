/* test_table.c - rows that come, change and go. */
#include "test.h"

#include "gateway/table.h"

static struct table table;

static int setup(void **state)
{
    (void)state;
    return table_init(&table, NULL);
}

static int teardown(void **state)
{
    (void)state;
    table_done(&table);
    return 0;
}

static int put(const char *id, Abx__Ipc__Entry__State s, const char *token, struct row **row)
{
    Abx__Ipc__Entry entry = ABX__IPC__ENTRY__INIT;

    entry.sandbox_id = (char *)(uintptr_t)id;
    entry.access_token = (char *)(uintptr_t)token;
    entry.state = s;
    return table_put(&table, &entry, row, NULL);
}

static void rows_are_found_and_changed(void **state)
{
    struct row *row = NULL, *again = NULL;

    (void)state;
    assert_null(table_find(&table, "ia"));
    assert_int_equal(put("ia", ABX__IPC__ENTRY__STATE__CREATING, "t1", &row), 0);
    assert_ptr_equal(table_find(&table, "ia"), row);
    assert_int_equal(row->state, ROW_CREATING);
    assert_string_equal(row->access_token, "t1");
    assert_string_equal(row->traffic_token, "");
    table.generation = 7;
    assert_int_equal(put("ia", ABX__IPC__ENTRY__STATE__RUNNING, "t2", &again), 0);
    assert_ptr_equal(again, row);
    assert_int_equal(row->state, ROW_RUNNING);
    assert_int_equal(row->generation, 7);
    assert_string_equal(row->access_token, "t2");
    assert_int_equal(table.n_rows, 1);
    table_take_out(&table, row);
    assert_null(table_find(&table, "ia"));
    assert_false(row->is_in_table);
    table_row_free(row);
}

static void states_that_are_not_known_are_not_served(void **state)
{
    struct row *row = NULL;

    (void)state;
    assert_int_equal(put("ia", (Abx__Ipc__Entry__State)99, "", &row), 0);
    assert_int_equal(row->state, ROW_CREATING);
    assert_int_equal(put("ia", ABX__IPC__ENTRY__STATE__STATE_UNSPECIFIED, "", &row), 0);
    assert_int_equal(row->state, ROW_CREATING);
}

static void bad_ids_are_refused(void **state)
{
    static const char *const bad[] = { "", "iA", "i-a", "i a", "../x" };
    struct row *row = NULL;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(put(bad[i], ABX__IPC__ENTRY__STATE__RUNNING, "", &row),
                         ABX_INVALID_ARGUMENT);
    assert_int_equal(table.n_rows, 0);
}

static bool take_odd(void *user, struct row *row)
{
    unsigned *n = user;

    (*n)++;
    if ((row->id[strlen(row->id) - 1] - '0') % 2 == 1) {
        table_take_out(&table, row);
        table_row_free(row);
    }
    return true;
}

static bool stop_at_third(void *user, struct row *row)
{
    unsigned *n = user;

    (void)row;
    return ++*n < 3;
}

static void many_rows_and_walks(void **state)
{
    struct row *row = NULL;
    unsigned n = 0;
    char id[32];

    (void)state;
    for (unsigned i = 0; i < 5000; i++) {
        (void)snprintf(id, sizeof(id), "i%u", i);
        assert_int_equal(put(id, ABX__IPC__ENTRY__STATE__RUNNING, id, &row), 0);
    }
    assert_true(table.n_buckets >= 4096);
    for (unsigned i = 0; i < 5000; i++) {
        (void)snprintf(id, sizeof(id), "i%u", i);
        assert_string_equal(table_find(&table, id)->access_token, id);
    }
    table_each(&table, stop_at_third, &n);
    assert_int_equal(n, 3);
    n = 0;
    table_each(&table, take_odd, &n);
    assert_int_equal(n, 5000);
    assert_int_equal(table.n_rows, 2500);
    assert_null(table_find(&table, "i4999"));
    assert_non_null(table_find(&table, "i4998"));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(rows_are_found_and_changed),
        T(states_that_are_not_known_are_not_served),
        T(bad_ids_are_refused),
        T(many_rows_and_walks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
