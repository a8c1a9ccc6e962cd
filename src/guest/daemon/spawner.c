/* spawner.c - see spawner.h and init/protocol.h. */
#include "guest/daemon/spawner.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/packet.h"
#include "base/str.h"
#include "guest/daemon/crowd.h"
#include "guest/init/supervisor.h"

#define FDS_SENT_MAX 6
#define SPAWNER_LOOK_MS 150
#define SPAWNER_AWAIT_STEP_MS 20

struct pending {
    struct pending *next;
    uint32_t seq;
    int64_t began_ns;
    spawner_started_fn done;
    void *user;
    char *cmd; /* for messages */
    char *cwd;
    char *user_name;
    /* Until it was sent: the message and duplicates of its descriptors. */
    struct buf msg;
    int fds[FDS_SENT_MAX];
    size_t n_fds;
    bool is_sent;
};

struct spawner {
    uv_poll_t poll;
    uv_timer_t timer;
    int fd;
    struct spawner_events events;
    uint32_t first_seq;
    uint32_t next_seq;
    struct pending *first, **last; /* in order of seq */
    size_t n_pending;
    struct supervisors *awaited; /* only in spawner_await */
};

static void pending_drop_message(struct pending *p)
{
    buf_done(&p->msg);
    for (size_t i = 0; i < p->n_fds; i++)
        fd_close(p->fds[i]);
    p->n_fds = 0;
}

static void pending_free(struct pending *p)
{
    pending_drop_message(p);
    free(p->cmd);
    free(p->cwd);
    free(p->user_name);
    free(p);
}
DEFINE_CLEANUP(struct pending *, pending_free)

static struct pending *pending_take(struct spawner *s, uint32_t seq)
{
    for (struct pending **at = &s->first; *at; at = &(*at)->next) {
        struct pending *p = *at;
        if (p->seq != seq)
            continue;
        *at = p->next;
        if (s->last == &p->next)
            s->last = at;
        s->n_pending--;
        return p;
    }
    return NULL;
}

/* --- requests ---------------------------------------------------------------------------------- */

static int strings_put(struct buf *b, const struct spawn_opts *o, struct init_spawn *head,
                       struct abx_err *err)
{
    size_t before = b->len;
    enum buf_status bad = buf_append(b, o->tag, strlen(o->tag) + 1);

    if (!bad)
        bad = buf_append(b, o->cwd, strlen(o->cwd) + 1);
    for (head->argc = 0; !bad && o->argv[head->argc]; head->argc++)
        bad = buf_append(b, o->argv[head->argc], strlen(o->argv[head->argc]) + 1);
    for (head->envc = 0; !bad && o->envp[head->envc]; head->envc++)
        bad = buf_append(b, o->envp[head->envc], strlen(o->envp[head->envc]) + 1);
    if (bad)
        return err_set(err, ABX_RESOURCE_EXHAUSTED, "arguments and environment are over %u bytes",
                       INIT_STRINGS_MAX);
    head->strings_size = (uint32_t)(b->len - before);
    return 0;
}

static int memfd_with(struct slice s, int *ret, struct abx_err *err)
{
    _cleanup_(closep) int fd = memfd_create("abx-spawn", MFD_CLOEXEC);

    if (fd < 0 || fd_write_all(fd, s.p, s.n) < 0)
        return err_sys(err, errno, "memory for arguments and environment");
    *ret = TAKE_FD(fd);
    return 0;
}

static int fds_put(struct pending *p, const int *fds, size_t n, struct abx_err *err)
{
    for (size_t i = 0; i < n; i++) {
        int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
        if (fd < 0)
            return err_sys(err, errno, "duplicate a descriptor");
        p->fds[p->n_fds++] = fd;
    }
    return 0;
}

static int message_make(struct pending *p, const struct spawn_opts *o, struct abx_err *err)
{
    struct init_spawn head = { .kind = INIT_SPAWN, .seq = p->seq };
    int r, memfd = -EBADF;

    head.flags = o->is_pty ? INIT_PTY : 0;
    head.uid = o->user->uid;
    head.gid = o->user->gid;
    head.n_groups = (uint32_t)o->user->n_groups;
    memcpy(head.groups, o->user->groups, o->user->n_groups * sizeof(head.groups[0]));
    if (buf_append(&p->msg, &head, sizeof(head)))
        return err_oom(err);
    r = strings_put(&p->msg, o, &head, err);
    if (r < 0)
        return r;
    r = fds_put(p, o->child_fds, o->is_pty ? 1 : 3, err);
    if (r == 0)
        r = fds_put(p, o->held_fds, o->is_pty ? 1 : 2, err);
    if (r < 0)
        return r;
    if (head.strings_size > INIT_INLINE_MAX) {
        struct slice all = buf_slice(&p->msg);
        r = memfd_with(slice_of(all.p + sizeof(head), all.n - sizeof(head)), &memfd, err);
        if (r < 0)
            return r;
        p->fds[p->n_fds++] = memfd;
        head.flags |= INIT_MEMFD;
        buf_truncate(&p->msg, sizeof(head));
    }
    memcpy(buf_data(&p->msg), &head, sizeof(head));
    return 0;
}

