/* ws.h - WebSocket frames and messages, without I/O (RFC 6455 section 5 to 7).
 *
 * The decoder puts fragments together and gives whole messages, up to the limit given at init;
 * control frames between fragments come out at once. Refused, with the close code to send: reserved
 * bits and opcodes, wrong masking for the role, lengths not in their shortest form, fragmented or
 * long control frames, a continuation without a beginning, text that is not UTF-8 (1007), messages
 * over the limit (1009), close codes that may not be sent. No extension is supported.
 */
#pragma once

#include "base/buf.h"

enum ws_role { WS_CLIENT, WS_SERVER };

enum ws_opcode {
    WS_CONTINUATION = 0x0,
    WS_TEXT = 0x1,
    WS_BINARY = 0x2,
    WS_CLOSE = 0x8,
    WS_PING = 0x9,
    WS_PONG = 0xa,
};

#define WS_CONTROL_MAX 125u
#define WS_CLOSE_NONE 1005 /* the peer's close frame had no code */

enum ws_event {
    WS_NEED_MORE,
    WS_MESSAGE, /* opcode TEXT or BINARY and the data */
    WS_CONTROL, /* opcode PING, PONG or CLOSE and the data; of CLOSE also the code */
    WS_ERROR,   /* final: close_code and reason say why */
};

struct ws_message {
    enum ws_opcode opcode;
    struct slice data; /* of CLOSE the reason, UTF-8; borrowed until the next call */
    int close_code;
    const char *reason; /* of ERROR, static */
};

struct ws_decoder {
    enum ws_role role;  /* our side: a server wants masked frames, a client plain ones */
    struct buf message; /* of the data message that is being put together */
    struct buf control;
    uint8_t head[14];
    size_t head_size; /* bytes of the head so far */
    uint64_t left;    /* of the current frame's payload */
    size_t mask_at;
    uint8_t opcode;         /* of the current frame */
    uint8_t message_opcode; /* of the message in work, 0 = none */
    bool is_final, in_payload, is_failed, is_taken;
    struct ws_message failure;
};

void ws_decoder_init(struct ws_decoder *d, enum ws_role role, size_t message_max);
void ws_decoder_done(struct ws_decoder *d);
/* Takes from *in. Call again until NEED_MORE or ERROR. */
enum ws_event ws_decoder_next(struct ws_decoder *d, struct slice *in, struct ws_message *ret);

/* Appends one final frame. `role` is the sender's: a client's frame is masked with `mask` (4 random
 * bytes). Control frames: at most WS_CONTROL_MAX bytes, else BUF_LIMIT. */
enum buf_status ws_frame_encode(struct buf *b, enum ws_role role, enum ws_opcode opcode,
                                const uint8_t mask[4], struct slice data);
/* A close frame; `code` 0 or WS_CLOSE_NONE = without one; the reason is cut to 123 bytes at a character's border. */
enum buf_status ws_close_encode(struct buf *b, enum ws_role role, const uint8_t mask[4], int code,
                                struct slice reason);
/* May this code stand in a close frame (RFC 6455 7.4)? */
bool ws_close_code_is_valid(int code);
