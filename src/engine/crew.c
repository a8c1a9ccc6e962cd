/* crew.c - see crew.h.
 *
 * Deadlines are taken by a clock of the crew's own (`clock_ns`): it goes on in steps of a timer, and a
 * step counts for at most CLOCK_STEP_MAX_NS however late it comes. So time in which the engine itself did
 * not run (a stopped machine, no processor) is no worker's fault.
 */
#include "engine/crew.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"

#define WORKERS_MAX 32
#define ARGS_MAX 128
#define START_TIMEOUT_MS 30000
#define RESTART_MS 200
/* A create worker gets its next job while it is at one, so that it never waits for us. */
#define AHEAD_CREATE 2
#define RESULTS_PER_WAKEUP 16
#define CLOCK_MS 500
#define CLOCK_STEP_MAX_NS (1 * NSEC_PER_SEC)
/* A queue whose class has answered nothing for this long is told so; longer than any job that somebody
 * waits for. */
#define QUEUE_LIMIT_NS (30 * NSEC_PER_SEC)
/* Killed workers that the kernel has not let go of: over that no new ones are started. */
#define DYING_MAX 8
#define LATE_NS (2 * NSEC_PER_SEC)
#define STOP_TIMEOUT_NS (5 * NSEC_PER_SEC)

struct task {
    struct task *next;
    struct job job;
    int fds[PACKET_FDS_MAX];
    size_t n_fds;
    struct job_owner owner;
    int64_t queued_ns; /* by the crew's clock */
    bool is_withdrawn;
};

struct list {
    struct task *head, **tail;
    unsigned n;
};

struct worker {
    struct crew *crew;
    enum worker_class class;
    pid_t pid; /* 0: not running */
    int fd;
    uv_poll_t poll;
    uv_timer_t restart;
    bool is_polled; /* poll handle open */
    bool is_stuck;  /* killed for being over the deadline of the first of `sent` */
    struct list sent;
    int64_t head_ns; /* when the first of `sent` began to be that, by the crew's clock */
};

/* A worker that was killed and is not yet reaped. */
struct dying {
    pid_t pid;
    int64_t since_ns;
    bool is_told;
};

struct crew {
    struct crew_opts opts;
    struct worker workers[WORKERS_MAX];
    unsigned n;
    struct list queue[WORKER_CLASSES_];
    int64_t progress_ns[WORKER_CLASSES_]; /* the last answer of the class, by the clock */
    uint64_t last_id;
    bool is_stopping;
    uv_timer_t clock; /* runs while there are tasks or dying workers */
    int64_t clock_ns, clock_read_ns;
    uv_signal_t child;
    struct dying dying[DYING_MAX + WORKERS_MAX];
    unsigned n_dying;
    bool is_full_told;
    char *args[ARGS_MAX + 4];
};

static void list_init(struct list *l)
{
    *l = (struct list){ .tail = &l->head };
}

static void list_add(struct list *l, struct task *t)
{
    t->next = NULL;
    *l->tail = t;
    l->tail = &t->next;
    l->n++;
}

/* Takes the one with `id`, or the first when id is 0; NULL when there is none. */
static struct task *list_take(struct list *l, uint64_t id)
{
    for (struct task **at = &l->head; *at; at = &(*at)->next) {
        struct task *t = *at;

        if (id != 0 && t->job.id != id)
            continue;
        *at = t->next;
        if (l->tail == &t->next)
            l->tail = at;
        l->n--;
        return t;
    }
    return NULL;
}

static void task_free(struct task *t)
{
    packet_close_fds(t->fds, t->n_fds);
    free(t);
}

/* From the moment a worker is at it. Over ten times what was measured with both processors of a machine
 * taken by hogs, and below what control waits for the same (30 s), so that the answer says what happened. */
