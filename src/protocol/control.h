/* control.h - requests to the control plane (layer 2): base URL, credentials, JSON both ways, errors
 * (client.md 2.3-2.6 and 3.1, e2b.md 1.1 and 1.2).
 *
 * A module makes a call with control_new, builds the request in its memory, and starts it. What is said in
 * {"code", "message"} is the error's message as it is; other error bodies are tolerated and named as such.
 */
#pragma once

#include <jansson.h>

#include "transport/call.h"
#include "transport/config.h"
#include "transport/http.h"

/* Of one answer: a page of 100 sandboxes with full metadata, a day of metrics. Over it: TOO_LARGE. */
#define CONTROL_ANSWER_MAX (16u << 20)
#define CONTROL_VALUES_MAX 1000000u

struct control_spec {
    const char *method; /* static */
    const char *path;   /* percent-encoded, begins with '/'; lives as long as the call */
    const char *query;  /* encoded; NULL = none */
    const char *action; /* what a signature calls it: "CreateSandbox" */
    const char *idempotency_key;
    const json_t *body;     /* borrowed while starting; NULL = none */
    struct slice body_text; /* instead of it: a text that is JSON, or empty */
    enum http_retry retry;
    int64_t request_timeout_ms;
    enum abx_reason not_found; /* what a 404 of the control plane itself means */
    int false_status;          /* with this status the result is BOOL 0; 0 = none */
    enum abx_result result; /* BOOL: true, JSON: the answer's text; others are made by `decode` */
    /* Makes the result of an answer with status 2xx; NULL = its body is not looked at. `doc` is NULL when there is no body.
     * Returns 0, a code (PROTOCOL: what it says is put behind "HOST: METHOD PATH: answer: "), or CONTROL_CONTINUES. */
    int (*decode)(abx_call *call, const json_t *doc, struct abx_err *err);
};
#define CONTROL_CONTINUES 1 /* decode has started another request with control_start */

/* A call for control_start. Its `state` has `size` bytes for the module (control_state). NULL when out of memory. */
abx_call *control_new(abx_client *client, abx_config *config, size_t size);
void *control_state(const abx_call *call);
abx_config *control_config(const abx_call *call); /* NULL when the caller gave none */
/* Is there no control plane (debug mode)? */
bool control_is_debug(const abx_call *call);
/* Errors: INVALID_ARGUMENT, UNAUTHENTICATED (no credentials), RESOURCE_EXHAUSTED. */
int control_start(abx_call *call, const struct control_spec *spec, struct abx_err *err);
/* However the request under way ends, the call fails with `err`. */
void control_fail_after(abx_call *call, const struct abx_err *err);

/* "<before><segment, percent-encoded><after>" in the call's memory. Errors: INVALID_ARGUMENT: `segment` is missing, "." or
 * "..", or longer than 1,000 bytes; `name` is what the message calls it. */
int control_path(abx_call *call, const char *before, const char *name, const char *segment,
                 const char *after, const char **ret, struct abx_err *err);
/* The same for "/sandboxes/<id><after>", where `id` has to be a sandbox's. */
int control_sandbox_path(abx_call *call, const char *id, const char *after, const char **ret,
                         struct abx_err *err);

/* A query under construction; NULL and 0 add nothing. */
struct control_query {
    struct buf text;
    bool is_failed;
};
void control_query_text(struct control_query *q, const char *name, const char *value);
void control_query_int(struct control_query *q, const char *name, int64_t value);
/* Moves it into the call: NULL = it is empty. */
int control_query_done(struct control_query *q, abx_call *call, const char **ret,
                       struct abx_err *err);
