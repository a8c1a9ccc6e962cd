/* supervisor_local.h - a service becomes the one that clients on this machine find (local_dir.h, local_key.h): when it is ready,
 * or when the one that they found has been gone for LOCAL_GONE_NS, for longer than a restart of it takes.
 */
#pragma once

#include "base/macro.h"
#include "cli/local_dir.h"

#define LOCAL_LOOK_NS (1 * NSEC_PER_SEC)
#define LOCAL_GONE_NS (20 * NSEC_PER_SEC)

struct supervisor_local {
    struct local_service_info info;
    char socket_path[128];          /* control's */
    const struct local_user *users; /* borrowed */
    size_t n_users;
    struct local_dir dir; /* open while it is ours */
    int64_t looked_ns;    /* CLOCK_MONOTONIC */
    int64_t gone_ns;      /* since when nobody has it; 0 = somebody has, or nobody has looked */
};
#define SUPERVISOR_LOCAL_INIT { .dir = LOCAL_DIR_INIT }

/* One try; errors as local_publish. */
int supervisor_local_publish(struct supervisor_local *l, struct abx_err *err);
/* From time to time: looks at most once in LOCAL_LOOK_NS, only when there was a try that failed, and tries again when nobody has the
 * folder. What fails then is tried again. */
void supervisor_local_look(struct supervisor_local *l);
void supervisor_local_give_up(struct supervisor_local *l);
