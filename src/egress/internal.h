/* internal.h - what the parts of egress share.
 *
 *     egress.c   life, links to control and engine, sandboxes coming and going
 *     box.c      one sandbox: its rules, the sockets at which what it dials ends, what was denied
 *     flow.c     one TCP connection
 *     names.c    what a sandbox asks for on port 53
 *     report.c   what it says of its processes
 */
#pragma once

#include "base/budget.h"
#include "e2b/ids.h"
#include "egress/egress.h"
#include "egress/hostnet.h"
#include "egress/lane.h"
#include "egress/pins.h"
#include "egress/policy.h"
#include "egress/report.h"
#include "egress/resolver.h"
#include "net/ipc.h"

struct flow;
struct names;
struct listening; /* a socket of a sandbox's namespace, with its watcher */

#define BOX_BUCKETS 4096u
/* An eighth of the descriptors is for questions. */
#define FDS_PER_LOOKUP 8u

/* A sandbox. */
struct box {
    struct box *next; /* in its bucket */
    struct egress *egress;
    char id[SANDBOX_ID_SIZE];
    uint64_t generation;
    struct policy *policy;
    bool is_paused;
    bool is_between; /* running and paused: whether it has a network is only known afterwards */
    bool is_asking;  /* the engine, for the sockets */
    bool is_warned;  /* the log says that it has no network */
    uint64_t ask_at; /* loop time of the next try, 0 = none */
    struct listening *tcp;
    struct names *names;
    struct reports *reports; /* NULL: none come */
    int link_fd;
    const volatile uint64_t *refused; /* datagrams, counted by the kernel; NULL without */
    uint64_t refused_told;
    struct pins pins;
    struct resolver_account lookups;
    struct flow *flows;
    size_t n_flows;
    size_t n_pipes; /* for lane.h */
    /* What the logs say of denials and processes is bounded. */
    struct budget tell_budget, report_budget;
    uint64_t n_untold, n_unreported;
};

struct egress {
    struct egress_opts opts;
    struct operator_policy operator_policy;
    struct ipc_client *control, *engine;
    struct hostnet *host;
    struct lane_pool pipes;
    struct resolver *resolver;
    struct resolver_servers servers; /* the operator's */
    struct timespec servers_at;      /* when their file was changed */
    struct box *boxes[BOX_BUCKETS];
    struct tls_trust *host_trust; /* once it was needed; NULL */
    size_t n_boxes, n_flows;
    size_t n_veils;
    size_t n_streams; /* connections to port 53 */
    uint64_t generation;
    uv_timer_t timer; /* once a second */
    bool is_closing;
};

/* Whoever the host trusts, borrowed; NULL when that cannot be read. */
struct tls_trust *egress_host_trust(struct egress *e);

/* --- box.c --- */

struct box *box_new(struct egress *e, const char *id, struct abx_err *err);
/* Closes its sockets and connections, at once, and frees it. */
void box_free(struct box *b);
/* Other rules: connections that they do not allow any more are broken off. */
void box_set_policy(struct box *b, struct policy *policy);
void box_recheck(struct box *b);
/* The engine's answer: descriptors in the order of engine/steer.h, which are taken; the last may be -EBADF. `root_uid` is the
 * sandbox's. */
#define BOX_FDS 5u
void box_steer(struct box *b, int fds[BOX_FDS], uid_t root_uid);
/* Closes sockets and connections; another box_steer may follow. */
void box_unsteer(struct box *b);
/* Once a second: goes on with what was put off. */
void box_tick(struct box *b);
/* Says in the service's log and in the sandbox's own that something was refused. `name` may be NULL. */
void box_denied(struct box *b, const char *to, const char *name, const char *rule, const char *why);

/* A line for the sandbox's own logs. Pairs of names and values (up to 12), a NULL name ends them; a NULL value is left out. While
 * control is away the line is lost. */
void box_tell(struct box *b, Abx__Ipc__Log__Source source, Abx__Ipc__Log__Level level,
              const char *message, const char *const *pairs);

/* May it have one connection more? The last quarter of the descriptors is for sandboxes with few connections. */
bool box_has_room(const struct box *b);

/* --- flow.c --- */

/* Takes the accepted socket. */
void flow_begin(struct box *b, int fd);
/* Is it still allowed? Else it is broken off. */
void flow_recheck(struct flow *f);
struct flow *flow_next(const struct flow *f);
void flow_break(struct flow *f);
