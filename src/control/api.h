/* api.h - the REST API of the control plane (e2b.md 1), served to gateways over a unix socket.
 *
 * Order of checks: route (404, 405), key (401), scope (403), then 501 for what is not built, then the
 * request itself. Each answer with 429, 502, 503 or 504 says Should-Retry. Errors are JSON
 * {"code","message"}. The request id comes in Abx-Request-Id, or is made here.
 */
#pragma once

#include "control/control.h"
#include "net/http_server.h"

#define API_BODY_MAX (1u << 20)

/* Callback of the HTTP server; `user` is the struct control. */
void api_on_request(void *user, struct http_exchange *ex);