static int64_t limit_ns(enum job_kind kind)
{
    switch (kind) {
    case JOB_PREPARE:
    case JOB_CREATE:
        return 20 * NSEC_PER_SEC;
    case JOB_REMOVE: /* waits 10 s for the processes' end by itself */
    case JOB_AUDIT:  /* two of them are one audit: 60 s */
        return 25 * NSEC_PER_SEC;
    case JOB_FREEZE:
    case JOB_THAW:
    case JOB_RESIZE:
    case JOB_USAGE:
    case JOB_MEASURE:
    case JOB_CHECKPOINT:
    case JOB_UID_PUT:
    case JOB_EXCHANGE:
        return 10 * NSEC_PER_SEC;
    case JOB_TRASH: /* nobody waits for it, and file trees take as long as they take */
        return 900 * NSEC_PER_SEC;
    case JOB_CLONE:
    case JOB_SAVE: /* what others wrote to the pool goes too */
        return 25 * NSEC_PER_SEC;
    case JOB_PUSH_OUT: /* has 30 s by itself; the kernel may take a while to let go */
        return 60 * NSEC_PER_SEC;
    case JOB_READY:
    case JOB_EXIT:
    case JOB_OOM:
        break;
    }
    return 0;
}

static void on_clock(uv_timer_t *t);

static void clock_start(struct crew *c)
{
    if (c->is_stopping || uv_is_active((uv_handle_t *)&c->clock))
        return;
    c->clock_read_ns = time_mono_ns();
    (void)uv_timer_start(&c->clock, on_clock, CLOCK_MS, CLOCK_MS);
}

/* --- processes ---------------------------------------------------------------------------------- */

/* Child side: only calls that are safe after fork. Never returns. */
static void exec_worker(const struct crew *c, int socket_fd, pid_t parent, char *const *args)
{
    /* First out of the way of the numbers that they are to get. */
    int a = fcntl(socket_fd, F_DUPFD, 10), b = fcntl(c->opts.lock_fd, F_DUPFD, 10);
    int exe = fcntl(c->opts.exe_fd, F_DUPFD_CLOEXEC, 10);

    if (a < 0 || b < 0 || exe < 0 || dup2(a, WORKER_FD) < 0 || dup2(b, WORKER_LOCK_FD) < 0)
        _exit(126);
    (void)close(a);
    (void)close(b);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
        _exit(126);
    (void)fexecve(exe, args, environ);
    _exit(127);
}

static int worker_fork(struct worker *w, struct abx_err *err)
{
    struct crew *c = w->crew;
    _cleanup_(closep) int ours = -EBADF;
    _cleanup_(closep) int theirs = -EBADF;
    char class[16];
    int pair[2];
    pid_t parent = getpid(), pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, errno, "worker socket");
    ours = pair[0];
    theirs = pair[1];
    (void)snprintf(class, sizeof class, "%s", worker_class_name(w->class));
    c->args[2] = class;
    pid = fork();
    if (pid < 0)
        return err_sys(err, errno, "fork worker");
    if (pid == 0)
        exec_worker(c, theirs, parent, c->args);
    w->pid = pid;
    w->fd = TAKE_FD(ours);
    return 0;
}

/* Blocks until the worker's first message. */
static int worker_wait_ready(struct worker *w, struct abx_err *err)
{
    struct pollfd p = { w->fd, POLLIN, 0 };
    _cleanup_(freep) struct job_result *r = calloc(1, sizeof *r);
    int fds[PACKET_FDS_MAX];
    size_t n_fds;

    if (!r)
        return err_oom(err);
    if (poll(&p, 1, START_TIMEOUT_MS) != 1)
        return err_set(err, ABX_DEADLINE_EXCEEDED, "worker '%s' does not start",
                       worker_class_name(w->class));
    if (packet_receive(w->fd, r, sizeof *r, fds, &n_fds, 0) <= 0 || r->magic != JOB_MAGIC ||
        r->kind != JOB_READY)
        return err_set(err, ABX_INTERNAL, "worker '%s' ended", worker_class_name(w->class));
    if (r->err.code) {
        if (err)
            *err = r->err;
        return err_wrap(err, r->err.code, "worker '%s'", worker_class_name(w->class));
    }
    w->crew->opts.on_event(w->crew->opts.user, r);
    return 0;
}

/* --- results ------------------------------------------------------------------------------------ */

static void dispatch(struct crew *c, enum worker_class class);
static void on_readable(uv_poll_t *h, int status, int events);

