/* git.h - what the git helper needs besides abx_command_run: argument vectors and output parsers.
 *
 * Git runs in the sandbox; these functions touch no network. (client.md 1.6.)
 */
#ifndef ABX_GIT_H
#define ABX_GIT_H

#include <stddef.h>
#include <stdint.h>

#include "abx/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A shell command of quoted words: 'git' '-C' '<repo>' 'status' ... Each word is wrapped in single
 * quotes. `repo` NULL = no -C. `*ret` owned: free(). Errors: RESOURCE_EXHAUSTED. */
ABX_EXPORT int abx_git_command(const char *repo, const char *const *args, size_t arg_count,
                               char **ret, struct abx_error *err);

/* `url` with user and password in it, percent-encoded (http and https only), or with them removed when `username` is NULL.
 * `*ret` owned: free(). Errors: INVALID_ARGUMENT. */
ABX_EXPORT int abx_git_url(const char *url, const char *username, const char *password, char **ret,
                           struct abx_error *err);

struct abx_git_file {
    const char *path;
    const char *renamed_from; /* NULL = not renamed */
    char index;               /* ' ', 'M', 'A', 'D', 'R', 'C', 'U', '?', '!' */
    char worktree;
};
struct abx_git_status {
    const char *branch;   /* NULL = detached or unborn without a name */
    const char *upstream; /* NULL = none */
    int64_t ahead, behind;
    int detached;
    const struct abx_git_file *files;
    size_t file_count;
};
/* Parses `git status --porcelain=1 -b`. `*ret` owned: abx_git_status_free. */
ABX_EXPORT int abx_git_status_parse(const char *text, struct abx_git_status **ret,
                                    struct abx_error *err);
ABX_EXPORT void abx_git_status_free(struct abx_git_status *status);

/* Says from git's output whether it failed for want of credentials (1), of an upstream (2), else 0. */
ABX_EXPORT int abx_git_failure(const char *out, const char *err_text);

#ifdef __cplusplus
}
#endif
#endif
