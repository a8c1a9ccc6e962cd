/* Messages from and to JSON: each row is decoded and written again in canonical form. */
#include "test.h"

#include "schema/filesystem.pb-c.h"
#include "schema/process.pb-c.h"
#include "wire/rpc.h"

struct row {
    const ProtobufCMessageDescriptor *type;
    const char *in;
    const char *want; /* canonical JSON, or "!text" for an error */
};

#define START &process__start_request__descriptor
#define SELECTOR &process__process_selector__descriptor
#define INPUT &process__send_input_request__descriptor
#define SIGNAL &process__send_signal_request__descriptor
#define LIST_DIR &filesystem__list_dir_request__descriptor
#define ENTRY &filesystem__entry_info__descriptor
#define END &process__process_event__end_event__descriptor

static void check(const struct row *rows, size_t n_rows)
{
    for (size_t i = 0; i < n_rows; i++) {
        _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 16);
        size_t n = strlen(rows[i].in);
        uint8_t *copy = test_exact(slice_of(rows[i].in, n));
        ProtobufCMessage *m = NULL;
        struct rpc_error e = { 0 };
        enum rpc_status st = rpc_json_decode(rows[i].type, slice_of(copy, n), &m, &e);

        free(copy);
        if (st == RPC_OK)
            assert_int_equal(rpc_json_encode(m, &b), BUF_OK);
        else
            (void)buf_printf(&b, "!%s", e.text);
        rpc_message_free(m);
        test_text(rows[i].in, buf_cstr(&b), rows[i].want);
    }
}

static void what_the_sdks_send(void **state)
{
    static const struct row rows[] = {
        { START,
          "{\"process\":{\"cmd\":\"/bin/bash\",\"args\":[\"-l\",\"-c\",\"echo "
          "hello\"],\"envs\":{\"A\":"
          "\"b\"},\"cwd\":\"/tmp\"},\"stdin\":false,\"tag\":\"t\"}",
          "{\"process\":{\"cmd\":\"/bin/bash\",\"args\":[\"-l\",\"-c\",\"echo "
          "hello\"],\"envs\":{\"A\":"
          "\"b\"},\"cwd\":\"/tmp\"},\"tag\":\"t\",\"stdin\":false}" },
        { START, "{\"process\":{},\"pty\":{\"size\":{\"cols\":80,\"rows\":24}}}",
          "{\"process\":{},\"pty\":{\"size\":{\"cols\":80,\"rows\":24}}}" },
        { START, "{}", "{}" },
        { START, " { \"process\" : { } } ", "{\"process\":{}}" },
        { SELECTOR, "{\"pid\":42}", "{\"pid\":42}" },
        { SELECTOR, "{\"pid\":0}", "{\"pid\":0}" },
        { SELECTOR, "{\"tag\":\"\"}", "{\"tag\":\"\"}" },
        { INPUT, "{\"process\":{\"pid\":1},\"input\":{\"stdin\":\"aGk=\"}}",
          "{\"process\":{\"pid\":1},\"input\":{\"stdin\":\"aGk=\"}}" },
        { SIGNAL, "{\"process\":{\"pid\":1},\"signal\":\"SIGNAL_SIGKILL\"}",
          "{\"process\":{\"pid\":1},\"signal\":\"SIGNAL_SIGKILL\"}" },
        { LIST_DIR, "{\"path\":\"/\",\"depth\":2}", "{\"path\":\"/\",\"depth\":2}" },
    };

    check(rows, ARRAY_SIZE(rows));
}

