/* test_resolver.c - how many questions go out, and what a flood of wrong answers comes to. */
#include "test.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "egress/resolver.h"

#define HEAD_SIZE 12u
#define DEADLINE_MS 60000u

/* A loop, a resolver, and a socket that stands for a server. */
struct lab {
    uv_loop_t loop;
    struct resolver *resolver;
    struct resolver_servers servers;
    int server;
};

/* One that waits. */
struct asker {
    struct resolver_wait wait;
    bool is_done, has_answer;
    size_t n_addresses;
};

static void lab_open(struct lab *l, size_t max_lookups)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr_storage ss = { 0 };
    socklen_t n = sizeof at;

    *l = (struct lab){ .server = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0) };
    assert_int_equal(bind(l->server, (struct sockaddr *)&at, n), 0);
    assert_int_equal(getsockname(l->server, (struct sockaddr *)&at, &n), 0);
    memcpy(&ss, &at, sizeof at);
    assert_true(address_from_kernel(&ss, &l->servers.list[0]));
    l->servers.n = 1;
    assert_int_equal(uv_loop_init(&l->loop), 0);
    assert_int_equal(resolver_new(&l->loop, max_lookups, &l->resolver, NULL), 0);
}

static void lab_close(struct lab *l)
{
    resolver_free(l->resolver);
    assert_int_equal(uv_run(&l->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&l->loop), 0);
    fd_close(l->server);
}

static void on_done(struct resolver_wait *w, const struct dns_answer *answer)
{
    struct asker *a = container_of(w, struct asker, wait);

    a->is_done = true;
    a->has_answer = answer != NULL;
    a->n_addresses = answer ? answer->n_addresses : 0;
}

/* For the address of n<number>.x. */
static struct dns_question question(unsigned number)
{
    uint8_t message[HEAD_SIZE + 32] = { [5] = 1 };
    size_t n = HEAD_SIZE;
    struct dns_question q;
    enum dns_rcode rcode;

    n += (size_t)snprintf((char *)message + n, 16, "%cn%04u%cx", 5, number, 1) + 1;
    message[n + 1] = DNS_A;
    message[n + 3] = 1;
    assert_int_equal(dns_question_parse(slice_of(message, n + 4), &q, &rcode), DNS_OK);
    return q;
}

static int ask(struct lab *l, unsigned number, struct resolver_account *account, struct asker *a)
{
    struct dns_question q = question(number);

    *a = (struct asker){ .wait.done = on_done };
    return resolver_ask(l->resolver, &q, &l->servers, account, &a->wait, NULL);
}

static void questions_are_bounded_by_account_and_in_all(void **state)
{
    static struct asker askers[128], other;
    struct resolver_account greedy = { 0 }, second = { 0 }, modest = { 0 };
    struct lab l;
    unsigned i;

    (void)state;
    lab_open(&l, 120);
    for (i = 0; i < RESOLVER_ACCOUNT_MAX; i++)
        assert_int_equal(ask(&l, i, &greedy, &askers[i]), 0);
    assert_int_equal(ask(&l, 100, &greedy, &askers[i]), ABX_RESOURCE_EXHAUSTED);
    assert_int_equal(greedy.n, RESOLVER_ACCOUNT_MAX);
    /* What another asks already costs nothing, to whoever. */
    assert_int_equal(ask(&l, 0, &modest, &other), 0);
    assert_int_equal(modest.n, 0);
    resolver_forget(&other.wait);
    /* Whoever forgets has not asked less. */
    for (unsigned k = 0; k < i; k++)
        resolver_forget(&askers[k].wait);
    assert_int_equal(ask(&l, 100, &greedy, &askers[0]), ABX_RESOURCE_EXHAUSTED);
    /* Three quarters are for all, the last one for those with few. */
    for (i = 0; i < 120 / 4 * 3 - RESOLVER_ACCOUNT_MAX; i++)
        assert_int_equal(ask(&l, 200 + i, &second, &askers[i]), 0);
    assert_int_equal(ask(&l, 300, &second, &other), ABX_RESOURCE_EXHAUSTED);
    for (i = 0; i < RESOLVER_ACCOUNT_FEW; i++)
        assert_int_equal(ask(&l, 400 + i, &modest, &askers[64 + i]), 0);
    assert_int_equal(ask(&l, 500, &modest, &other), ABX_RESOURCE_EXHAUSTED);
    /* Nobody waits for the first one's: they end with it. */
    resolver_disown(l.resolver, &greedy);
    assert_int_equal(greedy.n, 0);
    assert_int_equal(ask(&l, 500, &modest, &other), 0);
    /* Others are waited for: they go on, and count for nobody. */
    resolver_disown(l.resolver, &second);
    assert_int_equal(second.n, 0);
    assert_false(askers[0].is_done);
    lab_close(&l);
    assert_true(askers[0].is_done && other.is_done && !other.has_answer);
    assert_int_equal(modest.n, 0);
}

