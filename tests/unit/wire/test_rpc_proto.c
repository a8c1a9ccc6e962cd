/* Protobuf bytes: what is refused before protobuf-c sees it, and the wire form of our types. */
#include "test.h"

#include "schema/filesystem.pb-c.h"
#include "schema/process.pb-c.h"
#include "wire/rpc.h"

#define START &process__start_request__descriptor
#define SELECTOR &process__process_selector__descriptor
#define EVENT &process__process_event__descriptor
#define ENTRY &filesystem__entry_info__descriptor

/* Wire bytes and JSON of the same message, both ways. The bytes are written out by hand from the field
 * numbers. */
static void both_forms_agree(void **state)
{
    static const struct {
        const ProtobufCMessageDescriptor *type;
        struct slice bytes;
        const char *json;
    } rows[] = {
        { SELECTOR, SLICE_LIT("\x08\x2a"), "{\"pid\":42}" },
        { SELECTOR, SLICE_LIT("\x08\x00"), "{\"pid\":0}" },
        { SELECTOR, SLICE_LIT("\x12\x01t"), "{\"tag\":\"t\"}" },
        { START, SLICE_LIT(""), "{}" },
        { START,
          SLICE_LIT("\x0a\x15\x0a\x02sh\x12\x01"
                    "a\x12\x01"
                    "b\x1a\x06\x0a\x01"
                    "A\x12\x01"
                    "b\x22\x01/\x20\x00"),
          "{\"process\":{\"cmd\":\"sh\",\"args\":[\"a\",\"b\"],\"envs\":{\"A\":\"b\"},\"cwd\":\"/"
          "\"},\"stdin\":false}" },
        { START, SLICE_LIT("\x12\x06\x0a\x04\x08\x50\x10\x18"),
          "{\"pty\":{\"size\":{\"cols\":80,\"rows\":24}}}" },
        { EVENT, SLICE_LIT("\x0a\x02\x08\x07"), "{\"start\":{\"pid\":7}}" },
        { EVENT, SLICE_LIT("\x12\x04\x0a\x02hi"), "{\"data\":{\"stdout\":\"aGk=\"}}" },
        { EVENT, SLICE_LIT("\x1a\x07\x08\x01\x10\x01\x22\x01x"),
          "{\"end\":{\"exitCode\":-1,\"exited\":true,\"error\":\"x\"}}" },
        { EVENT, SLICE_LIT("\x22\x00"), "{\"keepalive\":{}}" },
        { ENTRY,
          SLICE_LIT("\x0a\x01n\x10\x02\x20\x05\x28\xa4\x03\x4a\x02\x08\x01\x5a\x06\x0a\x01k\x12\x01"
                    "v\x60\x01"),
          "{\"name\":\"n\",\"type\":\"FILE_TYPE_DIRECTORY\",\"size\":\"5\",\"mode\":420,"
          "\"modifiedTime\":\"1970-01-01T00:00:01Z\",\"metadata\":{\"k\":\"v\"},\"isSymlink\":"
          "true}" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_(buf_done) struct buf b = BUF_INIT(4096);
        uint8_t *copy = test_exact(rows[i].bytes);
        ProtobufCMessage *m = NULL;

        assert_int_equal(rpc_proto_decode(rows[i].type, slice_of(copy, rows[i].bytes.n), &m, NULL),
                         RPC_OK);
        free(copy);
        assert_int_equal(rpc_json_encode(m, &b), BUF_OK);
        test_text("json", buf_cstr(&b), rows[i].json);
        rpc_message_free(m);
        assert_int_equal(rpc_json_decode(rows[i].type, slice_str(rows[i].json), &m, NULL), RPC_OK);
        buf_reset(&b);
        assert_int_equal(rpc_proto_encode(m, &b), BUF_OK);
        rpc_message_free(m);
        if (!slice_eq(buf_slice(&b), rows[i].bytes))
            fail_msg("%s: other bytes", rows[i].json);
    }
}

static void malformed_bytes(void **state)
{
    static const struct {
        const ProtobufCMessageDescriptor *type;
        struct slice bytes;
        const char *error; /* NULL = fine */
    } rows[] = {
        { SELECTOR, SLICE_LIT("\x08"), "process.ProcessSelector: malformed field" },
        { SELECTOR, SLICE_LIT("\x08\x80"), "process.ProcessSelector: malformed field" },
        { SELECTOR, SLICE_LIT("\x00\x01"), "process.ProcessSelector: malformed field" },
        { SELECTOR, SLICE_LIT("\x0b\x0c"), "process.ProcessSelector: malformed field" }, /* group */
        { SELECTOR, SLICE_LIT("\x0e\x00"), "process.ProcessSelector: malformed field" },
        { SELECTOR,
          SLICE_LIT("\x12\x05"
                    "a"),
          "process.ProcessSelector: malformed field" },
        { SELECTOR, SLICE_LIT("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
          "process.ProcessSelector: malformed field" },
        { SELECTOR, SLICE_LIT("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"),
          "process.ProcessSelector: malformed field" },
        { SELECTOR, SLICE_LIT("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
          "process.ProcessSelector: malformed field" },
        { SELECTOR, SLICE_LIT("\x88\x80\x80\x80\x80\x01\x01"),
          "process.ProcessSelector: malformed field" },
        { SELECTOR, SLICE_LIT("\x12\x01\xff"), "tag: string is not UTF-8 or holds NUL" },
        { SELECTOR,
          SLICE_LIT("\x12\x02"
                    "a\0"),
          "tag: string is not UTF-8 or holds NUL" },
        { SELECTOR, SLICE_LIT("\x10\x01"), "tag: wrong wire type" },
        { SELECTOR,
          SLICE_LIT("\x0a\x01"
                    "1"),
          "pid: wrong wire type" },
        { START, SLICE_LIT("\x0a\x00\x0a\x00"), "process: message field comes twice" },
        { START, SLICE_LIT("\x08\x01"), "process: wrong wire type" },
        { START, SLICE_LIT("\x0a\x02\x12\x05"), "process.ProcessConfig: malformed field" },
        { START, SLICE_LIT("\x0a\x03\x12\x01\xff"), "args: string is not UTF-8 or holds NUL" },
        { SELECTOR, SLICE_LIT("\x18\x01"), NULL }, /* unknown fields are skipped */
        { SELECTOR, SLICE_LIT("\x1a\x02\xff\xff"), NULL },
        { SELECTOR, SLICE_LIT("\x19\1\2\3\4\5\6\7\10"), NULL },
        { SELECTOR, SLICE_LIT("\x1d\1\2\3\4"), NULL },
        { SELECTOR, SLICE_LIT("\x1d\1\2\3"), "process.ProcessSelector: malformed field" },
        { SELECTOR, SLICE_LIT("\x08\x01\x08\x02"), NULL },
        { SELECTOR,
          SLICE_LIT("\x12\x01"
                    "a\x08\x02"),
          NULL },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint8_t *copy = test_exact(rows[i].bytes);
        ProtobufCMessage *m = NULL;
        struct rpc_error e = { 0 };

        assert_int_equal(rpc_proto_decode(rows[i].type, slice_of(copy, rows[i].bytes.n), &m, &e),
                         rows[i].error ? RPC_INVALID : RPC_OK);
        test_text("error", e.text, rows[i].error ? rows[i].error : "");
        free(copy);
        rpc_message_free(m);
    }
}

static void memory_is_limited(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
    ProtobufCMessage *m = NULL;

    for (size_t i = 0; i < 100000; i++)
        (void)buf_append(&b, "\x0a\x00", 2);
    assert_int_equal(rpc_proto_decode(&process__list_response__descriptor, buf_slice(&b), &m, NULL),
                     RPC_INVALID);
    assert_null(m);
    buf_truncate(&b, 200);
    assert_int_equal(rpc_proto_decode(&process__list_response__descriptor, buf_slice(&b), &m, NULL),
                     RPC_OK);
    assert_int_equal(((Process__ListResponse *)m)->n_processes, 100);
    rpc_message_free(m);
}

/* `echo $(seq 20000)`, as a client that speaks protobuf sends it. */
static void commands_may_have_many_short_arguments(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20), args = BUF_INIT(1 << 20);
    ProtobufCMessage *m = NULL;
    uint8_t head[4] = { 0x0a };

    for (size_t i = 0; i < 20000; i++)
        (void)buf_append(&args,
                         "\x12\x05"
                         "12345",
                         7);
    head[1] = (uint8_t)(args.len & 127) | 128;
    head[2] = (uint8_t)(args.len >> 7 & 127) | 128;
    head[3] = (uint8_t)(args.len >> 14);
    (void)buf_append(&b, head, sizeof(head));
    (void)buf_append_slice(&b, buf_slice(&args));
    assert_int_equal(rpc_proto_decode(START, buf_slice(&b), &m, NULL), RPC_OK);
    assert_int_equal(((Process__StartRequest *)m)->process->n_args, 20000);
    rpc_message_free(m);
}

/* A client takes an answer of many small messages: here events of files with short names. */
static void answers_may_need_more_memory(void **state)
{
    const ProtobufCMessageDescriptor *type = &filesystem__get_watcher_events_response__descriptor;
    _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
    ProtobufCMessage *m = NULL;

    for (size_t i = 0; i < 120000; i++)
        (void)buf_append(&b, "\x0a\x05\x0a\x01x\x10\x01", 7);
    assert_int_equal(rpc_proto_decode(type, buf_slice(&b), &m, NULL), RPC_INVALID);
    assert_int_equal(rpc_proto_decode_within(type, buf_slice(&b), RPC_ANSWER_FACTOR, &m, NULL),
                     RPC_OK);
    assert_int_equal(((Filesystem__GetWatcherEventsResponse *)m)->n_events, 120000);
    rpc_message_free(m);
}

static void full_buffer_gets_nothing(void **state)
{
    Process__ProcessSelector s = PROCESS__PROCESS_SELECTOR__INIT;
    _cleanup_(buf_done) struct buf b = BUF_INIT(1);

    s.selector_case = PROCESS__PROCESS_SELECTOR__SELECTOR_PID;
    s.pid = 1;
    assert_int_equal(rpc_proto_encode(&s.base, &b), BUF_LIMIT);
    assert_int_equal(b.len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_forms_agree),
        cmocka_unit_test(malformed_bytes),
        cmocka_unit_test(memory_is_limited),
        cmocka_unit_test(commands_may_have_many_short_arguments),
        cmocka_unit_test(answers_may_need_more_memory),
        cmocka_unit_test(full_buffer_gets_nothing),
    };

    return cmocka_run_group_tests_name("rpc_proto", tests, NULL, NULL);
}
