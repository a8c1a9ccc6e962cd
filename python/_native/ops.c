/* ops.c - one Python function per operation of libabx: f(client, target, values...), by a table.
 *
 * Each operation has a struct of its arguments, with defaults and a row of struct arg per value. The order
 * of the rows is that of the function's values, and that of _native.pyi.
 */
#include "args.h"

#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum target { TARGET_CONFIG, TARGET_SANDBOX };

/* What the operations without an options struct of their own take. */
struct simple {
    const char *id, *text, *other;
    int64_t number, end;
    int count;
    int flag;
    uint32_t pid, depth;
    uint16_t cols, rows;
    const void *data;
    size_t data_size;
    int64_t request_timeout_ms;
};

struct op {
    const char *name;
    enum target target;
    const struct arg *args;
    size_t arg_count;
    const void *init;
    size_t size;
    abx_call *(*start)(abx_client *client, void *target, void *args);
};

#define SIMPLE(name, kind, member) { name, kind, offsetof(struct simple, member), 0 }
#define SIMPLE_TIMEOUT SIMPLE("request_timeout", ARG_MS, request_timeout_ms)
static const struct simple simple_init = { .request_timeout_ms = ABX_UNSET };

/* ---- control plane ---- */

#define CREATE(name, kind, member) { name, kind, offsetof(struct abx_create_opts, member), 0 }
#define CREATE_N(name, kind, member, count)                                                        \
    { name, kind, offsetof(struct abx_create_opts, member),                                        \
      offsetof(struct abx_create_opts, count) }
static const struct abx_create_opts create_init = ABX_CREATE_OPTS_INIT;
static const struct arg create_args[] = {
    CREATE("template", ARG_TEXT, template_id),
    CREATE("timeout", ARG_INT64, timeout_s),
    CREATE_N("metadata", ARG_PAIRS, metadata, metadata_count),
    CREATE_N("envs", ARG_PAIRS, envs, env_count),
    CREATE("secure", ARG_FLAG, secure),
    CREATE("allow_internet_access", ARG_FLAG, allow_internet_access),
    CREATE("auto_pause", ARG_FLAG, auto_pause),
    CREATE("auto_pause_memory", ARG_FLAG, auto_pause_memory),
    CREATE("auto_resume", ARG_FLAG, auto_resume),
    CREATE("network", ARG_TEXT, network_json),
    CREATE("mcp", ARG_TEXT, mcp_json),
    CREATE_N("volume_mounts", ARG_MOUNTS, mounts, mount_count),
    CREATE("request_timeout", ARG_MS, request_timeout_ms),
};
static abx_call *create_start(abx_client *client, void *config, void *args)
{
    return abx_sandbox_create(client, config, args);
}

static const struct arg connect_args[] = {
    SIMPLE("sandbox_id", ARG_NEEDED, id),
    SIMPLE("timeout", ARG_INT64, number),
    SIMPLE_TIMEOUT,
};
static abx_call *connect_start(abx_client *client, void *config, void *args)
{
    const struct simple *a = args;

    return abx_sandbox_connect(client, config, a->id, a->number, a->request_timeout_ms);
}

static const struct arg id_args[] = { SIMPLE("sandbox_id", ARG_NEEDED, id), SIMPLE_TIMEOUT };
static abx_call *kill_start(abx_client *client, void *config, void *args)
{
    const struct simple *a = args;

    return abx_sandbox_kill(client, config, a->id, a->request_timeout_ms);
}
static abx_call *info_start(abx_client *client, void *config, void *args)
{
    const struct simple *a = args;

    return abx_sandbox_get_info(client, config, a->id, a->request_timeout_ms);
}

static abx_call *set_timeout_start(abx_client *client, void *config, void *args)
{
    const struct simple *a = args;

    return abx_sandbox_set_timeout(client, config, a->id, a->number, a->request_timeout_ms);
}

static const struct arg pause_args[] = {
    SIMPLE("sandbox_id", ARG_NEEDED, id),
    SIMPLE("keep_memory", ARG_FLAG, flag),
    SIMPLE_TIMEOUT,
};
static abx_call *pause_start(abx_client *client, void *config, void *args)
{
    const struct simple *a = args;

    return abx_sandbox_pause(client, config, a->id, a->flag, a->request_timeout_ms);
}
static abx_call *pause_strict_start(abx_client *client, void *config, void *args)
{
    const struct simple *a = args;

    return abx_sandbox_pause_strict(client, config, a->id, a->flag, a->request_timeout_ms);
}

