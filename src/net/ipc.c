/* ipc.c - connections, requests, encoding. See ipc.h; listener and client are in ipc_endpoint.c. */
#include "net/ipc.h"

#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/packet.h"
#include "base/str.h"

#define FRAMES_PER_WAKEUP 16
/* Unpacked, an entry of two short strings takes up to 116 bytes for its 8 in the frame. */
#define MEMORY_FACTOR 16

/* One frame that the peer could not take yet. */
struct queued {
    struct queued *next;
    int fds[IPC_FDS_MAX];
    size_t n_fds;
    size_t n;
    uint8_t bytes[];
};

struct pending {
    struct pending *next;
    uint64_t seq;
    int64_t deadline_ns;
    ipc_done_fn done;
    void *user;
};

struct ipc_conn {
    uv_poll_t poll;
    uv_timer_t timer; /* earliest deadline of `pending` */
    uv_loop_t *loop;
    int fd;
    struct ipc_handlers handlers;
    bool is_closing;
    bool is_reading;
    unsigned open_handles;
    struct abx_err why;
    uint64_t last_seq;
    struct pending *pending; /* in the order sent */
    struct queued *head, *tail;
    size_t queue_frames, queue_bytes;
    uint8_t *in; /* IPC_FRAME_MAX bytes */
};

/* --- encoding ---------------------------------------------------------------------------------- */

/* Counts down and never up again: bounds what one frame can make us allocate. */
struct capped {
    ProtobufCAllocator a;
    size_t left;
};

static void *capped_alloc(void *data, size_t n)
{
    struct capped *c = data;

    if (n > c->left)
        return NULL;
    c->left -= n;
    return malloc(n);
}

static void capped_free(void *data, void *p)
{
    (void)data;
    free(p);
}

Abx__Ipc__Frame *ipc_frame_decode(const uint8_t *p, size_t n)
{
    struct capped c = { { capped_alloc, capped_free, &c }, MEMORY_FACTOR * n + IPC_FRAME_MAX };

    return abx__ipc__frame__unpack(&c.a, n, p);
}

size_t ipc_frame_encode(Abx__Ipc__Frame *frame, uint8_t *to)
{
    frame->version = IPC_VERSION;
    if (abx__ipc__frame__get_packed_size(frame) > IPC_FRAME_MAX)
        return 0;
    return abx__ipc__frame__pack(frame, to);
}

void ipc_error_decode(const Abx__Ipc__Error *e, struct abx_err *ret)
{
    int code = e->code >= 1 && e->code <= 16 ? -1000 - (int)e->code : ABX_UNKNOWN;

    (void)err_set(ret, code, "%.400s", e->message);
    if (e->reason < ABX_REASON_COUNT_)
        ret->reason = (enum abx_reason)e->reason;
}

bool ipc_body_is_reply(Abx__Ipc__Frame__BodyCase body)
{
    switch (body) {
    case ABX__IPC__FRAME__BODY_ERROR:
    case ABX__IPC__FRAME__BODY_HELLO_REPLY:
    case ABX__IPC__FRAME__BODY_CREATE_REPLY:
    case ABX__IPC__FRAME__BODY_KILL_REPLY:
    case ABX__IPC__FRAME__BODY_LIST_REPLY:
    case ABX__IPC__FRAME__BODY_TEMPLATES_REPLY:
    case ABX__IPC__FRAME__BODY_FREEZE_REPLY:
    case ABX__IPC__FRAME__BODY_STOP_REPLY:
    case ABX__IPC__FRAME__BODY_CLONE_REPLY:
    case ABX__IPC__FRAME__BODY_EXCHANGE_REPLY:
    case ABX__IPC__FRAME__BODY_USAGE_REPLY:
    case ABX__IPC__FRAME__BODY_MEASURE_REPLY:
    case ABX__IPC__FRAME__BODY_AUDIT_REPLY:
    case ABX__IPC__FRAME__BODY_ENGINE_INFO_REPLY:
    case ABX__IPC__FRAME__BODY_SOCKET_REPLY:
    case ABX__IPC__FRAME__BODY_STEER_REPLY:
    case ABX__IPC__FRAME__BODY_ENTRY_DONE:
    case ABX__IPC__FRAME__BODY_REMOVE_DONE:
    case ABX__IPC__FRAME__BODY_HOLD_DONE:
    case ABX__IPC__FRAME__BODY_HEALTH_REPLY:
    case ABX__IPC__FRAME__BODY_WAKE_REPLY:
    case ABX__IPC__FRAME__BODY_LOOKUP_REPLY:
    case ABX__IPC__FRAME__BODY_ADMIN_REPLY:
        return true;
    default: /* foreign: requests, events, and what a newer peer sends */
        return false;
    }
}

