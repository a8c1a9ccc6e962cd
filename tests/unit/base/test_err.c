/* Codes, reasons and messages of errors. */
#include "test.h"

#include "base/err.h"

static void codes_follow_the_connect_table(void **state)
{
    static const struct {
        int code;
        const char *name;
        int http;
    } rows[] = {
        { ABX_CANCELED, "canceled", 499 },
        { ABX_UNKNOWN, "unknown", 500 },
        { ABX_INVALID_ARGUMENT, "invalid_argument", 400 },
        { ABX_DEADLINE_EXCEEDED, "deadline_exceeded", 504 },
        { ABX_NOT_FOUND, "not_found", 404 },
        { ABX_ALREADY_EXISTS, "already_exists", 409 },
        { ABX_PERMISSION_DENIED, "permission_denied", 403 },
        { ABX_RESOURCE_EXHAUSTED, "resource_exhausted", 429 },
        { ABX_FAILED_PRECONDITION, "failed_precondition", 400 },
        { ABX_ABORTED, "aborted", 409 },
        { ABX_OUT_OF_RANGE, "out_of_range", 400 },
        { ABX_UNIMPLEMENTED, "unimplemented", 501 },
        { ABX_INTERNAL, "internal", 500 },
        { ABX_UNAVAILABLE, "unavailable", 503 },
        { ABX_DATA_LOSS, "data_loss", 500 },
        { ABX_UNAUTHENTICATED, "unauthenticated", 401 },
    };

    static const int exits[] = { 1, 1, 2, 5, 4, 1, 3, 6, 1, 1, 2, 1, 1, 1, 1, 3 };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct abx_err err;

        assert_int_equal(rows[i].code, -1001 - (int)i);
        assert_string_equal(err_code_name(rows[i].code), rows[i].name);
        assert_int_equal(err_code_from_name(rows[i].name), rows[i].code);
        assert_int_equal(err_code_http_status(rows[i].code), rows[i].http);
        assert_int_equal(err_set(&err, rows[i].code, "x"), rows[i].code);
        assert_int_equal(err_http_status(&err), rows[i].http);
        assert_int_equal(err_exit_status(&err), exits[i]);
    }
    assert_string_equal(err_code_name(-1), "unknown");
    assert_string_equal(err_code_name(-1000), "unknown");
    assert_string_equal(err_code_name(-1017), "unknown");
    assert_string_equal(err_code_name(1), "unknown");
    assert_string_equal(err_code_name(INT32_MIN), "unknown");
    assert_int_equal(err_code_from_name("ok"), ABX_UNKNOWN);
    assert_int_equal(err_code_from_name("NOT_FOUND"), ABX_UNKNOWN);
}

static void every_reason_has_a_row(void **state)
{
    for (int r = ABX_REASON_NONE + 1; r < ABX_REASON_COUNT_; r++) {
        struct abx_err err;
        int code = err_reason(&err, (enum abx_reason)r, "%d", r);

        assert_true(code <= ABX_CANCELED && code >= ABX_UNAUTHENTICATED);
        assert_int_equal(err.code, code);
        assert_int_equal(err.reason, r);
        assert_true(err_http_status(&err) >= 400 && err_http_status(&err) < 600);
    }
}

