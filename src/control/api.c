/* api.c - routes, keys, bodies and answers. See api.h. */
#include "control/api.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "base/str.h"
#include "control/api_internal.h"
#include "e2b/errors.h"
#include "e2b/guest_abi.h"
#include "e2b/hosts.h"
#include "e2b/jsondoc.h"

#define REPLY_MAX (64u << 20) /* 1000 sandboxes with 64 KiB of metadata each */

/* --- request ----------------------------------------------------------------------------------- */

void api_request_ref(struct api_request *rq)
{
    rq->refs++;
}

void api_request_unref(struct api_request *rq)
{
    if (--rq->refs > 0)
        return;
    if (rq->has_key)
        keyring_leave(rq->c->keys, rq->key_place);
    json_decref(rq->body);
    create_request_done(&rq->create);
    free(rq);
}

static void on_close(void *user, struct http_exchange *ex, const struct abx_err *why)
{
    struct api_request *rq = user;

    (void)ex;
    rq->ex = NULL;
    if (rq->match.route == ROUTE_SANDBOX_CREATE || rq->match.route == ROUTE_SANDBOX_CREATE_V2)
        if (!rq->is_answered || why->code != 0)
            api_create_abandon(rq);
    api_request_unref(rq);
}

static const struct http_exchange_events events = { .on_close = on_close };

struct render_context api_render_context(const struct api_request *rq)
{
    return (struct render_context){ rq->c->seed, rq->c->client_id, rq->c->domain, rq->origin };
}

/* --- answers ----------------------------------------------------------------------------------- */

void api_reply_as(struct api_request *rq, int status, struct slice type, struct slice body,
                  const struct http1_field *fields, size_t n_fields)
{
    struct http1_field all[8] = { { SLICE_LIT("Content-Type"), type } };
    size_t n = body.n > 0 ? 1 : 0;

    if (!rq->ex || rq->is_answered)
        return;
    rq->is_answered = true;
    for (size_t i = 0; i < n_fields && n < ARRAY_SIZE(all); i++)
        all[n++] = fields[i];
    http_exchange_send(rq->ex, status, all, n, body);
}

void api_reply_text(struct api_request *rq, int status, struct slice json,
                    const struct http1_field *fields, size_t n_fields)
{
    api_reply_as(rq, status, SLICE_LIT("application/json"), json, fields, n_fields);
}

void api_reply_empty(struct api_request *rq, int status)
{
    api_reply_text(rq, status, slice_of(NULL, 0), NULL, 0);
}

void api_reply(struct api_request *rq, int status, json_t *j)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(REPLY_MAX);
    struct abx_err err;

    if (render_text(j, &b, &err) < 0)
        api_reply_error(rq, &err, RETRY_UNSAID);
    else
        api_reply_text(rq, status, buf_slice(&b), NULL, 0);
}

static void log_failure(const struct api_request *rq, int status, const struct abx_err *err)
{
    char text[8];

    (void)snprintf(text, sizeof text, "%d", status);
    log_event(status >= 500 && status != 501 ? LOG_WARN : LOG_DEBUG, "request failed", "status",
              text, "request", rq->request_id, "error", err->msg, NULL);
}

void api_reply_error(struct api_request *rq, const struct abx_err *err, enum api_retry retry)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(16384);
    int status = err_http_status(err);
    struct http1_field fields[2];
    size_t n = 0;

    if (status == 429 || status == 502 || status == 503 || status == 504)
        fields[n++] =
            (struct http1_field){ SLICE_LIT("Should-Retry"),
                                  retry == RETRY_YES ? SLICE_LIT("true") : SLICE_LIT("false") };
    if (rq->match.route == ROUTE_METHOD)
        fields[n++] = (struct http1_field){ SLICE_LIT("Allow"), slice_str(rq->match.allow) };
    log_failure(rq, status, err);
    if (e2b_error_body(&b, status, err->msg) != BUF_OK)
        buf_reset(&b);
    api_reply_text(rq, status, buf_slice(&b), fields, n);
}

void api_reply_not_found(struct api_request *rq, const char *id)
{
    struct abx_err err;

    (void)err_set(&err, ABX_NOT_FOUND,
                  "Sandbox \"%s\" doesn't exist or you don't have access to it", id);
    api_reply_error(rq, &err, RETRY_UNSAID);
}

/* --- routes without a key ---------------------------------------------------------------------- */

