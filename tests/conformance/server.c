/* server.c - the server that Connect's conformance suite asks for, made of our own Connect code: the file
 * guest/envd/call.c as it is, and the HTTP server below it (HTTP/1.1 and cleartext HTTP/2).
 *
 * What envd never sends and the suite reads its results from is put in here, around the functions of
 * wire/connect and wire/rpc that call.c calls: details of errors, metadata at the end of a stream, and
 * google.protobuf.Any in JSON. Everything else that is on the wire comes from the code under test.
 *
 * Speaks the runner's protocol: one ServerCompatRequest on stdin, one ServerCompatResponse on stdout, each
 * after its length in 4 bytes, big endian; serves until it is killed. docs/hacking.md says how to run it.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/macro.h"
#include "base/str.h"
#include "conformance.pb-c.h"
#include "e2b/errors.h"
#include "net/http2.h"
#include "net/http_server.h"
#include "wire/connect.h"
#include "wire/rpc.h"

#define FIELDS_MAX 24u
#define PATH "/connectrpc.conformance.v1.ConformanceService/"
#define TYPES "type.googleapis.com/connectrpc.conformance.v1."

typedef Connectrpc__Conformance__V1__Header Header;
typedef Connectrpc__Conformance__V1__Error Error;
typedef Connectrpc__Conformance__V1__Any Any;
typedef Connectrpc__Conformance__V1__ConformancePayload Payload;
typedef Connectrpc__Conformance__V1__ConformancePayload__RequestInfo Info;
typedef Connectrpc__Conformance__V1__Response Response;
typedef Connectrpc__Conformance__V1__UnaryRequest UnaryRequest;
typedef Connectrpc__Conformance__V1__ServerStreamRequest StreamRequest;
typedef Connectrpc__Conformance__V1__UnaryResponseDefinition UnaryDefinition;
typedef Connectrpc__Conformance__V1__StreamResponseDefinition StreamDefinition;

static enum buf_status error_json(struct buf *b, const struct abx_err *err);
static enum buf_status end_stream(struct buf *b, const struct abx_err *err);
static enum buf_status json_encode(const ProtobufCMessage *m, struct buf *b);

#define connect_error_json error_json
#define connect_end_stream end_stream
#define rpc_json_encode json_encode
#include "guest/envd/call.c"
#undef connect_error_json
#undef connect_end_stream
#undef rpc_json_encode

/* One call that waits for its delay. */
struct op {
    struct call *call; /* NULL: given up */
    uv_timer_t timer;
    ProtobufCMessage **requests; /* owned, as many as info.requests */
    Info info;                   /* of the first answer or of the error */
    Header *headers;             /* of the request: arrays here, text owned */
    const UnaryDefinition *unary;
    const StreamDefinition *stream;
    size_t n_sent;
    bool has_begun; /* the answer's head is out */
    bool is_bare;   /* info has been sent */
};

/* Whose answer is being encoded: call.c knows nothing of details and metadata. */
static struct op *current;

/* --- what envd does not send --------------------------------------------------------------------- */

static void definition_fields(const struct op *op, bool is_trailer, Header ***ret, size_t *ret_n)
{
    *ret = NULL;
    *ret_n = 0;
    if (op->unary) {
        *ret = is_trailer ? op->unary->response_trailers : op->unary->response_headers;
        *ret_n = is_trailer ? op->unary->n_response_trailers : op->unary->n_response_headers;
    } else if (op->stream) {
        *ret = is_trailer ? op->stream->response_trailers : op->stream->response_headers;
        *ret_n = is_trailer ? op->stream->n_response_trailers : op->stream->n_response_headers;
    }
}

/* ,"details":[{"type":..,"value":..}] */
static enum buf_status put_details(struct buf *b)
{
    _cleanup_(buf_done) struct buf bytes = BUF_INIT(CALL_REPLY_MAX);
    enum buf_status st = rpc_proto_encode(&current->info.base, &bytes);

    if (st == BUF_OK)
        st = buf_append_str(b, ",\"details\":[{\"type\":\"connectrpc.conformance.v1."
                               "ConformancePayload.RequestInfo\",\"value\":\"");
    if (st == BUF_OK)
        st = base64_encode(b, buf_slice(&bytes), false);
    return st == BUF_OK ? buf_append_str(b, "\"}]") : st;
}

static enum buf_status error_json(struct buf *b, const struct abx_err *err)
{
    enum buf_status st = connect_error_json(b, err);

