/* sink.h - standard output and error as ends of a loop: written without blocking where that can be had.
 *
 * The descriptors are shared with other processes, so their flags are never changed. A pipe or a socket that nobody reads
 * makes the bytes wait here, and sink_has_room false, so that the sender waits; files and terminals are written to as they
 * are.
 */
#pragma once

#include <poll.h>

#include "base/buf.h"

struct sink {
    int fd;
    const char *name; /* "standard output" */
    enum { SINK_PLAIN, SINK_PIPE, SINK_SOCKET } kind;
    bool
        lacks_nowait; /* the kernel cannot write to pipes without waiting: small pieces after poll */
    int error;        /* errno that ended it, 0 = none; what comes then is dropped */
    struct buf waiting;
};

void sink_init(struct sink *k, int fd, const char *name);
void sink_done(struct sink *k);
/* Writes now what can be written, keeps the rest. Returns 0, or the errno that ended it (once). */
int sink_write(struct sink *k, const void *p, size_t n);
/* Writes more of what waits. The same. */
int sink_flush(struct sink *k);
static inline bool sink_has_room(const struct sink *k)
{
    return k->waiting.len == 0;
}
