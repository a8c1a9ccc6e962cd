/* resolver.c - see resolver.h. */
#include "egress/resolver.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "net/sock.h"

#define BUCKETS 1024u
#define KEPT_MAX 4096u       /* answers */
#define KEPT_BYTES_MAX 4096u /* of one: larger ones are not kept */
#define TRIES 3u
#define DATAGRAMS_PER_TURN 32u
#define GUESSES_MAX 64u /* datagrams that answer something else */
#define TRY_MS 1500u
#define TCP_MS 5000u

struct key {
    struct resolver_servers servers;
    uint16_t type;
    char name[DNS_NAME_SIZE];
};

struct kept {
    struct kept *next; /* in its bucket */
    struct kept *older, *newer;
    struct key key;
    struct dns_answer answer; /* its records are in `records` */
    uint64_t at_ms, until_ms;
    uint8_t records[];
};

/* One question to one server; it lives until the loop has let go of its socket. */
struct attempt {
    struct sock sock;
    struct lookup *lookup; /* NULL once it is over */
    struct buf in;         /* TCP */
    uint16_t id;
    bool is_tcp;
    unsigned n_guesses;
};

struct lookup {
    struct lookup *next, **at;
    struct resolver *resolver;
    struct resolver_account *account; /* NULL: it is gone */
    struct key key;
    struct dns_question question;
    struct resolver_wait *waits;
    struct attempt *attempt;
    unsigned tries;
    bool is_tcp; /* the answer does not fit into a datagram */
};

struct resolver {
    uv_loop_t *loop;
    struct kept *buckets[BUCKETS];
    struct kept *oldest, *newest;
    size_t n_kept;
    struct lookup *lookups;
    size_t n_lookups, max_lookups;
};

/* --- what is kept ------------------------------------------------------------------------------- */

static void key_init(struct key *k, const struct dns_question *q, const struct resolver_servers *s)
{
    memset(k, 0, sizeof *k); /* it is compared as a whole */
    for (size_t i = 0; i < s->n; i++) {
        k->servers.list[i].ip = s->list[i].ip;
        k->servers.list[i].port = s->list[i].port;
    }
    k->servers.n = s->n;
    k->type = q->type;
    memcpy(k->name, q->name, strlen(q->name));
}

static struct kept **bucket_of(struct resolver *r, const struct key *k)
{
    return &r->buckets[(str_hash(k->name) + k->type) % BUCKETS];
}

static void kept_drop(struct resolver *r, struct kept *k)
{
    struct kept **at = bucket_of(r, &k->key);

    while (*at != k)
        at = &(*at)->next;
    *at = k->next;
    *(k->older ? &k->older->newer : &r->oldest) = k->newer;
    *(k->newer ? &k->newer->older : &r->newest) = k->older;
    r->n_kept--;
    free(k);
}

static struct kept *kept_find(struct resolver *r, const struct key *k)
{
    struct kept *kept = *bucket_of(r, k);

    while (kept && memcmp(&kept->key, k, sizeof *k) != 0)
        kept = kept->next;
    return kept;
}

static void keep(struct resolver *r, const struct key *k, const struct dns_answer *a)
{
    struct kept *kept = kept_find(r, k), **bucket = bucket_of(r, k);

    if (kept)
        kept_drop(r, kept);
    if (a->ttl_s == 0 || a->records.n > KEPT_BYTES_MAX)
        return;
    while (r->n_kept >= KEPT_MAX)
        kept_drop(r, r->oldest);
    kept = calloc(1, sizeof *kept + a->records.n);
    if (!kept)
        return;
    kept->key = *k;
    kept->answer = *a;
    memcpy(kept->records, a->records.p, a->records.n);
    kept->answer.records = slice_of(kept->records, a->records.n);
    kept->at_ms = uv_now(r->loop);
    kept->until_ms = kept->at_ms + (uint64_t)a->ttl_s * 1000;
    kept->next = *bucket;
    *bucket = kept;
    kept->older = r->newest;
    *(r->newest ? &r->newest->newer : &r->oldest) = kept;
    r->newest = kept;
    r->n_kept++;
}

bool resolver_find(struct resolver *r, const struct dns_question *q,
                   const struct resolver_servers *servers, struct dns_answer *ret,
                   uint32_t *ret_age_s)
{
    uint64_t now = uv_now(r->loop);
    struct key k;
    struct kept *kept;

    key_init(&k, q, servers);
    kept = kept_find(r, &k);
    if (!kept || kept->until_ms <= now)
        return false;
    *ret = kept->answer;
    *ret_age_s = (uint32_t)((now - kept->at_ms) / 1000);
    return true;
}

/* --- one lookup --------------------------------------------------------------------------------- */

