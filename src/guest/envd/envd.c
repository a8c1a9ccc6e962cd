/* envd.c - see envd.h. */
#include "guest/envd/envd.h"

#include <stdio.h>
#include <string.h>

#include "base/macro.h"
#include "base/str.h"
#include "e2b/errors.h"
#include "e2b/tokens.h"
#include "guest/envd/call.h"
#include "guest/envd/files.h"
#include "guest/envd/metrics.h"
#include "guest/envd/terminal.h"

#define ENVS_MAX (512u << 10) /* what a message to the guest can hold, each byte escaped */

/* --- answers ----------------------------------------------------------------------------------- */

size_t envd_cors_fields(struct http1_field *to)
{
    to[0] = (struct http1_field){ SLICE_LIT("Access-Control-Allow-Origin"), SLICE_LIT("*") };
    to[1] = (struct http1_field){ SLICE_LIT("Access-Control-Expose-Headers"), SLICE_LIT("*") };
    return 2;
}

static void send_with(struct http_exchange *ex, int status, const char *content_type,
                      const struct http1_field *more, size_t n_more, struct slice body)
{
    struct http1_field fields[ENVD_FIELDS_MAX];
    size_t n = envd_cors_fields(fields);

    if (content_type)
        fields[n++] = (struct http1_field){ SLICE_LIT("Content-Type"), slice_str(content_type) };
    for (size_t i = 0; i < n_more && n < ENVD_FIELDS_MAX; i++)
        fields[n++] = more[i];
    http_exchange_send(ex, status, fields, n, body);
}

void envd_send(struct http_exchange *ex, int status, const char *content_type, struct slice body)
{
    send_with(ex, status, content_type, NULL, 0, body);
}

void envd_empty(struct http_exchange *ex, int status)
{
    envd_send(ex, status, NULL, slice_of(NULL, 0));
}

void envd_error_with(struct http_exchange *ex, int status, const char *message,
                     const struct http1_field *fields, size_t n_fields)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(16384);

    if (e2b_error_body(&b, status, message))
        envd_empty(ex, status);
    else
        send_with(ex, status, "application/json", fields, n_fields, buf_slice(&b));
}

void envd_error(struct http_exchange *ex, int status, const char *message)
{
    envd_error_with(ex, status, message, NULL, 0);
}

void envd_error_from(struct http_exchange *ex, const struct abx_err *err)
{
    envd_error(ex, err_http_status(err), err->msg);
}

/* --- what a request says ------------------------------------------------------------------------ */

bool envd_query(struct slice query, const char *name, char *to, size_t size, bool *ret_is_set)
{
    _cleanup_(buf_done) struct buf value = BUF_INIT(size - 1);

    to[0] = '\0';
    if (ret_is_set)
        *ret_is_set = false;
    while (query.n > 0) {
        const uint8_t *amp = memchr(query.p, '&', query.n);
        size_t n = amp ? (size_t)(amp - query.p) : query.n;
        const uint8_t *eq = memchr(query.p, '=', n);
        size_t key_n = eq ? (size_t)(eq - query.p) : n;
        if (slice_eq_str(slice_of(query.p, key_n), name)) {
            if (eq && (!percent_decode(&value, slice_of(eq + 1, n - key_n - 1), true) ||
                       !utf8_is_valid(buf_slice(&value))))
                return false;
            if (value.len > 0)
                memcpy(to, buf_data(&value), value.len);
            to[value.len] = '\0';
            if (ret_is_set)
                *ret_is_set = true;
            return true;
        }
        query = slice_of(query.p + n + (amp != NULL), query.n - n - (amp != NULL));
    }
    return true;
}

bool envd_token_is_right(const struct envd *e, const struct http1_head *head, bool *ret_is_set)
{
    const struct http1_field *f = http1_head_find(head, "x-access-token");

    *ret_is_set = f != NULL;
    if (e->id->access_token[0] == '\0')
        return true;
    return f && token_equal(f->value, slice_str(e->id->access_token));
}

/* "Basic base64(user:password)"; false when it is of another scheme or malformed. */
static bool basic_user(struct slice value, char *to, size_t size)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(1024);
    const uint8_t *colon;
    struct slice s;

    if (value.n < 6 || !slice_ieq_str(slice_of(value.p, 6), "basic ") ||
        !base64_decode(&text, slice_trim(slice_of(value.p + 6, value.n - 6))))
        return false;
    s = buf_slice(&text);
    colon = s.n > 0 ? memchr(s.p, ':', s.n) : NULL;
    s.n = colon ? (size_t)(colon - s.p) : s.n;
    if (s.n >= size || (s.n > 0 && memchr(s.p, '\0', s.n)) || !utf8_is_valid(s))
        return false;
    if (s.n > 0)
        memcpy(to, s.p, s.n);
    to[s.n] = '\0';
    return true;
}

int envd_user(const struct envd *e, const struct http1_head *head, struct user *ret,
              struct abx_err *err)
{
    const struct http1_field *f = http1_head_find(head, "authorization");
    char name[USER_NAME_MAX] = "";
    int r;

