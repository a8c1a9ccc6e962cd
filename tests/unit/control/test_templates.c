/* Names, ids and builds of templates, with a driver whose listings the test gives. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/path.h"
#include "control/templates.h"

static char dir[64], team[UUID_SIZE];
static uv_loop_t loop;
static struct store *store;
static struct templates *templates;
static driver_templates_fn asked;
static void *asked_user;
static char asked_after[64];

static int fake_templates(struct driver *d, const char *after, driver_templates_fn done, void *user,
                          struct abx_err *err)
{
    (void)d;
    (void)err;
    asked = done;
    asked_user = user;
    (void)snprintf(asked_after, sizeof asked_after, "%s", after);
    return 0;
}

static const struct driver_ops ops = { .templates = fake_templates };
static struct driver driver = { &ops };

static void open_all(void)
{
    struct abx_err err = { 0 };

    assert_int_equal(store_open(&loop, dir, &store, &err), 0);
    assert_int_equal(store_team_ensure(store, "default", "t1", team, sizeof team, &err), 0);
    assert_int_equal(templates_new(store, team, "default", &templates, &err), 0);
    templates_set_driver(templates, &driver);
}

static void close_all(void)
{
    templates_free(templates);
    store_close(store);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/abx-templates-XXXXXX");
    if (!mkdtemp(dir) || uv_loop_init(&loop) < 0)
        return -1;
    open_all();
    return 0;
}

static int teardown(void **state)
{
    _cleanup_(closep) int tmp = open("/tmp", O_DIRECTORY | O_CLOEXEC);

    (void)state;
    close_all();
    if (uv_loop_close(&loop) < 0)
        return -1;
    return path_remove_tree(tmp, dir + strlen("/tmp/"), NULL);
}

static void on_refreshed(void *user, const struct abx_err *failure)
{
    *(int *)user = failure ? failure->code : 1;
}

static void answer(const struct driver_template *rows, size_t n, bool has_more)
{
    driver_templates_fn done = asked;

    assert_non_null(done);
    asked = NULL;
    done(asked_user, rows, n, has_more, NULL);
}

static void refresh(const struct driver_template *rows, size_t n)
{
    struct abx_err err = { 0 };
    int result = 0;

    assert_int_equal(templates_refresh(templates, on_refreshed, &result, &err), 0);
    answer(rows, n, false);
    assert_int_equal(result, 1);
}

/* The entry of a reference, or NULL with the code in *ret. */
static const struct template_entry *resolve(const char *text, int *ret)
{
    const struct template_entry *e = NULL;
    struct abx_err err = { 0 };

    *ret = templates_resolve(templates, slice_str(text), &e, &err);
    return *ret == 0 ? e : NULL;
}

static void every_form_of_reference_finds_it(void **state)
{
    static const struct driver_template base = { "base", "d-1", 5, 100, "bookworm" };
    const struct template_entry *e;
    char id[24];
    int r;
    static const struct {
        const char *text;
        int code;
    } rows[] = {
        { "base", 0 },
        { " BASE ", 0 },
        { "base:default", 0 },
        { "default/base", 0 },
        { "default/base:default", 0 },
        { "d-1", 0 },
        { "other/base", ABX_NOT_FOUND },
        { "base:v1", ABX_NOT_FOUND },
        { "nope", ABX_NOT_FOUND },
        { "d-2", ABX_NOT_FOUND },
        { "a b", ABX_INVALID_ARGUMENT },
        { "", ABX_INVALID_ARGUMENT },
    };

    (void)state;
    refresh(&base, 1);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        e = resolve(rows[i].text, &r);
        assert_int_equal(r, rows[i].code);
        assert_int_equal(e != NULL, rows[i].code == 0);
    }
    e = resolve("base", &r);
    assert_int_equal(strlen(e->id), 20);
    assert_true(uuid_is_valid(slice_str(e->build_id)));
    assert_string_equal(e->digest, "d-1");
    assert_string_equal(e->suite, "bookworm");
    (void)snprintf(id, sizeof id, "%s", e->id);
    assert_non_null(resolve(id, &r));
    assert_string_equal(templates_find_id(templates, slice_str("base")), id);
    assert_null(templates_find_id(templates, slice_str("nope")));
}

static void texts_of_refusals_are_e2bs(void **state)
{
    static const struct driver_template base = { "base", "d-1", 5, 100, "" };
    const struct template_entry *e;
    struct abx_err err;

    (void)state;
    refresh(&base, 1);
    (void)templates_resolve(templates, slice_str("Nope"), &e, &err);
    assert_string_equal(err.msg, "template 'nope' not found");
    (void)templates_resolve(templates, slice_str("base:v1"), &e, &err);
    assert_string_equal(err.msg, "tag 'v1' does not exist for template 'base'");
    (void)templates_resolve(templates, slice_str("a/b/c"), &e, &err);
    assert_memory_equal(err.msg, "Invalid template reference: ", 28);
}

