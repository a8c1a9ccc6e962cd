/* process.c - process.Process: what each RPC asks of a command (e2b.md 4.1). */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "guest/daemon/environment.h"
#include "guest/daemon/paths.h"
#include "guest/envd/call.h"
#include "guest/envd/process_stream.h"

#define CMDLINE_MAX 65536u

static const Process__SendInputResponse empty_input = PROCESS__SEND_INPUT_RESPONSE__INIT;

/* The command that a selector names; NOT_FOUND in envd's words. */
static int find(struct call *c, const Process__ProcessSelector *sel, bool with_ended,
                struct command **ret, struct abx_err *err)
{
    struct commands *cs = c->envd->commands;

    if (!sel || sel->selector_case == PROCESS__PROCESS_SELECTOR__SELECTOR__NOT_SET)
        return err_set(err, ABX_INVALID_ARGUMENT, "no process is selected");
    if (sel->selector_case == PROCESS__PROCESS_SELECTOR__SELECTOR_TAG) {
        *ret = command_find(cs, 0, sel->tag, with_ended);
        if (!*ret)
            return err_set(err, ABX_NOT_FOUND, "process with tag %s not found", sel->tag);
        return 0;
    }
    *ret = sel->pid <= INT32_MAX ? command_find(cs, (pid_t)sel->pid, NULL, with_ended) : NULL;
    if (!*ret)
        return err_set(err, ABX_NOT_FOUND, "process with pid %u not found", sel->pid);
    return 0;
}

/* --- Start, Connect ----------------------------------------------------------------------------- */

static void on_started(void *user, struct command *command, const struct abx_err *err)
{
    struct call *c = user;

    if (!command)
        call_fail(c, err);
    else if (c->ex)
        process_stream_begin(c, command);
    else
        call_drop(c); /* the client left: the command runs on */
}

static char **argv_make(const Process__ProcessConfig *config)
{
    char **argv = calloc(config->n_args + 2, sizeof(*argv));

    if (!argv)
        return NULL;
    argv[0] = config->cmd;
    for (size_t i = 0; i < config->n_args; i++)
        argv[i + 1] = config->args[i];
    return argv;
}

static int start(struct call *c, struct abx_err *err)
{
    Process__StartRequest *req = (Process__StartRequest *)c->request;
    struct command_opts opts = { .request = req, .user = &c->user, .deadline_ms = c->timeout_ms };
    _cleanup_(environment_freep) char **envp = NULL;
    _cleanup_(freep) char **argv = NULL;
    char cwd[PATH_MAX];
    int r;

    if (!req->process || req->process->cmd[0] == '\0')
        return err_set(err, ABX_INVALID_ARGUMENT, "no command is given");
    r = guest_path(&c->user, c->envd->id->default_workdir,
                   req->process->cwd_opt_case ? req->process->cwd : "", cwd, err);
    if (r < 0)
        return r;
    r = environment_make(c->envd->id, &c->user, req->process, &envp, err);
    if (r < 0)
        return r;
    argv = argv_make(req->process);
    if (!argv)
        return err_oom(err);
    opts.cwd = cwd;
    opts.argv = argv;
    opts.envp = envp;
    r = command_start(c->envd->commands, &opts, on_started, c, err);
    if (r == 0)
        c->request = NULL; /* the command's now */
    return r;
}

static void handle_start(struct call *c)
{
    struct abx_err err = { 0 };

    if (start(c, &err) < 0)
        call_fail(c, &err);
}

static void handle_connect(struct call *c)
{
    Process__ConnectRequest *req = (Process__ConnectRequest *)c->request;
    struct command *command;
    struct abx_err err = { 0 };

    if (find(c, req->process, true, &command, &err) < 0)
        call_fail(c, &err);
    else
        process_stream_begin(c, command);
}

/* --- List --------------------------------------------------------------------------------------- */

struct listing {
    Process__ListResponse response;
    size_t cap;
    bool is_oom;
};

/* What a survivor of a previous daemon was started with is known to the kernel only. */
static Process__ProcessConfig *config_of_survivor(const struct command *command)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(CMDLINE_MAX);
    Process__ProcessConfig *config = calloc(1, sizeof(*config));
    char path[64], *at, *end, *cmd;

    if (!config)
        return NULL;
    process__process_config__init(config);
    (void)snprintf(path, sizeof(path), "/proc/%d/cmdline", command->pid);
    if (file_read(AT_FDCWD, path, &text, NULL) < 0 || text.len == 0 ||
        buf_append_byte(&text, '\0') || !(config->args = calloc(text.len, sizeof(char *))))
        return config;
    at = (char *)buf_data(&text);
    end = at + text.len - 1;
    cmd = strdup(at);
    if (cmd)
        config->cmd = cmd;
    for (at += strlen(at) + 1; at < end; at += strlen(at) + 1) {
        config->args[config->n_args] = strdup(at);
        if (!config->args[config->n_args])
            break;
        config->n_args++;
    }
    return config;
}

