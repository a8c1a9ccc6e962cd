/* envd.h - requests to envd, the daemon in a sandbox: plain HTTP, Connect unary, Connect server streams
 * (layer 2; client.md 2.6 and 3.3, e2b.md 3.1-3.3).
 *
 * Three embedded objects, each on top of the one before: an exchange (one HTTP request, its errors, and
 * the question whether the sandbox still runs when the connection broke), a unary call (messages in and
 * out), a stream. All begin zeroed, run from abx_client_process only, and end by exactly one `done`, after
 * which they hold nothing and may be started again. `done` is never called from inside a starting
 * function, and may free its owner. Sandboxes are referenced while an object runs.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "base/buf.h"
#include "base/err.h"
#include "e2b/hosts.h"
#include "protocol/sandbox.h"
#include "transport/http.h"
#include "wire/connect.h"

#define ENVD_HEALTH_TIMEOUT_MS 5000
#define ENVD_ERROR_BODY_MAX 65536u
#define ENVD_UNARY_MAX (64u << 20) /* bytes of a unary answer */
#define ENVD_KEEPALIVE_S 50
/* A command's time is over when the sandbox says so; so much later without its word. */
#define ENVD_GRACE_MS 5000

/* ---- errors (envd_error.c) ---- */

/* Error of an answer with a status other than 2xx and its body: Connect's code strings, bodies with an
 * integer code, other JSON, text. `*ret_is_coded` (may be NULL): envd itself said it with a Connect
 * code. Sets `err` and returns its code, never 0. */
int envd_error_from_answer(int status, struct slice body, bool *ret_is_coded, struct abx_err *err);
/* Error in an end-of-stream message; 0 = success. A message that is no JSON object: PROTOCOL, with
 * `*ret_is_malformed` set. */
int envd_error_from_end(struct slice message, bool *ret_is_malformed, struct abx_err *err);

/* ---- one HTTP request ---- */

struct envd_request {
    const char *what; /* static, for messages: "GET /files", "process.Process/Start" */
    const char *method;
    uint16_t port;    /* 0 = envd's */
    const char *path; /* begins with '/', with the query; copied */
    const char *user; /* Authorization: Basic; NULL = none */
    const struct abx_pair *headers;
    size_t header_count; /* at most ENVD_HEADERS_MAX */
    struct slice body;   /* borrowed until done */
    bool has_body;
    abx_source_fn source;
    void *source_user;
    int64_t source_size;
    enum http_retry retry;
    int64_t deadline_ns, head_deadline_ns, idle_ms; /* as in http.h */
    bool accept_gzip, is_stream;                    /* the same */
};
#define ENVD_HEADERS_MAX 64

enum envd_taken { ENVD_TAKEN, ENVD_LATER, ENVD_BROKEN };

struct envd_exchange_ops {
    /* A 2xx answer begins. Not 0: refused, `err` is set. NULL = nothing to look at. */
    int (*head)(void *user, const struct http_head *head, struct abx_err *err);
    /* Bytes of a 2xx answer. LATER: again after envd_exchange_resume; BROKEN: `err` is set, it is cut. */
    enum envd_taken (*body)(void *user, struct slice data, struct abx_err *err);
    /* May change how it ended (code 0 = success) before the health of the sandbox is asked for. NULL allowed. */
    void (*judge)(void *user, struct abx_err *err);
    void (*done)(void *user, const struct abx_err *err, int http_status);
};

struct envd_exchange {
    abx_client *client;
    abx_sandbox *sandbox;
    const char *what;
    const struct envd_exchange_ops *ops;
    void *user;
    struct http_exchange *http, *health;
    struct client_task task; /* ends a broken one outside of the transport's callbacks */
    int64_t deadline_ns;
    struct buf text; /* body of an error, of the health answer */
    struct abx_err err;
    int status, health_status;
    bool is_broken;   /* err says why; what still comes is dropped */
    bool is_coded;    /* err is a Connect error of envd */
    bool wants_check; /* judge: ask for the sandbox's health though err is no DISCONNECTED */
};

/* Errors: INVALID_ARGUMENT (URL, header), RESOURCE_EXHAUSTED. */
int envd_exchange_start(struct envd_exchange *e, abx_client *client, const abx_sandbox *sandbox,
                        const struct envd_request *request, const struct envd_exchange_ops *ops,
                        void *user, struct abx_err *err);
