/* The table of sandboxes: finding while it grows and shrinks, order, and what an object keeps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "control/lifecycle_internal.h"

#define MANY 5000

static uv_loop_t loop;
static struct lifecycle lifecycle;

static int setup(void **state)
{
    (void)state;
    lifecycle = (struct lifecycle){ .opts.loop = &loop };
    return uv_loop_init(&loop) < 0 ? -1 : table_init(&lifecycle, NULL);
}

static int teardown(void **state)
{
    (void)state;
    while (lifecycle.first) {
        struct sandbox *sb = lifecycle.first;

        table_remove(&lifecycle, sb);
        sandbox_free_later(sb);
    }
    table_done(&lifecycle);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop);
}

static struct sandbox *add(const char *id)
{
    struct sandbox *sb = sandbox_new(&lifecycle, NULL);

    assert_non_null(sb);
    (void)snprintf(sb->id, sizeof sb->id, "%s", id);
    assert_int_equal(table_add(&lifecycle, sb, NULL), 0);
    return sb;
}

static void all_are_found_while_it_grows_and_shrinks(void **state)
{
    char id[SANDBOX_ID_SIZE];
    size_t n = 0;

    (void)state;
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(id, sizeof id, "i%d", i);
        (void)add(id);
    }
    assert_int_equal(lifecycle_count(&lifecycle), MANY);
    for (int i = 0; i < MANY; i += 2) {
        struct sandbox *sb;

        (void)snprintf(id, sizeof id, "i%d", i);
        sb = lifecycle_find(&lifecycle, id);
        assert_non_null(sb);
        assert_string_equal(sb->id, id);
        table_remove(&lifecycle, sb);
        sandbox_free_later(sb);
        assert_null(lifecycle_find(&lifecycle, id));
    }
    for (struct sandbox *sb = NULL; (sb = lifecycle_next(&lifecycle, sb)) != NULL; n++) {
        (void)snprintf(id, sizeof id, "i%zu", 2 * n + 1);
        assert_string_equal(sb->id, id);
        assert_ptr_equal(lifecycle_find(&lifecycle, id), sb);
    }
    assert_int_equal(n, MANY / 2);
}

static void an_id_is_there_once(void **state)
{
    struct sandbox *twin = sandbox_new(&lifecycle, NULL);
    struct abx_err err;

    (void)state;
    (void)add("ia");
    (void)snprintf(twin->id, sizeof twin->id, "ia");
    assert_int_equal(table_add(&lifecycle, twin, &err), ABX_ALREADY_EXISTS);
    sandbox_free_later(twin);
    assert_int_equal(lifecycle_count(&lifecycle), 1);
}

static void a_walk_goes_on_behind_one_that_left(void **state)
{
    struct sandbox *a, *b;
    uint64_t number;

    (void)state;
    a = add("ia");
    b = add("ib");
    number = a->number;
    assert_ptr_equal(lifecycle_after(&lifecycle, 0), a);
    table_remove(&lifecycle, a);
    sandbox_free_later(a);
    assert_ptr_equal(lifecycle_after(&lifecycle, number), b);
    assert_null(lifecycle_after(&lifecycle, b->number));
}

static void environments_are_copied_and_wiped(void **state)
{
    char name[] = "NAME", value[] = "value", empty[] = "";
    const struct driver_env envs[] = { { name, value }, { value, empty } };
    struct sandbox *sb = add("ia");

    (void)state;
    assert_int_equal(sandbox_keep_envs(sb, envs, 2, NULL), 0);
    memset(name, 'x', 4);
    memset(value, 'x', 5);
    assert_int_equal(sb->n_envs, 2);
    assert_string_equal(sb->envs[0].name, "NAME");
    assert_string_equal(sb->envs[0].value, "value");
    assert_string_equal(sb->envs[1].name, "value");
    assert_string_equal(sb->envs[1].value, "");
    sandbox_forget_envs(sb);
    assert_null(sb->envs);
    assert_int_equal(sb->n_envs, 0);
    sandbox_forget_envs(sb);
}

static void of_damaged_rows_is_taken_what_can_be_read(void **state)
{
    static const struct {
        const char *config, *digest, *team, *envs, *damage;
        bool has_lost_envs;
    } rows[] = {
        { "{\"metadata\":{}}", "d", "t", "{\"A\":\"b\"}", "", false },
        { "[]", "d", "t", "", "its config is", false },
        { "{", "d", "t", "", "its config is", false },
        { NULL, "d", "t", "", "its config is", false },
        { "{}", "\xff", "t", "", "its digest is", false },
        { "{}", "d", "a team with a name that is longer than any that there is", "",
          "its team_id is", false },
        { "{}", "d", "t", "{\"A\":1}", "", true },
        { "{}", "d", "t", "nonsense", "", true },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct store_sandbox row = { .id = "ia",
                                     .team = rows[i].team,
                                     .digest = rows[i].digest,
                                     .config = rows[i].config,
                                     .envs = rows[i].envs };
        struct sandbox *sb = sandbox_new(&lifecycle, NULL);

        assert_int_equal(sandbox_from_row(sb, &row, NULL), 0);
        assert_string_equal(sb->id, "ia");
        assert_int_equal(sb->damage[0] != '\0', rows[i].damage[0] != '\0');
        assert_non_null(strstr(sb->damage, rows[i].damage));
        assert_int_equal(sb->has_lost_envs, rows[i].has_lost_envs);
        assert_true(json_is_object(sb->config));
        sandbox_free_later(sb);
    }
}

static void a_row_without_id_is_refused(void **state)
{
    static const char *const ids[] = {
        NULL, "", "with blank", "\xff",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        struct store_sandbox row = { .id = ids[i], .config = "{}" };
        struct sandbox *sb = sandbox_new(&lifecycle, NULL);
        struct abx_err err;

        assert_int_equal(sandbox_from_row(sb, &row, &err), ABX_DATA_LOSS);
        sandbox_free_later(sb);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(all_are_found_while_it_grows_and_shrinks),  TEST(an_id_is_there_once),
        TEST(a_walk_goes_on_behind_one_that_left),       TEST(environments_are_copied_and_wiped),
        TEST(of_damaged_rows_is_taken_what_can_be_read), TEST(a_row_without_id_is_refused),
    };

    return cmocka_run_group_tests_name("control_sandbox_table", tests, NULL, NULL);
}
