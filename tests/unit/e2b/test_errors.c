/* Error bodies, byte for byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "e2b/errors.h"

static void bodies_are_exact(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(4096);
    struct abx_err err;

    (void)state;
    assert_int_equal(e2b_error_body(&b, 404, "a \"b\" \\ \n \x01"), BUF_OK);
    assert_string_equal(buf_cstr(&b),
                        "{\"code\":404,\"message\":\"a \\\"b\\\" \\\\ \\n \\u0001\"}");
    buf_reset(&b);
    assert_int_equal(e2b_sandbox_gone_body(&b, "iabc"), BUF_OK);
    assert_string_equal(
        buf_cstr(&b),
        "{\"sandboxId\":\"iabc\",\"message\":\"The sandbox was not found\",\"code\":502}");
    buf_reset(&b);
    assert_int_equal(e2b_port_closed_body(&b, "iabc", 3000), BUF_OK);
    assert_string_equal(buf_cstr(&b),
                        "{\"sandboxId\":\"iabc\",\"message\":\"The sandbox is running "
                        "but port is not open\",\"port\":3000,\"code\":502}");
    buf_reset(&b);
    (void)err_reason(&err, ABX_REASON_CONFLICT, "no");
    assert_int_equal(e2b_error_body_from(&b, &err), BUF_OK);
    assert_string_equal(buf_cstr(&b), "{\"code\":409,\"message\":\"no\"}");
}

static void bytes_that_are_not_utf8_are_replaced(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(256);

    (void)state;
    assert_int_equal(json_string_put(&b, slice_str("\xc3\xbc\xff\xe2\x82\xac\xe2\x82")), BUF_OK);
    assert_string_equal(buf_cstr(&b),
                        "\"\xc3\xbc\xef\xbf\xbd\xe2\x82\xac\xef\xbf\xbd\xef\xbf\xbd\"");
}

static void a_full_buffer_is_reported(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(20);

    (void)state;
    assert_int_equal(e2b_error_body(&b, 404, "too long for it"), BUF_LIMIT);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_are_exact),
        cmocka_unit_test(bytes_that_are_not_utf8_are_replaced),
        cmocka_unit_test(a_full_buffer_is_reported),
    };

    return cmocka_run_group_tests_name("e2b_errors", tests, NULL, NULL);
}
