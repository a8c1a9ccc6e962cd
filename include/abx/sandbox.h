/* sandbox.h - sandboxes: create, connect, list, and their life (control plane of e2b.md 1).
 *
 * An abx_sandbox is an immutable address: a config, an id, where its envd is and the tokens for it.
 * It is shared by reference count (atomic), holds no connection, and letting it go kills nothing.
 * Times are microseconds since the epoch (UTC), `timeout_s` is seconds from now until the sandbox ends.
 */
#ifndef ABX_SANDBOX_H
#define ABX_SANDBOX_H

#include "abx/client.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct abx_sandbox abx_sandbox;

struct abx_volume_mount {
    const char *name; /* of the volume */
    const char *path; /* absolute, in the sandbox */
};

struct abx_create_opts {
    size_t size;
    const char *template_id; /* NULL = default_template of the config: "base" */
    int64_t timeout_s;       /* 0 = 300 */
    const struct abx_pair *metadata;
    size_t metadata_count;
    const struct abx_pair *envs; /* environment of every command */
    size_t env_count;
    int secure;                /* 0: no access token; ABX_UNSET = 1 */
    int allow_internet_access; /* 0 or 1; ABX_UNSET = 1 */
    int auto_pause;            /* 1: pause at the end of the time, do not kill; ABX_UNSET = 0 */
    int auto_pause_memory;     /* 0: file system only; ABX_UNSET = 1 */
    int auto_resume;           /* 1: traffic resumes it; ABX_UNSET = 0 */
    const char *network_json;  /* object `network` of e2b.md 1.3, or NULL */
    const char *mcp_json;      /* object `mcp`, or NULL */
    const char *iam_json;      /* object `iam`, or NULL */
    const struct abx_volume_mount *mounts;
    size_t mount_count;
    int cpu_count; /* 0 = the template's (servers that take sizes per sandbox) */
    int memory_mb;
    int disk_mb;
    const char *idempotency_key; /* 1..255 of [a-z0-9-]; NULL = one of our own per call */
    int64_t request_timeout_ms;  /* ABX_UNSET = the config's, 0 = none */
};
#define ABX_CREATE_OPTS_INIT                                                                       \
    { sizeof(struct abx_create_opts),                                                              \
      NULL,                                                                                        \
      0,                                                                                           \
      NULL,                                                                                        \
      0,                                                                                           \
      NULL,                                                                                        \
      0,                                                                                           \
      ABX_UNSET,                                                                                   \
      ABX_UNSET,                                                                                   \
      ABX_UNSET,                                                                                   \
      ABX_UNSET,                                                                                   \
      ABX_UNSET,                                                                                   \
      NULL,                                                                                        \
      NULL,                                                                                        \
      NULL,                                                                                        \
      NULL,                                                                                        \
      0,                                                                                           \
      0,                                                                                           \
      0,                                                                                           \
      0,                                                                                           \
      NULL,                                                                                        \
      ABX_UNSET }

/* POST /sandboxes. The answer may be asked for again (own Idempotency-Key). Result: SANDBOX. An envd older than 0.1.0: the
 * sandbox is killed, ABX_REASON_TEMPLATE_TOO_OLD. Errors: UNAUTHENTICATED, NOT_FOUND (template),
 * RESOURCE_EXHAUSTED. Since 0.1. */
ABX_EXPORT abx_call *abx_sandbox_create(abx_client *client, abx_config *config,
                                        const struct abx_create_opts *opts);

/* POST /sandboxes/{id}/connect: resumes a paused one, never shortens the time of a running one.
 * `timeout_s` 0 = 300. Result: SANDBOX. Errors: NOT_FOUND (ABX_REASON_SANDBOX_NOT_FOUND). */
ABX_EXPORT abx_call *abx_sandbox_connect(abx_client *client, abx_config *config,
                                         const char *sandbox_id, int64_t timeout_s,
                                         int64_t request_timeout_ms);

/* The sandbox of a finished create or connect, owned: abx_sandbox_unref. NULL when taken already. */
ABX_EXPORT abx_sandbox *abx_call_take_sandbox(abx_call *call);

/* An address from its parts, without asking anyone (`envd_version`, tokens, `domain`, `envd_url` may be NULL). Errors:
 * INVALID_ARGUMENT, RESOURCE_EXHAUSTED. */