    if (st != BUF_OK || !current || current->is_bare)
        return st;
    buf_truncate(b, b->len - 1);
    st = put_details(b);
    return st == BUF_OK ? buf_append_byte(b, '}') : st;
}

/* "metadata":{"name":["value",..],..} */
static enum buf_status put_metadata(struct buf *b)
{
    enum buf_status st = buf_append_str(b, "\"metadata\":{");
    Header **fields;
    size_t n;

    definition_fields(current, true, &fields, &n);
    for (size_t i = 0; i < n && st == BUF_OK; i++) {
        (void)buf_append_str(b, i > 0 ? "," : "");
        st = json_string_put(b, slice_str(fields[i]->name));
        for (size_t j = 0; j < fields[i]->n_value && st == BUF_OK; j++) {
            (void)buf_append_str(b, j > 0 ? "," : ":[");
            st = json_string_put(b, slice_str(fields[i]->value[j]));
        }
        if (st == BUF_OK)
            st = buf_append_str(b, fields[i]->n_value > 0 ? "]" : ":[]");
    }
    return st == BUF_OK ? buf_append_byte(b, '}') : st;
}

static enum buf_status end_stream(struct buf *b, const struct abx_err *err)
{
    size_t mark = b->len;
    enum buf_status st = connect_end_stream(b, err);
    bool has_error = err && err->code != ABX_OK;

    if (st != BUF_OK || !current)
        return st;
    if (has_error)
        buf_truncate(b, b->len - 2); /* "}}": the error's and the message's */
    else
        buf_truncate(b, b->len - 1);
    if (has_error && !current->is_bare)
        st = put_details(b);
    if (st == BUF_OK)
        st = buf_append_str(b, has_error ? "}," : "");
    if (st == BUF_OK)
        st = put_metadata(b);
    if (st == BUF_OK)
        st = buf_append_byte(b, '}');
    return st == BUF_OK && connect_envelope_end(b, mark) ? BUF_OK : BUF_LIMIT;
}

/* "requests":[{"typeUrl":"..","value":".."}] becomes "requests":[{"@type":"..",<the message's fields>}]. */
static enum buf_status json_encode(const ProtobufCMessage *m, struct buf *b)
{
    _cleanup_(buf_done) struct buf plain = BUF_INIT(CALL_REPLY_MAX);
    static const char name[] = "\"requests\":[";
    enum buf_status st = rpc_json_encode(m, &plain);
    const uint8_t *at, *end;
    struct slice s = buf_slice(&plain);

    if (st != BUF_OK)
        return st;
    at = memmem(s.p, s.n, name, sizeof(name) - 1);
    if (!at || !current)
        return buf_append_slice(b, s);
    at += sizeof(name) - 1;
    end = memchr(at, ']', (size_t)(s.p + s.n - at)); /* neither base64 nor a type's name has one */
    st = buf_append(b, s.p, (size_t)(at - s.p));
    for (size_t i = 0; i < current->info.n_requests && st == BUF_OK; i++) {
        _cleanup_(buf_done) struct buf one = BUF_INIT(CALL_REPLY_MAX);
        st = rpc_json_encode(current->requests[i], &one);
        if (st == BUF_OK)
            st = buf_printf(b, "%s{\"@type\":\"%s\"%s", i > 0 ? "," : "",
                            current->info.requests[i]->type_url, one.len > 2 ? "," : "");
        if (st == BUF_OK)
            st = buf_append(b, (const char *)buf_data(&one) + 1, one.len - 1);
    }
    return st == BUF_OK ? buf_append(b, end, (size_t)(s.p + s.n - end)) : st;
}

/* --- envd's part of an answer -------------------------------------------------------------------- */

size_t envd_cors_fields(struct http1_field *to)
{
    return 0;
}

static void put_fields(struct http1_field *to, size_t *n, bool is_trailer, struct buf *names)
{
    Header **fields;
    size_t count;

    definition_fields(current, is_trailer, &fields, &count);
    for (size_t i = 0; i < count; i++) {
        size_t at = is_trailer ? names->len : 0;
        if (is_trailer)
            (void)buf_printf(names, "trailer-%s", fields[i]->name);
        for (size_t j = 0; j < fields[i]->n_value && *n < FIELDS_MAX; j++)
            to[(*n)++] = (struct http1_field){
                is_trailer ? slice_of((const uint8_t *)buf_data(names) + at, names->len - at)
                           : slice_str(fields[i]->name),
                slice_str(fields[i]->value[j]),
            };
    }
}

