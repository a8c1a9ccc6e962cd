/* http.h - plain HTTP requests and WebSockets over the client's transport (layer 1).
 *
 * For what no other header covers: servers in a sandbox's ports, in-image APIs, tests. Redirects are
 * not followed. Header limits: 100 fields, 64 KiB; with 1xx answers and trailers 256 KiB.
 */
#ifndef ABX_HTTP_H
#define ABX_HTTP_H

#include "abx/files.h"

#ifdef __cplusplus
extern "C" {
#endif

struct abx_http_opts {
    size_t size;
    const char *method; /* NULL = GET */
    const char *url;    /* http:// or https:// */
    const struct abx_pair *headers;
    size_t header_count;
    const void *body; /* borrowed until done */
    size_t body_size;
    abx_source_fn source; /* instead of body */
    void *source_user;
    int64_t source_size;
    int stream;         /* 1: DATA events; the head is there at the first event or the end */
    uint64_t max_bytes; /* of a result: 0 = 64 MiB */
    int64_t request_timeout_ms; /* whole request; of a stream: until the head */
    int64_t idle_timeout_ms;    /* of a stream, 0 = none */
    int retry_reads;            /* 1: GET and HEAD again on 429, 502, 503, 504 */
};
#define ABX_HTTP_OPTS_INIT                                                                         \
    { sizeof(struct abx_http_opts),                                                                \
      NULL,                                                                                        \
      NULL,                                                                                        \
      NULL,                                                                                        \
      0,                                                                                           \
      NULL,                                                                                        \
      0,                                                                                           \
      NULL,                                                                                        \
      NULL,                                                                                        \
      ABX_UNSET,                                                                                   \
      0,                                                                                           \
      0,                                                                                           \
      ABX_UNSET,                                                                                   \
      0,                                                                                           \
      0 }
/* Result: HTTP; any status is a success. `config` gives proxy, CA file, timeouts, not the key; NULL = none of them, 60 s. */
ABX_EXPORT abx_call *abx_http_request(abx_client *client, abx_config *config,
                                      const struct abx_http_opts *opts);

struct abx_http_result {
    int status;                     /* 0 = no head yet */
    int version;                    /* 11, 20 */
    const struct abx_pair *headers; /* names in lower case */
    size_t header_count;
    const void *body;
    size_t body_size;
};
ABX_EXPORT void abx_call_http(const abx_call *call, struct abx_http_result *ret);

/* ---- WebSocket (RFC 6455) ---- */

struct abx_websocket_opts {
    size_t size;
    const char *url;                /* ws:// or wss:// */
    const struct abx_pair *headers; /* none of the handshake's own, nor of a body's */
    size_t header_count;
    const char *protocol;     /* Sec-WebSocket-Protocol, or NULL */
    size_t max_message_bytes; /* 0 = 16 MiB; a larger one closes with 1009 */
    int64_t ping_interval_ms; /* ABX_UNSET = 30,000; 0 = none; no answer within two: UNAVAILABLE */
    int64_t request_timeout_ms; /* until it is open */
};
#define ABX_WEBSOCKET_OPTS_INIT                                                                    \
    { sizeof(struct abx_websocket_opts), NULL, NULL, 0, NULL, 0, ABX_UNSET, ABX_UNSET }
/* START once open, then one DATA event per message (`exited` 1 = text, else binary); pings are answered. Done with code 0
 * after a close of either side: END has the code in exit_code and the reason in text. */
ABX_EXPORT abx_call *abx_websocket_open(abx_client *client, abx_config *config,
                                        const struct abx_websocket_opts *opts);
/* Queues one message. Errors: FAILED_PRECONDITION (not open), RESOURCE_EXHAUSTED (1 MiB wait
 * already), INVALID_ARGUMENT (text that is not UTF-8). */
ABX_EXPORT int abx_websocket_send(abx_call *call, const void *data, size_t size, int is_text,
                                  struct abx_error *err);
/* Starts the closing handshake (at most 10 s); `code` 1000..4999. */
ABX_EXPORT int abx_websocket_close(abx_call *call, int code, const char *reason,
                                   struct abx_error *err);

/* WebSocket /terminal of a sandbox (client.md 3.10): DATA events are output, abx_websocket_send is input. The END event's
 * text says how the shell ended ("exit status 0"), its exit_code is the WebSocket's close code (1000). */
ABX_EXPORT abx_call *abx_terminal_open(abx_client *client, const abx_sandbox *sandbox,
                                       uint16_t cols, uint16_t rows, const char *user,
                                       int64_t request_timeout_ms);
ABX_EXPORT int abx_terminal_resize(abx_call *call, uint16_t cols, uint16_t rows,
                                   struct abx_error *err);

#ifdef __cplusplus
}
#endif
#endif
