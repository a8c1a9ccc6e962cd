/* process.c - running processes: list, signal, input (abx/commands.h). */
#include <string.h>

#include "api/command.h"
#include "api/rpc_call.h"
#include "base/str.h"
#include "transport/opts.h"

#define INPUT_PIECE (1u << 20)

/* ---- list ---- */

static int take_envs(abx_call *call, const Process__ProcessConfig *config,
                     struct abx_process_info *ret)
{
    struct abx_pair *envs = call_alloc_array(call, config->n_envs, sizeof *envs);

    if (!envs)
        return -1;
    for (size_t i = 0; i < config->n_envs; i++) {
        envs[i].key = call_strdup(call, config->envs[i]->key);
        envs[i].value = call_strdup(call, config->envs[i]->value);
        if (!envs[i].key || !envs[i].value)
            return -1;
    }
    ret->envs = envs;
    ret->env_count = config->n_envs;
    return 0;
}

static int take_config(abx_call *call, const Process__ProcessConfig *config,
                       struct abx_process_info *ret)
{
    const char **args = call_alloc_array(call, config->n_args, sizeof *args);

    ret->cmd = call_strdup(call, config->cmd);
    if (!args || !ret->cmd)
        return -1;
    for (size_t i = 0; i < config->n_args; i++) {
        args[i] = call_strdup(call, config->args[i]);
        if (!args[i])
            return -1;
    }
    ret->args = args;
    ret->arg_count = config->n_args;
    if (config->cwd_opt_case == PROCESS__PROCESS_CONFIG__CWD_OPT_CWD) {
        ret->cwd = call_strdup(call, config->cwd);
        if (!ret->cwd)
            return -1;
    }
    return take_envs(call, config, ret);
}

static int take_processes(abx_call *call, const ProtobufCMessage *m, struct abx_err *err)
{
    const Process__ListResponse *answer = (const Process__ListResponse *)m;
    struct abx_process_info *items = call_alloc_array(call, answer->n_processes, sizeof *items);

    if (!items)
        return err_oom(err);
    for (size_t i = 0; i < answer->n_processes; i++) {
        const Process__ProcessInfo *p = answer->processes[i];

        items[i].pid = p->pid;
        items[i].cmd = "";
        if (p->tag_opt_case == PROCESS__PROCESS_INFO__TAG_OPT_TAG) {
            items[i].tag = call_strdup(call, p->tag);
            if (!items[i].tag)
                return err_oom(err);
        }
        if (p->config && take_config(call, p->config, &items[i]) < 0)
            return err_oom(err);
    }
    call->items = items;
    call->item_count = answer->n_processes;
    return 0;
}

abx_call *abx_process_list(abx_client *client, const abx_sandbox *sandbox,
                           int64_t request_timeout_ms)
{
    const Process__ListRequest request = PROCESS__LIST_REQUEST__INIT;
    const struct rpc_call_spec spec = {
        .procedure = "process.Process/List",
        .request = &request.base,
        .response = &process__list_response__descriptor,
        .is_read = true,
        .request_timeout_ms = request_timeout_ms,
        .result = ABX_RESULT_PROCESSES,
        .take = take_processes,
    };

    return rpc_call_start(client, sandbox, &spec);
}

const struct abx_process_info *abx_call_processes(const abx_call *call, size_t *ret_count)
{
    return call_items(call, ABX_RESULT_PROCESSES, ret_count);
}

/* ---- signals ---- */

abx_call *abx_process_signal(abx_client *client, const abx_sandbox *sandbox,
                             struct abx_process_ref process, int signal, int64_t request_timeout_ms)
{
    Process__SendSignalRequest request = PROCESS__SEND_SIGNAL_REQUEST__INIT;
    Process__ProcessSelector selector;
    const struct rpc_call_spec spec = {
        .procedure = "process.Process/SendSignal",
        .request = &request.base,
        .response = &process__send_signal_response__descriptor,
        .request_timeout_ms = request_timeout_ms,
        .result = ABX_RESULT_BOOL,
        .false_code = ABX_NOT_FOUND,
    };
    struct abx_err err = { 0 };
    int r = process_selector(&process, &selector, &err);

    if (r == 0 && signal != 9 && signal != 15)
        r = err_set(&err, ABX_INVALID_ARGUMENT, "signal %d: envd sends 9 and 15", signal);
    if (r < 0)
        return call_new_failed(client, &err);
    request.process = &selector;
    request.signal =
        signal == 9 ? PROCESS__SIGNAL__SIGNAL_SIGKILL : PROCESS__SIGNAL__SIGNAL_SIGTERM;
    return rpc_call_start(client, sandbox, &spec);
}

/* ---- input ---- */