/* --- end of a connection ----------------------------------------------------------------------- */

static void queue_drop_head(struct ipc_conn *c)
{
    struct queued *q = c->head;

    c->head = q->next;
    if (!c->head)
        c->tail = NULL;
    c->queue_frames--;
    c->queue_bytes -= q->n;
    packet_close_fds(q->fds, q->n_fds);
    free(q);
}

static void conn_finish(uv_handle_t *h)
{
    struct ipc_conn *c = h->data;
    struct abx_err gone;

    if (--c->open_handles > 0)
        return;
    (void)err_set(&gone, ABX_UNAVAILABLE, "%s",
                  c->why.code ? c->why.msg : "the connection was closed");
    while (c->pending) {
        struct pending *p = c->pending;

        c->pending = p->next;
        p->done(p->user, &gone, NULL, NULL, 0);
        free(p);
    }
    c->handlers.on_close(c->handlers.user, c, &c->why);
    free(c->in);
    free(c);
}

/* `why` NULL: closed in order. */
static void conn_end(struct ipc_conn *c, const struct abx_err *why)
{
    if (c->is_closing)
        return;
    c->is_closing = true;
    if (why)
        c->why = *why;
    while (c->head)
        queue_drop_head(c);
    uv_close((uv_handle_t *)&c->poll, conn_finish);
    uv_close((uv_handle_t *)&c->timer, conn_finish);
    fd_close(TAKE_FD(c->fd));
}

void ipc_conn_close(struct ipc_conn *c)
{
    conn_end(c, NULL);
}

/* --- sending ----------------------------------------------------------------------------------- */

static void on_poll(uv_poll_t *h, int status, int events);

static void update_poll(struct ipc_conn *c)
{
    int events = (c->is_reading ? UV_READABLE : 0) | (c->head ? UV_WRITABLE : 0);
    int r;

    if (c->is_closing)
        return;
    r = events ? uv_poll_start(&c->poll, events, on_poll) : uv_poll_stop(&c->poll);
    if (r < 0) {
        struct abx_err e;

        (void)err_sys(&e, -r, "poll");
        conn_end(c, &e);
    }
}

static bool is_again(int e)
{
    return e == EAGAIN || e == ENOBUFS;
}

static int queue_add(struct ipc_conn *c, const uint8_t *p, size_t n, int *fds, size_t n_fds,
                     struct abx_err *err)
{
    struct queued *q;
    size_t size;

    if (c->queue_frames >= IPC_QUEUE_FRAMES || c->queue_bytes + n > IPC_QUEUE_BYTES)
        return err_set(err, ABX_RESOURCE_EXHAUSTED, "the peer takes no messages");
    size = sizeof *q + n;
    q = malloc(size);
    if (!q)
        return err_oom(err);
    *q = (struct queued){ .n = n, .n_fds = n_fds };
    memcpy(q->bytes, p, n);
    for (size_t i = 0; i < n_fds; i++)
        q->fds[i] = TAKE_FD(fds[i]);
    if (c->tail)
        c->tail->next = q;
    else
        c->head = q;
    c->tail = q;
    c->queue_frames++;
    c->queue_bytes += n;
    update_poll(c);
    return 0;
}

static void flush(struct ipc_conn *c)
{
    while (c->head) {
        struct queued *q = c->head;

        if (packet_send(c->fd, q->bytes, q->n, q->fds, q->n_fds, MSG_DONTWAIT) < 0) {
            if (is_again(errno))
                return;
            /* The peer is gone: what it sent before is still read, then reading sees the end. */
            while (c->head)
                queue_drop_head(c);
            break;
        }
        queue_drop_head(c);
    }
    update_poll(c);
}

static int send_bytes(struct ipc_conn *c, const uint8_t *p, size_t n, int *fds, size_t n_fds,
                      struct abx_err *err)
{
    int r = 0;

    if (c->is_closing)
        return err_set(err, ABX_UNAVAILABLE, "the connection is closed");
    if (c->head)
        return queue_add(c, p, n, fds, n_fds, err);
    if (packet_send(c->fd, p, n, fds, n_fds, MSG_DONTWAIT) < 0)
        r = is_again(errno) ? queue_add(c, p, n, fds, n_fds, err) : err_sys(err, errno, "send");
    return r;
}

