/* test_spec.c - the table of commands is one that the parser, the completion and the manual can follow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/macro.h"
#include "cli/spec.h"

static void options_are_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < OPT_COUNT; i++) {
        const struct spec_option *o = &spec_options[i];

        assert_non_null(o->name);
        assert_non_null(o->help);
        assert_true((o->kind == SPEC_FLAG) == (o->value == NULL));
        assert_true((o->kind == SPEC_NUMBER) == (o->max > 0));
        assert_int_not_equal(o->help[strlen(o->help) - 1], '.');
    }
}

static void options_of_a_command_are_told_apart(void **state)
{
    const struct spec_command *c;

    (void)state;
    for (size_t i = 0; (c = spec_at(i)) != NULL; i++) {
        uint64_t set = spec_options_of(c);

        for (size_t a = 0; a < OPT_COUNT; a++)
            for (size_t b = 0; b < a; b++) {
                if (!(set & SPEC_BIT(a)) || !(set & SPEC_BIT(b)))
                    continue;
                assert_string_not_equal(spec_options[a].name, spec_options[b].name);
                if (spec_options[a].letter)
                    assert_int_not_equal(spec_options[a].letter, spec_options[b].letter);
            }
    }
}

static void commands_are_found_by_every_name(void **state)
{
    const struct spec_command *c;
    int n;

    (void)state;
    for (size_t i = 0; (c = spec_at(i)) != NULL; i++) {
        char name[64], *blank, *words[3] = { name, NULL, NULL };
        int count = 1;

        (void)strncpy(name, c->name, sizeof name - 1);
        name[sizeof name - 1] = '\0';
        blank = strchr(name, ' ');
        if (blank) {
            *blank = '\0';
            words[count++] = blank + 1;
        }
        assert_ptr_equal(spec_find(count, words, &n), c);
        assert_int_equal(n, count);
        assert_true(spec_has_word(name));
        for (size_t k = 0; k < ARRAY_SIZE(c->alias) && c->alias[k]; k++) {
            (void)strncpy(name, c->alias[k], sizeof name - 1);
            assert_ptr_equal(spec_find(1, words, &n), c);
            assert_int_equal(n, 1);
        }
        assert_true(c->min_args <= c->max_args && c->command_at <= c->min_args);
    }
}

static void short_names_behind_sandbox(void **state)
{
    char *words[] = { (char[]){ "sandbox" }, (char[]){ "ls" }, (char[]){ "run" } };
    const struct spec_command *c;
    int n = 0;

    (void)state;
    c = spec_find(3, words, &n);
    assert_non_null(c);
    assert_string_equal(c->name, "sandbox list");
    assert_int_equal(n, 2);
    words[1] = words[2];
    c = spec_find(2, words, &n);
    assert_non_null(c);
    assert_string_equal(c->name, "run");
    assert_int_equal(n, 2);
}

static void other_words_are_none(void **state)
{
    char sandbox[] = "sandbox", nothing[] = "nothing", sand[] = "sand";
    char *words[] = { sandbox, nothing, sand };
    int n;

    (void)state;
    assert_null(spec_find(0, words, &n));
    assert_null(spec_find(1, words, &n));
    assert_null(spec_find(2, words, &n));
    assert_null(spec_find(1, words + 2, &n));
    words[1] = sandbox;
    words[2] = (char[]){ "ls" };
    assert_null(spec_find(3, words, &n));
    assert_false(spec_has_word("sand"));
    assert_false(spec_has_word(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_whole),
        cmocka_unit_test(options_of_a_command_are_told_apart),
        cmocka_unit_test(commands_are_found_by_every_name),
        cmocka_unit_test(short_names_behind_sandbox),
        cmocka_unit_test(other_words_are_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
