/* dns.c - see dns.h. */
#include "wire/dns.h"

#include <string.h>

#define HEAD_SIZE 12u
#define LABEL_MAX 63u
#define NAME_WIRE_MAX 255u
#define RECORD_FIXED 10u /* type, class, time, length */
#define CLASS_IN 1u
#define OPT_SIZE 11u
#define UDP_SIZE_LEAST 512u
#define KEPT_MAX_S 3600u
#define NEGATIVE_MAX_S 300u

#define FLAG_ANSWER 0x8000u
#define FLAG_OPCODE 0x7800u
#define FLAG_TRUNCATED 0x0200u
#define FLAG_RECURSION_WANTED 0x0100u
#define FLAG_RECURSION_THERE 0x0080u

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)get16(p) << 16 | get16(p + 2);
}

static void put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
    put16(p, (uint16_t)(v >> 16));
    put16(p + 2, (uint16_t)v);
}

/* --- names and records -------------------------------------------------------------------------- */

/* Behind the name at `at`; 0 when it is malformed. Where a pointer leads does not matter. */
static size_t skip_name(struct slice m, size_t at)
{
    size_t start = at;

    while (at < m.n && at - start <= NAME_WIRE_MAX) {
        uint8_t n = m.p[at];

        if (n == 0)
            return at + 1;
        if ((n & 0xc0) == 0xc0)
            return at + 2 <= m.n ? at + 2 : 0;
        if (n > LABEL_MAX)
            return 0;
        at += 1u + n;
    }
    return 0;
}

/* Text of an uncompressed name; false for other characters than printable ASCII, or a dot in a label. */
static bool name_text(const uint8_t *p, char to[DNS_NAME_SIZE])
{
    size_t out = 0;

    while (*p != 0) {
        uint8_t n = *p++;

        if (out > 0)
            to[out++] = '.';
        for (; n > 0; n--, p++) {
            if (*p <= ' ' || *p >= 0x7f || *p == '.')
                return false;
            to[out++] = (char)(*p >= 'A' && *p <= 'Z' ? *p + 32 : *p);
        }
    }
    to[out] = '\0';
    return true;
}

struct record {
    uint16_t type, class;
    uint32_t ttl_s;
    size_t fixed;      /* where type, class and so on begin */
    struct slice data; /* of the message */
};

/* Reads the record at *at and goes on behind it. */
static bool next_record(struct slice m, size_t *at, struct record *ret)
{
    size_t p = skip_name(m, *at), n;

    if (p == 0 || m.n - p < RECORD_FIXED)
        return false;
    n = get16(m.p + p + 8);
    if (m.n - p - RECORD_FIXED < n)
        return false;
    *ret = (struct record){ get16(m.p + p), get16(m.p + p + 2), get32(m.p + p + 4), p,
                            slice_of(m.p + p + RECORD_FIXED, n) };
    *at = p + RECORD_FIXED + n;
    return true;
}

/* --- questions ---------------------------------------------------------------------------------- */

/* The one OPT record that a question may have behind it. */
static bool parse_additional(struct slice m, size_t at, uint16_t n, struct dns_question *q)
{
    for (uint16_t i = 0; i < n; i++) {
        struct record r;

        if (!next_record(m, &at, &r))
            return false;
        if (r.type != DNS_OPT)
            continue;
        if (q->has_edns)
            return false;
        q->has_edns = true;
        q->udp_size = r.class > UDP_SIZE_LEAST ? r.class : UDP_SIZE_LEAST;
    }
    return true;
}

enum dns_status dns_question_parse(struct slice m, struct dns_question *ret,
                                   enum dns_rcode *ret_rcode)
{
    uint16_t flags;
    size_t end;

