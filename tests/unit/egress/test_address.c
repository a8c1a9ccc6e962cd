/* test_address.c - ranges of both families, and which addresses are reserved. */
#include "test.h"

#include "egress/address.h"

static void ranges_are_read_strictly(void **state)
{
    static const char *const good[] = { "0.0.0.0/0",   "10.0.0.0/8",
                                        "1.2.3.4",     "1.2.3.4/32",
                                        "::/0",        "2001:db8::/32",
                                        "2001:db8::1", "::ffff:1.2.3.4/128" };
    static const char *const bad[] = { "",           "1.2.3",      "1.2.3.4/33", "1.2.3.4/",
                                       "1.2.3.4/-1", "1.2.3.4/8 ", "::/129",     "example.org",
                                       "[::1]",      "1.2.3.4:80", "01.2.3.4",   "0x1.2.3.4" };
    struct range r;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        if (!range_parse(good[i], &r))
            fail_msg("'%s' is a range", good[i]);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (range_parse(bad[i], &r))
            fail_msg("'%s' is no range", bad[i]);
}

static void ranges_contain_what_they_should(void **state)
{
    static const struct {
        const char *range, *ip;
        bool is_in;
    } rows[] = {
        { "0.0.0.0/0", "8.8.8.8", true },
        { "0.0.0.0/0", "2001:db8::1", true },
        { "0.0.0.0/8", "0.1.2.3", true },
        { "0.0.0.0/8", "1.0.0.0", false },
        { "10.0.0.0/8", "10.255.255.255", true },
        { "10.0.0.0/8", "11.0.0.0", false },
        { "198.51.100.8/29", "198.51.100.15", true },
        { "198.51.100.8/29", "198.51.100.16", false },
        { "1.2.3.4", "1.2.3.4", true },
        { "1.2.3.4", "1.2.3.5", false },
        { "::/0", "2001:db8::1", true },
        { "::/0", "1.2.3.4", false },
        { "::/64", "1.2.3.4", false },
        { "::ffff:0:0/96", "1.2.3.4", true },
        { "::ffff:1.2.3.0/120", "1.2.3.4", true },
        { "2001:db8::/33", "2001:db8:7fff::", true },
        { "2001:db8::/33", "2001:db8:8000::", false },
        { "10.0.0.0/8", "a00::1", false },
        { "192.0.2.77/24", "192.0.2.1", true },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct range r;
        struct in6_addr ip;

        assert_true(range_parse(rows[i].range, &r) && ip_parse(rows[i].ip, &ip));
        if (range_contains(&r, &ip) != rows[i].is_in)
            fail_msg("%s in %s", rows[i].ip, rows[i].range);
    }
}

static void reserved_addresses_have_a_kind(void **state)
{
    static const struct {
        const char *ip, *kind;
    } rows[] = {
        { "0.0.0.0", "this host" },
        { "10.0.0.1", "private" },
        { "172.16.0.1", "private" },
        { "172.31.255.255", "private" },
        { "192.168.1.1", "private" },
        { "127.0.0.1", "loopback" },
        { "127.255.255.254", "loopback" },
        { "169.254.169.254", "link-local, metadata" },
        { "168.63.129.16", "metadata" },
        { "100.64.0.1", "carrier-grade NAT" },
        { "100.127.255.255", "carrier-grade NAT" },
        { "192.0.0.192", "protocol assignments" },
        { "198.19.255.255", "benchmarking" },
        { "224.0.0.1", "multicast" },
        { "239.255.255.255", "multicast" },
        { "240.0.0.1", "reserved" },
        { "255.255.255.255", "reserved" },
        { "::", "loopback or unspecified" },
        { "::1", "loopback or unspecified" },
        { "::7f00:1", "loopback or unspecified" },
        { "::ffff:0:127.0.0.1", "IPv4 translated" },
        { "64:ff9b::7f00:1", "IPv4 behind NAT64" },
        { "64:ff9b:1::1", "IPv4 behind NAT64" },
        { "2001:0:1234::1", "IPv4 behind Teredo" },
        { "2002:7f00:1::", "IPv4 behind 6to4" },
        { "fd00:ec2::254", "private" },
        { "fc00::1", "private" },
        { "fe80::1", "link-local" },
        { "fec0::1", "private" },
        { "ff02::1", "multicast" },
        { "::ffff:10.0.0.1", "private" }, /* mapped: the same as 10.0.0.1 */
        { "1.1.1.1", NULL },
        { "172.15.255.255", NULL },
        { "172.32.0.0", NULL },
        { "100.63.255.255", NULL },
        { "100.128.0.0", NULL },
        { "169.253.255.255", NULL },
        { "198.17.255.255", NULL },
        { "198.20.0.0", NULL },
        { "223.255.255.255", NULL },
        { "2606:4700::1111", NULL },
        { "2001:1::1", NULL },
        { "::ffff:8.8.8.8", NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct in6_addr ip;
        const char *kind;

        assert_true(ip_parse(rows[i].ip, &ip));
        kind = ip_reserved(&ip);
        test_text(rows[i].ip, kind ? kind : "none", rows[i].kind ? rows[i].kind : "none");
    }
}

static void addresses_go_to_the_kernel_and_back(void **state)
{
    static const char *const texts[] = { "1.2.3.4", "2001:db8::7" };
    static const char *const whole[] = { "1.2.3.4:443", "[2001:db8::7]:443" };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct address a = { .port = 443 }, b;
        struct sockaddr_storage ss;
        char text[ADDRESS_TEXT_SIZE];

        assert_true(ip_parse(texts[i], &a.ip));
        assert_true(address_to_kernel(&a, &ss) > 0);
        assert_int_equal(ss.ss_family, i == 0 ? AF_INET : AF_INET6);
        assert_true(address_from_kernel(&ss, &b));
        assert_true(ip_equal(&a.ip, &b.ip));
        assert_int_equal(b.port, 443);
        address_format(&b, text);
        assert_string_equal(text, whole[i]);
    }
}

static void servers_may_have_a_port(void **state)
{
    static const struct {
        const char *text, *whole; /* NULL: none */
    } rows[] = {
        { "1.2.3.4", "1.2.3.4:53" },
        { "1.2.3.4:5353", "1.2.3.4:5353" },
        { "2001:db8::1", "[2001:db8::1]:53" },
        { "[2001:db8::1]", "[2001:db8::1]:53" },
        { "[2001:db8::1]:99", "[2001:db8::1]:99" },
        { "1.2.3.4:0", NULL },
        { "1.2.3.4:70000", NULL },
        { "1.2.3.4:", NULL },
        { "a.org", NULL },
        { "[2001:db8::1", NULL },
        { "[2001:db8::1]x", NULL },
        { "", NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct address a;
        char text[ADDRESS_TEXT_SIZE] = "none";

        if (address_parse(rows[i].text, 53, &a))
            address_format(&a, text);
        test_text(rows[i].text, text, rows[i].whole ? rows[i].whole : "none");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_read_strictly),
        cmocka_unit_test(ranges_contain_what_they_should),
        cmocka_unit_test(reserved_addresses_have_a_kind),
        cmocka_unit_test(servers_may_have_a_port),
        cmocka_unit_test(addresses_go_to_the_kernel_and_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
