/* auth.h - credentials of control-plane requests: X-API-Key, Bearer, or ACS3 signature (acs3.md). */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "transport/config.h"

#define AUTH_HEADERS_MAX 12

/* Header fields that one request needs besides its own; texts live in `mem`. */
struct auth_headers {
    struct abx_pair pairs[AUTH_HEADERS_MAX];
    size_t count;
    struct buf mem;
};

/* Makes the fields for a request. One that config->headers has too is left to it. `action` is what the signature calls it ("CreateSandbox"),
 * `content_type` NULL without a body. Done with auth_headers_done, also after an error. Errors: UNAUTHENTICATED with
 * ABX_REASON_NO_CREDENTIALS (says what to set, and `sudo abx key local --user NAME`). */
int auth_headers_make(const abx_config *config, const char *method, const char *url,
                      const char *content_type, struct slice body, const char *action,
                      struct auth_headers *to, struct abx_err *err);
void auth_headers_done(struct auth_headers *h);