/* The next question that came to the server: how long it is. */
static size_t hear(struct lab *l, uint8_t to[512], struct sockaddr_in *peer)
{
    socklen_t size = sizeof *peer;
    ssize_t n = recvfrom(l->server, to, 512, 0, (struct sockaddr *)peer, &size);

    assert_true(n > (ssize_t)HEAD_SIZE);
    return (size_t)n;
}

static void send_answer(struct lab *l, const uint8_t *query, size_t n, uint8_t wrong,
                        const struct sockaddr_in *peer)
{
    uint8_t m[512];

    memcpy(m, query, n);
    m[0] ^= wrong;
    m[2] = 0x81;
    m[3] = DNS_NXDOMAIN;
    m[11] = 0; /* without EDNS */
    n -= 11;
    assert_int_equal(sendto(l->server, m, n, 0, (const struct sockaddr *)peer, sizeof *peer), n);
}

/* The right answer comes behind `n_wrong` others. */
static void ask_amid_wrong_answers(struct lab *l, struct resolver_account *account, struct asker *a,
                                   unsigned n_wrong)
{
    struct sockaddr_in peer;
    uint8_t query[512];
    size_t n;

    assert_int_equal(ask(l, 1, account, a), 0);
    n = hear(l, query, &peer);
    for (unsigned i = 0; i < n_wrong; i++)
        send_answer(l, query, n, 0xff, &peer);
    send_answer(l, query, n, 0, &peer);
}

static void wrong_answers_are_read_in_turns(void **state)
{
    struct resolver_account account = { 0 };
    struct asker a;
    struct lab l;
    int turns = 0;

    (void)state;
    lab_open(&l, 16);
    ask_amid_wrong_answers(&l, &account, &a, 50);
    for (; turns < 10 && !a.is_done; turns++)
        (void)uv_run(&l.loop, UV_RUN_ONCE);
    assert_true(a.is_done && a.has_answer);
    assert_true(turns > 1);
    assert_int_equal(account.n, 0);
    lab_close(&l);
}

/* Nobody listens at the server's TCP port, so that attempt fails; the next one is over UDP no more either. */
static void a_flood_of_wrong_answers_ends_the_guessing(void **state)
{
    struct resolver_account account = { 0 };
    uint8_t query[512];
    struct asker a;
    struct lab l;
    uint64_t end;

    (void)state;
    lab_open(&l, 16);
    ask_amid_wrong_answers(&l, &account, &a, 200); /* the right one is too late */
    end = uv_hrtime() / 1000000 + DEADLINE_MS;
    while (!a.is_done && uv_hrtime() / 1000000 < end)
        (void)uv_run(&l.loop, UV_RUN_ONCE);
    assert_true(a.is_done && !a.has_answer);
    assert_int_equal(recv(l.server, query, sizeof query, 0), -1);
    assert_int_equal(account.n, 0);
    lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(questions_are_bounded_by_account_and_in_all),
        cmocka_unit_test(wrong_answers_are_read_in_turns),
        cmocka_unit_test(a_flood_of_wrong_answers_ends_the_guessing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
