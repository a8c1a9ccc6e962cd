/* dns.h - the part of DNS messages that a forwarder needs (RFC 1035, 2308, 6891): questions of clients, answers of
 * servers, and answers made of both. Without I/O and memory of its own.
 *
 * A question is one name, type and class IN. An answer is taken only when it repeats the question. What is passed on of
 * it are the answer and authority sections as they came (names in them may be compressed: they point back into the
 * message, where everything keeps its place); the additional section, with the server's own EDNS, is dropped. Records
 * are walked, not understood, but for addresses and the times that they hold.
 */
#pragma once

#include "base/buf.h"

#define DNS_MESSAGE_MAX 65535u
#define DNS_NAME_SIZE 256u    /* text of a name and NUL */
#define DNS_QUESTION_MAX 260u /* name, type, class on the wire */
#define DNS_UDP_SIZE 1232u    /* what is said to servers: fits every path */
#define DNS_ADDRESSES_MAX 64u

enum dns_type {
    DNS_A = 1,
    DNS_SOA = 6,
    DNS_AAAA = 28,
    DNS_OPT = 41,
    DNS_SVCB = 64,
    DNS_HTTPS = 65
};

enum dns_rcode {
    DNS_NOERROR = 0,
    DNS_FORMERR = 1,
    DNS_SERVFAIL = 2,
    DNS_NXDOMAIN = 3,
    DNS_NOTIMP = 4,
    DNS_REFUSED = 5,
};

struct dns_question {
    uint16_t id;
    uint16_t type;
    uint16_t udp_size; /* what the client takes by UDP; 512 without EDNS */
    bool has_edns;
    bool wants_recursion;
    char name[DNS_NAME_SIZE];       /* lower case, no dot at the end; "" is the root */
    uint8_t wire[DNS_QUESTION_MAX]; /* the question as it came */
    uint16_t wire_n;
};

enum dns_status {
    DNS_OK,
    DNS_IGNORE, /* not to be answered: an answer, or too short to be anything */
    DNS_REFUSE, /* answer with *ret_rcode; `ret` has id and, if it could be read, the question */
};

/* Reads a client's message. Names of other characters than printable ASCII are refused: they could not be held
 * against a rule. */
enum dns_status dns_question_parse(struct slice message, struct dns_question *ret,
                                   enum dns_rcode *ret_rcode);
/* Asks a server the same under another id, with EDNS. */
enum buf_status dns_query_encode(const struct dns_question *q, uint16_t id, struct buf *b);

struct dns_answer {
    enum dns_rcode rcode;
    bool is_truncated; /* ask again by TCP */
    uint16_t n_answers, n_authorities;
    struct slice records; /* of both sections, borrowed from the message */
    uint32_t ttl_s;       /* how long it may be kept; 0 = not */
    size_t n_addresses;
    uint8_t
        addresses[DNS_ADDRESSES_MAX]
                 [16]; /* of A (as ::ffff:a.b.c.d) and AAAA records, for questions of that type */
};

/* Reads a server's answer to dns_query_encode(q, id). False: malformed, or the answer to something else. */
bool dns_answer_parse(struct slice message, const struct dns_question *q, uint16_t id,
                      struct dns_answer *ret);

/* Answers `q` with the records of `a`, which have been kept for `age_s`. Over `max` bytes the answer is an empty one
 * that says "truncated". */
enum buf_status dns_reply_encode(const struct dns_question *q, const struct dns_answer *a,
                                 uint32_t age_s, size_t max, struct buf *b);
/* Answers it with a code and nothing else. */
enum buf_status dns_error_encode(const struct dns_question *q, enum dns_rcode rcode, struct buf *b);