struct abx_sandbox_parts {
    size_t size;
    const char *sandbox_id;
    const char *template_id;
    const char *envd_version;
    const char *envd_access_token;
    const char *traffic_access_token;
    const char *domain;
    const char *envd_url;
    int protobuf; /* the server said that it takes it */
};
#define ABX_SANDBOX_PARTS_INIT                                                                     \
    { sizeof(struct abx_sandbox_parts), NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0 }
ABX_EXPORT int abx_sandbox_new(abx_config *config, const struct abx_sandbox_parts *parts,
                               abx_sandbox **ret, struct abx_error *err);
ABX_EXPORT abx_sandbox *abx_sandbox_ref(abx_sandbox *sandbox);
ABX_EXPORT void abx_sandbox_unref(abx_sandbox *sandbox); /* NULL allowed */

/* Borrowed until the sandbox is gone; NULL where the server told none. */
ABX_EXPORT const char *abx_sandbox_id(const abx_sandbox *sandbox);
ABX_EXPORT const char *abx_sandbox_template_id(const abx_sandbox *sandbox);
ABX_EXPORT const char *abx_sandbox_envd_version(const abx_sandbox *sandbox);
ABX_EXPORT const char *abx_sandbox_domain(const abx_sandbox *sandbox);
ABX_EXPORT const char *abx_sandbox_access_token(const abx_sandbox *sandbox);
ABX_EXPORT const char *abx_sandbox_traffic_token(const abx_sandbox *sandbox);
/* Base URL that envd calls use: sandbox_url of the config > debug > envdUrl of the answer > an explicit
 * http:// base URL > https host form. `direct` skips the shared host of some domains (client.md 2.3). */
ABX_EXPORT const char *abx_sandbox_envd_url(const abx_sandbox *sandbox, int direct);
ABX_EXPORT abx_config *abx_sandbox_config(const abx_sandbox *sandbox);

/* "<port>-<id>.<domain>", "localhost:<port>" in debug. Owned: free(). NULL when out of memory. */
ABX_EXPORT char *abx_sandbox_host(const abx_sandbox *sandbox, uint16_t port);

/* Signed URL of a file (client.md 3.5): `operation` is "read" or "write"; `user` NULL = default;
 * `expires_in_s` ABX_UNSET = never. `*ret` owned: free(). Errors: INVALID_ARGUMENT (an expiry without a token). */
ABX_EXPORT int abx_sandbox_file_url(const abx_sandbox *sandbox, const char *path,
                                    const char *operation, const char *user, int64_t expires_in_s,
                                    char **ret, struct abx_error *err);
/* Signature "v1_..." alone; `*ret_expiration` (may be NULL) unix seconds. `*ret` owned: free(). */
ABX_EXPORT int abx_signature_make(const char *path, const char *operation, const char *user,
                                  const char *access_token, int64_t expires_in_s, char **ret,
                                  int64_t *ret_expiration, struct abx_error *err);

/* DELETE /sandboxes/{id}. Result: BOOL, 0 = there was none. Safe to ask again. */
ABX_EXPORT abx_call *abx_sandbox_kill(abx_client *client, abx_config *config,
                                      const char *sandbox_id, int64_t request_timeout_ms);
/* POST /sandboxes/{id}/timeout: `timeout_s` from now, may shorten. Result: NONE. */
ABX_EXPORT abx_call *abx_sandbox_set_timeout(abx_client *client, abx_config *config,
                                             const char *sandbox_id, int64_t timeout_s,
                                             int64_t request_timeout_ms);
/* GET envd /health. Result: BOOL, 0 = the gateway knows no such running sandbox (502 "was not found"). */
ABX_EXPORT abx_call *abx_sandbox_is_running(abx_client *client, const abx_sandbox *sandbox,
                                            int64_t request_timeout_ms);
/* POST /sandboxes/{id}/pause. `memory` 0: file system only. Result: BOOL, 0 = was paused (409). */
ABX_EXPORT abx_call *abx_sandbox_pause(abx_client *client, abx_config *config,
                                       const char *sandbox_id, int memory,
                                       int64_t request_timeout_ms);
