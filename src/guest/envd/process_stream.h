/* process_stream.h - the answer of Start and Connect: events of one command. */
#pragma once

#include "guest/envd/call.h"

/* Streams `command` to the client of `c` from now on and takes over the call. */
void process_stream_begin(struct call *c, struct command *command);