static void ids_survive_rebuilds_and_restarts(void **state)
{
    static const struct driver_template first = { "base", "d-1", 5, 100, "" },
                                        second = { "base", "d-2", 6, 100, "" };
    const struct template_entry *e;
    char id[24], build[UUID_SIZE];
    int r;

    (void)state;
    refresh(&first, 1);
    e = resolve("base", &r);
    (void)snprintf(id, sizeof id, "%s", e->id);
    (void)snprintf(build, sizeof build, "%s", e->build_id);
    refresh(&second, 1);
    e = resolve("base", &r);
    assert_string_equal(e->id, id);
    assert_string_equal(e->digest, "d-2");
    assert_string_not_equal(e->build_id, build);
    assert_null(resolve("d-1", &r));
    close_all();
    open_all();
    e = resolve("base", &r);
    assert_string_equal(e->id, id);
    assert_string_equal(e->digest, "d-2");
    refresh(&first, 1);
    e = resolve("base", &r);
    assert_string_equal(e->build_id, build);
    close_all();
    open_all();
    assert_string_equal(resolve("base", &r)->build_id, build);
}

static void of_several_builds_the_newest_has_the_name(void **state)
{
    static const struct driver_template rows[] = {
        { "base", "d-old", 5, 1, "" },
        { "base", "d-new", 9, 2, "" },
        { "base", "d-mid", 7, 3, "" },
    };
    const struct template_entry *e;
    int r;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        refresh(rows, 3);
        assert_string_equal(resolve("base", &r)->digest, "d-new");
        e = resolve("d-old", &r);
        assert_string_equal(e->digest, "d-old");
        assert_string_equal(e->id, resolve("base", &r)->id);
        assert_string_equal(resolve("d-mid", &r)->digest, "d-mid");
        assert_string_equal(resolve(e->id, &r)->digest, "d-new");
    }
    assert_int_equal(templates_count(templates), 3);
}

static void what_is_no_longer_listed_is_gone(void **state)
{
    static const struct driver_template rows[] = { { "a", "d-1", 5, 1, "" },
                                                   { "b", "d-2", 5, 1, "" } };
    int r;

    (void)state;
    refresh(rows, 2);
    assert_non_null(resolve("a", &r));
    refresh(rows + 1, 1);
    assert_null(resolve("a", &r));
    assert_int_equal(r, ABX_NOT_FOUND);
    assert_non_null(resolve("b", &r));
    refresh(rows, 2);
    assert_non_null(resolve("a", &r));
}

static void pages_are_one_listing(void **state)
{
    static const struct driver_template a = { "a", "d-1", 5, 1, "" }, b = { "b", "d-2", 5, 1, "" };
    struct abx_err err = { 0 };
    int result = 0, second = 0, r;

    (void)state;
    assert_int_equal(templates_refresh(templates, on_refreshed, &result, &err), 0);
    /* Who asks meanwhile waits for the same answer. */
    assert_int_equal(templates_refresh(templates, on_refreshed, &second, &err), 0);
    answer(&a, 1, true);
    assert_string_equal(asked_after, "a");
    assert_int_equal(result, 0);
    answer(&b, 1, false);
    assert_int_equal(result, 1);
    assert_int_equal(second, 1);
    assert_non_null(resolve("a", &r));
    assert_non_null(resolve("b", &r));
}

static void a_failed_question_changes_nothing(void **state)
{
    static const struct driver_template a = { "a", "d-1", 5, 1, "" };
    struct abx_err err = { 0 }, failure;
    int result = 0, r;

    (void)state;
    refresh(&a, 1);
    assert_int_equal(templates_refresh(templates, on_refreshed, &result, &err), 0);
    (void)err_set(&failure, ABX_UNAVAILABLE, "gone");
    asked(asked_user, NULL, 0, false, &failure);
    assert_int_equal(result, ABX_UNAVAILABLE);
    assert_non_null(resolve("a", &r));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(every_form_of_reference_finds_it),  TEST(texts_of_refusals_are_e2bs),
        TEST(ids_survive_rebuilds_and_restarts), TEST(of_several_builds_the_newest_has_the_name),
        TEST(what_is_no_longer_listed_is_gone),  TEST(pages_are_one_listing),
        TEST(a_failed_question_changes_nothing),
    };

    return cmocka_run_group_tests_name("control_templates", tests, NULL, NULL);
}
