/* Tokens, signatures and API keys against vectors made with Python's hmac and hashlib. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "e2b/tokens.h"

static void tokens_match_the_vectors(void **state)
{
    uint8_t seed[TOKEN_SEED_SIZE];
    char token[TOKEN_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof seed; i++)
        seed[i] = (uint8_t)i;
    access_token_make(seed, "i0123456789abcdefghij", token);
    assert_string_equal(token, "337481f0625be9459e4cea37d5cbe9b2c5c72f5f03a3e0b29c3f40d7cd525215");
    traffic_token_make(seed, "i0123456789abcdefghij", token);
    assert_string_equal(token, "3d6e7719b67f9b1f198509e9067f6db4c7b6e11748676583701a7130d961188f");
}

static void signatures_match_the_vectors(void **state)
{
    char s[SIGNATURE_SIZE];

    (void)state;
    signature_make(slice_str("/home/user/a.txt"), "read", slice_str("user"), slice_str("tok"),
                   SIGNATURE_NO_EXPIRATION, s);
    assert_string_equal(s, "v1_p0WqJQYCLtO6YX+e4h7VbpybRsdJbMbIw7clYpulIJk");
    signature_make(slice_str("/home/user/\xc3\xbc.txt"), "write", slice_str(""), slice_str("tok"),
                   1700000000, s);
    assert_string_equal(s, "v1_XppZgn+hBN4rR5L3ecZv6Pgt9Ig3FJJexM+/v0swRdk");
}

static void api_keys_have_the_form_that_old_sdks_demand(void **state)
{
    char a[API_KEY_SIZE], b[API_KEY_SIZE], hash[TOKEN_SIZE];

    (void)state;
    api_key_new(a);
    api_key_new(b);
    assert_int_equal(strlen(a), 44);
    assert_string_not_equal(a, b);
    assert_true(api_key_is_valid(slice_str(a)));
    api_key_hash(slice_str("e2b_0000000000000000000000000000000000000000"), hash);
    assert_string_equal(hash, "6aa1fc737ae695d4574acd499f9ec1cc63a1d245f89b676451e5db329ce22c0c");
}

static void malformed_keys_are_refused(void **state)
{
    static const char *const bad[] = {
        "",      "e2b_",   "e2b",     "sk_e2b_00", "E2B_00",
        "e2b_0", "e2b_0g", "e2b_ 00", "e2b_00\n",  "anything",
    };
    char long_key[4 + 130 + 1] = "e2b_";

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_false(api_key_is_valid(slice_str(bad[i])));
    assert_true(api_key_is_valid(slice_str("e2b_aB")));
    memset(long_key + 4, 'a', 130);
    assert_false(api_key_is_valid(slice_str(long_key)));
    long_key[4 + 128] = '\0';
    assert_true(api_key_is_valid(slice_str(long_key)));
}

static void token_comparison_looks_at_length_and_bytes(void **state)
{
    (void)state;
    assert_true(token_equal(slice_str("abc"), slice_str("abc")));
    assert_true(token_equal(slice_str(""), slice_str("")));
    assert_false(token_equal(slice_str("abc"), slice_str("abd")));
    assert_false(token_equal(slice_str("abc"), slice_str("ab")));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_match_the_vectors),
        cmocka_unit_test(signatures_match_the_vectors),
        cmocka_unit_test(api_keys_have_the_form_that_old_sdks_demand),
        cmocka_unit_test(malformed_keys_are_refused),
        cmocka_unit_test(token_comparison_looks_at_length_and_bytes),
    };

    return cmocka_run_group_tests_name("e2b_tokens", tests, NULL, NULL);
}
