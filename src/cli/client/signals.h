/* signals.h - signals as events of a loop: handlers that count, and a descriptor that becomes readable.
 *
 * One watch per process. Handlers interrupt blocking calls (no SA_RESTART) and wake the client they were given.
 */
#pragma once

#include <stdbool.h>

#include "abx/client.h"

/* Catches SIGINT, SIGTERM and SIGHUP (not what the parent ignores, as nohup does), and ignores SIGPIPE. `client` is
 * woken. 0, or a code with `err`. */
int signals_watch(abx_client *client, struct abx_error *err);
/* Catches one more. */
int signals_add(int signo, struct abx_error *err);
/* Readable when a signal came; signals_clear empties it. */
int signals_fd(void);
void signals_clear(void);
/* How often it came since the last call. */
int signals_take(int signo);
/* The last of SIGINT, SIGTERM, SIGHUP that came and was not taken, taken; 0 = none. */
int signals_take_end(void);