void envd_send(struct http_exchange *ex, int status, const char *content_type, struct slice body)
{
    _cleanup_(buf_done) struct buf names = BUF_INIT(4096);
    struct http1_field fields[FIELDS_MAX];
    size_t n = 0;

    if (!buf_reserve(&names, 4096, NULL)) /* fields point into it */
        abort();
    fields[n++] = (struct http1_field){ SLICE_LIT("Content-Type"), slice_str(content_type) };
    if (current) {
        put_fields(fields, &n, false, &names);
        if (current->unary && current->call->method->kind == CALL_UNARY)
            put_fields(fields, &n, true, &names);
    }
    http_exchange_send(ex, status, fields, n, body);
}

void envd_error(struct http_exchange *ex, int status, const char *message)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(16384);

    (void)e2b_error_body(&b, status, message);
    envd_send(ex, status, "application/json", buf_slice(&b));
}

int envd_user(const struct envd *e, const struct http1_head *head, struct user *ret,
              struct abx_err *err)
{
    return 0;
}

/* --- the service --------------------------------------------------------------------------------- */

static void op_closed(uv_handle_t *h)
{
    struct op *op = h->data;

    for (size_t i = 0; i < op->info.n_requests; i++) {
        rpc_message_free(op->requests[i]);
        free(op->info.requests[i]->value.data);
        free(op->info.requests[i]);
    }
    for (size_t i = 0; i < op->info.n_request_headers; i++) {
        for (size_t j = 0; j < op->headers[i].n_value; j++)
            free(op->headers[i].value[j]);
        free(op->headers[i].value);
        free(op->headers[i].name);
    }
    free(op->info.request_headers);
    free(op->headers);
    free(op->requests);
    free(op->info.requests);
    free(op);
}

static void op_end(struct op *op)
{
    current = NULL;
    op->call = NULL;
    uv_close((uv_handle_t *)&op->timer, op_closed);
}

static void on_gone(struct call *c)
{
    struct op *op = c->data;

    op_end(op);
    call_drop(c);
}

/* A test program: without memory it ends. */
static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

static char *text_of(struct slice s)
{
    return must(strndup((const char *)s.p, s.n));
}

/* One of each name, with all its values. */
static void keep_headers(struct op *op, const struct http1_head *head)
{
    op->headers = must(calloc(head->n_fields + 1, sizeof(*op->headers)));
    op->info.request_headers = must(calloc(head->n_fields + 1, sizeof(Header *)));
    for (size_t i = 0; i < head->n_fields; i++) {
        size_t known = 0;
        Header *h;

        while (known < op->info.n_request_headers &&
               !slice_ieq_str(head->fields[i].name, op->headers[known].name))
            known++;
        h = &op->headers[known];
        if (known == op->info.n_request_headers) {
            connectrpc__conformance__v1__header__init(h);
            h->name = text_of(head->fields[i].name);
            h->value = NULL;
            op->info.request_headers[op->info.n_request_headers++] = h;
        }
        h->value = must(reallocarray(h->value, h->n_value + 1, sizeof(char *)));
        h->value[h->n_value++] = text_of(head->fields[i].value);
    }
}

/* `m` is owned from here on. */
static void keep_request(struct op *op, ProtobufCMessage *m, const char *type)
{
    _cleanup_(buf_done) struct buf bytes = BUF_INIT(CALL_REPLY_MAX);
    size_t n = op->info.n_requests;
    Any *any = must(calloc(1, sizeof(*any)));

    connectrpc__conformance__v1__any__init(any);
    any->type_url = (char *)(uintptr_t)type;
    if (rpc_proto_encode(m, &bytes))
        abort();
    any->value.len = bytes.len;
    any->value.data = must(malloc(bytes.len + 1));
    if (bytes.len > 0)
        memcpy(any->value.data, buf_data(&bytes), bytes.len);
    op->requests = must(reallocarray(op->requests, n + 1, sizeof(*op->requests)));
    op->info.requests = must(reallocarray(op->info.requests, n + 1, sizeof(Any *)));
    op->requests[n] = m;
    op->info.requests[n] = any;
    op->info.n_requests++;
}

static struct op *op_new(struct call *c)
{
    struct op *op = must(calloc(1, sizeof(*op)));

