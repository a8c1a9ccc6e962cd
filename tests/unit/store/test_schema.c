/* Migrations: steps run once and in order, after a copy; newer databases are refused. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/path.h"
#include "store/schema.h"

static char dir[64], path[96];

/* path_remove_tree wants a name in a folder. */
static int remove_dir(void)
{
    _cleanup_(closep) int tmp = open("/tmp", O_DIRECTORY | O_CLOEXEC);

    return path_remove_tree(tmp, dir + strlen("/tmp/"), NULL);
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/abx-schema-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(path, sizeof path, "%s/x.db", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return remove_dir();
}

static const char *const two[] = {
    "CREATE TABLE a (v TEXT); INSERT INTO a (v) VALUES ('one')",
    "ALTER TABLE a ADD COLUMN w TEXT; UPDATE a SET w = 'two'",
};
static const char *const broken[] = {
    "CREATE TABLE a (v TEXT); INSERT INTO a (v) VALUES ('one')",
    "ALTER TABLE a ADD COLUMN w TEXT; UPDATE nothing SET w = 'two'",
};

static int migrate(const char *const *sql, unsigned n, struct abx_err *err)
{
    struct db d = { 0 };
    struct schema_steps steps = { sql, n };
    int r = db_open(&d, path, false, err);

    if (r == 0)
        r = schema_migrate(&d, path, &steps, err);
    db_done(&d);
    return r;
}

/* Runs a query that has to give one row; copies its text. */
static bool ask(const char *file, const char *sql, char *to, size_t size)
{
    struct db d = { 0 };
    struct abx_err err = { 0 };
    sqlite3_stmt *s;
    bool ok = false;

    if (db_open(&d, file, false, &err) == 0) {
        s = db_bind(&d, 0, sql, &err, "");
        ok = s && db_step(&d, s, &err) == 1;
        if (ok)
            (void)snprintf(to, size, "%s", db_text(s, 0));
    }
    db_done(&d);
    return ok;
}

static void a_new_database_gets_all_steps_and_no_copy(void **state)
{
    struct abx_err err = { 0 };
    char text[32], copy[128];

    (void)state;
    assert_int_equal(migrate(two, 2, &err), 0);
    assert_true(ask(path, "SELECT w FROM a", text, sizeof text));
    assert_string_equal(text, "two");
    (void)snprintf(copy, sizeof copy, "%s.before-2", path);
    assert_int_equal(access(copy, F_OK), -1);
    assert_int_equal(migrate(two, 2, &err), 0);
}

static void an_older_one_is_copied_before_it_changes(void **state)
{
    struct abx_err err = { 0 };
    char text[32], copy[128];

    (void)state;
    assert_int_equal(migrate(two, 1, &err), 0);
    (void)snprintf(copy, sizeof copy, "%s.before-2", path);
    assert_int_equal(access(copy, F_OK), -1);
    assert_int_equal(migrate(two, 2, &err), 0);
    assert_true(ask(path, "SELECT w FROM a", text, sizeof text));
    assert_true(ask(copy, "SELECT v FROM a", text, sizeof text));
    assert_string_equal(text, "one");
    assert_false(ask(copy, "SELECT w FROM a", text, sizeof text));
    assert_true(ask(copy, "SELECT value FROM meta WHERE name = 'schema'", text, sizeof text));
    assert_string_equal(text, "1");
}

static void a_failing_step_leaves_the_old_version(void **state)
{
    struct abx_err err = { 0 };
    char text[32];

    (void)state;
    assert_int_equal(migrate(two, 1, &err), 0);
    assert_true(migrate(broken, 2, &err) < 0);
    assert_true(ask(path, "SELECT value FROM meta WHERE name = 'schema'", text, sizeof text));
    assert_string_equal(text, "1");
    assert_false(ask(path, "SELECT w FROM a", text, sizeof text));
    assert_int_equal(migrate(two, 2, &err), 0);
}

static void a_newer_one_is_refused_unchanged(void **state)
{
    struct abx_err err = { 0 };
    char text[32];

    (void)state;
    assert_int_equal(migrate(two, 2, &err), 0);
    assert_int_equal(migrate(two, 1, &err), ABX_FAILED_PRECONDITION);
    assert_true(ask(path, "SELECT value FROM meta WHERE name = 'schema'", text, sizeof text));
    assert_string_equal(text, "2");
}

static void the_real_steps_run(void **state)
{
    struct abx_err err = { 0 };
    char text[32];

    (void)state;
    assert_int_equal(migrate(schema_steps.sql, schema_steps.n, &err), 0);
    assert_true(ask(path, "SELECT COUNT(*) FROM sandboxes", text, sizeof text));
    assert_string_equal(text, "0");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_new_database_gets_all_steps_and_no_copy, setup, teardown),
        cmocka_unit_test_setup_teardown(an_older_one_is_copied_before_it_changes, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failing_step_leaves_the_old_version, setup, teardown),
        cmocka_unit_test_setup_teardown(a_newer_one_is_refused_unchanged, setup, teardown),
        cmocka_unit_test_setup_teardown(the_real_steps_run, setup, teardown),
    };

    return cmocka_run_group_tests_name("store_schema", tests, NULL, NULL);
}
