/* report.c - see report.h. */
#include "egress/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/log.h"
#include "e2b/guest_abi.h"
#include "egress/internal.h"
#include "wire/rpc.h"

#define GATHER_MS 50               /* from the first message on: several commands are one wake-up */
#define REST_MS 1000               /* after more than may be told */
#define LOOKS_MAX 16u              /* messages at a time; the kernel keeps about as many */
#define DROPPED_MAX 1000000000000u /* whatever the sandbox says */

/* Outlives its box until the loop has let go of both handles. */
struct reports {
    uv_poll_t poll;
    uv_timer_t timer;
    unsigned n_handles;
    struct box *box; /* NULL once it is closed */
    int fd;
    uid_t root_uid;
    bool is_noisy; /* others than root sent something since the last look */
};

/* --- lines -------------------------------------------------------------------------------------- */

/* A JSON list, because that is what arguments are; those that have no room are left out. */
static void put_args(const Abx__Ipc__ProcessLine *line, char to[REPORT_ARGS_TEXT_MAX])
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(REPORT_ARGS_TEXT_MAX - 2);
    size_t done = 0;

    if (buf_append_str(&b, "[") != BUF_OK)
        return;
    for (size_t i = 0; i < line->n_args; i++) {
        if ((i > 0 && buf_append_str(&b, ",") != BUF_OK) ||
            json_string_put(&b, slice_str(line->args[i])) != BUF_OK)
            break;
        done = b.len;
    }
    buf_truncate(&b, MAX(done, (size_t)1));
    (void)snprintf(to, REPORT_ARGS_TEXT_MAX, "%.*s]", (int)b.len, (const char *)buf_data(&b));
}

static void describe_start(const Abx__Ipc__ProcessLine *line, struct report_text *t)
{
    size_t n = (size_t)snprintf(t->message, sizeof t->message,
                                "Process %" PRIu32 " started: %.400s", line->pid, line->cmd);

    for (size_t i = 0; i < line->n_args && n < sizeof t->message; i++)
        n += (size_t)snprintf(t->message + n, sizeof t->message - n, " %s", line->args[i]);
}

static void describe_end(const Abx__Ipc__ProcessLine *line, struct report_text *t)
{
    (void)snprintf(t->message, sizeof t->message, "Process %" PRIu32 " ended: %.64s%s", line->pid,
                   line->status, line->timed_out ? ", its time was over" : "");
}

void report_line(const Abx__Ipc__ProcessLine *line, struct report_text *ret)
{
    const char *pairs[REPORT_PAIRS] = { "origin", "sandbox", "event", "process.start" };
    size_t n = 4;

#define PAIR(name, value)                                                                          \
    do {                                                                                           \
        pairs[n++] = name;                                                                         \
        pairs[n++] = value;                                                                        \
    } while (0)
    (void)snprintf(ret->numbers[0], sizeof ret->numbers[0], "%" PRIu32, line->pid);
    PAIR("pid", ret->numbers[0]);
    PAIR("cmd", line->cmd[0] ? line->cmd : NULL);
    if (line->is_end) {
        pairs[3] = "process.end";
        describe_end(line, ret);
        (void)snprintf(ret->numbers[1], sizeof ret->numbers[1], "%" PRId32, line->exit_code);
        (void)snprintf(ret->numbers[2], sizeof ret->numbers[2], "%" PRId64, line->duration_ms);
        PAIR("exit_code", ret->numbers[1]);
        PAIR("status", line->status);
        PAIR("duration_ms", line->duration_ms >= 0 ? ret->numbers[2] : NULL);
        PAIR("timed_out", line->timed_out ? "true" : NULL);
    } else {
        describe_start(line, ret);
        ret->args[0] = '\0';
        put_args(line, ret->args);
        PAIR("args", ret->args);
        PAIR("user", line->user);
    }
#undef PAIR
    memcpy(ret->pairs, pairs, sizeof pairs);
}

static void tell_line(struct box *b, const Abx__Ipc__ProcessLine *line)
{
    struct report_text t;

    if (!budget_take(&b->report_budget, REPORT_PER_SECOND, REPORT_BURST,
                     uv_now(b->egress->opts.loop))) {
        b->n_unreported++;
        return;
    }
    report_line(line, &t);
    box_tell(b, ABX__IPC__LOG__SOURCE__PROCESS,
             line->timed_out ? ABX__IPC__LOG__LEVEL__WARN : ABX__IPC__LOG__LEVEL__INFO, t.message,
             t.pairs);
}

