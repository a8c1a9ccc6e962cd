/* names.h - what a sandbox asks for on port 53, whichever address it asks: UDP and TCP, answered by the resolver.
 *
 * With rules that deny all the rest only names that they allow are asked for, because a question leads out, too. AAAA
 * records are answered only while the host has a way to the IPv6 internet. Addresses that are answered are pinned
 * (pins.h). A sandbox may wait for ASKS_MAX answers and have STREAMS_MAX connections; resolver.h has the limit of the
 * questions that go out for it.
 */
#pragma once

#include "egress/internal.h"

#define ASKS_MAX 64u
#define STREAMS_MAX 32u

/* Takes over the UDP socket `fd`. NULL when that fails. */
struct names *names_new(struct box *b, int fd);
/* Ends everything, at once. NULL is fine. */
void names_close(struct names *n);
/* Takes over an accepted connection to port 53. */
void names_stream(struct names *n, int fd);
