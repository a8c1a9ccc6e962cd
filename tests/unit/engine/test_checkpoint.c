/* test_checkpoint.c - what criu says of its version. The rest is for the system tests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/macro.h"
#include "engine/checkpoint.h"

static void versions_are_read(void **state)
{
    static const struct {
        const char *line;
        unsigned major, minor;
    } good[] = {
        { "Version: 4.2", 4, 2 },
        { "Version: 3.17.1", 3, 17 },
        { "Version: 4.1 (gitid v4.1-3-gabc)", 4, 1 },
        { "Version: 5", 5, 0 },
        { "Version: 10.12", 10, 12 },
    };
    static const char *const bad[] = { "",
                                       "4.2",
                                       "Version: ",
                                       "Version: x",
                                       "Version: 4.",
                                       "Version: .2",
                                       "Version: 99999",
                                       "version: 4.2" };
    unsigned major, minor;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        assert_true(checkpoint_version_parse(good[i].line, &major, &minor));
        assert_int_equal(major, good[i].major);
        assert_int_equal(minor, good[i].minor);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_false(checkpoint_version_parse(bad[i], &major, &minor));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_are_read),
    };

    return cmocka_run_group_tests_name("engine_checkpoint", tests, NULL, NULL);
}
