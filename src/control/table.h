/* table.h - the gateways' copy of the sandboxes: every gateway that connects gets all entries, then
 * TableSynced, then each change; it may ask for an id that it lacks. Egress has one, too, with what the sandboxes
 * may reach instead of their tokens; what is said of gateways below holds for it.
 *
 * A hold works the same way. A gateway that may can wake a paused sandbox (Wake).
 *
 * A removal is done when every gateway has closed the sandbox's sockets and said so, has gone away,
 * or let TABLE_DROP_MS pass: then it is disconnected, so that it starts over with a fresh table.
 */
#pragma once

#include <uv.h>

#include "control/lifecycle.h"
#include "schema/ipc.pb-c.h"

#define TABLE_DROP_MS 2000
/* Of a pause: what unary requests in flight get, and after how long a gateway is disconnected. */
#define TABLE_DRAIN_MS 2000
#define TABLE_HOLD_MS 4000
#define TABLE_HEALTH_MS                                                                            \
    3000 /* what a guest gets to say that it is well; a gateway gets a second more */
#define TABLE_WAKE_MS 300000 /* how long a sandbox lives that traffic woke (e2b.md 1.4) */

struct table;

/* `lifecycle` and `seed` are borrowed for good. */
int table_new(uv_loop_t *loop, const char *instance, struct lifecycle *lifecycle,
              const uint8_t *seed, size_t max_active, struct table **ret, struct abx_err *err);
enum table_kind { TABLE_FOR_GATEWAYS, TABLE_FOR_EGRESS, TABLE_KINDS_ };

/* Once for each kind. Accepts peers from the listening SEQPACKET socket `fd` (owned) with one of the uids. */
int table_listen(struct table *t, int fd, const uid_t *uids, size_t n_uids, enum table_kind kind,
                 struct abx_err *err);
/* Lines for the logs of sandboxes, from egress; borrowed until return. */
typedef void (*table_log_fn)(void *user, const Abx__Ipc__Log *log);
void table_set_log(struct table *t, table_log_fn on_log, void *user);
/* Disconnects all and frees itself from the loop. NULL is fine. */
void table_close(struct table *t);

/* Sends the sandbox's entry to all. */
void table_put(struct table *t, const struct sandbox *sb);
/* Calls `done` once egress has confirmed that the sandbox's present rules are in force, or is away (then nothing
 * leads out of it, and they hold when it comes back), or let TABLE_DROP_MS pass: then it is disconnected. From the loop
 * or at once. */
void table_confirm(struct table *t, const struct sandbox *sb, void (*done)(void *user), void *user);
/* Asks one gateway whether the sandbox's daemon answers. `done` once, from the loop, unless this fails (UNAVAILABLE: there is
 * no gateway): NULL, or why it is not healthy. */
int table_check(struct table *t, const char *id,
                void (*done)(void *user, const struct abx_err *failure), void *user,
                struct abx_err *err);
/* Tells all to drop it; lifecycle_told follows. False: there is no gateway. */
bool table_drop(struct table *t, const char *id);
/* Tells all to hold its requests; lifecycle_held follows. False: there is no gateway. */
bool table_hold(struct table *t, const char *id);
size_t table_gateways(const struct table *t);
