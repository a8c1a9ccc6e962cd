/* rpc_field.c - see rpc_field.h. */
#include "wire/rpc_field.h"

size_t rpc_value_size(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return sizeof(uint64_t);
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    default:
        return sizeof(uint32_t);
    }
}

const ProtobufCMessageDescriptor *rpc_map_entry(const ProtobufCMessageDescriptor *type,
                                                const ProtobufCFieldDescriptor *f)
{
    const ProtobufCMessageDescriptor *entry = f->descriptor;
    size_t prefix = strlen(type->name);
    struct slice name;

    if (f->label != PROTOBUF_C_LABEL_REPEATED || f->type != PROTOBUF_C_TYPE_MESSAGE)
        return NULL;
    name = slice_str(entry->name);
    if (entry->n_fields != 2 || name.n < prefix + 6 || name.p[prefix] != '.' ||
        memcmp(name.p, type->name, prefix) != 0 || memcmp(name.p + name.n - 5, "Entry", 5) != 0)
        return NULL;
    if (entry->fields[0].id != 1 || strcmp(entry->fields[0].name, "key") != 0 ||
        entry->fields[0].type != PROTOBUF_C_TYPE_STRING || entry->fields[1].id != 2 ||
        strcmp(entry->fields[1].name, "value") != 0)
        return NULL;
    return entry;
}

bool rpc_is_timestamp(const ProtobufCMessageDescriptor *type)
{
    return type->sizeof_message == sizeof(struct rpc_timestamp) &&
           strcmp(type->name, "google.protobuf.Timestamp") == 0;
}

void rpc_message_free(ProtobufCMessage *m)
{
    if (m)
        protobuf_c_message_free_unpacked(m, NULL);
}
