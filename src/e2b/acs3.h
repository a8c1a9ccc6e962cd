/* acs3.h - Alibaba Cloud's request signature V3, ACS3-HMAC-SHA256 (acs3.md).
 *
 * Signed are host, content-type when there is a body with one, and every x-acs-* field: action, version, date, nonce,
 * hash of the body, and the security token of temporary keys.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#define ACS3_HASH_SIZE 65         /* lower-case hex SHA-256 and NUL */
#define ACS3_DATE_SIZE 21         /* "2026-01-02T03:04:05Z" and NUL */
#define ACS3_CANONICAL_MAX 65536u /* bytes of a canonical request */

struct acs3_request {
    const char *method;       /* "POST" */
    struct slice host;        /* as the Host field has it */
    struct slice path;        /* as sent, percent-encoded; empty = "/" */
    struct slice query;       /* as sent, without '?'; '+' is a space */
    const char *content_type; /* NULL = the field is not sent */
    struct slice body;
    const char *action;         /* "CreateSandbox" */
    const char *version;        /* "2026-05-09" */
    const char *date;           /* UTC, acs3_date */
    const char *nonce;          /* unique per request */
    const char *security_token; /* NULL = none */
};

void acs3_date(int64_t wall_ms, char to[ACS3_DATE_SIZE]);

/* x-acs-content-sha256 of a body. */
void acs3_hash(struct slice body, char to[ACS3_HASH_SIZE]);

/* Appends the canonical request. Errors: INVALID_ARGUMENT (percent encoding of path or query),
 * RESOURCE_EXHAUSTED (over ACS3_CANONICAL_MAX bytes or the buffer's limit). */
int acs3_canonical(const struct acs3_request *request, struct buf *to, struct abx_err *err);

/* Appends the value of the Authorization field. Errors as acs3_canonical. */
int acs3_authorization(const struct acs3_request *request, const char *key_id, const char *secret,
                       struct buf *to, struct abx_err *err);