/* Answers a task that no worker answers any more, and frees it. */
static void task_fail(struct task *t, const struct abx_err *why, bool is_cut_off)
{
    struct job_result r = { .magic = JOB_MAGIC, .kind = t->job.kind, .id = t->job.id, .err = *why };

    r.is_cut_off = is_cut_off;
    r.record = t->job.record;
    t->owner.done(t->owner.user, &r, NULL, 0);
    task_free(t);
}

static void fail_sent(struct worker *w)
{
    struct abx_err err;
    struct task *t;

    while ((t = list_take(&w->sent, 0)) != NULL) {
        if (w->is_stuck)
            (void)err_set(&err, ABX_DEADLINE_EXCEEDED,
                          "the engine's worker did not finish within %d s",
                          (int)(limit_ns(t->job.kind) / NSEC_PER_SEC));
        else
            (void)err_set(&err, ABX_UNAVAILABLE, "the engine's worker died");
        w->is_stuck = false; /* the ones behind it were not begun */
        task_fail(t, &err, true);
    }
}

static void on_restart(uv_timer_t *t);

static void worker_over(struct worker *w)
{
    if (w->crew->is_stopping)
        return;
    fail_sent(w);
    (void)uv_timer_start(&w->restart, on_restart, RESTART_MS, 0);
}

static void worker_poll_closed(uv_handle_t *h)
{
    struct worker *w = h->data;

    w->is_polled = false;
    worker_over(w);
}

/* True once it is reaped, or no child of ours. */
static bool is_reaped(pid_t pid)
{
    return waitpid(pid, NULL, WNOHANG) != 0;
}

static void reap_dying(struct crew *c)
{
    bool has_late = false;
    unsigned n = 0;

    for (unsigned i = 0; i < c->n_dying; i++) {
        if (is_reaped(c->dying[i].pid))
            has_late |= c->dying[i].is_told;
        else
            c->dying[n++] = c->dying[i];
    }
    c->n_dying = n;
    if (n < DYING_MAX)
        c->is_full_told = false;
    if (!has_late || c->is_stopping)
        return;
    log_info("a killed worker has ended at last", NULL);
    c->opts.on_late(c->opts.user);
}

static void on_child(uv_signal_t *h, int signo)
{
    (void)signo;
    reap_dying(h->data);
}

/* Never waits: a process in an uninterruptible call of the kernel does not die of SIGKILL. There is
 * room, because a worker is started only while fewer than DYING_MAX are dying. */
static void worker_kill(struct worker *w)
{
    struct crew *c = w->crew;
    pid_t pid = w->pid;

    w->pid = 0;
    (void)kill(pid, SIGKILL);
    if (is_reaped(pid))
        return;
    c->dying[c->n_dying++] = (struct dying){ .pid = pid, .since_ns = time_mono_ns() };
    clock_start(c);
}

static void worker_lost(struct worker *w)
{
    if (w->pid == 0)
        return;
    worker_kill(w);
    fd_close(TAKE_FD(w->fd));
    if (w->is_polled)
        uv_close((uv_handle_t *)&w->poll, worker_poll_closed);
    else
        worker_over(w);
}

static int worker_watch(struct worker *w, struct abx_err *err)
{
    int r;

    if (fd_set_nonblock(w->fd, true) < 0)
        return err_sys(err, errno, "worker socket");
    r = uv_poll_init(w->crew->opts.loop, &w->poll, w->fd);
    if (r < 0)
        return err_sys(err, -r, "worker socket");
    w->poll.data = w;
    w->is_polled = true;
    r = uv_poll_start(&w->poll, UV_READABLE, on_readable);
    return r < 0 ? err_sys(err, -r, "worker socket") : 0;
}

static void on_restart(uv_timer_t *t)
{
    struct worker *w = t->data;
    struct abx_err e;

    if (w->crew->is_stopping)
        return;
    if (w->crew->n_dying >= DYING_MAX) {
        if (!w->crew->is_full_told)
            log_warn(
                "no worker is started until one of the killed ones has ended: the kernel holds "
                "too many",
                NULL);
        w->crew->is_full_told = true;
        (void)uv_timer_start(&w->restart, on_restart, RESTART_MS, 0);
        return;
    }
    if (worker_fork(w, &e) < 0) {
        log_err("worker restart failed", &e);
        (void)uv_timer_start(&w->restart, on_restart, RESTART_MS, 0);
        return;
    }
    if (worker_watch(w, &e) < 0) {
        log_err("worker restart failed", &e);
        worker_lost(w);
        return;
    }
    log_warn("worker started again", "class", worker_class_name(w->class), NULL);
    dispatch(w->crew, w->class);
}

