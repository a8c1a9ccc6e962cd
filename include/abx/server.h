/* server.h - the server API inside an image: files, shell, processes, named commands and more, as JSON
 * over HTTP (client.md 4.2; port 9000 of a sandbox, its terminals on 9001).
 *
 * An abx_server is an immutable address, shared by reference count (atomic). Routes and bodies are
 * the server's; these calls bring credentials, deadlines, limits and errors.
 */
#ifndef ABX_SERVER_H
#define ABX_SERVER_H

#include "abx/sandbox.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ABX_SERVER_PORT 9000
#define ABX_SERVER_PTY_PORT 9001

typedef struct abx_server abx_server;

struct abx_server_parts {
    size_t size;
    const char *
        base_url; /* http:// or https://, may have a path and a query that goes with each request */
    const char *pty_url; /* ws:// or wss://; NULL = no terminals */
    const char *token;   /* secret: Authorization: Bearer and X-Access-Token; NULL = none */
    const struct abx_pair *headers; /* of each request; none of Host, Connection, framing */
    size_t header_count;
    int64_t request_timeout_ms; /* ABX_UNSET = 30,000, 0 = none */
};
#define ABX_SERVER_PARTS_INIT                                                                      \
    { sizeof(struct abx_server_parts), NULL, NULL, NULL, NULL, 0, ABX_UNSET }
/* `*ret` owned: abx_server_unref. Errors: INVALID_ARGUMENT names the field. Since 0.1. */
ABX_EXPORT int abx_server_new(abx_config *config, const struct abx_server_parts *parts,
                              abx_server **ret, struct abx_error *err);
/* The server in a sandbox, with the sandbox's headers; ports 0 = the two above. */
ABX_EXPORT int abx_server_of_sandbox(const abx_sandbox *sandbox, uint16_t port, uint16_t pty_port,
                                     const char *token, abx_server **ret, struct abx_error *err);
ABX_EXPORT abx_server *abx_server_ref(abx_server *server);
ABX_EXPORT void abx_server_unref(abx_server *server); /* NULL allowed */

struct abx_server_opts {
    size_t size;
    const char *method; /* NULL = GET */
    const char *path;   /* "/files/list", percent-encoded */
    const char *query; /* "path=%2Ftmp", encoded, or NULL; may not name a key of base_url's query */
    const char *body_json;      /* or NULL; checked to be JSON */
    int64_t request_timeout_ms; /* ABX_UNSET = the server's; of a stream: until its head */
    int64_t idle_timeout_ms;    /* of a stream, between bytes: 0 = none */
};
#define ABX_SERVER_OPTS_INIT                                                                       \
    { sizeof(struct abx_server_opts), NULL, NULL, NULL, NULL, ABX_UNSET, 0 }
/* One request. Result: JSON, always an object. GET is retried as a read. A failed call keeps the
 * server's error object for abx_call_bytes. Errors: UNAUTHENTICATED, PERMISSION_DENIED (its policy), NOT_FOUND with
 * ABX_REASON_FILE_NOT_FOUND, UNIMPLEMENTED (endpoint disabled), RESOURCE_EXHAUSTED with TOO_LARGE or
 * RATE_LIMITED, DEADLINE_EXCEEDED with COMMAND_TIMEOUT. */
ABX_EXPORT abx_call *abx_server_request(abx_client *client, abx_server *server,
                                        const struct abx_server_opts *opts);
/* A request whose answer is a stream of Server-Sent Events: one DATA event each, `text` its name. */
ABX_EXPORT abx_call *abx_server_stream(abx_client *client, abx_server *server,
                                       const struct abx_server_opts *opts);
/* The terminal of a session (POST /pty/sessions made it): a WebSocket with JSON messages, as abx_websocket_open. */
ABX_EXPORT abx_call *abx_server_pty(abx_client *client, abx_server *server, const char *session_id,
                                    int64_t request_timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
