/* rpc_json_encode.c - messages to proto3 JSON, straight into the buffer. See rpc.h. */
#include <inttypes.h>

#include "base/str.h"
#include "wire/rpc_field.h"

static enum buf_status put_message(struct buf *b, const ProtobufCMessage *m, unsigned depth);

/* lowerCamelCase of a field's name. */
static enum buf_status put_name(struct buf *b, const char *name)
{
    size_t n = strlen(name), o = 0;
    enum buf_status st;
    uint8_t *to = buf_reserve(b, n + 3, &st);

    if (!to)
        return st;
    to[o++] = '"';
    for (size_t i = 0; i < n; i++) {
        if (name[i] == '_' && name[i + 1] >= 'a' && name[i + 1] <= 'z')
            to[o++] = (uint8_t)(name[++i] - 32);
        else if (name[i] != '_')
            to[o++] = (uint8_t)name[i];
    }
    to[o++] = '"';
    to[o++] = ':';
    buf_commit(b, o);
    return BUF_OK;
}

static enum buf_status put_enum(struct buf *b, const ProtobufCEnumDescriptor *type, int value)
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(type, value);

    return v ? buf_printf(b, "\"%s\"", v->name) : buf_printf(b, "%d", value);
}

/* Any byte is base64, so no other check is needed. */
static enum buf_status put_bytes(struct buf *b, const ProtobufCBinaryData *bytes)
{
    enum buf_status st = buf_append_byte(b, '"');

    if (st == BUF_OK)
        st = base64_encode(b, slice_of(bytes->data, bytes->len), true);
    return st == BUF_OK ? buf_append_byte(b, '"') : st;
}

/* Seconds from 0001 to 9999, and 0, 3, 6 or 9 digits behind the point. */
static enum buf_status put_timestamp(struct buf *b, const struct rpc_timestamp *t)
{
    static const int64_t first = -62135596800, last = 253402300799;
    char text[RFC3339_SIZE];
    int digits = 9, fraction = t->nanos;

    if (t->seconds < first || t->seconds > last || t->nanos < 0 || t->nanos >= NSEC_PER_SEC)
        return BUF_LIMIT;
    time_format_rfc3339(t->seconds * 1000, text);
    text[19] = '\0';
    if (t->nanos == 0)
        return buf_printf(b, "\"%sZ\"", text);
    for (; fraction % 1000 == 0; fraction /= 1000)
        digits -= 3;
    return buf_printf(b, "\"%s.%0*dZ\"", text, digits, fraction);
}

static enum buf_status put_value(struct buf *b, const ProtobufCFieldDescriptor *f, const void *at,
                                 unsigned depth)
{
    const char *s;

    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        return buf_printf(b, "%" PRId32, *(const int32_t *)at);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return buf_printf(b, "%" PRIu32, *(const uint32_t *)at);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return buf_printf(b, "\"%" PRId64 "\"", *(const int64_t *)at);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return buf_printf(b, "\"%" PRIu64 "\"", *(const uint64_t *)at);
    case PROTOBUF_C_TYPE_BOOL:
        return buf_append_str(b, *(const protobuf_c_boolean *)at ? "true" : "false");
    case PROTOBUF_C_TYPE_ENUM:
        return put_enum(b, f->descriptor, *(const int *)at);
    case PROTOBUF_C_TYPE_STRING:
        s = *(char *const *)at;
        return json_string_put(b, slice_str(s));
    case PROTOBUF_C_TYPE_BYTES:
        return put_bytes(b, at);
    case PROTOBUF_C_TYPE_MESSAGE:
        return put_message(b, *(ProtobufCMessage *const *)at, depth + 1);
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_DOUBLE:
        break;
    }
    return BUF_LIMIT;
}

