/* terminal.h - GET /terminal: a login shell on a terminal over WebSocket (client.md 3.10).
 *
 * A text message {"type":"resize","cols":C,"rows":R} (0 to 65535 each) sets the size; every other message,
 * text or binary, is input. The shell starts at the first message, or after TERMINAL_FIRST_MS with 80 x 24,
 * as the user of the request in the template's folder. Output goes out as binary messages. When the shell has
 * ended the close frame has code 1000 and how it ended as reason ("exit status 0"); when it cannot be started,
 * 1011 and why. When the client goes, or the daemon, the shell is hung up (command_hang_up). In lists it has the
 * tag COMMAND_TERMINAL_TAG.
 */
#pragma once

#include "guest/envd/envd.h"

#define TERMINAL_FIRST_MS 1000
#define TERMINAL_PING_MS 50000 /* the way here closes what is silent for 10 minutes */
#define TERMINAL_CLOSE_MS 5000 /* for the client's close frame */
#define TERMINAL_MESSAGE_MAX (1u << 20)

/* Takes a request that has shown its right to be here. */
void terminal_handle(struct envd *e, struct http_exchange *ex);
