/* create_request.h - the body of POST /sandboxes and POST /v2/sandboxes: what is allowed, in E2B's
 * words (e2b.md 1.3).
 *
 * Pure: JSON in, a checked request out. Parts of the protocol that this service does not have yet
 * are refused rather than dropped without a word: 501 for autoPause and iam, 403 for an
 * egress proxy, 400 for volumes, of which there are none.
 */
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"

#define CREATE_METADATA_MAX (64u << 10) /* bytes of all keys and values */
/* With CREATE_ENV_FRAME for each, around its name and value: they have to fit into one message to the engine
 * (IPC_FRAME_MAX). */
#define CREATE_ENVS_MAX (60u << 10)
#define CREATE_ENV_FRAME 12u
/* A command that does nothing runs with 1 MiB of memory, but a script dies with 1, Python with 2 and
 * crawls with 4, and cgroup v2 counts the kernel's memory besides. Disks go along with it. */
#define CREATE_MEMORY_MIN_MB 16u
#define CREATE_DISK_MIN_MB 16u

struct create_limits {
    int64_t max_timeout_s;
    uint32_t cpu_count, memory_mb, disk_mb; /* defaults */
    uint32_t max_cpu_count, max_memory_mb, max_disk_mb;
};

struct create_request {
    const char *template_text; /* borrowed from the body */
    int64_t timeout_s;
    bool is_secure;
    uint32_t cpu_count, memory_mb, disk_mb;
    const json_t *envs; /* object of strings, borrowed; NULL = none */
    json_t *config;     /* owned: metadata, allowInternetAccess, network, lifecycle, mcp */
};

/* INVALID_ARGUMENT (400), PERMISSION_DENIED (403) or UNIMPLEMENTED (501). Initializes *ret, which
 * needs create_request_done in any case. */
int create_request_parse(json_t *body, bool is_v2, const struct create_limits *limits,
                         struct create_request *ret, struct abx_err *err);
void create_request_done(struct create_request *r);

/* Checks a timeout in seconds with E2B's texts. */
int timeout_check(int64_t timeout_s, int64_t max_timeout_s, struct abx_err *err);
/* A member that has to be an integer: 1 = found, 0 = absent or null, < 0 = of another type. */
int json_get_int(const json_t *object, const char *name, int64_t *ret, struct abx_err *err);
/* Likewise for a boolean. */
int json_get_bool(const json_t *object, const char *name, bool *ret, struct abx_err *err);
