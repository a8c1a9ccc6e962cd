/* lane.h - one direction of a relayed connection: bytes go from socket to socket through a pipe and are not copied.
 *
 * A lane holds a pipe only while bytes are in it; empty pipes wait in a small pool. A sandbox may have so many pipes
 * in use (lane_quota); lanes beyond that copy through a small buffer of their own, so that what peers who do not read
 * hold in memory stays bounded. Nothing is read while the other side cannot take it.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"

#define LANE_POOL_MAX 64u
#define LANE_QUOTA 64u           /* pipes in use of one sandbox */
#define LANE_COPY_SIZE 8192u     /* a lane without pipe */
#define LANE_TURN_MAX (1u << 20) /* most bytes of one lane_pump: others want to go on too */

struct lane {
    int pipe[2];      /* -EBADF without */
    uint8_t *copy;    /* NULL without */
    size_t off, held; /* bytes in the pipe or in `copy` */
    bool has_end;     /* the source has ended */
    bool is_ended;    /* and the other side was told */
    bool is_cut;      /* the source has failed: where its bytes end is no end to tell */
};

/* Of all lanes of one process. */
struct lane_pool {
    int pipes[LANE_POOL_MAX][2];
    size_t n;
    size_t n_open; /* with those in use */
};

enum lane_state {
    LANE_WANTS_READ,  /* the source has nothing more now */
    LANE_WANTS_WRITE, /* the other side takes nothing more now */
    LANE_MORE,        /* its turn is over, not its bytes */
    LANE_ENDED,       /* all was passed on, the end too */
    LANE_BROKEN,      /* either side failed, or what was cut off is passed on */
};

#define LANE_INIT                                                                                  \
    {                                                                                              \
        .pipe = { -EBADF, -EBADF }                                                                 \
    }

/* Moves what can be moved; *ret_moved counts the bytes that left. `quota` counts the sandbox's pipes in use. */
enum lane_state lane_pump(struct lane *l, struct lane_pool *pool, size_t *quota, int from, int to,
                          size_t *ret_moved);
/* Bytes that are on their way are dropped. */
void lane_done(struct lane *l, struct lane_pool *pool, size_t *quota);
void lane_pool_done(struct lane_pool *pool);
