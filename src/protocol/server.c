/* server.c - addresses of in-image servers and their errors. See server.h. */
#include "protocol/server.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "e2b/jsondoc.h"
#include "protocol/sandbox.h"
#include "transport/call.h"
#include "transport/config.h"
#include "transport/opts.h"

#define SERVER_TIMEOUT_MS 30000
#define SERVER_HEADERS_MAX 80u

/* ---- errors ---- */

struct meaning {
    int status;
    const char *type; /* NULL = any */
    const char *code; /* NULL = any */
    int is;           /* code; 0 = by `reason` */
    enum abx_reason reason;
};

/* The first that fits counts (client.md 4.2, server.md). */
static const struct meaning meanings[] = {
    { 0, "TimeoutError", NULL, 0, ABX_REASON_COMMAND_TIMEOUT },
    { 401, NULL, NULL, ABX_UNAUTHENTICATED, ABX_REASON_NONE },
    { 403, NULL, NULL, ABX_PERMISSION_DENIED, ABX_REASON_NONE },
    { 409, "PolicyDenied", NULL, ABX_PERMISSION_DENIED, ABX_REASON_NONE },
    { 409, NULL, "file_exists", ABX_PERMISSION_DENIED, ABX_REASON_NONE },
    { 409, NULL, NULL, 0, ABX_REASON_CONFLICT },
    { 404, NULL, "endpoint_disabled", ABX_UNIMPLEMENTED, ABX_REASON_NONE },
    { 404, "FileNotFoundError", NULL, 0, ABX_REASON_FILE_NOT_FOUND },
    { 404, "NotADirectoryError", NULL, 0, ABX_REASON_FILE_NOT_FOUND },
    { 404, NULL, NULL, ABX_NOT_FOUND, ABX_REASON_NONE },
    { 400, NULL, NULL, ABX_INVALID_ARGUMENT, ABX_REASON_NONE },
    { 422, NULL, NULL, ABX_INVALID_ARGUMENT, ABX_REASON_NONE },
    { 405, NULL, NULL, 0, ABX_REASON_METHOD },
    { 410, NULL, NULL, 0, ABX_REASON_SAVED_STATE },
    { 413, NULL, NULL, 0, ABX_REASON_TOO_LARGE },
    { 429, NULL, NULL, 0, ABX_REASON_RATE_LIMITED },
    { 502, NULL, NULL, 0, ABX_REASON_UPSTREAM },
    { 503, NULL, NULL, 0, ABX_REASON_BUSY },
    { 504, NULL, NULL, ABX_DEADLINE_EXCEEDED, ABX_REASON_NONE },
    { 507, NULL, NULL, 0, ABX_REASON_DISK_FULL },
};

static const char *member(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text ? text : "";
}

int server_error_from_answer(int status, struct slice body, struct abx_err *err)
{
    _cleanup_(json_unrefp) json_t *doc = NULL;
    const char *type, *code, *text;
    const struct meaning *m = NULL;
    struct abx_err made = { 0 };

    (void)jsondoc_parse(body, &doc, NULL);
    type = member(doc, "type");
    code = member(doc, "code");
    text = member(doc, "error");
    if (!*text)
        text = member(doc, "message");
    for (size_t i = 0; !m && i < ARRAY_SIZE(meanings); i++)
        if ((meanings[i].status == 0 || meanings[i].status == status) &&
            (!meanings[i].type || strcmp(meanings[i].type, type) == 0) &&
            (!meanings[i].code || strcmp(meanings[i].code, code) == 0))
            m = &meanings[i];
    if (!*text)
        (void)err_set(&made, ABX_UNKNOWN, "the server answered with status %d", status);
    else
        (void)err_set(&made, ABX_UNKNOWN, "%s", text);
    if (m && m->is != 0)
        made.code = m->is;
    else if (m)
        (void)err_reason(&made, m->reason, "%s", made.msg);
    if (err)
        *err = made;
    return made.code;
}

/* ---- addresses ---- */

void abx_server_unref(abx_server *s)
{
    if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
        return;
    abx_config_unref(s->config);
    for (size_t i = 0; i < s->header_count; i++) {
        free((char *)(uintptr_t)s->headers[i].key);
        free((char *)(uintptr_t)s->headers[i].value);
    }
    free(s->headers);
    free(s->base_url);
    free(s->query);
    free(s->pty_url);
    free(s);
}

abx_server *abx_server_ref(abx_server *s)
{
    if (s)
        atomic_fetch_add(&s->refs, 1);
    return s;
}

DEFINE_CLEANUP(abx_server *, abx_server_unref)

static bool has_header(const abx_server *s, const char *name)
{
    for (size_t i = 0; i < s->header_count; i++)
        if (strcasecmp(s->headers[i].key, name) == 0)
            return true;
    return false;
}

/* `prefix` and `value` together. */
static int header_add(abx_server *s, const char *key, const char *prefix, const char *value,
                      struct abx_err *err)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(65536);
    struct abx_pair *to = &s->headers[s->header_count];

    if (s->header_count >= SERVER_HEADERS_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "headers: more than %u", SERVER_HEADERS_MAX);
    if (buf_append_str(&b, prefix) != BUF_OK || buf_append_str(&b, value) != BUF_OK)
        return err_set(err, ABX_INVALID_ARGUMENT, "header '%s': over 64 KiB", key);
    to->key = strdup(key);
    to->value = slice_dup(buf_slice(&b));
    s->header_count++;
    return to->key && to->value ? 0 : err_oom(err);
}

