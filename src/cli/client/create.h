/* create.h - a new sandbox, and one that is not left behind. */
#pragma once

#include "cli/client/session.h"

/* Creates one from the command's options. A signal meanwhile (signals_watch is called) does not orphan it: the answer is
 * waited for, and what was made is killed; a second signal gives up. `timeout_s` counts when --timeout is not given. 0 and
 * `*ret` (owned), or a code. */
int create_sandbox(struct session *s, int64_t timeout_s, abx_sandbox **ret);
/* Kills it, within 20 s, whatever signals come. 0, or a code (gone already is fine). */
int create_undo(struct session *s, const char *id);
