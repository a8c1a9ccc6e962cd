/* What is kept of sandboxes to be read later: their logs, events and metrics. */
#include "store_test.h"

struct read_logs {
    int calls;
    size_t n;
    char first[64], last[64];
    char logger[16];
    enum store_level level;
};

static void on_logs(void *user, const struct store_log *logs, size_t n,
                    const struct abx_err *failure)
{
    struct read_logs *r = user;

    assert_null(failure);
    r->calls++;
    r->n = n;
    if (n == 0)
        return;
    (void)snprintf(r->first, sizeof r->first, "%s", logs[0].message);
    (void)snprintf(r->last, sizeof r->last, "%s", logs[n - 1].message);
    (void)snprintf(r->logger, sizeof r->logger, "%s", logs[0].logger);
    r->level = logs[0].level;
}

static struct read_logs read_logs(struct store_log_filter f)
{
    struct read_logs r = { 0 };
    struct abx_err err = { 0 };

    f.team = f.team ? f.team : "t1";
    f.sandbox_id = "i1";
    f.to_ms = f.to_ms ? f.to_ms : INT64_MAX;
    f.limit = f.limit ? f.limit : STORE_LOGS_PAGE;
    assert_int_equal(store_logs_read(store, &f, on_logs, &r, &err), 0);
    while (r.calls == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    return r;
}

/* The queue is bounded: what is waiting is written now and then. */
static void add_logs_of(const char *logger, const char *id, int from, int to)
{
    struct abx_err err = { 0 };
    char text[32];

    for (int i = from; i < to; i++) {
        struct store_log log = { id, "t1", i, (enum store_level)(i % 4), logger, text, "{}" };

        (void)snprintf(text, sizeof text, "Line %d", i);
        assert_int_equal(store_log_add(store, &log, &err), 0);
        if (i % 1000 == 999)
            (void)read_logs((struct store_log_filter){ .limit = 1 });
    }
}

static void add_logs(const char *id, int from, int to)
{
    add_logs_of("egress", id, from, to);
}

static void logs_are_read_both_ways_and_filtered(void **state)
{
    struct read_logs r;

    (void)state;
    add_logs("i1", 0, 12);
    add_logs("i2", 0, 3);
    r = read_logs((struct store_log_filter){ 0 });
    assert_int_equal(r.n, 12);
    assert_string_equal(r.first, "Line 0");
    assert_string_equal(r.last, "Line 11");
    assert_string_equal(r.logger, "egress");
    r = read_logs((struct store_log_filter){ .is_descending = true, .to_ms = 10, .limit = 2 });
    assert_int_equal(r.n, 2);
    assert_string_equal(r.first, "Line 10");
    assert_string_equal(r.last, "Line 9");
    r = read_logs((struct store_log_filter){ .from_ms = 3, .to_ms = 6, .level = STORE_WARN });
    assert_int_equal(r.n, 2); /* 3 and 6 */
    assert_int_equal(r.level, STORE_ERROR);
    assert_int_equal(read_logs((struct store_log_filter){ .search = "LINE 1" }).n, 3);
    /* What LIKE would take for a pattern is text. */
    assert_int_equal(read_logs((struct store_log_filter){ .search = "%" }).n, 0);
    assert_int_equal(read_logs((struct store_log_filter){ .search = "Line _" }).n, 0);
    assert_int_equal(read_logs((struct store_log_filter){ .search = "!" }).n, 0);
    assert_int_equal(read_logs((struct store_log_filter){ .team = "other" }).n, 0);
}

static void prune(enum store_pruned kind, int64_t before_ms, uint32_t kept, uint32_t step)
{
    struct store_pruning what = { .step = step };
    struct abx_err err = { 0 };

    what.of[kind] = (struct store_bound){ before_ms, kept };
    assert_int_equal(store_prune(store, &what, NULL, NULL, &err), 0);
}

static void what_a_sandbox_says_pushes_out_nothing_else(void **state)
{
    struct read_logs r;

    (void)state;
    add_logs("i1", 1, 100);
    add_logs_of("process", "i1", 100, (int)STORE_PROCESS_LOGS_MAX + 200);
    r = read_logs((struct store_log_filter){ .limit = 1 });
    assert_string_equal(r.first, "Line 1");
    assert_int_equal(read_logs((struct store_log_filter){ .to_ms = 180 }).n, 99);
    r = read_logs((struct store_log_filter){ .is_descending = true, .limit = 1 });
    assert_string_equal(r.logger, "process");
}

static void logs_are_bounded_and_pruned(void **state)
{
    struct read_logs r;

    (void)state;
    add_logs("i1", 1, (int)STORE_LOGS_MAX + 500);
    r = read_logs((struct store_log_filter){ .limit = 1 });
    assert_string_not_equal(r.first, "Line 1");
    r = read_logs((struct store_log_filter){ .to_ms = 470 });
    assert_int_equal(r.n, 0);
    prune(STORE_PRUNED_LOGS, 600, 0, 50);
    r = read_logs((struct store_log_filter){ .limit = 1 });
    assert_string_not_equal(r.first, "Line 600");
    prune(STORE_PRUNED_LOGS, 600, 0, 1000);
    r = read_logs((struct store_log_filter){ .limit = 1 });
    assert_string_equal(r.first, "Line 600");
}

static void logs_of_all_are_bounded(void **state)
{
    (void)state;
    add_logs("i2", 0, 60);
    add_logs("i1", 60, 120);
    prune(STORE_PRUNED_LOGS, 0, 120, 1000);
    assert_int_equal(read_logs((struct store_log_filter){ 0 }).n, 60);
    prune(STORE_PRUNED_LOGS, 0, 40, 30); /* a step, of the other sandbox's */
    assert_int_equal(read_logs((struct store_log_filter){ 0 }).n, 60);
    prune(STORE_PRUNED_LOGS, 0, 40, 1000);
    assert_int_equal(read_logs((struct store_log_filter){ 0 }).n, 40);
    assert_string_equal(read_logs((struct store_log_filter){ 0 }).first, "Line 80");
    prune(STORE_PRUNED_LOGS, 0, 40, 1000);
    assert_int_equal(read_logs((struct store_log_filter){ 0 }).n, 40);
}

static void an_event_is_a_line_too(void **state)
{
    const struct store_sandbox sb = { .id = "i1", .team = "t1" };
    const struct store_event event = { .id = "e1",
                                       .type = "sandbox.lifecycle.killed",
                                       .data = "{}",
                                       .time_ms = 5,
                                       .is_warning = true };
    struct abx_err err = { 0 };
    struct read_logs r;

    (void)state;
    assert_int_equal(store_sandbox_remove(store, &sb, &event, NULL, NULL, &err), 0);
    r = read_logs((struct store_log_filter){ 0 });
    assert_int_equal(r.n, 1);
    assert_string_equal(r.first, "Sandbox killed");
    assert_string_equal(r.logger, "lifecycle");
    assert_int_equal(r.level, STORE_WARN);
}

struct read_events {
    int calls;
    size_t n;
    char id[32];
};

static void on_events(void *user, const struct store_event *events, size_t n,
                      const struct abx_err *failure)
{
    struct read_events *r = user;

    assert_null(failure);
    r->calls++;
    r->n = n;
    (void)snprintf(r->id, sizeof r->id, "%s", n > 0 ? events[0].id : "");
}

/* The events from the `offset`th on, oldest first; up to STORE_EVENTS_MAX. */
static struct read_events read_events(const char *sandbox, uint32_t offset)
{
    const struct store_event_filter f = { "t1", sandbox, offset, STORE_EVENTS_MAX, true };
    struct read_events r = { 0 };
    struct abx_err err = { 0 };