static void handle_result(struct worker *w, const struct job_result *r, int *fds, size_t n_fds)
{
    struct crew *c = w->crew;
    struct task *t;

    if (r->kind == JOB_READY) {
        if (r->err.code)
            log_err("worker cannot work", &r->err);
        else
            c->opts.on_event(c->opts.user, r);
        return;
    }
    if (r->kind == JOB_EXIT || r->kind == JOB_OOM) {
        c->opts.on_event(c->opts.user, r);
        return;
    }
    t = list_take(&w->sent, r->id);
    if (!t)
        return;
    w->head_ns = c->progress_ns[w->class] = c->clock_ns;
    dispatch(c, w->class);
    t->owner.done(t->owner.user, r, fds, n_fds);
    task_free(t);
}

static void on_readable(uv_poll_t *h, int status, int events)
{
    struct worker *w = h->data;
    struct job_result r;
    int fds[PACKET_FDS_MAX];
    size_t n_fds;

    (void)events;
    /* status < 0: the worker is gone and had not read all jobs. Results that it gave before count. */
    for (int i = 0; (i < RESULTS_PER_WAKEUP || status < 0) && w->pid != 0; i++) {
        ssize_t n = packet_receive(w->fd, &r, sizeof r, fds, &n_fds, 0);

        if (n < 0 && errno == EAGAIN && status == 0)
            return;
        if (n < (ssize_t)offsetof(struct job_result, u) || r.magic != JOB_MAGIC ||
            (size_t)n != job_result_size(&r)) {
            if (n > 0)
                packet_close_fds(fds, n_fds);
            log_warn("worker lost", "class", worker_class_name(w->class), NULL);
            worker_lost(w);
            return;
        }
        handle_result(w, &r, fds, n_fds);
        packet_close_fds(fds, n_fds);
    }
}

/* --- jobs --------------------------------------------------------------------------------------- */

static struct worker *find_free(struct crew *c, enum worker_class class)
{
    unsigned ahead = class == WORKER_CREATE ? AHEAD_CREATE : 1;
    struct worker *best = NULL;

    for (unsigned i = 0; i < c->n; i++) {
        struct worker *w = &c->workers[i];

        if (w->class == class && w->pid != 0 && w->sent.n < ahead &&
            (!best || w->sent.n < best->sent.n))
            best = w;
    }
    return best;
}

static void dispatch(struct crew *c, enum worker_class class)
{
    struct list *q = &c->queue[class];
    struct worker *w;

    while (q->head && !c->is_stopping && (w = find_free(c, class)) != NULL) {
        struct task *t = list_take(q, 0);

        if (packet_send(w->fd, &t->job, job_size(&t->job), t->fds, t->n_fds, 0) < 0)
            worker_lost(w); /* the task fails with the others given to it */
        packet_close_fds(t->fds, t->n_fds);
        if (w->sent.n == 0)
            w->head_ns = c->clock_ns;
        list_add(&w->sent, t);
    }
}

int crew_submit(struct crew *c, enum worker_class class, const struct job *job, int *fds,
                size_t n_fds, struct job_owner owner, struct abx_err *err)
{
    struct task *t = calloc(1, sizeof *t);

    if (!t) {
        packet_close_fds(fds, n_fds);
        return err_oom(err);
    }
    memcpy(&t->job, job, job_size(job));
    t->job.magic = JOB_MAGIC;
    t->job.id = ++c->last_id;
    for (size_t i = 0; i < n_fds; i++)
        t->fds[i] = TAKE_FD(fds[i]);
    t->n_fds = n_fds;
    t->owner = owner;
    clock_start(c);
    t->queued_ns = c->clock_ns;
    list_add(&c->queue[class], t);
    dispatch(c, class);
    return 0;
}

void crew_withdraw(struct crew *c, enum worker_class class, const void *user)
{
    for (struct task *t = c->queue[class].head; t; t = t->next)
        t->is_withdrawn |= t->owner.user == user;
}

