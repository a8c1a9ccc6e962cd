/* admin.h - operations of the admin socket (SEQPACKET, Frame.admin / admin_reply, uid 0 only).
 *
 * A request is a JSON object with "op"; the answer is a JSON object, on failure
 * {"error":{"code":"not_found","message":"..."}}. The same operations run without a service by
 * `abx-control --data-dir D --admin`: one request on standard input, one answer on standard output,
 * under the owner of the database (root drops to it first); those marked (running) answer
 * `unavailable` then.
 *
 *   info                                      -> {"release","instance","engine_up":bool,"sandboxes":N}
 *   key.create {name?, scopes?:[str], expires_in_s?, team?}
 *                                             -> {"id","key","name","created_at"}: the only time that
 *                                                the key itself is told
 *   key.list {after?:id}                      -> {"keys":[{"id","name","prefix","scopes","team",
 *                                                "created_at","last_used_at","expires_at","revoked_at"}],"more":bool},
 *                                                at most 200 at once, in the order of their making
 *   key.revoke {id}                           -> {"id"}; id or the key itself; open requests finish
 *   key.check {key}                           -> {"id","name","active":bool}; not_found
 *   template.list           (running)         -> {"templates":[{"name","digest","created_at",
 *                                                "size_bytes","suite"}]}
 *   audit {repair?:bool}    (running)         -> {"findings":[str],"repaired":N}
 *
 * Times are RFC 3339 or null.
 */
#pragma once

#include <jansson.h>

#include "control/control.h"

/* Runs one operation. `done` comes exactly once, from inside the call or later from the loop, with
 * the reply (borrowed; NULL when out of memory). */
typedef void (*admin_done_fn)(void *user, json_t *reply);
void admin_run(struct control *c, const json_t *request, admin_done_fn done, void *user);

struct ipc_listener;

/* Serves the operations on the listening SEQPACKET socket `fd` (owned) to peers with one of the
 * uids, until the listener is freed. */
int admin_listen(struct control *c, int fd, const uid_t *uids, size_t n_uids,
                 struct ipc_listener **ret, struct abx_err *err);