static void names_and_unknown_fields(void **state)
{
    static const struct row rows[] = {
        { END, "{\"exitCode\":3}", "{\"exitCode\":3}" },
        { END, "{\"exit_code\":3}", "{\"exitCode\":3}" },
        { END, "{\"\\u0065xitCode\":3}", "{\"exitCode\":3}" },
        { END, "{\"exitcode\":3,\"ExitCode\":4,\"exit__code\":5,\"exitCodes\":6}", "{}" },
        { END, "{\"exitCode\":3,\"exit_code\":3}", "!exit_code: duplicate key" },
        { END, "{\"status\":\"a\",\"status\":\"a\"}", "!status: duplicate key" },
        { END, "{\"exitCode\":null,\"exitCode\":1}", "!exit_code: duplicate key" },
        { END, "{\"x\":{\"y\":[1,{\"z\":null}]},\"exited\":true}", "{\"exited\":true}" },
        { END, "{\"x\":[1,],\"exited\":true}", "!expected a value" },
        { END, "{\"x\":}", "!expected a value" },
        { END, "{\"x\":\"\\ud800\"}", "!lone surrogate in a string" },
        { END, "{\"exitCode\":null,\"exited\":null,\"status\":null,\"error\":null}", "{}" },
        { START, "{\"process\":null,\"pty\":null,\"stdin\":null}", "{}" },
        { START, "{\"process\":{\"args\":null,\"envs\":null}}", "{\"process\":{}}" },
        { START, "{\"process\":{\"args\":[null]}}", "!args: expected a string" },
        { START, "{\"process\":{\"envs\":{\"A\":null}}}", "!value: expected a string" },
        { SELECTOR, "{\"pid\":1,\"tag\":\"x\"}", "!tag: another field of its oneof is set" },
        { SELECTOR, "{\"pid\":null,\"tag\":\"x\"}", "{\"tag\":\"x\"}" },
        { START, "{\"process\":{\"envs\":{\"A\":\"1\",\"B\":\"2\",\"A\":\"3\"}}}",
          "!envs: duplicate key" },
        { START, "{\"process\":{\"envs\":{\"A\":\"1\",\"\\u0041\":\"3\"}}}",
          "!envs: duplicate key" },
        { START, "{\"process\":{\"envs\":{\"\":\"\",\"A\":\"1\"}}}",
          "{\"process\":{\"envs\":{\"\":\"\",\"A\":\"1\"}}}" },
    };

    check(rows, ARRAY_SIZE(rows));
}

static void malformed_texts(void **state)
{
    static const struct row rows[] = {
        { START, "", "!expected an object" },
        { START, "null", "!expected an object" },
        { START, "[]", "!expected an object" },
        { START, "{", "!expected a key in quotes" },
        { START, "{}}", "!more text behind the message" },
        { START, "{}x", "!unexpected character" },
        { START, "{\"process\"}", "!expected ':'" },
        { START, "{\"process\":[]}", "!expected an object" },
        { START, "{\"process\":{\"cmd\":1}}", "!cmd: expected a string" },
        { START, "{\"process\":{\"cmd\":\"a\\u0000\"}}", "!NUL in a string" },
        { START, "{\"process\":{\"cmd\":\"a\xff\"}}", "!string is not UTF-8" },
        { START, "{\"process\":{\"args\":{}}}", "!args: expected a list" },
        { START, "{\"process\":{\"args\":[\"a\" \"b\"]}}", "!expected ',' or ']'" },
        { START, "{\"process\":{\"args\":[\"a\",1]}}", "!args: expected a string" },
        { START, "{\"process\":{\"envs\":[]}}", "!envs: expected an object" },
        { START, "{\"process\":{\"envs\":{\"A\":1}}}", "!value: expected a string" },
        { START, "{\"stdin\":1}", "!stdin: expected true or false" },
        { START, "{\"stdin\":\"true\"}", "!stdin: expected true or false" },
        { START, "{\"stdin\":tru}", "!unexpected character" },
        { START, "{\"process\":{\"cmd\":\"a\"},}", "!expected a key in quotes" },
        { START, "{\"process\":{\"args\":[\"a\",\"b\",\"c\",\"d\",\"e\",",
          "!args: expected a string" },
    };

    check(rows, ARRAY_SIZE(rows));
}

