/* Out of memory at every allocation of a call in turn: it ends once, with an error that says so, and leaks nothing (the
 * ASan build looks). The transport below is a fake that answers at once; linked with --wrap as wire/test_oom.c. */
#include "test.h"

#include "../../fake_transport.h"
#include "abx/commands.h"
#include "abx/files.h"
#include "protocol/sandbox.h"
#include "wire/connect.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_reallocarray(void *p, size_t n, size_t size);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_reallocarray(void *p, size_t n, size_t size);

static long countdown = -1; /* allocations that still succeed, -1 = all */
static bool has_failed, stays_short;

static bool fails(void)
{
    if (countdown < 0 || countdown-- > 0)
        return false;
    countdown = stays_short ? 0 : -1;
    has_failed = true;
    return true;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
    return fails() ? NULL : __real_reallocarray(p, n, size);
}

/* Reads what is uploaded, gives the answer in two pieces and ends. */
static void answer(abx_client *c, struct slice body)
{
    const struct http_head head = { .status = 200, .version = 11 };
    struct abx_err err = { 0 };
    uint8_t buffer[64];

    while (exchange.is_upload && exchange.source(exchange.source_user, buffer, sizeof buffer) > 0)
        ;
    exchange.sink.head(exchange.user, &head);
    (void)exchange.sink.body(exchange.user, slice_of(body.p, body.n / 2));
    (void)exchange.sink.body(exchange.user, slice_of(body.p + body.n / 2, body.n - body.n / 2));
    exchange.is_running = false;
    exchange.sink.done(exchange.user, &err);
}

/* ---- the calls ---- */

static abx_client client;
static abx_sandbox *sandbox;

static void event_put(struct buf *b, uint8_t flags, const char *json)
{
    size_t mark = 0;

    assert_true(connect_envelope_begin(b, flags, &mark));
    assert_int_equal(buf_append_str(b, json), BUF_OK);
    assert_true(connect_envelope_end(b, mark));
}

static void command_answer(struct buf *b)
{
    event_put(b, 0, "{\"event\":{\"start\":{\"pid\":7}}}");
    event_put(b, 0, "{\"event\":{\"data\":{\"stdout\":\"b3V0\"}}}");
    event_put(b, 0, "{\"event\":{\"data\":{\"stderr\":\"ZXJy\"}}}");
    event_put(b, 0, "{\"event\":{\"end\":{\"exited\":true,\"status\":\"exit status 0\"}}}");
    event_put(b, CONNECT_FLAG_END, "{}");
}

static const struct abx_pair pairs[] = { { "A", "b" }, { "C", "d" } };

static abx_call *call_run(void)
{
    struct abx_command_opts opts = ABX_COMMAND_OPTS_INIT;

    opts.envs = pairs;
    opts.env_count = 2;
    opts.user = "root";
    return abx_command_run(&client, sandbox, "x", &opts);
}

static abx_call *call_pty(void)
{
    struct abx_command_opts opts = ABX_COMMAND_OPTS_INIT;

    opts.collect = 1;
    return abx_pty_start(&client, sandbox, 80, 25, &opts);
}

static abx_call *call_list(void)
{
    return abx_files_list(&client, sandbox, "/", 1, NULL);
}

static abx_call *call_processes(void)
{
    return abx_process_list(&client, sandbox, ABX_UNSET);
}

static abx_call *call_stdin(void)
{
    const struct abx_process_ref process = { .tag = "t" };

    return abx_process_send_stdin(&client, sandbox, process, 0, "data", 4, ABX_UNSET);
}

static abx_call *call_events(void)
{
    return abx_watcher_get_events(&client, sandbox, "w", NULL);
}

static abx_call *call_read(void)
{
    return abx_files_read(&client, sandbox, "/x", NULL);
}

static abx_call *call_read_stream(void)
{
    struct abx_read_opts opts = ABX_READ_OPTS_INIT;

    opts.stream = 1;
    return abx_files_read(&client, sandbox, "/x", &opts);
}

static abx_call *write_with(bool is_gzip, size_t n)
{
    static const struct abx_write_item items[] = {
        { .path = "/x", .data = "data", .size = 4 },
        { .path = "/y", .data = "more", .size = 4 },
    };
    struct abx_write_opts opts = ABX_WRITE_OPTS_INIT;

    opts.gzip = is_gzip;
    opts.metadata = pairs;
    opts.metadata_count = 2;
    return abx_files_write(&client, sandbox, items, n, &opts);
}

static abx_call *call_write(void)
{
    return write_with(false, 1);
}

static abx_call *call_write_packed(void)
{
    return write_with(true, 1);
}

static abx_call *call_write_many(void)
{
    return write_with(false, 2);
}

static abx_call *call_watch(void)
{
    return abx_files_watch(&client, sandbox, "/", NULL);
}

#define ENTRY                                                                                      \
    "{\"name\":\"f\",\"path\":\"/f\",\"type\":\"FILE_TYPE_FILE\",\"size\":\"3\",\"owner\":\"u\","  \
    "\"symlinkTarget\":\"/g\",\"metadata\":{\"k\":\"v\"}}"