    connectrpc__conformance__v1__conformance_payload__request_info__init(&op->info);
    op->call = c;
    c->data = op;
    c->on_gone = on_gone;
    (void)uv_timer_init(c->envd->loop, &op->timer);
    op->timer.data = op;
    keep_headers(op, http_exchange_head(c->ex));
    if (c->timeout_ms > 0) {
        op->info.has_timeout_case =
            CONNECTRPC__CONFORMANCE__V1__CONFORMANCE_PAYLOAD__REQUEST_INFO__HAS_TIMEOUT_TIMEOUT_MS;
        op->info.timeout_ms = (int64_t)c->timeout_ms;
    }
    return op;
}

/* "CODE_NOT_FOUND" is 5, our code -1005. */
static void error_of(const Error *e, struct abx_err *ret)
{
    (void)err_set(ret, -1000 - (int)e->code, "%s",
                  e->has_message_case == CONNECTRPC__CONFORMANCE__V1__ERROR__HAS_MESSAGE_MESSAGE
                      ? e->message
                      : "");
}

static void unary_done(uv_timer_t *timer)
{
    struct op *op = timer->data;
    struct call *c = op->call;
    Payload payload = CONNECTRPC__CONFORMANCE__V1__CONFORMANCE_PAYLOAD__INIT;
    Response response = CONNECTRPC__CONFORMANCE__V1__RESPONSE__INIT;
    struct abx_err err = { 0 };

    current = op;
    response.payload = &payload;
    payload.request_info = &op->info;
    if (op->unary && op->unary->response_case ==
                         CONNECTRPC__CONFORMANCE__V1__UNARY_RESPONSE_DEFINITION__RESPONSE_ERROR) {
        error_of(op->unary->error, &err);
        call_fail(c, &err);
    } else {
        if (op->unary &&
            op->unary->response_case ==
                CONNECTRPC__CONFORMANCE__V1__UNARY_RESPONSE_DEFINITION__RESPONSE_RESPONSE_DATA)
            payload.data = op->unary->response_data;
        call_reply(c, &response.base);
    }
    op_end(op);
}

static void unary(struct call *c)
{
    struct op *op = op_new(c);
    UnaryRequest *rq = (UnaryRequest *)TAKE_PTR(c->request);

    op->unary = rq->response_definition;
    keep_request(op, &rq->base, TYPES "UnaryRequest");
    (void)uv_timer_start(&op->timer, unary_done, op->unary ? op->unary->response_delay_ms : 0, 0);
}

static void client_stream(struct call *c)
{
    (void)op_new(c);
    call_next(c);
}

static void client_stream_message(struct call *c, ProtobufCMessage *m)
{
    struct op *op = c->data;

    if (!m) {
        (void)uv_timer_start(&op->timer, unary_done, op->unary ? op->unary->response_delay_ms : 0,
                             0);
        return;
    }
    if (op->info.n_requests == 0) /* the same fields as UnaryRequest */
        op->unary = ((Connectrpc__Conformance__V1__ClientStreamRequest *)m)->response_definition;
    keep_request(op, m, TYPES "ClientStreamRequest");
    call_next(c);
}

static void stream_finish(struct op *op)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(CALL_REPLY_MAX);
    struct abx_err err = { 0 };
    struct call *c = op->call;

    current = op;
    if (op->stream && op->stream->error)
        error_of(op->stream->error, &err);
    if (end_stream(&b, &err))
        abort();
    if (http_exchange_write(c->ex, buf_slice(&b)) < b.len)
        abort();
    call_stream_end(c);
    op_end(op);
}

static void stream_step(uv_timer_t *timer)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(CALL_REPLY_MAX);
    struct op *op = timer->data;
    Payload payload = CONNECTRPC__CONFORMANCE__V1__CONFORMANCE_PAYLOAD__INIT;
    Response response = CONNECTRPC__CONFORMANCE__V1__RESPONSE__INIT;

    if (!op->stream || op->n_sent == op->stream->n_response_data) {
        stream_finish(op);
        return;
    }
    current = op;
    response.payload = &payload;
    payload.data = op->stream->response_data[op->n_sent++];
    payload.request_info = op->is_bare ? NULL : &op->info;
    if (call_stream_encode(op->call, &response.base, &b, NULL) < 0)
        abort();
    op->is_bare = true;
    current = NULL;
    if (http_exchange_write(op->call->ex, buf_slice(&b)) < b.len)
        abort();
    (void)uv_timer_start(
        &op->timer, stream_step,
        op->n_sent < op->stream->n_response_data ? op->stream->response_delay_ms : 0, 0);
}