static const struct arg network_args[] = {
    SIMPLE("sandbox_id", ARG_NEEDED, id),
    SIMPLE("network", ARG_NEEDED, text),
    SIMPLE_TIMEOUT,
};
static abx_call *network_start(abx_client *client, void *config, void *args)
{
    const struct simple *a = args;

    return abx_sandbox_update_network(client, config, a->id, a->text, a->request_timeout_ms);
}

#define LIST(name, kind, member) { name, kind, offsetof(struct abx_list_opts, member), 0 }
static const struct abx_list_opts list_init = ABX_LIST_OPTS_INIT;
static const struct arg list_args[] = {
    { "metadata", ARG_PAIRS, offsetof(struct abx_list_opts, metadata),
      offsetof(struct abx_list_opts, metadata_count) },
    LIST("state", ARG_TEXT, states),
    LIST("limit", ARG_INT, limit),
    LIST("next_token", ARG_TEXT, next_token),
    LIST("request_timeout", ARG_MS, request_timeout_ms),
};
static abx_call *list_start(abx_client *client, void *config, void *args)
{
    return abx_sandbox_list(client, config, args);
}

static const struct arg metrics_args[] = {
    SIMPLE("sandbox_id", ARG_NEEDED, id),
    SIMPLE("start", ARG_INT64, number),
    SIMPLE("end", ARG_INT64, end),
    SIMPLE_TIMEOUT,
};
static abx_call *metrics_start(abx_client *client, void *config, void *args)
{
    const struct simple *a = args;

    return abx_sandbox_get_metrics(client, config, a->id, a->number, a->end, a->request_timeout_ms);
}

static const struct arg snapshot_create_args[] = {
    SIMPLE("sandbox_id", ARG_NEEDED, id),
    SIMPLE("name", ARG_TEXT, text),
    SIMPLE_TIMEOUT,
};
static abx_call *snapshot_create_start(abx_client *client, void *config, void *args)
{
    const struct simple *a = args;

    return abx_snapshot_create(client, config, a->id, a->text, a->request_timeout_ms);
}

static const struct arg snapshot_list_args[] = {
    SIMPLE("sandbox_id", ARG_TEXT, id),
    SIMPLE("name", ARG_TEXT, text),
    SIMPLE("limit", ARG_INT, count),
    SIMPLE("next_token", ARG_TEXT, other),
    SIMPLE_TIMEOUT,
};
static abx_call *snapshot_list_start(abx_client *client, void *config, void *args)
{
    const struct simple *a = args;

    return abx_snapshot_list(client, config, a->id, a->text, a->count, a->other,
                             a->request_timeout_ms);
}

static const struct arg rollback_args[] = {
    SIMPLE("sandbox_id", ARG_NEEDED, id),
    SIMPLE("snapshot_id", ARG_NEEDED, text),
    SIMPLE_TIMEOUT,
};
static abx_call *rollback_start(abx_client *client, void *config, void *args)
{
    const struct simple *a = args;

    return abx_sandbox_rollback(client, config, a->id, a->text, a->request_timeout_ms);
}

static const struct arg fork_args[] = {
    SIMPLE("sandbox_id", ARG_NEEDED, id),
    SIMPLE("count", ARG_INT, count),
    SIMPLE("timeout", ARG_INT64, number),
    SIMPLE_TIMEOUT,
};
static abx_call *fork_start(abx_client *client, void *config, void *args)
{
    const struct simple *a = args;

    return abx_sandbox_fork(client, config, a->id, a->count, a->number, a->request_timeout_ms);
}

static const struct arg snapshot_delete_args[] = {
    SIMPLE("snapshot_id", ARG_NEEDED, id),
    SIMPLE_TIMEOUT,
};
static abx_call *snapshot_delete_start(abx_client *client, void *config, void *args)
{
    const struct simple *a = args;

    return abx_snapshot_delete(client, config, a->id, a->request_timeout_ms);
}

#define CONTROL(name, kind, member) { name, kind, offsetof(struct abx_control_opts, member), 0 }
static const struct abx_control_opts control_init = { .size = sizeof(struct abx_control_opts),
                                                      .request_timeout_ms = ABX_UNSET };
