/* test_pins.c - which names an address came from. */
#include "test.h"

#include "egress/pins.h"

static struct in6_addr ip_of(unsigned i)
{
    struct in6_addr ip = { .s6_addr = { [10] = 0xff, [11] = 0xff, [12] = 1 } };

    ip.s6_addr[14] = (uint8_t)(i >> 8);
    ip.s6_addr[15] = (uint8_t)i;
    return ip;
}

static bool is_b(void *user, const char *name)
{
    (void)user;
    return strcmp(name, "b.org") == 0;
}

static void pins_are_found_until_they_end(void **state)
{
    struct in6_addr one = ip_of(1), two = ip_of(2);
    struct pins p = { 0 };

    (void)state;
    assert_false(pins_has(&p, &one, "a.org", 0));
    pins_put(&p, &one, "a.org", 100);
    pins_put(&p, &one, "b.org", 50);
    assert_true(pins_has(&p, &one, "a.org", 100));
    assert_false(pins_has(&p, &one, "a.org", 101));
    assert_false(pins_has(&p, &two, "a.org", 0));
    assert_false(pins_has(&p, &one, "c.org", 0));
    assert_string_equal(pins_find(&p, &one, 0, is_b, NULL), "b.org");
    assert_null(pins_find(&p, &one, 60, is_b, NULL));
    assert_null(pins_find(&p, &two, 0, is_b, NULL));
    pins_put(&p, &one, "b.org", 200);
    pins_put(&p, &one, "b.org", 10); /* never shorter */
    assert_true(pins_has(&p, &one, "b.org", 200));
    assert_int_equal(p.n, 2);
    pins_done(&p);
}

static void the_oldest_go_first(void **state)
{
    struct pins p = { 0 };
    struct in6_addr ip;

    (void)state;
    for (unsigned i = 0; i < PINS_MAX + 10; i++) {
        ip = ip_of(i);
        pins_put(&p, &ip, "a.org", 1000 + i);
    }
    assert_int_equal(p.n, PINS_MAX);
    ip = ip_of(9);
    assert_false(pins_has(&p, &ip, "a.org", 0));
    ip = ip_of(10);
    assert_true(pins_has(&p, &ip, "a.org", 0));
    pins_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pins_are_found_until_they_end),
        cmocka_unit_test(the_oldest_go_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