#define WRITTEN "{\"name\":\"x\",\"path\":\"/x\",\"type\":\"file\",\"metadata\":{\"a\":\"b\"}}"

static const struct row {
    const char *name;
    abx_call *(*start)(void);
    const char *body; /* NULL = a command's stream */
    enum abx_result result;
} rows[] = {
    { "run", call_run, NULL, ABX_RESULT_COMMAND },
    { "pty", call_pty, NULL, ABX_RESULT_COMMAND },
    { "list", call_list, "{\"entries\":[" ENTRY "," ENTRY "]}", ABX_RESULT_ENTRIES },
    { "processes", call_processes,
      "{\"processes\":[{\"pid\":1,\"tag\":\"t\",\"config\":{\"cmd\":\"c\",\"args\":[\"a\",\"b\"],"
      "\"envs\":{\"k\":\"v\"},\"cwd\":\"/\"}}]}",
      ABX_RESULT_PROCESSES },
    { "stdin", call_stdin, "{}", ABX_RESULT_NONE },
    { "events", call_events,
      "{\"events\":[{\"name\":\"f\",\"type\":\"EVENT_TYPE_CREATE\",\"entry\":" ENTRY "}]}",
      ABX_RESULT_FS_EVENTS },
    { "read", call_read, "content", ABX_RESULT_BYTES },
    { "read stream", call_read_stream, "content", ABX_RESULT_NONE },
    { "write", call_write, "[" WRITTEN "]", ABX_RESULT_ENTRIES },
    { "write packed", call_write_packed, "[" WRITTEN "]", ABX_RESULT_ENTRIES },
    { "write many", call_write_many, "[" WRITTEN "," WRITTEN "]", ABX_RESULT_ENTRIES },
};

/* One call with its answer; true = it ended well. */
static bool once(const struct row *row, struct slice body)
{
    abx_call *call = row->start();
    struct abx_event event;
    bool is_good;

    if (!call) {
        assert_true(has_failed && !exchange.is_running);
        return false;
    }
    client.completed = 0;
    if (exchange.is_running)
        answer(&client, body);
    tasks_run(&client);
    while (abx_call_next(call, &event))
        ;
    tasks_run(&client);
    assert_true(abx_call_is_done(call) && !exchange.is_running);
    assert_int_equal(client.completed, 1);
    is_good = abx_call_error(call)->code == 0;
    if (is_good)
        assert_int_equal(abx_call_result(call), row->result);
    else
        assert_true(has_failed && abx_call_error(call)->message[0] != '\0');
    abx_call_free(call);
    assert_int_equal(client.task_count, 0);
    return is_good;
}

static void every_allocation_may_fail(void **state)
{
    stays_short = *state != NULL;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_(buf_done) struct buf body = BUF_INIT(65536);
        long n = 0;
        bool is_good;

        if (rows[i].body)
            assert_int_equal(buf_append_str(&body, rows[i].body), BUF_OK);
        else
            command_answer(&body);
        do {
            has_failed = false;
            countdown = n++;
            is_good = once(&rows[i], buf_slice(&body));
            countdown = -1;
            if (has_failed && is_good)
                fail_msg("%s: allocation %ld failed and nobody saw it", rows[i].name, n);
        } while (has_failed);
        if (!is_good)
            fail_msg("%s: failed with memory", rows[i].name);
        if (n < 6)
            fail_msg("%s: only %ld allocations were seen", rows[i].name, n);
    }
}

/* A call may be cancelled, or freed, at any point of its life: no transport of it stays. */
static void calls_end_at_any_point(void **state)
{
    abx_call *(*const starts[])(void) = { call_run,  call_list,  call_stdin,
                                          call_read, call_write, call_watch };
    const struct http_head head = { .status = 200, .version = 11 };

    for (size_t i = 0; i < ARRAY_SIZE(starts) * 4; i++) {
        abx_call *call = starts[i / 4]();

        assert_non_null(call);
        assert_true(exchange.is_running);
        if (i % 4 >= 2)
            exchange.sink.head(exchange.user, &head);
        if (i % 2)
            abx_call_cancel(call);
        if (i % 2)
            assert_int_equal(abx_call_error(call)->code, ABX_CANCELED);
        abx_call_free(call);
        assert_false(exchange.is_running);
        tasks_run(&client);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test_prestate(every_allocation_may_fail, &stays_short),
        cmocka_unit_test(calls_end_at_any_point),
    };
    struct abx_config_opts opts = ABX_CONFIG_OPTS_INIT;
    struct abx_sandbox_parts parts = ABX_SANDBOX_PARTS_INIT;
    abx_config *config = NULL;
    int r;

    opts.api_key = "key";
    opts.api_url = "http://127.0.0.1:1";
    parts.sandbox_id = "i1";
    parts.envd_version = "0.6.13";
    if (abx_config_load(&opts, &config, NULL) < 0 ||
        abx_sandbox_new(config, &parts, &sandbox, NULL) < 0)
        return 1;
    r = cmocka_run_group_tests(tests, NULL, NULL);
    abx_sandbox_unref(sandbox);
    abx_config_unref(config);
    return r;
}
