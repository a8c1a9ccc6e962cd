/* pty.c - pseudo terminals: start and resize (abx/commands.h). */
#include <string.h>

#include "api/command.h"
#include "api/rpc_call.h"
#include "transport/opts.h"

/* What a terminal needs, unless the caller says otherwise. */
static const struct abx_pair pty_envs[] = {
    { "TERM", "xterm-256color" },
    { "LANG", "C.UTF-8" },
    { "LC_ALL", "C.UTF-8" },
};

static int size_set(uint16_t cols, uint16_t rows, Process__PTY *pty, Process__PTY__Size *size,
                    struct abx_err *err)
{
    process__pty__init(pty);
    process__pty__size__init(size);
    size->cols = cols;
    size->rows = rows;
    pty->size = size;
    return cols > 0 && rows > 0 ? 0
                                : err_set(err, ABX_INVALID_ARGUMENT, "cols and rows are 1..65535");
}

static bool has_env(const struct abx_command_opts *opts, const char *name)
{
    for (size_t i = 0; i < opts->env_count; i++)
        if (opts->envs[i].key && strcmp(opts->envs[i].key, name) == 0)
            return true;
    return false;
}

static int envs_add(abx_call *call, struct abx_command_opts *opts, struct abx_err *err)
{
    struct abx_pair *envs =
        call_alloc_array(call, opts->env_count + ARRAY_SIZE(pty_envs), sizeof *envs);
    size_t n = 0;

    if (!envs)
        return err_oom(err);
    if (opts_array_check(opts->envs, opts->env_count, "envs", err) < 0)
        return err->code;
    for (size_t i = 0; i < ARRAY_SIZE(pty_envs); i++)
        if (!has_env(opts, pty_envs[i].key))
            envs[n++] = pty_envs[i];
    for (size_t i = 0; i < opts->env_count; i++)
        envs[n++] = opts->envs[i];
    opts->envs = envs;
    opts->env_count = n;
    return 0;
}

static int start_pty(abx_call *call, const abx_sandbox *sandbox, uint16_t cols, uint16_t rows,
                     const struct abx_command_opts *given, struct abx_err *err)
{
    struct abx_command_opts opts = ABX_COMMAND_OPTS_INIT;
    char *args[] = { pb_text("-i"), pb_text("-l") };
    Process__StartRequest request = PROCESS__START_REQUEST__INIT;
    Process__ProcessConfig config;
    Process__PTY pty;
    Process__PTY__Size size;
    struct command_spec spec = {
        .procedure = "process.Process/Start",
        .request = &request.base,
        .response = &process__start_response__descriptor,
        .has_events = true,
    };
    int r = opts_copy(&opts, sizeof opts, given, "abx_command_opts", err);

    if (r == 0)
        r = size_set(cols, rows, &pty, &size, err);
    if (r == 0)
        r = envs_add(call, &opts, err);
    if (r == 0)
        r = command_config(call, &opts, "/bin/bash", args, ARRAY_SIZE(args), &config, err);
    if (r < 0)
        return r;
    request.process = &config;
    request.pty_opt_case = PROCESS__START_REQUEST__PTY_OPT_PTY;
    request.pty = &pty;
    if (opts.tag) {
        request.tag_opt_case = PROCESS__START_REQUEST__TAG_OPT_TAG;
        request.tag = pb_text(opts.tag);
    }
    spec.user = opts.user;
    spec.timeout_ms = opts.timeout_ms;
    spec.request_timeout_ms = opts.request_timeout_ms;
    spec.max_output_bytes = opts.max_output_bytes;
    spec.has_output = opts.collect;
    return command_start(call, sandbox, &spec, err);
}

abx_call *abx_pty_start(abx_client *client, const abx_sandbox *sandbox, uint16_t cols,
                        uint16_t rows, const struct abx_command_opts *opts)
{
    abx_call *call = command_new(client);
    struct abx_err err = { 0 };

    if (call && start_pty(call, sandbox, cols, rows, opts, &err) < 0)
        call_fail(call, &err);
    return call;
}

abx_call *abx_pty_resize(abx_client *client, const abx_sandbox *sandbox,
                         struct abx_process_ref process, uint16_t cols, uint16_t rows,
                         int64_t request_timeout_ms)
{
    Process__UpdateRequest request = PROCESS__UPDATE_REQUEST__INIT;
    Process__ProcessSelector selector;
    Process__PTY pty;
    Process__PTY__Size size;
    struct rpc_call_spec spec = {
        .procedure = "process.Process/Update",
        .request = &request.base,
        .response = &process__update_response__descriptor,
        .request_timeout_ms = request_timeout_ms,
        .result = ABX_RESULT_NONE,
    };
    struct abx_err err = { 0 };
    int r = process_selector(&process, &selector, &err);

    if (r == 0)
        r = size_set(cols, rows, &pty, &size, &err);
    if (r < 0)
        return call_new_failed(client, &err);
    request.process = &selector;
    request.pty_opt_case = PROCESS__UPDATE_REQUEST__PTY_OPT_PTY;
    request.pty = &pty;
    return rpc_call_start(client, sandbox, &spec);
}
