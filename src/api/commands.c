/* commands.c - commands: run, start, connect (abx/commands.h). */
#include "abx/commands.h"

#include "api/command.h"
#include "api/rpc_call.h"
#include "transport/opts.h"

static int start_command(abx_call *call, const abx_sandbox *sandbox, const char *command,
                         const struct abx_command_opts *given, bool has_events, struct abx_err *err)
{
    struct abx_command_opts opts = ABX_COMMAND_OPTS_INIT;
    char *args[] = { pb_text("-l"), pb_text("-c"), pb_text(command) };
    Process__StartRequest request = PROCESS__START_REQUEST__INIT;
    Process__ProcessConfig config;
    struct command_spec spec = {
        .procedure = "process.Process/Start",
        .request = &request.base,
        .response = &process__start_response__descriptor,
        .has_events = has_events,
    };
    int r = opts_copy(&opts, sizeof opts, given, "abx_command_opts", err);

    if (r == 0)
        r = command_config(call, &opts, "/bin/bash", args, ARRAY_SIZE(args), &config, err);
    if (r < 0)
        return r;
    request.process = &config;
    if (opts.tag) {
        request.tag_opt_case = PROCESS__START_REQUEST__TAG_OPT_TAG;
        request.tag = pb_text(opts.tag);
    }
    /* Older ones know no such field; there standard input is always open. */
    if (sandbox_has_envd(sandbox, 0, 3, 0)) {
        request.stdin_opt_case = PROCESS__START_REQUEST__STDIN_OPT_STDIN;
        request.stdin = opts.stdin_open != 0;
    }
    spec.user = opts.user;
    spec.timeout_ms = opts.timeout_ms;
    spec.request_timeout_ms = opts.request_timeout_ms;
    spec.max_output_bytes = opts.max_output_bytes;
    spec.has_output = !has_events || opts.collect;
    return command_start(call, sandbox, &spec, err);
}

static abx_call *command_call(abx_client *client, const abx_sandbox *sandbox, const char *command,
                              const struct abx_command_opts *opts, bool has_events)
{
    abx_call *call = command_new(client);
    struct abx_err err = { 0 };

    if (call && start_command(call, sandbox, command, opts, has_events, &err) < 0)
        call_fail(call, &err);
    return call;
}

abx_call *abx_command_run(abx_client *client, const abx_sandbox *sandbox, const char *command,
                          const struct abx_command_opts *opts)
{
    return command_call(client, sandbox, command, opts, false);
}

abx_call *abx_command_start(abx_client *client, const abx_sandbox *sandbox, const char *command,
                            const struct abx_command_opts *opts)
{
    return command_call(client, sandbox, command, opts, true);
}

static int start_connect(abx_call *call, const abx_sandbox *sandbox,
                         const struct abx_process_ref *process,
                         const struct abx_connect_opts *given, struct abx_err *err)
{
    struct abx_connect_opts opts = ABX_CONNECT_OPTS_INIT;
    uint64_t offset;
    Process__ConnectRequest request = PROCESS__CONNECT_REQUEST__INIT;
    Process__ProcessSelector selector;
    struct command_spec spec = {
        .procedure = "process.Process/Connect",
        .request = &request.base,
        .response = &process__connect_response__descriptor,
        .has_events = true,
    };
    int r = opts_copy(&opts, sizeof opts, given, "abx_connect_opts", err);

    if (r == 0)
        r = process_selector(process, &selector, err);
    if (r < 0)
        return r;
    if (opts.output_offset < ABX_UNSET)
        return err_set(err, ABX_INVALID_ARGUMENT, "output_offset is negative");
    offset = (uint64_t)opts.output_offset;
    if (opts.output_offset != ABX_UNSET)
        spec.output_offset = &offset;
    request.process = &selector;
    spec.timeout_ms = opts.timeout_ms;
    spec.request_timeout_ms = opts.request_timeout_ms;
    spec.has_output = opts.collect;
    return command_start(call, sandbox, &spec, err);
}

abx_call *abx_process_connect(abx_client *client, const abx_sandbox *sandbox,
                              struct abx_process_ref process, const struct abx_connect_opts *opts)
{
    abx_call *call = command_new(client);
    struct abx_err err = { 0 };

    if (call && start_connect(call, sandbox, &process, opts, &err) < 0)
        call_fail(call, &err);
    return call;
}
