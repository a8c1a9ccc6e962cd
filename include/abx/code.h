/* code.h - the code interpreter of a sandbox, port 49999 (e2b.md 5, client.md 3.7). */
#ifndef ABX_CODE_H
#define ABX_CODE_H

#include "abx/sandbox.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ABX_CODE_PORT 49999

struct abx_code_opts {
    size_t size;
    const char *language;   /* "python" ...; NULL = python; not together with context_id */
    const char *context_id; /* NULL = the language's default context */
    const struct abx_pair *envs;
    size_t env_count;
    int64_t timeout_ms;         /* between lines: ABX_UNSET = 300,000, 0 = none */
    int64_t request_timeout_ms; /* until the answer begins */
};
#define ABX_CODE_OPTS_INIT                                                                         \
    { sizeof(struct abx_code_opts), NULL, NULL, NULL, 0, ABX_UNSET, ABX_UNSET }
/* POST /execute: one DATA event per line, each one JSON object with "type" (checked; keepalives are left out). Ends with an
 * error when the stream is cut: DATA_LOSS, never a silent empty success. */
ABX_EXPORT abx_call *abx_code_run(abx_client *client, const abx_sandbox *sandbox, const char *code,
                                  const struct abx_code_opts *opts);
/* POST /contexts; NULL = the server's default. Result: JSON {id, language, cwd}. */
ABX_EXPORT abx_call *abx_code_context_create(abx_client *client, const abx_sandbox *sandbox,
                                             const char *language, const char *cwd,
                                             int64_t request_timeout_ms);
/* GET /contexts. Result: JSON, an array of the same. */
ABX_EXPORT abx_call *abx_code_context_list(abx_client *client, const abx_sandbox *sandbox,
                                           int64_t request_timeout_ms);
/* POST /contexts/{id}/restart. Result: NONE. */
ABX_EXPORT abx_call *abx_code_context_restart(abx_client *client, const abx_sandbox *sandbox,
                                              const char *context_id, int64_t request_timeout_ms);
/* DELETE /contexts/{id}. Result: NONE. */
ABX_EXPORT abx_call *abx_code_context_remove(abx_client *client, const abx_sandbox *sandbox,
                                             const char *context_id, int64_t request_timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