static enum buf_status put_list(struct buf *b, const ProtobufCMessage *m,
                                const ProtobufCFieldDescriptor *f, unsigned depth)
{
    const uint8_t *array = *(uint8_t *const *)rpc_at(m, f->offset);
    size_t n = *rpc_count(m, f), size = rpc_value_size(f->type);
    enum buf_status st = buf_append_byte(b, '[');

    for (size_t i = 0; st == BUF_OK && i < n; i++) {
        if (i > 0)
            st = buf_append_byte(b, ',');
        if (st == BUF_OK)
            st = put_value(b, f, array + i * size, depth);
    }
    return st == BUF_OK ? buf_append_byte(b, ']') : st;
}

static enum buf_status put_map(struct buf *b, const ProtobufCMessage *m,
                               const ProtobufCFieldDescriptor *f,
                               const ProtobufCMessageDescriptor *entry, unsigned depth)
{
    ProtobufCMessage *const *array = *(ProtobufCMessage *const *const *)rpc_at(m, f->offset);
    enum buf_status st = buf_append_byte(b, '{');

    for (size_t i = 0; st == BUF_OK && i < *rpc_count(m, f); i++) {
        const ProtobufCMessage *e = array[i];

        if (i > 0)
            st = buf_append_byte(b, ',');
        if (st == BUF_OK)
            st = put_value(b, &entry->fields[0], rpc_at(e, entry->fields[0].offset), depth);
        if (st == BUF_OK)
            st = buf_append_byte(b, ':');
        if (st == BUF_OK)
            st = put_value(b, &entry->fields[1], rpc_at(e, entry->fields[1].offset), depth);
    }
    return st == BUF_OK ? buf_append_byte(b, '}') : st;
}

/* Is it other than its default, or a set member of a oneof? */
static bool is_set(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    const void *at = rpc_at(m, f->offset);

    if (f->label == PROTOBUF_C_LABEL_REPEATED)
        return *rpc_count(m, f) > 0;
    if (rpc_is_oneof(f) && *rpc_oneof_case(m, f) != f->id)
        return false;
    if (f->type == PROTOBUF_C_TYPE_MESSAGE)
        return *(void *const *)at != NULL;
    if (rpc_is_oneof(f))
        return true;
    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING:
        return *(char *const *)at && **(char *const *)at;
    case PROTOBUF_C_TYPE_BYTES:
        return ((const ProtobufCBinaryData *)at)->len > 0;
    default:
        break;
    }
    return rpc_value_size(f->type) == 8 ? *(const uint64_t *)at != 0 : *(const uint32_t *)at != 0;
}

static enum buf_status put_field(struct buf *b, const ProtobufCMessage *m,
                                 const ProtobufCFieldDescriptor *f, unsigned depth)
{
    const ProtobufCMessageDescriptor *entry = rpc_map_entry(m->descriptor, f);
    enum buf_status st = put_name(b, f->name);

    if (st != BUF_OK)
        return st;
    if (entry)
        return put_map(b, m, f, entry, depth);
    if (f->label == PROTOBUF_C_LABEL_REPEATED)
        return put_list(b, m, f, depth);
    return put_value(b, f, rpc_at(m, f->offset), depth);
}

static enum buf_status put_message(struct buf *b, const ProtobufCMessage *m, unsigned depth)
{
    const ProtobufCMessageDescriptor *type = m->descriptor;
    enum buf_status st;
    bool is_first = true;

    if (depth > RPC_DEPTH_MAX)
        return BUF_LIMIT;
    if (rpc_is_timestamp(type))
        return put_timestamp(b, (const struct rpc_timestamp *)m);
    st = buf_append_byte(b, '{');
    for (unsigned i = 0; st == BUF_OK && i < type->n_fields; i++) {
        if (!is_set(m, &type->fields[i]))
            continue;
        if (!is_first)
            st = buf_append_byte(b, ',');
        is_first = false;
        if (st == BUF_OK)
            st = put_field(b, m, &type->fields[i], depth);
    }
    return st == BUF_OK ? buf_append_byte(b, '}') : st;
}

enum buf_status rpc_json_encode(const ProtobufCMessage *m, struct buf *b)
{
    size_t before = b->len;
    enum buf_status st = put_message(b, m, 1);

    if (st != BUF_OK)
        buf_truncate(b, before);
    return st;
}