struct input {
    struct envd_unary unary;
    abx_sandbox *sandbox;
    struct abx_process_ref process;
    bool is_pty;
    int64_t deadline_ns;
    uint8_t *data; /* copy, arena */
    size_t size, sent;
};

static void input_cancel(abx_call *call)
{
    struct input *in = call->state;

    envd_unary_cancel(&in->unary);
}

static void input_done(abx_call *call)
{
    struct input *in = call->state;

    abx_sandbox_unref(TAKE_PTR(in->sandbox));
}

static void input_answer(void *user, const ProtobufCMessage *m, const struct abx_err *err,
                         int http_status);

/* Sends the next piece. */
static int input_send(abx_call *call, struct abx_err *err)
{
    struct input *in = call->state;
    size_t n = MIN(in->size - in->sent, (size_t)INPUT_PIECE);
    ProtobufCBinaryData bytes = { n, in->data + in->sent };
    Process__SendInputRequest request = PROCESS__SEND_INPUT_REQUEST__INIT;
    Process__ProcessInput input = PROCESS__PROCESS_INPUT__INIT;
    Process__ProcessSelector selector;
    const struct envd_rpc rpc = {
        .procedure = "process.Process/SendInput",
        .request = &request.base,
        .response = &process__send_input_response__descriptor,
        .deadline_ns = in->deadline_ns,
    };
    int r = process_selector(&in->process, &selector, err);

    if (r < 0)
        return r;
    if (in->is_pty) {
        input.input_case = PROCESS__PROCESS_INPUT__INPUT_PTY;
        input.pty = bytes;
    } else {
        input.input_case = PROCESS__PROCESS_INPUT__INPUT_STDIN;
        input.stdin = bytes;
    }
    request.process = &selector;
    request.input = &input;
    in->sent += n;
    return envd_unary_start(&in->unary, call->client, in->sandbox, &rpc, input_answer, call, err);
}

static void input_answer(void *user, const ProtobufCMessage *m, const struct abx_err *err,
                         int http_status)
{
    abx_call *call = user;
    const struct input *in = call->state;
    struct abx_err why = *err;

    if (why.code == 0 && in->sent < in->size && input_send(call, &why) == 0)
        return;
    if (why.code == 0)
        call_finish(call, ABX_RESULT_NONE);
    else
        call_fail_http(call, &why, http_status);
}

static int input_start(abx_call *call, const abx_sandbox *sandbox,
                       const struct abx_process_ref *process, struct slice data,
                       int64_t request_timeout_ms, struct abx_err *err)
{
    struct input *in = call->state;
    int r = sandbox_deadline(sandbox, request_timeout_ms, &in->deadline_ns, err);

    if (r == 0)
        r = opts_array_check(data.p, data.n, "data", err);
    if (r < 0)
        return r;
    in->sandbox = abx_sandbox_ref((abx_sandbox *)(uintptr_t)sandbox);
    in->process.pid = process->pid;
    in->process.tag = call_strdup(call, process->tag);
    in->data = (uint8_t *)call_dup(call, data);
    in->size = data.n;
    if (!in->data || (process->tag && !in->process.tag))
        return err_oom(err);
    return input_send(call, err);
}

abx_call *abx_process_send_stdin(abx_client *client, const abx_sandbox *sandbox,
                                 struct abx_process_ref process, int pty, const void *data,
                                 size_t size, int64_t request_timeout_ms)
{
    static const struct call_ops ops = { .cancel = input_cancel, .done = input_done };
    abx_call *call = call_new(client, &ops, sizeof(struct input));
    struct abx_err err = { 0 };
    struct input *in;

    if (!call)
        return NULL;
    in = call->state;
    in->is_pty = pty != 0;
    if (input_start(call, sandbox, &process, slice_of(data, size), request_timeout_ms, &err) < 0)
        call_fail(call, &err);
    return call;
}

abx_call *abx_process_close_stdin(abx_client *client, const abx_sandbox *sandbox,
                                  struct abx_process_ref process, int64_t request_timeout_ms)
{
    Process__CloseStdinRequest request = PROCESS__CLOSE_STDIN_REQUEST__INIT;
    Process__ProcessSelector selector;
    const struct rpc_call_spec spec = {
        .procedure = "process.Process/CloseStdin",
        .request = &request.base,
        .response = &process__close_stdin_response__descriptor,
        .request_timeout_ms = request_timeout_ms,
        .result = ABX_RESULT_NONE,
    };
    struct abx_err err = { 0 };
    int r = process_selector(&process, &selector, &err);

    if (r == 0)
        r = sandbox_need_envd(sandbox, 0, 5, 2, "closing standard input", &err);
    if (r < 0)
        return call_new_failed(client, &err);
    request.process = &selector;
    return rpc_call_start(client, sandbox, &spec);
}