static const struct arg control_args[] = {
    CONTROL("method", ARG_NEEDED, method),
    CONTROL("path", ARG_NEEDED, path),
    CONTROL("query", ARG_TEXT, query),
    CONTROL("body", ARG_TEXT, body_json),
    CONTROL("request_timeout", ARG_MS, request_timeout_ms),
};
static abx_call *control_start(abx_client *client, void *config, void *args)
{
    return abx_control_request(client, config, args);
}

#define HTTP(name, kind, member) { name, kind, offsetof(struct abx_http_opts, member), 0 }
static const struct abx_http_opts http_init = ABX_HTTP_OPTS_INIT;
static const struct arg http_args[] = {
    HTTP("method", ARG_NEEDED, method),
    HTTP("url", ARG_NEEDED, url),
    { "headers", ARG_PAIRS, offsetof(struct abx_http_opts, headers),
      offsetof(struct abx_http_opts, header_count) },
    { "body", ARG_DATA, offsetof(struct abx_http_opts, body),
      offsetof(struct abx_http_opts, body_size) },
    HTTP("stream", ARG_FLAG, stream),
    HTTP("max_bytes", ARG_UINT64, max_bytes),
    HTTP("request_timeout", ARG_MS, request_timeout_ms),
    HTTP("idle_timeout", ARG_MS, idle_timeout_ms),
};
static abx_call *http_start(abx_client *client, void *config, void *args)
{
    return abx_http_request(client, config, args);
}

/* ---- files ---- */

static const struct arg running_args[] = { SIMPLE_TIMEOUT };
static abx_call *running_start(abx_client *client, void *sandbox, void *args)
{
    const struct simple *a = args;

    return abx_sandbox_is_running(client, sandbox, a->request_timeout_ms);
}

struct read_args {
    const char *path;
    struct abx_read_opts o;
};
static const struct read_args read_init = { NULL, ABX_READ_OPTS_INIT };
static const struct arg read_args[] = {
    { "path", ARG_NEEDED, offsetof(struct read_args, path), 0 },
    { "user", ARG_TEXT, offsetof(struct read_args, o.user), 0 },
    { "gzip", ARG_FLAG, offsetof(struct read_args, o.gzip), 0 },
    { "stream", ARG_FLAG, offsetof(struct read_args, o.stream), 0 },
    { "request_timeout", ARG_MS, offsetof(struct read_args, o.request_timeout_ms), 0 },
    { "stream_idle_timeout", ARG_MS, offsetof(struct read_args, o.idle_timeout_ms), 0 },
    { "into_bytearray", ARG_ROOM, offsetof(struct read_args, o.room),
      offsetof(struct read_args, o.room_user) },
};
static abx_call *read_start(abx_client *client, void *sandbox, void *args)
{
    const struct read_args *a = args;

    return abx_files_read(client, sandbox, a->path, &a->o);
}

struct write_args {
    struct abx_write_item *items;
    size_t count;
    struct abx_write_opts o;
};
static const struct write_args write_init = { NULL, 0, ABX_WRITE_OPTS_INIT };
static const struct arg write_args[] = {
    { "files", ARG_ITEMS, offsetof(struct write_args, items), offsetof(struct write_args, count) },
    { "user", ARG_TEXT, offsetof(struct write_args, o.user), 0 },
    { "gzip", ARG_FLAG, offsetof(struct write_args, o.gzip), 0 },
    { "use_octet_stream", ARG_FLAG, offsetof(struct write_args, o.octet_stream), 0 },
    { "metadata", ARG_PAIRS, offsetof(struct write_args, o.metadata),
      offsetof(struct write_args, o.metadata_count) },
    { "request_timeout", ARG_MS, offsetof(struct write_args, o.request_timeout_ms), 0 },
};
static abx_call *write_start(abx_client *client, void *sandbox, void *args)
{
    const struct write_args *a = args;

    return abx_files_write(client, sandbox, a->items, a->count, &a->o);
}

struct path_args {
    const char *path, *to;
    uint32_t depth;
    struct abx_files_opts o;
};
#define PATH_USER { "user", ARG_TEXT, offsetof(struct path_args, o.user), 0 }
#define PATH_TIMEOUT                                                                               \
    { "request_timeout", ARG_MS, offsetof(struct path_args, o.request_timeout_ms), 0 }
