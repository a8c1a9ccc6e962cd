/* json_scan: what is JSON, and the limits. */
#include "test.h"

#include "wire/json.h"
#include "wire/json_lex.h"

static void texts(void **state)
{
    static const struct {
        const char *text;
        const char *error; /* NULL = fine */
        size_t offset;
    } rows[] = {
        { "{}", NULL, 0 },
        { " \t\r\n[ ] \n", NULL, 0 },
        { "null", NULL, 0 },
        { "true", NULL, 0 },
        { "false", NULL, 0 },
        { "\"\"", NULL, 0 },
        { "{\"a\":[1,-0,0.5,1e9,1E+9,-1.25e-3,{}],\"b\":null}", NULL, 0 },
        { "{\"a\" : 1 , \"a\" : 2}", NULL, 0 },
        { "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e4\\ud83d\\ude00\"", NULL, 0 },
        { "\"\x7f\xc3\xa4\xf4\x8f\xbf\xbf\"", NULL, 0 },
        { "123456789012345678901234567890", NULL, 0 },
        { "", "expected a value", 0 },
        { " ", "expected a value", 1 },
        { "\xef\xbb\xbf{}", "unexpected character", 0 },
        { "{", "expected a key in quotes", 1 },
        { "[", "expected a value", 1 },
        { "[1", "expected ',' or ']'", 2 },
        { "[1,", "expected a value", 3 },
        { "[1,]", "expected a value", 3 },
        { "[,1]", "expected a value", 1 },
        { "[1 2]", "expected ',' or ']'", 3 },
        { "[1}", "expected ',' or ']'", 2 },
        { "]", "expected a value", 0 },
        { "{\"a\"}", "expected ':'", 4 },
        { "{\"a\":}", "expected a value", 5 },
        { "{\"a\":1,}", "expected a key in quotes", 7 },
        { "{,}", "expected a key in quotes", 1 },
        { "{a:1}", "unexpected character", 1 },
        { "{'a':1}", "unexpected character", 1 },
        { "{1:1}", "expected a key in quotes", 1 },
        { "{\"a\":1]", "expected ',' or '}'", 6 },
        { "{} {}", "more text behind the value", 3 },
        { "1 x", "unexpected character", 2 },
        { "truex", "unexpected character", 4 },
        { "tru", "unexpected character", 0 },
        { "trux", "unexpected character", 0 },
        { "nuls", "unexpected character", 0 },
        { "falsy", "unexpected character", 0 },
        { "True", "unexpected character", 0 },
        { "NaN", "unexpected character", 0 },
        { "-Infinity", "malformed number", 0 },
        { "01", "malformed number", 0 },
        { "-", "malformed number", 0 },
        { "-01", "malformed number", 0 },
        { "+1", "unexpected character", 0 },
        { ".5", "unexpected character", 0 },
        { "1.", "malformed number", 0 },
        { "1.e5", "malformed number", 0 },
        { "1e", "malformed number", 0 },
        { "1e+", "malformed number", 0 },
        { "0x10", "unexpected character", 1 },
        { "1_0", "unexpected character", 1 },
        { "/* */1", "unexpected character", 0 },
        { "\"", "string without an end", 0 },
        { "\"abc", "string without an end", 0 },
        { "\"\\", "string without an end", 0 },
        { "\"\\\"", "string without an end", 0 },
        { "\"\\x41\"", "unknown escape in a string", 1 },
        { "\"a\\u12\"", "\\u needs four hex digits", 2 },
        { "\"\\u123g\"", "\\u needs four hex digits", 1 },
        { "\"\\u0000\"", "NUL in a string", 1 },
        { "\"\\ud800\"", "lone surrogate in a string", 1 },
        { "\"\\udc00\\ud800\"", "lone surrogate in a string", 1 },
        { "\"\\ud800\\ud800\"", "lone surrogate in a string", 1 },
        { "\"\\ud800\\ux000\"", "lone surrogate in a string", 1 },
        { "\"\\ud800\\ue000\"", "lone surrogate in a string", 1 },
        { "\"\\udc00\\udc00\"", "lone surrogate in a string", 1 },
        { "\"\\ud800x\"", "lone surrogate in a string", 1 },
        { "\"\\ud800\\n12345\"", "lone surrogate in a string", 1 },
        { "\"a\nb\"", "control character in a string", 2 },
        { "\"0123456789\x1f\"", "control character in a string", 11 },
        { "\"\xff\"", "string is not UTF-8", 1 },
        { "\"\xc0\x80\"", "string is not UTF-8", 1 },
        { "\"\xed\xa0\x80\"", "string is not UTF-8", 1 },
        { "\"01234567\xc3\"", "string is not UTF-8", 9 },
        { "\xc2\xa0", "unexpected character", 0 },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        size_t n = strlen(rows[i].text);
        uint8_t *copy = test_exact(slice_of(rows[i].text, n));
        struct rpc_error e = { 0 };

        assert_int_equal(json_scan(slice_of(copy, n), 64, 1000, &e), rows[i].error == NULL);
        test_text(rows[i].text, e.text, rows[i].error ? rows[i].error : "");
        assert_int_equal(e.offset, rows[i].offset);
        assert_int_equal(json_scan(slice_of(copy, n), 64, 1000, NULL), rows[i].error == NULL);
        free(copy);
    }
    assert_false(json_scan(slice_of("1\0", 2), 64, 10, NULL));
    assert_false(json_scan(slice_of("\"\0\"", 3), 64, 10, NULL));
    assert_false(json_scan(slice_of(NULL, 0), 64, 10, NULL));
}

