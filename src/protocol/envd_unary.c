/* envd_unary.c - one message there, one message back (e2b.md 3.1). See envd.h. */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "protocol/envd.h"
#include "protocol/envd_rpc.h"

int envd_rpc_encode(const ProtobufCMessage *m, bool is_protobuf, struct buf *b, struct abx_err *err)
{
    enum buf_status st = is_protobuf ? rpc_proto_encode(m, b) : rpc_json_encode(m, b);

    if (st == BUF_LIMIT)
        return err_reason(err, ABX_REASON_TOO_LARGE, "the request is over %u MiB",
                          CONNECT_MESSAGE_MAX >> 20);
    return st == BUF_OK ? 0 : err_oom(err);
}

int envd_rpc_decode(const struct envd_exchange *x, const ProtobufCMessageDescriptor *type,
                    bool is_protobuf, struct slice bytes, ProtobufCMessage **ret,
                    struct abx_err *err)
{
    struct rpc_error e = { 0 };
    enum rpc_status st = is_protobuf
                             ? rpc_proto_decode_within(type, bytes, RPC_ANSWER_FACTOR, ret, &e)
                             : rpc_json_decode(type, bytes, ret, &e);

    if (st == RPC_OOM)
        return err_oom(err);
    if (st != RPC_OK)
        return envd_protocol_error(x, err, "malformed message at byte %zu: %s", e.offset, e.text);
    return 0;
}

int envd_rpc_check_head(const struct envd_exchange *x, const struct http_head *head,
                        bool is_protobuf, bool is_stream, struct abx_err *err)
{
    enum connect_codec want = is_protobuf ? CONNECT_PROTO : CONNECT_JSON, codec = CONNECT_JSON;
    const char *type = http_head_get(head, "content-type");
    bool got_stream = false;

    if (head->status != 200)
        return envd_protocol_error(x, err, "HTTP status %d", head->status);
    /* Clients in the field do not look at it; a server that sends none is understood. */
    if (type && (!connect_content_type(slice_str(type), &codec, &got_stream) || codec != want ||
                 got_stream != is_stream))
        return envd_protocol_error(x, err, "the answer's Content-Type is '%.100s', not '%s'", type,
                                   connect_content_type_name(want, is_stream));
    return 0;
}

size_t envd_rpc_headers(const struct envd_rpc *rpc, bool is_protobuf, bool is_stream,
                        struct envd_rpc_numbers *mem, struct abx_pair to[ENVD_RPC_HEADERS_MAX])
{
    enum connect_codec codec = is_protobuf ? CONNECT_PROTO : CONNECT_JSON;
    size_t n = 0;

    to[n++] = (struct abx_pair){ "Content-Type", connect_content_type_name(codec, is_stream) };
    to[n++] = (struct abx_pair){ "Connect-Protocol-Version", "1" };
    if (rpc->timeout_ms > 0) {
        (void)snprintf(mem->timeout, sizeof mem->timeout, "%lld", (long long)rpc->timeout_ms);
        to[n++] = (struct abx_pair){ "Connect-Timeout-Ms", mem->timeout };
    }
    if (is_stream || rpc->wants_pings) {
        (void)snprintf(mem->pings, sizeof mem->pings, "%d", ENVD_KEEPALIVE_S);
        to[n++] = (struct abx_pair){ "Keepalive-Ping-Interval", mem->pings };
    }
    if (rpc->output_offset) {
        (void)snprintf(mem->offset, sizeof mem->offset, "%llu",
                       (unsigned long long)*rpc->output_offset);
        to[n++] = (struct abx_pair){ "Abx-Output-Offset", mem->offset };
    }
    return n;
}

static void unary_clear(struct envd_unary *u)
{
    buf_done(&u->request);
    buf_done(&u->response);
}

static int on_head(void *user, const struct http_head *head, struct abx_err *err)
{
    struct envd_unary *u = user;

    return envd_rpc_check_head(&u->x, head, u->is_protobuf, false, err);
}

static enum envd_taken on_body(void *user, struct slice data, struct abx_err *err)
{
    struct envd_unary *u = user;
    enum buf_status st = buf_append_slice(&u->response, data);

    if (st == BUF_OK)
        return ENVD_TAKEN;
    if (st == BUF_LIMIT)
        (void)err_reason(err, ABX_REASON_TOO_LARGE, "the answer to %s is over %u MiB", u->x.what,
                         ENVD_UNARY_MAX >> 20);
    else
        (void)err_oom(err);
    return ENVD_BROKEN;
}

/* Decoded here, while the exchange still knows its host. */
static void on_judge(void *user, struct abx_err *err)
{
    struct envd_unary *u = user;

    if (err->code == 0)
        (void)envd_rpc_decode(&u->x, u->type, u->is_protobuf, buf_slice(&u->response), &u->message,
                              err);
}

static void on_done(void *user, const struct abx_err *err, int http_status)
{
    struct envd_unary *u = user;
    ProtobufCMessage *m = TAKE_PTR(u->message);

    u->is_coded = u->x.is_coded;
    unary_clear(u);
    u->done(u->user, err->code == 0 ? m : NULL, err, http_status);
    rpc_message_free(m);
}

int envd_unary_start(struct envd_unary *u, abx_client *client, const abx_sandbox *sandbox,
                     const struct envd_rpc *rpc, envd_unary_fn done, void *user,
                     struct abx_err *err)
{
    static const struct envd_exchange_ops ops = { on_head, on_body, on_judge, on_done };
    struct abx_pair headers[ENVD_RPC_HEADERS_MAX];
    struct envd_rpc_numbers mem;
    char path[128];
    struct envd_request q = {
        .what = rpc->procedure,
        .method = "POST",
        .path = path,
        .user = envd_user(sandbox, rpc->user),
        .headers = headers,
        .has_body = true,
        .retry = rpc->is_read ? HTTP_RETRY_READ : HTTP_RETRY_CONNECT,
        .deadline_ns = rpc->deadline_ns,
    };
    int r;

    *u = (struct envd_unary){
        .request = BUF_INIT(CONNECT_MESSAGE_MAX),
        .response = BUF_INIT(ENVD_UNARY_MAX),
        .type = rpc->response,
        .done = done,
        .user = user,
        .is_protobuf = sandbox->protobuf,
    };
    (void)snprintf(path, sizeof path, "/%s", rpc->procedure);
    q.header_count = envd_rpc_headers(rpc, u->is_protobuf, false, &mem, headers);
    r = envd_rpc_encode(rpc->request, u->is_protobuf, &u->request, err);
    q.body = buf_slice(&u->request);
    if (r == 0)
        r = envd_exchange_start(&u->x, client, sandbox, &q, &ops, u, err);
    if (r < 0)
        unary_clear(u);
    return r;
}

void envd_unary_cancel(struct envd_unary *u)
{
    envd_exchange_cancel(&u->x);
    rpc_message_free(TAKE_PTR(u->message));
    unary_clear(u);
}