/* The same, but only while the sandbox's daemon answers that it is well (requireHealthyGuest, e2b.md 1.2). Result: BOOL, 0 = was
 * paused. Errors: UNAVAILABLE, it does not answer and the sandbox runs on (503). Since 0.1. */
ABX_EXPORT abx_call *abx_sandbox_pause_strict(abx_client *client, abx_config *config,
                                              const char *sandbox_id, int memory,
                                              int64_t request_timeout_ms);
/* PUT /sandboxes/{id}/network: replaces all rules by the object `network_json`. Result: NONE. */
ABX_EXPORT abx_call *abx_sandbox_update_network(abx_client *client, abx_config *config,
                                                const char *sandbox_id, const char *network_json,
                                                int64_t request_timeout_ms);

/* ---- what is known of sandboxes ---- */

struct abx_sandbox_info {
    const char *sandbox_id;
    const char *template_id;
    const char *alias; /* NULL = none */
    const char *client_id;
    const char *state;  /* "running", "paused", "snapshotting", "snapshot_failed" or a newer one */
    const char *domain; /* NULL = the config's */
    const char *envd_version;
    const char *envd_access_token; /* secret; NULL = not told */
    const char *envd_url;          /* NULL = not told */
    int64_t started_at_us;
    int64_t end_at_us;
    int64_t cpu_count;
    int64_t memory_mb;
    int64_t disk_mb;
    int allow_internet_access; /* ABX_UNSET = not told */
    const char *on_timeout;    /* "kill", "pause", NULL = not told */
    int auto_resume;           /* ABX_UNSET = not told */
    const char *network_json;  /* NULL = not told */
    const struct abx_pair *metadata;
    size_t metadata_count;
    const struct abx_volume_mount *mounts;
    size_t mount_count;
    const char *traffic_access_token; /* secret; NULL = not told */
    int protobuf;                     /* 1: the server said that its envd takes it */
};
/* GET /sandboxes/{id}. Result: SANDBOX_INFOS with one. What it tells is enough for abx_sandbox_new, which then
 * reaches a running sandbox without changing its time, as connect would. */
ABX_EXPORT abx_call *abx_sandbox_get_info(abx_client *client, abx_config *config,
                                          const char *sandbox_id, int64_t request_timeout_ms);

struct abx_list_opts {
    size_t size;
    const struct abx_pair *metadata; /* all must match */
    size_t metadata_count;
    const char *states; /* "running", "running,paused"; NULL = the server's default */
    const char *template_id;
    int limit;              /* 1..100, 0 = the server's default */
    const char *next_token; /* of the page before */
    int64_t request_timeout_ms;
};
#define ABX_LIST_OPTS_INIT { sizeof(struct abx_list_opts), NULL, 0, NULL, NULL, 0, NULL, ABX_UNSET }
/* GET /v2/sandboxes, one page. Result: SANDBOX_INFOS and abx_call_next_token. */
ABX_EXPORT abx_call *abx_sandbox_list(abx_client *client, abx_config *config,
                                      const struct abx_list_opts *opts);
/* Borrowed until the call is freed. */
ABX_EXPORT const struct abx_sandbox_info *abx_call_sandbox_infos(const abx_call *call,
                                                                 size_t *ret_count);

struct abx_metrics {
    int64_t timestamp_us;
    double cpu_used_pct;
    int64_t cpu_count;
    int64_t mem_used, mem_total, mem_cache; /* bytes */
    int64_t disk_used, disk_total;
};
/* GET /sandboxes/{id}/metrics; `start_s`, `end_s` unix seconds, 0 = open. Result: METRICS. */
ABX_EXPORT abx_call *abx_sandbox_get_metrics(abx_client *client, abx_config *config,
                                             const char *sandbox_id, int64_t start_s, int64_t end_s,
                                             int64_t request_timeout_ms);
ABX_EXPORT const struct abx_metrics *abx_call_metrics(const abx_call *call, size_t *ret_count);