static const struct path_args path_init = { NULL, NULL, 1, ABX_FILES_OPTS_INIT };
static const struct arg path_args[] = {
    { "path", ARG_NEEDED, offsetof(struct path_args, path), 0 },
    PATH_USER,
    PATH_TIMEOUT,
};
static const struct arg list_dir_args[] = {
    { "path", ARG_NEEDED, offsetof(struct path_args, path), 0 },
    { "depth", ARG_UINT32, offsetof(struct path_args, depth), 0 },
    PATH_USER,
    PATH_TIMEOUT,
};
static const struct arg rename_args[] = {
    { "old_path", ARG_NEEDED, offsetof(struct path_args, path), 0 },
    { "new_path", ARG_NEEDED, offsetof(struct path_args, to), 0 },
    PATH_USER,
    PATH_TIMEOUT,
};
static abx_call *list_dir_start(abx_client *client, void *sandbox, void *args)
{
    const struct path_args *a = args;

    return abx_files_list(client, sandbox, a->path, a->depth, &a->o);
}
static abx_call *rename_start(abx_client *client, void *sandbox, void *args)
{
    const struct path_args *a = args;

    return abx_files_rename(client, sandbox, a->path, a->to, &a->o);
}
#define PATH_START(name, function)                                                                 \
    static abx_call *name(abx_client *client, void *sandbox, void *args)                           \
    {                                                                                              \
        const struct path_args *a = args;                                                          \
                                                                                                   \
        return function(client, sandbox, a->path, &a->o);                                          \
    }
PATH_START(stat_start, abx_files_stat)
PATH_START(exists_start, abx_files_exists)
PATH_START(make_dir_start, abx_files_make_dir)
PATH_START(remove_start, abx_files_remove)
PATH_START(watcher_events_start, abx_watcher_get_events)
PATH_START(watcher_remove_start, abx_watcher_remove)

struct watch_args {
    const char *path;
    struct abx_watch_opts o;
};
static const struct watch_args watch_init = { NULL, ABX_WATCH_OPTS_INIT };
static const struct arg watch_args[] = {
    { "path", ARG_NEEDED, offsetof(struct watch_args, path), 0 },
    { "user", ARG_TEXT, offsetof(struct watch_args, o.user), 0 },
    { "recursive", ARG_FLAG, offsetof(struct watch_args, o.recursive), 0 },
    { "include_entry", ARG_FLAG, offsetof(struct watch_args, o.include_entry), 0 },
    { "allow_network_mounts", ARG_FLAG, offsetof(struct watch_args, o.allow_network_mounts), 0 },
    { "timeout", ARG_MS, offsetof(struct watch_args, o.timeout_ms), 0 },
    { "request_timeout", ARG_MS, offsetof(struct watch_args, o.request_timeout_ms), 0 },
};
static abx_call *watch_start(abx_client *client, void *sandbox, void *args)
{
    const struct watch_args *a = args;

    return abx_files_watch(client, sandbox, a->path, &a->o);
}
static abx_call *watcher_create_start(abx_client *client, void *sandbox, void *args)
{
    const struct watch_args *a = args;

    return abx_watcher_create(client, sandbox, a->path, &a->o);
}

/* ---- commands ---- */

struct command_args {
    const char *command;
    uint16_t cols, rows;
    struct abx_command_opts o;
};
static const struct command_args command_init = { NULL, 80, 24, ABX_COMMAND_OPTS_INIT };
#define COMMAND(name, kind, member) { name, kind, offsetof(struct command_args, member), 0 }
#define COMMAND_COMMON                                                                             \
    COMMAND("user", ARG_TEXT, o.user), COMMAND("cwd", ARG_TEXT, o.cwd),                            \
        { "envs", ARG_PAIRS, offsetof(struct command_args, o.envs),                                \
          offsetof(struct command_args, o.env_count) },                                            \
        COMMAND("stdin", ARG_FLAG, o.stdin_open), COMMAND("timeout", ARG_MS, o.timeout_ms),        \
        COMMAND("request_timeout", ARG_MS, o.request_timeout_ms)