static void server_stream(struct call *c)
{
    struct op *op = op_new(c);
    StreamRequest *rq = (StreamRequest *)TAKE_PTR(c->request);
    struct http1_field fields[FIELDS_MAX];
    struct abx_err err = { 0 };
    size_t n = 0;

    op->stream = rq->response_definition;
    keep_request(op, &rq->base, TYPES "ServerStreamRequest");
    if (op->stream && op->stream->error && op->stream->n_response_data == 0) {
        current = op;
        error_of(op->stream->error, &err);
        call_fail(c, &err);
        op_end(op);
        return;
    }
    current = op;
    put_fields(fields, &n, false, NULL);
    current = NULL;
    if (call_stream_begin(c, fields, n, &err) < 0) {
        call_fail(c, &err);
        op_end(op);
        return;
    }
    (void)uv_timer_start(&op->timer, stream_step, op->stream ? op->stream->response_delay_ms : 0,
                         0);
}

const struct call_method process_methods[] = {
    { PATH "Unary", &connectrpc__conformance__v1__unary_request__descriptor, CALL_UNARY, unary,
      NULL },
    { PATH "ServerStream", &connectrpc__conformance__v1__server_stream_request__descriptor,
      CALL_SERVER_STREAM, server_stream, NULL },
    { PATH "ClientStream", &connectrpc__conformance__v1__client_stream_request__descriptor,
      CALL_CLIENT_STREAM, client_stream, client_stream_message },
    { 0 },
};
const struct call_method filesystem_methods[] = { { 0 } };

/* --- start --------------------------------------------------------------------------------------- */

static void on_request(void *user, struct http_exchange *ex)
{
    if (!call_handle(user, ex))
        envd_error(ex, 404, "not found"); /* as envd does */
}

static void read_all(void *to, size_t n)
{
    if (fread(to, 1, n, stdin) != n)
        abort();
}

static void start_runner(uint16_t port)
{
    Connectrpc__Conformance__V1__ServerCompatResponse answer =
        CONNECTRPC__CONFORMANCE__V1__SERVER_COMPAT_RESPONSE__INIT;
    _cleanup_(buf_done) struct buf b = BUF_INIT(4096);
    uint32_t n;

    answer.host = (char *)(uintptr_t)"127.0.0.1";
    answer.port = port;
    if (rpc_proto_encode(&answer.base, &b))
        abort();
    n = htonl((uint32_t)b.len);
    if (fwrite(&n, 1, sizeof(n), stdout) != sizeof(n) ||
        fwrite(buf_data(&b), 1, b.len, stdout) != b.len || fflush(stdout) != 0)
        abort();
}

int main(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct http_server_opts opts = { .protocol = &http2_protocol, .on_request = on_request };
    _cleanup_(buf_done) struct buf wanted = BUF_INIT(65536);
    struct envd envd = { .loop = uv_default_loop() };
    ProtobufCMessage *rq;
    socklen_t size = sizeof(at);
    struct abx_err err = { 0 };
    uint32_t n;

    read_all(&n, sizeof(n));
    n = ntohl(n);
    if (n > 65536)
        abort();
    for (uint32_t i = 0; i < n; i++) {
        uint8_t byte;
        read_all(&byte, 1);
        (void)buf_append_byte(&wanted, byte);
    }
    if (rpc_proto_decode(&connectrpc__conformance__v1__server_compat_request__descriptor,
                         buf_slice(&wanted), &rq, NULL))
        abort();
    if (((Connectrpc__Conformance__V1__ServerCompatRequest *)rq)->use_tls) {
        (void)fprintf(stderr, "no TLS here\n");
        return 1;
    }
    rpc_message_free(rq);
    opts.loop = envd.loop;
    opts.user = &envd;
    opts.listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (bind(opts.listen_fd, (struct sockaddr *)&at, size) < 0 || listen(opts.listen_fd, 128) < 0 ||
        getsockname(opts.listen_fd, (struct sockaddr *)&at, &size) < 0 ||
        http_server_new(&opts, &envd.server, &err) < 0) {
        (void)fprintf(stderr, "cannot listen: %s\n", err.msg);
        return 1;
    }
    start_runner(ntohs(at.sin_port));
    return uv_run(envd.loop, UV_RUN_DEFAULT);
}
