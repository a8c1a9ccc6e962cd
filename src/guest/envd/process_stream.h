/* process_stream.h - the answer of Start and Connect: events of one command.
 *
 * Beyond E2B, in HTTP header fields that no other client sends or reads: each answer says in
 * Abx-Output-Offset where in the command's output (bytes of all streams together) its first byte stands, and
 * in Abx-Dropped-Bytes how many bytes before it are gone, when there are any. A Connect with
 * Abx-Output-Offset: N begins there, as long as the byte is among the newest 1 MiB (less when very many
 * commands share the memory); OUT_OF_RANGE when N is over what was written.
 */
#pragma once

#include "guest/envd/call.h"

/* Streams `command` to the client of `c` from now on and takes over the call. */
void process_stream_begin(struct call *c, struct command *command);