static void list_one(void *user, struct command *command)
{
    struct listing *l = user;
    Process__ProcessInfo *info = calloc(1, sizeof(*info));

    if (!info || l->response.n_processes == l->cap) {
        l->is_oom = true;
        free(info);
        return;
    }
    process__process_info__init(info);
    l->response.processes[l->response.n_processes++] = info;
    info->pid = (uint32_t)command->pid;
    if (command->tag[0]) {
        info->tag_opt_case = PROCESS__PROCESS_INFO__TAG_OPT_TAG;
        info->tag = command->tag;
    }
    info->config = command->request ? command->request->process : config_of_survivor(command);
}

static void count_one(void *user, struct command *command)
{
    (*(size_t *)user)++;
}

static void listing_done(struct listing *l)
{
    for (size_t i = 0; i < l->response.n_processes; i++)
        free(l->response.processes[i]);
    free(l->response.processes);
}

static void survivor_config_free(void *user, struct command *command)
{
    struct listing *l = user;

    if (command->request)
        return;
    for (size_t i = 0; i < l->response.n_processes; i++) {
        Process__ProcessInfo *info = l->response.processes[i];
        if (info->pid == (uint32_t)command->pid && info->config) {
            protobuf_c_message_free_unpacked(&info->config->base, NULL);
            info->config = NULL;
        }
    }
}

static void handle_list(struct call *c)
{
    struct listing l = { .response = PROCESS__LIST_RESPONSE__INIT };
    struct commands *cs = c->envd->commands;
    struct abx_err err = { 0 };

    commands_each(cs, count_one, &l.cap);
    l.response.processes = calloc(l.cap + 1, sizeof(*l.response.processes));
    if (l.response.processes)
        commands_each(cs, list_one, &l);
    if (!l.response.processes || l.is_oom) {
        (void)err_oom(&err);
        call_fail(c, &err);
    } else {
        call_reply(c, &l.response.base);
    }
    commands_each(cs, survivor_config_free, &l);
    listing_done(&l);
}

/* --- input -------------------------------------------------------------------------------------- */

/* Is this kind of input for this kind of command? */
static int input_check(const struct command *command, const Process__ProcessInput *input,
                       struct slice *ret, struct abx_err *err)
{
    bool is_pty = input && input->input_case == PROCESS__PROCESS_INPUT__INPUT_PTY;

    if (!input || input->input_case == PROCESS__PROCESS_INPUT__INPUT__NOT_SET)
        return err_set(err, ABX_INVALID_ARGUMENT, "no input is given");
    if (is_pty && !command->is_pty)
        return err_set(err, ABX_INTERNAL, "process %d has no terminal", command->pid);
    if (!is_pty && command->is_pty)
        return err_set(err, ABX_INTERNAL, "process %d has a terminal: send its input as pty",
                       command->pid);
    *ret = is_pty ? slice_of(input->pty.data, input->pty.len)
                  : slice_of(input->stdin.data, input->stdin.len);
    return 0;
}

static void on_input_written(void *user, const struct abx_err *err)
{
    struct call *c = user;

    if (err->code)
        call_fail(c, err);
    else
        call_reply(c, &empty_input.base);
}

static void handle_send_input(struct call *c)
{
    Process__SendInputRequest *req = (Process__SendInputRequest *)c->request;
    struct command *command;
    struct abx_err err = { 0 };
    struct slice data;

    if (find(c, req->process, false, &command, &err) < 0 ||
        input_check(command, req->input, &data, &err) < 0 ||
        input_write(&command->input, data, on_input_written, c, &err) < 0)
        call_fail(c, &err);
}

static void handle_close_stdin(struct call *c)
{
    static const Process__CloseStdinResponse reply = PROCESS__CLOSE_STDIN_RESPONSE__INIT;
    Process__CloseStdinRequest *req = (Process__CloseStdinRequest *)c->request;
    struct command *command;
    struct abx_err err = { 0 };
    int r = find(c, req->process, false, &command, &err);

    if (r == 0 && command->is_pty)
        r = err_set(&err, ABX_FAILED_PRECONDITION,
                    "a terminal's input cannot be closed: send Ctrl+D (0x04)");
    else if (r == 0 && !command->has_stdin)
        r = err_set(&err, ABX_INTERNAL, "stdin not enabled or closed");
    if (r < 0) {
        call_fail(c, &err);
        return;
    }
    input_end(&command->input);
    call_reply(c, &reply.base);
}

/* --- StreamInput: a start message, then data ---------------------------------------------------- */

struct input_stream {
    pid_t pid; /* 0 before the start message */
    ProtobufCMessage *message;
};

static void input_stream_finish(struct call *c, const struct abx_err *err)
{
    static const Process__StreamInputResponse reply = PROCESS__STREAM_INPUT_RESPONSE__INIT;
    struct input_stream *s = c->data;

    if (s->message)
        rpc_message_free(s->message);
    free(s);
    c->data = NULL;
    if (err)
        call_fail(c, err);
    else
        call_reply(c, &reply.base);
}

