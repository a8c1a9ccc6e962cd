/* rpc_json_decode.c - proto3 JSON to messages, in one pass from the scanner. See rpc.h.
 *
 * A message is valid after every step (arrays before their counts, values before their oneof's
 * case), so that rpc_message_free can take a half-built one when the input turns out malformed.
 */
#include <assert.h>

#include "base/str.h"
#include "wire/json_lex.h"
#include "wire/rpc_field.h"

#define FIELDS_MAX 256

struct decoder {
    struct json_lexer lex;
    size_t memory_left;
    bool is_oom;
};

static bool message_decode(struct decoder *d, const ProtobufCMessageDescriptor *type,
                           enum json_token t, unsigned depth, ProtobufCMessage **ret);

/* Counts `n` bytes against the cap. */
static bool memory_take(struct decoder *d, size_t n)
{
    if (n > d->memory_left)
        return json_lexer_fail(&d->lex, "message needs too much memory");
    d->memory_left -= n;
    return true;
}

static void *memory_alloc(struct decoder *d, size_t n)
{
    void *p;

    if (!memory_take(d, n))
        return NULL;
    p = malloc(n);
    d->is_oom |= !p;
    return p;
}

static bool fail_type(struct decoder *d, const ProtobufCFieldDescriptor *f, enum json_token t,
                      const char *wanted)
{
    return t == JSON_TOKEN_BAD ? false
                               : json_lexer_fail(&d->lex, "%s: expected %s", f->name, wanted);
}

/* Value of a well-formed JSON number that is whole: 12, 1.20e1. False when it has a fraction or over
 * 64 bits. */
static bool number_to_u64(struct slice s, bool *ret_negative, uint64_t *ret)
{
    size_t i = s.n > 0 && s.p[0] == '-', digits = 0, fraction = 0, seen = 0, begin = i;
    int64_t exponent = 0, whole;
    uint64_t v = 0;
    bool in_fraction = false;

    *ret_negative = i == 1;
    for (; i < s.n && (s.p[i] | 0x20) != 'e'; i++) {
        in_fraction |= s.p[i] == '.';
        digits += s.p[i] != '.';
        fraction += in_fraction && s.p[i] != '.';
    }
    if (i < s.n) {
        size_t e = i + 1 + (s.p[i + 1] == '+');

        if (!str_parse_i64(slice_of(s.p + e, s.n - e), -1000000, 1000000, &exponent))
            return false;
    }
    whole = (int64_t)digits - (int64_t)fraction + exponent;
    for (size_t k = begin; k < i; k++) {
        unsigned digit = s.p[k] - (unsigned)'0';

        if (s.p[k] == '.')
            continue;
        if ((int64_t)seen++ >= whole) {
            if (digit != 0)
                return false;
        } else if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
                   __builtin_add_overflow(v, (uint64_t)digit, &v)) {
            return false;
        }
    }
    for (int64_t k = (int64_t)digits; v > 0 && k < whole; k++)
        if (__builtin_mul_overflow(v, (uint64_t)10, &v))
            return false;
    *ret = v;
    return true;
}

/* A number, or a string that holds one (64-bit numbers are written so). */
static bool number_take(struct decoder *d, enum json_token t, bool *ret_negative, uint64_t *ret)
{
    struct slice text = d->lex.text;

    if (t == JSON_TOKEN_STRING) {
        struct json_lexer inner;

        json_lexer_init(&inner, text, NULL);
        if (json_lexer_next(&inner) != JSON_TOKEN_NUMBER || inner.text.n != text.n)
            return false;
    } else if (t != JSON_TOKEN_NUMBER) {
        return false;
    }
    return number_to_u64(text, ret_negative, ret);
}

static bool signed_take(struct decoder *d, const ProtobufCFieldDescriptor *f, enum json_token t,
                        int64_t min, int64_t max, int64_t *ret)
{
    const uint64_t least = (uint64_t)INT64_MAX + 1;
    bool is_negative = false;
    uint64_t u = 0;
    int64_t v;

    if (!number_take(d, t, &is_negative, &u) || u > least || (u == least && !is_negative))
        return fail_type(d, f, t, "a whole number in range");
    v = is_negative ? (int64_t)(0 - u) : (int64_t)u;
    if (v < min || v > max)
        return fail_type(d, f, t, "a whole number in range");
    *ret = v;
    return true;
}

static bool unsigned_take(struct decoder *d, const ProtobufCFieldDescriptor *f, enum json_token t,
                          uint64_t max, uint64_t *ret)
{
    bool is_negative = false;
    uint64_t u = 0;

    if (!number_take(d, t, &is_negative, &u) || u > max || (is_negative && u > 0))
        return fail_type(d, f, t, "a whole number in range");
    *ret = u;
    return true;
}

