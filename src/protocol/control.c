/* control.c - see control.h. */
#include "protocol/control.h"

#include <strings.h>

#include "base/str.h"
#include "e2b/jsondoc.h"
#include "protocol/envd.h"
#include "protocol/sandbox.h"
#include "transport/auth.h"

#define HEADERS_MAX 64u
#define SEGMENT_MAX 1000u
#define URL_MAX 65536u

struct control {
    abx_config *config;
    struct http_exchange *http;
    struct client_task
        task; /* ends an answer that is too large, outside of the transport's callbacks */
    struct control_spec spec;
    const char *what; /* "HOST: METHOD PATH" */
    struct buf url, body, answer;
    int status;
    const char *location;
    struct abx_err verdict; /* code 0 = none */
    max_align_t more[];
};

static void release_sandbox(abx_call *call)
{
    if (call->result == ABX_RESULT_SANDBOX)
        abx_sandbox_unref((abx_sandbox *)(uintptr_t)call->items);
}

static void control_cancel(abx_call *call)
{
    struct control *c = call->state;

    if (c->http)
        http_cancel(TAKE_PTR(c->http));
    client_task_remove(call->client, &c->task);
}

static void control_done(abx_call *call)
{
    struct control *c = call->state;

    abx_config_unref(TAKE_PTR(c->config));
    buf_done(&c->url);
    buf_done(&c->body);
    buf_done(&c->answer);
}

static const struct call_ops control_ops = { .cancel = control_cancel,
                                             .done = control_done,
                                             .release = release_sandbox };

abx_call *control_new(abx_client *client, abx_config *config, size_t size)
{
    abx_call *call = call_new(client, &control_ops, sizeof(struct control) + size);
    struct control *c = call ? call->state : NULL;

    if (c) {
        c->config = abx_config_ref(config);
        buf_init(&c->url, URL_MAX);
        buf_init(&c->body, JSONDOC_SIZE_MAX);
        buf_init(&c->answer, CONTROL_ANSWER_MAX);
    }
    return call;
}

void *control_state(const abx_call *call)
{
    return ((struct control *)call->state)->more;
}

abx_config *control_config(const abx_call *call)
{
    return ((struct control *)call->state)->config;
}

void control_fail_after(abx_call *call, const struct abx_err *err)
{
    ((struct control *)call->state)->verdict = *err;
}

bool control_is_debug(const abx_call *call)
{
    const abx_config *config = control_config(call);

    return config && config->debug;
}

/* ---- the answer ---- */

static void control_fail(abx_call *call, const struct abx_err *err, int status)
{
    const struct control *c = call->state;
    struct abx_err verdict = c->verdict;

    if (verdict.code != 0)
        call_fail(call, &verdict);
    else
        call_fail_http(call, err, status);
}

static void on_too_large(void *user)
{
    abx_call *call = user;
    struct control *c = call->state;
    struct abx_err err;

    http_cancel(TAKE_PTR(c->http));
    (void)err_reason(&err, ABX_REASON_TOO_LARGE, "%s: the answer is over %u bytes", c->what,
                     CONTROL_ANSWER_MAX);
    control_fail(call, &err, c->status);
}

static void on_head(void *user, const struct http_head *head)
{
    abx_call *call = user;
    struct control *c = call->state;
    const char *token = http_head_get(head, "x-next-token");

    c->status = head->status;
    call->next_token = token && *token ? call_strdup(call, token) : NULL;
    if (head->status / 100 == 3)
        c->location = call_strdup(call, http_head_get(head, "location"));
}

static bool on_body(void *user, struct slice data)
{
    abx_call *call = user;
    struct control *c = call->state;

    if (buf_append_slice(&c->answer, data) == BUF_OK)
        return true;
    client_task_add(call->client, &c->task);
    return false;
}

/* The answer without the white space of JSON around it. */
static struct slice answer_text(const struct control *c)
{
    struct slice s = buf_slice(&c->answer);

