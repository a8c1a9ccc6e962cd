/* Sandbox ids and UUIDs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "e2b/ids.h"

static void new_ids_have_the_documented_form_and_differ(void **state)
{
    char a[SANDBOX_ID_SIZE], b[SANDBOX_ID_SIZE];

    (void)state;
    for (int i = 0; i < 1000; i++) {
        sandbox_id_new(a);
        sandbox_id_new(b);
        assert_int_equal(strlen(a), 21);
        assert_int_equal(a[0], 'i');
        assert_int_equal(strspn(a, "abcdefghijklmnopqrstuvwxyz0123456789"), 21);
        assert_string_not_equal(a, b);
    }
}

static void random_ids_use_every_character(void **state)
{
    char text[4001];
    size_t seen[256] = { 0 };

    (void)state;
    id_random(text, sizeof text - 1);
    for (size_t i = 0; i < sizeof text - 1; i++)
        seen[(uint8_t)text[i]]++;
    for (const char *c = "abcdefghijklmnopqrstuvwxyz0123456789"; *c; c++) {
        assert_true(seen[(uint8_t)*c] > 40);
        assert_true(seen[(uint8_t)*c] < 250);
    }
}

static void parse_drops_the_client_id_and_refuses_other_bytes(void **state)
{
    static const struct {
        const char *in, *out;
    } rows[] = {
        { "i62mff4ahtrdfdkyn2esc", "i62mff4ahtrdfdkyn2esc" },
        { "i62mff4ahtrdfdkyn2esc-6532622b", "i62mff4ahtrdfdkyn2esc" },
        { "abc-", "abc" },
        { "0", "0" },
        { "", NULL },
        { "-abc", NULL },
        { "ABC", NULL },
        { "a.b", NULL },
        { "a/b", NULL },
        { "a b", NULL },
        { "i\xc3\xbc", NULL },
        { "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeee12345", NULL },
        { "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeee1234",
          "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeee1234" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char id[SANDBOX_ID_SIZE];
        bool ok = sandbox_id_parse(slice_str(rows[i].in), id);

        assert_int_equal(ok, rows[i].out != NULL);
        if (ok)
            assert_string_equal(id, rows[i].out);
    }
    {
        char id[SANDBOX_ID_SIZE];

        assert_false(sandbox_id_parse(slice_of("a\0b", 3), id));
    }
}

static void uuids_are_version_4_and_checked(void **state)
{
    char a[UUID_SIZE];

    (void)state;
    uuid_new(a);
    assert_true(uuid_is_valid(slice_str(a)));
    assert_int_equal(a[14], '4');
    assert_non_null(strchr("89ab", a[19]));
    assert_true(uuid_is_valid(slice_str("00000000-0000-0000-0000-00000000000F")));
    assert_false(uuid_is_valid(slice_str("00000000-0000-0000-0000-00000000000")));
    assert_false(uuid_is_valid(slice_str("00000000-0000-0000-0000-00000000000g")));
    assert_false(uuid_is_valid(slice_str("00000000000000-00-0000-00000000000000")));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_ids_have_the_documented_form_and_differ),
        cmocka_unit_test(random_ids_use_every_character),
        cmocka_unit_test(parse_drops_the_client_id_and_refuses_other_bytes),
        cmocka_unit_test(uuids_are_version_4_and_checked),
    };

    return cmocka_run_group_tests_name("e2b_ids", tests, NULL, NULL);
}
