/* command.c - the stream of one process: its events, its output, how it ended. See command.h.
 *
 * Standard output is collected in call->bytes, standard error in call->more; a pty's output counts as
 * standard output.
 */
#include "api/command.h"

#include <string.h>

#include "api/rpc_call.h"
#include "base/str.h"
#include "transport/opts.h"

struct command {
    struct envd_stream stream;
    struct abx_command_result result; /* but its outputs */
    bool has_events, has_output;
};

_Static_assert(offsetof(Process__StartResponse, event) == offsetof(Process__ConnectResponse, event),
               "both answers are read as one");

static void on_end(abx_call *call)
{
    struct command *c = call->state;

    envd_stream_cancel(&c->stream);
}

static void on_resume(abx_call *call)
{
    struct command *c = call->state;

    envd_stream_resume(&c->stream);
}

static const struct call_ops command_ops = { .cancel = on_end,
                                             .resume = on_resume,
                                             .done = on_end };

abx_call *command_new(abx_client *client)
{
    return call_new(client, &command_ops, sizeof(struct command));
}

static int push(abx_call *call, const struct abx_event *event, struct abx_err *err)
{
    const struct command *c = call->state;

    return !c->has_events || call_event_push(call, event) ? 0 : err_oom(err);
}

static int collect(abx_call *call, enum abx_stream stream, struct slice data, struct abx_err *err)
{
    struct buf *b = stream == ABX_STDERR ? &call->more : &call->bytes;

    switch (buf_append_slice(b, data)) {
    case BUF_OK:
        return 0;
    case BUF_LIMIT:
        return err_reason(err, ABX_REASON_TOO_LARGE,
                          "%s is over max_output_bytes (%zu): read it as a stream",
                          stream == ABX_STDERR ? "standard error" : "standard output", b->limit);
    case BUF_OOM:
        break;
    }
    return err_oom(err);
}

static int take_data(abx_call *call, const Process__ProcessEvent__DataEvent *data,
                     struct abx_err *err)
{
    const struct command *c = call->state;
    struct abx_event event = { .kind = ABX_EVENT_OUTPUT };
    const ProtobufCBinaryData *bytes = NULL;
    int r = 0;

    switch (data->output_case) {
    case PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_STDOUT:
        event.stream = ABX_STDOUT;
        bytes = &data->stdout;
        break;
    case PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_STDERR:
        event.stream = ABX_STDERR;
        bytes = &data->stderr;
        break;
    case PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_PTY:
        event.stream = ABX_PTY;
        bytes = &data->pty;
        break;
    default:
        return 0;
    }
    event.pid = c->result.pid;
    event.data = bytes->data;
    event.size = bytes->len;
    if (c->has_output)
        r = collect(call, event.stream, slice_of(bytes->data, bytes->len), err);
    if (r == 0 && event.size > 0)
        r = push(call, &event, err);
    return r;
}

static int take_end(abx_call *call, const Process__ProcessEvent__EndEvent *end, struct abx_err *err)
{
    struct command *c = call->state;
    struct abx_command_result *result = &c->result;
    struct abx_event event = { .kind = ABX_EVENT_END };
    bool has_error = end->error_opt_case == PROCESS__PROCESS_EVENT__END_EVENT__ERROR_OPT_ERROR;

    result->status = call_strdup(call, end->status);
    result->error = call_strdup(call, has_error ? end->error : "");
    if (!result->status || !result->error)
        return err_oom(err);
    result->exit_code = end->exit_code;
    result->exited = end->exited;
    result->is_ended = 1;
    event.pid = result->pid;
    event.exit_code = result->exit_code;
    event.exited = result->exited;
    event.text = result->status;
    return push(call, &event, err);
}

static enum envd_message on_kind(const ProtobufCMessage *m)
{
    const Process__ProcessEvent *e = ((const Process__StartResponse *)m)->event;

    switch (e ? e->event_case : PROCESS__PROCESS_EVENT__EVENT__NOT_SET) {
    case PROCESS__PROCESS_EVENT__EVENT_START:
        return ENVD_MESSAGE_START;
    case PROCESS__PROCESS_EVENT__EVENT_DATA:
        return ENVD_MESSAGE_DATA;
    case PROCESS__PROCESS_EVENT__EVENT_END:
        return ENVD_MESSAGE_END;
    default:
        return ENVD_MESSAGE_OTHER;
    }
}

static int on_message(void *user, const ProtobufCMessage *m, struct abx_err *err)
{
    abx_call *call = user;
    struct command *c = call->state;
    const Process__ProcessEvent *e = ((const Process__StartResponse *)m)->event;
    struct abx_event event = { .kind = ABX_EVENT_START };

    switch (e->event_case) {
    case PROCESS__PROCESS_EVENT__EVENT_DATA:
        return take_data(call, e->data, err);
    case PROCESS__PROCESS_EVENT__EVENT_END:
        return take_end(call, e->end, err);
    default: /* the start: on_kind lets nothing else through */
        c->result.pid = event.pid = e->start->pid;
        return push(call, &event, err);
    }
}

static bool on_is_full(void *user)
{
    return call_events_full(user);
}

static void on_done(void *user, const struct abx_err *err, int http_status)
{
    abx_call *call = user;

    if (err->code == 0)
        call_finish(call, ABX_RESULT_COMMAND);
    else
        call_fail_http(call, err, http_status);
}