int ipc_conn_send(struct ipc_conn *c, Abx__Ipc__Frame *frame, int *fds, size_t n_fds,
                  struct abx_err *err)
{
    uint8_t bytes[IPC_FRAME_MAX];
    size_t n = ipc_frame_encode(frame, bytes);
    int r;

    if (n == 0)
        r = err_reason(err, ABX_REASON_TOO_LARGE, "message over %u bytes", IPC_FRAME_MAX);
    else if (n_fds > IPC_FDS_MAX)
        r = err_set(err, ABX_INVALID_ARGUMENT, "over %u descriptors", IPC_FDS_MAX);
    else
        r = send_bytes(c, bytes, n, fds, n_fds, err);
    packet_close_fds(fds, n_fds);
    return r;
}

int ipc_conn_reply(struct ipc_conn *c, uint64_t seq, Abx__Ipc__Frame *frame, struct abx_err *err)
{
    frame->seq = seq;
    return ipc_conn_send(c, frame, NULL, 0, err);
}

int ipc_conn_reply_error(struct ipc_conn *c, uint64_t seq, const struct abx_err *failure,
                         struct abx_err *err)
{
    Abx__Ipc__Frame f = ABX__IPC__FRAME__INIT;
    Abx__Ipc__Error e = ABX__IPC__ERROR__INIT;
    char message[ABX_ERR_MSG_MAX];

    memcpy(message, failure->msg, sizeof message);
    e.code = (uint32_t)(-1000 - failure->code);
    e.reason = (uint32_t)failure->reason;
    e.message = message;
    f.body_case = ABX__IPC__FRAME__BODY_ERROR;
    f.error = &e;
    return ipc_conn_reply(c, seq, &f, err);
}

/* --- requests ---------------------------------------------------------------------------------- */

static void on_deadline(uv_timer_t *t);

/* Sets the timer to the earliest deadline; `pending` is short enough to walk. */
static void update_timer(struct ipc_conn *c)
{
    int64_t first = INT64_MAX, now = time_mono_ns();

    if (c->is_closing)
        return;
    for (const struct pending *p = c->pending; p; p = p->next)
        first = MIN(first, p->deadline_ns);
    if (first == INT64_MAX) {
        (void)uv_timer_stop(&c->timer);
        return;
    }
    uv_update_time(c->loop);
    (void)uv_timer_start(&c->timer, on_deadline,
                         first > now ? (uint64_t)((first - now) / NSEC_PER_MSEC + 1) : 0, 0);
}

/* Unlinks and returns the request that `matches`, NULL if there is none. */
static struct pending *pending_take(struct ipc_conn *c, uint64_t seq, int64_t due_ns)
{
    for (struct pending **at = &c->pending; *at; at = &(*at)->next) {
        struct pending *p = *at;

        if (seq ? p->seq == seq : p->deadline_ns <= due_ns) {
            *at = p->next;
            return p;
        }
    }
    return NULL;
}

static void on_deadline(uv_timer_t *t)
{
    struct ipc_conn *c = t->data;
    struct pending *p;

    while (!c->is_closing && (p = pending_take(c, 0, time_mono_ns())) != NULL) {
        struct abx_err late;

        (void)err_set(&late, ABX_DEADLINE_EXCEEDED, "no answer in time");
        p->done(p->user, &late, NULL, NULL, 0);
        free(p);
    }
    update_timer(c);
}

int ipc_conn_request(struct ipc_conn *c, Abx__Ipc__Frame *frame, int timeout_ms, ipc_done_fn done,
                     void *user, struct abx_err *err)
{
    _cleanup_(freep) struct pending *p = calloc(1, sizeof *p);
    struct pending **end = &c->pending;
    int r;

    if (!p)
        return err_oom(err);
    p->seq = ++c->last_seq;
    p->deadline_ns = time_mono_ns() + (int64_t)timeout_ms * NSEC_PER_MSEC;
    p->done = done;
    p->user = user;
    frame->seq = p->seq;
    r = ipc_conn_send(c, frame, NULL, 0, err);
    if (r < 0)
        return r;
    while (*end)
        end = &(*end)->next;
    *end = TAKE_PTR(p);
    update_timer(c);
    return 0;
}

/* --- receiving --------------------------------------------------------------------------------- */

