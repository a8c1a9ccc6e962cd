/* The client's loop: timers, tasks, watches, waking, forks. */
#include "test.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "transport/client.h"

#define SEC NSEC_PER_SEC

static abx_client *client_get(void)
{
    struct abx_error err;
    abx_client *c = NULL;

    assert_int_equal(abx_client_new(NULL, &c, &err), 0);
    return c;
}

static bool is_readable(const abx_client *c)
{
    struct pollfd p = { .fd = abx_client_fd(c), .events = POLLIN };

    return poll(&p, 1, 0) == 1;
}

/* ---- timers ---- */

#define TIMERS 3000
static struct timed {
    struct client_timer timer;
    abx_client *client;
    int64_t due_ns;
    bool has_run;
} timed[TIMERS];
static int64_t last_due_ns;
static int ran, out_of_order;

static void timed_run(void *user)
{
    struct timed *t = user;

    assert_false(t->has_run);
    assert_int_equal(t->timer.due_ns, 0);
    t->has_run = true;
    ran++;
    if (t->due_ns < last_due_ns)
        out_of_order++;
    last_due_ns = t->due_ns;
    assert_true(time_mono_ns() >= t->due_ns);
}

/* Armed, moved and cleared in a random order: the rest runs once each, in the order of their times. */
static void timers_run_in_order(void **state)
{
    abx_client *c = client_get();
    uint32_t seed = 12345;
    int64_t now_ns = time_mono_ns();
    int cleared = 0;

    ran = out_of_order = 0;
    last_due_ns = 0;
    for (int i = 0; i < TIMERS; i++)
        timed[i] = (struct timed){ .timer = { .fn = timed_run, .user = &timed[i] }, .client = c };
    for (int k = 0; k < TIMERS * 4; k++) {
        struct timed *t;

        seed = seed * 1664525u + 1013904223u;
        t = &timed[k < TIMERS ? k : (int)(seed >> 8) % TIMERS];
        if (k >= TIMERS && seed % 8 == 0) {
            client_timer_clear(c, &t->timer);
        } else {
            t->due_ns = now_ns + (int64_t)(seed % 50) * NSEC_PER_MSEC;
            client_timer_set(c, &t->timer, t->due_ns);
        }
    }
    for (int i = 0; i < TIMERS; i++)
        if (timed[i].timer.due_ns == 0)
            cleared++;
    assert_in_range(cleared, 100, TIMERS - 100);
    while (ran < TIMERS - cleared)
        assert_in_range(abx_client_wait(c, 5000), 0, TIMERS);
    assert_int_equal(out_of_order, 0);
    for (int i = 0; i < TIMERS; i++)
        client_timer_clear(c, &timed[i].timer);
    assert_int_equal(abx_client_wait(c, 20), 0);
    assert_int_equal(ran, TIMERS - cleared);
    abx_client_free(c);
}

static void timer_makes_the_fd_readable(void **state)
{
    abx_client *c = client_get();
    struct pollfd p = { .fd = abx_client_fd(c), .events = POLLIN };
    struct timed t = { .timer = { .fn = timed_run, .user = &t } };

    last_due_ns = 0;
    assert_false(is_readable(c));
    t.due_ns = time_mono_ns() + 10 * SEC;
    client_timer_set(c, &t.timer, t.due_ns);
    assert_false(is_readable(c));
    t.due_ns = time_mono_ns() + 20 * NSEC_PER_MSEC; /* earlier: the fd has to know */
    client_timer_set(c, &t.timer, t.due_ns);
    assert_int_equal(poll(&p, 1, 60000), 1);
    while (!t.has_run)
        assert_int_equal(abx_client_process(c), 0);
    assert_false(is_readable(c));
    abx_client_free(c);
}

/* A timer's function frees the owner of another one. */
struct pair {
    abx_client *client;
    struct client_timer timer;
    struct pair *other;
    int runs;
};

static void pair_run(void *user)
{
    struct pair *p = user;

    p->runs++;
    if (p->other) {
        client_timer_clear(p->client, &p->other->timer);
        free(p->other);
        p->other = NULL;
    }
}

static void timer_may_free_another(void **state)
{
    abx_client *c = client_get();
    struct pair a = { .client = c };
    int64_t due_ns = time_mono_ns();

    a.other = calloc(1, sizeof a);
    assert_non_null(a.other);
    a.timer = (struct client_timer){ .fn = pair_run, .user = &a };
    a.other->timer = (struct client_timer){ .fn = pair_run, .user = a.other };
    client_timer_set(c, &a.timer, due_ns);
    client_timer_set(c, &a.other->timer, due_ns + 1);
    (void)abx_client_process(c);
    assert_int_equal(a.runs, 1);
    assert_int_equal(abx_client_wait(c, 10), 0);
    abx_client_free(c);
}

/* ---- tasks ---- */

