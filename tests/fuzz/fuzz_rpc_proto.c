/* fuzz_rpc_proto.c - what decodes from protobuf bytes is written as bytes that decode to the same
 * JSON. */
#include "fuzz_rpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice in = slice_of(data, size);
    const ProtobufCMessageDescriptor *type = fuzz_type(&in);
    struct buf first = BUF_INIT(SIZE_MAX), second = BUF_INIT(SIZE_MAX), bytes = BUF_INIT(SIZE_MAX);
    ProtobufCMessage *m = NULL;
    struct rpc_error e = { 0 };
    enum buf_status st;

    if (rpc_proto_decode(type, in, &m, &e) != RPC_OK) {
        FUZZ_CHECK(!m && e.text[0] && e.offset <= in.n);
        return 0;
    }
    FUZZ_CHECK(rpc_proto_encode(m, &bytes) == BUF_OK);
    st = rpc_json_encode(m, &first); /* fails for times that JSON can't say */
    FUZZ_CHECK(st != BUF_OK || json_scan(buf_slice(&first), 64, SIZE_MAX, NULL));
    rpc_message_free(m);
    m = NULL;
    if (rpc_proto_decode(type, buf_slice(&bytes), &m, NULL) == RPC_OK) {
        FUZZ_CHECK(rpc_json_encode(m, &second) == st);
        FUZZ_CHECK(slice_eq(buf_slice(&first), buf_slice(&second)));
        rpc_message_free(m);
    } else {
        FUZZ_CHECK(bytes.len > 1000);
    }
    buf_done(&first);
    buf_done(&second);
    buf_done(&bytes);
    return 0;
}
