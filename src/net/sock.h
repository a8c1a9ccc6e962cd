/* sock.h - one non-blocking stream socket on the loop: poll, one deadline, output queue.
 *
 * Built on uv_poll with our own read and write, so that nothing is read that no one wants and only
 * what the kernel takes is written; the rest waits in `out`. Everything that happens ends in one
 * call of on_event, which the owner uses as its only pump; sock_kick asks for one from the loop
 * (never from inside the call that kicks). Reads go into one buffer shared by all sockets of the
 * process: an idle connection owns no buffer, and body bytes are handed on without a copy. There
 * is one loop per process; a second thread must not read sockets.
 *
 * A layer (TLS) may stand between the queue and the descriptor; then everything read and written passes
 * it, and the owner sees plain bytes.
 *
 * The owner embeds struct sock. After sock_close no event comes; on_free comes once the loop has let
 * go of the handles, and only then may the memory be freed.
 */
#pragma once

#include <sys/types.h>
#include <uv.h>

#include "base/buf.h"
#include "base/err.h"

enum sock_event {
    SOCK_READABLE = 1,
    SOCK_WRITABLE = 2,
    SOCK_HANGUP = 4, /* the peer has closed its side, or both */
    SOCK_DEADLINE = 8,
    SOCK_KICKED = 16,
    SOCK_QUIET = 32, /* only for sock_watch: nothing at all, not even resets */
};

#define SOCK_READ_MAX (64u << 10) /* most bytes of one sock_read */

struct sock_layer;

/* What a layer does instead of the system calls; results as theirs, with -errno. */
struct sock_layer_ops {
    ssize_t (*read)(struct sock_layer *l, uint8_t *to, size_t n);
    ssize_t (*write)(struct sock_layer *l, struct slice s);
    /* Says that nothing more will be written. */
    void (*shutdown)(struct sock_layer *l);
    void (*free)(struct sock_layer *l);
};

struct sock_layer {
    const struct sock_layer_ops *ops;
    bool is_ready;         /* its handshake is over */
    bool chose_h2;         /* and agreed on HTTP/2 (ALPN) */
    bool has_more;         /* it holds input that the descriptor does not show */
    bool read_wants_write; /* reading goes on once the descriptor is writable */
};

struct sock {
    uv_poll_t poll;
    uv_timer_t timer;
    uv_idle_t idle;
    int fd;             /* owned */
    int watched;        /* what uv_poll_start was given */
    struct buf out;     /* not yet taken by the kernel; bounded by the owner */
    uint64_t deadline;  /* loop time in ms, 0 = none */
    uint64_t timer_due; /* 0 = timer not running */
    uint64_t sent;      /* bytes that the kernel has taken so far */
    void (*on_event)(struct sock *s, unsigned what);
    void (*on_free)(struct sock *s);
    int error;                /* errno of a failed write, 0 = none */
    struct sock_layer *layer; /* owned; NULL for none. Set it before the first event. */
    uint8_t n_handles;        /* still to be closed */
    bool is_blocked;          /* the kernel took less than it was given: wait for SOCK_WRITABLE */
    bool is_closed;
    bool is_in_event;
    bool is_kicked;
    bool is_read_due; /* the layer has input that is wanted */
    bool is_urgent;   /* an urgent byte came while nothing was watched but resets */
};

/* Takes `fd` (made non-blocking) whatever the result. `s` needs no preparation. */
int sock_init(struct sock *s, uv_loop_t *loop, int fd, void (*on_event)(struct sock *, unsigned),
              void (*on_free)(struct sock *), struct abx_err *err);
/* Asks for events: a set of SOCK_READABLE and SOCK_HANGUP; SOCK_WRITABLE is added while blocked.
 * Resets are reported (as all three) whatever is asked for, except with SOCK_QUIET, or with nothing asked for
 * once the peer has sent urgent data. */
void sock_watch(struct sock *s, unsigned what);
/* Bytes read, borrowed until the next read of any socket; 0 at the end of the stream, -errno else
 * (-EAGAIN when nothing is there). */
ssize_t sock_read(struct sock *s, struct slice *ret);
/* Queues `parts` and writes queue and parts together as far as the kernel takes them. Failures are
 * kept in s->error and kick the owner. `is_now` false: small pieces only join the queue and the
 * owner is kicked to flush them, so that a head and what follows it leave in one write. */
void sock_write(struct sock *s, const struct slice *parts, size_t n_parts, bool is_now);
/* Room for a usual head in one piece; failing is fine. */
void sock_expect_head(struct sock *s);
/* Frees the queue's memory if it is empty: for idle connections. */
void sock_shrink(struct sock *s);
/* Writes the queue as far as the kernel takes it. */
void sock_flush(struct sock *s);
/* One on_event with SOCK_KICKED, soon. */
void sock_kick(struct sock *s);
/* Deadline `ms` from `base` (a loop time); cheap to move later. */
void sock_set_deadline(struct sock *s, uint64_t base, uint64_t ms);
void sock_clear_deadline(struct sock *s);
static inline uint64_t sock_now(const struct sock *s)
{
    return uv_now(s->poll.loop);
}
/* Ends our side of the stream; what is queued is not waited for. */
void sock_shutdown(struct sock *s);
/* Closes the fd; `reset` sends RST and drops what the kernel still holds. Idempotent. */
void sock_close(struct sock *s, bool reset);