static int headers_take(abx_server *s, const struct abx_server_parts *parts, struct abx_err *err)
{
    static const char *const refused[] = { "host", "connection", "content-length",
                                           "transfer-encoding", "upgrade" };
    int r = 0;

    for (size_t i = 0; r == 0 && i < parts->header_count; i++) {
        const struct abx_pair *h = &parts->headers[i];

        if (!h->key || !h->value)
            return err_set(err, ABX_INVALID_ARGUMENT, "headers: name or value is missing");
        for (size_t k = 0; k < ARRAY_SIZE(refused); k++)
            if (strcasecmp(h->key, refused[k]) == 0)
                return err_set(err, ABX_INVALID_ARGUMENT, "header '%s': may not be set", h->key);
        r = header_add(s, h->key, "", h->value, err);
    }
    if (r == 0 && parts->token && !has_header(s, "authorization"))
        r = header_add(s, "Authorization", "Bearer ", parts->token, err);
    if (r == 0 && parts->token && !has_header(s, "x-access-token"))
        r = header_add(s, "X-Access-Token", "", parts->token, err);
    return r;
}

static bool starts_with_any(const char *text, const char *a, const char *b)
{
    return text && (strncasecmp(text, a, strlen(a)) == 0 || strncasecmp(text, b, strlen(b)) == 0);
}

static int urls_take(abx_server *s, const struct abx_server_parts *parts, struct abx_err *err)
{
    size_t n;

    if (!starts_with_any(parts->base_url, "http://", "https://"))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "base_url: has to begin with http:// or https://");
    if (strchr(parts->base_url, '#'))
        return err_set(err, ABX_INVALID_ARGUMENT, "base_url: has a fragment");
    if (parts->pty_url && !starts_with_any(parts->pty_url, "ws://", "wss://"))
        return err_set(err, ABX_INVALID_ARGUMENT, "pty_url: has to begin with ws:// or wss://");
    n = strcspn(parts->base_url, "?");
    s->query = strdup(parts->base_url[n] ? parts->base_url + n + 1 : "");
    while (n > 0 && parts->base_url[n - 1] == '/')
        n--;
    s->base_url = slice_dup(slice_of(parts->base_url, n));
    s->pty_url = parts->pty_url ? strdup(parts->pty_url) : NULL;
    return s->query && s->base_url && (s->pty_url || !parts->pty_url) ? 0 : err_oom(err);
}

static int server_make(abx_config *config, const struct abx_server_parts *given, abx_server **ret,
                       struct abx_err *err)
{
    _cleanup_(abx_server_unrefp) abx_server *s = NULL;
    struct abx_server_parts parts = ABX_SERVER_PARTS_INIT;
    int r = opts_copy(&parts, sizeof parts, given, "abx_server_parts", err);

    if (r < 0)
        return r;
    r = config_check(config, err);
    if (r == 0)
        r = timeout_check(parts.request_timeout_ms, "request_timeout_ms", err);
    if (r == 0)
        r = opts_array_check(parts.headers, parts.header_count, "headers", err);
    if (r < 0)
        return r;
    s = calloc(1, sizeof *s);
    if (!s)
        return err_oom(err);
    s->refs = 1;
    s->config = abx_config_ref(config);
    s->request_timeout_ms =
        parts.request_timeout_ms == ABX_UNSET ? SERVER_TIMEOUT_MS : parts.request_timeout_ms;
    s->headers = calloc(SERVER_HEADERS_MAX, sizeof *s->headers);
    r = s->headers ? urls_take(s, &parts, err) : err_oom(err);
    if (r == 0)
        r = headers_take(s, &parts, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(s);
    return 0;
}

int abx_server_new(abx_config *config, const struct abx_server_parts *parts, abx_server **ret,
                   struct abx_error *err)
{
    struct abx_err why = { 0 };
    int r = server_make(config, parts, ret, &why);

    if (r < 0 && err)
        error_export(&why, 0, err);
    return r;
}

/* "wss://..." out of "https://...". */
static int pty_url_make(const abx_sandbox *sandbox, uint16_t port, struct buf *to,
                        struct abx_err *err)
{
    _cleanup_(freep) char *url = NULL;
    int r = sandbox_port_url(sandbox, port, &url, err);

    if (r < 0)
        return r;
    if (buf_printf(to, "ws%s", url + 4) != BUF_OK || !buf_cstr(to))
        return err_oom(err);
    return 0;
}

static int of_sandbox(const abx_sandbox *sandbox, uint16_t port, uint16_t pty_port,
                      const char *token, abx_server **ret, struct abx_err *err)
{
    struct abx_server_parts parts = ABX_SERVER_PARTS_INIT;
    struct abx_pair headers[SANDBOX_HEADERS_MAX];
    _cleanup_(buf_done) struct buf mem = BUF_INIT(65536), pty = BUF_INIT(65536);
    _cleanup_(freep) char *url = NULL;
    int r = sandbox ? sandbox_port_url(sandbox, port, &url, err)
                    : err_set(err, ABX_INVALID_ARGUMENT, "sandbox: is missing (NULL)");

    if (r == 0)
        r = pty_url_make(sandbox, pty_port, &pty, err);
    if (r == 0)
        r = sandbox_headers(sandbox, port, NULL, &mem, headers, err);
    if (r < 0)
        return r;
    parts.base_url = url;
    parts.pty_url = buf_cstr(&pty);
    parts.token = token;
    parts.headers = headers;
    parts.header_count = (size_t)r;
    return server_make(sandbox->config, &parts, ret, err);
}

int abx_server_of_sandbox(const abx_sandbox *sandbox, uint16_t port, uint16_t pty_port,
                          const char *token, abx_server **ret, struct abx_error *err)
{
    struct abx_err why = { 0 };
    int r = of_sandbox(sandbox, port ? port : ABX_SERVER_PORT,
                       pty_port ? pty_port : ABX_SERVER_PTY_PORT, token, ret, &why);

    if (r < 0 && err)
        error_export(&why, 0, err);
    return r;
}
