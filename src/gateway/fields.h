/* fields.h - request fields as sent upstream, and the fields that every answer carries. */
#pragma once

#include "net/http_server.h"

#define REQUEST_ID_MAX 128
#define REQUEST_ID_SIZE (REQUEST_ID_MAX + 1)

#define UPSTREAM_FIELDS_MAX (HTTP1_FIELDS_MAX + 5)
#define FORWARDED_FOR_MAX 1024

struct upstream_fields {
    struct http1_field list[UPSTREAM_FIELDS_MAX];
    size_t n;
    struct buf text; /* what the slices of our own fields point to */
};

/* Randomness for ids, fetched for many at once. Zeroed is its first state. */
struct id_source {
    uint8_t bytes[1024];
    size_t left;
};

/* The client's Abx-Request-Id when it is 1..128 of [A-Za-z0-9._-], else a new one of 32 hex digits. */
void request_id_get(struct id_source *ids, const struct http1_head *head, char to[REQUEST_ID_SIZE]);

/* The client's fields without those of its connection, then X-Forwarded-For, -Proto and -Host and
 * Abx-Request-Id. What a client on this machine (a TLS proxy) says in X-Forwarded-* is kept, what
 * others say is not. `mask_host`, if not empty, takes the place of Host and X-Forwarded-Host ("${PORT}" in it stands for
 * `port`). Upgrade stays when `allow_upgrade`. Slices point into the exchange and `ret`. */
int upstream_fields_make(const struct http_exchange *ex, const char *request_id,
                         const char *mask_host, uint16_t port, bool allow_upgrade,
                         struct upstream_fields *ret, struct abx_err *err);
void upstream_fields_done(struct upstream_fields *f);