struct job {
    abx_client *client;
    struct client_task task;
    struct job *other;
    bool is_again;
    int runs;
};

static void job_run(void *user)
{
    struct job *j = user;

    j->runs++;
    if (j->other) {
        client_task_remove(j->client, &j->other->task);
        free(j->other);
        j->other = NULL;
    }
    if (j->is_again)
        client_task_add(j->client, &j->task);
}

static void task_runs_once_and_may_free_another(void **state)
{
    abx_client *c = client_get();
    struct job a = { .client = c, .task = { .fn = job_run, .user = &a } };

    a.other = calloc(1, sizeof a);
    assert_non_null(a.other);
    a.other->task = (struct client_task){ .fn = job_run, .user = a.other };
    client_task_add(c, &a.task);
    client_task_add(c, &a.task);
    client_task_add(c, &a.other->task);
    assert_int_equal(a.runs, 0); /* never inside the call that adds it */
    assert_true(is_readable(c));
    (void)abx_client_process(c);
    assert_int_equal(a.runs, 1);
    assert_false(a.task.is_queued);
    assert_false(is_readable(c));
    abx_client_free(c);
}

/* One that queues itself does not hold up the turn, and the fd stays readable. */
static void task_that_queues_itself_lets_the_turn_end(void **state)
{
    abx_client *c = client_get();
    struct job a = { .client = c, .task = { .fn = job_run, .user = &a }, .is_again = true };
    int before;

    client_task_add(c, &a.task);
    (void)abx_client_process(c);
    assert_in_range(a.runs, 1, 100);
    assert_true(is_readable(c));
    before = a.runs;
    (void)abx_client_process(c);
    assert_true(a.runs > before);
    a.is_again = false;
    (void)abx_client_process(c);
    assert_false(is_readable(c));
    abx_client_free(c);
}

/* ---- watches ---- */

struct ear {
    abx_client *client;
    struct client_watch watch;
    struct ear *other;
    int calls;
    unsigned events;
};

static void ear_hear(void *user, unsigned events)
{
    struct ear *e = user;

    e->calls++;
    e->events = events;
    if (e->other) { /* the other one's event of the same turn is not told any more */
        client_watch_clear(e->client, &e->other->watch);
        e->other->other = NULL;
    }
}

static void watch_cleared_by_another_hears_nothing(void **state)
{
    abx_client *c = client_get();
    struct ear a = { .client = c }, b = { .client = c };
    int one[2], two[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, one), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, two), 0);
    a.watch = (struct client_watch){ .fd = one[0], .fn = ear_hear, .user = &a };
    b.watch = (struct client_watch){ .fd = two[0], .fn = ear_hear, .user = &b };
    a.other = &b;
    b.other = &a;
    assert_int_equal(client_watch_set(c, &a.watch, CLIENT_IN, NULL), 0);
    assert_int_equal(client_watch_set(c, &b.watch, CLIENT_IN, NULL), 0);
    assert_int_equal(write(one[1], "x", 1), 1);
    assert_int_equal(write(two[1], "x", 1), 1);
    (void)abx_client_process(c);
    assert_int_equal(a.calls + b.calls, 1);
    client_watch_clear(c, &a.watch);
    client_watch_clear(c, &b.watch);
    for (int i = 0; i < 2; i++) {
        fd_close(one[i]);
        fd_close(two[i]);
    }
    abx_client_free(c);
}

static void watch_is_level_triggered_and_tells_what_is_asked(void **state)
{
    abx_client *c = client_get();
    struct ear a = { .client = c };
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    a.watch = (struct client_watch){ .fd = pair[0], .fn = ear_hear, .user = &a };
    assert_int_equal(client_watch_set(c, &a.watch, CLIENT_IN, NULL), 0);
    (void)abx_client_process(c);
    assert_int_equal(a.calls, 0);
    assert_int_equal(client_watch_set(c, &a.watch, CLIENT_IN | CLIENT_OUT, NULL), 0);
    (void)abx_client_process(c);
    (void)abx_client_process(c);
    assert_int_equal(a.calls, 2);
    assert_int_equal(a.events, CLIENT_OUT);
    assert_int_equal(client_watch_set(c, &a.watch, CLIENT_IN, NULL), 0);
    fd_close(pair[1]); /* a hang-up sets both */
    (void)abx_client_process(c);
    assert_int_equal(a.events, CLIENT_IN | CLIENT_OUT);
    client_watch_clear(c, &a.watch);
    assert_false(is_readable(c));
    fd_close(pair[0]);
    abx_client_free(c);
}

static void watch_of_a_bad_descriptor_is_an_error(void **state)
{
    abx_client *c = client_get();
    struct ear a = { .client = c };
    struct abx_err err = { 0 };

    a.watch = (struct client_watch){ .fd = 9999, .fn = ear_hear, .user = &a };
    assert_true(client_watch_set(c, &a.watch, CLIENT_IN, &err) < 0);
    assert_int_equal(err.sys, EBADF);
    assert_int_equal(a.watch.events, 0);
    abx_client_free(c);
}

