/* JSON documents behind the gate. */
#include "test.h"

#include "e2b/jsondoc.h"

static void documents_round_trip(void **state)
{
    static const struct {
        const char *in, *want;
    } rows[] = {
        { "{}", "{}" },
        { " [ 1 , 2.5 , true , null , \"a\" ] ", "[1,2.5,true,null,\"a\"]" },
        { "{\"z\":1,\"a\":{\"b\":[]}}", "{\"z\":1,\"a\":{\"b\":[]}}" },
        { "\"x\"", "\"x\"" },
        { "null", "null" },
        { "[9223372036854775807,-9223372036854775808]",
          "[9223372036854775807,-9223372036854775808]" },
        { "[0.1,1e21]", "[0.1,1e21]" },
        { "\"\\u00e4\\ud83d\\ude00\\n\"", "\"\xc3\xa4\xf0\x9f\x98\x80\\n\"" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_(json_unrefp) json_t *doc = NULL;
        _cleanup_(buf_done) struct buf b = BUF_INIT(4096);
        struct abx_err err = { 0 };

        if (jsondoc_parse(slice_str(rows[i].in), &doc, &err) < 0)
            fail_msg("%s: %s", rows[i].in, err.msg);
        assert_int_equal(jsondoc_dump(doc, &b), BUF_OK);
        test_text(rows[i].in, buf_cstr(&b), rows[i].want);
    }
}

static void errors_say_where(void **state)
{
    static const struct {
        const char *in, *want;
    } rows[] = {
        { "", "line 1, column 1: expected a value" },
        { "{\n  \"a\": 1,\n  \"b\" 2\n}", "line 3, column 7: expected ':'" },
        { "[1,]", "line 1, column 4: expected a value" },
        { "{\"a\":1,\"a\":2}", "line 1, column 11: duplicate object key near '\"a\"'" },
        { "[18446744073709551616]",
          "line 1, column 22: too big integer near '18446744073709551616'" },
        { "[1e999]", "line 1, column 7: real number overflow near '1e999'" },
        { "\"\\u0000\"", "line 1, column 2: NUL in a string" },
        { "[\"\xff\"]", "line 1, column 3: string is not UTF-8" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        json_t *doc = NULL;
        struct abx_err err = { 0 };

        assert_int_equal(jsondoc_parse(slice_str(rows[i].in), &doc, &err), ABX_INVALID_ARGUMENT);
        test_text(rows[i].in, err.msg, rows[i].want);
        assert_null(doc);
    }
}

static void limits(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(4 << 20);
    struct abx_err err = { 0 };
    json_t *doc = NULL;

    (void)buf_append_str(&b, "[0");
    for (size_t i = 2; i < JSONDOC_VALUES_MAX; i++)
        (void)buf_append_str(&b, ",0");
    (void)buf_append_str(&b, "]");
    assert_int_equal(jsondoc_parse(buf_slice(&b), &doc, &err), 0);
    json_decref(doc);
    buf_truncate(&b, b.len - 1);
    (void)buf_append_str(&b, ",0]");
    assert_int_equal(jsondoc_parse(buf_slice(&b), &doc, &err), ABX_INVALID_ARGUMENT);
    assert_non_null(strstr(err.msg, "over 50000 values"));
    while (b.len < JSONDOC_SIZE_MAX)
        (void)buf_append_byte(&b, ' ');
    assert_int_equal(jsondoc_parse(buf_slice(&b), &doc, &err), ABX_INVALID_ARGUMENT);
    (void)buf_append_byte(&b, ' ');
    assert_int_equal(jsondoc_parse(buf_slice(&b), &doc, &err), ABX_RESOURCE_EXHAUSTED);
    assert_int_equal(err_http_status(&err), 413);
}

static void full_buffer_gets_nothing(void **state)
{
    _cleanup_(json_unrefp) json_t *doc = json_pack("{s:s,s:[i,i]}", "key", "value", "k", 1, 2);
    _cleanup_(buf_done) struct buf b = BUF_INIT(20);

    assert_int_equal(buf_append_str(&b, "x"), BUF_OK);
    assert_int_equal(jsondoc_dump(doc, &b), BUF_LIMIT);
    assert_int_equal(b.len, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_round_trip),
        cmocka_unit_test(errors_say_where),
        cmocka_unit_test(limits),
        cmocka_unit_test(full_buffer_gets_nothing),
    };

    return cmocka_run_group_tests_name("jsondoc", tests, NULL, NULL);
}