static const struct arg run_args[] = {
    COMMAND("cmd", ARG_NEEDED, command),
    COMMAND_COMMON,
};
static const struct arg pty_args[] = {
    COMMAND("cols", ARG_UINT16, cols),
    COMMAND("rows", ARG_UINT16, rows),
    COMMAND_COMMON,
};
static abx_call *run_start(abx_client *client, void *sandbox, void *args)
{
    const struct command_args *a = args;

    return abx_command_run(client, sandbox, a->command, &a->o);
}
static abx_call *command_start(abx_client *client, void *sandbox, void *args)
{
    const struct command_args *a = args;

    return abx_command_start(client, sandbox, a->command, &a->o);
}
static abx_call *pty_start(abx_client *client, void *sandbox, void *args)
{
    const struct command_args *a = args;

    return abx_pty_start(client, sandbox, a->cols, a->rows, &a->o);
}

struct process_args {
    struct abx_process_ref process;
    struct abx_connect_opts o;
};
static const struct process_args process_init = { { 0, NULL }, ABX_CONNECT_OPTS_INIT };
static const struct arg process_args[] = {
    { "pid", ARG_UINT32, offsetof(struct process_args, process.pid), 0 },
    { "timeout", ARG_MS, offsetof(struct process_args, o.timeout_ms), 0 },
    { "request_timeout", ARG_MS, offsetof(struct process_args, o.request_timeout_ms), 0 },
    { "output_offset", ARG_INT64, offsetof(struct process_args, o.output_offset), 0 },
};
static abx_call *process_start(abx_client *client, void *sandbox, void *args)
{
    const struct process_args *a = args;

    return abx_process_connect(client, sandbox, a->process, &a->o);
}
static abx_call *process_list_start(abx_client *client, void *sandbox, void *args)
{
    const struct simple *a = args;

    return abx_process_list(client, sandbox, a->request_timeout_ms);
}

static const struct arg signal_args[] = {
    SIMPLE("pid", ARG_UINT32, pid),
    SIMPLE("signal", ARG_INT, count),
    SIMPLE_TIMEOUT,
};
static abx_call *signal_start(abx_client *client, void *sandbox, void *args)
{
    const struct simple *a = args;

    return abx_process_signal(client, sandbox, (struct abx_process_ref){ a->pid, NULL }, a->count,
                              a->request_timeout_ms);
}

static const struct arg stdin_args[] = {
    SIMPLE("pid", ARG_UINT32, pid),
    SIMPLE("pty", ARG_FLAG, flag),
    { "data", ARG_DATA, offsetof(struct simple, data), offsetof(struct simple, data_size) },
    SIMPLE_TIMEOUT,
};
static abx_call *stdin_start(abx_client *client, void *sandbox, void *args)
{
    const struct simple *a = args;

    return abx_process_send_stdin(client, sandbox, (struct abx_process_ref){ a->pid, NULL },
                                  a->flag, a->data, a->data_size, a->request_timeout_ms);
}

static const struct arg pid_args[] = { SIMPLE("pid", ARG_UINT32, pid), SIMPLE_TIMEOUT };
static abx_call *stdin_close_start(abx_client *client, void *sandbox, void *args)
{
    const struct simple *a = args;

    return abx_process_close_stdin(client, sandbox, (struct abx_process_ref){ a->pid, NULL },
                                   a->request_timeout_ms);
}

static const struct arg resize_args[] = {
    SIMPLE("pid", ARG_UINT32, pid),
    SIMPLE("cols", ARG_UINT16, cols),
    SIMPLE("rows", ARG_UINT16, rows),
    SIMPLE_TIMEOUT,
};
static abx_call *resize_start(abx_client *client, void *sandbox, void *args)
{
    const struct simple *a = args;

    return abx_pty_resize(client, sandbox, (struct abx_process_ref){ a->pid, NULL }, a->cols,
                          a->rows, a->request_timeout_ms);
}

/* ---- code interpreter ---- */

struct code_args {
    const char *code;
    struct abx_code_opts o;
};
static const struct code_args code_init = { NULL, ABX_CODE_OPTS_INIT };
static const struct arg code_args[] = {
    { "code", ARG_NEEDED, offsetof(struct code_args, code), 0 },
    { "language", ARG_TEXT, offsetof(struct code_args, o.language), 0 },
    { "context", ARG_TEXT, offsetof(struct code_args, o.context_id), 0 },
    { "envs", ARG_PAIRS, offsetof(struct code_args, o.envs),
      offsetof(struct code_args, o.env_count) },
    { "timeout", ARG_MS, offsetof(struct code_args, o.timeout_ms), 0 },
    { "request_timeout", ARG_MS, offsetof(struct code_args, o.request_timeout_ms), 0 },
};
static abx_call *code_start(abx_client *client, void *sandbox, void *args)
{
    const struct code_args *a = args;

    return abx_code_run(client, sandbox, a->code, &a->o);
}

