/* session.c - see session.h. */
#include "cli/client/session.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/str.h"
#include "cli/client/output.h"
#include "cli/client/signals.h"

#define KEY_SIZE_MAX 4096u

/* ---- errors ---- */

_printf_(3, 0) static void set_text(struct session *s, int code, const char *fmt, va_list ap)
{
    s->error = (struct abx_error){ .code = code };
    (void)vsnprintf(s->error.message, sizeof s->error.message, fmt, ap);
}

int session_set(struct session *s, int code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    set_text(s, code, fmt, ap);
    va_end(ap);
    return code;
}

int session_set_sys(struct session *s, int sys, const char *fmt, ...)
{
    va_list ap;
    size_t n;

    va_start(ap, fmt);
    set_text(s, err_code_from_errno(sys), fmt, ap);
    va_end(ap);
    s->error.sys = sys;
    n = strlen(s->error.message);
    (void)snprintf(s->error.message + n, sizeof s->error.message - n, ": %s", strerror(sys));
    return s->error.code;
}

/* The sandbox has no such user; envd says so as if it were about credentials. */
static bool is_unknown_user(const struct session *s)
{
    return s->is_inside && s->error.code == ABX_UNAUTHENTICATED && s->args.text[OPT_USER];
}

/* The service does not take the key. */
static bool is_refused(const struct session *s)
{
    if (is_unknown_user(s))
        return false;
    return s->error.http_status == 401 || (s->error.http_status == 403 && !s->is_inside);
}

int session_status(const struct session *s)
{
    const struct abx_error *error = &s->error;

    if (error->code == ABX_CANCELED && s->signo)
        return 128 + s->signo;
    if (is_refused(s))
        return 3;
    switch (error->code) {
    case ABX_OK:
        return 0;
    case ABX_INVALID_ARGUMENT:
    case ABX_OUT_OF_RANGE: /* found here it is a word of the command line */
        return error->http_status == 0 && error->sys == 0 ? 2 : 1;
    case ABX_UNAUTHENTICATED:
        return is_unknown_user(s) ? 1 : 3;
    case ABX_NOT_FOUND:
        return 4;
    case ABX_DEADLINE_EXCEEDED:
        return 5;
    case ABX_RESOURCE_EXHAUSTED:
        return error->reason == ABX_REASON_RATE_LIMITED || error->http_status == 429 ? 6 : 1;
    default:
        return 1;
    }
}

static void hint_of_address(const struct session *s, char *to, size_t size)
{
    const char *origin = "";

    (void)abx_config_get(s->config, "sandbox_base_url", 0, &origin);
    /* Of the default one the message itself says what to do. */
    if (strcmp(origin, "default") != 0)
        (void)snprintf(to, size, "Origin of the address: %s. Is the service running there?",
                       origin);
}

static void hint_of_key(const struct session *s, char *to, size_t size)
{
    static const char *const keys[] = { "sandbox_api_key", "access_token", "access_key_id" };
    const char *origin = "";

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        if (abx_config_get(s->config, keys[i], 0, &origin))
            break;
    (void)snprintf(to, size,
                   "Origin of the key: %s. Unknown there, revoked, expired or not allowed to do "
                   "this? 'abx key create' on the machine of the service makes a new one.",
                   origin);
}

/* What to do next, "" = no idea. */
static void hint_of(const struct session *s, char *to, size_t size)
{
    *to = '\0';
    switch (s->error.reason) {
    case ABX_REASON_SANDBOX_NOT_FOUND:
        (void)snprintf(to, size, "'abx sandbox list' shows what is running.");
        return;
    case ABX_REASON_TEMPLATE_NOT_FOUND:
        (void)snprintf(
            to, size,
            "'abx template list' shows the templates of this machine, 'sudo abx template "
            "build-base' makes the template 'base'.");
        return;
    case ABX_REASON_NAME:
    case ABX_REASON_CONNECT:
    case ABX_REASON_TLS:
        hint_of_address(s, to, size);
        return;
    case ABX_REASON_SANDBOX_GONE:
        (void)snprintf(to, size, "Its time was over, or somebody killed it.");
        return;
    default:
        break;
    }
    if (is_refused(s))
        hint_of_key(s, to, size);
    else if (is_unknown_user(s))
        (void)snprintf(to, size, "'abx sandbox exec ID getent passwd' lists the users there.");
    else if (s->error.code == ABX_UNIMPLEMENTED && s->error.http_status == 501)
        (void)snprintf(to, size,
                       "Not every service has everything: what 'abx serve' does not do yet is in "
                       "its README.");
}

static json_t *error_json(const struct abx_error *e, const char *message, const char *hint)
{
    return json_pack("{s:{s:s,s:o,s:i,s:o}}", "error", "code", abx_error_name(e->code), "message",
                     json_text(message), "http_status", e->http_status, "hint",
                     *hint ? json_text(hint) : json_null());
}

static int fail_with(struct session *s, const char *message)
{
    char hint[512];
    bool is_red = output_has_colour(STDERR_FILENO);

    if (s->config)
        hint_of(s, hint, sizeof hint);
    else
        *hint = '\0';
    (void)fflush(stdout);
    (void)fputs(is_red ? "\033[31mabx:\033[0m " : "abx: ", stderr);
    output_text(stderr, message);
    (void)fputc('\n', stderr);
    if (*hint)
        (void)fprintf(stderr, "%s\n", hint);
    if (session_is_json(s))
        (void)output_json(error_json(&s->error, message, hint));
    return session_status(s);
}