static void on_attempt_freed(struct sock *s)
{
    struct attempt *a = container_of(s, struct attempt, sock);

    buf_done(&a->in);
    free(a);
}

static void attempt_end(struct lookup *l)
{
    struct attempt *a = TAKE_PTR(l->attempt);

    if (!a)
        return;
    a->lookup = NULL;
    sock_close(&a->sock, false);
}

/* All who wait are told; the answer is borrowed. */
static void lookup_end(struct lookup *l, const struct dns_answer *answer)
{
    *l->at = l->next;
    if (l->next)
        l->next->at = l->at;
    l->resolver->n_lookups--;
    if (l->account)
        l->account->n--;
    if (answer)
        keep(l->resolver, &l->key, answer);
    while (l->waits) { /* one that is told may make others forget it */
        struct resolver_wait *w = l->waits;

        l->waits = w->next;
        w->lookup = NULL;
        w->done(w, answer);
    }
    attempt_end(l);
    free(l);
}

static void on_event(struct sock *s, unsigned what);

static int connect_to(const struct address *server, bool is_tcp, int *ret_fd, struct abx_err *err)
{
    struct sockaddr_storage ss;
    socklen_t n = address_to_kernel(server, &ss);
    int type = is_tcp ? SOCK_STREAM : SOCK_DGRAM;
    _cleanup_(closep) int fd = socket(ss.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || (connect(fd, (const struct sockaddr *)&ss, n) < 0 && errno != EINPROGRESS))
        return err_sys(err, errno, "connect to a server of names");
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* Sends the question to the server whose turn it is. */
static int attempt_start(struct lookup *l, struct abx_err *err)
{
    const struct resolver_servers *servers = &l->key.servers;
    _cleanup_(buf_done) struct buf query = BUF_INIT(512);
    struct attempt *a = calloc(1, sizeof *a);
    uint8_t prefix[2];
    int fd = -EBADF;
    int r = a ? connect_to(&servers->list[(l->tries - 1) % servers->n], l->is_tcp, &fd, err)
              : err_oom(err);

    if (r == 0)
        r = sock_init(&a->sock, l->resolver->loop, fd, on_event, on_attempt_freed, err);
    if (r < 0) {
        free(a);
        return r;
    }
    l->attempt = a;
    a->lookup = l;
    a->is_tcp = l->is_tcp;
    buf_init(&a->in, DNS_MESSAGE_MAX + 2);
    random_bytes(&a->id, sizeof a->id);
    if (dns_query_encode(&l->question, a->id, &query) != BUF_OK) {
        attempt_end(l);
        return err_oom(err);
    }
    prefix[0] = (uint8_t)(query.len >> 8);
    prefix[1] = (uint8_t)query.len;
    sock_write(&a->sock, (struct slice[]){ slice_of(prefix, a->is_tcp ? 2 : 0), buf_slice(&query) },
               2, true);
    sock_watch(&a->sock, SOCK_READABLE);
    sock_set_deadline(&a->sock, sock_now(&a->sock), a->is_tcp ? TCP_MS : TRY_MS);
    return 0;
}

/* The next server that can be asked at all. */
static int try_next(struct lookup *l, struct abx_err *err)
{
    int r = ABX_UNAVAILABLE;

    attempt_end(l);
    while (r < 0 && l->tries < TRIES) {
        l->tries++;
        r = attempt_start(l, err);
    }
    return r;
}

static void try_next_or_end(struct lookup *l)
{
    if (try_next(l, NULL) < 0)
        lookup_end(l, NULL);
}

static void ask_by_tcp(struct lookup *l)
{
    l->is_tcp = true;
    l->tries--; /* the same server */
    try_next_or_end(l);
}

/* True: the attempt is over. A message that does not answer the question may be anybody's. */
static bool take_message(struct lookup *l, struct slice message)
{
    const struct attempt *a = l->attempt;
    struct dns_answer answer;

    if (!dns_answer_parse(message, &l->question, a->id, &answer))
        return false;
    if (answer.is_truncated && !a->is_tcp) {
        ask_by_tcp(l);
    } else if (!answer.is_truncated &&
               (answer.rcode == DNS_NOERROR || answer.rcode == DNS_NXDOMAIN || l->tries >= TRIES)) {
        lookup_end(l, &answer);
    } else {
        try_next_or_end(l); /* SERVFAIL and the like: another server may know */
    }
    return true;
}

/* The loop looks again when there is more. */
static void read_udp(struct lookup *l)
{
    struct slice message;
    ssize_t n = 0;

    for (unsigned i = 0; i < DATAGRAMS_PER_TURN; i++) {
        n = sock_read(&l->attempt->sock, &message);
        if (n < 0)
            break;
        if (take_message(l, message))
            return;
        if (++l->attempt->n_guesses >= GUESSES_MAX) {
            ask_by_tcp(l);
            return;
        }
    }
    if (n < 0 && n != -EAGAIN)
        try_next_or_end(l); /* refused */
}

static void read_tcp(struct lookup *l)
{
    struct buf *in = &l->attempt->in;
    struct slice piece;
    ssize_t n = sock_read(&l->attempt->sock, &piece);
    struct slice have;
    size_t size;

    if (n == -EAGAIN)
        return;
    if (n <= 0 || buf_append_slice(in, piece) != BUF_OK) {
        try_next_or_end(l);
        return;
    }
    have = buf_slice(in);
    if (!have.p || have.n < 2)
        return;
    size = (size_t)have.p[0] << 8 | have.p[1];
    if (have.n >= size + 2 && !take_message(l, slice_of(have.p + 2, size)))
        try_next_or_end(l);
}

static void on_event(struct sock *s, unsigned what)
{
    struct attempt *a = container_of(s, struct attempt, sock);

    if (s->error || (what & SOCK_DEADLINE)) {
        try_next_or_end(a->lookup);
        return;
    }
    if (what & (SOCK_WRITABLE | SOCK_KICKED)) {
        sock_flush(s);
        sock_watch(s, SOCK_READABLE);
    }
    if (!(what & (SOCK_READABLE | SOCK_HANGUP)))
        return;
    if (a->is_tcp)
        read_tcp(a->lookup);
    else
        read_udp(a->lookup);
}

/* --- asking ------------------------------------------------------------------------------------- */

static void wait_for(struct lookup *l, struct resolver_wait *w)
{
    w->lookup = l;
    w->next = l->waits;
    l->waits = w;
}

static bool is_room(const struct resolver *r, const struct resolver_account *a)
{
    size_t max = a->n >= RESOLVER_ACCOUNT_FEW ? r->max_lookups / 4 * 3 : r->max_lookups;

    return a->n < RESOLVER_ACCOUNT_MAX && r->n_lookups < max;
}

static struct lookup *lookup_new(struct resolver *r, const struct key *k,
                                 const struct dns_question *q, struct resolver_account *account)
{
    struct lookup *l = calloc(1, sizeof *l);

    if (!l)
        return NULL;
    l->resolver = r;
    l->key = *k;
    l->question = *q;
    l->at = &r->lookups;
    l->next = r->lookups;
    if (l->next)
        l->next->at = &l->next;
    r->lookups = l;
    r->n_lookups++;
    l->account = account;
    account->n++;
    return l;
}

int resolver_ask(struct resolver *r, const struct dns_question *q,
                 const struct resolver_servers *servers, struct resolver_account *account,
                 struct resolver_wait *w, struct abx_err *err)
{
    struct lookup *l = r->lookups;
    struct key k;
    int code;

    if (servers->n == 0)
        return err_set(err, ABX_FAILED_PRECONDITION, "there is no server of names");
    key_init(&k, q, servers);
    while (l && memcmp(&l->key, &k, sizeof k) != 0)
        l = l->next;
    if (l) {
        wait_for(l, w);
        return 0;
    }
    if (!is_room(r, account))
        return err_set(err, ABX_RESOURCE_EXHAUSTED, "too many names are being asked for");
    l = lookup_new(r, &k, q, account);
    if (!l)
        return err_oom(err);
    code = try_next(l, err);
    if (code < 0)
        lookup_end(l, NULL);
    else
        wait_for(l, w);
    return code;
}

void resolver_forget(struct resolver_wait *w)
{
    struct lookup *l = TAKE_PTR(w->lookup);
    struct resolver_wait **at;

    if (!l)
        return;
    at = &l->waits;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
}

void resolver_disown(struct resolver *r, struct resolver_account *account)
{
    struct lookup *next;

    for (struct lookup *l = r->lookups; l; l = next) {
        next = l->next;
        if (l->account != account)
            continue;
        if (!l->waits) {
            lookup_end(l, NULL);
            continue;
        }
        l->account = NULL;
        account->n--;
    }
}

int resolver_new(uv_loop_t *loop, size_t max_lookups, struct resolver **ret, struct abx_err *err)
{
    struct resolver *r = calloc(1, sizeof *r);

    if (!r)
        return err_oom(err);
    r->loop = loop;
    r->max_lookups = MIN(max_lookups, (size_t)RESOLVER_LOOKUPS_MAX);
    *ret = r;
    return 0;
}

void resolver_free(struct resolver *r)
{
    if (!r)
        return;
    while (r->lookups)
        lookup_end(r->lookups, NULL);
    while (r->oldest)
        kept_drop(r, r->oldest);
    free(r);
}
