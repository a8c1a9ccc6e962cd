/* test_table.c - lookup, ids, pages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/table.h"

static int setup(void **state)
{
    return table_new((struct table **)state, NULL);
}

static int teardown(void **state)
{
    table_free(*state);
    return 0;
}

static struct sandbox *add(struct table *t, unsigned i, const char *id)
{
    struct sandbox *sb = NULL;
    char name[RECORD_NAME_SIZE];

    (void)snprintf(name, sizeof name, "s%012x", i);
    assert_int_equal(table_add(t, name, &sb, NULL), 0);
    if (id)
        assert_int_equal(table_set_id(t, sb, id, NULL), 0);
    return sb;
}

static void entries_are_found_by_name_and_by_id(void **state)
{
    struct table *t = *state;
    struct sandbox *a = add(t, 1, NULL), *b = add(t, 2, "ib"), *other = NULL;

    assert_ptr_equal(table_find(t, "s000000000001"), a);
    assert_ptr_equal(table_find_id(t, "ib"), b);
    assert_null(table_find_id(t, "ia"));
    assert_int_equal(a->pidfd, -EBADF);
    assert_int_equal(table_add(t, "s000000000002", &other, NULL), ABX_ALREADY_EXISTS);
    assert_int_equal(table_set_id(t, a, "ib", NULL), ABX_ALREADY_EXISTS);
    assert_int_equal(table_set_id(t, a, "", NULL), ABX_INVALID_ARGUMENT);
    assert_int_equal(table_set_id(t, b, "ic", NULL), ABX_INVALID_ARGUMENT); /* has one */
    assert_int_equal(table_set_id(t, a, "ia", NULL), 0);
    assert_int_equal(table_count(t), 2);
    table_remove(t, b);
    assert_null(table_find_id(t, "ib"));
    assert_null(table_find(t, "s000000000002"));
    assert_int_equal(table_count(t), 1);
}

static void too_long_an_id_is_refused(void **state)
{
    char id[RECORD_ID_SIZE + 1];
    struct sandbox *sb = add(*state, 1, NULL);

    memset(id, 'a', sizeof id);
    id[RECORD_ID_SIZE] = '\0';
    assert_int_equal(table_set_id(*state, sb, id, NULL), ABX_INVALID_ARGUMENT);
    id[RECORD_ID_SIZE - 1] = '\0';
    assert_int_equal(table_set_id(*state, sb, id, NULL), 0);
}

static void count(void *user)
{
    ++*(unsigned *)user;
}

static void who_waits_for_an_entry_is_dropped_with_it(void **state)
{
    struct sandbox *sb = add(*state, 1, NULL);
    unsigned n = 0;

    for (int i = 0; i < 3; i++) {
        struct waiter *w = calloc(1, sizeof *w);

        assert_non_null(w);
        *w = (struct waiter){ .next = sb->waiters, .drop = i > 0 ? count : NULL, .user = &n };
        sb->waiters = w;
    }
    table_remove(*state, sb);
    assert_int_equal(n, 2);
}

static void remove_if_odd(void *user, struct sandbox *sb)
{
    if (sb->record.pid % 2)
        table_remove(user, sb);
}

static void entries_may_be_removed_while_walking(void **state)
{
    struct table *t = *state;

    for (unsigned i = 0; i < 10000; i++)
        add(t, i, NULL)->record.pid = (pid_t)i;
    table_each(t, remove_if_odd, t);
    assert_int_equal(table_count(t), 5000);
    assert_null(table_find(t, "s000000000001"));
    assert_non_null(table_find(t, "s000000000002"));
}

static void pages_follow_each_other_without_gap(void **state)
{
    struct table *t = *state;
    const struct sandbox *page[7];
    char id[16], after[RECORD_ID_SIZE] = "";
    unsigned got = 0;
    bool more = true;

    for (unsigned i = 0; i < 100; i++) {
        (void)snprintf(id, sizeof id, "i%02u", (i * 37) % 100);
        add(t, i, i % 10 == 3 ? NULL : id); /* pooled ones are not listed */
    }
    while (more) {
        size_t n = table_page(t, after, page, 7, &more);

        assert_int_equal(n, more ? 7 : 90 % 7);
        for (size_t i = 0; i < n; i++, got++) {
            assert_true(strcmp(after, page[i]->record.sandbox_id) < 0);
            (void)snprintf(after, sizeof after, "%s", page[i]->record.sandbox_id);
        }
    }
    assert_int_equal(got, 90);
    table_find_id(t, "i98")->state = SANDBOX_REMOVING;
    assert_int_equal(table_page(t, "i97", page, 7, &more), 1);
    assert_string_equal(page[0]->record.sandbox_id, "i99");
    assert_int_equal(table_page(t, "i99", page, 7, &more), 0);
    assert_false(more);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(entries_are_found_by_name_and_by_id),       T(too_long_an_id_is_refused),
        T(who_waits_for_an_entry_is_dropped_with_it), T(entries_may_be_removed_while_walking),
        T(pages_follow_each_other_without_gap),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