static void numbers(void **state)
{
    static const struct row rows[] = {
        { SELECTOR, "{\"pid\":\"42\"}", "{\"pid\":42}" },
        { SELECTOR, "{\"pid\":4294967295}", "{\"pid\":4294967295}" },
        { SELECTOR, "{\"pid\":4294967296}", "!pid: expected a whole number in range" },
        { SELECTOR, "{\"pid\":-1}", "!pid: expected a whole number in range" },
        { SELECTOR, "{\"pid\":-0}", "{\"pid\":0}" },
        { SELECTOR, "{\"pid\":1.0}", "{\"pid\":1}" },
        { SELECTOR, "{\"pid\":1.5}", "!pid: expected a whole number in range" },
        { SELECTOR, "{\"pid\":1e3}", "{\"pid\":1000}" },
        { SELECTOR, "{\"pid\":12.5E1}", "{\"pid\":125}" },
        { SELECTOR, "{\"pid\":1200e-2}", "{\"pid\":12}" },
        { SELECTOR, "{\"pid\":1201e-2}", "!pid: expected a whole number in range" },
        { SELECTOR, "{\"pid\":1e+2}", "{\"pid\":100}" },
        { SELECTOR, "{\"pid\":0e999}", "{\"pid\":0}" },
        { SELECTOR, "{\"pid\":0.000e-5}", "{\"pid\":0}" },
        { SELECTOR, "{\"pid\":1e999999}", "!pid: expected a whole number in range" },
        { SELECTOR, "{\"pid\":1e99999999999999999999}", "!pid: expected a whole number in range" },
        { SELECTOR, "{\"pid\":\" 1\"}", "!pid: expected a whole number in range" },
        { SELECTOR, "{\"pid\":\"1 \"}", "!pid: expected a whole number in range" },
        { SELECTOR, "{\"pid\":\"\"}", "!pid: expected a whole number in range" },
        { SELECTOR, "{\"pid\":\"0x1\"}", "!pid: expected a whole number in range" },
        { SELECTOR, "{\"pid\":true}", "!pid: expected a whole number in range" },
        { ENTRY, "{\"size\":\"9223372036854775807\"}", "{\"size\":\"9223372036854775807\"}" },
        { ENTRY, "{\"size\":9223372036854775807}", "{\"size\":\"9223372036854775807\"}" },
        { ENTRY, "{\"size\":\"-9223372036854775808\"}", "{\"size\":\"-9223372036854775808\"}" },
        { ENTRY, "{\"size\":\"9223372036854775808\"}", "!size: expected a whole number in range" },
        { ENTRY, "{\"size\":\"-9223372036854775809\"}", "!size: expected a whole number in range" },
        { ENTRY, "{\"size\":0}", "{}" },
        { END, "{\"exitCode\":-1}", "{\"exitCode\":-1}" },
        { END, "{\"exitCode\":-2147483648}", "{\"exitCode\":-2147483648}" },
        { END, "{\"exitCode\":2147483648}", "!exit_code: expected a whole number in range" },
        { SIGNAL, "{\"signal\":9}", "{\"signal\":\"SIGNAL_SIGKILL\"}" },
        { SIGNAL, "{\"signal\":7}", "{\"signal\":7}" },
        { SIGNAL, "{\"signal\":\"SIGNAL_\\u0053IGKILL\"}", "{\"signal\":\"SIGNAL_SIGKILL\"}" },
        { SIGNAL, "{\"signal\":\"SIGKILL\"}", "!signal: unknown name 'SIGKILL'" },
        { SIGNAL, "{\"signal\":\"9\"}", "!signal: unknown name '9'" },
        { SIGNAL, "{\"signal\":0}", "{}" },
    };

    check(rows, ARRAY_SIZE(rows));
}

#define STDIN(s) "{\"input\":{\"stdin\":\"" s "\"}}"

static void bytes(void **state)
{
    static const struct row rows[] = {
        { INPUT, STDIN(""), STDIN("") },
        { INPUT, STDIN("aA=="), STDIN("aA==") },
        { INPUT, STDIN("aA"), STDIN("aA==") },
        { INPUT, STDIN("aGlq"), STDIN("aGlq") },
        { INPUT, STDIN("-_-_"), STDIN("+/+/") },
        { INPUT, STDIN("\\/+\\/+"), STDIN("/+/+") },
        { INPUT, STDIN("a"), "!stdin: expected base64" },
        { INPUT, STDIN("="), "!stdin: expected base64" },
        { INPUT, STDIN("aB=="), "!stdin: expected base64" },
        { INPUT, STDIN("aA="), "!stdin: expected base64" },
        { INPUT, STDIN("aA==="), "!stdin: expected base64" },
        { INPUT, STDIN("aGl q"), "!stdin: expected base64" },
        { INPUT, STDIN("aG\xc3\xa4"), "!stdin: expected base64" },
        { INPUT, "{\"input\":{\"stdin\":1}}", "!stdin: expected base64" },
    };

    check(rows, ARRAY_SIZE(rows));
}

