/* ws.c - see ws.h. A frame's head is collected in d->head, its payload goes straight into the message
 * or control buffer and is unmasked there. */
#include "wire/ws.h"

#include "base/str.h"

#define BIT_FINAL 0x80u
#define BITS_RESERVED 0x70u
#define BIT_MASK 0x80u

void ws_decoder_init(struct ws_decoder *d, enum ws_role role, size_t message_max)
{
    *d = (struct ws_decoder){ .role = role };
    buf_init(&d->message, message_max);
    buf_init(&d->control, WS_CONTROL_MAX);
}

void ws_decoder_done(struct ws_decoder *d)
{
    buf_done(&d->message);
    buf_done(&d->control);
}

bool ws_close_code_is_valid(int code)
{
    return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) ||
           (code >= 3000 && code <= 4999);
}

static enum ws_event ws_fail(struct ws_decoder *d, int code, const char *reason,
                             struct ws_message *ret)
{
    d->is_failed = true;
    d->failure = (struct ws_message){ .opcode = WS_CLOSE, .close_code = code, .reason = reason };
    *ret = d->failure;
    return WS_ERROR;
}

static bool opcode_is_control(uint8_t opcode)
{
    return opcode >= WS_CLOSE;
}

/* How many bytes the head has, as far as its first two tell. */
static size_t head_needed(const struct ws_decoder *d)
{
    size_t n = 2;

    if (d->head_size < 2)
        return n;
    if ((d->head[1] & 0x7fu) == 126)
        n += 2;
    else if ((d->head[1] & 0x7fu) == 127)
        n += 8;
    return d->head[1] & BIT_MASK ? n + 4 : n;
}

/* What can be said against the first two bytes of a head; NULL = nothing. */
static const char *head_check(const struct ws_decoder *d)
{
    uint8_t opcode = d->head[0] & 0x0fu;
    bool is_masked = d->head[1] & BIT_MASK;

    if (d->head[0] & BITS_RESERVED)
        return "reserved bits are set";
    if (opcode > WS_PONG || (opcode > WS_BINARY && opcode < WS_CLOSE))
        return "unknown opcode";
    if (is_masked != (d->role == WS_SERVER))
        return is_masked ? "a server's frame is masked" : "a client's frame is not masked";
    if (opcode_is_control(opcode)) {
        if (!(d->head[0] & BIT_FINAL))
            return "a control frame is fragmented";
        if ((d->head[1] & 0x7fu) > WS_CONTROL_MAX)
            return "a control frame is longer than 125 bytes";
        return NULL;
    }
    if (opcode == WS_CONTINUATION && d->message_opcode == 0)
        return "a continuation without a beginning";
    if (opcode != WS_CONTINUATION && d->message_opcode != 0)
        return "a new message inside a fragmented one";
    return NULL;
}

/* Payload length of a whole head; false when it is not in its shortest form or has its top bit set. */
static bool head_length(const struct ws_decoder *d, uint64_t *ret)
{
    uint64_t n = d->head[1] & 0x7fu;
    size_t bytes = n == 126 ? 2 : n == 127 ? 8 : 0;

    if (bytes > 0) {
        uint64_t least = bytes == 2 ? 126 : 65536;

        n = 0;
        for (size_t i = 0; i < bytes; i++)
            n = n << 8 | d->head[2 + i];
        if (n < least || n > INT64_MAX)
            return false;
    }
    *ret = n;
    return true;
}

static enum ws_event frame_begin(struct ws_decoder *d, struct ws_message *ret)
{
    if (!head_length(d, &d->left))
        return ws_fail(d, 1002, "a length is not in its shortest form", ret);
    d->opcode = d->head[0] & 0x0fu;
    d->is_final = d->head[0] & BIT_FINAL;
    d->in_payload = true;
    d->mask_at = 0;
    if (!opcode_is_control(d->opcode)) {
        if (d->opcode != WS_CONTINUATION)
            d->message_opcode = d->opcode;
        if (d->left > buf_room(&d->message))
            return ws_fail(d, 1009, "a message is over the limit", ret);
    }
    return WS_NEED_MORE;
}

static enum ws_event close_read(struct ws_decoder *d, struct ws_message *ret)
{
    struct slice data = buf_slice(&d->control);

    *ret = (struct ws_message){ .opcode = WS_CLOSE, .close_code = WS_CLOSE_NONE };
    if (data.n == 0)
        return WS_CONTROL;
    if (data.n == 1)
        return ws_fail(d, 1002, "a close code has one byte", ret);
    ret->close_code = data.p[0] << 8 | data.p[1];
    ret->data = slice_of(data.p + 2, data.n - 2);
    if (!ws_close_code_is_valid(ret->close_code))
        return ws_fail(d, 1002, "a close code that may not be sent", ret);
    if (!utf8_is_valid(ret->data))
        return ws_fail(d, 1007, "a close reason is not UTF-8", ret);
    return WS_CONTROL;
}