    *ret = (struct dns_question){ .udp_size = UDP_SIZE_LEAST };
    *ret_rcode = DNS_FORMERR;
    if (m.n < HEAD_SIZE)
        return DNS_IGNORE;
    ret->id = get16(m.p);
    flags = get16(m.p + 2);
    if (flags & FLAG_ANSWER)
        return DNS_IGNORE;
    ret->wants_recursion = flags & FLAG_RECURSION_WANTED;
    if (flags & FLAG_OPCODE) {
        *ret_rcode = DNS_NOTIMP;
        return DNS_REFUSE;
    }
    if (get16(m.p + 4) != 1 || get16(m.p + 6) != 0 || get16(m.p + 8) != 0)
        return DNS_REFUSE;
    end = skip_name(m, HEAD_SIZE);
    if (end == 0 || m.n - end < 4 || end - HEAD_SIZE > NAME_WIRE_MAX)
        return DNS_REFUSE;
    for (size_t at = HEAD_SIZE; at < end; at += 1u + m.p[at])
        if (m.p[at] > LABEL_MAX) /* a pointer to nowhere */
            return DNS_REFUSE;
    ret->wire_n = (uint16_t)(end + 4 - HEAD_SIZE);
    memcpy(ret->wire, m.p + HEAD_SIZE, ret->wire_n);
    ret->type = get16(m.p + end);
    if (!name_text(ret->wire, ret->name) || !parse_additional(m, end + 4, get16(m.p + 10), ret))
        return DNS_REFUSE;
    if (get16(m.p + end + 2) != CLASS_IN) {
        *ret_rcode = DNS_NOTIMP;
        return DNS_REFUSE;
    }
    return DNS_OK;
}

static enum buf_status append_head(struct buf *b, uint16_t id, uint16_t flags,
                                   const uint16_t counts[4])
{
    uint8_t head[HEAD_SIZE];

    put16(head, id);
    put16(head + 2, flags);
    for (size_t i = 0; i < 4; i++)
        put16(head + 4 + 2 * i, counts[i]);
    return buf_append(b, head, sizeof head);
}

static enum buf_status append_opt(struct buf *b)
{
    const uint8_t opt[OPT_SIZE] = { 0, 0, DNS_OPT, DNS_UDP_SIZE >> 8, DNS_UDP_SIZE & 0xff };

    return buf_append(b, opt, sizeof opt);
}

enum buf_status dns_query_encode(const struct dns_question *q, uint16_t id, struct buf *b)
{
    const uint16_t counts[] = { 1, 0, 0, 1 };
    enum buf_status s = append_head(b, id, FLAG_RECURSION_WANTED, counts);

    if (s == BUF_OK)
        s = buf_append(b, q->wire, q->wire_n);
    return s == BUF_OK ? append_opt(b) : s;
}

/* --- answers ------------------------------------------------------------------------------------ */

static bool is_same_question(struct slice m, const struct dns_question *q)
{
    size_t name = q->wire_n - 4u;

    return m.n - HEAD_SIZE >= q->wire_n &&
           slice_ieq(slice_of(m.p + HEAD_SIZE, name), slice_of(q->wire, name)) &&
           memcmp(m.p + HEAD_SIZE + name, q->wire + name, 4) == 0;
}

static void take_address(struct dns_answer *a, const struct dns_question *q, const struct record *r)
{
    uint8_t *to = a->addresses[a->n_addresses];

    if (r->type != q->type || r->class != CLASS_IN || a->n_addresses == DNS_ADDRESSES_MAX)
        return;
    if (r->type == DNS_A && r->data.n == 4) {
        memset(to, 0, 10);
        memset(to + 10, 0xff, 2);
        memcpy(to + 12, r->data.p, 4);
        a->n_addresses++;
    } else if (r->type == DNS_AAAA && r->data.n == 16) {
        memcpy(to, r->data.p, 16);
        a->n_addresses++;
    }
}

/* How long "there is none" holds: the authority's SOA says it (RFC 2308). */
static uint32_t negative_ttl(const struct record *soa)
{
    uint32_t minimum = soa->data.n >= 20 ? get32(soa->data.p + soa->data.n - 4) : 0;
    uint32_t ttl = soa->ttl_s < minimum ? soa->ttl_s : minimum;

    return ttl < NEGATIVE_MAX_S ? ttl : NEGATIVE_MAX_S;
}

