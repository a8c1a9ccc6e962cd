/* Filters, order and pages of the lists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/str.h"
#include "control/listing.h"

static struct sandbox make(const char *id, int64_t started_ms, const char *metadata)
{
    struct sandbox sb = { .state = SANDBOX_RUNNING, .started_ms = started_ms };

    (void)snprintf(sb.id, sizeof sb.id, "%s", id);
    (void)snprintf(sb.template_id, sizeof sb.template_id, "tpl1");
    sb.config = json_pack("{s:o}", "metadata", json_loads(metadata, 0, NULL));
    return sb;
}

static bool matches(const char *query, const struct sandbox *sb)
{
    _cleanup_(list_filter_done) struct list_filter f;
    struct abx_err err = { 0 };

    if (list_filter_parse(slice_str(query), true, &f, &err) != 0)
        fail_msg("%s: %s", query, err.msg);
    return list_filter_matches(&f, sb, f.template_text[0] ? "tpl1" : NULL);
}

static void metadata_has_three_layers_of_encoding(void **state)
{
    static const struct {
        const char *query;
        bool matches;
    } rows[] = {
        /* As both SDKs send {"a b":"c&d","x":"ü"}. */
        { "metadata=a%252520b%3Dc%252526d%26x%3D%2525C3%2525BC", true },
        { "metadata=a%252520b%3Dc%252526d", true },
        { "metadata=x%3D%2525C3%2525BC", true },
        { "metadata=x%3D%2525C3", false },
        { "metadata=plus%3D1%25252B1", true },
        { "metadata=plus%3D1%2B1", false }, /* a '+' under the outer layers is a space */
        { "metadata=eq%3Da%25253Db", true },
        { "metadata=empty%3D", true },
        { "metadata=nokey%3D", false },
        /* By hand, with fewer layers. */
        { "metadata=k%3Dv", true },
        { "metadata=k=v", true },
        { "metadata=k=w", false },
        { "metadata=k%3Dv%26x%3Dno", false },
        { "metadata=", true },
        { "", true },
    };
    struct sandbox sb = make("i1", 1000,
                             "{\"a b\":\"c&d\",\"x\":\"\xc3\xbc\",\"k\":\"v\",\"plus\":\"1+1\","
                             "\"eq\":\"a=b\",\"empty\":\"\"}");

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (matches(rows[i].query, &sb) != rows[i].matches)
            fail_msg("%s", rows[i].query);
    json_decref(sb.config);
}

static void state_template_and_start_are_filtered(void **state)
{
    static const struct {
        const char *query;
        bool matches;
    } rows[] = {
        { "state=running", true },
        { "state=paused", false },
        { "state=paused,running", true },
        { "state=paused%2Crunning", true },
        { "state=paused&state=running", true },
        { "status=running", true },
        { "status=stopped", false },
        { "template=anything", true },
        { "startedAfter=1970-01-01T00:00:01Z", true },
        { "startedAfter=1970-01-01T00:00:01.000000Z", true },
        { "startedAfter=1970-01-01T00:00:01.000001Z", false },
        { "startedAfter=1970-01-01T01:00:01%2B01:00", true },
        { "unknown=1&limit=5", true },
    };
    struct sandbox sb = make("i1", 1000, "{}");

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (matches(rows[i].query, &sb) != rows[i].matches)
            fail_msg("%s", rows[i].query);
    (void)snprintf(sb.template_id, sizeof sb.template_id, "tpl2");
    assert_false(matches("template=anything", &sb));
    sb.state = SANDBOX_KILLING;
    assert_false(matches("", &sb));
    sb.state = SANDBOX_COMMITTING;
    assert_false(matches("state=running", &sb));
    json_decref(sb.config);
}

static void malformed_queries_are_refused(void **state)
{
    static const char *const bad[] = {
        "limit=0",
        "limit=101",
        "limit=",
        "limit=x",
        "limit=-1",
        "offset=-1",
        "order=up",
        "order=",
        "state=odd",
        "state=running,,paused",
        "startedAfter=",
        "startedAfter=yesterday",
        "template=",
        "template=a:b",
        "template=a%3Ab",
        "nextToken=%%%",
        "nextToken=xyz",
        "nextToken=AAAA",
        "metadata=a",
        "metadata=a%3Db%26c",
        "metadata=%25zz%3D1",
        "metadata=a%3D%2525zz",
        "metadata=a%3D1&metadata=b%3D2",
        "a=%zz",
        "limit=1%00",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        _cleanup_(list_filter_done) struct list_filter f;
        struct abx_err err = { 0 };

        if (list_filter_parse(slice_str(bad[i]), true, &f, &err) != ABX_INVALID_ARGUMENT)
            fail_msg("%s", bad[i]);
    }
}