/* --- deadlines ---------------------------------------------------------------------------------- */

static void check_worker(struct worker *w)
{
    const struct task *t = w->sent.head;
    char pid[16], seconds[16];

    if (w->pid == 0 || !t || w->crew->clock_ns - w->head_ns < limit_ns(t->job.kind))
        return;
    (void)snprintf(pid, sizeof pid, "%ld", (long)w->pid);
    (void)snprintf(seconds, sizeof seconds, "%d", (int)(limit_ns(t->job.kind) / NSEC_PER_SEC));
    log_warn("worker is stuck in a job, killing it", "class", worker_class_name(w->class), "pid",
             pid, "sandbox", t->job.record.name, "limit_s", seconds, NULL);
    w->is_stuck = true;
    worker_lost(w);
}

static bool fail_withdrawn(struct crew *c, enum worker_class class)
{
    struct task *t = c->queue[class].head;
    struct abx_err err;

    while (t && !t->is_withdrawn)
        t = t->next;
    if (!t)
        return false;
    (void)err_set(&err, ABX_ABORTED, "it was stopped");
    task_fail(list_take(&c->queue[class], t->job.id), &err, false);
    return true;
}

/* Oldest first; none of them was begun. */
static void check_queue(struct crew *c, enum worker_class class)
{
    struct abx_err err;

    while (fail_withdrawn(c, class)) /* from the start: the queue may have changed */
        ;
    while (c->queue[class].head &&
           c->clock_ns - MAX(c->queue[class].head->queued_ns, c->progress_ns[class]) >=
               QUEUE_LIMIT_NS) {
        (void)err_set(&err, ABX_DEADLINE_EXCEEDED, "no worker of class '%s' was free for %d s",
                      worker_class_name(class), (int)(QUEUE_LIMIT_NS / NSEC_PER_SEC));
        task_fail(list_take(&c->queue[class], 0), &err, false);
    }
}

static void check_dying(struct crew *c)
{
    char pid[16];

    for (unsigned i = 0; i < c->n_dying; i++) {
        struct dying *d = &c->dying[i];

        if (d->is_told || time_mono_ns() - d->since_ns < LATE_NS)
            continue;
        (void)snprintf(pid, sizeof pid, "%ld", (long)d->pid);
        log_warn("killed worker does not end: the kernel holds it", "pid", pid, NULL);
        d->is_told = true;
    }
}

static void on_clock(uv_timer_t *t)
{
    struct crew *c = t->data;
    int64_t now = time_mono_ns();
    bool is_needed = false;

    c->clock_ns += MIN(now - c->clock_read_ns, CLOCK_STEP_MAX_NS);
    c->clock_read_ns = now;
    for (unsigned i = 0; i < c->n; i++)
        check_worker(&c->workers[i]);
    for (int class = 0; class < WORKER_CLASSES_; class ++)
        check_queue(c, (enum worker_class) class);
    check_dying(c);
    for (int class = 0; class < WORKER_CLASSES_; class ++)
        is_needed |= crew_load(c, (enum worker_class) class) > 0;
    for (unsigned i = 0; i < c->n_dying; i++)
        is_needed |= !c->dying[i].is_told;
    if (!is_needed)
        (void)uv_timer_stop(t);
}

unsigned crew_load(const struct crew *c, enum worker_class class)
{
    unsigned n = c->queue[class].n;

    for (unsigned i = 0; i < c->n; i++)
        if (c->workers[i].class == class)
            n += c->workers[i].sent.n;
    return n;
}

/* --- the whole ---------------------------------------------------------------------------------- */

static int open_handles(struct crew *c, struct abx_err *err)
{
    int r = uv_timer_init(c->opts.loop, &c->clock);

    if (r == 0)
        r = uv_signal_init(c->opts.loop, &c->child);
    c->clock.data = c->child.data = c;
    if (r == 0)
        r = uv_signal_start(&c->child, on_child, SIGCHLD);
    return r < 0 ? err_sys(err, -r, "event loop") : 0;
}