    assert_int_equal(store_events(store, &f, on_events, &r, &err), 0);
    while (r.calls == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    return r;
}

static size_t count_events(const char *sandbox)
{
    size_t n = 0, more;

    while ((more = read_events(sandbox, (uint32_t)n).n) > 0)
        n += more;
    return n;
}

/* `n` of them, at the times from `from` on; ids are "<id>-<time>". */
static void add_events(const char *id, const char *type, int from, int n)
{
    const struct store_sandbox sb = { .id = id, .team = "t1" };
    struct abx_err err = { 0 };
    char text[32];

    for (int i = from; i < from + n; i++) {
        const struct store_event event = { .id = text, .type = type, .data = "{}", .time_ms = i };

        (void)snprintf(text, sizeof text, "%s-%d", id, i);
        assert_int_equal(store_sandbox_extend(store, &sb, &event, NULL, NULL, &err), 0);
        if (i % 1000 == 999)
            (void)read_events(id, 0);
    }
}

static void prune_events(int64_t before_ms, uint32_t kept, uint32_t step)
{
    prune(STORE_PRUNED_EVENTS, before_ms, kept, step);
}

static void events_that_a_client_makes_are_bounded(void **state)
{
    size_t n;

    (void)state;
    add_events("i1", "sandbox.lifecycle.created", 1, 1);
    add_events("i2", "sandbox.lifecycle.updated", 1, 20);
    add_events("i1", "sandbox.lifecycle.updated", 2, (int)STORE_EVENTS_OF_ONE + 500);
    n = count_events("i1");
    assert_in_range(n, STORE_EVENTS_OF_ONE, STORE_EVENTS_OF_ONE + 50);
    assert_string_equal(read_events("i1", 0).id, "i1-1"); /* what happens once stays */
    assert_string_not_equal(read_events("i1", 1).id, "i1-2");
    add_events("i1", "sandbox.lifecycle.paused", 2000, 200);
    assert_in_range(count_events("i1"), STORE_EVENTS_OF_ONE, STORE_EVENTS_OF_ONE + 50);
    assert_int_equal(count_events("i2"), 20);
}

static void events_are_pruned_in_steps(void **state)
{
    (void)state;
    add_events("i1", "sandbox.lifecycle.updated", 0, 60);
    add_events("i2", "sandbox.lifecycle.updated", 60, 60);
    prune_events(20, 200, 15); /* the old ones */
    assert_int_equal(count_events(""), 105);
    prune_events(20, 200, 15);
    prune_events(20, 200, 15);
    assert_int_equal(count_events(""), 100);
    assert_string_equal(read_events("", 0).id, "i1-20");
    prune_events(0, 100, 15);
    assert_int_equal(count_events(""), 100);
    prune_events(0, 80, 15); /* too many */
    assert_int_equal(count_events(""), 85);
    prune_events(0, 80, 15);
    prune_events(0, 80, 15);
    assert_int_equal(count_events(""), 80);
    assert_string_equal(read_events("", 0).id, "i1-40");
}

struct metered {
    int calls;
    size_t n;
    int64_t first, last;
    char samples[32];
    uint32_t memory_mb;
};

static void on_metrics(void *user, const struct store_metrics *rows, size_t n,
                       const struct abx_err *failure)
{
    struct metered *m = user;

    assert_null(failure);
    m->calls++;
    m->n = n;
    if (n == 0)
        return;
    m->first = rows[0].first_ms;
    m->last = rows[n - 1].last_ms;
    m->memory_mb = rows[n - 1].memory_mb;
    (void)snprintf(m->samples, sizeof m->samples, "%s", rows[0].samples);
}

static struct metered read_metrics(const char *team, const char *id, int64_t from, int64_t to)
{
    const struct store_metrics_filter f = { team, id, from, to };
    struct metered m = { 0 };
    struct abx_err err = { 0 };

