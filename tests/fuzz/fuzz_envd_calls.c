/* Answers of an envd to calls of each kind, cut into pieces and cleanly ended or cut off: each call ends once, nothing of
 * its transport stays, and it ends the same however the pieces fall. Byte 0 picks call and codec, byte 1 status and end. */
#include "fuzz.h"

#include "../fake_transport.h"
#include "abx/commands.h"
#include "abx/files.h"
#include "protocol/sandbox.h"

enum { KINDS = 8 };

struct outcome {
    int code, reason;
    enum abx_result result;
    struct buf out;
};

static abx_client client;

static abx_sandbox *sandbox_make(bool protobuf)
{
    struct abx_config_opts opts = ABX_CONFIG_OPTS_INIT;
    struct abx_sandbox_parts parts = ABX_SANDBOX_PARTS_INIT;
    abx_config *config = NULL;
    abx_sandbox *sb = NULL;

    opts.api_key = "key";
    opts.api_url = "http://127.0.0.1:1";
    opts.protobuf = protobuf;
    parts.sandbox_id = "i1";
    parts.envd_version = "0.6.13";
    FUZZ_CHECK(abx_config_load(&opts, &config, NULL) == 0);
    FUZZ_CHECK(abx_sandbox_new(config, &parts, &sb, NULL) == 0);
    abx_config_unref(config);
    return sb;
}

static abx_call *call_start(abx_sandbox *sb, unsigned kind)
{
    static const struct abx_write_item item = { .path = "/x", .data = "d", .size = 1 };
    struct abx_read_opts stream = ABX_READ_OPTS_INIT;

    stream.stream = 1;
    switch (kind) {
    case 0:
        return abx_command_run(&client, sb, "x", NULL);
    case 1:
        return abx_command_start(&client, sb, "x", NULL);
    case 2:
        return abx_files_list(&client, sb, "/", 1, NULL);
    case 3:
        return abx_process_list(&client, sb, ABX_UNSET);
    case 4:
        return abx_files_write(&client, sb, &item, 1, NULL);
    case 5:
        return abx_files_read(&client, sb, "/x", &stream);
    case 6:
        return abx_files_watch(&client, sb, "/", NULL);
    default:
        return abx_watcher_get_events(&client, sb, "w", NULL);
    }
}

static void events_take(abx_call *call, struct outcome *o)
{
    struct abx_event e;

    while (abx_call_next(call, &e)) {
        FUZZ_CHECK(e.size == 0 || e.data);
        FUZZ_CHECK(buf_append(&o->out, e.data, e.size) == BUF_OK);
        if (e.kind == ABX_EVENT_FILE)
            FUZZ_CHECK(buf_append_str(&o->out, e.fs->name) == BUF_OK);
    }
}

static void answer(abx_call *call, const uint8_t *head, struct slice body, unsigned mode,
                   struct outcome *o)
{
    static const int statuses[] = { 200, 200, 200, 204, 404, 502, 503, 507 };
    struct http_head h = { .status = statuses[head[1] & 7], .version = 11 };
    struct abx_err err = { 0 };

    if (head[1] & 8)
        (void)err_reason(&err, ABX_REASON_DISCONNECTED, "cut");
    exchange.sink.head(exchange.user, &h);
    for (size_t i = 0; body.n > 0; i++) {
        size_t n = fuzz_piece(mode, i, body.n);

        if (exchange.is_running && exchange.sink.body(exchange.user, slice_of(body.p, n)))
            body = slice_of(body.p + n, body.n - n);
        else if (!exchange.is_running)
            break;
        events_take(call, o);
        tasks_run(&client);
    }
    if (exchange.is_running) {
        exchange.is_running = false;
        exchange.sink.done(exchange.user, &err);
    }
    if (exchange.is_running) { /* GET /health */
        h.status = head[1] & 16 ? 502 : 204;
        exchange.sink.head(exchange.user, &h);
        exchange.is_running = false;
        err = (struct abx_err){ 0 };
        exchange.sink.done(exchange.user, &err);
    }
}

static void call_once(const uint8_t *head, struct slice body, unsigned mode, struct outcome *o)
{
    abx_sandbox *sb = sandbox_make(head[0] & 128);
    abx_call *call = call_start(sb, (head[0] & 127) % KINDS);
    size_t n;

    FUZZ_CHECK(call && exchange.is_running);
    client.completed = 0;
    answer(call, head, body, mode, o);
    tasks_run(&client);
    events_take(call, o);
    tasks_run(&client);
    FUZZ_CHECK(abx_call_is_done(call) && client.completed == 1 && !exchange.is_running);
    o->code = abx_call_error(call)->code;
    o->reason = abx_call_error(call)->reason;
    o->result = abx_call_result(call);
    FUZZ_CHECK((o->code == 0) == (abx_call_error(call)->message[0] == '\0'));
    FUZZ_CHECK(buf_append_str(&o->out, abx_call_error(call)->message) == BUF_OK);
    (void)abx_call_bytes(call, &n);
    FUZZ_CHECK(buf_append(&o->out, abx_call_bytes(call, NULL), n) == BUF_OK);
    abx_call_free(call);
    abx_sandbox_unref(sb);
    FUZZ_CHECK(client.task_count == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct outcome first = { .out = BUF_INIT(1 << 26) };

    if (size < 2 || size > 1 << 20)
        return 0;
    call_once(data, slice_of(data + 2, size - 2), 0, &first);
    for (unsigned mode = 1; mode <= 2; mode++) {
        struct outcome other = { .out = BUF_INIT(1 << 26) };

        call_once(data, slice_of(data + 2, size - 2), mode, &other);
        FUZZ_CHECK(first.code == other.code && first.reason == other.reason &&
                   first.result == other.result);
        FUZZ_CHECK(slice_eq(buf_slice(&first.out), buf_slice(&other.out)));
        buf_done(&other.out);
    }
    buf_done(&first.out);
    return 0;
}
