/* envd_rpc.h - what unary calls and streams of envd share; only for src/protocol/envd_*.c. */
#pragma once

#include "protocol/envd.h"
#include "wire/rpc.h"

#define ENVD_RPC_HEADERS_MAX 5

struct envd_rpc_numbers {
    char timeout[24], pings[12], offset[24];
};

/* Fields of an RPC request besides the sandbox's; texts live in `mem`. Returns how many. */
size_t envd_rpc_headers(const struct envd_rpc *rpc, bool is_protobuf, bool is_stream,
                        struct envd_rpc_numbers *mem, struct abx_pair to[ENVD_RPC_HEADERS_MAX]);
/* Appends the message. Errors: RESOURCE_EXHAUSTED, also over `b`'s limit. */
int envd_rpc_encode(const ProtobufCMessage *m, bool is_protobuf, struct buf *b,
                    struct abx_err *err);
/* `*ret` is owned: rpc_message_free. Errors: PROTOCOL, out of memory. */
int envd_rpc_decode(const struct envd_exchange *x, const ProtobufCMessageDescriptor *type,
                    bool is_protobuf, struct slice bytes, ProtobufCMessage **ret,
                    struct abx_err *err);
/* Status 200 and, if there is one, the right Content-Type; else PROTOCOL. */
int envd_rpc_check_head(const struct envd_exchange *x, const struct http_head *head,
                        bool is_protobuf, bool is_stream, struct abx_err *err);