/* ---- waiting ---- */

static void *wake_later(void *user)
{
    (void)poll(NULL, 0, 30);
    abx_client_wake(user);
    return NULL;
}

static void wake_ends_this_wait_or_the_next(void **state)
{
    abx_client *c = client_get();
    pthread_t thread;

    abx_client_wake(c);
    assert_int_equal(abx_client_wait(c, 10000), ABX_CANCELED);
    assert_int_equal(abx_client_wait(c, 10), 0);
    assert_int_equal(pthread_create(&thread, NULL, wake_later, c), 0);
    assert_int_equal(abx_client_wait(c, -1), ABX_CANCELED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(abx_client_wait(c, 10), 0);
    assert_false(is_readable(c));
    abx_client_free(c);
}

static void process_inside(void *user)
{
    struct job *j = user;

    assert_int_equal(abx_client_process(j->client), ABX_FAILED_PRECONDITION);
    assert_int_equal(abx_client_wait(j->client, 0), ABX_FAILED_PRECONDITION);
    j->runs++;
}

static void process_inside_a_callback_is_refused(void **state)
{
    abx_client *c = client_get();
    struct job a = { .client = c, .task = { .fn = process_inside, .user = &a } };

    client_task_add(c, &a.task);
    (void)abx_client_process(c);
    assert_int_equal(a.runs, 1);
    abx_client_free(c);
}

static void free_inside(void *user)
{
    struct job *j = user;

    abx_client_free(j->client);
    j->runs++;
}

static void client_freed_inside_a_callback_goes_at_the_end(void **state)
{
    abx_client *c = client_get();
    struct job a = { .client = c, .task = { .fn = free_inside, .user = &a } };
    struct job b = { .client = c, .task = { .fn = job_run, .user = &b } };

    client_task_add(c, &a.task);
    client_task_add(c, &b.task);
    assert_int_equal(abx_client_process(c), 0);
    assert_int_equal(a.runs + b.runs, 2);
}

/* The kernel shares the epoll set and the timer with a child: what it frees must not reach them. */
static void child_leaves_the_parents_timer_and_set_alone(void **state)
{
    abx_client *c = client_get();
    struct timed t = { .timer = { .fn = timed_run, .user = &t } };
    struct ear a = { .client = c };
    int pair[2], status;
    pid_t pid;

    last_due_ns = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    a.watch = (struct client_watch){ .fd = pair[0], .fn = ear_hear, .user = &a };
    assert_int_equal(client_watch_set(c, &a.watch, CLIENT_IN, NULL), 0);
    t.due_ns = time_mono_ns() + 50 * NSEC_PER_MSEC;
    client_timer_set(c, &t.timer, t.due_ns);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        bool is_refused = abx_client_process(c) == ABX_FAILED_PRECONDITION;
        struct client_timer late = { .fn = timed_run, .user = &t };

        client_watch_clear(c, &a.watch);
        client_timer_clear(c, &t.timer);
        client_timer_set(c, &late, time_mono_ns());
        client_timer_clear(c, &late);
        abx_client_free(c);
        _exit(is_refused ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(write(pair[1], "x", 1), 1);
    while (!t.has_run)
        assert_int_equal(abx_client_wait(c, 5000), 0);
    assert_true(a.calls > 0);
    client_watch_clear(c, &a.watch);
    fd_close(pair[0]);
    fd_close(pair[1]);
    abx_client_free(c);
}

static void clients_leave_no_descriptor(void **state)
{
    int before = dup(0), after;

    assert_true(before >= 0);
    fd_close(before);
    for (int i = 0; i < 50; i++)
        abx_client_free(client_get());
    after = dup(0);
    fd_close(after);
    assert_int_equal(before, after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timers_run_in_order),
        cmocka_unit_test(timer_makes_the_fd_readable),
        cmocka_unit_test(timer_may_free_another),
        cmocka_unit_test(task_runs_once_and_may_free_another),
        cmocka_unit_test(task_that_queues_itself_lets_the_turn_end),
        cmocka_unit_test(watch_cleared_by_another_hears_nothing),
        cmocka_unit_test(watch_is_level_triggered_and_tells_what_is_asked),
        cmocka_unit_test(watch_of_a_bad_descriptor_is_an_error),
        cmocka_unit_test(wake_ends_this_wait_or_the_next),
        cmocka_unit_test(process_inside_a_callback_is_refused),
        cmocka_unit_test(client_freed_inside_a_callback_goes_at_the_end),
        cmocka_unit_test(child_leaves_the_parents_timer_and_set_alone),
        cmocka_unit_test(clients_leave_no_descriptor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
