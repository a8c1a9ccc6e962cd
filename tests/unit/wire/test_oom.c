/* Out of memory at every allocation in turn: each codec says so, keeps its promises and leaks nothing
 * (the ASan build looks). Linked with --wrap, so that the libraries' calls come through here. */
#include "test.h"

#include "e2b/jsondoc.h"
#include "schema/process.pb-c.h"
#include "wire/connect.h"
#include "wire/http1.h"
#include "wire/multipart.h"
#include "wire/rpc.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_reallocarray(void *p, size_t n, size_t size);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_reallocarray(void *p, size_t n, size_t size);

static long countdown = -1; /* allocations that still succeed, -1 = all */
static bool has_failed;

static bool fails(void)
{
    if (countdown < 0)
        return false;
    if (countdown-- > 0)
        return false;
    countdown = 0; /* memory stays short */
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

/* Calls `once` with the first, second, ... allocation failing until none fails any more. */
static void torture(bool (*once)(void), long at_least)
{
    long n = 0;

    for (;; n++) {
        bool ok;

        countdown = n;
        has_failed = false;
        ok = once();
        countdown = -1;
        if (!has_failed) {
            assert_true(ok);
            break;
        }
        assert_false(ok);
    }
    assert_true(n >= at_least);
}

static const char start_json[] =
    "{\"process\":{\"cmd\":\"/bin/"
    "bash\",\"args\":[\"-l\",\"-c\",\"a\",\"b\",\"c\"],\"envs\":{\"A\":\"b\",\"C\":\"d\"},"
    "\"cwd\":\"\\n\"},\"pty\":{\"size\":{\"cols\":80}},\"tag\":\"t\"}";

static bool json_decode_once(void)
{
    ProtobufCMessage *m = NULL;
    enum rpc_status st =
        rpc_json_decode(&process__start_request__descriptor, slice_str(start_json), &m, NULL);

    assert_true(st == RPC_OK || (st == RPC_OOM && !m));
    rpc_message_free(m);
    return st == RPC_OK;
}

static bool bytes_decode_once(void)
{
    ProtobufCMessage *m = NULL;
    enum rpc_status st = rpc_json_decode(&process__send_input_request__descriptor,
                                         SLICE_LIT("{\"input\":{\"stdin\":\"\\/w==\"}}"), &m, NULL);

    assert_true(st == RPC_OK || (st == RPC_OOM && !m));
    rpc_message_free(m);
    return st == RPC_OK;
}

static bool proto_decode_once(void)
{
    static const struct slice bytes = SLICE_LIT("\x0a\x15\x0a\x02sh\x12\x01"
                                                "a\x12\x01"
                                                "b\x1a\x06\x0a\x01"
                                                "A\x12\x01"
                                                "b\x22\x01/\x20\x00");
    ProtobufCMessage *m = NULL;
    enum rpc_status st = rpc_proto_decode(&process__start_request__descriptor, bytes, &m, NULL);

    assert_true(st == RPC_OK || (st == RPC_OOM && !m));
    rpc_message_free(m);
    return st == RPC_OK;
}

static bool http1_once(void)
{
    _cleanup_(http1_parser_freep) struct http1_parser *p = http1_parser_new(HTTP1_REQUEST);
    struct slice in = SLICE_LIT("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                                "0\r\nA: b\r\n\r\n");
    enum http1_event ev;
    struct slice data;

    if (!p)
        return false;
    while ((ev = http1_parser_next(p, &in, &data)) != HTTP1_NEED_MORE && ev != HTTP1_ERROR)
        ;
    assert_int_equal(http1_parser_error(p), ev == HTTP1_ERROR ? HTTP1_ERR_OOM : HTTP1_ERR_NONE);
    return ev == HTTP1_NEED_MORE;
}

static bool multipart_once(void)
{
    _cleanup_(multipart_parser_freep) struct multipart_parser *p =
        multipart_parser_new(SLICE_LIT("b"));
    struct slice in =
        SLICE_LIT("--b\r\nContent-Disposition: form-data; name=x; filename=y\r\n\r\nz\r\n--b--");
    enum multipart_event ev, last = MULTIPART_NEED_MORE;
    struct slice data;

    if (!p)
        return false;
    while ((ev = multipart_parser_next(p, &in, &data)) != MULTIPART_NEED_MORE &&
           ev != MULTIPART_ERROR)
        last = ev;
    if (ev == MULTIPART_ERROR)
        assert_string_equal(multipart_error(p), "out of memory");
    return ev == MULTIPART_NEED_MORE && last == MULTIPART_END;
}

static bool connect_once(void)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(4096);
    struct slice in = SLICE_LIT("\0\0\0\1\0"), message;
    uint8_t text[300] = { 0 }, flags;
    struct connect_decoder d;
    enum connect_event ev;
    struct abx_err err;
    bool ok;

    (void)err_set(&err, ABX_INTERNAL, "x");
    connect_decoder_init(&d);
    ev = connect_decoder_next(&d, &in, &flags, &message);
    if (ev == CONNECT_NEED_MORE) {
        in = slice_of(text, 256);
        ev = connect_decoder_next(&d, &in, &flags, &message);
    }
    connect_decoder_done(&d);
    ok = ev == CONNECT_MESSAGE && connect_end_stream(&b, &err) == BUF_OK;
    assert_true(ok || b.len == 0);
    return ok;
}

static bool encode_once(void)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(4096);
    Process__ListResponse list = PROCESS__LIST_RESPONSE__INIT;
    Process__ProcessInfo info = PROCESS__PROCESS_INFO__INIT;
    Process__ProcessInfo *infos[100];
    enum buf_status st;

    info.pid = 12345;
    for (size_t i = 0; i < ARRAY_SIZE(infos); i++)
        infos[i] = &info;
    list.processes = infos;
    list.n_processes = ARRAY_SIZE(infos);
    st = rpc_json_encode(&list.base, &b);
    assert_true(st == BUF_OK || (st == BUF_OOM && b.len == 0));
    return st == BUF_OK;
}

static bool jsondoc_dump_once(void)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(4096);
    json_t *doc = json_true();
    enum buf_status st = jsondoc_dump(doc, &b);

    json_decref(doc);
    assert_true(st == BUF_OK || (st == BUF_OOM && b.len == 0));
    return st == BUF_OK;
}

#define TORTURE(name, at_least)                                                                    \
    static void name##_survives(void **state)                                                      \
    {                                                                                              \
        torture(name##_once, at_least);                                                            \
    }

TORTURE(json_decode, 15)
TORTURE(bytes_decode, 4)
TORTURE(proto_decode, 8)
TORTURE(http1, 3)
TORTURE(multipart, 4)
TORTURE(connect, 3)
TORTURE(encode, 3)
TORTURE(jsondoc_dump, 1)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_decode_survives),  cmocka_unit_test(bytes_decode_survives),
        cmocka_unit_test(proto_decode_survives), cmocka_unit_test(http1_survives),
        cmocka_unit_test(multipart_survives),    cmocka_unit_test(connect_survives),
        cmocka_unit_test(encode_survives),       cmocka_unit_test(jsondoc_dump_survives),
    };

    return cmocka_run_group_tests_name("oom", tests, NULL, NULL);
}