static void reply_info(struct api_request *rq)
{
    const struct create_limits *l = &rq->c->opts.limits;

    api_reply(
        rq, 200,
        json_pack(
            "{s:s,s:s,s:s,s:[s,s],s:[s,s,s,s,s,s,s,s,s],s:{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}}",
            "release", ABX_VERSION, "envdVersion", E2B_ENVD_VERSION, "domain", rq->c->domain,
            "abxCodecs", "json", "proto", "features", "sandboxes", "idempotency", "metadata-filter",
            "traffic-tokens", "events", "pause", "rollback", "metrics", "logs", "limits",
            "cpuCount", (json_int_t)l->cpu_count, "memoryMB", (json_int_t)l->memory_mb,
            "diskSizeMB", (json_int_t)l->disk_mb, "maxCpuCount", (json_int_t)l->max_cpu_count,
            "maxMemoryMB", (json_int_t)l->max_memory_mb, "maxDiskSizeMB",
            (json_int_t)l->max_disk_mb, "maxTimeoutSeconds", (json_int_t)l->max_timeout_s,
            "maxSandboxes", (json_int_t)rq->c->opts.max_sandboxes, "maxSnapshots",
            (json_int_t)rq->c->opts.max_snapshots));
}

/* --- routes with a key ------------------------------------------------------------------------- */

struct route_row {
    unsigned scope;
    bool has_id;   /* first parameter is a sandbox id */
    bool has_body; /* JSON */
    bool is_v2;
    void (*handle)(struct api_request *rq);
};

static const struct route_row rows[] = {
    [ROUTE_SERVICE_METRICS] = { SCOPE_METRICS_READ, false, false, false, api_metrics },
    [ROUTE_SANDBOX_CREATE] = { SCOPE_SANDBOX_WRITE, false, true, false, api_create },
    [ROUTE_SANDBOX_CREATE_V2] = { SCOPE_SANDBOX_WRITE, false, true, true, api_create },
    [ROUTE_SANDBOX_LIST] = { SCOPE_SANDBOX_READ, false, false, false, api_list },
    [ROUTE_SANDBOX_LIST_V2] = { SCOPE_SANDBOX_READ, false, false, true, api_list },
    [ROUTE_SANDBOX_GET] = { SCOPE_SANDBOX_READ, true, false, false, api_get },
    [ROUTE_SANDBOX_KILL] = { SCOPE_SANDBOX_WRITE, true, false, false, api_kill },
    [ROUTE_SANDBOX_CONNECT] = { SCOPE_SANDBOX_WRITE, true, true, false, api_connect },
    [ROUTE_SANDBOX_CONNECT_V2] = { SCOPE_SANDBOX_WRITE, true, true, true, api_connect },
    [ROUTE_SANDBOX_TIMEOUT] = { SCOPE_SANDBOX_WRITE, true, true, false, api_timeout },
    [ROUTE_SANDBOX_NETWORK] = { SCOPE_SANDBOX_WRITE, true, true, false, api_network },
    [ROUTE_SANDBOX_REFRESH] = { SCOPE_SANDBOX_WRITE, true, true, false, api_refresh },
    [ROUTE_SANDBOX_PAUSE] = { SCOPE_SANDBOX_WRITE, true, true, false, api_pause },
    [ROUTE_SANDBOX_RESUME] = { SCOPE_SANDBOX_WRITE, true, true, false, api_resume },
    [ROUTE_SANDBOX_SNAPSHOT] = { SCOPE_SANDBOX_WRITE, true, true, false, api_snapshot },
    [ROUTE_SNAPSHOTS] = { SCOPE_SANDBOX_READ, false, false, false, api_snapshots },
    [ROUTE_TEMPLATE_DELETE] = { SCOPE_SANDBOX_WRITE, false, false, false, api_template_delete },
    [ROUTE_SANDBOX_FORK] = { SCOPE_SANDBOX_WRITE, true, true, false, api_fork },
    [ROUTE_SANDBOX_ROLLBACK] = { SCOPE_SANDBOX_WRITE, true, true, false, api_rollback },
    [ROUTE_SANDBOX_LOGS] = { SCOPE_SANDBOX_READ, true, false, false, api_logs },
    [ROUTE_SANDBOX_LOGS_V2] = { SCOPE_SANDBOX_READ, true, false, true, api_logs },
    [ROUTE_SANDBOX_METRICS] = { SCOPE_SANDBOX_READ, true, false, false, api_usage },
    [ROUTE_SANDBOXES_METRICS] = { SCOPE_SANDBOX_READ, false, false, false, api_usage_list },
    [ROUTE_EVENTS] = { SCOPE_SANDBOX_READ, false, false, false, api_events },
    [ROUTE_SANDBOX_EVENTS] = { SCOPE_SANDBOX_READ, true, false, false, api_events },
};