    /* A Bearer token is for someone on the way, not for us. */
    if (f && f->value.n >= 6 && slice_ieq_str(slice_of(f->value.p, 6), "basic ") &&
        !basic_user(f->value, name, sizeof(name)))
        return err_set(err, ABX_UNAUTHENTICATED, "invalid basic credentials");
    r = name[0] ? user_find(name, ret, err) : user_default(e->id->default_user, ret, err);
    if (r == ABX_NOT_FOUND)
        return err_set(err, ABX_UNAUTHENTICATED, "invalid username: '%s'",
                       name[0] ? name : e->id->default_user);
    return r;
}

/* --- routes ------------------------------------------------------------------------------------- */

static void on_preflight(struct http_exchange *ex, const struct http1_head *head)
{
    struct slice asked = http1_head_value(head, "access-control-request-headers");
    struct http1_field fields[ENVD_FIELDS_MAX];
    size_t n = envd_cors_fields(fields);

    fields[n++] = (struct http1_field){ SLICE_LIT("Access-Control-Allow-Methods"),
                                        SLICE_LIT("GET, POST, PUT, DELETE, PATCH, HEAD, OPTIONS") };
    fields[n++] = (struct http1_field){ SLICE_LIT("Access-Control-Allow-Headers"),
                                        asked.n > 0 ? asked : SLICE_LIT("*") };
    fields[n++] = (struct http1_field){ SLICE_LIT("Access-Control-Max-Age"), SLICE_LIT("7200") };
    http_exchange_send(ex, 204, fields, n, slice_of(NULL, 0));
}

/* {"KEY":"value",...} of the sandbox's own environment. */
static void on_envs(struct envd *e, struct http_exchange *ex)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(ENVS_MAX);
    bool bad = buf_append_byte(&b, '{');

    for (size_t i = 0; !bad && i < e->id->n_envs; i++) {
        const char *env = e->id->envs[i], *eq = strchr(env, '=');
        bad = (i > 0 && buf_append_byte(&b, ',')) ||
              json_string_put(&b, slice_of(env, (size_t)(eq - env))) || buf_append_byte(&b, ':') ||
              json_string_put(&b, slice_str(eq + 1));
    }
    if (bad || buf_append_byte(&b, '}'))
        envd_error(ex, 500, "the environment is too large");
    else
        envd_send(ex, 200, "application/json", buf_slice(&b));
}

static void on_plain(struct envd *e, struct http_exchange *ex, const struct http1_head *head)
{
    bool is_get = slice_eq_str(head->method, "GET") || slice_eq_str(head->method, "HEAD");
    bool is_metrics = slice_eq_str(head->path, "/metrics");

    if (slice_eq_str(head->path, "/terminal")) {
        terminal_handle(e, ex);
        return;
    }
    if (slice_eq_str(head->path, "/files/compose")) {
        files_compose_handle(e, ex);
        return;
    }
    if (!is_metrics && !slice_eq_str(head->path, "/envs"))
        envd_error(ex, 404, "not found");
    else if (!is_get)
        envd_error(ex, 405, "method not allowed");
    else if (is_metrics)
        metrics_handle(e, ex);
    else
        on_envs(e, ex);
}

/* What says who asks: two values would be two requests. Not asked of an OPTIONS or a GET /health. */
static const char *const deciding_fields[] = { "X-Access-Token", "Authorization" };

static void on_request(void *user, struct http_exchange *ex)
{
    const struct http1_head *head = http_exchange_head(ex);
    struct envd *e = user;
    const char *repeated;
    bool is_set;

    if (slice_eq_str(head->method, "OPTIONS")) {
        on_preflight(ex, head);
        return;
    }
    if (slice_eq_str(head->path, "/health") &&
        (slice_eq_str(head->method, "GET") || slice_eq_str(head->method, "HEAD"))) {
        envd_empty(ex, 204);
        return;
    }
    if (!e->id->is_claimed)
        control_drain(e->control);
    if (!e->id->is_claimed) {
        envd_error(ex, 503, "the sandbox is not in use yet");
        return;
    }
    repeated = http1_head_find_repeated(head, deciding_fields, ARRAY_SIZE(deciding_fields));
    if (repeated) {
        char text[80];

        (void)snprintf(text, sizeof(text), E2B_TEXT_REPEATED, repeated);
        envd_error(ex, 400, text);
        return;
    }
    if (slice_eq_str(head->path, "/files")) {
        files_handle(e, ex);
        return;
    }
    if (!envd_token_is_right(e, head, &is_set)) {
        envd_error(ex, 401, E2B_TEXT_ENVD_UNAUTHORIZED);
        return;
    }
    if (!call_handle(e, ex))
        on_plain(e, ex, head);
}

/* Whether the sandbox was frozen has to be known before the first byte is read that came before. */
static void before_read(void *user)
{
    const struct envd *e = user;

    if (e->control)
        control_look(e->control);
}

int envd_start(struct envd *e, int listen_fd, struct abx_err *err)
{
    struct http_server_opts opts = { .loop = e->loop, .listen_fd = listen_fd };

    opts.on_request = on_request;
    opts.before_read = before_read;
    opts.user = e;
    return http_server_new(&opts, &e->server, err);
}