static void errno_is_mapped_and_kept(void **state)
{
    static const struct {
        int sys, code;
    } rows[] = {
        { ENOENT, ABX_NOT_FOUND },
        { EEXIST, ABX_ALREADY_EXISTS },
        { EACCES, ABX_PERMISSION_DENIED },
        { EINVAL, ABX_INVALID_ARGUMENT },
        { ENOSPC, ABX_RESOURCE_EXHAUSTED },
        { EDQUOT, ABX_RESOURCE_EXHAUSTED },
        { EBUSY, ABX_FAILED_PRECONDITION },
        { ETIMEDOUT, ABX_DEADLINE_EXCEEDED },
        { ENOSYS, ABX_UNIMPLEMENTED },
        { ECONNREFUSED, ABX_UNAVAILABLE },
        { EIO, ABX_INTERNAL },
        { 0, ABX_INTERNAL },
        { 100000, ABX_INTERNAL },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct abx_err err;

        assert_int_equal(err_sys(&err, rows[i].sys, "open '%s'", "x"), rows[i].code);
        assert_int_equal(err.sys, rows[i].sys);
        assert_int_equal(strncmp(err.msg, "open 'x': ", 10), 0);
        assert_true(strlen(err.msg) > 10);
        assert_int_equal(err.reason == ABX_REASON_DISK_FULL,
                         rows[i].sys == ENOSPC || rows[i].sys == EDQUOT);
        assert_int_equal(err_sys(NULL, rows[i].sys, "x"), rows[i].code);
    }
    for (int sys = 1; sys < 200; sys++)
        assert_true(err_code_from_errno(sys) < 0);
}

static void wrap_prefixes(void **state)
{
    struct abx_err err;

    (void)err_sys(&err, ENOENT, "open 'y'");
    assert_int_equal(err_wrap(&err, err.code, "template '%s'", "x"), ABX_NOT_FOUND);
    assert_string_equal(err.msg, "template 'x': open 'y': No such file or directory");
    assert_int_equal(err.sys, ENOENT);
    assert_int_equal(err_wrap(NULL, -7, "x"), -7);
}

/* Setting an error from its own message is natural to write, so it works. */
static void message_may_be_its_own_argument(void **state)
{
    struct abx_err err;

    (void)err_set(&err, ABX_INTERNAL, "first");
    (void)err_set(&err, ABX_INTERNAL, "second after %s", err.msg);
    assert_string_equal(err.msg, "second after first");
    (void)err_wrap(&err, err.code, "about %s", err.msg);
    assert_string_equal(err.msg, "about second after first: second after first");
}

static void long_messages_are_cut(void **state)
{
    char text[2 * ABX_ERR_MSG_MAX];
    struct abx_err err;

    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    (void)err_set(&err, ABX_INTERNAL, "%s", text);
    assert_int_equal(strlen(err.msg), ABX_ERR_MSG_MAX - 1);
    (void)err_wrap(&err, err.code, "b");
    assert_int_equal(strlen(err.msg), ABX_ERR_MSG_MAX - 1);
    assert_int_equal(strncmp(err.msg, "b: aaa", 6), 0);
    (void)err_sys(&err, ENOENT, "%s", text);
    assert_int_equal(strlen(err.msg), ABX_ERR_MSG_MAX - 1);
    for (size_t n = ABX_ERR_MSG_MAX - 4; n < ABX_ERR_MSG_MAX + 2; n++) {
        text[n] = '\0';
        (void)err_sys(&err, ENOENT, "%s", text);
        assert_int_equal(strlen(err.msg), ABX_ERR_MSG_MAX - 1);
        text[n] = 'a';
    }
}

static void later_errors_forget_earlier_ones(void **state)
{
    struct abx_err err;

    (void)err_sys(&err, ENOSPC, "x");
    (void)err_set(&err, ABX_INTERNAL, "y");
    assert_int_equal(err.reason, ABX_REASON_NONE);
    assert_int_equal(err.sys, 0);
    assert_int_equal(err_oom(&err), ABX_RESOURCE_EXHAUSTED);
    assert_string_equal(err.msg, "out of memory");
    assert_int_equal(err_oom(NULL), ABX_RESOURCE_EXHAUSTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_follow_the_connect_table),
        cmocka_unit_test(every_reason_has_a_row),
        cmocka_unit_test(errno_is_mapped_and_kept),
        cmocka_unit_test(wrap_prefixes),
        cmocka_unit_test(message_may_be_its_own_argument),
        cmocka_unit_test(long_messages_are_cut),
        cmocka_unit_test(later_errors_forget_earlier_ones),
    };

    return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