static const struct arg context_create_args[] = {
    SIMPLE("language", ARG_TEXT, text),
    SIMPLE("cwd", ARG_TEXT, other),
    SIMPLE_TIMEOUT,
};
static abx_call *context_create_start(abx_client *client, void *sandbox, void *args)
{
    const struct simple *a = args;

    return abx_code_context_create(client, sandbox, a->text, a->other, a->request_timeout_ms);
}
static abx_call *context_list_start(abx_client *client, void *sandbox, void *args)
{
    const struct simple *a = args;

    return abx_code_context_list(client, sandbox, a->request_timeout_ms);
}

static const struct arg context_args[] = { SIMPLE("context", ARG_NEEDED, id), SIMPLE_TIMEOUT };
static abx_call *context_restart_start(abx_client *client, void *sandbox, void *args)
{
    const struct simple *a = args;

    return abx_code_context_restart(client, sandbox, a->id, a->request_timeout_ms);
}
static abx_call *context_remove_start(abx_client *client, void *sandbox, void *args)
{
    const struct simple *a = args;

    return abx_code_context_remove(client, sandbox, a->id, a->request_timeout_ms);
}

/* ---- the table ---- */

#define OP(name, target, args, init, start)                                                        \
    { name, target, args, COUNT(args), &(init), sizeof(init), start }
static const struct op ops[] = {
    OP("sandbox_create", TARGET_CONFIG, create_args, create_init, create_start),
    OP("sandbox_connect", TARGET_CONFIG, connect_args, simple_init, connect_start),
    OP("sandbox_kill", TARGET_CONFIG, id_args, simple_init, kill_start),
    OP("sandbox_get_info", TARGET_CONFIG, id_args, simple_init, info_start),
    OP("sandbox_set_timeout", TARGET_CONFIG, connect_args, simple_init, set_timeout_start),
    OP("sandbox_pause", TARGET_CONFIG, pause_args, simple_init, pause_start),
    OP("sandbox_pause_strict", TARGET_CONFIG, pause_args, simple_init, pause_strict_start),
    OP("sandbox_rollback", TARGET_CONFIG, rollback_args, simple_init, rollback_start),
    OP("sandbox_fork", TARGET_CONFIG, fork_args, simple_init, fork_start),
    OP("sandbox_update_network", TARGET_CONFIG, network_args, simple_init, network_start),
    OP("sandbox_list", TARGET_CONFIG, list_args, list_init, list_start),
    OP("sandbox_get_metrics", TARGET_CONFIG, metrics_args, simple_init, metrics_start),
    OP("snapshot_create", TARGET_CONFIG, snapshot_create_args, simple_init, snapshot_create_start),
    OP("snapshot_list", TARGET_CONFIG, snapshot_list_args, simple_init, snapshot_list_start),
    OP("snapshot_delete", TARGET_CONFIG, snapshot_delete_args, simple_init, snapshot_delete_start),
    OP("control_request", TARGET_CONFIG, control_args, control_init, control_start),
    OP("http_request", TARGET_CONFIG, http_args, http_init, http_start),
    OP("sandbox_is_running", TARGET_SANDBOX, running_args, simple_init, running_start),
    OP("files_read", TARGET_SANDBOX, read_args, read_init, read_start),
    OP("files_write", TARGET_SANDBOX, write_args, write_init, write_start),
    OP("files_list", TARGET_SANDBOX, list_dir_args, path_init, list_dir_start),
    OP("files_stat", TARGET_SANDBOX, path_args, path_init, stat_start),
    OP("files_exists", TARGET_SANDBOX, path_args, path_init, exists_start),
    OP("files_make_dir", TARGET_SANDBOX, path_args, path_init, make_dir_start),
    OP("files_rename", TARGET_SANDBOX, rename_args, path_init, rename_start),
    OP("files_remove", TARGET_SANDBOX, path_args, path_init, remove_start),
    OP("files_watch", TARGET_SANDBOX, watch_args, watch_init, watch_start),
    OP("watcher_create", TARGET_SANDBOX, watch_args, watch_init, watcher_create_start),
    OP("watcher_get_events", TARGET_SANDBOX, path_args, path_init, watcher_events_start),
    OP("watcher_remove", TARGET_SANDBOX, path_args, path_init, watcher_remove_start),
    OP("command_run", TARGET_SANDBOX, run_args, command_init, run_start),
    OP("command_start", TARGET_SANDBOX, run_args, command_init, command_start),
    OP("pty_start", TARGET_SANDBOX, pty_args, command_init, pty_start),
    OP("process_connect", TARGET_SANDBOX, process_args, process_init, process_start),
    OP("process_list", TARGET_SANDBOX, running_args, simple_init, process_list_start),
    OP("process_signal", TARGET_SANDBOX, signal_args, simple_init, signal_start),
    OP("process_send_stdin", TARGET_SANDBOX, stdin_args, simple_init, stdin_start),
    OP("process_close_stdin", TARGET_SANDBOX, pid_args, simple_init, stdin_close_start),
    OP("code_run", TARGET_SANDBOX, code_args, code_init, code_start),
    OP("code_context_create", TARGET_SANDBOX, context_create_args, simple_init,
       context_create_start),
    OP("code_context_list", TARGET_SANDBOX, running_args, simple_init, context_list_start),
    OP("code_context_restart", TARGET_SANDBOX, context_args, simple_init, context_restart_start),
    OP("code_context_remove", TARGET_SANDBOX, context_args, simple_init, context_remove_start),
    OP("pty_resize", TARGET_SANDBOX, resize_args, simple_init, resize_start),
};