    while (s.n > 0 && memchr(" \t\r\n", s.p[0], 4))
        s = slice_of(s.p + 1, s.n - 1);
    while (s.n > 0 && memchr(" \t\r\n", s.p[s.n - 1], 4))
        s.n--;
    return s;
}

/* The error of an answer that is none of 2xx; `*ret_doc`: its JSON, NULL to begin with; `*ret_is_said`: the control plane itself says so (or nothing at all). */
static int error_of(const struct control *c, json_t **ret_doc, bool *ret_is_said,
                    struct abx_err *err)
{
    struct slice body = answer_text(c);
    int code;

    *ret_is_said = body.n == 0;
    if (c->status / 100 == 3)
        return err_reason(err, ABX_REASON_PROTOCOL,
                          "%s: HTTP status %d: the server is elsewhere (%.200s); redirects are not "
                          "followed: change the base URL",
                          c->what, c->status, c->location ? c->location : "it does not say where");
    if (body.n > 0 && jsondoc_parse(body, ret_doc, NULL) == 0 && json_is_object(*ret_doc))
        *ret_is_said = true;
    else if (body.n > 0 && body.p[0] == '<')
        body.n = 0; /* a page for people */
    code = envd_error_from_answer(c->status, body, NULL, err);
    if (body.n == 0)
        return err_wrap(err, code, "%s", c->what);
    return *ret_is_said ? code : err_wrap(err, code, "%s: HTTP status %d", c->what, c->status);
}

static void answer_is_error(abx_call *call)
{
    const struct control *c = call->state;
    _cleanup_(json_unrefp) json_t *doc = NULL;
    struct abx_err err = { 0 };
    bool is_said;

    (void)error_of(c, &doc, &is_said, &err);
    if (is_said && c->status == c->spec.false_status) {
        call->bool_result = 0;
        call_finish(call, ABX_RESULT_BOOL);
        return;
    }
    if (c->status == 401 || c->status == 403)
        config_hint_at_address(c->config, &err);
    if (c->status == 404 && is_said)
        err.reason = c->spec.not_found;
    if (c->verdict.code != 0)
        control_fail(call, &err, c->status);
    else
        call_fail_said(call, &err, c->status,
                       json_string_value(json_object_get(doc, "error_code")));
}

/* 0, CONTROL_CONTINUES or a code. */
static int answer_decode(abx_call *call, struct abx_err *err)
{
    struct control *c = call->state;
    struct slice text = answer_text(c);
    _cleanup_(json_unrefp) json_t *doc = NULL;
    int r = 0;

    if (c->spec.decode == NULL && c->spec.result != ABX_RESULT_JSON)
        return 0;
    if (text.n > 0)
        r = jsondoc_parse_limited(text, CONTROL_ANSWER_MAX, CONTROL_VALUES_MAX, &doc, err);
    if (r == ABX_INVALID_ARGUMENT) {
        r = ABX_INTERNAL;
        err->code = r;
        err->reason = ABX_REASON_PROTOCOL;
    }
    if (r == 0 && c->spec.result == ABX_RESULT_JSON &&
        buf_append_slice(&call->bytes, text.n > 0 ? text : SLICE_LIT("null")) != BUF_OK)
        r = err_oom(err);
    if (r == 0 && c->spec.decode)
        r = c->spec.decode(call, doc, err);
    if (r < 0)
        return err_wrap(err, r, "%s: answer", c->what);
    return r;
}

/* Nothing answered there. */
static bool is_of_address(const struct abx_err *err)
{
    return err->reason == ABX_REASON_NAME || err->reason == ABX_REASON_CONNECT ||
           err->reason == ABX_REASON_TLS || err->reason == ABX_REASON_REQUEST_TIMEOUT;
}

