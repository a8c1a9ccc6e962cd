/* client.c - see client.h. One epoll set holds everything, so that its fd is what a foreign loop watches.
 *
 * The timerfd stands for the earliest timer. Setting it costs more than a whole small request in some virtual
 * machines, so it is moved only when something earlier comes or when it fired; timers that are cleared leave it, and it
 * fires once for nothing. What is due now (tasks, libcurl's timer of 0 ms) is told by the eventfd, which is also
 * abx_client_wake's.
 *
 * Watches are found by descriptor and generation, never by pointer: a callback may clear any watch while events
 * of the same round are still to be told.
 */
#include "transport/client.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "transport/call.h"
#include "transport/config.h"
#include "transport/http.h"
#include "transport/opts.h"

#define EVENTS_MAX 64
/* Tasks that schedule each other get this many turns before other loops' work has its turn. */
#define TASK_ROUNDS 8
#define KEY_TIMER UINT64_MAX
#define KEY_WAKE (UINT64_MAX - 1)

struct watch_slot {
    struct client_watch *watch;
    uint32_t generation;
};

struct task_list {
    struct client_task *first, *last;
};

struct abx_client {
    int epoll_fd, timer_fd, wake_fd;
    pid_t pid;
    atomic_bool is_woken;
    bool in_process, is_closing, is_free_wanted;
    bool is_kicked; /* the eventfd says that something is due now */
    int completed;

    struct client_timer *timers; /* root of the heap */
    int64_t armed_ns;            /* what the timerfd waits for; 0 = nothing */

    struct task_list tasks;
    struct watch_slot *slots; /* index = fd */
    size_t slot_count;

    struct call_link *calls;
    struct http_pool *http;
};

bool client_is_forked(const abx_client *c)
{
    return getpid() != c->pid;
}

bool client_is_closing(const abx_client *c)
{
    return c->is_closing;
}

/* ---- timers: a pairing heap ---- */

static struct client_timer *heap_meld(struct client_timer *a, struct client_timer *b)
{
    struct client_timer *low, *high;

    if (!a || !b)
        return a ? a : b;
    low = b->due_ns < a->due_ns ? b : a;
    high = low == a ? b : a;
    high->prev = low;
    high->next = low->child;
    if (high->next)
        high->next->prev = high;
    low->child = high;
    return low;
}

/* One heap of a list of siblings: in pairs from the front, then from the back. */
static struct client_timer *heap_merge(struct client_timer *first)
{
    struct client_timer *pairs = NULL, *root = NULL;

    while (first) {
        struct client_timer *a = first, *b = a->next, *pair;

        first = b ? b->next : NULL;
        a->next = a->prev = NULL;
        if (b)
            b->next = b->prev = NULL;
        pair = heap_meld(a, b);
        pair->next = pairs;
        pairs = pair;
    }
    while (pairs) {
        struct client_timer *t = pairs;

        pairs = t->next;
        t->next = NULL;
        root = heap_meld(root, t);
    }
    return root;
}

static void heap_remove(abx_client *c, struct client_timer *t)
{
    struct client_timer *below = heap_merge(TAKE_PTR(t->child));

    if (c->timers == t) {
        c->timers = below;
    } else {
        if (t->prev->child == t)
            t->prev->child = t->next;
        else
            t->prev->next = t->next;
        if (t->next)
            t->next->prev = t->prev;
        c->timers = heap_meld(c->timers, below);
    }
    t->prev = t->next = NULL;
    t->due_ns = 0;
}

/* Makes the epoll fd readable when the next thing is due. */
static void client_arm(abx_client *c)
{
    int64_t due_ns = c->timers ? c->timers->due_ns : 0;
    struct itimerspec at = { 0 };
    uint64_t one = 1;

    if (c->in_process) /* at its end */
        return;
    if (c->tasks.first || (due_ns != 0 && due_ns <= time_mono_ns())) {
        if (c->is_kicked || client_is_forked(c))
            return;
        c->is_kicked = write(c->wake_fd, &one, sizeof one) == sizeof one;
        return;
    }
    if (due_ns == 0 || (c->armed_ns != 0 && c->armed_ns <= due_ns) || client_is_forked(c))
        return;
    at.it_value.tv_sec = due_ns / NSEC_PER_SEC;
    at.it_value.tv_nsec = due_ns % NSEC_PER_SEC;
    if (timerfd_settime(c->timer_fd, TFD_TIMER_ABSTIME, &at, NULL) == 0)
        c->armed_ns = due_ns;
}

void client_timer_set(abx_client *c, struct client_timer *t, int64_t due_ns)
{
    if (t->due_ns != 0)
        heap_remove(c, t);
    t->due_ns = MAX(due_ns, INT64_C(1));
    t->child = t->prev = t->next = NULL;
    c->timers = heap_meld(c->timers, t);
    client_arm(c);
}

void client_timer_clear(abx_client *c, struct client_timer *t)
{
    if (t->due_ns != 0)
        heap_remove(c, t);
}