struct abx_log_entry {
    int64_t timestamp_us;
    const char *level; /* "info" ... */
    const char *message;
    const char *fields_json; /* object of strings */
};
struct abx_logs_opts {
    size_t size;
    int64_t cursor_ms; /* 0 = from the beginning (forward) or the end (backward) */
    int limit;         /* 0 = the server's default */
    int backward;
    const char *level;  /* least one, NULL = all */
    const char *search; /* text in the message, NULL = all */
    int64_t request_timeout_ms;
};
#define ABX_LOGS_OPTS_INIT { sizeof(struct abx_logs_opts), 0, 0, 0, NULL, NULL, ABX_UNSET }
/* GET /v2/sandboxes/{id}/logs. Result: LOGS. */
ABX_EXPORT abx_call *abx_sandbox_get_logs(abx_client *client, abx_config *config,
                                          const char *sandbox_id, const struct abx_logs_opts *opts);
ABX_EXPORT const struct abx_log_entry *abx_call_logs(const abx_call *call, size_t *ret_count);

/* ---- snapshots and forks ---- */

struct abx_snapshot {
    const char *snapshot_id; /* usable as template_id */
    const char *const *names;
    size_t name_count;
};
/* POST /sandboxes/{id}/snapshots. `name` NULL = generated. Result: SNAPSHOTS with one. */
ABX_EXPORT abx_call *abx_snapshot_create(abx_client *client, abx_config *config,
                                         const char *sandbox_id, const char *name,
                                         int64_t request_timeout_ms);
/* GET /snapshots, one page; filters NULL = all, `limit` 0 = the server's. Result: SNAPSHOTS. */
ABX_EXPORT abx_call *abx_snapshot_list(abx_client *client, abx_config *config,
                                       const char *sandbox_id, const char *name, int limit,
                                       const char *next_token, int64_t request_timeout_ms);
/* DELETE /templates/{id}. Result: BOOL, 0 = there was none. */
ABX_EXPORT abx_call *abx_snapshot_delete(abx_client *client, abx_config *config,
                                         const char *snapshot_id, int64_t request_timeout_ms);
ABX_EXPORT const struct abx_snapshot *abx_call_snapshots(const abx_call *call, size_t *ret_count);
/* POST /sandboxes/{id}/rollback: the sandbox's files as the snapshot `snapshot_id` (or of that name) has them, in place; its
 * processes end, and it starts anew, unless it is paused: then it stays so. When it fails, the sandbox goes on as it was;
 * but if it has the files and cannot be started with them, it is paused with them, which the message says. Not in E2B.
 * Result: SANDBOX_INFOS with one. Errors: NOT_FOUND (no such sandbox or snapshot), INVALID_ARGUMENT (a snapshot that does
 * not fit), UNIMPLEMENTED (another server). Since 0.1. */
ABX_EXPORT abx_call *abx_sandbox_rollback(abx_client *client, abx_config *config,
                                          const char *sandbox_id, const char *snapshot_id,
                                          int64_t request_timeout_ms);
/* POST /sandboxes/{id}/fork: `count` 1..100 copies that live `timeout_s` seconds, 0 = the server's default. Result: JSON, the
 * array of e2b.md 1.2: for each copy an object with `sandbox` (as create answers) or `error` (`code`, `message`). Errors:
 * NOT_FOUND (ABX_REASON_SANDBOX_NOT_FOUND), INVALID_ARGUMENT; ABX_REASON_CONFLICT (status 409) of a paused one. */
ABX_EXPORT abx_call *abx_sandbox_fork(abx_client *client, abx_config *config,
                                      const char *sandbox_id, int count, int64_t timeout_s,
                                      int64_t request_timeout_ms);

/* ---- every other route ---- */

struct abx_control_opts {
    size_t size;
    const char *method;    /* "GET" ... */
    const char *path;      /* "/templates/x%2Fy", already percent-encoded, begins with '/' */
    const char *query;     /* "a=b&c=d", encoded, or NULL */
    const char *body_json; /* or NULL; checked to be JSON */
    int64_t request_timeout_ms;
};
#define ABX_CONTROL_OPTS_INIT { sizeof(struct abx_control_opts), NULL, NULL, NULL, NULL, ABX_UNSET }
/* One control-plane request with the config's base URL, credentials and errors; GET and HEAD are retried as reads.
 * Result: JSON ("null" when the answer has no body) and abx_call_next_token. */
ABX_EXPORT abx_call *abx_control_request(abx_client *client, abx_config *config,
                                         const struct abx_control_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