static void take_reply(struct ipc_conn *c, const Abx__Ipc__Frame *f, int *fds, size_t n_fds)
{
    struct pending *p = f->seq ? pending_take(c, f->seq, 0) : NULL;
    struct abx_err e;

    if (!p)
        return; /* after its deadline, or never asked */
    if (f->body_case == ABX__IPC__FRAME__BODY_ERROR) {
        ipc_error_decode(f->error, &e);
        p->done(p->user, &e, NULL, NULL, 0);
    } else {
        p->done(p->user, NULL, f, fds, n_fds);
    }
    free(p);
    update_timer(c);
}

static void take_frame(struct ipc_conn *c, const Abx__Ipc__Frame *f, int *fds, size_t n_fds)
{
    struct abx_err e = { 0 };

    if (f->version == 0)
        (void)err_set(&e, ABX_INVALID_ARGUMENT, "message without version");
    else if (f->body_case == ABX__IPC__FRAME__BODY__NOT_SET)
        (void)err_set(&e, ABX_UNIMPLEMENTED, "message of unknown kind");
    else if (ipc_body_is_reply(f->body_case))
        take_reply(c, f, fds, n_fds);
    else
        c->handlers.on_frame(c->handlers.user, c, f, fds, n_fds);
    /* Best effort: when it cannot be sent the peer's deadline ends the request. */
    if (e.code)
        (void)ipc_conn_reply_error(c, f->seq, &e, NULL);
}

/* Receives and handles one frame; false when there is no more for now. */
static bool read_one(struct ipc_conn *c)
{
    int fds[IPC_FDS_MAX];
    size_t n_fds;
    ssize_t n = packet_receive(c->fd, c->in, IPC_FRAME_MAX, fds, &n_fds, MSG_DONTWAIT);
    Abx__Ipc__Frame *f;
    struct abx_err e = { 0 };

    if (n < 0 && is_again(errno))
        return false;
    if (n < 0 && errno != EBADMSG) {
        (void)err_sys(&e, errno, "receive");
        conn_end(c, &e);
        return false;
    }
    if (n == 0) {
        packet_close_fds(fds, n_fds);
        conn_end(c, NULL);
        return false;
    }
    f = n < 0 ? NULL : ipc_frame_decode(c->in, (size_t)n);
    if (f) {
        take_frame(c, f, fds, n_fds);
        abx__ipc__frame__free_unpacked(f, NULL);
    } else {
        (void)err_set(&e, ABX_INVALID_ARGUMENT, "the peer sent a message that cannot be read");
        conn_end(c, &e);
    }
    packet_close_fds(fds, n_fds);
    return true;
}

/* An error (status < 0; libuv has stopped watching) is a peer that is gone and had not read all of ours: what it sent
 * before is still there. It comes first, in portions as ever; then reading tells how the connection ended. */
static void on_poll(uv_poll_t *h, int status, int events)
{
    struct ipc_conn *c = h->data;
    int n_read = 0;

    if (status < 0)
        events = UV_READABLE | UV_WRITABLE;
    if (events & UV_WRITABLE)
        flush(c);
    while (n_read < FRAMES_PER_WAKEUP && events & UV_READABLE) {
        if (c->is_closing || !c->is_reading || !read_one(c))
            break;
        n_read++;
    }
    if (status == 0 || c->is_closing)
        return;
    if (n_read == 0 && c->is_reading) {
        struct abx_err e;

        (void)err_sys(&e, -status, "poll");
        conn_end(c, &e);
    } else {
        update_poll(c);
    }
}

/* --- making one -------------------------------------------------------------------------------- */

int ipc_conn_new(uv_loop_t *loop, int fd, const struct ipc_handlers *handlers,
                 struct ipc_conn **ret, struct abx_err *err)
{
    _cleanup_(closep) int own = fd;
    struct ipc_conn *c = calloc(1, sizeof *c);
    int r;

    if (c)
        c->in = malloc(IPC_FRAME_MAX);
    if (!c || !c->in) {
        free(c);
        return err_oom(err);
    }
    if (fd_set_nonblock(own, true) < 0)
        r = -errno;
    else
        r = uv_poll_init(loop, &c->poll, own);
    if (r < 0) {
        free(c->in);
        free(c);
        return err_sys(err, -r, "connection");
    }
    (void)uv_timer_init(loop, &c->timer); /* cannot fail */
    c->loop = loop;
    c->fd = TAKE_FD(own);
    c->poll.data = c->timer.data = c;
    c->open_handles = 2;
    c->handlers = *handlers;
    c->is_reading = true;
    update_poll(c);
    *ret = c;
    return 0;
}

void ipc_conn_set_reading(struct ipc_conn *c, bool on)
{
    c->is_reading = on;
    update_poll(c);
}
