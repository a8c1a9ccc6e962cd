/* rpc_proto.c - protobuf bytes. See rpc.h.
 *
 * protobuf-c unpacks without a limit on depth or memory and does not look at strings, so the bytes
 * are checked against the descriptor first and unpacked through an allocator with a cap.
 */
#include "base/str.h"
#include "wire/rpc_field.h"

#include <stdarg.h>
#include <stdio.h>

enum wire_type { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_LENGTH = 2, WIRE_32 = 5 };

struct checker {
    const uint8_t *start;
    struct rpc_error *e;
};

_printf_(3, 4) static bool fail(struct checker *c, const uint8_t *at, const char *fmt, ...)
{
    va_list ap;

    if (!c->e)
        return false;
    c->e->offset = (size_t)(at - c->start);
    va_start(ap, fmt);
    (void)vsnprintf(c->e->text, sizeof c->e->text, fmt, ap);
    va_end(ap);
    return false;
}

static bool varint_take(struct slice *s, uint64_t *ret)
{
    uint64_t v = 0;

    for (unsigned i = 0; i < 10 && i < s->n; i++) {
        v |= (uint64_t)(s->p[i] & 0x7f) << 7 * i;
        if (s->p[i] & 0x80)
            continue;
        *s = slice_of(s->p + i + 1, s->n - i - 1);
        *ret = v;
        return i < 9 || s->p[-1] <= 1;
    }
    return false;
}

/* Takes a value that is not length-delimited, or the content of one that is. */
static bool value_take(struct slice *s, unsigned wire, struct slice *ret)
{
    uint64_t n = 0;
    const uint8_t *from = s->p;

    switch (wire) {
    case WIRE_VARINT:
        if (!varint_take(s, &n))
            return false;
        *ret = slice_of(from, (size_t)(s->p - from));
        return true;
    case WIRE_64:
        n = 8;
        break;
    case WIRE_32:
        n = 4;
        break;
    case WIRE_LENGTH:
        if (!varint_take(s, &n))
            return false;
        break;
    default:
        return false;
    }
    if (n > s->n)
        return false;
    *ret = slice_of(s->p, (size_t)n);
    *s = slice_of(s->p + n, s->n - (size_t)n);
    return true;
}

static bool message_check(struct checker *c, const ProtobufCMessageDescriptor *type, struct slice s,
                          unsigned depth);

static bool field_check(struct checker *c, const ProtobufCFieldDescriptor *f, unsigned wire,
                        struct slice value, unsigned depth)
{
    bool is_length = f->type == PROTOBUF_C_TYPE_STRING || f->type == PROTOBUF_C_TYPE_BYTES ||
                     f->type == PROTOBUF_C_TYPE_MESSAGE;

    if (is_length != (wire == WIRE_LENGTH) && f->label != PROTOBUF_C_LABEL_REPEATED)
        return fail(c, value.p, "%s: wrong wire type", f->name);
    if (is_length && wire != WIRE_LENGTH)
        return fail(c, value.p, "%s: wrong wire type", f->name);
    if (f->type == PROTOBUF_C_TYPE_MESSAGE)
        return message_check(c, f->descriptor, value, depth + 1);
    if (f->type == PROTOBUF_C_TYPE_STRING &&
        (!utf8_is_valid(value) || (value.n > 0 && memchr(value.p, 0, value.n))))
        return fail(c, value.p, "%s: string is not UTF-8 or holds NUL", f->name);
    return true;
}

/* Marks the field as seen. False when a singular message comes twice: protobuf would merge them. */
static bool mark_seen(uint64_t seen[4], const ProtobufCMessageDescriptor *type,
                      const ProtobufCFieldDescriptor *f)
{
    size_t i = (size_t)(f - type->fields);
    bool is_again = i < 256 && (seen[i / 64] >> i % 64 & 1);

    if (i < 256)
        seen[i / 64] |= UINT64_C(1) << i % 64;
    return !is_again || f->label == PROTOBUF_C_LABEL_REPEATED || f->type != PROTOBUF_C_TYPE_MESSAGE;
}

static bool message_check(struct checker *c, const ProtobufCMessageDescriptor *type, struct slice s,
                          unsigned depth)
{
    uint64_t seen[4] = { 0 };

    if (depth > RPC_DEPTH_MAX)
        return fail(c, s.p, "nested too deeply");
    while (s.n > 0) {
        const uint8_t *at = s.p;
        const ProtobufCFieldDescriptor *f;
        struct slice value;
        uint64_t tag;

        if (!varint_take(&s, &tag) || tag > UINT32_MAX || tag >> 3 == 0 ||
            !value_take(&s, tag & 7, &value))
            return fail(c, at, "%s: malformed field", type->name);
        f = protobuf_c_message_descriptor_get_field(type, (unsigned)(tag >> 3));
        if (!f)
            continue;
        if (!mark_seen(seen, type, f))
            return fail(c, at, "%s: message field comes twice", f->name);
        if (!field_check(c, f, tag & 7, value, depth))
            return false;
    }
    return true;
}

struct capped {
    size_t left;
    bool is_oom;
};

static void *capped_alloc(void *data, size_t n)
{
    struct capped *cap = data;
    void *p;

    if (n > cap->left)
        return NULL;
    cap->left -= n;
    p = malloc(n);
    cap->is_oom |= !p;
    return p;
}

static void capped_free(void *data, void *p)
{
    (void)data;
    free(p);
}

static enum rpc_status decode(const ProtobufCMessageDescriptor *type, struct slice bytes,
                              size_t factor, size_t spare, ProtobufCMessage **ret,
                              struct rpc_error *e)
{
    static const uint8_t nothing = 0;
    const uint8_t *p = bytes.n > 0 ? bytes.p : &nothing;
    struct checker c = { p, e };
    struct capped cap = { .left = SIZE_MAX };
    ProtobufCMessage *m;
    ProtobufCAllocator allocator = { capped_alloc, capped_free, &cap };
    size_t left;

    if (!message_check(&c, type, slice_of(p, bytes.n), 1))
        return RPC_INVALID;
    if (!__builtin_mul_overflow(bytes.n, factor, &left) && left < SIZE_MAX - spare)
        cap.left = left + spare;
    m = protobuf_c_message_unpack(type, &allocator, bytes.n, p);
    if (m) {
        *ret = m;
        return RPC_OK;
    }
    (void)fail(&c, p, "malformed message, or it needs too much memory");
    return cap.is_oom ? RPC_OOM : RPC_INVALID;
}

enum rpc_status rpc_proto_decode(const ProtobufCMessageDescriptor *type, struct slice bytes,
                                 ProtobufCMessage **ret, struct rpc_error *e)
{
    return decode(type, bytes, 4, 4u << 20, ret, e);
}

enum rpc_status rpc_proto_decode_within(const ProtobufCMessageDescriptor *type, struct slice bytes,
                                        size_t factor, ProtobufCMessage **ret, struct rpc_error *e)
{
    return decode(type, bytes, factor, 65536, ret, e);
}

enum buf_status rpc_proto_encode(const ProtobufCMessage *m, struct buf *b)
{
    size_t n = protobuf_c_message_get_packed_size(m);
    enum buf_status st;
    uint8_t *to = buf_reserve(b, n, &st);

    if (!to)
        return st;
    buf_commit(b, protobuf_c_message_pack(m, to));
    return BUF_OK;
}
