/* test_dns.c - questions, answers, and replies made of both. */
#include "test.h"

#include "wire/dns.h"

#define HEAD "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
#define NAME                                                                                       \
    "\x03WwW\x07"                                                                                  \
    "example\x00"
#define Q_A NAME "\x00\x01\x00\x01"
#define OPT "\x00\x00\x29\x10\x00\x00\x00\x00\x00\x00\x00" /* takes 4096 */

static struct dns_question ask(struct slice m)
{
    struct dns_question q;
    enum dns_rcode rcode;

    assert_int_equal(dns_question_parse(m, &q, &rcode), DNS_OK);
    return q;
}

static void question_is_read(void **state)
{
    struct dns_question q = ask(SLICE_LIT(HEAD Q_A));

    (void)state;
    assert_int_equal(q.id, 0x1234);
    assert_int_equal(q.type, DNS_A);
    assert_int_equal(q.udp_size, 512);
    assert_true(q.wants_recursion);
    assert_string_equal(q.name, "www.example");
    q = ask(SLICE_LIT("\x12\x34\x00\x00\x00\x01\x00\x00\x00\x00\x00\x01" Q_A OPT));
    assert_true(q.has_edns);
    assert_false(q.wants_recursion);
    assert_int_equal(q.udp_size, 4096);
}

static void what_is_no_question_is_refused(void **state)
{
    static const struct {
        struct slice m;
        enum dns_status status;
        enum dns_rcode rcode;
    } rows[] = {
        { SLICE_LIT("\x12\x34\x01"), DNS_IGNORE, DNS_FORMERR },
        { SLICE_LIT("\x12\x34\x81\x00\x00\x01\x00\x00\x00\x00\x00\x00" Q_A), DNS_IGNORE,
          DNS_FORMERR },
        { SLICE_LIT("\x12\x34\x29\x00\x00\x01\x00\x00\x00\x00\x00\x00" Q_A), DNS_REFUSE,
          DNS_NOTIMP },
        { SLICE_LIT("\x12\x34\x01\x00\x00\x02\x00\x00\x00\x00\x00\x00" Q_A Q_A), DNS_REFUSE,
          DNS_FORMERR },
        { SLICE_LIT("\x12\x34\x01\x00\x00\x01\x00\x01\x00\x00\x00\x00" Q_A), DNS_REFUSE,
          DNS_FORMERR },
        { SLICE_LIT(HEAD "\x03www"), DNS_REFUSE, DNS_FORMERR },
        { SLICE_LIT(HEAD "\x03www\xc0\x0c\x00\x01\x00\x01"), DNS_REFUSE, DNS_FORMERR },
        { SLICE_LIT(HEAD "\x47www\x00\x00\x01\x00\x01"), DNS_REFUSE, DNS_FORMERR },
        { SLICE_LIT(HEAD "\x03w.w\x00\x00\x01\x00\x01"), DNS_REFUSE, DNS_FORMERR },
        { SLICE_LIT(HEAD "\x03w\x00w\x00\x00\x01\x00\x01"), DNS_REFUSE, DNS_FORMERR },
        { SLICE_LIT(HEAD NAME "\x00\x01\x00\x03"), DNS_REFUSE, DNS_NOTIMP },
        { SLICE_LIT("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x02" Q_A OPT OPT), DNS_REFUSE,
          DNS_FORMERR },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint8_t *copy = test_exact(rows[i].m);
        struct dns_question q;
        enum dns_rcode rcode = DNS_NOERROR;

        if (dns_question_parse(slice_of(copy, rows[i].m.n), &q, &rcode) != rows[i].status)
            fail_msg("row %zu", i);
        if (rows[i].status == DNS_REFUSE && rcode != rows[i].rcode)
            fail_msg("row %zu: code %d", i, rcode);
        free(copy);
    }
}

static void longest_name_fits(void **state)
{
    uint8_t m[12 + 255 + 4] = HEAD;
    size_t n = 12;
    struct dns_question q;

    (void)state;
    for (size_t label = 63; n < 12 + 254; label = MIN((size_t)63, 12 + 254 - n - 1)) {
        m[n++] = (uint8_t)label;
        memset(m + n, 'x', label);
        n += label;
    }
    m[n++] = 0;
    m[n + 1] = m[n + 3] = 1;
    q = ask(slice_of(m, n + 4));
    assert_int_equal(strlen(q.name), 253);
}

#define ANSWER(flags, an, ns) "\x56\x78" flags "\x00\x01\x00" an "\x00" ns "\x00\x01"
#define RECORD_A(ttl, ip) "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00" ttl "\x00\x04" ip