static void the_first_version_has_other_limits(void **state)
{
    _cleanup_(list_filter_done) struct list_filter a, b, c;
    struct abx_err err;

    (void)state;
    assert_int_equal(list_filter_parse(slice_str(""), false, &a, &err), 0);
    assert_int_equal(a.limit, 0);
    assert_int_equal(list_filter_parse(slice_str("limit=1000"), false, &b, &err), 0);
    assert_int_equal(b.limit, 1000);
    assert_int_equal(list_filter_parse(slice_str(""), true, &c, &err), 0);
    assert_int_equal(c.limit, 100);
}

static void the_order_is_newest_first_then_by_id(void **state)
{
    struct sandbox old = { .started_ms = 1, .id = "ia" }, new = { .started_ms = 2, .id = "ia" },
                   twin = { .started_ms = 2, .id = "ib" };

    (void)state;
    assert_true(list_compare(&new, &old, false) < 0);
    assert_true(list_compare(&new, &old, true) > 0);
    assert_true(list_compare(&new, &twin, false) < 0);
    assert_true(list_compare(&new, &twin, true) < 0);
    assert_int_equal(list_compare(&new, &new, false), 0);
}

/* Parses the token of `last` and says whether `sb` comes after it. */
static bool after(const struct sandbox *last, const struct sandbox *sb, bool is_ascending)
{
    _cleanup_(list_filter_done) struct list_filter f;
    _cleanup_(buf_done) struct buf query = BUF_INIT(512);
    struct abx_err err = { 0 };

    assert_int_equal(buf_printf(&query, "%snextToken=", is_ascending ? "order=asc&" : ""), BUF_OK);
    assert_int_equal(list_token(&query, last, is_ascending), BUF_OK);
    if (list_filter_parse(buf_slice(&query), true, &f, &err) != 0)
        fail_msg("%s: %s", buf_cstr(&query), err.msg);
    return list_is_after_token(&f, sb);
}

static void tokens_name_a_place_in_the_order(void **state)
{
    struct sandbox rows[] = {
        { .started_ms = 1700000000123, .id = "ib" },
        { .started_ms = 1700000000123, .id = "ic" },
        { .started_ms = 1700000000122, .id = "ia" },
    };

    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 3; k++) {
            assert_int_equal(after(&rows[i], &rows[k], false), k > i);
            assert_int_equal(after(&rows[i], &rows[k], true),
                             list_compare(&rows[i], &rows[k], true) < 0);
        }
}

static void a_token_of_the_other_order_is_refused(void **state)
{
    struct sandbox sb = { .started_ms = 5, .id = "ia" };
    _cleanup_(buf_done) struct buf query = BUF_INIT(512);
    _cleanup_(list_filter_done) struct list_filter f;
    struct abx_err err = { 0 };

    (void)state;
    assert_int_equal(buf_append_str(&query, "nextToken="), BUF_OK);
    assert_int_equal(list_token(&query, &sb, true), BUF_OK);
    assert_int_equal(list_filter_parse(buf_slice(&query), true, &f, &err), ABX_INVALID_ARGUMENT);
    assert_string_equal(err.msg, "Invalid next token");
}

static void tokens_are_as_documented(void **state)
{
    struct sandbox sb = { .started_ms = 0, .id = "iabc" };
    _cleanup_(buf_done) struct buf token = BUF_INIT(512), text = BUF_INIT(512);

    (void)state;
    assert_int_equal(list_token(&token, &sb, true), BUF_OK);
    assert_true(base64_decode(&text, buf_slice(&token)));
    assert_string_equal(buf_cstr(&text), "1970-01-01T00:00:00.000Z__iabc__asc");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(metadata_has_three_layers_of_encoding),
        cmocka_unit_test(state_template_and_start_are_filtered),
        cmocka_unit_test(malformed_queries_are_refused),
        cmocka_unit_test(the_first_version_has_other_limits),
        cmocka_unit_test(the_order_is_newest_first_then_by_id),
        cmocka_unit_test(tokens_name_a_place_in_the_order),
        cmocka_unit_test(a_token_of_the_other_order_is_refused),
        cmocka_unit_test(tokens_are_as_documented),
    };

    return cmocka_run_group_tests_name("control_listing", tests, NULL, NULL);
}
