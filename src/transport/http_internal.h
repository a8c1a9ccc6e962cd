/* http_internal.h - what the files of the HTTP layer share: pool, exchange, head.
 *
 * http.c is the life of an exchange (start, answer, retries, end), http_setup.c turns a spec into libcurl's
 * options, http_body.c sends bodies, http_pool.c is the multi handle with its sockets and timer, http_head.c parses
 * heads, http_gzip.c unpacks bodies, http_fail.c makes errors. libcurl must not be called from inside its own callbacks
 * except where it says so; pool->in_curl is true while it runs, and what a callback asks for then is done after it
 * (pool_settle).
 */
#pragma once

#include <curl/curl.h>
#include <zlib.h>

#include "base/buf.h"
#include "transport/http.h"

#define HTTP_HEADERS_MAX 100
#define HTTP_HEAD_BYTES 65536u
/* Of an answer's 1xx heads, head and trailers together: libcurl keeps them all. */
#define HTTP_FIELDS_BYTES (4 * HTTP_HEAD_BYTES)
#define HTTP_URL_BYTES 65536u
/* Bodies up to this are copied and go out in one write with their head. */
#define HTTP_SMALL_BODY 16384u
/* Of an answer that is not the last one this much is read to keep the connection, then it is cut. */
#define HTTP_DISCARD_BYTES 65536u
#define HTTP_RETRIES 3
/* A server that asks for a longer pause gets no second try: the answer is given to the caller. */
#define HTTP_RETRY_AFTER_MAX_MS 60000
#define HTTP_CONNECT_TIMEOUT_MS 30000
#define HTTP_HOLD_MS 300 /* see pool_hold_ms */

struct head_field {
    size_t name, value; /* offsets into mem, both NUL-terminated */
};

struct head_parser {
    struct buf mem;
    struct head_field fields[HTTP_HEADERS_MAX];
    struct abx_pair pairs[HTTP_HEADERS_MAX];
    size_t count;
    size_t bytes; /* read, of the head at hand */
    int status;
    int version; /* 10, 11, 20 */
    char why[96];
};

enum head_result { HEAD_MORE, HEAD_DONE, HEAD_BAD };
void head_init(struct head_parser *p);
void head_done(struct head_parser *p);
void head_reset(struct head_parser *p);
/* One line as libcurl gives it, with its line end. HEAD_DONE at the end of a final head (not 1xx);
 * HEAD_BAD: `why` says what is wrong or which limit it is over. */
enum head_result head_line(struct head_parser *p, struct slice line);
/* Value of Retry-After in ms from `now_ms` (wall clock), -1 = none or not understood. */
int64_t head_retry_after_ms(const char *value, int64_t now_ms);

struct http_gzip {
    z_stream z;
    bool has_bytes, is_end;
    size_t ahead;    /* bytes that libcurl is to give again and inflate has had */
    size_t out_size; /* unpacked and not taken yet */
    uint8_t out[32768];
};

enum exchange_state {
    EXCHANGE_FREE,    /* in the pool */
    EXCHANGE_RUNNING, /* libcurl has it */
    EXCHANGE_TUNNEL,  /* a bare connection, in the caller's hands */
    EXCHANGE_WAITING, /* for a time to try again */
    EXCHANGE_OVER     /* done is being told */
};

struct http_exchange {
    struct http_pool *pool;
    CURL *easy;
    bool is_spent; /* the easy handle serves this exchange and none after it: see exchange_spends */
    enum exchange_state state;
    struct http_exchange *next;                    /* in pool->spare or ->doomed */
    struct http_exchange *prev_live, *next_live;   /* in pool->live */
    struct http_exchange *prev_queue, *next_queue; /* in pool->queue */
    bool is_queued, is_counted;

    struct http_sink sink;
    void *user;
    abx_config *config;
    struct buf mem; /* texts of the request, slist nodes, a small body */
    const char *url;
    const char *host; /* authority of the URL, for messages */
    const char *method;
    struct curl_slist *headers;
    int (*renew)(void *user, struct auth_headers *to, struct abx_err *err);
    struct slice body;
    size_t body_at;
    bool has_body, is_small_body, http1_only, accept_gzip, skip_502_retry, is_https, is_tunnel;
    bool is_stream;
    bool is_traced; /* its request was told, and no answer to it */
    int64_t traced_ns;
    abx_source_fn source;
    void *source_user;
    int64_t source_size, source_given;
    int source_error; /* code; what for is in source_why */
    char source_why[96];
    enum http_retry retry;
    struct client_watch tunnel_watch;

