/* sandbox.h - a sandbox's address: what every request into it needs (layer 2).
 *
 * Immutable after sandbox_new; shared by an atomic count. Strings are owned, NULL = not told.
 */
#pragma once

#include <stdatomic.h>

#include "abx/sandbox.h"
#include "base/buf.h"
#include "base/err.h"

struct abx_sandbox {
    atomic_int refs;
    abx_config *config;
    char *id; /* as given: may have "-<client id>" behind it */
    char *template_id, *envd_version, *access_token, *traffic_token, *domain;
    char *envd_url;        /* base URL for RPC and files, no slash at the end */
    char *envd_direct_url; /* for URLs given away: never the shared host */
    bool
        by_headers; /* envd_url serves every port, told apart by header; else it has the host form */
    unsigned envd[3]; /* version, parsed; unknown = 99.99.99 */
    bool protobuf;    /* codec of RPC: by the config, else as the server offered */
};

/* INVALID_ARGUMENT unless `id` (may be NULL) is 1 to 128 characters of [A-Za-z0-9-_]. */
int sandbox_id_check(const char *id, struct abx_err *err);

/* As abx_sandbox_new, which this is, with whole `parts`. */
int sandbox_new(abx_config *config, const struct abx_sandbox_parts *parts, abx_sandbox **ret,
                struct abx_err *err);

/* Deadline of a call in `sb`, from its request_timeout_ms. INVALID_ARGUMENT when that is out of range and when `sb` is
 * NULL: the first check of every call. */
int sandbox_deadline(const abx_sandbox *sb, int64_t request_timeout_ms, int64_t *ret_ns,
                     struct abx_err *err);

/* Is its envd at least major.minor.patch? */
bool sandbox_has_envd(const abx_sandbox *sb, unsigned major, unsigned minor, unsigned patch);
/* The same as a check: ABX_REASON_TEMPLATE_TOO_OLD names what needs it and both versions. */
int sandbox_need_envd(const abx_sandbox *sb, unsigned major, unsigned minor, unsigned patch,
                      const char *what, struct abx_err *err);

/* Headers of every request to one of its ports: E2b-Sandbox-Id, E2b-Sandbox-Port, X-Access-Token when there is a
 * token (`port` 49983 and 49999), E2B-Traffic-Access-Token (other ports and 49999), the config's sandbox headers (which
 * replace ours of the same name), and for `user` (may be NULL) Authorization: Basic. Texts of the pairs are borrowed from
 * the sandbox or live in `mem`, which must not grow as long as they are in use. Returns the count, or a code. */
#define SANDBOX_HEADERS_MAX 40
int sandbox_headers(const abx_sandbox *sb, uint16_t port, const char *user, struct buf *mem,
                    struct abx_pair to[SANDBOX_HEADERS_MAX], struct abx_err *err);
/* Base URL of one of its ports ("https://49999-<id>.<domain>", or envd's own base, routed by headers,
 * when that is not the host form). Owned: free(). */
int sandbox_port_url(const abx_sandbox *sb, uint16_t port, char **ret, struct abx_err *err);
