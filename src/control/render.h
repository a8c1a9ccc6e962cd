/* render.h - JSON of sandboxes as clients read it (e2b.md 1.3-1.5, appendix A). */
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "control/lifecycle.h"

struct render_context {
    const uint8_t *seed;   /* TOKEN_SEED_SIZE bytes */
    const char *client_id; /* E2B's node id */
    const char *domain;    /* never empty: without one SDKs use E2B's cloud */
    const char *envd_url;  /* origin that reaches this service */
};

/* Answer of create and connect. NULL when out of memory; owned by the caller. */
json_t *render_sandbox(const struct render_context *c, const struct sandbox *sb);
/* Answer of GET /sandboxes/{id}. */
json_t *render_detail(const struct render_context *c, const struct sandbox *sb);
/* An entry of the lists. */
json_t *render_listed(const struct render_context *c, const struct sandbox *sb);
/* Appends the text of `j`, which is freed. RESOURCE_EXHAUSTED when there is no memory (or `j` is
 * NULL). */
int render_text(json_t *j, struct buf *b, struct abx_err *err);