/* The bytes of the last string as an owned C string. */
static bool string_take(struct decoder *d, char **ret)
{
    struct slice raw = d->lex.text;
    char *s = memory_alloc(d, raw.n + 1);
    size_t n = raw.n;

    if (!s)
        return false;
    if (d->lex.has_escape)
        n = json_unescape(raw, (uint8_t *)s);
    else
        memcpy(s, raw.p, n);
    s[n] = '\0';
    *ret = s;
    return true;
}

/* Base64 of either alphabet. Slashes may be escaped. */
static bool bytes_take(struct decoder *d, const ProtobufCFieldDescriptor *f,
                       ProtobufCBinaryData *ret)
{
    struct slice raw = d->lex.text;
    _cleanup_(freep) char *plain = NULL;
    _cleanup_(buf_done) struct buf b = BUF_INIT(raw.n + 2);

    if (d->lex.has_escape) {
        if (!string_take(d, &plain))
            return false;
        raw = slice_str(plain);
    }
    if (!memory_take(d, raw.n))
        return false;
    if (!buf_reserve(&b, raw.n / 4 * 3 + 2, NULL)) {
        d->is_oom = true;
        return false;
    }
    if (!base64_decode(&b, raw))
        return fail_type(d, f, JSON_TOKEN_STRING, "base64");
    ret->len = b.len;
    ret->data = TAKE_PTR(b.mem);
    return true;
}

/* Names may be written with escapes too, so the name goes through a buffer. */
static bool enum_take(struct decoder *d, const ProtobufCFieldDescriptor *f, enum json_token t,
                      int *ret)
{
    const ProtobufCEnumValue *v = NULL;
    char name[128];
    int64_t i;

    if (t != JSON_TOKEN_STRING) {
        if (!signed_take(d, f, t, INT32_MIN, INT32_MAX, &i))
            return false;
        *ret = (int)i;
        return true;
    }
    if (d->lex.text.n < sizeof name) {
        name[json_unescape(d->lex.text, (uint8_t *)name)] = '\0';
        v = protobuf_c_enum_descriptor_get_value_by_name(f->descriptor, name);
    }
    if (!v)
        return json_lexer_fail(&d->lex, "%s: unknown name '%.*s'", f->name,
                               (int)MIN(d->lex.text.n, (size_t)64), (const char *)d->lex.text.p);
    *ret = v->value;
    return true;
}

/* Decodes the value that begins with `t` into `at`. */
static bool value_decode(struct decoder *d, const ProtobufCFieldDescriptor *f, enum json_token t,
                         unsigned depth, void *at)
{
    int64_t i = 0;
    uint64_t u = 0;
    bool ok;

    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        ok = signed_take(d, f, t, INT32_MIN, INT32_MAX, &i);
        *(int32_t *)at = (int32_t)i;
        return ok;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        ok = unsigned_take(d, f, t, UINT32_MAX, &u);
        *(uint32_t *)at = (uint32_t)u;
        return ok;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return signed_take(d, f, t, INT64_MIN, INT64_MAX, at);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return unsigned_take(d, f, t, UINT64_MAX, at);
    case PROTOBUF_C_TYPE_BOOL:
        if (t != JSON_TOKEN_TRUE && t != JSON_TOKEN_FALSE)
            return fail_type(d, f, t, "true or false");
        *(protobuf_c_boolean *)at = t == JSON_TOKEN_TRUE;
        return true;
    case PROTOBUF_C_TYPE_ENUM:
        return enum_take(d, f, t, at);
    case PROTOBUF_C_TYPE_STRING:
        return t == JSON_TOKEN_STRING ? string_take(d, at) : fail_type(d, f, t, "a string");
    case PROTOBUF_C_TYPE_BYTES:
        return t == JSON_TOKEN_STRING ? bytes_take(d, f, at) : fail_type(d, f, t, "base64");
    case PROTOBUF_C_TYPE_MESSAGE:
        return message_decode(d, f->descriptor, t, depth + 1, at);
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_DOUBLE:
        break;
    }
    return json_lexer_fail(&d->lex, "%s: type is not supported", f->name);
}

/* Room for one more element behind `n`; the new one is zeroed. Doubles from 4 on. */
static void *list_grow(struct decoder *d, void **array, size_t n, size_t size)
{
    if (n == 0 || (n >= 4 && (n & (n - 1)) == 0)) {
        size_t more = n == 0 ? 4 : n;
        void *p;

        if (!memory_take(d, more * size))
            return NULL;
        p = reallocarray(*array, n + more, size);
        if (!p) {
            d->is_oom = true;
            return NULL;
        }
        *array = p;
    }
    return memset((uint8_t *)*array + n * size, 0, size);
}