static void add_workers(struct crew *c)
{
    for (int class = 0; class < WORKER_CLASSES_; class ++)
        for (unsigned i = 0; i < c->opts.count[class] && c->n < WORKERS_MAX; i++) {
            struct worker *w = &c->workers[c->n++];

            w->crew = c;
            w->class = (enum worker_class) class;
            w->fd = -EBADF;
            list_init(&w->sent);
            (void)uv_timer_init(c->opts.loop, &w->restart);
            w->restart.data = w;
        }
}

static int set_args(struct crew *c, struct abx_err *err)
{
    static char worker_option[] = "--worker";
    unsigned n = 0;

    while (c->opts.argv[n])
        n++;
    if (n > ARGS_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "over %d arguments", ARGS_MAX);
    c->args[0] = c->opts.argv[0];
    c->args[1] = worker_option;
    /* args[2] is set at each start */
    for (unsigned i = 1; i <= n; i++)
        c->args[i + 2] = c->opts.argv[i];
    return 0;
}

static int start_all(struct crew *c, struct abx_err *err)
{
    int r = set_args(c, err);

    for (unsigned i = 0; r == 0 && i < c->n; i++)
        r = worker_fork(&c->workers[i], err);
    for (unsigned i = 0; r == 0 && i < c->n; i++)
        r = worker_wait_ready(&c->workers[i], err);
    for (unsigned i = 0; r == 0 && i < c->n; i++)
        r = worker_watch(&c->workers[i], err);
    return r;
}

int crew_start(const struct crew_opts *opts, struct crew **ret, struct abx_err *err)
{
    struct crew *c = calloc(1, sizeof *c);
    int r;

    if (!c)
        return err_oom(err);
    c->opts = *opts;
    for (int i = 0; i < WORKER_CLASSES_; i++)
        list_init(&c->queue[i]);
    r = open_handles(c, err);
    if (r < 0) {
        free(c);
        return r;
    }
    add_workers(c);
    r = start_all(c, err);
    if (r < 0) {
        (void)crew_stop(c);
        for (int i = 0; i < 10 && uv_run(opts->loop, UV_RUN_NOWAIT) != 0; i++)
            ;
        crew_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

static void handle_closed(uv_handle_t *h)
{
    (void)h;
}

static void await_dying(struct crew *c)
{
    const struct timespec pause = { .tv_nsec = 2 * NSEC_PER_MSEC };
    int64_t end = time_mono_ns() + STOP_TIMEOUT_NS;

    for (reap_dying(c); c->n_dying > 0 && time_mono_ns() < end; reap_dying(c))
        (void)nanosleep(&pause, NULL);
}

size_t crew_pids(const struct crew *c, pid_t *to, size_t max)
{
    size_t n = 0;

    for (unsigned i = 0; i < c->n && n < max; i++)
        if (c->workers[i].pid != 0)
            to[n++] = c->workers[i].pid;
    return n;
}

bool crew_stop(struct crew *c)
{
    if (c->is_stopping)
        return c->n_dying == 0;
    c->is_stopping = true;
    uv_close((uv_handle_t *)&c->clock, handle_closed);
    uv_close((uv_handle_t *)&c->child, handle_closed);
    for (unsigned i = 0; i < c->n; i++) {
        struct worker *w = &c->workers[i];

        uv_close((uv_handle_t *)&w->restart, handle_closed);
        if (w->is_polled && !uv_is_closing((uv_handle_t *)&w->poll))
            uv_close((uv_handle_t *)&w->poll, worker_poll_closed);
        if (w->pid == 0)
            continue;
        fd_close(TAKE_FD(w->fd));
        worker_kill(w);
    }
    await_dying(c);
    for (unsigned i = 0; i < c->n_dying; i++)
        c->dying[i].is_told = false;
    check_dying(c);
    return c->n_dying == 0;
}

static void drop_all(struct list *l)
{
    struct task *t;

    while ((t = list_take(l, 0)) != NULL) {
        if (t->owner.drop)
            t->owner.drop(t->owner.user);
        task_free(t);
    }
}

void crew_free(struct crew *c)
{
    if (!c)
        return;
    for (int i = 0; i < WORKER_CLASSES_; i++)
        drop_all(&c->queue[i]);
    for (unsigned i = 0; i < c->n; i++)
        drop_all(&c->workers[i].sent);
    free(c);
}
