/* connect.h - Connect protocol: envelopes, end-of-stream, errors, headers (e2b.md 3.1, 3.2).
 *
 * An envelope is flags (1 byte), length (4, big endian), data. Flag 0x01 (compressed) is refused,
 * 0x02 marks the end-of-stream message. Messages are at most CONNECT_MESSAGE_MAX bytes.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#define CONNECT_MESSAGE_MAX (4u << 20)
#define CONNECT_PREFIX_SIZE 5u
#define CONNECT_FLAG_COMPRESSED 0x01
#define CONNECT_FLAG_END 0x02

enum connect_codec { CONNECT_JSON, CONNECT_PROTO };

enum connect_event { CONNECT_NEED_MORE, CONNECT_MESSAGE, CONNECT_TOO_LARGE, CONNECT_BAD_FLAGS };

/* Incremental decoder of one direction of a stream. */
struct connect_decoder {
    struct buf buf;
};
void connect_decoder_init(struct connect_decoder *d);
void connect_decoder_done(struct connect_decoder *d);
/* Takes from *in; on CONNECT_MESSAGE, *ret_message is borrowed until the next call. Call again until
 * NEED_MORE. TOO_LARGE (also out of memory) and BAD_FLAGS (compressed or unknown: *ret_flags says) are
 * final. */
enum connect_event connect_decoder_next(struct connect_decoder *d, struct slice *in,
                                        uint8_t *ret_flags, struct slice *ret_message);
/* True when EOF would cut a message. */
bool connect_decoder_is_partial(const struct connect_decoder *d);

void connect_prefix_encode(uint8_t to[CONNECT_PREFIX_SIZE], uint8_t flags, uint32_t n);
/* Reserves a prefix in `b`, returns its offset for connect_envelope_end, which fills in the length
 * of what was appended since. False when over the limit; `b` is then as before begin. The buffer may
 * not be consumed in between. */
bool connect_envelope_begin(struct buf *b, uint8_t flags, size_t *ret_mark);
bool connect_envelope_end(struct buf *b, size_t mark);

/* {"code":"not_found","message":"..."}: body of a unary error. */
enum buf_status connect_error_json(struct buf *b, const struct abx_err *err);
/* Whole end-of-stream envelope, `err` NULL or code 0 = success: {} */
enum buf_status connect_end_stream(struct buf *b, const struct abx_err *err);

/* Connect-Timeout-Ms: 1..10 digits; false if malformed. 0 means none. */
bool connect_timeout_parse(struct slice value, uint64_t *ret_ms);
/* From Content-Type: codec and whether it is a stream; false = 415. Parameters are ignored. */
bool connect_content_type(struct slice value, enum connect_codec *ret_codec, bool *ret_stream);
const char *connect_content_type_name(enum connect_codec codec, bool is_stream);
