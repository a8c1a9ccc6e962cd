/* signed_url.c - signed URLs of files (abx/sandbox.h; client.md 3.5, e2b.md 4.4). */
#include <inttypes.h>

#include "base/str.h"
#include "e2b/tokens.h"
#include "protocol/sandbox.h"
#include "transport/call.h"

static int check_operation(const char *operation, struct abx_err *err)
{
    if (operation && (strcmp(operation, "read") == 0 || strcmp(operation, "write") == 0))
        return 0;
    return err_set(err, ABX_INVALID_ARGUMENT, "operation: has to be 'read' or 'write'");
}

/* Unix seconds at which a signature ends. */
static int end_of(int64_t expires_in_s, int64_t *ret, struct abx_err *err)
{
    *ret = SIGNATURE_NO_EXPIRATION;
    if (expires_in_s == ABX_UNSET)
        return 0;
    if (expires_in_s < 0 || __builtin_add_overflow(time_wall_ms() / 1000, expires_in_s, ret))
        return err_set(err, ABX_INVALID_ARGUMENT, "expiry: %" PRId64 " seconds from now",
                       expires_in_s);
    return 0;
}

static int signature_new(const char *path, const char *operation, const char *user,
                         const char *token, int64_t expires_in_s, char to[SIGNATURE_SIZE],
                         int64_t *ret_expiration, struct abx_err *err)
{
    int r = check_operation(operation, err);

    if (r == 0 && !path)
        r = err_set(err, ABX_INVALID_ARGUMENT, "path: is missing (NULL)");
    if (r == 0 && !token)
        r = err_set(err, ABX_INVALID_ARGUMENT, "access token: is missing (NULL)");
    if (r == 0)
        r = end_of(expires_in_s, ret_expiration, err);
    if (r == 0)
        signature_make(slice_str(path), operation, slice_str(user), slice_str(token),
                       *ret_expiration, to);
    return r;
}

int abx_signature_make(const char *path, const char *operation, const char *user,
                       const char *access_token, int64_t expires_in_s, char **ret,
                       int64_t *ret_expiration, struct abx_error *error)
{
    char signature[SIGNATURE_SIZE];
    struct abx_err err = { 0 };
    int64_t end;
    char *copy = NULL;
    int r = signature_new(path, operation, user, access_token, expires_in_s, signature, &end, &err);

    if (r == 0) {
        copy = slice_dup(slice_str(signature));
        r = copy ? 0 : err_oom(&err);
    }
    if (r < 0) {
        if (error)
            error_export(&err, 0, error);
        return r;
    }
    *ret = copy;
    if (ret_expiration)
        *ret_expiration = expires_in_s == ABX_UNSET ? 0 : end;
    return 0;
}

static bool put(struct buf *b, const char *before, const char *text)
{
    return buf_append_str(b, before) == BUF_OK && percent_encode(b, slice_str(text)) == BUF_OK;
}

static int url_make(const abx_sandbox *sb, const char *path, const char *operation,
                    const char *user, int64_t expires_in_s, struct buf *url, struct abx_err *err)
{
    char signature[SIGNATURE_SIZE] = "";
    int64_t end = SIGNATURE_NO_EXPIRATION;
    bool is_ok;
    int r = check_operation(operation, err);

    /* An envd that knows no default user signs for its name. */
    if (!user && !sandbox_has_envd(sb, 0, 4, 0))
        user = "user";
    if (r == 0 && !path)
        r = err_set(err, ABX_INVALID_ARGUMENT, "path: is missing (NULL)");
    if (r == 0 && !sb->access_token && expires_in_s != ABX_UNSET)
        r = err_set(err, ABX_INVALID_ARGUMENT,
                    "expiry: sandbox %s has no access token, so that nothing can be signed",
                    sb->id);
    if (r == 0 && sb->access_token)
        r = signature_new(path, operation, user, sb->access_token, expires_in_s, signature, &end,
                          err);
    if (r < 0)
        return r;
    is_ok = buf_append_str(url, sb->envd_direct_url) == BUF_OK && put(url, "/files?path=", path) &&
            (!user || put(url, "&username=", user)) &&
            (!*signature || put(url, "&signature=", signature)) &&
            (end == SIGNATURE_NO_EXPIRATION ||
             buf_printf(url, "&signature_expiration=%" PRId64, end) == BUF_OK);
    return is_ok ? 0 : err_oom(err);
}

int abx_sandbox_file_url(const abx_sandbox *sb, const char *path, const char *operation,
                         const char *user, int64_t expires_in_s, char **ret,
                         struct abx_error *error)
{
    _cleanup_(buf_done) struct buf url = BUF_INIT(SIZE_MAX / 4);
    struct abx_err err = { 0 };
    int r = url_make(sb, path, operation, user, expires_in_s, &url, &err);
    char *copy = NULL;

    if (r == 0) {
        copy = slice_dup(buf_slice(&url));
        r = copy ? 0 : err_oom(&err);
    }
    if (r < 0) {
        if (error)
            error_export(&err, 0, error);
        return r;
    }
    *ret = copy;
    return 0;
}