    struct client_timer timer;
    int64_t start_ns, deadline_ns, head_deadline_ns, idle_ns, last_byte_ns, retry_at_ns;
    int connect_retries, answer_retries;

    /* of the attempt at hand */
    bool is_sent;       /* libcurl was allowed to send */
    bool is_resend;     /* libcurl wanted to send a second time */
    bool is_refused;    /* the server said that it did nothing with the stream (REFUSED_STREAM) */
    bool is_early;      /* not sent: the connection's limit of streams is not known yet */
    bool has_head;      /* the sink has the head */
    bool is_discarding; /* the answer will be tried again: its body is dropped */
    bool is_bad_head;
    bool is_canceled;      /* http_cancel inside a callback of libcurl */
    int fd;                /* the last socket that was opened for it, -1 = none */
    int send_fd;           /* the one that libcurl sends on, -1 = not known */
    bool goes_past;        /* its body may be sent past libcurl, see http_body.c */
    curl_off_t body_given; /* bytes of the body that libcurl got */
    bool recv_paused, send_paused, resume_recv, resume_send;
    size_t discarded;
    size_t field_bytes; /* of 1xx heads, head and trailers */
    int64_t retry_after_ms;
    struct client_task resume_task;
    struct head_parser head;
    struct http_gzip *gzip; /* while an answer is unpacked */
    char error_text[CURL_ERROR_SIZE];
};

struct http_socket {
    struct client_watch watch;
    struct http_pool *pool;
    unsigned wanted; /* by libcurl; a watch may stay longer, see http_pool.c */
    bool is_tls;
    bool is_open; /* opened by us: closed by us */
    bool is_idle; /* kept open, its last answer complete, not of HTTP/2: nothing may come on it */
    bool is_new;  /* TLS, and its first request has no answer: see pool_hold_ms */
    int own_port; /* of a new one */
    int64_t hold_until_ns;
    const struct http_exchange *opener; /* to compare with, not to follow: it may be gone */
    const struct http_exchange *sender; /* whose request went out on it last, likewise */
    int port;                           /* its own; 0: not asked yet */
};

DEFINE_CLEANUP(struct http_pool *, http_pool_free)

struct http_pool {
    abx_client *client;
    CURLM *multi;
    bool in_curl;
    bool can_go_past; /* this libcurl lets bodies be sent past it, see http_body.c */
    int max_connections, max_idle;
    int64_t idle_timeout_ns;
    long max_age_s;
    char *no_proxy, *ca_file, *ca_dir; /* of the environment */
    const char *ca_default;            /* libcurl's */

    struct client_timer curl_timer; /* libcurl's */
    struct client_timer idle_timer; /* closes idle connections */
    struct http_socket **sockets;   /* index = fd */
    size_t socket_count;

    struct http_exchange *live;   /* from http_start to their end */
    struct http_exchange *spare;  /* finished, with their easy handle */
    struct http_exchange *doomed; /* canceled inside a callback */
    /* Exchanges that each need a connection of their own wait here for one, in order: libcurl's own queue goes through
     * all that wait each time one ends. */
    struct http_exchange *queue, *queue_last;
    struct client_task queue_task;
    int counted; /* of those in libcurl's hands */
    int running_count, spare_count, open_count, new_count;
};

/* http_pool.c */
/* A spare or new exchange; NULL when out of memory. */
struct http_exchange *pool_take(struct http_pool *pool);
void pool_give(struct http_pool *pool, struct http_exchange *x);
int pool_add(struct http_pool *pool, struct http_exchange *x, struct abx_err *err);
/* Takes it into the queue when all connections are taken. */
bool pool_enqueue(struct http_pool *pool, struct http_exchange *x);
void pool_dequeue(struct http_pool *pool, struct http_exchange *x);
/* Out of libcurl's hands; its connection is cut unless the transfer was complete. Not inside libcurl. */
void pool_remove(struct http_pool *pool, struct http_exchange *x);
/* Continues a paused transfer; runs its callbacks. Not inside libcurl. */
void pool_unpause(struct http_pool *pool, struct http_exchange *x);
/* Is a connection of its own open as far as TCP goes? */
bool pool_is_connected(const struct http_exchange *x);
/* Is the limit of connections reached? */
bool pool_is_full(const struct http_pool *pool);
/* libcurl may send a request on the connection with this port of ours. Milliseconds to wait before, 0 = none: the first
 * request on a connection goes alone until its answer begins, but for HTTP_HOLD_MS at most. Only then is the server's
 * SETTINGS frame (RFC 9113 3.4: its first) read for sure. Before, libcurl opens up to 100 streams; a server that
 * allows fewer refuses the others, and libcurl does not tell a stream that was refused on a shared connection, and had
 * no effect, from one that was lost. */
