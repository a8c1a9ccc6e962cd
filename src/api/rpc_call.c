/* rpc_call.c - see rpc_call.h. */
#include "api/rpc_call.h"

#include "base/str.h"

struct rpc_call {
    struct envd_unary unary;
    struct rpc_call_spec spec; /* its request is gone after the start */
};

static void on_cancel(abx_call *call)
{
    struct rpc_call *c = call->state;

    envd_unary_cancel(&c->unary);
}

static const struct call_ops rpc_ops = { .cancel = on_cancel };

static void on_done(void *user, const ProtobufCMessage *m, const struct abx_err *err,
                    int http_status)
{
    abx_call *call = user;
    struct rpc_call *c = call->state;
    struct abx_err why = *err;

    call->bool_result = why.code == 0;
    if (why.code == 0 && c->spec.take)
        (void)c->spec.take(call, m, &why);
    else if (why.code != 0 && c->unary.is_coded && why.code == c->spec.false_code)
        why.code = 0;
    if (why.code == 0) {
        call_finish(call, c->spec.result);
        return;
    }
    if (why.code == ABX_NOT_FOUND && why.reason == ABX_REASON_NONE && c->unary.is_coded)
        why.reason = c->spec.not_found;
    call_fail_http(call, &why, http_status);
}

static int rpc_call_send(abx_call *call, const abx_sandbox *sandbox, struct abx_err *err)
{
    struct rpc_call *c = call->state;
    const struct rpc_call_spec *spec = &c->spec;
    struct envd_rpc rpc = {
        .procedure = spec->procedure,
        .user = spec->user,
        .request = spec->request,
        .response = spec->response,
        .is_read = spec->is_read,
        .wants_pings = spec->wants_pings,
    };
    int r = sandbox_deadline(sandbox, spec->request_timeout_ms, &rpc.deadline_ns, err);

    if (r < 0)
        return r;
    return envd_unary_start(&c->unary, call->client, sandbox, &rpc, on_done, call, err);
}

abx_call *rpc_call_start(abx_client *client, const abx_sandbox *sandbox,
                         const struct rpc_call_spec *spec)
{
    abx_call *call = call_new(client, &rpc_ops, sizeof(struct rpc_call));
    struct abx_err err = { 0 };
    struct rpc_call *c;

    if (!call)
        return NULL;
    c = call->state;
    c->spec = *spec;
    if (rpc_call_send(call, sandbox, &err) < 0)
        call_fail(call, &err);
    return call;
}

int text_check(const char *text, const char *name, bool is_needed, struct abx_err *err)
{
    if (!text)
        return is_needed ? err_set(err, ABX_INVALID_ARGUMENT, "%s is missing", name) : 0;
    if (!utf8_is_valid(slice_str(text)))
        return err_set(err, ABX_INVALID_ARGUMENT, "%s is not UTF-8", name);
    return 0;
}
