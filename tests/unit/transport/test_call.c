/* Calls: told once, never inside the call that ends them, events before the end, freed at any time. */
#include "test.h"

#include <string.h>

#include "abx/files.h"
#include "base/str.h"
#include "transport/call.h"

struct operation {
    int cancels, resumes, sources, dones;
};

struct state {
    struct operation *op; /* outlives the call */
};

static struct operation *op_of(abx_call *call)
{
    return ((struct state *)call->state)->op;
}
static void op_cancel(abx_call *call)
{
    op_of(call)->cancels++;
}
static void op_resume(abx_call *call)
{
    op_of(call)->resumes++;
}
static void op_resume_source(abx_call *call)
{
    op_of(call)->sources++;
}
static void op_done(abx_call *call)
{
    op_of(call)->dones++;
}

static const struct call_ops ops = {
    .cancel = op_cancel, .resume = op_resume, .resume_source = op_resume_source, .done = op_done
};

static abx_client *client;
static int told;

static int setup(void **state)
{
    told = 0;
    return abx_client_new(NULL, &client, NULL);
}
static int teardown(void **state)
{
    abx_client_free(client);
    client = NULL;
    return 0;
}

static abx_call *call_get(struct operation *op)
{
    abx_call *call = call_new(client, &ops, sizeof(struct state));

    assert_non_null(call);
    ((struct state *)call->state)->op = op;
    return call;
}

static void tell(void *user, abx_call *call)
{
    told++;
    assert_true(abx_call_is_done(call));
}
static void tell_and_free(void *user, abx_call *call)
{
    told++;
    abx_call_free(call);
}

static bool push(abx_call *call, const char *text)
{
    struct abx_event e = { .kind = ABX_EVENT_DATA, .data = text, .size = strlen(text) };

    return call_event_push(call, &e);
}

static void end_is_told_once_and_later(void **state)
{
    struct operation op = { 0 };
    abx_call *call = call_get(&op);
    struct abx_err err = { 0 };

    abx_call_on_done(call, tell, NULL);
    call_finish(call, ABX_RESULT_BOOL);
    (void)err_set(&err, ABX_INTERNAL, "late");
    call_fail(call, &err); /* has ended: nothing */
    abx_call_cancel(call);
    assert_int_equal(told, 0);
    assert_int_equal(abx_client_process(client), 1);
    assert_int_equal(abx_client_process(client), 0);
    assert_int_equal(told, 1);
    assert_int_equal(abx_call_error(call)->code, 0);
    assert_int_equal(abx_call_result(call), ABX_RESULT_BOOL);
    assert_int_equal(op.dones, 1);
    assert_int_equal(op.cancels, 0);
    abx_call_on_done(call, tell, NULL); /* also when it already is done */
    (void)abx_client_process(client);
    assert_int_equal(told, 2);
    abx_call_free(call);
}

static void failed_start_is_a_call(void **state)
{
    struct abx_err err = { 0 };
    struct abx_error why;
    abx_call *call;

    (void)err_reason(&err, ABX_REASON_TOO_LARGE, "path: over 4096 bytes");
    call = call_new_failed(client, &err);
    assert_non_null(call);
    assert_int_equal(abx_call_wait(call, 1000, &why), err.code);
    test_text("message", why.message, "path: over 4096 bytes");
    assert_int_equal(why.reason, ABX_REASON_TOO_LARGE);
    abx_call_free(call);
}

static void failure_without_a_code_is_an_error_still(void **state)
{
    struct operation op = { 0 };
    abx_call *call = call_get(&op);

    call_fail(call, &(struct abx_err){ 0 });
    assert_int_equal(abx_call_error(call)->code, ABX_INTERNAL);
    abx_call_free(call);
}

static void callback_may_free_its_call(void **state)
{
    struct operation op = { 0 };

    for (int i = 0; i < 10; i++) {
        abx_call *call = call_get(&op);

        abx_call_on_done(call, tell_and_free, NULL);
        call_finish(call, ABX_RESULT_NONE);
    }
    assert_int_equal(abx_client_process(client), 10);
    assert_int_equal(told, 10);
}

