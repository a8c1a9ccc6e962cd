/* files.h - GET and POST /files: whole files over HTTP (e2b.md 4.3). */
#pragma once

#include <limits.h>

#include "guest/envd/envd.h"

/* What both directions need of a request. */
struct files_request {
    struct envd *envd;
    struct http_exchange *ex; /* NULL once the client is gone */
    struct user user;
    bool has_path;
    char path[PATH_MAX]; /* absolute and clean; of an upload without ?path: empty */
};

/* Takes the request, whatever its method; checks token or signature. */
void files_handle(struct envd *e, struct http_exchange *ex);

/* POST /files/compose: files one after the other make a new one. Needs the token, which the caller has
 * checked. */
void files_compose_handle(struct envd *e, struct http_exchange *ex);

/* User named by a request: `username` when not empty, else as envd_user says. UNAUTHENTICATED. */
int files_user(const struct envd *e, const struct http1_head *head, const char *username,
               struct user *ret, struct abx_err *err);

/* files_get.c and files_post.c; `req` is copied. */
void files_get(const struct files_request *req);
void files_post(const struct files_request *req);