/* Two keys, or two idempotency keys, would be two requests: which one is meant? */
static int refuse_repeated(const struct http1_head *head, struct abx_err *err)
{
    static const char *const names[] = { "X-API-Key", "Authorization", "Idempotency-Key" };
    const char *name = http1_head_find_repeated(head, names, ARRAY_SIZE(names));

    return name ? err_set(err, ABX_INVALID_ARGUMENT, E2B_TEXT_REPEATED, name) : 0;
}

static int check_key(struct api_request *rq, unsigned scope, struct abx_err *err)
{
    const struct http1_head *head = http_exchange_head(rq->ex);
    const struct key *key;
    char names[96];
    int r = refuse_repeated(head, err);

    if (r == 0)
        r = keyring_check(rq->c->keys, http1_head_value(head, "x-api-key"),
                          http1_head_value(head, "authorization"), &key, err);
    if (r < 0)
        return r;
    if ((key->scopes & scope) != scope) {
        scopes_format(scope, names);
        return err_set(err, ABX_PERMISSION_DENIED, "The API key lacks the scope '%s'", names);
    }
    memcpy(rq->team, key->team, sizeof rq->team);
    memcpy(rq->key_id, key->id, sizeof rq->key_id);
    rq->has_key = keyring_enter(rq->c->keys, key, rq->c->opts.max_key_requests, &rq->key_place);
    if (rq->has_key)
        return 0;
    count_add(&rq->c->counters->limited, 1);
    return err_reason(err, ABX_REASON_RATE_LIMITED,
                      "Too many requests of this API key at a time (at most %zu)",
                      rq->c->opts.max_key_requests);
}

/* Path parameters are decoded after the split, so that they may contain '/'. */
static int take_id(struct api_request *rq, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(512);

    if (!percent_decode(&text, rq->match.params[0], false) ||
        !sandbox_id_parse(buf_slice(&text), rq->id))
        return err_set(err, ABX_INVALID_ARGUMENT, "%s", E2B_TEXT_BAD_ID);
    return 0;
}

static int take_idempotency_key(struct api_request *rq, struct abx_err *err)
{
    struct slice key = http1_head_value(http_exchange_head(rq->ex), "idempotency-key");

    if (!http1_head_find(http_exchange_head(rq->ex), "idempotency-key"))
        return 0;
    if (key.n == 0 || key.n >= sizeof rq->idempotency_key)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "Invalid Idempotency-Key: it has 1 to 255 characters of a-z, 0-9 and '-'");
    memcpy(rq->idempotency_key, key.p, key.n);
    if (strspn(rq->idempotency_key, "abcdefghijklmnopqrstuvwxyz0123456789-") != key.n)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "Invalid Idempotency-Key: it has 1 to 255 characters of a-z, 0-9 and '-'");
    return 0;
}

/* What tells requests with the same idempotency key apart: route and body. */
static void take_hash(struct api_request *rq, struct slice body)
{
    char parts[2 * TOKEN_SIZE + 2];

    sha256_hex(body, rq->request_hash);
    (void)snprintf(parts, sizeof parts, "%s:%s", rq->is_v2 ? "v2" : "v1", rq->request_hash);
    sha256_hex(slice_str(parts), rq->request_hash);
}

static void on_body(void *user, struct http_exchange *ex, struct slice body,
                    const struct abx_err *err)
{
    struct api_request *rq = user;
    const struct route_row *row = &rows[rq->match.route];
    struct abx_err bad;
    int r;

    if (err->code == ABX_CANCELED) {
        rq->ex = NULL;
        api_request_unref(rq);
        return;
    }
    http_exchange_begin(ex, &events, rq);
    if (err->code != 0) {
        api_reply_error(rq, err, RETRY_NO);
        return;
    }
    if (body.n > 0) {
        r = jsondoc_parse(body, &rq->body, &bad);
        if (r == 0 && !json_is_object(rq->body))
            r = err_set(&bad, ABX_INVALID_ARGUMENT, "the body has to be a JSON object");
        if (r < 0) {
            (void)err_wrap(&bad, r, "Error when parsing request");
            api_reply_error(rq, &bad, RETRY_NO);
            return;
        }
    }
    take_hash(rq, body);
    row->handle(rq);
}