static abx_call *victim;
static void tell_and_free_another(void *user, abx_call *call)
{
    told++;
    abx_call_free(victim);
    victim = NULL;
    abx_call_free(call);
}

static void callback_may_free_another_call(void **state)
{
    struct operation op = { 0 };
    abx_call *call = call_get(&op);

    victim = call_get(&op);
    abx_call_on_done(call, tell_and_free_another, NULL);
    abx_call_on_done(victim, tell, NULL);
    call_finish(call, ABX_RESULT_NONE);
    call_finish(victim, ABX_RESULT_NONE);
    (void)abx_client_process(client);
    assert_int_equal(told, 1);
}

static void tell_and_start(void *user, abx_call *call)
{
    abx_call *next;

    told++;
    if (told < 5) {
        next = call_get(user);
        abx_call_on_done(next, tell_and_start, user);
        call_finish(next, ABX_RESULT_NONE);
    }
    abx_call_free(call);
}

static void callback_may_start_calls(void **state)
{
    struct operation op = { 0 };
    abx_call *call = call_get(&op);

    abx_call_on_done(call, tell_and_start, &op);
    call_finish(call, ABX_RESULT_NONE);
    while (told < 5)
        assert_true(abx_client_process(client) > 0);
}

static void cancel_and_free_stop_the_operation(void **state)
{
    struct operation op = { 0 };
    abx_call *call = call_get(&op);

    abx_call_on_done(call, tell, NULL);
    abx_call_cancel(call);
    abx_call_cancel(call);
    assert_int_equal(op.cancels, 1);
    assert_int_equal(op.dones, 1);
    (void)abx_client_process(client);
    assert_int_equal(told, 1);
    assert_int_equal(abx_call_error(call)->code, ABX_CANCELED);
    abx_call_free(call);
    call = call_get(&op);
    abx_call_on_done(call, tell, NULL);
    abx_call_free(call); /* told nothing any more */
    assert_int_equal(op.cancels, 2);
    (void)abx_client_process(client);
    assert_int_equal(told, 1);
    abx_call_free(NULL);
}

static void events_come_before_the_end(void **state)
{
    struct operation op = { 0 };
    abx_call *call = call_get(&op);
    struct abx_event e;

    abx_call_on_done(call, tell, NULL);
    assert_int_equal(abx_call_next(call, &e), 0);
    assert_true(push(call, "one"));
    assert_true(push(call, "two"));
    call_finish(call, ABX_RESULT_NONE);
    assert_int_equal(abx_client_process(client), 0);
    assert_false(abx_call_is_done(call));
    assert_int_equal(abx_call_wait(call, 100, NULL), ABX_FAILED_PRECONDITION);
    assert_int_equal(abx_call_next(call, &e), 1);
    assert_memory_equal(e.data, "one", 3);
    assert_int_equal(abx_call_next(call, &e), 1);
    assert_memory_equal(e.data, "two", 3);
    assert_int_equal(abx_client_process(client), 1);
    assert_int_equal(told, 1);
    abx_call_free(call);
}

static int events_told;
static void take_one(void *user, abx_call *call)
{
    struct abx_event e;

    events_told++;
    assert_int_equal(abx_call_next(call, &e), 1);
}
static void free_on_event(void *user, abx_call *call)
{
    events_told++;
    abx_call_free(call);
}

/* One that takes a single event each time is called until none waits, then the end comes. */
static void event_callback_runs_until_all_are_taken(void **state)
{
    struct operation op = { 0 };
    abx_call *call = call_get(&op);

    events_told = 0;
    abx_call_on_event(call, take_one, NULL);
    abx_call_on_done(call, tell, NULL);
    for (int i = 0; i < 5; i++)
        assert_true(push(call, "x"));
    call_finish(call, ABX_RESULT_NONE);
    for (int i = 0; i < 20 && told == 0; i++)
        (void)abx_client_process(client);
    assert_int_equal(events_told, 5);
    assert_int_equal(told, 1);
    abx_call_free(call);
}

