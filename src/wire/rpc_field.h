/* rpc_field.h - what the RPC codecs know about protobuf-c's messages; only for src/wire/rpc*.c. */
#pragma once

#include "wire/rpc.h"

static inline void *rpc_at(const ProtobufCMessage *m, unsigned offset)
{
    return (uint8_t *)(uintptr_t)m + offset;
}

/* Number of elements of a repeated field. */
static inline size_t *rpc_count(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    return rpc_at(m, f->quantifier_offset);
}

/* The id of the oneof's member that is set, 0 = none. */
static inline uint32_t *rpc_oneof_case(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    return rpc_at(m, f->quantifier_offset);
}

static inline bool rpc_is_oneof(const ProtobufCFieldDescriptor *f)
{
    return f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
}

/* Bytes of one value in memory. */
size_t rpc_value_size(ProtobufCType type);

/* The map entry type of a map<string, V> field, NULL for other fields. protoc gives the entry the name
 * <Message>.<Camel>Entry and the fields key = 1, value = 2. */
const ProtobufCMessageDescriptor *rpc_map_entry(const ProtobufCMessageDescriptor *type,
                                                const ProtobufCFieldDescriptor *f);

bool rpc_is_timestamp(const ProtobufCMessageDescriptor *type);

/* google.protobuf.Timestamp, as protoc-c lays it out. */
struct rpc_timestamp {
    ProtobufCMessage base;
    int64_t seconds;
    int32_t nanos;
};
