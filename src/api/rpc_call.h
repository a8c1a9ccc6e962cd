/* rpc_call.h - public calls that are one unary RPC to envd; only for src/api. */
#pragma once

#include "protocol/envd.h"
#include "transport/call.h"

struct rpc_call_spec {
    const char *procedure; /* static */
    const char *user;
    const ProtobufCMessage *request; /* borrowed while starting */
    const ProtobufCMessageDescriptor *response;
    bool is_read;
    bool wants_pings;
    int64_t request_timeout_ms;
    enum abx_result result; /* BOOL: 1 unless `false_code` */
    /* Fills the result from the answer; NULL = nothing of it is wanted. Not 0: `err` is set. */
    int (*take)(abx_call *call, const ProtobufCMessage *m, struct abx_err *err);
    int false_code;            /* a Connect error of envd that is the answer 0; 0 = none */
    enum abx_reason not_found; /* of envd's not_found */
};

/* Starts it; NULL when out of memory. */
abx_call *rpc_call_start(abx_client *client, const abx_sandbox *sandbox,
                         const struct rpc_call_spec *spec);

/* INVALID_ARGUMENT when `text` (NULL allowed unless `is_needed`) is missing or no UTF-8. */
int text_check(const char *text, const char *name, bool is_needed, struct abx_err *err);

/* protobuf-c's messages are not const; encoding does not change them. */
static inline char *pb_text(const char *s)
{
    return (char *)(uintptr_t)s;
}