static void timestamps(void **state)
{
#define TIME(s) "{\"modifiedTime\":\"" s "\"}"
    static const struct row rows[] = {
        { ENTRY, TIME("2026-11-30T08:00:00Z"), TIME("2026-11-30T08:00:00Z") },
        { ENTRY, TIME("2026-11-30T08:00:00.5Z"), TIME("2026-11-30T08:00:00.500Z") },
        { ENTRY, TIME("2026-11-30T08:00:00.000001Z"), TIME("2026-11-30T08:00:00.000001Z") },
        { ENTRY, TIME("2026-11-30T08:00:00.123456789+01:30"),
          TIME("2026-11-30T06:30:00.123456789Z") },
        { ENTRY, TIME("1969-12-31T23:59:59.25Z"), TIME("1969-12-31T23:59:59.250Z") },
        { ENTRY, TIME("0001-01-01T00:00:00Z"), TIME("0001-01-01T00:00:00Z") },
        { ENTRY, TIME("9999-12-31T23:59:59.999999999Z"), TIME("9999-12-31T23:59:59.999999999Z") },
        { ENTRY, TIME("2026-02-30T08:00:00Z"), "!expected an RFC 3339 time" },
        { ENTRY, TIME("2026-11-30"), "!expected an RFC 3339 time" },
        { ENTRY, "{\"modifiedTime\":1}", "!expected an RFC 3339 time" },
        { ENTRY, "{\"modifiedTime\":{\"seconds\":1}}", "!expected an RFC 3339 time" },
        { ENTRY, "{\"modifiedTime\":null}", "{}" },
    };

    check(rows, ARRAY_SIZE(rows));
}

static void entry_is_written_whole(void **state)
{
    Google__Protobuf__Timestamp t = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    Filesystem__EntryInfo__MetadataEntry meta = FILESYSTEM__ENTRY_INFO__METADATA_ENTRY__INIT;
    Filesystem__EntryInfo__MetadataEntry *metas[] = { &meta };
    Filesystem__EntryInfo e = FILESYSTEM__ENTRY_INFO__INIT;
    _cleanup_(buf_done) struct buf b = BUF_INIT(4096);
    char name[] = "a\"b\xff", type[] = "k", empty[] = "";

    t.seconds = 1;
    t.nanos = 2000000;
    meta.key = type;
    meta.value = empty;
    e.name = name;
    e.type = FILESYSTEM__FILE_TYPE__FILE_TYPE_DIRECTORY;
    e.size = -1;
    e.mode = 0755;
    e.modified_time = &t;
    e.symlink_target_opt_case = FILESYSTEM__ENTRY_INFO__SYMLINK_TARGET_OPT_SYMLINK_TARGET;
    e.symlink_target = empty;
    e.n_metadata = 1;
    e.metadata = metas;
    e.is_symlink = 1;
    assert_int_equal(rpc_json_encode(&e.base, &b), BUF_OK);
    assert_string_equal(
        buf_cstr(&b),
        "{\"name\":\"a\\\"b\xef\xbf\xbd\",\"type\":\"FILE_TYPE_DIRECTORY\",\"size\":\"-1\","
        "\"mode\":493,\"modifiedTime\":\"1970-01-01T00:00:01.002Z\","
        "\"symlinkTarget\":\"\",\"metadata\":{\"k\":\"\"},\"isSymlink\":true}");
    for (size_t limit = 0; limit < b.len; limit++) {
        _cleanup_(buf_done) struct buf small = BUF_INIT(limit);

        assert_int_equal(rpc_json_encode(&e.base, &small), BUF_LIMIT);
        assert_int_equal(small.len, 0);
    }
    t.nanos = 1000000000;
    assert_int_equal(rpc_json_encode(&e.base, &b), BUF_LIMIT);
}

