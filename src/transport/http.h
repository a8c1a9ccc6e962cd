/* http.h - one HTTP exchange of the client over libcurl's multi interface (layer 1).
 *
 * Cleartext is HTTP/1.1, HTTP/2 comes by ALPN (deps.md 4). Redirects are not followed, proxies only as
 * the config says, never for loopback. An exchange may be tried again (see enum http_retry) only as long as the sink has
 * heard nothing. Error messages name host and phase: "api.example.com: name resolution: ...",
 * "127.0.0.1:8490: connect: Connection refused".
 */
#pragma once

#include "abx/http.h"
#include "base/buf.h"
#include "base/err.h"
#include "transport/auth.h"
#include "transport/client.h"
#include "transport/config.h"

enum http_retry {
    HTTP_RETRY_CONNECT, /* while connecting: nothing was sent (config: connection_retries; 0, 0.5, 1, 2 s ... before each) */
    HTTP_RETRY_READ,    /* and a read without effect: on 429, 502, 503, 504 and lost connections, by
                           Retry-After and Should-Retry */
    HTTP_RETRY_KEYED,   /* like READ, for a request with an Idempotency-Key */
};

struct http_spec {
    abx_config *config; /* proxy, CA file; referenced while the exchange lives */
    const char *method;
    const char *url;
    const struct abx_pair *headers; /* copied */
    size_t header_count;
    struct slice body;    /* borrowed until the end */
    bool has_body;        /* an empty body is sent as Content-Length: 0 */
    abx_source_fn source; /* instead of body; such a request is never sent twice */
    void *source_user;
    int64_t source_size; /* ABX_UNSET = unknown: then by HTTP/1.1, see http_setup.c */
    enum http_retry retry;
    /* Values for a further attempt of fields that count only once (a signature and its nonce), written over those
     * of the same names and lengths; `user` is the sink's, `to` is done by the caller. NULL = all fields are
     * sent again as they were. An error ends the exchange. */
    int (*renew)(void *user, struct auth_headers *to, struct abx_err *err);
    int64_t deadline_ns;      /* whole exchange with its retries, 0 = none */
    int64_t head_deadline_ns; /* until the response's head, 0 = none */
    int64_t idle_ms; /* between bytes of the response body, 0 = none; a paused one does not count */
    bool accept_gzip; /* the body arrives unpacked */
    bool http1_only;
    bool is_stream;      /* for abx_trace: its answer's head and end are told apart */
    bool skip_502_retry; /* a 502 without Should-Retry: true is an answer here: no such sandbox */
};

struct http_head {
    int status;
    int version;                    /* 10, 11, 20 */
    const struct abx_pair *headers; /* names in lower case; borrowed during the callback */
    size_t header_count;
};
/* First value of a header (lower-case name), NULL = none. */
const char *http_head_get(const struct http_head *head, const char *name);

struct http_sink {
    /* The head of the answer that counts. Once, before any body. */
    void (*head)(void *user, const struct http_head *head);
    /* Bytes of the body. False = not taken: the same bytes come again after http_resume. */
    bool (*body)(void *user, struct slice data);
    /* Once, last; the exchange is freed after it. err->code 0 = the answer is complete. Not after
     * http_cancel. DEADLINE_EXCEEDED has ABX_REASON_REQUEST_TIMEOUT, UNAVAILABLE one of NAME, CONNECT, TLS,
     * DISCONNECTED; INTERNAL has PROTOCOL. */
    void (*done)(void *user, const struct abx_err *err);
};

struct http_exchange;

/* Starts an exchange; callbacks come from abx_client_process only. `*ret` stays valid until done or
 * http_cancel. Errors: INVALID_ARGUMENT (URL, header), RESOURCE_EXHAUSTED. */
int http_start(abx_client *c, const struct http_spec *spec, const struct http_sink *sink,
               void *user, struct http_exchange **ret, struct abx_err *err);
/* Ends it without a callback and cuts its connection or stream. */
void http_cancel(struct http_exchange *x);
/* After a body callback returned false. From anywhere. */
void http_resume(struct http_exchange *x);
/* After the source returned ABX_UNAVAILABLE. From anywhere. */
void http_resume_source(struct http_exchange *x);

/* A bare connection to the URL's host, through its proxy and TLS (HTTP/1.1 by ALPN), for a protocol that
 * begins as HTTP. Of the spec config, url, the deadlines until it is there and connect retries count, of the sink
 * only `done`; after a done without error the exchange lives on until http_cancel, which cuts the
 * connection. Errors as http_start. */
int http_tunnel_start(abx_client *c, const struct http_spec *spec, const struct http_sink *sink,
                      void *user, struct http_exchange **ret, struct abx_err *err);
/* `fn` runs when it is readable or writable, as asked for (CLIENT_IN, CLIENT_OUT). */
int http_tunnel_watch(struct http_exchange *x, unsigned events,
                      void (*fn)(void *user, unsigned events), void *user, struct abx_err *err);
/* Bytes moved; 0 from recv = the peer closed; ABX_UNAVAILABLE without a reason = none now; else an error. */
int64_t http_tunnel_recv(struct http_exchange *x, void *to, size_t size, struct abx_err *err);
int64_t http_tunnel_send(struct http_exchange *x, struct slice data, struct abx_err *err);

struct http_pool;
int http_pool_new(abx_client *c, const struct abx_client_opts *opts, struct http_pool **ret,
                  struct abx_err *err);
void http_pool_free(struct http_pool *pool);
