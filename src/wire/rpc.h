/* rpc.h - protobuf-c messages from and to protobuf bytes and proto3 JSON, bounded (wire/rpc).
 *
 * Decoders refuse depth over 64, strings that are not UTF-8 or hold NUL, and cap memory at
 * 4 x input + 64 KiB. JSON: lowerCamelCase and snake_case names, unknown fields ignored, duplicate
 * keys and lone surrogates refused, 64-bit numbers as strings or numbers, bytes as base64 (both
 * alphabets), enums as names or numbers, google.protobuf.Timestamp as RFC 3339, null = absent.
 * Encoding omits defaults as proto3 JSON does; fields of a oneof (and proto3 `optional`, which is a
 * one-member oneof here) are written when set. Duplicates are looked for among known fields and in
 * maps; two members of one oneof are refused, in protobuf bytes also a singular message field that
 * comes twice. Not supported, and refused, because no schema here has them: float, double, maps with
 * keys other than strings, groups.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "base/buf.h"
#include "wire/json.h" /* struct rpc_error, json_string_put, json_scan */

#define RPC_DEPTH_MAX 64

enum rpc_status { RPC_OK = 0, RPC_INVALID, RPC_OOM };

/* `ret` is owned: rpc_message_free. `e` may be NULL. */
enum rpc_status rpc_json_decode(const ProtobufCMessageDescriptor *type, struct slice json,
                                ProtobufCMessage **ret, struct rpc_error *e);
enum rpc_status rpc_proto_decode(const ProtobufCMessageDescriptor *type, struct slice bytes,
                                 ProtobufCMessage **ret, struct rpc_error *e);
/* rpc_proto_decode with another limit on memory: `factor` x input + 64 KiB instead of 4 x input + 4 MiB. A list
 * of small messages needs about 9 times its packed form, one of short strings up to 25 times; servers allow that
 * up to what a command's arguments can be, clients take their server's word. */
#define RPC_ANSWER_FACTOR 16
enum rpc_status rpc_proto_decode_within(const ProtobufCMessageDescriptor *type, struct slice bytes,
                                        size_t factor, ProtobufCMessage **ret, struct rpc_error *e);
void rpc_message_free(ProtobufCMessage *m);

/* Append to `b`; nothing is left in it when they fail. */
enum buf_status rpc_json_encode(const ProtobufCMessage *m, struct buf *b);
enum buf_status rpc_proto_encode(const ProtobufCMessage *m, struct buf *b);
