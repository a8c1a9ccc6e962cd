/* supervisor_ready.h - when is a service ready, and who is told. */
#pragma once

#include "base/err.h"
#include "cli/supervisor_listen.h"

/* Ready means: control answers on the admin socket and has its engine, <data-dir>/admin.key exists,
 * and a gateway answers GET /health on the public address. 0, or what is missing. Blocks for at most
 * about two seconds. */
int ready_check(const struct listen_address *listen, const char *run_dir, const char *data_dir,
                struct abx_err *err);

/* `text` to the service manager, if one asked for it (sd_notify(3)). */
void notify_systemd(const char *text);
/* Within what time it wants WATCHDOG=1 each time (sd_watchdog_enabled(3)); 0 = not at all. */
int64_t notify_watchdog_ns(void);
