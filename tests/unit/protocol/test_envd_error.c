/* Errors of envd and of the gateway: the tables of client.md 2.6 and e2b.md 3.1. */
#include "test.h"

#include "protocol/envd.h"

struct row {
    int status;
    const char *body;
    int code;
    enum abx_reason reason;
    bool is_coded;
    const char *message;
};

static const struct row rows[] = {
    /* Connect codes, whatever the status */
    { 404, "{\"code\":\"not_found\",\"message\":\"process with pid 7 not found\"}", ABX_NOT_FOUND,
      0, true, "process with pid 7 not found" },
    { 500, "{\"code\":\"already_exists\",\"message\":\"x\"}", ABX_ALREADY_EXISTS, 0, true, "x" },
    { 401, "{\"code\":\"unauthenticated\",\"message\":\"invalid username: 'x'\"}",
      ABX_UNAUTHENTICATED, 0, true, "invalid username: 'x'" },
    { 429, "{\"code\":\"resource_exhausted\",\"message\":\"busy\"}", ABX_RESOURCE_EXHAUSTED, 0,
      true, "busy" },
    { 507, "{\"code\":\"resource_exhausted\",\"message\":\"full\"}", ABX_RESOURCE_EXHAUSTED,
      ABX_REASON_DISK_FULL, true, "full" },
    { 500, "{\"code\":\"brand_new\",\"message\":\"m\"}", ABX_UNKNOWN, 0, true, "m" },
    { 503, "{\"code\":\"unavailable\"}", ABX_UNAVAILABLE, 0, true, "unavailable" },
    /* an integer code is meant more than the status */
    { 500, "{\"code\":404,\"message\":\"path 'x' does not exist\"}", ABX_NOT_FOUND, 0, false,
      "path 'x' does not exist" },
    { 403, "{\"code\":1234,\"message\":\"m\"}", ABX_PERMISSION_DENIED, 0, false, "m" },
    { 400, "{\"message\":\"m\"}", ABX_INVALID_ARGUMENT, 0, false, "m" },
    /* the gateway */
    { 502, "{\"sandboxId\":\"i1\",\"message\":\"The sandbox was not found\",\"code\":502}",
      ABX_UNAVAILABLE, ABX_REASON_SANDBOX_GONE, false, "The sandbox was not found" },
    { 502,
      "{\"sandboxId\":\"i1\",\"message\":\"The sandbox is running but port is not "
      "open\",\"port\":49983,\"code\":502}",
      ABX_UNAVAILABLE, ABX_REASON_PORT_CLOSED, false, NULL },
    { 502, "The sandbox was not found", ABX_UNAVAILABLE, ABX_REASON_SANDBOX_GONE, false, NULL },
    { 502, "<html>bad gateway</html>", ABX_UNAVAILABLE, ABX_REASON_UPSTREAM, false,
      "<html>bad gateway</html>" },
    { 404, "The sandbox was not found", ABX_NOT_FOUND, 0, false, NULL },
    /* text and nothing, by status */
    { 400, "bad", ABX_INVALID_ARGUMENT, 0, false, "bad" },
    { 401, "", ABX_UNAUTHENTICATED, 0, false, "HTTP status 401" },
    { 403, "", ABX_PERMISSION_DENIED, 0, false, NULL },
    { 404, " \r\n", ABX_NOT_FOUND, 0, false, "HTTP status 404" },
    { 405, "", ABX_UNIMPLEMENTED, ABX_REASON_METHOD, false, NULL },
    { 409, "", ABX_ALREADY_EXISTS, ABX_REASON_CONFLICT, false, NULL },
    { 413, "", ABX_RESOURCE_EXHAUSTED, ABX_REASON_TOO_LARGE, false, NULL },
    { 429, "", ABX_RESOURCE_EXHAUSTED, ABX_REASON_RATE_LIMITED, false, NULL },
    { 499, "", ABX_CANCELED, 0, false, NULL },
    { 500, "\xff\xfe", ABX_INTERNAL, 0, false, "HTTP status 500" },
    { 501, "", ABX_UNIMPLEMENTED, 0, false, NULL },
    { 503, "", ABX_UNAVAILABLE, ABX_REASON_BUSY, false, NULL },
    { 504, "", ABX_DEADLINE_EXCEEDED, 0, false, NULL },
    { 505, "", ABX_UNIMPLEMENTED, 0, false, NULL },
    { 507, "not enough disk space available", ABX_RESOURCE_EXHAUSTED, ABX_REASON_DISK_FULL, false,
      "not enough disk space available" },
    { 302, "", ABX_UNKNOWN, 0, false, "HTTP status 302" },
    { 500, "[1]", ABX_INTERNAL, 0, false, "[1]" },
    { 500, "{\"code\":\"", ABX_INTERNAL, 0, false, "{\"code\":\"" },
};

static void answers_map_by_the_tables(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct row *row = &rows[i];
        struct abx_err err = { 0 };
        bool is_coded = !row->is_coded;
        int r = envd_error_from_answer(row->status, slice_str(row->body), &is_coded, &err);

        if (r != row->code || err.code != row->code || err.reason != row->reason ||
            is_coded != row->is_coded || (row->message && strcmp(err.msg, row->message) != 0))
            fail_msg("row %zu (%d %s): %d %d %d '%s'", i, row->status, row->body, r,
                     (int)err.reason, is_coded, err.msg);
        assert_int_equal(envd_error_from_answer(row->status, slice_str(row->body), NULL, NULL), r);
    }
}

static void long_texts_are_cut_between_characters(void **state)
{
    char body[1200];
    struct abx_err err = { 0 };

    for (size_t i = 0; i < sizeof body; i += 3)
        memcpy(body + i, "\xe2\x82\xac", 3);
    (void)envd_error_from_answer(500, slice_of(body, sizeof body), NULL, &err);
    assert_int_equal(strlen(err.msg), 399);
}

static void end_messages(void **state)
{
    static const struct {
        const char *text;
        int code;
        bool is_malformed;
    } ends[] = {
        { "{}", 0, false },
        { "{\"metadata\":{}}", 0, false },
        { "{\"error\":null}", 0, false },
        { "{\"error\":{\"code\":\"deadline_exceeded\",\"message\":\"x\"}}", ABX_DEADLINE_EXCEEDED,
          false },
        { "{\"error\":{\"code\":\"odd\"}}", ABX_UNKNOWN, false },
        { "{\"error\":{\"message\":\"x\"}}", ABX_INTERNAL, true },
        { "{\"error\":1}", ABX_INTERNAL, true },
        { "[]", ABX_INTERNAL, true },
        { "{", ABX_INTERNAL, true },
    };

    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        struct abx_err err = { 0 };
        bool is_malformed = false;

        assert_int_equal(envd_error_from_end(slice_str(ends[i].text), &is_malformed, &err),
                         ends[i].code);
        assert_int_equal(err.code, ends[i].code);
        assert_int_equal(is_malformed, ends[i].is_malformed);
        assert_int_equal(err.reason, is_malformed ? ABX_REASON_PROTOCOL : ABX_REASON_NONE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_map_by_the_tables),
        cmocka_unit_test(long_texts_are_cut_between_characters),
        cmocka_unit_test(end_messages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