static bool parse_records(struct slice m, const struct dns_question *q, struct dns_answer *a)
{
    size_t start = HEAD_SIZE + q->wire_n, at = start;
    unsigned n = (unsigned)a->n_answers + a->n_authorities;
    uint32_t ttl = KEPT_MAX_S, negative = 0;

    for (unsigned i = 0; i < n; i++) {
        struct record r;

        if (!next_record(m, &at, &r))
            return false;
        if (i < a->n_answers) {
            take_address(a, q, &r);
            ttl = r.ttl_s < ttl ? r.ttl_s : ttl;
        } else if (r.type == DNS_SOA) {
            negative = negative_ttl(&r);
        }
    }
    a->records = slice_of(m.p + start, at - start);
    if (a->rcode == DNS_NOERROR && a->n_answers > 0)
        a->ttl_s = ttl;
    else if (a->rcode == DNS_NOERROR || a->rcode == DNS_NXDOMAIN)
        a->ttl_s = negative;
    return true;
}

bool dns_answer_parse(struct slice m, const struct dns_question *q, uint16_t id,
                      struct dns_answer *ret)
{
    uint16_t flags;

    *ret = (struct dns_answer){ 0 };
    if (m.n < HEAD_SIZE || get16(m.p) != id)
        return false;
    flags = get16(m.p + 2);
    if (!(flags & FLAG_ANSWER) || (flags & FLAG_OPCODE))
        return false;
    ret->rcode = (enum dns_rcode)(flags & 15);
    /* Some servers do not repeat a question that they did not like. */
    if (get16(m.p + 4) == 0 && ret->rcode != DNS_NOERROR && ret->rcode != DNS_NXDOMAIN)
        return true;
    if (get16(m.p + 4) != 1 || !is_same_question(m, q))
        return false;
    ret->is_truncated = flags & FLAG_TRUNCATED;
    if (ret->is_truncated)
        return true;
    ret->n_answers = get16(m.p + 6);
    ret->n_authorities = get16(m.p + 8);
    return parse_records(m, q, ret);
}

/* --- replies ------------------------------------------------------------------------------------ */

static uint16_t reply_flags(const struct dns_question *q, enum dns_rcode rcode)
{
    return (uint16_t)(FLAG_ANSWER | FLAG_RECURSION_THERE |
                      (q->wants_recursion ? FLAG_RECURSION_WANTED : 0) | (rcode & 15u));
}

static enum buf_status append_empty(const struct dns_question *q, uint16_t flags, struct buf *b)
{
    const uint16_t counts[] = { q->wire_n > 0, 0, 0, q->has_edns };
    enum buf_status s = append_head(b, q->id, flags, counts);

    if (s == BUF_OK)
        s = buf_append(b, q->wire, q->wire_n);
    return s == BUF_OK && q->has_edns ? append_opt(b) : s;
}

enum buf_status dns_error_encode(const struct dns_question *q, enum dns_rcode rcode, struct buf *b)
{
    return append_empty(q, reply_flags(q, rcode), b);
}

/* Times run while an answer is kept. OPT has something else in that place, and is not among these records. */
static void age_records(struct slice whole, size_t at, uint32_t age_s)
{
    struct record r;

    while (at < whole.n && next_record(whole, &at, &r))
        put32((uint8_t *)(uintptr_t)whole.p + r.fixed + 4, r.ttl_s > age_s ? r.ttl_s - age_s : 0);
}

enum buf_status dns_reply_encode(const struct dns_question *q, const struct dns_answer *a,
                                 uint32_t age_s, size_t max, struct buf *b)
{
    const uint16_t counts[] = { 1, a->n_answers, a->n_authorities, q->has_edns };
    size_t size = HEAD_SIZE + q->wire_n + a->records.n + (q->has_edns ? OPT_SIZE : 0);
    size_t start = b->len;
    enum buf_status s;

    if (size > max)
        return append_empty(q, reply_flags(q, a->rcode) | FLAG_TRUNCATED, b);
    s = append_head(b, q->id, reply_flags(q, a->rcode), counts);
    if (s == BUF_OK)
        s = buf_append(b, q->wire, q->wire_n);
    if (s == BUF_OK)
        s = buf_append_slice(b, a->records);
    if (s == BUF_OK)
        age_records(slice_of(buf_data(b) + start, b->len - start), HEAD_SIZE + q->wire_n, age_s);
    return s == BUF_OK && q->has_edns ? append_opt(b) : s;
}
