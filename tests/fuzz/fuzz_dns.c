/* fuzz_dns.c - DNS messages as a sandbox's question and as a server's answer to a fixed one; what is made of them has
 * to be readable again. */
#include "fuzz.h"
#include "wire/dns.h"

static const uint8_t asked[] = "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01"
                               "a\x03org\x00\x00\x01\x00\x01";

static void question(struct slice in)
{
    struct buf b = BUF_INIT(DNS_MESSAGE_MAX);
    struct dns_question q, again;
    enum dns_rcode rcode;
    enum dns_status s = dns_question_parse(in, &q, &rcode);

    FUZZ_CHECK(strnlen(q.name, sizeof(q.name)) < sizeof(q.name));
    if (s == DNS_OK) {
        FUZZ_CHECK(dns_query_encode(&q, 7, &b) == BUF_OK);
        FUZZ_CHECK(dns_question_parse(buf_slice(&b), &again, &rcode) == DNS_OK);
        FUZZ_CHECK(strcmp(q.name, again.name) == 0 && q.type == again.type && again.id == 7);
    } else if (s == DNS_REFUSE) {
        FUZZ_CHECK(dns_error_encode(&q, rcode, &b) == BUF_OK);
        FUZZ_CHECK(dns_question_parse(buf_slice(&b), &again, &rcode) == DNS_IGNORE);
    }
    buf_done(&b);
}

static void answer(struct slice in)
{
    struct buf b = BUF_INIT(2 * DNS_MESSAGE_MAX);
    struct dns_question q;
    struct dns_answer a, again;
    enum dns_rcode rcode;

    FUZZ_CHECK(dns_question_parse(slice_of(asked, sizeof(asked) - 1), &q, &rcode) == DNS_OK);
    if (dns_answer_parse(in, &q, 0x1234, &a) && !a.is_truncated) {
        FUZZ_CHECK(a.ttl_s <= 3600 && a.n_addresses <= DNS_ADDRESSES_MAX);
        FUZZ_CHECK(dns_reply_encode(&q, &a, 5, DNS_MESSAGE_MAX, &b) == BUF_OK);
        FUZZ_CHECK(dns_answer_parse(buf_slice(&b), &q, 0x1234, &again));
        FUZZ_CHECK(again.n_addresses == a.n_addresses && again.records.n == a.records.n);
    }
    buf_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = fuzz_exact(slice_of(data, size));

    question(slice_of(copy, size));
    answer(slice_of(copy, size));
    free(copy);
    return 0;
}
