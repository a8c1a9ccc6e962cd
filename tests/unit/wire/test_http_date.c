/* test_http_date.c - IMF-fixdate, both ways. */
#include "test.h"

#include "base/str.h"
#include "wire/http_date.h"

static void dates_come_back(void **state)
{
    static const struct {
        time_t t;
        const char *text;
    } rows[] = {
        { 0, "Thu, 01 Jan 1970 00:00:00 GMT" },
        { 784111777, "Sun, 06 Nov 1994 08:49:37 GMT" },
        { 951782400, "Tue, 29 Feb 2000 00:00:00 GMT" },
        { -1, "Wed, 31 Dec 1969 23:59:59 GMT" },
        { 253402300799, "Fri, 31 Dec 9999 23:59:59 GMT" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char text[HTTP_DATE_SIZE];
        time_t t = 1;

        http_date_format(rows[i].t, text);
        test_text(rows[i].text, text, rows[i].text);
        assert_true(http_date_parse(slice_str(text), &t));
        assert_int_equal(t, rows[i].t);
    }
}

static void a_year_of_five_digits_has_no_text(void **state)
{
    char text[HTTP_DATE_SIZE] = "x";

    (void)state;
    http_date_format(253402300800, text);
    assert_string_equal(text, "");
}

static void only_that_form_is_taken(void **state)
{
    static const char *const bad[] = {
        "",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "Mon, 06 Nov 1994 08:49:37 GMT", /* it was a Sunday */
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 31 Feb 1994 08:49:37 GMT",
        "Thu, 30 Feb 1995 08:49:37 GMT",
        "Sun,  6 Nov 1994 08:49:37 GMT",
        "sun, 06 nov 1994 08:49:37 gmt",
        "Sun, 06 Nov 1994 24:49:37 GMT",
        "Sun, 06 Nov 1994 08:60:37 GMT",
        "Sun, 06 Nov 1994 08:49:60 GMT",
        "Sun, 06 Nov 1994 08:49:-1 GMT",
        "Sun, 06 Nov 1994 08-49-37 GMT",
        "Sun, 06 Xxx 1994 08:49:37 GMT",
        "Sun, 06 Nov +994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 GMTx",
    };
    time_t t = 5;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (http_date_parse(slice_str(bad[i]), &t))
            fail_msg("'%s' was taken", bad[i]);
    assert_int_equal(t, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dates_come_back),
        cmocka_unit_test(a_year_of_five_digits_has_no_text),
        cmocka_unit_test(only_that_form_is_taken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