static void on_done(void *user, const struct abx_err *done)
{
    abx_call *call = user;
    struct control *c = call->state;
    struct abx_err err = { 0 };
    int r;

    c->http = NULL;
    client_task_remove(call->client, &c->task);
    if (done->code != 0 || c->verdict.code != 0) {
        err = *done;
        if (c->status == 0 && is_of_address(done))
            config_hint_at_address(c->config, &err);
        control_fail(call, &err, 0);
        return;
    }
    if (c->status / 100 != 2) {
        answer_is_error(call);
        return;
    }
    r = answer_decode(call, &err);
    if (r < 0) {
        control_fail(call, &err, c->status);
    } else if (r == 0) {
        call->bool_result = c->spec.result == ABX_RESULT_BOOL;
        call_finish(call, c->spec.result);
    }
}

/* ---- the request ---- */

/* Adds a field unless the config sets it. */
static void put(const abx_config *config, struct abx_pair *pairs, size_t *n, const char *key,
                const char *value)
{
    for (size_t i = 0; i < config->header_count; i++) {
        if (strcasecmp(config->headers[i].key, key) == 0)
            return;
    }
    pairs[(*n)++] = (struct abx_pair){ key, value };
}

static int make_auth(struct control *c, struct auth_headers *to, struct abx_err *err)
{
    return auth_headers_make(c->config, c->spec.method, buf_cstr(&c->url),
                             c->body.len > 0 ? "application/json" : NULL, buf_slice(&c->body),
                             c->spec.action, to, err);
}

/* A nonce counts once: a further attempt is signed anew. */
static int renew(void *user, struct auth_headers *to, struct abx_err *err)
{
    const abx_call *call = user;

    return make_auth(call->state, to, err);
}

static int send(abx_call *call, struct auth_headers *auth, struct abx_err *err)
{
    static const struct http_sink sink = { on_head, on_body, on_done };
    struct control *c = call->state;
    const abx_config *config = c->config;
    struct abx_pair pairs[HEADERS_MAX];
    bool has_body = c->body.len > 0;
    struct http_spec spec = {
        .config = c->config,
        .method = c->spec.method,
        .url = buf_cstr(&c->url),
        .headers = pairs,
        .body = buf_slice(&c->body),
        /* What changes something always has a body, be it of no bytes. */
        .has_body =
            has_body || strcmp(c->spec.method, "POST") == 0 || strcmp(c->spec.method, "PUT") == 0,
        .retry = c->spec.retry,
        .renew = config->is_signed ? renew : NULL,
        .deadline_ns = config_deadline_ns(config, c->spec.request_timeout_ms),
        .accept_gzip = true,
    };
    size_t n = 0;

    if (config->header_count + auth->count + 4 > HEADERS_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "%zu headers, at most %zu are possible",
                       config->header_count, HEADERS_MAX - auth->count - 4);
    put(config, pairs, &n, "User-Agent", config->user_agent);
    put(config, pairs, &n, "Accept", "application/json");
    if (has_body)
        put(config, pairs, &n, "Content-Type", "application/json");
    if (c->spec.idempotency_key)
        put(config, pairs, &n, "Idempotency-Key", c->spec.idempotency_key);
    for (size_t i = 0; i < auth->count; i++)
        pairs[n++] = auth->pairs[i];
    for (size_t i = 0; i < config->header_count; i++)
        pairs[n++] = config->headers[i];
    spec.header_count = n;
    return http_start(call->client, &spec, &sink, call, &c->http, err);
}

/* URL and `what`. */
static int address(abx_call *call, struct abx_err *err)
{
    struct control *c = call->state;
    const char *base = c->config->api_url;
    size_t n = strlen(base);
    const char *host = strstr(base, "://");
    struct buf what = BUF_INIT(URL_MAX);
    enum buf_status status;

    while (n > 0 && base[n - 1] == '/')
        n--;
    buf_reset(&c->url);
    status = buf_printf(&c->url, "%.*s%s%s%s", (int)n, base, c->spec.path, c->spec.query ? "?" : "",
                        c->spec.query ? c->spec.query : "");
    if (status == BUF_LIMIT)
        return err_set(err, ABX_INVALID_ARGUMENT, "the URL is longer than %u bytes", URL_MAX);
    host = host ? host + 3 : base;
    if (status == BUF_OK)
        status = buf_printf(&what, "%.*s: %s %.100s", (int)strcspn(host, "/"), host, c->spec.method,
                            c->spec.path);
    c->what = status == BUF_OK && buf_cstr(&c->url) ? call_dup(call, buf_slice(&what)) : NULL;
    buf_done(&what);
    return c->what ? 0 : err_oom(err);
}