static void timers_run(abx_client *c)
{
    int64_t now_ns;

    if (!c->timers)
        return;
    now_ns = time_mono_ns();
    while (c->timers && c->timers->due_ns <= now_ns) {
        struct client_timer *t = c->timers;

        heap_remove(c, t);
        t->fn(t->user);
    }
}

/* ---- tasks ---- */

void client_task_add(abx_client *c, struct client_task *t)
{
    if (t->is_queued)
        return;
    t->is_queued = true;
    t->next = NULL;
    t->prev = c->tasks.last;
    if (c->tasks.last)
        c->tasks.last->next = t;
    else
        c->tasks.first = t;
    c->tasks.last = t;
    client_arm(c);
}

void client_task_remove(abx_client *c, struct client_task *t)
{
    if (!t->is_queued)
        return;
    if (t->prev)
        t->prev->next = t->next;
    else
        c->tasks.first = t->next;
    if (t->next)
        t->next->prev = t->prev;
    else
        c->tasks.last = t->prev;
    t->is_queued = false;
    t->prev = t->next = NULL;
}

/* A round ends at a mark of our own, so that a task that queues itself waits for the next one. */
static void tasks_run(abx_client *c)
{
    for (int round = 0; round < TASK_ROUNDS && c->tasks.first; round++) {
        struct client_task mark = { 0 };

        client_task_add(c, &mark);
        for (;;) {
            struct client_task *t = c->tasks.first;

            client_task_remove(c, t);
            if (t == &mark)
                break;
            t->fn(t->user);
        }
    }
}

/* ---- watches ---- */

static int slots_reach(abx_client *c, int fd, struct abx_err *err)
{
    size_t want = MAX((size_t)fd + 1, c->slot_count * 2);
    struct watch_slot *more;

    if ((size_t)fd < c->slot_count)
        return 0;
    more = reallocarray(c->slots, want, sizeof *more);
    if (!more)
        return err_oom(err);
    memset(more + c->slot_count, 0, (want - c->slot_count) * sizeof *more);
    c->slots = more;
    c->slot_count = want;
    return 0;
}

int client_watch_set(abx_client *c, struct client_watch *w, unsigned events, struct abx_err *err)
{
    struct watch_slot *slot;
    struct epoll_event ev = { 0 };
    int op = w->events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    int r;

    if (events == w->events)
        return 0;
    if (events == 0) {
        client_watch_clear(c, w);
        return 0;
    }
    r = slots_reach(c, w->fd, err);
    if (r < 0)
        return r;
    slot = &c->slots[w->fd];
    if (op == EPOLL_CTL_ADD)
        slot->generation++;
    if (events & CLIENT_IN)
        ev.events |= EPOLLIN;
    if (events & CLIENT_OUT)
        ev.events |= EPOLLOUT;
    ev.data.u64 = (uint64_t)slot->generation << 32 | (uint32_t)w->fd;
    if (!client_is_forked(c) && epoll_ctl(c->epoll_fd, op, w->fd, &ev) < 0)
        return err_sys(err, errno, "watch descriptor %d", w->fd);
    slot->watch = w;
    w->events = events;
    return 0;
}