/* Nesting that no schema type has is only possible in unknown fields. */
static void depth_is_limited(void **state)
{
    for (size_t depth = 62; depth < 66; depth++) {
        _cleanup_(buf_done) struct buf b = BUF_INIT(4096);
        ProtobufCMessage *m = NULL;

        (void)buf_append_str(&b, "{\"x\":");
        for (size_t i = 0; i < depth; i++)
            (void)buf_append_byte(&b, '[');
        for (size_t i = 0; i < depth; i++)
            (void)buf_append_byte(&b, ']');
        (void)buf_append_byte(&b, '}');
        assert_int_equal(rpc_json_decode(START, buf_slice(&b), &m, NULL),
                         depth + 1 <= RPC_DEPTH_MAX ? RPC_OK : RPC_INVALID);
        rpc_message_free(m);
    }
}

/* 3 bytes of JSON each become some 50 in memory: stopped at 4 x input + 64 KiB. */
static void memory_is_limited(void **state)
{
    for (size_t n = 100; n <= 200000; n *= 2000) {
        _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
        ProtobufCMessage *m = NULL;
        struct rpc_error e = { 0 };

        (void)buf_append_str(&b, "{\"processes\":[{}");
        for (size_t i = 1; i < n; i++)
            (void)buf_append_str(&b, ",{}");
        (void)buf_append_str(&b, "]}");
        if (n == 100) {
            assert_int_equal(
                rpc_json_decode(&process__list_response__descriptor, buf_slice(&b), &m, &e),
                RPC_OK);
            assert_int_equal(((Process__ListResponse *)m)->n_processes, 100);
        } else {
            assert_int_equal(
                rpc_json_decode(&process__list_response__descriptor, buf_slice(&b), &m, &e),
                RPC_INVALID);
            assert_string_equal(e.text, "message needs too much memory");
        }
        rpc_message_free(m);
    }
}

static void many_environment_variables_are_quick(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(4 << 20);
    ProtobufCMessage *m = NULL;

    (void)buf_append_str(&b, "{\"process\":{\"envs\":{\"VARIABLE_0\":\"some value\"");
    for (unsigned i = 1; i < 50000; i++)
        (void)buf_printf(&b, ",\"VARIABLE_%u\":\"some value\"", i);
    (void)buf_append_str(&b, "}}}");
    assert_int_equal(rpc_json_decode(START, buf_slice(&b), &m, NULL), RPC_OK);
    assert_int_equal(((Process__StartRequest *)m)->process->n_envs, 50000);
    rpc_message_free(m);
}

/* Every cut of a message is refused and leaks nothing (the ASan build looks). */
static void every_cut_is_refused(void **state)
{
    static const char text[] =
        "{\"process\":{\"cmd\":\"/b\\n\",\"args\":[\"a\",\"b\"],\"envs\":{\"A\":\"b\",\"C\":\"d\"},"
        "\"cwd\":\"x\"},\"pty\":{\"size\":{\"cols\":1}},\"x\":[{}],\"stdin\":true}";

    for (size_t n = 0; n < sizeof text - 1; n++) {
        uint8_t *copy = test_exact(slice_of(text, n));
        ProtobufCMessage *m = NULL;

        assert_int_equal(rpc_json_decode(START, slice_of(copy, n), &m, NULL), RPC_INVALID);
        assert_null(m);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_sdks_send),
        cmocka_unit_test(names_and_unknown_fields),
        cmocka_unit_test(malformed_texts),
        cmocka_unit_test(numbers),
        cmocka_unit_test(bytes),
        cmocka_unit_test(timestamps),
        cmocka_unit_test(entry_is_written_whole),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(memory_is_limited),
        cmocka_unit_test(many_environment_variables_are_quick),
        cmocka_unit_test(every_cut_is_refused),
    };

    return cmocka_run_group_tests_name("rpc_json", tests, NULL, NULL);
}