static bool list_decode(struct decoder *d, const ProtobufCFieldDescriptor *f, enum json_token t,
                        unsigned depth, ProtobufCMessage *m)
{
    void **array = rpc_at(m, f->offset);
    size_t *n = rpc_count(m, f);
    bool first = true;
    int r;

    if (t != JSON_TOKEN_ARRAY)
        return fail_type(d, f, t, "a list");
    while ((r = json_lexer_element(&d->lex, &first, &t)) > 0) {
        void *at = list_grow(d, array, *n, rpc_value_size(f->type));

        if (!at || !value_decode(d, f, t, depth, at))
            return false;
        ++*n;
    }
    return r == 0;
}

static ProtobufCMessage *message_new(struct decoder *d, const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage *m = memory_alloc(d, type->sizeof_message);

    if (m)
        protobuf_c_message_init(type, m);
    return m;
}

static const char *entry_key(const void *entry)
{
    const ProtobufCMessage *m = *(ProtobufCMessage *const *)entry;

    return *(char *const *)rpc_at(m, m->descriptor->fields[0].offset);
}

static int entry_compare(const void *a, const void *b)
{
    return strcmp(entry_key(a), entry_key(b));
}

/* Sorts a copy of the entries, so that a long map costs n log n. */
static bool map_is_unique(struct decoder *d, const ProtobufCFieldDescriptor *f,
                          const ProtobufCMessage *m)
{
    size_t n = *rpc_count(m, f), size = n * sizeof(void *);
    _cleanup_(freep) void **copy = NULL;

    if (n < 2)
        return true;
    copy = memory_alloc(d, size);
    if (!copy)
        return false;
    memcpy(copy, *(void **)rpc_at(m, f->offset), size);
    d->memory_left += size;
    qsort(copy, n, sizeof(void *), entry_compare);
    for (size_t i = 1; i < n; i++)
        if (entry_compare(&copy[i - 1], &copy[i]) == 0)
            return json_lexer_fail(&d->lex, "%s: duplicate key", f->name);
    return true;
}

static bool map_decode(struct decoder *d, const ProtobufCFieldDescriptor *f, enum json_token t,
                       unsigned depth, ProtobufCMessage *m)
{
    const ProtobufCMessageDescriptor *type = f->descriptor;
    void **array = rpc_at(m, f->offset);
    size_t *n = rpc_count(m, f);
    bool first = true;
    int r;

    if (t != JSON_TOKEN_OBJECT)
        return fail_type(d, f, t, "an object");
    while ((r = json_lexer_key(&d->lex, &first)) > 0) {
        ProtobufCMessage **entry = list_grow(d, array, *n, sizeof(void *));

        if (entry)
            *entry = message_new(d, type);
        if (!entry || !*entry)
            return false;
        ++*n;
        if (!string_take(d, rpc_at(*entry, type->fields[0].offset)) ||
            !value_decode(d, &type->fields[1], json_lexer_next(&d->lex), depth + 1,
                          rpc_at(*entry, type->fields[1].offset)))
            return false;
    }
    return r == 0 && map_is_unique(d, f, m);
}

static bool oneof_decode(struct decoder *d, const ProtobufCFieldDescriptor *f, enum json_token t,
                         unsigned depth, ProtobufCMessage *m)
{
    uint32_t *set = rpc_oneof_case(m, f);
    /* The union's memory may hold a default that is no value of this type. */
    void *at = rpc_at(m, f->offset);

    if (*set != 0)
        return json_lexer_fail(&d->lex, "%s: another field of its oneof is set", f->name);
    memset(at, 0, rpc_value_size(f->type));
    if (!value_decode(d, f, t, depth, at))
        return false;
    *set = f->id;
    return true;
}

static bool field_decode(struct decoder *d, const ProtobufCFieldDescriptor *f, unsigned depth,
                         ProtobufCMessage *m)
{
    enum json_token t = json_lexer_next(&d->lex);

    if (t == JSON_TOKEN_NULL)
        return true;
    if (rpc_map_entry(m->descriptor, f))
        return map_decode(d, f, t, depth, m);
    if (f->label == PROTOBUF_C_LABEL_REPEATED)
        return list_decode(d, f, t, depth, m);
    if (rpc_is_oneof(f))
        return oneof_decode(d, f, t, depth, m);
    return value_decode(d, f, t, depth, rpc_at(m, f->offset));
}