/* ---- starting one ---- */

union any_args {
    struct simple simple;
    struct abx_create_opts create;
    struct abx_list_opts list;
    struct abx_control_opts control;
    struct abx_http_opts http;
    struct read_args read;
    struct write_args write;
    struct path_args path;
    struct watch_args watch;
    struct command_args command;
    struct process_args process;
    struct code_args code;
};

/* The libabx object behind `value`, or NULL with TypeError. */
static void *target_get(enum target target, PyObject *value)
{
    if (target == TARGET_CONFIG && PyObject_TypeCheck(value, config_type))
        return ((struct config *)value)->abx;
    if (target == TARGET_SANDBOX && PyObject_TypeCheck(value, sandbox_type))
        return ((struct sandbox *)value)->abx;
    PyErr_SetString(PyExc_TypeError, target == TARGET_CONFIG ? "config has to be a Config"
                                                             : "sandbox has to be a Sandbox");
    return NULL;
}

static PyObject *op_start(PyObject *self, PyObject *const *values, Py_ssize_t given)
{
    const struct op *op = &ops[PyLong_AsLong(self)];
    struct arg_memory mem = { 0 };
    union any_args args;
    PyObject *call = NULL;
    struct client *c;
    void *target;

    if (given < 2 || !PyObject_TypeCheck(values[0], client_type)) {
        PyErr_Format(PyExc_TypeError, "%s takes a Client first", op->name);
        return NULL;
    }
    c = (struct client *)values[0];
    target = target_get(op->target, values[1]);
    mem.op = target ? operation_new(c) : NULL;
    if (!mem.op)
        return NULL;
    memcpy(&args, op->init, op->size);
    if (args_parse(op->args, op->arg_count, values + 2, given - 2, op->name, &args, &mem) == 0 &&
        client_enter(c) == 0) {
        call = call_wrap(c, op->start(c->abx, target, &args), mem.op);
        if (!call)
            operation_free(mem.op);
        client_leave(c);
    } else {
        operation_free(mem.op);
    }
    args_done(&mem);
    return call;
}

int ops_add(PyObject *module)
{
    static PyMethodDef methods[COUNT(ops)];
    PyObject *name = PyUnicode_FromString("agent_sandbox._native");
    int r = name ? 0 : -1;

    for (size_t i = 0; r == 0 && i < COUNT(ops); i++) {
        PyObject *index = PyLong_FromSize_t(i);
        PyObject *function = NULL;

        methods[i] = (PyMethodDef){ ops[i].name, (PyCFunction)(void (*)(void))op_start,
                                    METH_FASTCALL, "Starts the operation; returns its Call." };
        if (index)
            function = PyCFunction_NewEx(&methods[i], index, name);
        r = function ? PyObject_SetAttrString(module, ops[i].name, function) : -1;
        Py_XDECREF(function);
        Py_XDECREF(index);
    }
    Py_XDECREF(name);
    return r;
}