static void watch(struct spawner *s);

/* Sends in order until the channel is full. */
static void flush(struct spawner *s)
{
    for (struct pending *p = s->first; p; p = p->next) {
        if (p->is_sent)
            continue;
        if (packet_send(s->fd, buf_data(&p->msg), p->msg.len, p->fds, p->n_fds, MSG_DONTWAIT) < 0)
            break; /* full: on writable again; broken: the timer answers */
        p->is_sent = true;
        pending_drop_message(p);
    }
    watch(s);
}

int spawner_start(struct spawner *s, const struct spawn_opts *opts, spawner_started_fn done,
                  void *user, struct abx_err *err)
{
    _cleanup_(pending_freep) struct pending *p = calloc(1, sizeof(*p));
    size_t seen;
    int r;

    if (!p)
        return err_oom(err);
    if (crowd_is_bomb(&seen))
        return err_set(err, ABX_RESOURCE_EXHAUSTED,
                       "start '%s': the sandbox has %zu processes, most of which want to run",
                       opts->argv[0], seen);
    if (s->n_pending >= SPAWNER_QUEUE_MAX)
        return err_set(err, ABX_RESOURCE_EXHAUSTED, "over %d commands are being started",
                       SPAWNER_QUEUE_MAX);
    if (strlen(opts->tag) >= INIT_TAG_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "tag is longer than %d bytes", INIT_TAG_MAX - 1);
    buf_init(&p->msg, sizeof(struct init_spawn) + INIT_STRINGS_MAX);
    p->seq = s->next_seq++;
    p->began_ns = time_mono_ns();
    p->done = done;
    p->user = user;
    p->cmd = strdup(opts->argv[0]);
    p->cwd = strdup(opts->cwd);
    p->user_name = strdup(opts->user->name);
    if (!p->cmd || !p->cwd || !p->user_name)
        return err_oom(err);
    r = message_make(p, opts, err);
    if (r < 0)
        return r;
    *s->last = p;
    s->last = &p->next;
    s->n_pending++;
    TAKE_PTR(p);
    flush(s);
    return 0;
}

/* --- answers ----------------------------------------------------------------------------------- */

static void failure_set(const struct pending *p, int step, int error, struct abx_err *err)
{
    switch (step) {
    case INIT_STEP_CWD:
        if (error == ENOENT || error == ENOTDIR)
            (void)err_set(err, ABX_INVALID_ARGUMENT, "cwd '%s' does not exist", p->cwd);
        else
            (void)err_sys(err, error, "cwd '%s'", p->cwd);
        return;
    case INIT_STEP_EXEC:
        if (error == ENOMEM || error == EAGAIN)
            (void)err_set(err, ABX_RESOURCE_EXHAUSTED, "start '%s': %s", p->cmd, strerror(error));
        else
            (void)err_set(err, ABX_INVALID_ARGUMENT, "start '%s': %s", p->cmd, strerror(error));
        return;
    case INIT_STEP_USER:
        (void)err_sys(err, error, "take on user '%s'", p->user_name);
        return;
    case INIT_STEP_FORK:
        (void)err_set(err, ABX_RESOURCE_EXHAUSTED, "start '%s': no process could be made: %s",
                      p->cmd, strerror(error));
        return;
    default:
        (void)err_sys(err, error, "start '%s'", p->cmd);
    }
}

static void answered(struct spawner *s, const struct init_event *ev, int *pidfd)
{
    struct pending *p = pending_take(s, ev->seq);
    struct abx_err err = { 0 };

    if (!p) {
        /* Either of a previous daemon: it is reported as a survivor. Or too late: its client was
         * told that it did not start. */
        if (*pidfd >= 0 && ev->seq - s->first_seq < s->next_seq - s->first_seq)
            (void)syscall(SYS_pidfd_send_signal, *pidfd, SIGKILL, NULL, 0);
        return;
    }
    if (ev->kind == INIT_FAILED) {
        failure_set(p, ev->step, ev->error, &err);
    } else if (*pidfd < 0) {
        /* No room for its descriptor here. The supervisor has not reaped it, or it would have said
         * so later than this: the number is its own. */
        (void)kill(ev->pid, SIGKILL);
        (void)err_set(&err, ABX_RESOURCE_EXHAUSTED, "start '%s': out of descriptors", p->cmd);
    }
    if (err.code)
        p->done(p->user, 0, 0, -EBADF, &err);
    else
        p->done(p->user, ev->pid, ev->supervisor, TAKE_FD(*pidfd), &err);
    pending_free(p);
}

static void survivor(struct spawner *s, const struct init_event *ev, int *fds)
{
    struct spawner_survivor v = { .pid = ev->pid, .supervisor = ev->supervisor };

    v.is_pty = ev->flags & INIT_PTY;
    memcpy(v.tag, ev->tag, sizeof(v.tag) - 1);
    for (size_t i = 0; i < ARRAY_SIZE(v.fds); i++)
        v.fds[i] = TAKE_FD(fds[i]);
    s->events.on_survivor(s->events.user, &v);
}