int session_fail(struct session *s)
{
    return fail_with(s, s->error.message);
}

int session_fail_at(struct session *s, const char *fmt, ...)
{
    char text[2 * ABX_ERROR_MESSAGE_SIZE];
    va_list ap;
    size_t n;

    va_start(ap, fmt);
    (void)vsnprintf(text, ABX_ERROR_MESSAGE_SIZE, fmt, ap);
    va_end(ap);
    n = strlen(text);
    (void)snprintf(text + n, sizeof text - n, ": %s", s->error.message);
    return fail_with(s, text);
}

/* ---- opening ---- */

static int read_key(struct session *s, const char *path, char *to, size_t size)
{
    bool is_stdin = strcmp(path, "-") == 0;
    _cleanup_(closep) int fd = is_stdin ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return session_set_sys(s, errno, "--api-key-file '%s'", path);
    n = fd_read_all(fd, to, size - 1);
    if (n < 0)
        return session_set_sys(s, errno, "--api-key-file '%s'", path);
    to[n] = '\0';
    to[strcspn(to, "\r\n")] = '\0';
    if (*to == '\0')
        return session_set(s, ABX_INVALID_ARGUMENT,
                           "--api-key-file '%s' has no key on its first line", path);
    return 0;
}

int session_open(struct session *s)
{
    const struct args *a = &s->args;
    struct abx_config_opts opts = ABX_CONFIG_OPTS_INIT;
    struct abx_client_opts limits = ABX_CLIENT_OPTS_INIT;
    char key[KEY_SIZE_MAX];
    int r = 0;

    opts.profile = a->text[OPT_PROFILE];
    opts.api_url = a->text[OPT_API_URL];
    opts.domain = a->text[OPT_DOMAIN];
    opts.sandbox_url = a->text[OPT_SANDBOX_URL];
    opts.ca_file = a->text[OPT_CA_FILE];
    opts.integration = "abx-cli";
    if (a->number[OPT_REQUEST_TIMEOUT])
        opts.request_timeout_ms = a->number[OPT_REQUEST_TIMEOUT] * 1000;
    if (a->text[OPT_API_KEY] && a->text[OPT_API_KEY_FILE])
        return args_usage(a, "--api-key and --api-key-file are two keys: give one");
    if (a->text[OPT_API_KEY]) {
        (void)fputs("abx: warning: other users of this machine can read --api-key in the list of "
                    "processes; use --api-key-file\n",
                    stderr);
        opts.api_key = a->text[OPT_API_KEY];
    } else if (a->text[OPT_API_KEY_FILE]) {
        r = read_key(s, a->text[OPT_API_KEY_FILE], key, sizeof key);
        opts.api_key = key;
    }
    if (r == 0)
        r = abx_config_load(&opts, &s->config, &s->error);
    limits.config = s->config;
    if (r == 0)
        r = abx_client_new(&limits, &s->client, &s->error);
    explicit_bzero(key, sizeof key);
    return r < 0 ? session_fail(s) : 0;
}

void session_close(struct session *s)
{
    abx_config_unref(s->config);
    abx_client_free(s->client);
    args_done(&s->args);
}

/* ---- calls ---- */

int session_wait(struct session *s, abx_call *call)
{
    if (!call)
        return session_set(s, ABX_RESOURCE_EXHAUSTED, "out of memory");
    while (!abx_call_is_done(call)) {
        int code = abx_call_wait(call, -1, &s->error);

        if (code == ABX_CANCELED && !abx_call_is_done(call) && signals_fd() >= 0) {
            int signo = signals_take_end();

            signals_clear();
            if (signo) {
                abx_call_cancel(call);
                s->signo = signo;
                return session_set(s, ABX_CANCELED, "interrupted (%s)", strsignal(signo));
            }
        }
    }
    s->error = *abx_call_error(call);
    return s->error.code;
}

int session_sandbox(struct session *s, const char *id, abx_sandbox **ret)
{
    _cleanup_(abx_call_freep) abx_call *call =
        abx_sandbox_get_info(s->client, s->config, id, ABX_UNSET);
    struct abx_sandbox_parts parts = ABX_SANDBOX_PARTS_INIT;
    const struct abx_sandbox_info *info;
    size_t n;

    s->is_inside = false;
    if (session_wait(s, call) < 0)
        return s->error.code;
    info = abx_call_sandbox_infos(call, &n);
    if (strcmp(info->state, "paused") == 0)
        return session_set(s, ABX_FAILED_PRECONDITION,
                           "sandbox %s is paused; 'abx sandbox resume %s' lets it go on", id, id);
    parts.sandbox_id = id;
    parts.template_id = info->template_id;
    parts.envd_version = info->envd_version;
    parts.envd_access_token = info->envd_access_token;
    parts.traffic_access_token = info->traffic_access_token;
    parts.domain = info->domain;
    parts.envd_url = info->envd_url;
    parts.protobuf = info->protobuf;
    s->is_inside = true;
    return abx_sandbox_new(s->config, &parts, ret, &s->error);
}
