/* report.h - tells the host which processes clients start and how they end, for the sandbox's logs.
 *
 * One datagram each, without waiting: what does not go now is kept and tried again, up to GUEST_REPORT_MAX bytes and
 * for REPORT_GIVE_UP_MS; what is left out then is counted, and the count told. Never in it: the environment, input and output.
 * Of a command line credentials of URLs are left out, and what stands behind `password=`, `token=` and the like
 * (git credential approve has it there); the rest is what the user wrote, cut.
 */
#pragma once

#include <sys/types.h>
#include <uv.h>

#include "base/buf.h"
#include "base/err.h"
#include "schema/process.pb-c.h"

#define REPORT_TEXT_MAX 384u /* bytes of all arguments together, and of the command */
#define REPORT_ARGS_MAX 16u
#define REPORT_GIVE_UP_MS 60000

struct reports;

/* `name` (borrowed) is the abstract socket's. Never fails later: without a host that listens nothing is told. */
int reports_new(uv_loop_t *loop, const char *name, struct reports **ret, struct abx_err *err);

/* Of `config` the command and its arguments. */
void report_start(struct reports *r, pid_t pid, const Process__ProcessConfig *config,
                  const char *user);
/* `cmd` (as report_text made it) "", `duration_ms` -1: not known. `status` as from waitpid. */
void report_end(struct reports *r, pid_t pid, const char *cmd, int status, int64_t duration_ms,
                bool is_timed_out);

/* Copies `text` as far as it has room (`size` is at least 4), to the end of a character, with "..." where the rest is missing and "***" for the
 * credentials in it. What is not UTF-8 becomes "?". */
void report_text(char *to, size_t size, const char *text);