int64_t pool_hold_ms(struct http_exchange *x, int own_port);

/* A request of `x` goes out on the connection with this port of ours, so an answer may come on it. libcurl does not
 * always say so itself: it reads before it asks to be told of bytes. */
void pool_sends(const struct http_exchange *x, int own_port);

/* libcurl is done with `x`: if its connection is kept, nothing may come on it now. */
void pool_sent(const struct http_exchange *x);
/* The answer begins: those that were held because of it go out. */
void pool_answered(struct http_exchange *x);
/* After libcurl ran: finished transfers, cancels. */
void pool_settle(struct http_pool *pool);

/* Lets go of a descriptor that stays open for somebody else's watch. */
void pool_forget_socket(struct http_pool *pool, int fd);

/* http_trace.c */
/* Tells the config's owner, if it wants to know. A REQUEST is told once, until its end or answer is. `err` may be NULL. */
void exchange_trace(struct http_exchange *x, enum abx_trace_kind kind, int status,
                    const struct abx_err *err);
/* The answer is whole (code 0), or there will be none. */
void exchange_trace_end(struct http_exchange *x, const struct abx_err *err);

/* http_tunnel.c */
/* The connection is there: hands it over. */
void tunnel_opened(struct http_exchange *x);

/* http.c */
/* libcurl is done with an attempt. */
void exchange_finished(struct http_exchange *x, CURLcode result);
/* Did the attempt at hand end without an answer, so that libcurl may remember a refused stream in the easy handle? It
 * would take the next connection that is lost for a refusal, and send again what the server did. */
bool exchange_spends(const struct http_exchange *x);
/* Its turn in the queue has come. */
void exchange_admit(struct http_exchange *x);
/* It waits no longer for another one's answer. */
void exchange_hold_end(struct http_exchange *x);
/* Back to the pool; the end was told or is not to be told. */
void exchange_release(struct http_exchange *x);

/* libcurl's callbacks; `user` is the exchange. */
size_t exchange_on_header(char *p, size_t size, size_t n, void *user);
size_t exchange_on_body(char *p, size_t size, size_t n, void *user);
/* A connection is there and nothing of the request was sent on it yet. */
int exchange_on_send(void *user, char *ip, char *own_ip, int port, int own_port);
int exchange_on_debug(CURL *easy, curl_infotype type, char *text, size_t n, void *user);

/* http_body.c; libcurl's callbacks, too */
size_t exchange_on_read(char *to, size_t size, size_t n, void *user);
int exchange_on_seek(void *user, curl_off_t offset, int origin);

/* http_setup.c */
/* Copies the spec into `x` and checks it. INVALID_ARGUMENT names the field. */
int setup_spec(struct http_exchange *x, const struct http_spec *spec, struct abx_err *err);
/* Before each attempt. */
int setup_attempt(struct http_exchange *x, struct abx_err *err);
/* Before a further attempt: the fields that count only once (http_spec.renew). */
int setup_renew(struct http_exchange *x, struct abx_err *err);
/* Is the URL's host this machine by name or address? (localhost, *.localhost, 127.0.0.0/8, ::1) */
bool url_is_loopback(const char *url);

/* http_gzip.c */
enum gzip_result { GZIP_TAKEN, GZIP_PAUSED, GZIP_BAD };
/* The answer's body is packed. False = out of memory. */
bool gzip_start(struct http_exchange *x);
void gzip_stop(struct http_exchange *x);
/* Packed bytes on their way to the sink. GZIP_PAUSED: it did not take them, or canceled. */
enum gzip_result gzip_body(struct http_exchange *x, struct slice packed);
/* Did the stream come to its end (or never begin: an answer without a body)? */
bool gzip_is_complete(const struct http_gzip *g);

/* http_fail.c */
/* The error of an attempt that libcurl ended with `result`. */
void fail_make(struct http_exchange *x, CURLcode result, struct abx_err *err);
/* "connect", "TLS handshake", ...: what the attempt is at. */
const char *fail_phase(struct http_exchange *x);
/* May the attempt be made again: nothing was sent, and the failure may be gone by then? */
bool fail_is_connect_retry(const struct http_exchange *x, CURLcode result);
/* Was the connection lost before the head? */
bool fail_is_lost(const struct http_exchange *x, CURLcode result);