static int set_body(struct control *c, struct abx_err *err)
{
    enum buf_status status = BUF_OK;

    buf_reset(&c->body);
    if (c->spec.body)
        status = jsondoc_dump(c->spec.body, &c->body);
    else if (c->spec.body_text.n > 0)
        status = buf_append_slice(&c->body, c->spec.body_text);
    c->spec.body = NULL;
    if (status == BUF_LIMIT)
        return err_reason(err, ABX_REASON_TOO_LARGE, "the request's body is over %u bytes",
                          JSONDOC_SIZE_MAX);
    return status == BUF_OK ? 0 : err_oom(err);
}

int control_start(abx_call *call, const struct control_spec *spec, struct abx_err *err)
{
    struct control *c = call->state;
    struct auth_headers auth = { 0 };
    int r = config_check(c->config, err);

    if (r == 0)
        r = timeout_check(spec->request_timeout_ms, "request_timeout_ms", err);
    if (r < 0)
        return r;
    c->spec = *spec;
    c->status = 0;
    c->task = (struct client_task){ .fn = on_too_large, .user = call };
    buf_reset(&c->answer);
    r = set_body(c, err);
    if (r == 0)
        r = address(call, err);
    if (r < 0)
        return r;
    r = make_auth(c, &auth, err);
    if (r == 0)
        r = send(call, &auth, err);
    auth_headers_done(&auth);
    return r;
}

/* ---- paths and queries ---- */

int control_path(abx_call *call, const char *before, const char *name, const char *segment,
                 const char *after, const char **ret, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(URL_MAX);

    if (!segment || !*segment || strlen(segment) > SEGMENT_MAX || strcmp(segment, ".") == 0 ||
        strcmp(segment, "..") == 0)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "%s: has to be 1 to %u bytes, and neither '.' nor '..'", name, SEGMENT_MAX);
    if (buf_append_str(&b, before) != BUF_OK || percent_encode(&b, slice_str(segment)) != BUF_OK ||
        buf_append_str(&b, after) != BUF_OK)
        return err_oom(err);
    *ret = call_dup(call, buf_slice(&b));
    return *ret ? 0 : err_oom(err);
}

int control_sandbox_path(abx_call *call, const char *id, const char *after, const char **ret,
                         struct abx_err *err)
{
    int r = sandbox_id_check(id, err);

    return r < 0 ? r : control_path(call, "/sandboxes/", "sandbox id", id, after, ret, err);
}

void control_query_text(struct control_query *q, const char *name, const char *value)
{
    if (!value)
        return;
    if (q->text.limit == 0)
        buf_init(&q->text, URL_MAX);
    if ((q->text.len > 0 && buf_append_byte(&q->text, '&') != BUF_OK) ||
        buf_append_str(&q->text, name) != BUF_OK || buf_append_byte(&q->text, '=') != BUF_OK ||
        percent_encode(&q->text, slice_str(value)) != BUF_OK)
        q->is_failed = true;
}

void control_query_int(struct control_query *q, const char *name, int64_t value)
{
    char digits[24];

    if (value == 0)
        return;
    (void)snprintf(digits, sizeof digits, "%lld", (long long)value);
    control_query_text(q, name, digits);
}

int control_query_done(struct control_query *q, abx_call *call, const char **ret,
                       struct abx_err *err)
{
    int r = 0;

    *ret = NULL;
    if (q->is_failed) {
        r = err_set(err, ABX_INVALID_ARGUMENT, "the query is longer than %u bytes", URL_MAX);
    } else if (q->text.len > 0) {
        *ret = call_dup(call, buf_slice(&q->text));
        r = *ret ? 0 : err_oom(err);
    }
    buf_done(&q->text);
    return r;
}
