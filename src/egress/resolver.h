/* resolver.h - asks servers of names for sandboxes: UDP first, TCP when the answer does not fit, one server after the
 * other; answers are kept as long as they say, and the same question is asked once for all who wait.
 *
 * What is kept belongs to the list of servers that was asked, so that a sandbox with servers of its own cannot give
 * others its answers. Each question has a socket, a port and an id of its own; whoever guesses at them has so many
 * guesses, then the question goes by TCP.
 *
 * One question is one socket at a time. There are so many in all and of each account, which is a sandbox's; a question
 * counts until its end, not until its asker goes. The last quarter is for accounts with few.
 */
#pragma once

#include <uv.h>

#include "base/err.h"
#include "egress/address.h"
#include "wire/dns.h"

#define RESOLVER_SERVERS_MAX 4u
#define RESOLVER_LOOKUPS_MAX 1024u /* in all */
#define RESOLVER_ACCOUNT_MAX 64u
#define RESOLVER_ACCOUNT_FEW 8u

struct resolver;
struct lookup;

struct resolver_servers {
    struct address list[RESOLVER_SERVERS_MAX];
    size_t n;
};

/* Lies in whom questions are counted for, zeroed; resolver_disown before it goes. */
struct resolver_account {
    size_t n; /* questions under way that it was the first to ask */
};

/* Lies in the one who waits. */
struct resolver_wait {
    struct resolver_wait *next;
    struct lookup *lookup; /* NULL when it does not wait */
    /* Once, from the loop; `answer` is borrowed until return, NULL when no server gave any. */
    void (*done)(struct resolver_wait *w, const struct dns_answer *answer);
};

/* `max_lookups`: in all, up to RESOLVER_LOOKUPS_MAX. */
int resolver_new(uv_loop_t *loop, size_t max_lookups, struct resolver **ret, struct abx_err *err);
/* Who still waits is told that there is no answer; sockets close from the loop. NULL is fine. */
void resolver_free(struct resolver *r);

/* An answer that was kept, borrowed until the loop goes on, and its age. False: there is none. */
bool resolver_find(struct resolver *r, const struct dns_question *q,
                   const struct resolver_servers *servers, struct dns_answer *ret,
                   uint32_t *ret_age_s);
/* Asks for it. RESOURCE_EXHAUSTED when too much is being asked already, by `account` or in all; FAILED_PRECONDITION
 * without servers. */
int resolver_ask(struct resolver *r, const struct dns_question *q,
                 const struct resolver_servers *servers, struct resolver_account *account,
                 struct resolver_wait *w, struct abx_err *err);
/* Ends the account's questions that nobody waits for; others go on without it. */
void resolver_disown(struct resolver *r, struct resolver_account *account);
/* `done` is not called any more. Fine when it does not wait. */
void resolver_forget(struct resolver_wait *w);
