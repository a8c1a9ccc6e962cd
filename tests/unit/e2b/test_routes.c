/* The control plane's routes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "e2b/routes.h"

static void requests_find_their_route(void **state)
{
    static const struct {
        const char *method, *path;
        enum e2b_route route;
        const char *param;
    } rows[] = {
        { "GET", "/health", ROUTE_HEALTH, NULL },
        { "GET", "/abx/v1/info", ROUTE_INFO, NULL },
        { "GET", "/abx/v1/metrics", ROUTE_SERVICE_METRICS, NULL },
        { "POST", "/sandboxes", ROUTE_SANDBOX_CREATE, NULL },
        { "POST", "/sandboxes/", ROUTE_SANDBOX_CREATE, NULL },
        { "POST", "/v2/sandboxes", ROUTE_SANDBOX_CREATE_V2, NULL },
        { "GET", "/v2/sandboxes", ROUTE_SANDBOX_LIST_V2, NULL },
        { "GET", "/sandboxes", ROUTE_SANDBOX_LIST, NULL },
        { "GET", "/sandboxes/iabc", ROUTE_SANDBOX_GET, "iabc" },
        { "GET", "/sandboxes/metrics", ROUTE_SANDBOXES_METRICS, NULL },
        { "DELETE", "/sandboxes/iabc-x", ROUTE_SANDBOX_KILL, "iabc-x" },
        { "POST", "/sandboxes/iabc/connect", ROUTE_SANDBOX_CONNECT, "iabc" },
        { "POST", "/v2/sandboxes/iabc/connect", ROUTE_SANDBOX_CONNECT_V2, "iabc" },
        { "POST", "/sandboxes/iabc/timeout", ROUTE_SANDBOX_TIMEOUT, "iabc" },
        { "POST", "/sandboxes/iabc/refreshes", ROUTE_SANDBOX_REFRESH, "iabc" },
        { "POST", "/sandboxes/iabc/pause", ROUTE_SANDBOX_PAUSE, "iabc" },
        { "DELETE", "/templates/team%2Fx%3Adefault", ROUTE_TEMPLATE_DELETE, "team%2Fx%3Adefault" },
        { "GET", "/templates/aliases/ns%2Fmy", ROUTE_UNBUILT, "ns%2Fmy" },
        { "PUT", "/sandboxes", ROUTE_METHOD, NULL },
        { "PATCH", "/sandboxes/iabc", ROUTE_METHOD, NULL },
        { "GET", "/sandboxes/iabc/connect", ROUTE_METHOD, NULL },
        { "GET", "/", ROUTE_NONE, NULL },
        { "GET", "", ROUTE_NONE, NULL },
        { "GET", "health", ROUTE_NONE, NULL },
        { "GET", "/sandboxes//connect", ROUTE_NONE, NULL },
        { "GET", "/sandboxes/a/b/c", ROUTE_NONE, NULL },
        { "GET", "/a/b/c/d/e/f/g/h/i/j", ROUTE_NONE, NULL },
        { "get", "/health", ROUTE_METHOD, NULL },
        { "GET", "/v4/sandboxes", ROUTE_NONE, NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct route_match m;

        route_find(slice_str(rows[i].method), slice_str(rows[i].path), &m);
        assert_int_equal(m.route, rows[i].route);
        if (rows[i].param) {
            assert_true(m.n_params >= 1);
            assert_true(slice_eq_str(m.params[0], rows[i].param));
        }
    }
}

static void a_wrong_method_names_the_right_ones(void **state)
{
    struct route_match m;

    (void)state;
    route_find(slice_str("PUT"), slice_str("/sandboxes"), &m);
    assert_string_equal(m.allow, "POST, GET");
    route_find(slice_str("PUT"), slice_str("/sandboxes/metrics"), &m);
    assert_string_equal(m.allow, "GET, DELETE");
}

static void two_parameters_come_in_order(void **state)
{
    struct route_match m;

    (void)state;
    route_find(slice_str("GET"), slice_str("/templates/t1/builds/b2/status"), &m);
    assert_int_equal(m.route, ROUTE_UNBUILT);
    assert_int_equal(m.n_params, 2);
    assert_true(slice_eq_str(m.params[0], "t1"));
    assert_true(slice_eq_str(m.params[1], "b2"));
}

static void control_paths_are_recognised_by_their_first_segment(void **state)
{
    static const char *const yes[] = { "/sandboxes", "/sandboxes/x", "/v2/x",    "/v3/templates",
                                       "/templates", "/volumes/a",   "/secrets", "/snapshots" };
    static const char *const no[] = {
        "", "/", "/files", "/health", "/process.Process/Start", "/v2x", "/sandboxes.x", "sandboxes"
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
        assert_true(route_is_control(slice_str(yes[i])));
    for (size_t i = 0; i < ARRAY_SIZE(no); i++)
        assert_false(route_is_control(slice_str(no[i])));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_find_their_route),
        cmocka_unit_test(a_wrong_method_names_the_right_ones),
        cmocka_unit_test(two_parameters_come_in_order),
        cmocka_unit_test(control_paths_are_recognised_by_their_first_segment),
    };

    return cmocka_run_group_tests_name("e2b_routes", tests, NULL, NULL);
}