static void handle(struct spawner *s, const struct init_event *ev, int *fds)
{
    if (s->awaited)
        supervisors_heard(s->awaited, ev->supervisor);
    switch (ev->kind) {
    case INIT_SPAWNED:
    case INIT_FAILED:
        answered(s, ev, &fds[0]);
        return;
    case INIT_RUNNING:
        survivor(s, ev, fds);
        return;
    case INIT_EXITED:
    case INIT_REAPED:
        s->events.on_exit(s->events.user, ev->pid, ev->status);
        return;
    default:
        return; /* only our own image writes here; a newer kind is not for us */
    }
}

/* Returns false when nothing is there. */
static bool receive(struct spawner *s)
{
    struct init_event ev = { 0 };
    int fds[PACKET_FDS_MAX];
    size_t n_fds;
    ssize_t n = packet_receive(s->fd, &ev, sizeof(ev), fds, &n_fds, MSG_DONTWAIT);

    if (n < 0 && errno == EBADMSG)
        return true; /* of a kind that is not for us */
    if (n <= 0)
        return false;
    for (size_t i = n_fds; i < PACKET_FDS_MAX; i++)
        fds[i] = -EBADF;
    if ((size_t)n == sizeof(ev))
        handle(s, &ev, fds);
    packet_close_fds(fds, n_fds);
    return true;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct spawner *s = poll->data;

    for (int i = 0; i < 64 && receive(s); i++) {
    }
    flush(s);
}

/* No answer in time: PID 1 or a supervisor is stuck (or was killed) between fork and answer. In a
 * fork bomb nobody has to wait for long to hear that nothing can be started. */
static void on_timer(uv_timer_t *timer)
{
    struct spawner *s = timer->data;
    int64_t now = time_mono_ns();
    int64_t limit_ms = SPAWNER_ANSWER_MS;
    struct pending *p;

    if (s->first && now - s->first->began_ns >= SPAWNER_CROWDED_MS * NSEC_PER_MSEC &&
        crowd_count() > CROWD_PROCESSES)
        limit_ms = SPAWNER_CROWDED_MS;
    while ((p = s->first) && now - p->began_ns >= limit_ms * NSEC_PER_MSEC) {
        struct abx_err err = { 0 };

        (void)err_set(&err, ABX_RESOURCE_EXHAUSTED, "start '%s': no answer within %d ms%s", p->cmd,
                      (int)limit_ms, limit_ms == SPAWNER_ANSWER_MS ? "" : ": too many processes");
        (void)pending_take(s, p->seq);
        p->done(p->user, 0, 0, -EBADF, &err);
        pending_free(p);
    }
    watch(s);
}

static void watch(struct spawner *s)
{
    int events = UV_READABLE;

    for (struct pending *p = s->first; p; p = p->next) {
        if (!p->is_sent)
            events |= UV_WRITABLE;
    }
    (void)uv_poll_start(&s->poll, events, on_poll);
    if (!s->first)
        (void)uv_timer_stop(&s->timer);
    else if (!uv_is_active((uv_handle_t *)&s->timer))
        (void)uv_timer_start(&s->timer, on_timer, SPAWNER_LOOK_MS, SPAWNER_LOOK_MS);
}

void spawner_await(struct spawner *s, struct supervisors *supervisors)
{
    int64_t end = time_mono_ns() + SPAWNER_AWAIT_MS * NSEC_PER_MSEC;
    struct pollfd pfd = { .fd = s->fd, .events = POLLIN };

    s->awaited = supervisors;
    while (supervisors->n > 0 && time_mono_ns() < end) {
        if (poll(&pfd, 1, SPAWNER_AWAIT_STEP_MS) <= 0 && !supervisors_left(supervisors))
            break;
        while (receive(s)) {
        }
    }
    s->awaited = NULL;
}

int spawner_new(uv_loop_t *loop, int fd, const struct spawner_events *events, struct spawner **ret,
                struct abx_err *err)
{
    _cleanup_(freep) struct spawner *s = calloc(1, sizeof(*s));
    struct init_hello hello = { .kind = INIT_HELLO };

    if (!s)
        return err_oom(err);
    s->fd = fd;
    s->events = *events;
    s->last = &s->first;
    s->first_seq = (uint32_t)time_mono_ns(); /* unlike those of a previous daemon */
    s->next_seq = s->first_seq;
    hello.pid = getpid();
    if (uv_poll_init(loop, &s->poll, fd) < 0 || uv_timer_init(loop, &s->timer) < 0)
        return err_set(err, ABX_INTERNAL, "watch the channel to PID 1");
    s->poll.data = s;
    s->timer.data = s;
    if (packet_send(fd, &hello, sizeof(hello), NULL, 0, MSG_DONTWAIT) < 0)
        return err_sys(err, errno, "say hello to PID 1");
    watch(s);
    *ret = TAKE_PTR(s);
    return 0;
}
