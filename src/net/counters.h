/* counters.h - what the processes of a service count for GET /abx/v1/metrics.
 *
 * The supervisor makes three pieces of memory, one with a block for each gateway process, one with the
 * block of control and one with that of egress, and keeps them: a role that is started again goes on counting in its block, so that no
 * total is lost or goes back. Each block has one writer; control reads all of them. Nothing in them is
 * trusted to be more than a number.
 *
 * A block begins with COUNTERS_LAYOUT. A role of another release than the supervisor's finds a foreign
 * layout, counts in memory of its own, and the block shows zeros.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define COUNTERS_BLOCK 4096u /* bytes from one block to the next */

#define HISTOGRAM_BOUNDS 15
/* Upper bounds of the buckets in microseconds; a last bucket takes what is over them. */
extern const uint64_t histogram_bounds_us[HISTOGRAM_BOUNDS];

struct histogram {
    uint64_t buckets[HISTOGRAM_BOUNDS + 1]; /* not cumulative */
    uint64_t sum_us;
};

enum count_route {
    COUNT_ROUTE_CONTROL, /* the control plane */
    COUNT_ROUTE_ENVD,    /* a sandbox's daemon */
    COUNT_ROUTE_PORT,    /* another port of a sandbox */
    COUNT_ROUTE_NONE,    /* answered by the gateway without one: OPTIONS, bad addresses */
    COUNT_ROUTES_,
};

enum count_class {
    COUNT_CLASS_ABORTED, /* no answer, or one that broke off */
    COUNT_CLASS_1XX,     /* switched protocols */
    COUNT_CLASS_2XX,
    COUNT_CLASS_3XX,
    COUNT_CLASS_4XX,
    COUNT_CLASS_5XX,
    COUNT_CLASSES_,
};

enum count_upstream {
    COUNT_UPSTREAM_GONE,        /* the sandbox is not there */
    COUNT_UPSTREAM_CLOSED,      /* its port is not open */
    COUNT_UPSTREAM_TIMEOUT,     /* its server does not accept */
    COUNT_UPSTREAM_TLS,         /* no TLS with the server of an httpsPort */
    COUNT_UPSTREAM_BROKEN,      /* the connection broke before or within the answer */
    COUNT_UPSTREAM_UNAVAILABLE, /* a role restarts or has no resources */
    COUNT_UPSTREAM_CONTROL,     /* control broke off or was late */
    COUNT_UPSTREAMS_,
};

enum count_limit { COUNT_LIMIT_CLIENT, COUNT_LIMIT_SANDBOX, COUNT_LIMIT_KEY, COUNT_LIMITS_ };

struct gateway_counters {
    uint64_t layout;
    uint64_t starts;
    uint64_t connections; /* at present */
    uint64_t connections_total;
    uint64_t requests[COUNT_ROUTES_][COUNT_CLASSES_];
    struct histogram seconds[COUNT_ROUTES_]; /* from the request's head to that of its answer */
    uint64_t bytes_in[COUNT_ROUTES_];        /* bodies, and what follows an upgrade */
    uint64_t bytes_out[COUNT_ROUTES_];
    uint64_t upstream_errors[COUNT_UPSTREAMS_];
    uint64_t limited[COUNT_LIMITS_];
};

#define COUNT_RESULTS 17 /* 0 = good, else the Connect code */

enum count_kill {
    COUNT_KILL_REQUEST,
    COUNT_KILL_TIMEOUT,
    COUNT_KILL_FAILED, /* a create that failed or that nobody waited for */
    COUNT_KILL_DIED,   /* by itself, of memory, by a signal, or with its engine */
    COUNT_KILL_OTHER,
    COUNT_KILLS_,
};

struct control_counters {
    uint64_t layout;
    uint64_t starts;
    uint64_t creates[COUNT_RESULTS];
    struct histogram create_seconds; /* of good ones: from the request to the sandbox that runs */
    uint64_t kills[COUNT_KILLS_];
    struct histogram kill_seconds; /* from the word to the last trace */
    uint64_t limited;              /* requests over a key's limit */
};

enum count_denied {
    COUNT_DENIED_CONNECTIONS,
    COUNT_DENIED_NAMES,     /* questions for them */
    COUNT_DENIED_DATAGRAMS, /* UDP to other ports than 53 */
    COUNT_DENIEDS_,
};

enum count_question {
    COUNT_QUESTION_ANSWERED, /* also that there is none, and from the cache */
    COUNT_QUESTION_FAILED,   /* no server answered, or too many are under way */
    COUNT_QUESTION_REFUSED,  /* by the sandbox's rules */
    COUNT_QUESTION_INVALID,  /* no question that can be asked on */
    COUNT_QUESTIONS_,
};

struct egress_counters {
    uint64_t layout;
    uint64_t starts;
    uint64_t sandboxes; /* at present */
    uint64_t
        connections; /* at present, those that are being dialled too; TCP without questions for names */
    uint64_t connections_total;
    uint64_t denied[COUNT_DENIEDS_];
    uint64_t questions[COUNT_QUESTIONS_];
    uint64_t bytes_out; /* of connections, from sandboxes */
    uint64_t bytes_in;
};

_Static_assert(sizeof(struct gateway_counters) <= COUNTERS_BLOCK, "one block");
_Static_assert(sizeof(struct control_counters) <= COUNTERS_BLOCK, "one block");
_Static_assert(sizeof(struct egress_counters) <= COUNTERS_BLOCK, "one block");

#define COUNTERS_LAYOUT                                                                            \
    ((UINT64_C(2) << 48) | (sizeof(struct egress_counters) << 32) |                                \
     (sizeof(struct gateway_counters) << 16) | sizeof(struct control_counters))

/* The only writer of `*c` is this process. */
static inline void count_add(uint64_t *c, uint64_t n)
{
    __atomic_store_n(c, __atomic_load_n(c, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

static inline void count_set(uint64_t *c, uint64_t n)
{
    __atomic_store_n(c, n, __ATOMIC_RELAXED);
}

static inline uint64_t count_get(const uint64_t *c)
{
    return __atomic_load_n(c, __ATOMIC_RELAXED);
}

void histogram_add(struct histogram *h, int64_t ns);
enum count_class count_class_of(int status);

/* Supervisor: zeroed memory of `n` blocks whose size stays; the fd is the caller's. */
int counters_new(size_t n, int *ret_fd, struct abx_err *err);
/* Maps `n` blocks from `fd` (borrowed), the block `first` and those behind it, for good; the memory is never unmapped.
 * Nothing else of `fd` can be reached by it, where a page is no larger than a block. */
int counters_map(int fd, size_t first, size_t n, bool is_writer, void **ret, struct abx_err *err);
/* The block to write to: `block` when its layout is ours or nobody's yet, else one of our own (`own`,
 * zeroed memory of the same size). Sets the layout and counts the start. */
struct gateway_counters *gateway_counters_take(void *block, struct gateway_counters *own);
struct control_counters *control_counters_take(void *block, struct control_counters *own);
struct egress_counters *egress_counters_take(void *block, struct egress_counters *own);