/* Ends without `done`; not running: nothing. */
void envd_exchange_cancel(struct envd_exchange *e);
void envd_exchange_resume(struct envd_exchange *e);
void envd_exchange_resume_source(struct envd_exchange *e);
/* Cuts it; `done` tells `err` soon. */
void envd_exchange_fail(struct envd_exchange *e, const struct abx_err *err);
/* "HOST: WHAT: <text>" with ABX_REASON_PROTOCOL. */
int envd_protocol_error(const struct envd_exchange *e, struct abx_err *err, const char *fmt, ...)
    _printf_(3, 4);

/* The user that requests name: as given, "user" for an envd that knows no default user (before 0.4.0). */
const char *envd_user(const abx_sandbox *sandbox, const char *user);

/* ---- Connect ---- */

struct envd_rpc {
    const char *procedure; /* static: "process.Process/List" */
    const char *user;
    const ProtobufCMessage *request; /* borrowed while starting */
    const ProtobufCMessageDescriptor *response;
    bool is_read;        /* without effect: may be asked again */
    bool wants_pings;    /* Keepalive-Ping-Interval; streams always */
    int64_t deadline_ns; /* unary: of the whole, stream: until the start event; 0 = none */
    int64_t timeout_ms;  /* streams: Connect-Timeout-Ms, 0 = none */
    const uint64_t *output_offset; /* of Connect: Abx-Output-Offset; NULL = none */
};

/* `m` is borrowed, NULL when err->code is set. */
typedef void (*envd_unary_fn)(void *user, const ProtobufCMessage *m, const struct abx_err *err,
                              int http_status);
struct envd_unary {
    struct envd_exchange x;
    struct buf request, response;
    const ProtobufCMessageDescriptor *type;
    ProtobufCMessage *message;
    envd_unary_fn done;
    void *user;
    bool is_protobuf;
    bool is_coded; /* after done with an error: envd said it with a Connect code */
};
int envd_unary_start(struct envd_unary *u, abx_client *client, const abx_sandbox *sandbox,
                     const struct envd_rpc *rpc, envd_unary_fn done, void *user,
                     struct abx_err *err);
void envd_unary_cancel(struct envd_unary *u);

enum envd_message {
    ENVD_MESSAGE_OTHER, /* keepalive, or newer than we are */
    ENVD_MESSAGE_START,
    ENVD_MESSAGE_DATA,
    ENVD_MESSAGE_END, /* nothing but the end of the stream comes behind it */
};
struct envd_stream_ops {
    enum envd_message (*kind)(const ProtobufCMessage *m);
    /* Takes a message (borrowed) that is none of OTHER and comes in order: one START first, nothing behind END. Not 0: a
     * code, `err` is set, the stream is cut. */
    int (*message)(void *user, const ProtobufCMessage *m, struct abx_err *err);
    /* No room: nothing more is read until envd_stream_resume. NULL = never. */
    bool (*is_full)(void *user);
    void (*done)(void *user, const struct abx_err *err, int http_status);
    /* A stream without an END message ends with "<noun> ended without an end event"; NULL = there is no
     * such message. */
    const char *noun;
};
struct envd_stream {
    struct envd_exchange x;
    struct buf request;
    struct connect_decoder decoder;
    const ProtobufCMessageDescriptor *type;
    const struct envd_stream_ops *ops;
    void *user;
    struct client_timer
        timer; /* start event, then the command's time, then the end of the answer */
    int64_t timeout_ms;
    struct abx_err end_err; /* of the end-of-stream message */
    uint64_t output_offset; /* that the answer names (Abx-Output-Offset) */
    bool is_protobuf, has_start, has_end_message, is_ended, is_full, has_output_offset;
};
int envd_stream_start(struct envd_stream *s, abx_client *client, const abx_sandbox *sandbox,
                      const struct envd_rpc *rpc, const struct envd_stream_ops *ops, void *user,
                      struct abx_err *err);
/* Cuts the connection; what runs in the sandbox goes on. */
void envd_stream_cancel(struct envd_stream *s);
void envd_stream_resume(struct envd_stream *s);
