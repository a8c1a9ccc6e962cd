/* envd.h - the HTTP side of the guest: routes, rights, answers (e2b.md section 4).
 *
 * Order of judgement: GET /health always answers 204; an unclaimed sandbox answers 503; /files
 * checks token or signature itself; everything else needs X-Access-Token when the sandbox has one.
 */
#pragma once

#include "guest/daemon/command.h"
#include "guest/daemon/identity.h"
#include "net/http_server.h"

struct envd {
    uv_loop_t *loop;
    struct identity *id;
    struct control *control;
    struct commands *commands;
    struct http_server *server;
    struct metrics *metrics;
    struct watches *watches;
};

/* `listen_fd` is owned by the server from here on. Pointers in `e` must be set, but `server`. */
int envd_start(struct envd *e, int listen_fd, struct abx_err *err);

/* Whole answers; CORS fields are added. */
void envd_send(struct http_exchange *ex, int status, const char *content_type, struct slice body);
void envd_empty(struct http_exchange *ex, int status);
/* {"code":<status>,"message":"..."} */
void envd_error(struct http_exchange *ex, int status, const char *message);
void envd_error_with(struct http_exchange *ex, int status, const char *message,
                     const struct http1_field *fields, size_t n_fields);
void envd_error_from(struct http_exchange *ex, const struct abx_err *err);
/* The CORS fields, for answers made elsewhere. */
#define ENVD_FIELDS_MAX 12
size_t envd_cors_fields(struct http1_field *to);

/* Percent-decoded value of a query parameter into `to` (left empty when absent). False when it is
 * malformed, holds NUL, is not UTF-8 or does not fit. `ret_is_set` may be NULL. */
bool envd_query(struct slice query, const char *name, char *to, size_t size, bool *ret_is_set);

/* Compares X-Access-Token with the sandbox's; true also when the sandbox has none. `ret_is_set`
 * says whether the field was there. */
bool envd_token_is_right(const struct envd *e, const struct http1_head *head, bool *ret_is_set);

/* User of a request: Basic credentials, else the default one. UNAUTHENTICATED "invalid username:
 * 'x'". */
int envd_user(const struct envd *e, const struct http1_head *head, struct user *ret,
              struct abx_err *err);