static void dispatch(struct api_request *rq)
{
    const struct route_row *row =
        rq->match.route < ARRAY_SIZE(rows) ? &rows[rq->match.route] : NULL;
    struct abx_err err;
    int r = check_key(rq, row ? row->scope : 0, &err);

    if (r == 0 && (!row || !row->handle))
        r = err_set(&err, ABX_UNIMPLEMENTED, "This endpoint is not available on this server");
    if (r == 0 && row->has_id)
        r = take_id(rq, &err);
    if (r == 0 && row->handle == api_create)
        r = take_idempotency_key(rq, &err);
    if (r < 0) {
        http_exchange_begin(rq->ex, &events, rq);
        api_reply_error(rq, &err, err.reason == ABX_REASON_RATE_LIMITED ? RETRY_YES : RETRY_UNSAID);
        return;
    }
    rq->is_v2 = row->is_v2;
    if (row->has_body) {
        http_exchange_collect(rq->ex, API_BODY_MAX, on_body, rq);
        return;
    }
    http_exchange_begin(rq->ex, &events, rq);
    row->handle(rq);
}

/* --- entry ------------------------------------------------------------------------------------- */

static void take_request_id(struct api_request *rq)
{
    struct slice id = http1_head_value(http_exchange_head(rq->ex), "abx-request-id");
    bool ok = id.n > 0 && id.n < sizeof rq->request_id;

    for (size_t i = 0; ok && i < id.n; i++)
        ok = id.p[i] > 0x20 && id.p[i] < 0x7f;
    if (ok)
        memcpy(rq->request_id, id.p, id.n);
    else
        id_random(rq->request_id, 16);
}

/* The origin that the client used, when it is loopback or of our domain: it can be used again as it
 * is. Else the service's own. The gateway overwrites X-Forwarded-Proto. */
static void take_origin(struct api_request *rq)
{
    const struct http1_head *head = http_exchange_head(rq->ex);
    bool is_tls = slice_eq_str(http1_head_value(head, "x-forwarded-proto"), "https");
    struct slice host = head->host;

    if (host_is_valid(host) && host.n < 128 &&
        (host_is_loopback(host) ||
         (rq->c->opts.domain && host_is_in_domain(host, rq->c->opts.domain))))
        (void)snprintf(rq->origin, sizeof rq->origin, "%s://%.*s", is_tls ? "https" : "http",
                       (int)host.n, (const char *)host.p);
    else
        (void)snprintf(rq->origin, sizeof rq->origin, "%s", rq->c->opts.origin);
}

void api_on_request(void *user, struct http_exchange *ex)
{
    const struct http1_head *head = http_exchange_head(ex);
    struct api_request *rq = calloc(1, sizeof(*rq));
    struct abx_err err;

    if (!rq) {
        http_exchange_abort(ex);
        return;
    }
    rq->c = user;
    rq->ex = ex;
    rq->refs = 1;
    take_request_id(rq);
    take_origin(rq);
    route_find(head->method, head->path, &rq->match);
    switch (rq->match.route) {
    case ROUTE_NONE:
        (void)err_set(&err, ABX_NOT_FOUND, "There is no such endpoint");
        break;
    case ROUTE_METHOD:
        (void)err_reason(&err, ABX_REASON_METHOD, "This endpoint has other methods: %s",
                         rq->match.allow);
        break;
    case ROUTE_HEALTH:
        http_exchange_begin(ex, &events, rq);
        api_reply(rq, 200, json_pack("{s:s}", "status", "ok"));
        return;
    case ROUTE_INFO:
        http_exchange_begin(ex, &events, rq);
        reply_info(rq);
        return;
    case ROUTE_UNBUILT:
    case ROUTE_SERVICE_METRICS:
    case ROUTE_SANDBOX_CREATE:
    case ROUTE_SANDBOX_CREATE_V2:
    case ROUTE_SANDBOX_LIST:
    case ROUTE_SANDBOX_LIST_V2:
    case ROUTE_SANDBOX_GET:
    case ROUTE_SANDBOX_KILL:
    case ROUTE_SANDBOX_CONNECT:
    case ROUTE_SANDBOX_CONNECT_V2:
    case ROUTE_SANDBOX_TIMEOUT:
    case ROUTE_SANDBOX_NETWORK:
    case ROUTE_SANDBOX_REFRESH:
    case ROUTE_SANDBOX_PAUSE:
    case ROUTE_SANDBOX_RESUME:
    case ROUTE_SANDBOX_SNAPSHOT:
    case ROUTE_SNAPSHOTS:
    case ROUTE_TEMPLATE_DELETE:
    case ROUTE_SANDBOX_FORK:
    case ROUTE_SANDBOX_ROLLBACK:
    case ROUTE_SANDBOX_LOGS:
    case ROUTE_SANDBOX_LOGS_V2:
    case ROUTE_SANDBOX_METRICS:
    case ROUTE_SANDBOXES_METRICS:
    case ROUTE_EVENTS:
    case ROUTE_SANDBOX_EVENTS:
        dispatch(rq);
        return;
    }
    http_exchange_begin(ex, &events, rq);
    api_reply_error(rq, &err, RETRY_UNSAID);
}
