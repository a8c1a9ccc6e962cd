/* probe.h - what this machine can do for sandboxes: `abx doctor`.
 *
 * Every check tries the thing itself, in a child process with a deadline, and removes what it made:
 * no check trusts a version number, a file that exists or a capability bit alone.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

enum probe_status {
    PROBE_OK,
    PROBE_INFO,     /* good to know, changes nothing */
    PROBE_DEGRADED, /* sandboxes run with less */
    PROBE_MISSING,  /* sandboxes can't run */
};

/* One line of the result, all texts in English sentences without a full stop. */
struct probe_check {
    char name[32];
    enum probe_status status;
    char value[224];   /* what was found */
    char meaning[224]; /* what follows from it; "" when ok */
    char fix[224];     /* how to get it; "" when ok */
};

#define PROBE_CHECKS_MAX 40

struct probe {
    struct probe_check checks[PROBE_CHECKS_MAX];
    size_t n_checks;
};

/* Runs all checks, for a user other than root only those that say something without being root (and the check "root" is
 * `missing`); takes a second, with hanging ones 3 s for each. `data_dir` (absolute, may be
 * missing) says on which file system the pool would be. */
int probe_run(const char *data_dir, struct probe *ret, struct abx_err *err);
const char *probe_status_name(enum probe_status status);
/* No check says `missing`. */
bool probe_can_run(const struct probe *p);
/* {"can_run": bool, "checks": [{"name", "status", "value", "meaning", "fix"}]} and a newline. */
enum buf_status probe_format_json(const struct probe *p, struct buf *b);
/* One or three lines per check, for people. */
enum buf_status probe_format_text(const struct probe *p, struct buf *b);

/* abx-engine --probe [--data-dir D] [--text]: prints the result. Exit status 0 when sandboxes can run, 1
 * when not, 2 for a wrong argument. argv[1] is --probe. */
int probe_main(int argc, char **argv);