/* Is `key` the field's name as it stands in the .proto, or its lowerCamelCase? */
static bool name_is(const char *name, struct slice key)
{
    size_t k = 0;

    if (slice_eq_str(key, name))
        return true;
    for (; *name; name++) {
        uint8_t c = (uint8_t)*name;

        if (c == '_' && name[1] >= 'a' && name[1] <= 'z')
            c = (uint8_t)(*++name - 32);
        else if (c == '_')
            continue;
        if (k == key.n || key.p[k++] != c)
            return false;
    }
    return k == key.n;
}

/* The field that the last key names, NULL if there is none. */
static const ProtobufCFieldDescriptor *field_find(struct decoder *d,
                                                  const ProtobufCMessageDescriptor *type)
{
    struct slice key = d->lex.text;
    uint8_t plain[256];

    if (d->lex.has_escape) {
        if (key.n > sizeof plain)
            return NULL;
        key = slice_of(plain, json_unescape(key, plain));
    }
    for (unsigned i = 0; i < type->n_fields; i++)
        if (name_is(type->fields[i].name, key))
            return &type->fields[i];
    return NULL;
}

static bool fields_decode(struct decoder *d, unsigned depth, ProtobufCMessage *m)
{
    const ProtobufCMessageDescriptor *type = m->descriptor;
    uint64_t seen[FIELDS_MAX / 64] = { 0 };
    bool first = true;
    int r;

    assert(type->n_fields <= FIELDS_MAX);
    while ((r = json_lexer_key(&d->lex, &first)) > 0) {
        const ProtobufCFieldDescriptor *f = field_find(d, type);
        size_t i = f ? (size_t)(f - type->fields) : 0, values = 0;

        if (!f) {
            if (!json_lexer_skip(&d->lex, json_lexer_next(&d->lex), RPC_DEPTH_MAX - depth, SIZE_MAX,
                                 &values))
                return false;
            continue;
        }
        if (seen[i / 64] >> i % 64 & 1)
            return json_lexer_fail(&d->lex, "%s: duplicate key", f->name);
        seen[i / 64] |= UINT64_C(1) << i % 64;
        if (!field_decode(d, f, depth, m))
            return false;
    }
    return r == 0;
}

static bool timestamp_take(struct decoder *d, enum json_token t, struct rpc_timestamp *ts)
{
    if (t != JSON_TOKEN_STRING || d->lex.has_escape ||
        !time_parse_rfc3339_parts(d->lex.text, &ts->seconds, &ts->nanos))
        return t == JSON_TOKEN_BAD ? false : json_lexer_fail(&d->lex, "expected an RFC 3339 time");
    return true;
}

static bool message_decode(struct decoder *d, const ProtobufCMessageDescriptor *type,
                           enum json_token t, unsigned depth, ProtobufCMessage **ret)
{
    ProtobufCMessage *m;
    bool ok;

    if (depth > RPC_DEPTH_MAX)
        return json_lexer_fail(&d->lex, "nested too deeply");
    if (t != JSON_TOKEN_OBJECT && !rpc_is_timestamp(type))
        return t == JSON_TOKEN_BAD ? false : json_lexer_fail(&d->lex, "expected an object");
    m = message_new(d, type);
    if (!m)
        return false;
    ok = rpc_is_timestamp(type) ? timestamp_take(d, t, (struct rpc_timestamp *)m)
                                : fields_decode(d, depth, m);
    if (!ok) {
        rpc_message_free(m);
        return false;
    }
    *ret = m;
    return true;
}

enum rpc_status rpc_json_decode(const ProtobufCMessageDescriptor *type, struct slice json,
                                ProtobufCMessage **ret, struct rpc_error *e)
{
    struct rpc_error own = { 0 };
    struct decoder d = { 0 };
    ProtobufCMessage *m = NULL;
    enum json_token t;

    json_lexer_init(&d.lex, json, e ? e : &own);
    if (__builtin_mul_overflow(json.n, (size_t)4, &d.memory_left) ||
        __builtin_add_overflow(d.memory_left, (size_t)65536, &d.memory_left))
        d.memory_left = SIZE_MAX;
    if (!message_decode(&d, type, json_lexer_next(&d.lex), 1, &m))
        return d.is_oom ? RPC_OOM : RPC_INVALID;
    t = json_lexer_next(&d.lex);
    if (t != JSON_TOKEN_END) {
        if (t != JSON_TOKEN_BAD)
            (void)json_lexer_fail(&d.lex, "more text behind the message");
        rpc_message_free(m);
        return RPC_INVALID;
    }
    *ret = m;
    return RPC_OK;
}