static void answer_gives_addresses_and_time(void **state)
{
    struct dns_question q = ask(SLICE_LIT(HEAD Q_A));
    struct slice m =
        SLICE_LIT(ANSWER("\x81\x80", "\x02",
                         "\x00") "\x03"
                                 "www\x07"
                                 "EXAMPLE\x00\x00\x01\x00\x01" RECORD_A("\x3c", "\x01\x02\x03\x04")
                                     RECORD_A("\x05", "\x05\x06\x07\x08") OPT);
    static const uint8_t mapped[16] = {
        [10] = 0xff, [11] = 0xff, [12] = 1, [13] = 2, [14] = 3, [15] = 4
    };
    struct dns_answer a;

    (void)state;
    assert_true(dns_answer_parse(m, &q, 0x5678, &a));
    assert_int_equal(a.n_addresses, 2);
    assert_memory_equal(a.addresses[0], mapped, 16);
    assert_int_equal(a.ttl_s, 5);
    assert_int_equal(a.n_answers, 2);
    for (size_t n = 0; n + sizeof(OPT) - 1 < m.n; n++) {
        uint8_t *copy = test_exact(slice_of(m.p, n));

        if (dns_answer_parse(slice_of(copy, n), &q, 0x5678, &a))
            fail_msg("cut at %zu", n);
        free(copy);
    }
}

static void answer_to_something_else_is_refused(void **state)
{
    struct dns_question q = ask(SLICE_LIT(HEAD Q_A));
    static const struct slice bad[] = {
        SLICE_LIT("\x56\x79\x81\x80\x00\x01\x00\x00\x00\x00\x00\x00" Q_A),
        SLICE_LIT("\x56\x78\x01\x80\x00\x01\x00\x00\x00\x00\x00\x00" Q_A),
        SLICE_LIT("\x56\x78\x81\x80\x00\x00\x00\x00\x00\x00\x00\x00"),
        SLICE_LIT("\x56\x78\x81\x80\x00\x01\x00\x00\x00\x00\x00\x00" NAME "\x00\x1c\x00\x01"),
        SLICE_LIT("\x56\x78\x81\x80\x00\x01\x00\x00\x00\x00\x00\x00\x03xxx\x07"
                  "example\x00\x00\x01\x00\x01"),
    };
    struct dns_answer a;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (dns_answer_parse(bad[i], &q, 0x5678, &a))
            fail_msg("row %zu", i);
}

static void no_such_name_is_kept_as_long_as_the_soa_says(void **state)
{
    struct dns_question q = ask(SLICE_LIT(HEAD Q_A));
    struct slice m = SLICE_LIT(
        ANSWER("\x81\x83", "\x00", "\x01") Q_A
        "\xc0\x10\x00\x06\x00\x01\x00\x00\x0e\x10\x00\x18\xc0\x0c\xc0\x0c"
        "\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x2a");
    struct dns_answer a;

    (void)state;
    assert_true(dns_answer_parse(m, &q, 0x5678, &a));
    assert_int_equal(a.rcode, DNS_NXDOMAIN);
    assert_int_equal(a.ttl_s, 42);
}

static void reply_has_the_clients_question_and_aged_times(void **state)
{
    struct dns_question q = ask(SLICE_LIT(HEAD Q_A));
    struct slice m =
        SLICE_LIT(ANSWER("\x81\x80", "\x01", "\x00") Q_A RECORD_A("\x3c", "\x01\x02\x03\x04") OPT);
    struct slice want = SLICE_LIT("\x12\x34\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00" Q_A RECORD_A(
        "\x32", "\x01\x02\x03\x04"));
    struct slice cut = SLICE_LIT("\x12\x34\x83\x80\x00\x01\x00\x00\x00\x00\x00\x00" Q_A);
    struct buf b = BUF_INIT(4096);
    struct dns_answer a;

    (void)state;
    assert_true(dns_answer_parse(m, &q, 0x5678, &a));
    assert_int_equal(dns_reply_encode(&q, &a, 10, 512, &b), BUF_OK);
    assert_true(slice_eq(buf_slice(&b), want));
    buf_reset(&b);
    assert_int_equal(dns_reply_encode(&q, &a, 10, want.n - 1, &b), BUF_OK);
    assert_true(slice_eq(buf_slice(&b), cut));
    buf_reset(&b);
    q = ask(SLICE_LIT("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01" Q_A OPT));
    assert_int_equal(dns_reply_encode(&q, &a, 100, 512, &b), BUF_OK);
    assert_int_equal(b.len, want.n + 11);
    assert_true(slice_starts_with(slice_of(buf_slice(&b).p + 11, 1), "\x01"));
    buf_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(question_is_read),
        cmocka_unit_test(what_is_no_question_is_refused),
        cmocka_unit_test(longest_name_fits),
        cmocka_unit_test(answer_gives_addresses_and_time),
        cmocka_unit_test(answer_to_something_else_is_refused),
        cmocka_unit_test(no_such_name_is_kept_as_long_as_the_soa_says),
        cmocka_unit_test(reply_has_the_clients_question_and_aged_times),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