int command_start(abx_call *call, const abx_sandbox *sandbox, const struct command_spec *spec,
                  struct abx_err *err)
{
    static const struct envd_stream_ops ops = { on_kind, on_message, on_is_full, on_done,
                                                "Command" };
    struct command *c = call->state;
    uint64_t max = spec->max_output_bytes ? spec->max_output_bytes : COMMAND_OUTPUT_MAX;
    struct envd_rpc rpc = {
        .procedure = spec->procedure,
        .user = spec->user,
        .request = spec->request,
        .response = spec->response,
        .timeout_ms = spec->timeout_ms == ABX_UNSET ? COMMAND_TIMEOUT_MS : spec->timeout_ms,
        .output_offset = spec->output_offset,
    };
    int r = timeout_check(spec->timeout_ms, "timeout_ms", err);

    if (r == 0)
        r = sandbox_deadline(sandbox, spec->request_timeout_ms, &rpc.deadline_ns, err);
    if (r == 0)
        r = text_check(spec->user, "user", false, err);
    if (r < 0)
        return r;
    c->has_events = spec->has_events;
    c->has_output = spec->has_output;
    call->bytes.limit = call->more.limit = (size_t)MIN(max, (uint64_t)SIZE_MAX / 2);
    return envd_stream_start(&c->stream, call->client, sandbox, &rpc, &ops, call, err);
}

void abx_call_command(const abx_call *call, struct abx_command_result *ret)
{
    const struct command *c;

    *ret = (struct abx_command_result){ .error = "", .status = "", .out = "", .err = "" };
    if (!call || call->ops != &command_ops)
        return;
    c = call->state;
    if (c->result.is_ended || c->result.pid != 0) {
        *ret = c->result;
        ret->status = ret->status ? ret->status : "";
        ret->error = ret->error ? ret->error : "";
    }
    ret->out = call->bytes.len > 0 ? buf_slice(&call->bytes).p : (const void *)"";
    ret->out_size = call->bytes.len;
    ret->err = call->more.len > 0 ? buf_slice(&call->more).p : (const void *)"";
    ret->err_size = call->more.len;
}

int abx_call_output_offset(const abx_call *call, uint64_t *ret)
{
    const struct command *c;

    if (!call || call->ops != &command_ops)
        return 0;
    c = call->state;
    if (c->stream.has_output_offset)
        *ret = c->stream.output_offset;
    return c->stream.has_output_offset;
}

/* ---- requests ---- */

static int config_envs(abx_call *call, const struct abx_command_opts *opts,
                       Process__ProcessConfig *config, struct abx_err *err)
{
    Process__ProcessConfig__EnvsEntry *entries =
        call_alloc_array(call, opts->env_count, sizeof *entries);
    int r = opts_array_check(opts->envs, opts->env_count, "envs", err);

    config->envs = call_alloc_array(call, opts->env_count, sizeof *config->envs);
    if (!entries || !config->envs)
        return err_oom(err);
    for (size_t i = 0; r == 0 && i < opts->env_count; i++) {
        const struct abx_pair *env = &opts->envs[i];

        r = text_check(env->key, "envs: a name", true, err);
        if (r == 0 && (env->key[0] == '\0' || strchr(env->key, '=')))
            r = err_set(err, ABX_INVALID_ARGUMENT, "envs: the name '%.64s' is empty or has '='",
                        env->key);
        if (r == 0)
            r = text_check(env->value, "envs: a value", true, err);
        process__process_config__envs_entry__init(&entries[i]);
        entries[i].key = pb_text(env->key);
        entries[i].value = pb_text(env->value);
        config->envs[i] = &entries[i];
    }
    config->n_envs = opts->env_count;
    return r;
}

int command_config(abx_call *call, const struct abx_command_opts *opts, const char *program,
                   char **args, size_t arg_count, Process__ProcessConfig *ret, struct abx_err *err)
{
    int r = 0;

    process__process_config__init(ret);
    ret->cmd = pb_text(program);
    ret->args = args;
    ret->n_args = arg_count;
    if (opts->argv) {
        if (opts->argc == 0)
            return err_set(err, ABX_INVALID_ARGUMENT, "argv is empty");
        for (size_t i = 0; r == 0 && i < opts->argc; i++)
            r = text_check(opts->argv[i], "argv: an argument", true, err);
        ret->cmd = pb_text(opts->argv[0]);
        ret->args = (char **)(uintptr_t)(opts->argv + 1);
        ret->n_args = opts->argc - 1;
    }
    for (size_t i = 0; r == 0 && !opts->argv && i < arg_count; i++)
        r = text_check(args[i], "command", true, err);
    if (r == 0)
        r = text_check(opts->cwd, "cwd", false, err);
    if (r == 0)
        r = text_check(opts->tag, "tag", false, err);
    if (r < 0)
        return r;
    if (opts->cwd) {
        ret->cwd_opt_case = PROCESS__PROCESS_CONFIG__CWD_OPT_CWD;
        ret->cwd = pb_text(opts->cwd);
    }
    return config_envs(call, opts, ret, err);
}

int process_selector(const struct abx_process_ref *process, Process__ProcessSelector *ret,
                     struct abx_err *err)
{
    process__process_selector__init(ret);
    if (process->tag) {
        ret->selector_case = PROCESS__PROCESS_SELECTOR__SELECTOR_TAG;
        ret->tag = pb_text(process->tag);
        return text_check(process->tag, "tag", true, err);
    }
    ret->selector_case = PROCESS__PROCESS_SELECTOR__SELECTOR_PID;
    ret->pid = process->pid;
    return process->pid ? 0 : err_set(err, ABX_INVALID_ARGUMENT, "process: pid is 0, tag is NULL");
}