void client_watch_clear(abx_client *c, struct client_watch *w)
{
    if (w->events == 0)
        return;
    w->events = 0;
    c->slots[w->fd].watch = NULL;
    if (!client_is_forked(c))
        (void)epoll_ctl(c->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
}

static void watch_tell(abx_client *c, const struct epoll_event *ev)
{
    uint32_t fd = (uint32_t)ev->data.u64;
    uint32_t generation = (uint32_t)(ev->data.u64 >> 32);
    struct watch_slot *slot = &c->slots[fd];
    unsigned events = 0;

    if (!slot->watch || slot->generation != generation)
        return; /* cleared by a callback before it */
    if (ev->events & EPOLLIN)
        events |= CLIENT_IN;
    if (ev->events & EPOLLOUT)
        events |= CLIENT_OUT;
    if (ev->events & (EPOLLERR | EPOLLHUP))
        events |= CLIENT_IN | CLIENT_OUT;
    slot->watch->fn(slot->watch->user, events);
}

/* ---- the loop ---- */

static void client_destroy(abx_client *c);

/* One turn after waiting at most `timeout_ms`. Completions, or ABX_CANCELED. */
static int client_turn(abx_client *c, int timeout_ms)
{
    struct epoll_event evs[EVENTS_MAX];
    bool is_interrupted = false, has_fired = false, is_freed;
    int n = epoll_wait(c->epoll_fd, evs, EVENTS_MAX, timeout_ms);
    int completed;

    if (n < 0) {
        is_interrupted = true;
        n = 0;
    }
    c->in_process = true;
    c->completed = 0;
    for (int i = 0; i < n; i++) {
        if (evs[i].data.u64 == KEY_TIMER) {
            has_fired = true;
        } else if (evs[i].data.u64 == KEY_WAKE) {
            uint64_t count;

            (void)!read(c->wake_fd, &count, sizeof count);
            c->is_kicked = false;
        } else {
            watch_tell(c, &evs[i]);
        }
    }
    timers_run(c);
    tasks_run(c);
    c->in_process = false;
    completed = c->completed;
    is_freed = c->is_free_wanted;
    if (is_freed) {
        client_destroy(c);
        return completed;
    }
    if (has_fired) {
        uint64_t count;

        c->armed_ns = 0;
        (void)!read(c->timer_fd, &count, sizeof count);
    }
    client_arm(c);
    if (is_interrupted || (timeout_ms != 0 && atomic_exchange(&c->is_woken, false)))
        return completed > 0 ? completed : ABX_CANCELED;
    return completed;
}

int abx_client_process(abx_client *c)
{
    if (!c || c->in_process || client_is_forked(c))
        return ABX_FAILED_PRECONDITION;
    return client_turn(c, 0);
}

int abx_client_wait(abx_client *c, int64_t timeout_ms)
{
    int wait_ms = timeout_ms < 0 ? -1 : (int)MIN(timeout_ms, (int64_t)INT32_MAX);

    if (!c || c->in_process || client_is_forked(c))
        return ABX_FAILED_PRECONDITION;
    if (atomic_exchange(&c->is_woken, false))
        wait_ms = 0;
    else
        return client_turn(c, wait_ms);
    (void)client_turn(c, wait_ms);
    return ABX_CANCELED;
}

void abx_client_wake(abx_client *c)
{
    int saved = errno;
    uint64_t one = 1;

    atomic_store(&c->is_woken, true);
    (void)!write(c->wake_fd, &one, sizeof one);
    errno = saved;
}

int abx_client_fd(const abx_client *c)
{
    return c->epoll_fd;
}

/* ---- life ---- */

static int epoll_add(int epoll_fd, int fd, uint64_t key, struct abx_err *err)
{
    struct epoll_event ev = { .events = EPOLLIN, .data.u64 = key };

    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
        return err_sys(err, errno, "epoll_ctl");
    return 0;
}

static int client_open(abx_client *c, struct abx_err *err)
{
    int r;

    c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (c->epoll_fd < 0)
        return err_sys(err, errno, "epoll_create1");
    c->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (c->timer_fd < 0)
        return err_sys(err, errno, "timerfd_create");
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->wake_fd < 0)
        return err_sys(err, errno, "eventfd");
    r = epoll_add(c->epoll_fd, c->timer_fd, KEY_TIMER, err);
    if (r < 0)
        return r;
    return epoll_add(c->epoll_fd, c->wake_fd, KEY_WAKE, err);
}

/* What the caller left open is as the configuration says. */
static void limits_default(struct abx_client_opts *o)
{
    const abx_config *config = o->config;

    if (!config)
        return;
    if (o->max_connections <= 0)
        o->max_connections = config->max_connections;
    if (o->max_idle_connections <= 0)
        o->max_idle_connections = config->max_idle_connections;
    if (o->idle_timeout_ms <= 0)
        o->idle_timeout_ms = config->idle_timeout_ms;
}

int abx_client_new(const struct abx_client_opts *opts, abx_client **ret, struct abx_error *err)
{
    struct abx_client_opts o = ABX_CLIENT_OPTS_INIT;
    struct abx_err why = { 0 };
    abx_client *c = NULL;
    int r = opts_copy(&o, sizeof o, opts, "abx_client_opts", &why);

    if (r < 0)
        goto fail;
    c = calloc(1, sizeof *c);
    if (!c) {
        r = err_oom(&why);
        goto fail;
    }
    limits_default(&o);
    c->epoll_fd = c->timer_fd = c->wake_fd = -EBADF;
    c->pid = getpid();
    r = client_open(c, &why);
    if (r == 0)
        r = http_pool_new(c, &o, &c->http, &why);
    if (r < 0)
        goto fail;
    *ret = c;
    return 0;
fail:
    if (c)
        client_destroy(c);
    if (err)
        error_export(&why, 0, err);
    return r;
}

static void client_destroy(abx_client *c)
{
    c->is_closing = true;
    c->in_process = true; /* callbacks that drive or free it find it busy */
    while (c->calls)
        call_detach((abx_call *)c->calls);
    http_pool_free(c->http);
    fd_close(c->wake_fd);
    fd_close(c->timer_fd);
    fd_close(c->epoll_fd);
    free(c->slots);
    free(c);
}

void abx_client_free(abx_client *c)
{
    if (!c)
        return;
    if (c->in_process) /* by a callback: at the end of this turn */
        c->is_free_wanted = true;
    else
        client_destroy(c);
}

struct http_pool *client_http_pool(abx_client *c)
{
    return c->http;
}

void client_call_add(abx_client *c, struct call_link *link)
{
    link->prev = NULL;
    link->next = c->calls;
    if (c->calls)
        c->calls->prev = link;
    c->calls = link;
}

void client_call_remove(abx_client *c, struct call_link *link)
{
    if (link->prev)
        link->prev->next = link->next;
    else if (c->calls == link)
        c->calls = link->next;
    if (link->next)
        link->next->prev = link->prev;
    link->prev = link->next = NULL;
}

void client_call_completed(abx_client *c)
{
    c->completed++;
}