/* The payload is complete: what it was. */
static enum ws_event frame_end(struct ws_decoder *d, struct ws_message *ret)
{
    d->in_payload = false;
    d->head_size = 0;
    if (opcode_is_control(d->opcode)) {
        d->is_taken = true;
        if (d->opcode == WS_CLOSE)
            return close_read(d, ret);
        *ret = (struct ws_message){ .opcode = (enum ws_opcode)d->opcode,
                                    .data = buf_slice(&d->control) };
        return WS_CONTROL;
    }
    if (!d->is_final)
        return WS_NEED_MORE;
    if (d->message_opcode == WS_TEXT && !utf8_is_valid(buf_slice(&d->message)))
        return ws_fail(d, 1007, "a text is not UTF-8", ret);
    *ret = (struct ws_message){ .opcode = (enum ws_opcode)d->message_opcode,
                                .data = buf_slice(&d->message) };
    d->message_opcode = 0;
    d->is_taken = true;
    return WS_MESSAGE;
}

static void unmask(struct ws_decoder *d, uint8_t *p, size_t n)
{
    const uint8_t *key = d->head + head_needed(d) - 4;

    for (size_t i = 0; i < n; i++)
        p[i] ^= key[(d->mask_at + i) & 3];
    d->mask_at = (d->mask_at + n) & 3;
}

static enum ws_event payload_take(struct ws_decoder *d, struct slice *in, struct ws_message *ret)
{
    struct buf *b = opcode_is_control(d->opcode) ? &d->control : &d->message;
    size_t n = MIN(d->left, (uint64_t)in->n);

    if (n > 0) {
        uint8_t *to = buf_reserve(b, n, NULL);

        if (!to)
            return ws_fail(d, 1011, "out of memory", ret);
        memcpy(to, in->p, n);
        if (d->role == WS_SERVER)
            unmask(d, to, n);
        buf_commit(b, n);
        *in = slice_of(in->p + n, in->n - n);
        d->left -= n;
    }
    return d->left == 0 ? frame_end(d, ret) : WS_NEED_MORE;
}

enum ws_event ws_decoder_next(struct ws_decoder *d, struct slice *in, struct ws_message *ret)
{
    if (d->is_taken) { /* what the caller borrowed */
        d->is_taken = false;
        if (opcode_is_control(d->opcode))
            buf_reset(&d->control);
        else
            buf_reset(&d->message);
    }
    while (!d->is_failed) {
        enum ws_event e;

        if (d->in_payload) {
            e = payload_take(d, in, ret);
            if (e != WS_NEED_MORE || d->in_payload)
                return e;
            continue;
        }
        if (in->n == 0)
            return WS_NEED_MORE;
        d->head[d->head_size++] = in->p[0];
        *in = slice_of(in->p + 1, in->n - 1);
        if (d->head_size == 2) {
            const char *wrong = head_check(d);

            if (wrong)
                return ws_fail(d, 1002, wrong, ret);
        }
        if (d->head_size < head_needed(d))
            continue;
        e = frame_begin(d, ret);
        if (e != WS_NEED_MORE)
            return e;
    }
    *ret = d->failure;
    return WS_ERROR;
}

enum buf_status ws_frame_encode(struct buf *b, enum ws_role role, enum ws_opcode opcode,
                                const uint8_t mask[4], struct slice data)
{
    uint8_t head[14] = { (uint8_t)(BIT_FINAL | opcode) };
    size_t n = 2, length_bytes = 0, total;
    enum buf_status status;
    uint8_t *to;

    if (opcode_is_control((uint8_t)opcode) && data.n > WS_CONTROL_MAX)
        return BUF_LIMIT;
    if (data.n < 126) {
        head[1] = (uint8_t)data.n;
    } else {
        length_bytes = data.n <= 0xffff ? 2 : 8;
        head[1] = length_bytes == 2 ? 126 : 127;
    }
    for (size_t i = 0; i < length_bytes; i++)
        head[n++] = (uint8_t)((uint64_t)data.n >> (8 * (length_bytes - 1 - i)));
    if (role == WS_CLIENT) {
        head[1] |= BIT_MASK;
        memcpy(head + n, mask, 4);
        n += 4;
    }
    if (__builtin_add_overflow(n, data.n, &total))
        return BUF_LIMIT;
    to = buf_reserve(b, total, &status);
    if (!to)
        return status;
    memcpy(to, head, n);
    for (size_t i = 0; i < data.n; i++)
        to[n + i] = role == WS_CLIENT ? data.p[i] ^ mask[i & 3] : data.p[i];
    buf_commit(b, total);
    return BUF_OK;
}

enum buf_status ws_close_encode(struct buf *b, enum ws_role role, const uint8_t mask[4], int code,
                                struct slice reason)
{
    uint8_t data[WS_CONTROL_MAX];
    size_t n = MIN(reason.n, sizeof data - 2);

    if (code == 0 || code == WS_CLOSE_NONE)
        return ws_frame_encode(b, role, WS_CLOSE, mask, slice_of(NULL, 0));
    while (n > 0 && n < reason.n && (reason.p[n] & 0xc0) == 0x80)
        n--;
    data[0] = (uint8_t)(code >> 8);
    data[1] = (uint8_t)code;
    if (n > 0)
        memcpy(data + 2, reason.p, n);
    return ws_frame_encode(b, role, WS_CLOSE, mask, slice_of(data, n + 2));
}
