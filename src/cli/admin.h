/* admin.h - asking a service over its admin socket, or its programs when it does not run.
 *
 * Operations are JSON objects {"op": NAME, ...}; src/control/admin.h lists them.
 */
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"

/* One operation over the socket at `path`; takes `request` (NULL = out of memory). *ret_reply is
 * owned by the caller. UNAVAILABLE when nobody listens, DEADLINE_EXCEEDED after timeout_s;
 * otherwise the service's own error. */
int admin_call(const char *path, json_t *request, int timeout_s, json_t **ret_reply,
               struct abx_err *err);

/* One operation on the service of `data_dir`: over the socket when it runs, else through
 * `abx-control --admin` on its database. Takes `request`. */
int admin_op(const char *data_dir, json_t *request, json_t **ret_reply, struct abx_err *err);

/* Like admin_op, but only on a running service. */
int admin_op_running(const char *data_dir, json_t *request, json_t **ret_reply,
                     struct abx_err *err);

/* Runs a program of libexec with `argv` (argv[0] is its name) and `input` on its standard input;
 * collects its standard output (at most the limit of `out`) and waits for at most `timeout_s`.
 * *ret_status is the wait status. */
int admin_run(const char *program, char *const argv[], struct slice input, unsigned timeout_s,
              struct buf *out, int *ret_status, struct abx_err *err);
