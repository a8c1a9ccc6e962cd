/* Template references. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "e2b/names.h"

static void references_are_parsed(void **state)
{
    static const struct {
        const char *in, *ns, *alias, *tag;
    } rows[] = {
        { "base", "", "base", "" },
        { "  Base\n", "", "base", "" },
        { "base:default", "", "base", "default" },
        { "team/My-Tpl_1:v1.2", "team", "my-tpl_1", "v1.2" },
        { "", NULL, NULL, NULL },
        { "   ", NULL, NULL, NULL },
        { "a b", NULL, NULL, NULL },
        { "a.b", NULL, NULL, NULL },
        { "a:", NULL, NULL, NULL },
        { ":a", NULL, NULL, NULL },
        { "/a", NULL, NULL, NULL },
        { "a/", NULL, NULL, NULL },
        { "a/b/c", NULL, NULL, NULL },
        { "a:b:c", NULL, NULL, NULL },
        { "\xc3\xbc", NULL, NULL, NULL },
        { "a:123e4567-e89b-12d3-a456-426614174000", NULL, NULL, NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct template_ref r;
        const char *wrong = template_ref_parse(slice_str(rows[i].in), &r);

        if (!rows[i].alias) {
            assert_non_null(wrong);
            continue;
        }
        assert_null(wrong);
        assert_string_equal(r.namespace_, rows[i].ns);
        assert_string_equal(r.alias, rows[i].alias);
        assert_string_equal(r.tag, rows[i].tag);
    }
}

static void a_part_of_129_characters_is_too_long(void **state)
{
    char text[130];
    struct template_ref r;

    (void)state;
    memset(text, 'a', 129);
    text[129] = '\0';
    assert_non_null(template_ref_parse(slice_str(text), &r));
    text[128] = '\0';
    assert_null(template_ref_parse(slice_str(text), &r));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(references_are_parsed),
        cmocka_unit_test(a_part_of_129_characters_is_too_long),
    };

    return cmocka_run_group_tests_name("e2b_names", tests, NULL, NULL);
}
