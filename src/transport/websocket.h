/* websocket.h - a WebSocket as a call (RFC 6455), for the terminal and for abx_websocket_open. */
#pragma once

#include "abx/http.h"
#include "base/buf.h"

/* abx_websocket_open, and `first` (may be empty) goes out as a text message as soon as it is open. */
abx_call *websocket_open(abx_client *client, abx_config *config,
                         const struct abx_websocket_opts *opts, struct slice first);
