/* call.h - one Connect RPC: decoding, answering, streaming (e2b.md 3.1, 3.2).
 *
 * A call is held by its exchange and by its handler, and freed when both are done with it. The
 * handler is done when it has called exactly one of call_reply, call_fail, call_stream_end, or
 * call_drop after the client went away (`ex` is NULL then). These may be called at any time later.
 *
 * Connect-Timeout-Ms: a unary call or client stream that has no answer by then is answered with
 * DEADLINE_EXCEEDED, and for its handler the client went away. Server streams see to it themselves.
 */
#pragma once

#include "guest/envd/envd.h"
#include "wire/connect.h"
#include "wire/rpc.h"

#define CALL_REQUEST_MAX (6u << 20) /* 4 MiB of bytes as base64, and some */
#define CALL_REPLY_MAX (64u << 20)

enum call_kind { CALL_UNARY, CALL_SERVER_STREAM, CALL_CLIENT_STREAM };

struct call;
struct call_deadline;

struct call_method {
    const char *path;
    const ProtobufCMessageDescriptor *request;
    enum call_kind kind;
    /* The request is decoded (but for client streams, see on_message). */
    void (*handle)(struct call *c);
    /* Client streams: one message, owned by the callee; NULL at the end of the stream. The callee
     * calls call_next when it wants another one. */
    void (*on_message)(struct call *c, ProtobufCMessage *m);
};

struct call {
    struct envd *envd;
    struct http_exchange *ex; /* NULL once the client is gone or served */
    const struct call_method *method;
    enum connect_codec codec;
    struct user user;
    ProtobufCMessage *request; /* owned; take it by setting to NULL */
    uint64_t timeout_ms;       /* Connect-Timeout-Ms, 0 = none */
    struct call_deadline *deadline;
    uint32_t keepalive_s;
    /* Set by streaming handlers; both may be NULL. */
    void (*on_writable)(struct call *c);
    void (*on_gone)(struct call *c); /* the client went away before the handler was done */
    void *data;
    struct connect_decoder decoder; /* client streams */
    struct buf input;               /* of client streams: arrived, not yet decoded */
    bool is_handled;
    bool is_input_end;
    bool wants_message;
    bool is_feeding;
};

/* Takes a request whose path belongs to a service; false when it does not. */
bool call_handle(struct envd *e, struct http_exchange *ex);

void call_reply(struct call *c, const ProtobufCMessage *m);
void call_fail(struct call *c, const struct abx_err *err);
void call_drop(struct call *c);

/* Begins a streamed answer; `fields` beside the content type. */
int call_stream_begin(struct call *c, const struct http1_field *fields, size_t n_fields,
                      struct abx_err *err);
/* Appends an enveloped message to `b`. */
int call_stream_encode(struct call *c, const ProtobufCMessage *m, struct buf *b,
                       struct abx_err *err);
/* All of the stream, its end included, is written: closes the answer. */
void call_stream_end(struct call *c);
/* Breaks the connection: the stream cannot be ended in good order. */
void call_stream_abort(struct call *c);

/* Client streams: asks for the next message. */
void call_next(struct call *c);

extern const struct call_method process_methods[];
extern const struct call_method filesystem_methods[];
