/* server.h - an in-image server's address, and what its answers mean (layer 2; abx/server.h). */
#pragma once

#include <stdatomic.h>

#include "abx/server.h"
#include "base/buf.h"
#include "base/err.h"

#define SERVER_ANSWER_MAX (64u << 20) /* a file in base64 fits */
#define SERVER_EVENT_MAX (16u << 20)

struct abx_server {
    atomic_int refs;
    abx_config *config;
    char *base_url;           /* without its query, no slash at the end */
    char *query;              /* of base_url, "" = none */
    char *pty_url;            /* NULL = none */
    struct abx_pair *headers; /* credentials too; texts are owned */
    size_t header_count;
    int64_t request_timeout_ms;
};

/* Error of an answer with a status other than 2xx: {error, type, code, ...} as client.md 4.2 has it;
 * other bodies by their status. Returns the code, never 0. */
int server_error_from_answer(int status, struct slice body, struct abx_err *err);