static void on_stream_written(void *user, const struct abx_err *err)
{
    struct call *c = user;
    struct input_stream *s = c->data;

    rpc_message_free(s->message);
    s->message = NULL;
    if (err->code || !c->ex)
        input_stream_finish(c, err->code ? err : NULL);
    else
        call_next(c);
}

static void on_gone_from_stream(struct call *c)
{
    struct input_stream *s = c->data;

    if (!s->message) /* else on_stream_written follows */
        input_stream_finish(c, NULL);
}

static int stream_message(struct call *c, const Process__StreamInputRequest *m, bool *ret_waits,
                          struct abx_err *err)
{
    struct input_stream *s = c->data;
    struct command *command;
    struct slice data;
    int r;

    switch (m->event_case) {
    case PROCESS__STREAM_INPUT_REQUEST__EVENT_START:
        r = find(c, m->start->process, false, &command, err);
        s->pid = r == 0 ? command->pid : 0;
        return r;
    case PROCESS__STREAM_INPUT_REQUEST__EVENT_DATA:
        command = s->pid ? command_find(c->envd->commands, s->pid, NULL, false) : NULL;
        if (!command && s->pid == 0)
            return err_set(err, ABX_INVALID_ARGUMENT, "the first message selects a process");
        if (!command)
            return err_set(err, ABX_NOT_FOUND, "process with pid %d not found", s->pid);
        r = input_check(command, m->data->input, &data, err);
        if (r == 0)
            r = input_write(&command->input, data, on_stream_written, c, err);
        *ret_waits = r == 0;
        return r;
    default:
        return 0; /* keepalive */
    }
}

static void on_stream_message(struct call *c, ProtobufCMessage *m)
{
    struct input_stream *s = c->data;
    struct abx_err err = { 0 };
    bool waits = false;

    if (!m) {
        input_stream_finish(c, NULL);
        return;
    }
    s->message = m;
    if (stream_message(c, (Process__StreamInputRequest *)m, &waits, &err) < 0) {
        input_stream_finish(c, &err);
        return;
    }
    if (waits)
        return;
    rpc_message_free(s->message);
    s->message = NULL;
    call_next(c);
}

static void handle_stream_input(struct call *c)
{
    struct abx_err err = { 0 };

    c->data = calloc(1, sizeof(struct input_stream));
    if (!c->data) {
        (void)err_oom(&err);
        call_fail(c, &err);
        return;
    }
    c->on_gone = on_gone_from_stream;
    call_next(c);
}

/* --- Update, SendSignal ------------------------------------------------------------------------- */

static void handle_update(struct call *c)
{
    static const Process__UpdateResponse reply = PROCESS__UPDATE_RESPONSE__INIT;
    Process__UpdateRequest *req = (Process__UpdateRequest *)c->request;
    const Process__PTY__Size *size = req->pty_opt_case && req->pty ? req->pty->size : NULL;
    struct command *command;
    struct abx_err err = { 0 };
    int r = find(c, req->process, false, &command, &err);

    if (r == 0 && size)
        r = command_resize(command, size->cols, size->rows, &err);
    if (r < 0)
        call_fail(c, &err);
    else
        call_reply(c, &reply.base);
}

static void handle_send_signal(struct call *c)
{
    static const Process__SendSignalResponse reply = PROCESS__SEND_SIGNAL_RESPONSE__INIT;
    Process__SendSignalRequest *req = (Process__SendSignalRequest *)c->request;
    struct command *command;
    struct abx_err err = { 0 };
    int r = find(c, req->process, false, &command, &err);

    if (r == 0 && req->signal != PROCESS__SIGNAL__SIGNAL_SIGKILL &&
        req->signal != PROCESS__SIGNAL__SIGNAL_SIGTERM)
        r = err_set(&err, ABX_UNIMPLEMENTED, "signal %d is not supported", (int)req->signal);
    if (r == 0)
        r = command_signal(command, (int)req->signal, &err);
    if (r < 0)
        call_fail(c, &err);
    else
        call_reply(c, &reply.base);
}

#define METHOD(name, type, kind, handle)                                                           \
    { "/process.Process/" name, &process__##type##__descriptor, kind, handle, NULL }

const struct call_method process_methods[] = {
    METHOD("List", list_request, CALL_UNARY, handle_list),
    METHOD("Connect", connect_request, CALL_SERVER_STREAM, handle_connect),
    METHOD("Start", start_request, CALL_SERVER_STREAM, handle_start),
    METHOD("Update", update_request, CALL_UNARY, handle_update),
    METHOD("SendInput", send_input_request, CALL_UNARY, handle_send_input),
    METHOD("SendSignal", send_signal_request, CALL_UNARY, handle_send_signal),
    METHOD("CloseStdin", close_stdin_request, CALL_UNARY, handle_close_stdin),
    { "/process.Process/StreamInput", &process__stream_input_request__descriptor,
      CALL_CLIENT_STREAM, handle_stream_input, on_stream_message },
    { 0 },
};