    assert_int_equal(store_metrics_read(store, &f, on_metrics, &m, &err), 0);
    while (m.calls == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    return m;
}

static void metrics_are_read_in_order_and_pruned_oldest_first(void **state)
{
    struct metered m;
    struct abx_err err = { 0 };
    char text[16];

    (void)state;
    /* Over several sizes of the answer's memory. */
    for (int i = 0; i < 300; i++) {
        (void)snprintf(text, sizeof text, "s%d", i);
        assert_int_equal(store_metrics_add(store,
                                           &(struct store_metrics){ "i1", "t1", i * 10, i * 10 + 5,
                                                                    1, 512, 0, text },
                                           &err),
                         0);
    }
    assert_int_equal(
        store_metrics_add(store, &(struct store_metrics){ "i2", "t2", 7, 7, 1, 256, 0, "other" },
                          &err),
        0);
    m = read_metrics("t1", "i1", 0, INT64_MAX);
    assert_int_equal(m.n, 300);
    assert_int_equal(m.first, 0);
    assert_int_equal(m.last, 2995);
    assert_string_equal(m.samples, "s0");
    assert_int_equal(m.memory_mb, 512);
    m = read_metrics("t1", "i1", 5, 10); /* ends count */
    assert_int_equal(m.n, 2);
    assert_int_equal(read_metrics("t1", "i1", 6, 9).n, 0);
    assert_int_equal(read_metrics("t1", "i2", 0, INT64_MAX).n, 0);
    assert_int_equal(read_metrics("t2", "i2", 0, INT64_MAX).n, 1);

    prune(STORE_PRUNED_METRICS, 2000, 0, 100);
    m = read_metrics("t1", "i1", 0, INT64_MAX);
    assert_int_equal(m.n, 201); /* 99 of them and the one of the other */
    assert_int_equal(m.first, 990);
    prune(STORE_PRUNED_METRICS, 2000, 0, 1000);
    m = read_metrics("t1", "i1", 0, INT64_MAX);
    assert_int_equal(m.first, 2000);
    reopen();
    assert_int_equal(read_metrics("t1", "i1", 0, INT64_MAX).n, 100);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(logs_are_read_both_ways_and_filtered),
        TEST(what_a_sandbox_says_pushes_out_nothing_else),
        TEST(logs_are_bounded_and_pruned),
        TEST(logs_of_all_are_bounded),
        TEST(an_event_is_a_line_too),
        TEST(events_that_a_client_makes_are_bounded),
        TEST(events_are_pruned_in_steps),
        TEST(metrics_are_read_in_order_and_pruned_oldest_first),
    };

    return cmocka_run_group_tests_name("logs", tests, NULL, NULL);
}