/* Nested `n` deep with the given brackets. */
static bool scan_nested(size_t n, const char *open, const char *close, unsigned depth_max)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);

    for (size_t i = 0; i < n; i++)
        (void)buf_append_str(&b, open);
    (void)buf_append_str(&b, "1");
    for (size_t i = 0; i < n; i++)
        (void)buf_append_str(&b, close);
    return json_scan(buf_slice(&b), depth_max, 100000, NULL);
}

static void depth_is_limited(void **state)
{
    assert_true(scan_nested(64, "[", "]", 64));
    assert_false(scan_nested(65, "[", "]", 64));
    assert_true(scan_nested(64, "{\"a\":", "}", 64));
    assert_false(scan_nested(65, "{\"a\":", "}", 64));
    assert_true(scan_nested(32, "{\"a\":[", "]}", 64));
    assert_false(scan_nested(33, "{\"a\":[", "]}", 64));
    assert_true(scan_nested(3, "[", "]", 3));
    assert_false(scan_nested(4, "[", "]", 3));
    assert_false(scan_nested(65, "[", "]", 1000)); /* never over 64 */
    assert_false(scan_nested(100000, "[", "]", 64));
}

static void brackets_match_at_every_level(void **state)
{
    assert_true(json_scan(SLICE_LIT("[{\"a\":[{}]},[[]]]"), 64, 100, NULL));
    assert_false(json_scan(SLICE_LIT("[{\"a\":[{}}],[[]]]"), 64, 100, NULL));
    assert_false(json_scan(SLICE_LIT("[{\"a\":[{]]},[[]]]"), 64, 100, NULL));
    assert_true(json_scan(SLICE_LIT("[[],[],{},{\"a\":[]}]"), 64, 100, NULL));
}

static void values_are_counted(void **state)
{
    struct rpc_error e;

    assert_true(json_scan(SLICE_LIT("[1,{\"a\":2},3]"), 64, 5, NULL));
    assert_false(json_scan(SLICE_LIT("[1,{\"a\":2},3]"), 64, 4, &e));
    assert_string_equal(e.text, "over 4 values");
    assert_false(json_scan(SLICE_LIT("1"), 64, 0, NULL));
}

static void unescaping(void **state)
{
    static const struct {
        const char *raw, *want;
    } rows[] = {
        { "", "" },
        { "abc", "abc" },
        { "\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t" },
        { "x\\u0041\\u00e4\\u20acy", "xA\xc3\xa4\xe2\x82\xacy" },
        { "\\u007f\\u0080\\ud800\\udc00", "\x7f\xc2\x80\xf0\x90\x80\x80" },
        { "\\u07ff\\u0800\\uffff", "\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf" },
        { "\\ud83d\\ude00\\uDBFF\\uDFFF", "\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf" },
        { "\\\\u0041", "\\u0041" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct slice raw = slice_str(rows[i].raw);
        uint8_t *to = malloc(raw.n + 1);

        assert_non_null(to);
        to[json_unescape(raw, to)] = '\0';
        test_text(rows[i].raw, (const char *)to, rows[i].want);
        free(to);
    }
}

static void members(void **state)
{
    static const struct {
        const char *json, *want; /* NULL = refused */
    } rows[] = {
        { "{\"type\":\"a\"}", "a" },
        { " { \"x\" : [1,{\"type\":\"in\"}] , \"type\" : \"b c\" } ", "b c" },
        { "{\"type\":\"first\",\"type\":\"second\"}", "first" },
        { "{\"type\":1}", "" },
        { "{\"type\":\"\\u0061\"}", "" },
        { "{\"ty\\u0070e\":\"a\"}", "" },
        { "{}", "" },
        { "{\"type\":\"a\"", NULL },
        { "{\"type\":\"a\"}x", NULL },
        { "{\"type\":\"a\",}", NULL },
        { "{\"x\":[1,],\"type\":\"a\"}", NULL },
        { "[\"type\"]", NULL },
        { "\"type\"", NULL },
        { "", NULL },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint8_t *copy = test_exact(slice_str(rows[i].json));
        struct slice in = slice_of(copy, strlen(rows[i].json)), got = { 0 };

        assert_int_equal(json_scan_member(in, 64, 100, "type", &got, NULL), rows[i].want != NULL);
        if (rows[i].want)
            assert_true(slice_eq_str(got, rows[i].want));
        free(copy);
    }
    assert_false(
        json_scan_member(SLICE_LIT("{\"a\":[[]]}"), 2, 100, "a", &(struct slice){ 0 }, NULL));
    assert_true(json_scan_member(SLICE_LIT("{\"a\":[]}"), 2, 100, "a", &(struct slice){ 0 }, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(brackets_match_at_every_level),
        cmocka_unit_test(values_are_counted),
        cmocka_unit_test(unescaping),
        cmocka_unit_test(members),
    };

    return cmocka_run_group_tests_name("json_lex", tests, NULL, NULL);
}
