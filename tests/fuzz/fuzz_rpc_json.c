/* fuzz_rpc_json.c - what decodes from JSON is written as JSON that decodes to the same, and goes
 * through protobuf bytes unchanged. */
#include "fuzz_rpc.h"

/* JSON of `m`, which is freed. */
static void to_json(ProtobufCMessage *m, struct buf *b)
{
    FUZZ_CHECK(rpc_json_encode(m, b) == BUF_OK);
    FUZZ_CHECK(json_scan(buf_slice(b), 64, SIZE_MAX, NULL));
    rpc_message_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice in = slice_of(data, size);
    const ProtobufCMessageDescriptor *type = fuzz_type(&in);
    struct buf first = BUF_INIT(SIZE_MAX), second = BUF_INIT(SIZE_MAX), bytes = BUF_INIT(SIZE_MAX);
    ProtobufCMessage *m = NULL;
    struct rpc_error e = { 0 };

    if (rpc_json_decode(type, in, &m, &e) != RPC_OK) {
        FUZZ_CHECK(!m && e.text[0] && e.offset <= in.n);
        return 0;
    }
    FUZZ_CHECK(rpc_proto_encode(m, &bytes) == BUF_OK);
    to_json(m, &first);
    FUZZ_CHECK(rpc_json_decode(type, buf_slice(&first), &m, NULL) == RPC_OK);
    to_json(m, &second);
    FUZZ_CHECK(slice_eq(buf_slice(&first), buf_slice(&second)));
    /* Many tiny members may need more than the cap allows for their few bytes. */
    if (rpc_proto_decode(type, buf_slice(&bytes), &m, NULL) == RPC_OK) {
        buf_reset(&second);
        to_json(m, &second);
        FUZZ_CHECK(slice_eq(buf_slice(&first), buf_slice(&second)));
    } else {
        FUZZ_CHECK(bytes.len > 1000);
    }
    buf_done(&first);
    buf_done(&second);
    buf_done(&bytes);
    return 0;
}