static void tell_dropped(struct box *b)
{
    char count[24], message[96];

    if (b->n_unreported == 0 || !budget_take(&b->report_budget, REPORT_PER_SECOND, REPORT_BURST,
                                             uv_now(b->egress->opts.loop)))
        return;
    (void)snprintf(count, sizeof count, "%" PRIu64, b->n_unreported);
    (void)snprintf(message, sizeof message, "%s lines about processes dropped", count);
    b->n_unreported = 0;
    box_tell(b, ABX__IPC__LOG__SOURCE__PROCESS, ABX__IPC__LOG__LEVEL__WARN, message,
             (const char *const[]){ "origin", "sandbox", "event", "process.dropped", "dropped",
                                    count, NULL });
}

/* --- messages ----------------------------------------------------------------------------------- */

static bool is_from(const struct msghdr *msg, uid_t uid)
{
    const struct cmsghdr *c = CMSG_FIRSTHDR(msg);
    struct ucred who;

    if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS ||
        c->cmsg_len != CMSG_LEN(sizeof who))
        return false;
    memcpy(&who, CMSG_DATA(c), sizeof who);
    return who.uid == uid;
}

static void take_message(struct box *b, struct slice bytes)
{
    const Abx__Ipc__GuestReport *report;
    ProtobufCMessage *m = NULL;

    if (rpc_proto_decode(&abx__ipc__guest_report__descriptor, bytes, &m, NULL) != RPC_OK) {
        b->n_unreported++;
        return;
    }
    report = (const Abx__Ipc__GuestReport *)m;
    b->n_unreported += MIN(report->dropped, (uint64_t)DROPPED_MAX);
    for (size_t i = 0; i < report->n_lines; i++)
        tell_line(b, report->lines[i]);
    rpc_message_free(m);
}

/* False when there is none. Descriptors that come with it are closed by the kernel: no room is given for them. */
static bool take_one(struct reports *r)
{
    union {
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } control;
    uint8_t bytes[GUEST_REPORT_MAX];
    struct iovec iov = { bytes, sizeof bytes };
    struct msghdr msg = { .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = control.bytes,
                          .msg_controllen = sizeof control.bytes };
    ssize_t n = recvmsg(r->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (n < 0)
        return errno == EINTR;
    if (!is_from(&msg, r->root_uid))
        r->is_noisy = true;
    else if (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
        r->box->n_unreported++;
    else
        take_message(r->box, slice_of(bytes, (size_t)n));
    return true;
}

static void take_all(struct reports *r)
{
    r->is_noisy = false;
    tell_dropped(r->box);
    for (unsigned i = 0; i < LOOKS_MAX && take_one(r); i++) {
    }
    tell_dropped(r->box);
}

/* --- life --------------------------------------------------------------------------------------- */

static void on_readable(uv_poll_t *poll, int status, int events);

static void on_timer(uv_timer_t *timer)
{
    struct reports *r = timer->data;

    take_all(r);
    if (r->is_noisy || r->box->n_unreported > 0)
        (void)uv_timer_start(timer, on_timer, REST_MS, 0);
    else
        (void)uv_poll_start(&r->poll, UV_READABLE, on_readable);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct reports *r = poll->data;

    (void)events;
    (void)uv_poll_stop(poll);
    if (status >= 0)
        (void)uv_timer_start(&r->timer, on_timer, GATHER_MS, 0);
}

static void on_closed(uv_handle_t *handle)
{
    struct reports *r = handle->data;

    if (--r->n_handles == 0)
        free(r);
}

struct reports *reports_new(struct box *b, int fd, uid_t root_uid)
{
    struct reports *r = calloc(1, sizeof *r);

    if (!r || uv_poll_init(b->egress->opts.loop, &r->poll, fd) < 0) {
        free(r);
        fd_close(fd);
        return NULL;
    }
    (void)uv_timer_init(b->egress->opts.loop, &r->timer);
    r->poll.data = r->timer.data = r;
    r->n_handles = 2;
    r->box = b;
    r->fd = fd;
    r->root_uid = root_uid;
    (void)uv_poll_start(&r->poll, UV_READABLE, on_readable);
    return r;
}

void reports_close(struct reports *r)
{
    if (!r)
        return;
    take_all(r);
    r->box = NULL;
    uv_close((uv_handle_t *)&r->poll, on_closed);
    uv_close((uv_handle_t *)&r->timer, on_closed);
    fd_close(TAKE_FD(r->fd));
}
