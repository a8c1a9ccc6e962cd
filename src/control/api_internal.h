/* api_internal.h - one request on its way through api.c (routes, keys, answers), api_create.c and
 * api_sandbox.c. Not for others.
 */
#pragma once

#include "control/api.h"
#include "control/render.h"
#include "e2b/routes.h"

/* Counted: the exchange holds one until on_close, each completion that is still to come one, and an
 * armed timer one. */
struct api_request {
    struct control *c;
    struct http_exchange *ex; /* NULL once the client is gone */
    unsigned refs;
    struct route_match match;
    bool is_v2;
    bool is_answered;
    bool has_key; /* counted at key_place */
    size_t key_place;
    char key_id[16];
    char team[UUID_SIZE];
    char id[SANDBOX_ID_SIZE]; /* of the path; of the sandbox that is being made */
    char request_id[65];
    char origin[160]; /* as the client reached the service */
    char idempotency_key[256];
    char request_hash[TOKEN_SIZE];
    json_t *body; /* NULL = none */
    struct create_request create;
    unsigned tries;
    uv_timer_t timer;
    bool has_timer;
};

void api_request_ref(struct api_request *rq);
void api_request_unref(struct api_request *rq);

enum api_retry { RETRY_UNSAID, RETRY_NO, RETRY_YES };

/* Answers; once, and without effect when the client is gone. `j` is freed. */
void api_reply(struct api_request *rq, int status, json_t *j);
void api_reply_text(struct api_request *rq, int status, struct slice json,
                    const struct http1_field *fields, size_t n_fields);
/* Any type. */
void api_reply_as(struct api_request *rq, int status, struct slice type, struct slice body,
                  const struct http1_field *fields, size_t n_fields);
void api_reply_empty(struct api_request *rq, int status);
/* 429, 502, 503 and 504 say Should-Retry: false unless RETRY_YES. */
void api_reply_error(struct api_request *rq, const struct abx_err *err, enum api_retry retry);
void api_reply_not_found(struct api_request *rq, const char *id);
/* metrics.c: GET /abx/v1/metrics. */
void api_metrics(struct api_request *rq);
struct render_context api_render_context(const struct api_request *rq);

/* Handlers. They take the request as it is: key checked, body read and parsed. */
void api_create(struct api_request *rq);
/* The client of a create went away before its answer was through. */
void api_create_abandon(struct api_request *rq);
void api_get(struct api_request *rq);
void api_list(struct api_request *rq);
void api_kill(struct api_request *rq);
void api_connect(struct api_request *rq);
void api_timeout(struct api_request *rq);
void api_refresh(struct api_request *rq);
void api_network(struct api_request *rq);
void api_pause(struct api_request *rq);
void api_resume(struct api_request *rq);
void api_snapshot(struct api_request *rq);
void api_snapshots(struct api_request *rq);
void api_template_delete(struct api_request *rq);
void api_fork(struct api_request *rq);
void api_rollback(struct api_request *rq);
void api_logs(struct api_request *rq);
void api_usage(struct api_request *rq);
void api_usage_list(struct api_request *rq);
void api_events(struct api_request *rq);