static void event_callback_may_free(void **state)
{
    struct operation op = { 0 };
    abx_call *call = call_get(&op);

    events_told = 0;
    abx_call_on_event(call, free_on_event, NULL);
    assert_true(push(call, "x"));
    (void)abx_client_process(client);
    assert_int_equal(events_told, 1);
    assert_int_equal(op.cancels, 1);
}

static void full_queue_asks_to_go_on_when_half_empty(void **state)
{
    struct operation op = { 0 };
    abx_call *call = call_get(&op);
    struct abx_event e, big = { .kind = ABX_EVENT_DATA };
    static char data[100000];
    int n = 0;

    big.data = data;
    big.size = sizeof data;
    while (!call_events_full(call)) {
        assert_true(call_event_push(call, &big));
        n++;
    }
    assert_in_range(n, ABX_EVENT_QUEUE_BYTES / sizeof data,
                    ABX_EVENT_QUEUE_BYTES / sizeof data + 1);
    for (int i = 0; i < n; i++) {
        assert_int_equal(abx_call_next(call, &e), 1);
        if (i == 0)
            assert_int_equal(op.resumes, 0);
    }
    assert_int_equal(op.resumes, 1);
    abx_call_resume(call);
    assert_int_equal(op.sources, 1);
    abx_call_free(call);
}

static void wait_has_a_limit(void **state)
{
    struct operation op = { 0 };
    abx_call *call = call_get(&op);
    struct abx_error err;

    assert_int_equal(abx_call_wait(call, 20, &err), ABX_DEADLINE_EXCEEDED);
    assert_false(abx_call_is_done(call));
    abx_client_wake(client);
    assert_int_equal(abx_call_wait(call, 5000, &err), ABX_CANCELED);
    call_finish(call, ABX_RESULT_NONE);
    assert_int_equal(abx_call_wait(call, 5000, &err), 0);
    abx_call_free(call);
}

static void bytes_have_a_nul_and_can_be_taken(void **state)
{
    struct operation op = { 0 };
    abx_call *call = call_get(&op);
    size_t n = 0;
    char *taken;

    assert_int_equal(buf_append_str(&call->bytes, "xxhello"), BUF_OK);
    buf_consume(&call->bytes, 2);
    assert_non_null(buf_cstr(&call->bytes));
    call_finish(call, ABX_RESULT_BYTES);
    test_text("borrowed", (const char *)abx_call_bytes(call, &n), "hello");
    assert_int_equal(n, 5);
    taken = abx_call_take_bytes(call, &n);
    test_text("taken", taken, "hello");
    assert_int_equal(n, 5);
    free(taken);
    (void)abx_call_bytes(call, &n);
    assert_int_equal(n, 0);
    abx_call_free(call);
}

static void client_free_ends_calls_and_leaves_them(void **state)
{
    struct operation op = { 0 };
    abx_call *one = call_get(&op), *two = call_get(&op), *three = call_get(&op);
    struct abx_error err;

    abx_call_on_done(one, tell, NULL);
    abx_call_on_done(two, tell_and_free, NULL);
    assert_true(push(three, "lost"));
    abx_client_free(client);
    client = NULL;
    assert_int_equal(told, 2);
    assert_int_equal(op.cancels, 3);
    assert_int_equal(abx_call_error(one)->code, ABX_CANCELED);
    assert_true(abx_call_is_done(three));
    assert_int_equal(abx_call_wait(one, 10, &err), ABX_CANCELED);
    abx_call_cancel(one);
    abx_call_free(one);
    abx_call_free(three);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(end_is_told_once_and_later),
        T(failed_start_is_a_call),
        T(failure_without_a_code_is_an_error_still),
        T(callback_may_free_its_call),
        T(callback_may_free_another_call),
        T(callback_may_start_calls),
        T(cancel_and_free_stop_the_operation),
        T(events_come_before_the_end),
        T(event_callback_runs_until_all_are_taken),
        T(event_callback_may_free),
        T(full_queue_asks_to_go_on_when_half_empty),
        T(wait_has_a_limit),
        T(bytes_have_a_nul_and_can_be_taken),
        T(client_free_ends_calls_and_leaves_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
