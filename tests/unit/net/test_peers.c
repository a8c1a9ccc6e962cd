/* test_peers.c - which connections count as one client's. */
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "net/peers.h"

static struct sockaddr_storage address(const char *text)
{
    struct sockaddr_storage a = { 0 };
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&a;
    struct sockaddr_in *in = (struct sockaddr_in *)&a;

    if (strchr(text, ':')) {
        a.ss_family = AF_INET6;
        assert_int_equal(inet_pton(AF_INET6, text, &in6->sin6_addr), 1);
    } else if (*text) {
        a.ss_family = AF_INET;
        assert_int_equal(inet_pton(AF_INET, text, &in->sin_addr), 1);
    } else {
        a.ss_family = AF_UNIX;
    }
    return a;
}

static bool enter(struct peers *p, const char *text, struct peer **ret)
{
    struct sockaddr_storage a = address(text);

    return peers_enter(p, &a, ret);
}

static void an_address_has_so_many_and_no_more(void **state)
{
    struct peers *p = peers_new(2);
    struct peer *a[2], *other, *refused;

    (void)state;
    assert_true(enter(p, "10.0.0.1", &a[0]));
    assert_true(enter(p, "10.0.0.1", &a[1]));
    assert_ptr_equal(a[0], a[1]);
    assert_false(enter(p, "10.0.0.1", &refused));
    assert_null(refused);
    assert_true(enter(p, "10.0.0.2", &other));
    peers_leave(p, a[0]);
    assert_true(enter(p, "10.0.0.1", &a[0]));
    peers_leave(p, a[0]);
    peers_leave(p, a[1]);
    peers_leave(p, other);
    peers_leave(p, NULL);
    for (size_t i = 0; i < PEERS_BUCKETS; i++)
        assert_null(p->buckets[i]);
    peers_free(p);
}

static void spellings_of_one_client_count_together(void **state)
{
    static const struct {
        const char *one, *another;
        bool is_same;
    } rows[] = {
        { "10.0.0.1", "::ffff:10.0.0.1", true },
        { "2001:db8::1", "2001:db8::ffff:1", true },
        { "2001:db8:0:0:1::", "2001:db8:0:0:ffff:ffff:ffff:ffff", true },
        { "2001:db8:0:1::1", "2001:db8:0:2::1", false },
        { "10.0.0.1", "10.0.1.1", false },
        { "10.0.0.1", "2001:db8::10.0.0.1", false },
        { "fe80::1", "fe80::2", true },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct peers *p = peers_new(1);
        struct peer *a = NULL, *b = NULL;

        assert_true(enter(p, rows[i].one, &a));
        assert_non_null(a);
        if (enter(p, rows[i].another, &b) == rows[i].is_same)
            fail_msg("%s and %s", rows[i].one, rows[i].another);
        peers_leave(p, a);
        peers_leave(p, b);
        peers_free(p);
    }
}

static void this_machine_is_not_counted(void **state)
{
    static const char *const local[] = { "127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "" };
    struct peers *p = peers_new(1);

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(local); i++)
        for (int n = 0; n < 3; n++) {
            struct peer *peer;

            assert_true(enter(p, local[i], &peer));
            assert_null(peer);
        }
    peers_free(p);
}

static void many_addresses_come_and_go(void **state)
{
    enum { MANY = 5000 };
    static struct peer *peers[MANY];
    struct peers *p = peers_new(1);
    char text[32];

    (void)state;
    for (unsigned i = 0; i < MANY; i++) {
        (void)snprintf(text, sizeof text, "10.0.%u.%u", i / 256, i % 256);
        assert_true(enter(p, text, &peers[i]));
    }
    for (unsigned i = 0; i < MANY; i++)
        peers_leave(p, peers[(i * 7) % MANY]); /* in another order */
    for (size_t i = 0; i < PEERS_BUCKETS; i++)
        assert_null(p->buckets[i]);
    peers_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_has_so_many_and_no_more),
        cmocka_unit_test(spellings_of_one_client_count_together),
        cmocka_unit_test(this_machine_is_not_counted),
        cmocka_unit_test(many_addresses_come_and_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
